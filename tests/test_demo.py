"""The demo, whole: it checks itself and says so by its exit code."""

from __future__ import annotations

import pytest

from tests import modelzoo


@pytest.mark.models
def test_the_demo_is_content(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("onnxruntime", "skimage"):
        pytest.importorskip(package)
    try:
        modelzoo.path("opennsfw")
    except modelzoo.ModelMissing as missing:
        pytest.skip(str(missing))
    from examples import demo

    real = demo.interleave
    monkeypatch.setattr(demo, "interleave", lambda functions, seconds: real(functions, rounds=1))
    assert demo.main() == 0
    text = capsys.readouterr().out
    assert "verdict: equal, 127 tensors" in text and "safe for work" in text and "float64" in text
