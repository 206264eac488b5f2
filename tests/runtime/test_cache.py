"""The compile cache: never a wrong entry, never an error, whatever other processes and disks do."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.runtime.cache import CacheWarning, CompileCache, default_root


@pytest.fixture
def cache(tmp_path: Path) -> CompileCache:
    return CompileCache(tmp_path / "cache")


def entry_file(cache: CompileCache, key: str) -> Path:
    return cache.root / f"{key}.twc"


def test_round_trip(cache: CompileCache) -> None:
    key = cache.key("kernel", 1)
    assert cache.get(key) is None
    assert cache.put(key, b"\x00code", {"symbol": "f", "sizes": [1, 2]})
    entry = CompileCache(cache.root).get(key)
    assert entry is not None
    assert entry.payload == b"\x00code"
    assert entry.meta == {"symbol": "f", "sizes": [1, 2]}


def test_put_replaces(cache: CompileCache) -> None:
    key = cache.key("k")
    cache.put(key, b"one")
    cache.put(key, b"two")
    entry = cache.get(key)
    assert entry is not None and entry.payload == b"two"
    assert cache.info().entries == 1


def test_large_and_empty_payloads(cache: CompileCache) -> None:
    for name, payload in (("empty", b""), ("large", os.urandom(5 << 20))):
        key = cache.key(name)
        cache.put(key, payload)
        entry = cache.get(key)
        assert entry is not None and entry.payload == payload


@dataclass(frozen=True)
class Facts:
    width: int
    name: str


def test_keys_tell_structures_apart() -> None:
    parts: list[tuple[object, ...]] = [
        ("ab", "c"), ("a", "bc"), ("abc",), (("ab", "c"),), (b"abc",), (1,), (1.0,), (True,), ("1",),
        (None,), ("None",), (0.0,), (-0.0,), ({"a": 1},), (("a", 1),), ([],), ({},), (Facts(1, "x"),),
        (Facts(2, "x"),), (),
    ]  # fmt: skip
    keys = [CompileCache.key(*p) for p in parts]
    assert len(set(keys)) == len(keys)
    assert CompileCache.key({"a": 1, "b": 2}) == CompileCache.key({"b": 2, "a": 1})


def test_key_refuses_what_has_no_content() -> None:
    with pytest.raises(TypeError, match="cache key"):
        CompileCache.key(object())


def test_keys_are_the_same_in_another_process() -> None:
    code = "from tilewright.runtime.cache import CompileCache; print(CompileCache.key('a', {'b': 1.5}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=child_env())
    assert out.stdout.strip() == CompileCache.key("a", {"b": 1.5})


# ---------------------------------------------------------------- damage


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_changed_byte_is_noticed(cache: CompileCache, data: st.DataObject) -> None:
    key = cache.key("k")
    cache.put(key, b"p" * 50, {"a": 1})
    file = entry_file(cache, key)
    blob = bytearray(file.read_bytes())
    position = data.draw(st.integers(0, len(blob) - 1))
    blob[position] ^= data.draw(st.integers(1, 255))
    file.write_bytes(blob)
    assert cache.get(key) is None
    assert not file.exists()


@pytest.mark.parametrize("keep", [0, 1, 7, 51, 52, 60, -1])
def test_truncation_is_noticed_and_rebuilt(cache: CompileCache, keep: int) -> None:
    key = cache.key("k")
    cache.put(key, b"payload", {"a": 1})
    file = entry_file(cache, key)
    file.write_bytes(file.read_bytes()[:keep])
    assert cache.get(key) is None
    assert not file.exists()
    assert cache.put(key, b"payload")
    assert cache.get(key) is not None


def test_appended_bytes_are_noticed(cache: CompileCache) -> None:
    key = cache.key("k")
    cache.put(key, b"payload")
    with entry_file(cache, key).open("ab") as file:
        file.write(b"x")
    assert cache.get(key) is None


def test_entry_under_another_name_is_refused(cache: CompileCache) -> None:
    one, two = cache.key("one"), cache.key("two")
    cache.put(one, b"payload")
    entry_file(cache, one).rename(entry_file(cache, two))
    assert cache.get(two) is None


def test_symbolic_link_is_not_followed(cache: CompileCache, tmp_path: Path) -> None:
    key = cache.key("k")
    cache.put(key, b"payload")
    elsewhere = tmp_path / "elsewhere"
    entry_file(cache, key).rename(elsewhere)
    entry_file(cache, key).symlink_to(elsewhere)
    assert cache.get(key) is None
    assert elsewhere.exists()


def test_a_pipe_in_an_entrys_place_is_not_waited_for(cache: CompileCache) -> None:
    key = cache.key("k")
    cache.put(key, b"one")
    entry_file(cache, key).unlink()
    os.mkfifo(entry_file(cache, key), 0o600)
    assert cache.get(key) is None
    assert cache.put(key, b"two")
    entry = cache.get(key)
    assert entry is not None and entry.payload == b"two"


def test_an_entry_larger_than_the_cache_is_not_read(cache: CompileCache) -> None:
    key = cache.key("k")
    cache.put(key, b"one")
    os.truncate(entry_file(cache, key), 1 << 40)  # takes no room, and would not fit into memory
    assert cache.get(key) is None
    assert not entry_file(cache, key).exists()


def test_a_key_cannot_leave_the_directory(cache: CompileCache) -> None:
    for key in ("../x", "/etc/passwd", ""):
        with pytest.raises(ValueError):
            cache.put(key, b"x")


def test_entry_that_others_may_write_is_refused(cache: CompileCache) -> None:
    key = cache.key("k")
    cache.put(key, b"payload")
    entry_file(cache, key).chmod(0o666)
    assert cache.get(key) is None


# ---------------------------------------------------------------- size


def test_cap_evicts_the_longest_unused(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path / "cache", max_bytes=10_000)
    keys = [cache.key(i) for i in range(9)]
    for age, key in enumerate(keys):
        cache.put(key, bytes(1000))
        then = time.time() - 1000 + age
        os.utime(entry_file(cache, key), (then, then))
    assert cache.get(keys[0]) is not None  # used just now, so the youngest
    cache.put(cache.key("new"), bytes(1500))
    assert cache.info().bytes <= 10_000
    assert cache.get(keys[0]) is not None
    assert cache.get(keys[1]) is None
    assert cache.get(cache.key("new")) is not None


def test_entry_above_the_cap_is_not_stored(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path / "cache", max_bytes=100)
    assert not cache.put(cache.key("k"), bytes(1000))
    assert cache.info().entries == 0


def test_clear_keeps_foreign_files(cache: CompileCache) -> None:
    for i in range(3):
        cache.put(cache.key(i), b"x")
    (cache.root / "peaks.json").write_text("{}")
    assert cache.clear() == 3
    assert cache.info().entries == 0
    assert (cache.root / "peaks.json").exists()


def test_leftovers_of_dead_writers_go_away(cache: CompileCache) -> None:
    cache.put(cache.key("k"), b"x")
    old, fresh = cache.root / ".tmp-old", cache.root / ".tmp-fresh"
    old.write_bytes(b"half")
    fresh.write_bytes(b"half")
    os.utime(old, (1, 1))
    cache.info()
    assert not old.exists()
    assert fresh.exists()


# ---------------------------------------------------------------- directories


def test_directory_is_private(cache: CompileCache) -> None:
    cache.put(cache.key("k"), b"x")
    assert cache.root.stat().st_mode & 0o777 == 0o700


def test_reading_creates_nothing(cache: CompileCache) -> None:
    assert cache.get(cache.key("k")) is None
    assert cache.info().entries == 0
    assert not cache.root.exists()


def test_directory_that_others_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    cache = CompileCache(tmp_path / "open")
    with pytest.warns(CacheWarning, match="machine code"):
        assert not cache.put(cache.key("k"), b"x")
    assert not cache.info().usable


def test_impossible_directory_warns_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = CompileCache(tmp_path / "file" / "cache")
    with pytest.warns(CacheWarning, match="TILEWRIGHT_CACHE_DIR"):
        assert not cache.put(cache.key("k"), b"x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not cache.put(cache.key("k"), b"x")
        assert cache.get(cache.key("k")) is None


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_read_only_directory_still_serves_reads(cache: CompileCache) -> None:
    key = cache.key("k")
    cache.put(key, b"x")
    cache.root.chmod(0o500)
    try:
        assert CompileCache(cache.root).get(key) is not None
        with pytest.warns(CacheWarning):
            assert not cache.put(cache.key("other"), b"x")
    finally:
        cache.root.chmod(0o700)


def test_full_disk(cache: CompileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object, **__: object) -> tuple[int, str]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    cache.put(cache.key("first"), b"x")
    monkeypatch.setattr(tempfile, "mkstemp", no_space)
    with pytest.warns(CacheWarning, match="No space"):
        assert not cache.put(cache.key("k"), b"x")
    assert cache.get(cache.key("first")) is not None
    assert [f.name for f in cache.root.iterdir() if f.name.startswith(".tmp-")] == []


def test_default_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "a"))
    assert default_root() == tmp_path / "a"
    monkeypatch.delenv("TILEWRIGHT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert default_root() == tmp_path / "b" / "tilewright"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_root() == Path.home() / ".cache" / "tilewright"


# ---------------------------------------------------------------- several processes

WORKER = """
import sys
from tilewright.runtime.cache import CompileCache
root, seed = sys.argv[1], int(sys.argv[2])
cache = CompileCache(root, max_bytes=200_000)
keys = [cache.key(i) for i in range(20)]
for step in range(300):
    i = (step * 7 + seed) % len(keys)
    entry = cache.get(keys[i])
    if entry is None:
        assert cache.put(keys[i], bytes([i]) * (8000 + 997 * i), {"i": i})
    else:
        assert entry.payload == bytes([i]) * (8000 + 997 * i) and entry.meta == {"i": i}
    if step == 150 and seed == 0:
        cache.clear()
"""


def child_env() -> dict[str, str]:
    source = Path(__file__).resolve().parents[2] / "src"
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])}


def test_many_processes_at_once(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    children = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(root), str(i)], env=child_env(), stderr=subprocess.PIPE)
        for i in range(4)
    ]
    for child in children:
        _, err = child.communicate(timeout=120)
        assert child.returncode == 0, err.decode()
    assert [f.name for f in root.iterdir() if f.name.startswith(".tmp-")] == []
    assert CompileCache(root, max_bytes=200_000).info().entries > 0
