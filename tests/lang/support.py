"""Parse a kernel and run its Tile IR in the oracle."""

import numpy as np

from tilewright.interp.tile import run
from tilewright.ir.types import from_numpy
from tilewright.lang.parse import ScalarSpec, TensorSpec, parse_kernel, signature_of


def spec_of(fn, args, options):
    """Arguments in order as specs, and the arrays and scalars by name."""
    signature = signature_of(fn)
    given = dict(zip([p.name for p in signature.params], args)) | options
    spec, arrays, scalars = {}, {}, {}
    for p in signature.params:
        if p.name not in given:
            continue
        value = given[p.name]
        if p.kind == "tensor":
            spec[p.name], arrays[p.name] = TensorSpec(from_numpy(value.dtype), value.shape), value
        elif p.kind == "scalar":
            spec[p.name], scalars[p.name] = ScalarSpec(p.annotation), value
        else:
            spec[p.name] = value
    return spec, arrays, scalars


def parse(fn, *args, **options):
    return parse_kernel(fn, spec_of(fn, args, options)[0])


def outputs(fn, *args, tile=5, **options):
    """The kernel's outputs from the oracle, with every tile axis cut into small tiles."""
    spec, arrays, scalars = spec_of(fn, args, options)
    parsed = parse_kernel(fn, spec)
    sizes = dict.fromkeys([f"{v}{s}" for v in "ijknpqfcmrsh" for s in ("", "_1", "0", "1", "2")], tile)
    out = run(parsed.kernel, arrays, scalars, parsed.dim_values, sizes, seed=1)
    values = tuple(out[p.name] for p in parsed.outputs)
    return values[0] if parsed.single else values


def close(got, want, tolerance=1e-5):
    want = np.asarray(want)
    assert got.shape == want.shape
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
