"""Layers that are written in the language or made of newer primitives, in float64: what they compute, and their parameters.

Each is written from its paper's equation, not as odec computes it: a recurrence is its sum over earlier tokens, a mixture computes all experts. Parameters
are called by what follows the field's path.
"""

from collections.abc import Callable
from dataclasses import dataclass

import autograd.numpy as np
from functions import Array, log_sigmoid, sigmoid, silu, softmax, softplus, stop_gradient
from parts import Parameters, Shape, Table, apart, layernorm, linear, norm, norm_table, rmsnorm, rope, weighted


@dataclass(frozen=True)
class Mixer:
    """A field of the normed state, or of the state itself, by heads and parameters; what it has beside its norm."""

    compute: Callable[[Parameters, int, Array], Array]
    table: Callable[[Shape], Table]


def operands(q: Array, k: Array, v: Array, heads: int, turn: Callable[[Array], Array] = lambda z: z, slopes: Array | float = 0.0) -> Array:
    """Causal attention of operands, whose scores fall with the distance."""
    q, k, v = turn(apart(q, heads)), turn(apart(k, heads)), apart(v, heads)
    place = np.arange(q.shape[-2])
    distance = place[:, None] - place[None, :]
    return weighted(q, k, v, distance >= 0, 1 / np.sqrt(q.shape[-1]), -slopes * distance)


def normed_heads(z: Array, gain: Array, heads: int) -> Array:
    """RMSNorm of each head by itself, with one gain for all."""
    return rmsnorm(z.reshape(*z.shape[:-1], heads, -1), gain).reshape(z.shape)


def faded(log_decay: Array) -> Array:
    """exp of the sum of a column's logarithms over the tokens after j, to i: [.., i, j, column], zero where j is later than i."""
    total = np.cumsum(log_decay, axis=-2)
    tokens = np.arange(total.shape[-2])
    seen = (tokens[:, None] >= tokens[None, :])[..., None]
    between = total[..., :, None, :] - total[..., None, :, :]
    return np.where(seen, np.exp(np.where(seen, between, 0.0)), 0.0)


def before(x: Array, by: int = 1) -> Array:
    """The rows of the tokens `by` places before, zeros where the text begins."""
    return np.pad(x, ((0, 0), (by, 0), (0, 0)), "constant")[:, : x.shape[1]]


def convolved(p: Parameters, at: str, x: Array) -> Array:
    """A causal convolution of each column by itself."""
    weight = p[f"{at}.weight"][:, 0]
    kernel = weight.shape[-1]
    y = sum(weight[:, k] * before(x, kernel - 1 - k) for k in range(kernel))
    return y + p[f"{at}.bias"] if f"{at}.bias" in p else y


def head_norm(p: Parameters, heads: int, x: Array) -> Array:
    """Queries and keys under norms of their heads (Dehghani et al. 2023; Qwen3)."""
    q, k = (normed_heads(linear(p, f".{m}", x), p[f".{m}.norm.gain"], heads) for m in "qk")
    return linear(p, ".linear", operands(q, k, linear(p, ".v", x), heads, rope))


def alibi(p: Parameters, heads: int, x: Array) -> Array:
    """Slopes 2^(−8h/H) for head h of H, from 1 (Press et al. 2022)."""
    slopes = 2.0 ** (-8 * np.arange(1, heads + 1) / heads)
    q, k, v = (linear(p, f".linear.{n}", x) for n in (1, 2, 3))
    return linear(p, ".linear.4", operands(q, k, v, heads, slopes=slopes[:, None, None]))


def distances(p: Parameters, heads: int, x: Array) -> Array:
    """A learned number for each head and each of four buckets of distances: 0, 1, 2 and 3, and all that are farther (Raffel et al. 2020, section 2.1, for
    5 distances: 2 + floor(2 log(d/2) / log(5/2)))."""
    place = np.arange(x.shape[1])
    far = place[:, None] - place[None, :]
    buckets = np.array([0, 1, 2, 2, 3])
    bias = np.transpose(p[".attend.distances"][buckets[np.clip(far, 0, 4)]], (2, 0, 1))
    q, k, v = (apart(linear(p, f".linear.{n}", x), heads) for n in (1, 2, 3))
    return linear(p, ".linear.4", weighted(q, k, v, far >= 0, 1.0, bias))


