"""Fields in float64: what they compute, and their parameters.

Conventions: a weight W is [out, in] and acts as `x @ W.T`; maps have a bias where the parameters have one; unless something else is
asked for, RMSNorm and LayerNorm add eps 1e-5 inside the root, RoPE turns the pairs (i, i + d/2) of every head by `p · 10000^(−2i/d)`
(Su et al. 2021, half-split layout), attention is causal with scores over √d; SwiGLU is `down(silu(gate x) ∘ up x)`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import autograd.numpy as np
from functions import Array, exact_gelu, normal_quantile, sigmoid, softmax

EPS = 1e-5
ROPE_BASE = 10000.0

Parameters = dict[str, Array]
Field = Callable[[Array], Array]
Table = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder and of its batch; `hidden` is the width inside each SwiGLU."""

    vocab: int
    context: int
    batch: int
    width: int
    steps: int
    heads: int
    hidden: int


def rmsnorm(x: Array, gain: Array, eps: float = EPS) -> Array:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * gain


def layernorm(x: Array, gain: Array, bias: Array, eps: float = EPS) -> Array:
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return rmsnorm(centred, gain, eps) + bias


def sinusoids(tokens: int, width: int) -> Array:
    """Rows of positions: sin(p / 10000^(2i/width)) at column 2i, the cosine at 2i + 1 (Vaswani et al. 2017)."""
    column = np.arange(width)
    angle = np.arange(tokens)[:, None] / 10000.0 ** (column // 2 * 2 / width)
    return np.where(column % 2 == 0, np.sin(angle), np.cos(angle))


def rope(x: Array, base: float = ROPE_BASE) -> Array:
    """Rotary embedding of [batch, heads, tokens, d]."""
    tokens, d = x.shape[-2:]
    angle = np.arange(tokens)[:, None] * base ** (-2.0 * np.arange(d // 2) / d)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=-1)


def rope_on_grid(x: Array, base: float) -> Array:
    """Rotary embedding of [batch, heads, tokens, d] of a square grid, perhaps behind a class token: the first half of the pairs turns by rows, the other by
    columns, pair t of either by base^(−t/(d/4)) (Heo et al. 2024, section 3.2). Pairs are columns i and i + d/2."""
    tokens, d = x.shape[-2:]
    side = math.isqrt(tokens)
    place = np.arange(side**2)
    waves = base ** (-np.arange(d // 4) / (d / 4))
    angle = np.concatenate([(place // side)[:, None] * waves, (place % side)[:, None] * waves], axis=-1)
    angle = np.concatenate([np.zeros((tokens - side**2, d // 2)), angle])
    turned = (x[..., : d // 2] + 1j * x[..., d // 2 :]) * np.exp(1j * angle)
    return np.concatenate([np.real(turned), np.imag(turned)], axis=-1)


def uniform(key: Array, stream: int, rows: int, cols: int) -> Array:
    """Numbers in [0, 1) for [rows, cols]: PCG4D's last word (Jarzynski & Olano 2020), its upper 24 bits."""
    shape = (rows, cols)
    row, col = np.arange(rows)[:, None], np.arange(cols)[None, :]
    v = [np.broadcast_to(np.asarray(n, np.uint32), shape) for n in (key, stream, row, col)]
    v = [n * np.uint32(1664525) + np.uint32(1013904223) for n in v]
    for turn in range(2):
        for i, (a, b) in enumerate(((1, 3), (2, 0), (0, 1), (1, 2))):
            v[i] = v[i] + v[a] * v[b]
        if turn == 0:
            v = [n ^ (n >> 16) for n in v]
    return (v[3] >> 8).astype(np.float64) / 2.0**24


def normal(like: Array, std: float, key: Array, stream: int) -> Array:
    """Normal numbers [batch, tokens, width]: the quantiles of the middles of uniform ones."""
    numbers = uniform(key, stream, like.shape[0] * like.shape[1], like.shape[2]).reshape(like.shape)
    return std * normal_quantile(numbers + 2.0**-25)


def dropout(x: Array, rate: float, key: Array, stream: int, each: str) -> Array:
    """Elements, tokens or sequences are zero with probability `rate`, the others grow by 1/(1 − rate); [batch, tokens, width]."""
    batch, tokens, width = x.shape
    shape = {"element": (batch, tokens, width), "token": (batch, tokens, 1), "sequence": (batch, 1, 1)}[each]
    kept = uniform(key, stream, shape[0] * shape[1], shape[2]).reshape(shape) >= rate
    return np.where(kept, x / (1 - rate), 0.0)


def linear(p: Parameters, at: str, y: Array) -> Array:
    """A linear map, with a bias if it has one."""
    y = y @ p[f"{at}.weight"].T
    return y + p[f"{at}.bias"] if f"{at}.bias" in p else y


def apart(z: Array, heads: int) -> Array:
    """The columns of each head: [batch, heads, tokens, d]."""
    batch, tokens, width = z.shape
    return z.reshape(batch, tokens, heads, width // heads).swapaxes(1, 2)


def weighted(q: Array, k: Array, v: Array, seen: Array | bool, scale: Array | float, bias: Array | float = 0.0) -> Array:
    """softmax(scale q kᵀ + bias) v over what is seen, heads side by side."""
    scores = q @ k.swapaxes(-1, -2) * scale + bias
    mixed = softmax(np.where(seen, scores, -np.inf)) @ v
    batch, heads, tokens, d = mixed.shape
    return mixed.swapaxes(1, 2).reshape(batch, tokens, heads * d)


def attend(
    p: Parameters,
    at: str,
    heads: int,
    y: Array,
    *,
    causal: bool = True,
    turn: Field = rope,
    window: int | None = None,
    scale: float | None = None,
    among: Array | None = None,
) -> Array:
    """`attention(heads, causal, rope, window, scale)` of normalised tokens; k and v may have fewer heads, each for as many queries. Tokens
    that are not `among` them are seen by themselves alone."""
    tokens, width = y.shape[1:]

    def split(name: str) -> Array:
        z = linear(p, f"{at}.{name}", y)
        count = z.shape[-1] * heads // width
        return np.repeat(apart(z, count), heads // count, axis=1)

    q, k, v = turn(split("q")), turn(split("k")), split("v")
    seen = np.tril(np.ones((tokens, tokens), bool)) if causal else True
    if window is not None:
        seen = seen & (np.arange(tokens)[:, None] - np.arange(tokens)[None, :] < window)
    if among is not None:
        seen = (seen & among[:, None, None, :]) | np.eye(tokens, dtype=bool)
    return linear(p, f"{at}.o", weighted(q, k, v, seen, 1 / np.sqrt(width // heads) if scale is None else scale))


def norm(p: Parameters, at: str, x: Array, eps: float = EPS) -> Array:
    """The normalisation whose gain, and perhaps bias, stand below a path."""
    gain = p[f"{at}.norm.gain"]
    return layernorm(x, gain, p[f"{at}.norm.bias"], eps) if f"{at}.norm.bias" in p else rmsnorm(x, gain, eps)


def gpt_attention(p: Parameters, at: str, heads: int) -> Field:
    """The field `layernorm |> attention(heads, causal, bias)`."""
    return lambda x: attend(p, at, heads, norm(p, at, x), turn=lambda q: q)


def vit_attention(p: Parameters, at: str, heads: int) -> Field:
    """The field `layernorm |> attention(heads, bias)`: all patches see each other."""
    return lambda x: attend(p, at, heads, norm(p, at, x), causal=False, turn=lambda q: q)


def grid_attention(p: Parameters, at: str, heads: int) -> Field:
    """The field `layernorm |> attention(heads, bias, rope(grid, base: 100))`."""
    return lambda x: attend(p, at, heads, norm(p, at, x), causal=False, turn=lambda q: rope_on_grid(q, 100.0))


def gelu(p: Parameters, at: str) -> Field:
    """The field `layernorm |> gelu(hidden, bias)`, with the exact GELU x Φ(x)."""

    def field(x: Array) -> Array:
        return linear(p, f"{at}.down", exact_gelu(linear(p, f"{at}.up", norm(p, at, x))))

    return field


def gelu_tanh(p: Parameters, at: str) -> Field:
    """The field `norm |> gelu(hidden, approximate: tanh)`: y/2 (1 + tanh(√(2/π) (y + 0.044715 y³))) (Hendrycks & Gimpel 2016)."""

    def field(x: Array) -> Array:
        y = linear(p, f"{at}.up", norm(p, at, x))
        return linear(p, f"{at}.down", y / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3))))

    return field


def gated(p: Parameters, at: str, y: Array) -> Array:
    """`swiglu(hidden)` of normalised tokens."""
    gate, up = linear(p, f"{at}.gate", y), linear(p, f"{at}.up", y)
    return linear(p, f"{at}.down", gate / (1.0 + np.exp(-gate)) * up)


def attention(p: Parameters, at: str, heads: int, window: int | None = None, eps: float = EPS) -> Field:
    """The field `rmsnorm |> attention(heads, causal, rope, window)`."""
    return lambda x: attend(p, at, heads, norm(p, at, x, eps), window=window)


def swiglu(p: Parameters, at: str, eps: float = EPS) -> Field:
    """The field `norm |> swiglu(hidden)`."""
    return lambda x: gated(p, at, norm(p, at, x, eps))


def attention_table(shape: Shape) -> Table:
    """Parts and shapes of `attend`."""
    return {f"{m}.weight": (shape.width, shape.width) for m in "qkvo"}


def grouped_table(shape: Shape, kv_heads: int) -> Table:
    """The same where heads share those of keys and values."""
    narrow = (shape.width // shape.heads * kv_heads, shape.width)
    return attention_table(shape) | {f"{m}.weight": narrow for m in "kv"}


def swiglu_table(shape: Shape) -> Table:
    """Parts and shapes of `gated`."""
    tall, wide = (shape.hidden, shape.width), (shape.width, shape.hidden)
    return {"gate.weight": tall, "up.weight": tall, "down.weight": wide}


def gelu_table(shape: Shape) -> Table:
    """Parts and shapes of `gelu` with biases."""
    tall, wide = (shape.hidden, shape.width), (shape.width, shape.hidden)
    return {"up.weight": tall, "up.bias": (shape.hidden,), "down.weight": wide, "down.bias": (shape.width,)}


def post_norm_encoder(p: Parameters, at: str, heads: int, x: Array) -> Array:
    """A layer of the encoder of Vaswani et al. (2017), with bidirectional attention and ReLU."""
    mixed = attend(p, f"{at}.att", heads, x, causal=False, turn=lambda q: q)
    x = layernorm(x + mixed, p[f"{at}.scheme.s1"], p[f"{at}.scheme.m1"])
    hidden = np.maximum(linear(p, f"{at}.up.linear", x), 0.0)
    mapped = linear(p, f"{at}.down.linear", hidden)
    return layernorm(x + mapped, p[f"{at}.scheme.s2"], p[f"{at}.scheme.m2"])


def affine_table(rows: int, columns: int) -> Table:
    return {"linear.weight": (rows, columns), "linear.bias": (rows,)}


def gate(p: Parameters, at: str, u: Array, v: Array) -> Array:
    """The field `concat(u, v) |> linear(1, bias) |> sigmoid`."""
    return sigmoid(linear(p, f"{at}.linear", np.concatenate([u, v], axis=-1)))


def norm_table(shape: Shape) -> Table:
    return {"norm.gain": (shape.width,)}


def bias_table(shape: Shape, *parts: str) -> Table:
    """Biases as wide as the state."""
    return {f"{part}.bias": (shape.width,) for part in parts}
