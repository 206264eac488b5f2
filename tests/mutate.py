"""Random damage to text, for fuzzing parsers: characters, tokens and lines dropped, doubled, swapped or replaced."""

import random
import re

_PIECES = ("%", "%3", "(", ")", "{", "}", "[", "]", ":", ",", "=", "-", "0", "-1", "99999999999999999999", "1e999",
           "nan", "\n", "none", "loop", "if", "yield", "f32", "bool", "i", "k", "M", '"', "\x00", "é")


def mutate(r: random.Random, text: str, changes: int = 3) -> str:
    for _ in range(r.randint(1, changes)):
        text = _one(r, text)
    return text


def _one(r: random.Random, text: str) -> str:
    kind = r.randrange(8)
    if kind == 0:
        at = r.randrange(len(text) + 1)
        return text[:at] + r.choice(_PIECES) + text[at + r.randint(0, 2):]
    if kind == 1:
        lines = text.split("\n")
        a, b = r.randrange(len(lines)), r.randrange(len(lines))
        lines[a], lines[b] = lines[b], lines[a]
        return "\n".join(lines)
    if kind == 2:
        lines = text.split("\n")
        at = r.randrange(len(lines))
        lines[at:at + 1] = [lines[at]] * r.choice((0, 2))
        return "\n".join(lines)
    # Tokens: another of the same kind in place of one keeps the grammar and breaks the meaning.
    tokens = re.findall(r"\s+|%?\w+|.", text, re.DOTALL)
    words = [k for k, t in enumerate(tokens) if re.match(r"%?\w", t)]
    if not words:
        return text
    at = r.choice(words)
    alike = [tokens[k] for k in words if _kind(tokens[k]) == _kind(tokens[at])]
    tokens[at] = r.choice(_PIECES) if kind == 3 else r.choice(alike)
    return "".join(tokens)


def _kind(token: str) -> str:
    return "%" if token[0] == "%" else "0" if token[0].isdigit() else "name"
