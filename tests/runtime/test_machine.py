"""The machine's facts and its measured peaks: present, plausible, remembered. No time is asserted."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path

import pytest

from tilewright.evidence import Evidence
from tilewright.runtime import machine as machines
from tilewright.runtime import peaks as peaks_module
from tilewright.runtime.machine import host
from tilewright.runtime.peaks import Peaks


def test_host_is_plausible() -> None:
    m = host()
    assert m.cpu and m.triple and m.llvm_cpu
    assert 1 <= m.usable_physical_cores <= m.usable_cores <= m.logical_cores
    assert 1 <= m.physical_cores <= m.logical_cores
    assert 4 << 10 <= m.l1d_bytes <= m.l2_bytes
    assert m.vector_bits in (128, 256, 512)
    assert m.l3_bytes_per_core <= m.l3_bytes
    assert host() is m
    hash(m)


def test_host_json_and_text() -> None:
    m = host()
    data = json.loads(json.dumps(m.to_json()))
    assert data["usable_cores"] == m.usable_cores
    assert all(m.has(name) for name in data["features"])
    assert m.cpu in str(m)


def test_isa_follows_features() -> None:
    m = host()
    if m.has("avx512f"):
        assert m.vector_bits == 512 and "avx512" in m.isa
    assert not m.has("no-such-feature")
    for part in filter(None, m.feature_string.split(",")):
        assert m.has(part[1:]) == (part[0] == "+")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_affinity_is_respected() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert machines._Topology.read().usable == 1
    finally:
        os.sched_setaffinity(0, before)


def test_sizes_and_core_lists() -> None:
    assert machines._parse_size("48K") == 48 << 10
    assert machines._parse_size("2M") == 2 << 20
    assert machines._parse_size("") == 0
    assert machines._count_cpus("0-3,8-11") == 8
    assert machines._count_cpus("5") == 1
    assert machines._count_cpus("") == 1


def test_a_silent_system_gets_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "_read", lambda path: "")
    assert machines._caches()["l2"] == (1 << 20, 1)
    topology = machines._Topology.read()
    assert topology.physical == topology.logical


def test_container_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"/sys/fs/cgroup/cpu.max": "150000 100000"}
    monkeypatch.setattr(machines, "_read", lambda path: texts.get(str(path), ""))
    assert machines._cpu_quota() == 2
    texts["/sys/fs/cgroup/cpu.max"] = "max 100000"
    assert machines._cpu_quota() > 1_000_000


# ---------------------------------------------------------------- peaks


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Short runs on small buffers, in a cache directory of the test's own."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(peaks_module, "_known", None)
    monkeypatch.setattr(peaks_module, "_SLICE_SECONDS", 0.001)
    monkeypatch.setattr(peaks_module, "_REPEATS", 1)
    return tmp_path


def test_peaks_are_measured_and_remembered(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int, int]] = []
    assert peaks_module.known() is None
    found = peaks_module.peaks(progress=lambda *step: seen.append(step))
    assert seen[-1][1] == seen[-1][2] == len(seen) - 1
    for name in ("f32", "f64", "read", "copy"):
        for table in (found.single, found.all):
            assert table[name].provenance == "measured"
            assert math.isfinite(table[name].value) and table[name].value > 0
    assert (quick / f"peaks-{host().fingerprint}.json").exists()
    monkeypatch.setattr(peaks_module, "_known", None)
    monkeypatch.setattr(peaks_module, "measure", lambda *_: pytest.fail("measured again"))
    assert peaks_module.peaks() == found


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 0, "fingerprint": "x"}'])
def test_damaged_file_counts_as_none(quick: Path, text: str) -> None:
    (quick / f"peaks-{host().fingerprint}.json").write_text(text)
    assert peaks_module.known() is None


def test_another_machine_is_measured_anew(quick: Path) -> None:
    found = Peaks("elsewhere", 1, {}, {})
    peaks_module._store(found)
    assert peaks_module.known() is None
    assert peaks_module._load(dataclasses.replace(host(), cpu="elsewhere")) is None


def test_unwritable_directory_is_no_error(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (quick / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(quick / "file" / "below"))
    peaks_module._store(Peaks("x", 1, {}, {}))
    assert peaks_module.known() is None


def test_threads_between_one_and_all_are_estimated() -> None:
    one, four = Evidence(100.0, "GFLOP/s", "measured", "x"), Evidence(400.0, "GFLOP/s", "measured", "x")
    table = Peaks("x", 4, {"f32": one}, {"f32": four})
    assert table.get("f32", 1) is one
    assert table.get("f32") is four and table.get("f32", 9) is four
    two = table.get("f32", 2)
    assert two is not None and two.value == pytest.approx(200) and two.provenance == "estimated"
    assert table.get("i4") is None
    assert Peaks.from_json(table.to_json()) == table


@pytest.mark.parametrize("bits", [128, 256, 512])
def test_kernels_are_valid_for_every_width(bits: int) -> None:
    import llvmlite.binding as llvm

    m = dataclasses.replace(host(), vector_bits=bits)
    text = "\n".join([*(k.text for k in peaks_module._arithmetic(m)), peaks_module._memory_text(bits)])
    llvm.parse_assembly(text).verify()