def latent(p: Parameters, heads: int, x: Array) -> Array:
    """Each head has a query for the latent columns and one for a turned key, which all heads share; values are the latent columns (DeepSeek-AI
    2024, equations 9 to 19, with the matrices of keys in those of queries, and those of values in that of the result)."""
    c = rmsnorm(linear(p, ".c", x), p[".c.norm.gain"])
    size = c.shape[-1]

    def turned(z: Array) -> Array:
        return rope(np.concatenate([z[..., ::2], z[..., 1::2]], axis=-1))

    q, key = apart(linear(p, ".q", x), heads), apart(c, 1)
    of_place, of_text = turned(q[..., : size // 2]), q[..., size // 2 :]
    q = np.concatenate([of_place, of_text], axis=-1)
    k = np.concatenate([turned(apart(linear(p, ".r", x), 1)), key], axis=-1)
    place = np.arange(x.shape[1])
    seen = place[:, None] >= place[None, :]
    return linear(p, ".linear", weighted(q, k, key, seen, 1 / np.sqrt(q.shape[-1])))


def differential(p: Parameters, heads: int, x: Array) -> Array:
    """(softmax(q₁k₁ᵀ) − λ softmax(q₂k₂ᵀ)) v, each head normed, times 1 − 4/5 (Ye et al. 2024)."""
    v = linear(p, ".v", x)
    first, second = (operands(linear(p, f".q{n}", x), linear(p, f".k{n}", x), v, heads, rope) for n in (1, 2))
    return linear(p, ".linear", normed_heads(first - p[".lambda"] * second, p[".o.gain"], heads) / 5)


def gla(p: Parameters, heads: int, x: Array) -> Array:
    """oᵢ = Σⱼ (qᵢ ∘ α…α ∘ kⱼ) vⱼ, α the sixteenth root of a sigmoid, normed by heads and gated (Yang et al. 2024)."""
    q, k, v = (apart(linear(p, f".{m}", x), heads) for m in "qkv")
    rates = apart(log_sigmoid(linear(p, ".alpha.2", linear(p, ".alpha.1", x))) / 16, heads)
    scores = np.einsum("bhic,bhijc,bhjc->bhij", q, faded(rates), k)
    seen = (scores @ v).swapaxes(1, 2).reshape(x.shape)
    return linear(p, ".linear", silu(linear(p, ".gate", x)) * normed_heads(seen, p[".o.gain"], heads))


def selective_scan(p: Parameters, heads: int, x: Array) -> Array:
    """hᵢ = Σⱼ exp(−e^a Σ Δ) Δⱼ Bⱼ uⱼ, y = C h + D u, under a gate (Gu & Dao 2023)."""
    u = silu(convolved(p, ".u.depthwise", linear(p, ".u", x)))
    delta = softplus(linear(p, ".delta", u))
    fading = faded(-np.exp(p[".rate"]) * delta)
    memory = np.einsum("bijc,bjc->bic", fading, delta * linear(p, ".write", u) * u)
    y = linear(p, ".read", u) * memory + p[".skip"] * u
    return linear(p, ".down", y * silu(linear(p, ".gate", x)))


def token_shift(p: Parameters, heads: int, x: Array) -> Array:
    """μ x + (1 − μ) of the token before, then a linear map (Peng et al. 2023)."""
    mixed = p[".share"] * x + (1 - p[".share"]) * before(x)
    return linear(p, ".linear", mixed)


def conformer(p: Parameters, heads: int, x: Array) -> Array:
    """Norm, gated linear unit, depthwise convolution, norm, Swish, linear map (Gulati et al. 2020)."""
    y = layernorm(x, p[".y.gain"], p[".y.bias"])
    gated = sigmoid(linear(p, ".gate", y)) * linear(p, ".gated", y)
    local = convolved(p, ".local.depthwise", gated)
    return linear(p, ".linear", silu(layernorm(local, p[".local.norm.gain"], p[".local.norm.bias"])))


def experts(p: Parameters, heads: int, x: Array) -> Array:
    """Σₑ wₑ Eₑ(x), w the softmax of the two largest scores (Jiang et al. 2024)."""
    scores = linear(p, ".router", x)
    second = np.sort(stop_gradient(scores), axis=-1)[..., -2:-1]
    return weighed(p, x, softmax(np.where(scores >= second, scores, -np.inf)))


def switch(p: Parameters, heads: int, x: Array) -> Array:
    """pₑ Eₑ(x), e with the largest share p of the softmax, for the first ⌈5/4 · tokens/4⌉ tokens of a text that choose e (Fedus et al. 2021)."""
    shares = softmax(linear(p, ".router", x))
    chosen = np.eye(4)[np.argmax(shares, axis=-1)]
    taken = chosen * (np.cumsum(chosen, axis=1) <= -(-5 * x.shape[1] // 16))
    return weighed(p, x, shares * taken)


def weighed(p: Parameters, x: Array, weights: Array) -> Array:
    """Σₑ wₑ Eₑ(x), E SwiGLUs, all computed."""
    gate, up = (np.einsum("btc,ehc->bteh", x, p[f".{m}.weight"]) for m in ("gate", "up"))
    return np.einsum("bteh,ech,bte->btc", silu(gate) * up, p[".down.weight"], weights)


def hopfield(p: Parameters, heads: int, x: Array) -> Array:
    """softmax(β x Wᵀ) W, β = 1/2 (Ramsauer et al. 2021, eq. 3)."""
    patterns = p[".stored.weight"]
    return softmax(x @ patterns.T / 2) @ patterns


def maps(shape: Shape, *names: str) -> Table:
    """Square matrices of the state's width."""
    return {f"{name}.weight": (shape.width, shape.width) for name in names}


def vectors(shape: Shape, *names: str) -> Table:
    return {name: (shape.width,) for name in names}


def latent_table(shape: Shape) -> Table:
    """Eight latent columns."""
    n, heads = shape.width, shape.heads
    into = {"c.weight": (8, n), "c.norm.gain": (8,), "r.weight": (4, n), "q.weight": (12 * heads, n)}
    return into | {"linear.weight": (n, 8 * heads)}


def gla_table(shape: Shape) -> Table:
    half, rank, d = shape.width // 2, 16, shape.width // shape.heads
    thin = {f"{m}.weight": (half, shape.width) for m in "qk"}
    alpha = {"alpha.1.weight": (rank, shape.width), "alpha.2.weight": (half, rank), "alpha.2.bias": (half,)}
    return thin | alpha | maps(shape, "v", "gate", "linear") | {"o.gain": (d,)}


def selective_scan_table(shape: Shape) -> Table:
    n, wide = shape.width, 2 * shape.width
    return {
        **{"rate": (wide,), "skip": (wide,), "u.weight": (wide, n), "u.depthwise.weight": (wide, 1, 4)},
        **{"delta.weight": (wide, wide), "delta.bias": (wide,), "write.weight": (1, wide), "read.weight": (1, wide)},
        **{"gate.weight": (wide, n), "down.weight": (n, wide)},
    }


def differential_table(shape: Shape) -> Table:
    thin = {f"{m}.weight": (shape.width // 2, shape.width) for m in ("q1", "k1", "q2", "k2")}
    return thin | maps(shape, "v", "linear") | {"lambda": (), "o.gain": (shape.width // shape.heads,)}


def conformer_table(shape: Shape) -> Table:
    norms = vectors(shape, "y.gain", "y.bias", "local.norm.gain", "local.norm.bias", "local.depthwise.bias")
    biases = vectors(shape, "gate.bias", "gated.bias", "linear.bias")
    return norms | biases | maps(shape, "gate", "gated", "linear") | {"local.depthwise.weight": (shape.width, 1, 5)}


def experts_table(shape: Shape) -> Table:
    tall = {f"{m}.weight": (4, shape.hidden, shape.width) for m in ("gate", "up")}
    return tall | {"down.weight": (4, shape.width, shape.hidden), "router.weight": (4, shape.width)}


def head_norm_table(shape: Shape) -> Table:
    return maps(shape, *"qkv", "linear") | {f"{m}.norm.gain": (shape.width // shape.heads,) for m in "qk"}


def after_norm(compute: Callable[[Parameters, int, Array], Array], table: Callable[[Shape], Table]) -> Mixer:
    """The field `rmsnorm |> …`."""
    return Mixer(lambda p, heads, x: compute(p, heads, norm(p, "", x)), lambda shape: norm_table(shape) | table(shape))


MIXERS = {
    "head_norm": after_norm(head_norm, head_norm_table),
    "alibi": after_norm(alibi, lambda shape: maps(shape, *(f"linear.{n}" for n in (1, 2, 3, 4)))),
    "distances": after_norm(
        distances,
        lambda shape: maps(shape, *(f"linear.{n}" for n in (1, 2, 3, 4))) | {"attend.distances": (4, shape.heads)},
    ),
    "differential": after_norm(differential, differential_table),
    "latent": after_norm(latent, latent_table),
    "gla": after_norm(gla, gla_table),
    "selective_scan": after_norm(selective_scan, selective_scan_table),
    "token_shift": after_norm(token_shift, lambda shape: maps(shape, "linear") | vectors(shape, "share")),
    "conformer": Mixer(conformer, conformer_table),
    "experts": after_norm(experts, experts_table),
    "switch": after_norm(switch, experts_table),
    "hopfield": after_norm(hopfield, lambda shape: {"stored.weight": (16, shape.width)}),
}
