"""The five systems in float64, written from their equations and differentiated by JAX.

Takes sizes, parameters and tokens; gives the mean cross-entropy and its gradient. Nothing here comes from odec: only the
names and shapes of the parameters are agreed (`expected`), and they are checked too. Leaves running odec and comparing
to `check.py`.

Conventions: a weight W is [out, in] and acts as `x @ W.T`; no biases; RMSNorm adds eps 1e-5 inside the root; RoPE turns
the pairs (i, i + d/2) of every head by `p · 10000^(−2i/d)` (Su et al. 2021, half-split layout); attention is causal with
scores over √d; SwiGLU is `down(silu(gate x) ∘ up x)`; the logits use the embedding's matrix.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")

import jax.numpy as jnp  # noqa: E402  (after the configuration, which must come first)
from jax import Array  # noqa: E402

SYSTEMS = ("prenorm", "macaron", "rk2", "rk4", "iiet")
EPS = 1e-5
ROPE_BASE = 10000.0


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


Parameters = dict[str, Array]
Field = Callable[[Array], Array]


def expected(system: str, shape: Shape) -> dict[str, tuple[int, ...]]:
    """Path and shape of every parameter."""
    square, tall, wide = (shape.width, shape.width), (shape.hidden, shape.width), (shape.width, shape.hidden)
    fields = {"att": {"norm.gain": (shape.width,)} | {f"{m}.weight": square for m in "qkvo"}}
    ffn = {"norm.gain": (shape.width,), "gate.weight": tall, "up.weight": tall, "down.weight": wide}
    # Macaron's two half FFNs have weights of their own, numbered in the order in which the step uses them.
    fields |= {"ffn.1": ffn, "ffn.2": ffn} if system == "macaron" else {"ffn": ffn}
    table = {"embed.token.weight": (shape.vocab, shape.width), "output.norm.gain": (shape.width,)}
    for k in range(shape.steps):
        for field, parts in fields.items():
            table |= {f"step.{k}.{field}.{part}": dims for part, dims in parts.items()}
    return table


def rmsnorm(x: Array, gain: Array) -> Array:
    return x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True) + EPS) * gain


def rope(x: Array) -> Array:
    """Rotary embedding of [batch, heads, tokens, d]."""
    tokens, d = x.shape[-2:]
    angle = jnp.arange(tokens)[:, None] * ROPE_BASE ** (-2.0 * jnp.arange(d // 2) / d)
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return jnp.concatenate([a * jnp.cos(angle) - b * jnp.sin(angle), b * jnp.cos(angle) + a * jnp.sin(angle)], axis=-1)


def attention(p: Parameters, at: str, heads: int) -> Field:
    """The field `rmsnorm |> attention(heads, causal, rope)`."""

    def field(x: Array) -> Array:
        batch, tokens, width = x.shape
        y = rmsnorm(x, p[f"{at}.norm.gain"])

        def split(name: str) -> Array:
            return (y @ p[f"{at}.{name}.weight"].T).reshape(batch, tokens, heads, width // heads).swapaxes(1, 2)

        q, k, v = rope(split("q")), rope(split("k")), split("v")
        scores = q @ k.swapaxes(-1, -2) / jnp.sqrt(width // heads)
        scores = jnp.where(jnp.tril(jnp.ones((tokens, tokens), bool)), scores, -jnp.inf)
        mixed = jax.nn.softmax(scores, axis=-1) @ v
        return mixed.swapaxes(1, 2).reshape(batch, tokens, width) @ p[f"{at}.o.weight"].T

    return field


def swiglu(p: Parameters, at: str) -> Field:
    """The field `rmsnorm |> swiglu(hidden)`."""

    def field(x: Array) -> Array:
        y = rmsnorm(x, p[f"{at}.norm.gain"])
        gate, up = y @ p[f"{at}.gate.weight"].T, y @ p[f"{at}.up.weight"].T
        return (gate / (1.0 + jnp.exp(-gate)) * up) @ p[f"{at}.down.weight"].T

    return field


def one_step(system: str, p: Parameters, at: str, heads: int, x: Array) -> Array:
    """One step of size h = 1 from the state x, as systems.md writes it."""
    att = attention(p, f"{at}.att", heads)
    if system == "macaron":
        # Strang: B(1/2) A(1) B(1/2), each sub-flow one Euler step.
        x = x + swiglu(p, f"{at}.ffn.1")(x) / 2
        x = x + att(x)
        return x + swiglu(p, f"{at}.ffn.2")(x) / 2
    ffn = swiglu(p, f"{at}.ffn")

    def layer(x: Array) -> Array:
        """Lie–Trotter with Euler sub-steps: the pre-norm layer Φ."""
        x = x + att(x)
        return x + ffn(x)

    def f(x: Array) -> Array:
        """The increment Φ(x) − x."""
        return layer(x) - x

    if system == "prenorm":
        return layer(x)
    if system == "rk2":  # Heun
        k1 = f(x)
        return x + (k1 + f(x + k1)) / 2
    if system == "rk4":
        k1 = f(x)
        k2 = f(x + k1 / 2)
        k3 = f(x + k2 / 2)
        k4 = f(x + k3)
        return x + (k1 + 2 * k2 + 2 * k3 + k4) / 6
    if system == "iiet":  # y⁰ = x + F(x), yⁱ = x + F(yⁱ⁻¹), i = 1, 2, 3
        y = x + f(x)
        for _ in range(3):
            y = x + f(y)
        return y
    raise ValueError(f"no such system: {system}")


def loss(system: str, shape: Shape, p: Parameters, tokens: Array, targets: Array) -> Array:
    """Mean over all targets of −log softmax(logits)."""
    x = p["embed.token.weight"][tokens]
    for k in range(shape.steps):
        x = one_step(system, p, f"step.{k}", shape.heads, x)
    logits = rmsnorm(x, p["output.norm.gain"]) @ p["embed.token.weight"].T
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits, axis=-1), targets[..., None], axis=-1)
    return -jnp.mean(chosen)


def loss_and_gradient(
    system: str, shape: Shape, parameters: Parameters, tokens: Array, targets: Array
) -> tuple[float, Parameters]:
    """The loss and its derivative by every parameter, in float64 whatever the type of the parameters given."""
    p = {path: jnp.asarray(value, jnp.float64) for path, value in parameters.items()}
    value, gradient = jax.jit(jax.value_and_grad(lambda q: loss(system, shape, q, tokens, targets)))(p)
    assert value.dtype == jnp.float64 and all(g.dtype == jnp.float64 for g in gradient.values())
    return float(value), gradient
