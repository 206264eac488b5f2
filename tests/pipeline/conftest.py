"""Every test of the pipeline compiles anew, and results start as memory full of NaN and extreme integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tilewright as tw
from tilewright.runtime import arrays


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    make = arrays.maker

    def maker(shape: Any, dtype: Any, kind: str) -> Callable[[], Any]:
        inner = make(shape, dtype, kind)

        def poison() -> Any:
            out = inner()
            if dtype.is_float:
                out[...] = float("nan")
            else:
                out[...] = 1 if dtype.is_bool else 77
            return out

        return poison

    monkeypatch.setattr(arrays, "maker", maker)
    yield
    tw.set_threads(None)
