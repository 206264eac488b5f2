"""The kernels of the README, written in Tilewright's kernel language and checked against float64 NumPy.

    python -m examples.kernels
"""

import math

import numpy as np

import tilewright as tw

M, N, K = tw.dims("M N K")
B, H, W, C, F, R, S, T, G, D = tw.dims("B H W C F R S T G D")


@tw.kernel
def linear_relu(x: tw.Tensor[M, K], w: tw.Tensor[K, N], b: tw.Tensor[N]):
    """relu(x @ w + b)"""
    out = tw.empty((M, N), x.dtype)
    for i, j in tw.tiles(M, N):
        acc = tw.zeros((i, j), tw.f32)
        for k in tw.tiles(K):
            acc += tw.dot(x[i, k], w[k, j])
        out[i, j] = tw.relu(acc + b[j].to(tw.f32)).to(x.dtype)
    return out


@tw.kernel
def conv2d(x: tw.Tensor[B, H, W, C], w: tw.Tensor[R, S, C, F], stride: int = 1, pad: int = 0):
    """A convolution, channels last: x [batch, height, width, channels], w [rows, columns, channels, filters]."""
    P, Q = (H + 2 * pad - R) // stride + 1, (W + 2 * pad - S) // stride + 1
    out = tw.empty((B, P, Q, F), x.dtype)
    for n, p in tw.indices(B, P):
        for q, f in tw.tiles(Q, F):
            acc = tw.zeros((q, f), tw.f32)
            for r in range(R):
                for s in range(S):
                    for c in tw.tiles(C):
                        acc += tw.dot(x[n, p * stride + r - pad, q * stride + s - pad, c], w[r, s, c, f])
            out[n, p, q, f] = acc.to(x.dtype)
    return out


@tw.kernel
def softmax(x: tw.Tensor[M, N]):
    out = tw.empty_like(x)
    for i in tw.tiles(M):
        row = x[i, :].to(tw.f32)
        e = tw.exp(row - row.max(1, keepdims=True))
        out[i, :] = (e / e.sum(1, keepdims=True)).to(x.dtype)
    return out


@tw.kernel
def layer_norm(x: tw.Tensor[M, N], weight: tw.Tensor[N], bias: tw.Tensor[N], eps: float = 1e-5):
    out = tw.empty_like(x)
    for i in tw.tiles(M):
        centred = x[i, :].to(tw.f32) - tw.mean(x[i, :].to(tw.f32), 1, keepdims=True)
        normal = centred * tw.rsqrt(tw.square(centred).mean(1, keepdims=True) + eps)
        out[i, :] = normal.to(x.dtype) * weight[:] + bias[:]
    return out


@tw.kernel
def attention(q: tw.Tensor[H, S, D], k: tw.Tensor[G, T, D], v: tw.Tensor[G, T, D], causal: bool = True):
    """Flash attention, online softmax; H query heads share G key heads; queries are the last S of T positions."""
    assert G > 0 and H % G == 0, "the number of query heads is not a multiple of the number of key heads"
    out = tw.empty_like(q)
    for h in tw.indices(H):
        g = h // (H // G)
        for i in tw.tiles(S):
            top, total = tw.full((i,), -math.inf, tw.f32), tw.zeros((i,), tw.f32)
            acc = tw.zeros((i, D), tw.f32)
            for j in tw.tiles(T):
                s = tw.dot(q[h, i, :], k[g, j, :].T) * D ** -0.5
                if causal:
                    s = tw.where(i + (T - S) >= j, s, -math.inf)
                high = tw.maximum(top, s.max(1))
                p, decay = tw.exp(s - high[:, None]), tw.exp(top - high)
                total = total * decay + p.sum(1)
                acc = tw.dot(p.to(v.dtype), v[g, j, :], acc=acc * decay[:, None])
                top = high
            out[h, i, :] = (acc / total[:, None]).to(q.dtype)
    return out


@tw.kernel
def gelu(x: tw.Tensor):
    """Any rank: the loop's variable is a tuple of tile indices."""
    out = tw.empty_like(x)
    for idx in tw.tiles(*x.shape):
        out[idx] = tw.gelu(x[idx])
    return out


@tw.kernel
def add(a: tw.Tensor[N], b: tw.Tensor[N]):
    out = tw.empty_like(a)
    for i in tw.tiles(N):
        out[i] = a[i] + b[i]
    return out


# ---------------------------------------------------------------------------------------------- the same in NumPy


def ref_linear_relu(x, w, b):
    return np.maximum(x @ w + b, 0)


def ref_conv2d(x, w, stride=1, pad=0):
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    rows, columns = w.shape[:2]
    windows = np.lib.stride_tricks.sliding_window_view(x, (rows, columns), axis=(1, 2))[:, ::stride, ::stride]
    return np.einsum("bpqcrs,rscf->bpqf", windows, w)


def ref_softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def ref_layer_norm(x, weight, bias, eps=1e-5):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + eps) * weight + bias


def ref_attention(q, k, v, causal=True):
    k, v = (np.repeat(t, q.shape[0] // t.shape[0], axis=0) for t in (k, v))
    s = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    if causal:
        s = np.where(np.tri(q.shape[1], k.shape[1], k.shape[1] - q.shape[1], dtype=bool), s, -math.inf)
    return ref_softmax(s) @ v


def ref_gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x * math.sqrt(0.5)))


def ref_add(a, b):
    return a + b


def cases(rng):
    """Every kernel with inputs and its reference."""

    def f(*shape):
        return rng.standard_normal(shape, dtype=np.float32)

    yield linear_relu, ref_linear_relu, (f(65, 70), f(70, 33), f(33)), {}
    yield conv2d, ref_conv2d, (f(2, 14, 13, 8), f(3, 3, 8, 20)), {"stride": 2, "pad": 1}
    yield softmax, ref_softmax, (f(37, 129),), {}
    yield layer_norm, ref_layer_norm, (f(37, 129), f(129), f(129)), {}
    yield attention, ref_attention, (f(4, 65, 32), f(2, 97, 32), f(2, 97, 32)), {"causal": True}
    yield gelu, ref_gelu, (f(3, 5, 41),), {}
    yield add, ref_add, (f(257), f(257)), {}


def main() -> int:
    worst = 0.0
    for kernel, reference, arrays, options in cases(np.random.default_rng(0)):
        want = reference(*(a.astype(np.float64) for a in arrays), **options)
        got = kernel(*arrays, **options)
        error = float(np.linalg.norm(got - want) / np.linalg.norm(want))
        worst = max(worst, error)
        print(f"{kernel.__name__:12} relative error against float64 {error:.1e}")
    return 0 if worst < 1e-5 else 1


if __name__ == "__main__":
    raise SystemExit(main())
