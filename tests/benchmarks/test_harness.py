"""The harness: wrong results never become figures, rows have the agreed fields, one failure hides nothing."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks import cpu, harness, kernels, models
from benchmarks.__main__ import main
from benchmarks.harness import Case, Options, Prepared, WrongResult

OPTIONS = Options(seconds=0.0)
FIELDS = ["case", "dtype", "threads", "ours", "peer", "peer_name", "unit", "ratio", "provenance", "machine"]


def case(name: str, value: float, peer: float = 1.0) -> Case:
    def prepare(_: Options) -> Prepared:
        return Prepared(lambda: np.full(4, value), {"peer": lambda: np.full(4, peer)}, lambda: np.ones(4))

    return Case(name, prepare, unit="us")


def test_right_results_become_rows() -> None:
    (row,) = harness.run_case(case("right", 1.0), OPTIONS)
    assert row.peer is not None and row.ratio == pytest.approx(row.peer / row.ours, rel=1e-3)
    assert (row.case, row.peer_name, row.unit, row.provenance) == ("right", "peer", "us", "measured")


@pytest.mark.parametrize(("ours", "peer", "who"), [(1.1, 1.0, "ours"), (1.0, 1.1, "peer"), (math.nan, 1.0, "ours")])
def test_wrong_results_do_not(ours: float, peer: float, who: str) -> None:
    with pytest.raises(WrongResult, match=who):
        harness.run_case(case("wrong", ours, peer), OPTIONS)


def test_a_result_that_turns_wrong_while_timed_is_noticed() -> None:
    calls = iter(range(10**9))

    def prepare(_: Options) -> Prepared:
        return Prepared(lambda: np.full(4, 1.0 if next(calls) < 3 else 2.0), {}, lambda: np.ones(4))

    with pytest.raises(WrongResult):
        harness.run_case(Case("drifts", prepare), OPTIONS)


def test_json_lines_and_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.jsonl"
    failed = harness.run_all([case("one", 1.0), case("bad [x]", 3.0), case("two", 1.0)], OPTIONS, file, "title")
    assert failed == 1
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [r["case"] for r in rows] == ["one", "two"]
    assert all(list(r) == FIELDS for r in rows)
    text = capsys.readouterr().out
    assert "bad [x]" in text and "geometric mean against peer" in text


def test_data_is_the_same_each_time() -> None:
    a, b = harness.random((3, 4), "f32", "x"), harness.random((3, 4), "f32", "x")
    assert np.array_equal(a, b)
    assert not np.array_equal(a, harness.random((3, 4), "f32", "w"))


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_torch_sees_the_same_numbers(dtype: str) -> None:
    pytest.importorskip("torch")
    array = harness.random((5,), dtype, "x")
    assert np.array_equal(harness.to_numpy(harness.to_torch(array)), array.astype(np.float64))


def test_case_names_are_unique_and_quick_ones_exist() -> None:
    for suite in (kernels.cases(OPTIONS), models.cases(OPTIONS), cpu.cases(OPTIONS)):
        names = [(c.name, c.dtypes) for c in suite]  # cpu measures one product in several types
        assert len(set(names)) == len(names)
        assert any(c.quick for c in suite)
    names = [c.name for c in kernels.cases(OPTIONS)]
    assert "matmul 1024x1024x1024" in names and "attention B1 H12 S2048 D64 causal" in names
    attention = {c.name: c.dtypes for c in cpu.cases(OPTIONS) if "attention" in c.name}
    for positions in (512, 1024, 2048, 4096):
        for end in ("", " causal"):
            assert attention[f"attention B1 H12 S{positions} D64{end}"] == ("f32", "bf16")


def test_references_agree_with_torch() -> None:
    torch = pytest.importorskip("torch")
    f = torch.nn.functional
    x, w = (harness.random(s, "f64", n) for s, n in (((2, 9, 7, 3), "x"), ((3, 3, 3, 5), "w")))
    tx, tw = map(torch.from_numpy, (x, w))
    for stride, pad in ((1, 1), (2, 0), (2, 1)):
        want = f.conv2d(tx.permute(0, 3, 1, 2), tw.permute(3, 2, 0, 1), None, stride, pad).permute(0, 2, 3, 1)
        assert np.allclose(kernels._conv_reference(x, w, stride, pad), want.numpy())
    q, k, v = (harness.random(s, "f64", n) for s, n in (((4, 6, 8), "q"), ((2, 6, 8), "k"), ((2, 6, 8), "v")))
    want = f.scaled_dot_product_attention(
        *(torch.from_numpy(a)[None] for a in (q, k, v)), is_causal=True, enable_gqa=True
    )
    assert np.allclose(kernels.attention_reference(q, k, v), want[0].numpy())
    want = f.scaled_dot_product_attention(*(torch.from_numpy(a)[None] for a in (q, k, v)), enable_gqa=True)
    assert np.allclose(kernels.attention_reference(q, k, v, causal=False), want[0].numpy())


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    assert main(["kernels", "--list", "--case", "softmax"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "softmax 4096x1024"
    assert main(["kernels", "--case", "no such case"]) == 2
    assert main(["kernels", "--peer", "abacus"]) == 2
    assert "abacus" in capsys.readouterr().err
    assert main(["kernels", "--case", "softmax 4096x1024", "--json", "/no/such/folder/rows.jsonl"]) == 2
    assert "cannot be written" in capsys.readouterr().err
