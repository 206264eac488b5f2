"""The compile cache: finished machine code on disk, named by the content it was made from.

Entries are code that this process will run, so an entry counts only when it is whole (SHA-256 over key, facts and
payload) and belongs to this user. Everything else is thrown away and built again. Losing the cache is never an error:
on a full disk or in a directory that cannot be written, programs compile each time and one warning says so.

A file is: 8 bytes magic and format version, 32 bytes SHA-256, the lengths of the two parts, the facts as JSON, the
payload. It is written beside its place and renamed into it, so readers in other processes see all of it or none.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from .._version import __version__

MAGIC = b"TWCACHE\x01"
SUFFIX = ".twc"
DEFAULT_MAX_BYTES = 2 << 30
_HEADER = struct.Struct("<8s32sIQ")  # magic, digest, bytes of facts, bytes of payload
# Nothing that lies in an entry's place can make a reader follow it or wait for it (a pipe would).
_OPEN = os.O_RDONLY
for _flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"):
    _OPEN |= getattr(os, _flag, 0)
_STALE_TMP_SECONDS = 3600.0
_PUTS_PER_SCAN = 64
_EVICT_TO = 0.8  # of the cap: evicting a little more than needed keeps scans rare


class CacheWarning(UserWarning):
    """The compile cache is switched off for this process; programs still work, only compiled each time."""


@dataclass(frozen=True, slots=True)
class Entry:
    key: str
    payload: bytes
    meta: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CacheInfo:
    root: str
    entries: int
    bytes: int
    max_bytes: int
    usable: bool
    reason: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def default_root() -> Path:
    """`TILEWRIGHT_CACHE_DIR`, or the user's cache directory."""
    chosen = os.environ.get("TILEWRIGHT_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tilewright"


class CompileCache:
    """A directory of entries. Any number of processes may use the same one at once."""

    def __init__(self, root: str | os.PathLike[str] | None = None, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.root = Path(root) if root is not None else default_root()
        self.max_bytes = max_bytes
        self._prefix = os.path.join(os.path.abspath(self.root), "")
        self._off = ""  # why the cache is not used; empty while it is
        self._read_only = False  # a write failed: what is there is still read
        self._checked = False
        self._puts = 0
        self._bytes = 0

    # ------------------------------------------------------------ reading and writing

    @staticmethod
    def key(*parts: Any) -> str:
        """The name of what is made from `parts` (nested str, bytes, numbers, bool, None, tuples, lists, dicts and
        dataclasses) by this version of Tilewright. Different parts never share an encoding: each carries its type
        and length."""
        h = hashlib.sha256()
        for part in (_code_identity(), *parts):
            _feed(h, part)
        return h.hexdigest()

    def get(self, key: str) -> Entry | None:
        """The entry, or None when there is none that can be trusted (a bad one is removed on the way)."""
        if not self._ready(create=False):
            return None
        path = self._path(key)
        try:
            fd = os.open(path, _OPEN)
        except OSError:
            return None
        try:
            info = os.fstat(fd)
            usable = _is_ours(info) and info.st_size <= self.max_bytes
            entry = _decode(key, _read_all(fd, info.st_size)) if usable else None
            if entry is not None:
                _touch(fd)
        except OSError:
            return None
        finally:
            os.close(fd)
        if entry is None:
            _remove(path)
        return entry

    def put(self, key: str, payload: bytes, meta: dict[str, Any] | None = None) -> bool:
        """Store an entry; False when it could not be stored (which only costs time)."""
        if self._read_only or not self._ready(create=True):
            return False
        blob = _encode(key, payload, meta or {})
        if len(blob) > self.max_bytes:
            return False
        tmp = ""
        try:
            fd, tmp = tempfile.mkstemp(prefix=".tmp-", dir=self._prefix)  # mode 0600
            with os.fdopen(fd, "wb") as file:
                file.write(blob)
            os.replace(tmp, self._path(key))
        except OSError as error:
            if tmp:
                _remove(tmp)
            self._read_only = True
            self._warn(f"cannot write to {self.root}: {error.strerror or error}")
            return False
        self._account(len(blob))
        return True

    # ------------------------------------------------------------ the whole directory

    def info(self) -> CacheInfo:
        usable = self._ready(create=False)
        found = [info.st_size for _, info in self._scan()] if usable else []
        return CacheInfo(str(self.root), len(found), sum(found), self.max_bytes, usable, self._off)

    def clear(self) -> int:
        """Remove every entry; how many there were. Other files in the directory are left alone."""
        if not self._ready(create=False):
            return 0
        return sum(_remove(path) for path, _ in list(self._scan()))

    def _account(self, added: int) -> None:
        """Keep under the cap. Other processes write too, so what is there is counted again now and then."""
        self._bytes += added
        if self._puts % _PUTS_PER_SCAN == 0 or self._bytes > self.max_bytes:
            self._evict()
        self._puts += 1

    def _evict(self) -> None:
        """Remove the longest unused entries until the directory fits (`get` renews an entry's time)."""
        found = sorted(self._scan(), key=lambda item: item[1].st_mtime_ns)
        total = sum(info.st_size for _, info in found)
        if total > self.max_bytes:
            for path, info in found:
                if total <= self.max_bytes * _EVICT_TO:
                    break
                _remove(path)
                total -= info.st_size
        self._bytes = total

    def _scan(self) -> Iterator[tuple[str, os.stat_result]]:
        """Our entries; temporary files of writers that died are cleared away."""
        try:
            listing = list(os.scandir(self._prefix))
        except OSError:
            return
        for item in listing:
            try:
                info = item.stat(follow_symlinks=False)
            except OSError:
                continue  # another process removed it
            if item.name.endswith(SUFFIX):
                yield item.path, info
            elif item.name.startswith(".tmp-") and time.time() - info.st_mtime > _STALE_TMP_SECONDS:
                _remove(item.path)

    # ------------------------------------------------------------ may we use it?

    def _path(self, key: str) -> str:
        if not key.isalnum():
            raise ValueError(f"{key!r} was not made by CompileCache.key")
        return f"{self._prefix}{key}{SUFFIX}"

    def _ready(self, *, create: bool) -> bool:
        """Whether the directory can be used; looked at once. Machine code is only run from a directory that belongs
        to this user and that nobody else can write to."""
        if self._checked or self._off:
            return not self._off
        try:
            if create:
                os.makedirs(self._prefix, mode=0o700, exist_ok=True)
            info = os.stat(self._prefix)
        except FileNotFoundError as error:
            if create:
                self._disable(f"cannot make {self.root}: {error.strerror or error}")
            return not create  # nothing there yet: reads find nothing
        except OSError as error:
            self._disable(f"cannot use {self.root}: {error.strerror or error}")
            return False
        if not stat.S_ISDIR(info.st_mode) or not _is_ours(info, directory=True):
            self._disable(f"{self.root} belongs to another user, or others may write to it; entries hold machine code")
            return False
        self._checked = True
        return True

    def _disable(self, why: str) -> None:
        self._off = why
        self._warn(why)

    @staticmethod
    def _warn(why: str) -> None:
        warnings.warn(
            f"the compile cache is off: {why}; set TILEWRIGHT_CACHE_DIR to a private directory that can be written",
            CacheWarning,
            stacklevel=3,
        )


# ---------------------------------------------------------------- the file format


def _encode(key: str, payload: bytes, meta: dict[str, Any]) -> bytes:
    facts = json.dumps(meta, sort_keys=True, separators=(",", ":")).encode()
    return _HEADER.pack(MAGIC, _digest(key, facts, payload), len(facts), len(payload)) + facts + payload


def _decode(key: str, blob: bytes) -> Entry | None:
    """The entry in `blob`, or None when a byte of it is missing, added or changed, or it was made for another key."""
    if len(blob) < _HEADER.size:
        return None
    magic, digest, meta_len, payload_len = _HEADER.unpack_from(blob)
    start = _HEADER.size
    if magic != MAGIC or len(blob) != start + meta_len + payload_len:
        return None
    facts, payload = blob[start : start + meta_len], blob[start + meta_len :]
    if _digest(key, facts, payload) != digest:
        return None
    try:
        meta = json.loads(facts)
    except ValueError:
        return None
    return Entry(key, payload, meta) if isinstance(meta, dict) else None


def _digest(key: str, facts: bytes, payload: bytes) -> bytes:
    h = hashlib.sha256(f"{key}:{len(facts)}:{len(payload)}:".encode())
    h.update(facts)
    h.update(payload)
    return h.digest()


def _read_all(fd: int, size: int) -> bytes:
    blob = os.read(fd, size + 1)
    if len(blob) >= size:
        return blob
    parts = [blob]  # the system may hand over a large file in pieces
    while piece := os.read(fd, 1 << 24):
        parts.append(piece)
    return b"".join(parts)


# ---------------------------------------------------------------- files


def _is_ours(info: os.stat_result, *, directory: bool = False) -> bool:
    if not hasattr(os, "getuid"):
        return True
    if info.st_uid != os.getuid() or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    return directory or stat.S_ISREG(info.st_mode)


def _touch(fd: int) -> None:
    """Mark as used just now. A directory that is read-only still serves reads."""
    try:
        os.utime(fd)
    except OSError:
        pass


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


# ---------------------------------------------------------------- keys


def _feed(h: Any, part: Any) -> None:
    """Put `part` into the hash so that it could be read back: type, length, content."""
    if isinstance(part, (bytes, bytearray, memoryview)):
        raw = bytes(part)
        h.update(b"y%d:" % len(raw))
        h.update(raw)
    elif isinstance(part, str):
        raw = part.encode("utf-8", "surrogatepass")
        h.update(b"s%d:" % len(raw))
        h.update(raw)
    elif part is None or isinstance(part, (bool, int)):
        h.update(f"{type(part).__name__}:{part};".encode())
    elif isinstance(part, float):
        h.update(f"f:{part.hex()};".encode())
    elif isinstance(part, (tuple, list)):
        h.update(b"l%d:" % len(part))
        for item in part:
            _feed(h, item)
    elif isinstance(part, dict):
        h.update(b"d%d:" % len(part))
        for name in sorted(part):
            _feed(h, name)
            _feed(h, part[name])
    elif is_dataclass(part) and not isinstance(part, type):
        _feed(h, (type(part).__qualname__, {f.name: getattr(part, f.name) for f in fields(part)}))
    else:
        raise TypeError(f"a cache key cannot be made from {type(part).__name__}; give its text or bytes")


@lru_cache(maxsize=1)
def _code_identity() -> tuple[str, ...]:
    """What made the entry: the version, and in a source checkout also the state of our own files, since a change to
    the code generator must not be answered with code that the old one made."""
    package = Path(__file__).resolve().parent.parent
    if not (package.parent.parent / "pyproject.toml").is_file():
        return (__version__,)
    h = hashlib.sha256()
    stack = [str(package)]
    while stack:
        with os.scandir(stack.pop()) as listing:
            for item in sorted(listing, key=lambda i: i.name):
                if item.is_dir(follow_symlinks=False):
                    if item.name != "__pycache__":
                        stack.append(item.path)
                elif item.name.endswith(".py"):
                    info = item.stat()
                    h.update(f"{item.path}:{info.st_size}:{info.st_mtime_ns};".encode())
    return (__version__, h.hexdigest())
