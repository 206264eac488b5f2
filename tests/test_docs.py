"""The guides hold what they say: snippets run, links lead somewhere, named cases and commands exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from benchmarks import harness, kernels, models
from tilewright.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def run(source: str, folder: Path) -> dict[str, object]:
    file = folder / "snippet.py"  # kernels are read from their file
    file.write_text(source)
    return runpy.run_path(str(file))


def test_the_kernel_of_the_readme(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (source,) = (b for b in blocks(ROOT / "README.md", "python") if "@tw.kernel" in b)
    names = run(source, tmp_path)
    x, w, b = (np.asarray(names[n], np.float64) for n in ("x", "w", "b"))
    want = np.maximum(x @ w + b, 0)
    assert np.linalg.norm(np.asarray(names["y"]) - want) < 1e-5 * np.linalg.norm(want)
    assert "Tile IR" in capsys.readouterr().out


def test_the_first_kernel_of_the_language_guide(tmp_path: Path) -> None:
    source = blocks(ROOT / "docs" / "language.md", "python")[0]
    names = run("import tilewright as tw\n" + source, tmp_path)
    ones = np.ones((3, 3), np.float32)
    assert (names["linear_relu"](ones, ones, ones[0]) == 4).all()  # type: ignore[operator]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)", page.read_text())
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not missing


def test_cases_named_in_the_performance_page_exist() -> None:
    options = harness.Options()
    names = [c.name for c in (*kernels.cases(options), *models.cases(options))]
    tables = re.findall(r"\| ((?:`[^`]+`(?:, )?)+) \|$", (ROOT / "docs" / "performance.md").read_text(), re.MULTILINE)
    wanted = [w for cell in tables for w in re.findall(r"`([^`]+)`", cell) if w != "--case"]
    assert len(wanted) > 10
    assert [w for w in wanted if not any(w in n for n in names)] == []


def test_commands_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text()
    commands = {c.name for c in app.registered_commands} | {g.name for g in app.registered_groups}
    assert set(re.findall(r"^tilewright (\w+)", text, re.MULTILINE)) <= commands
    rules = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make (\w+)", text, re.MULTILINE)) <= rules
