"""Encoder–decoders in float64: what encoder and decoder compute of two texts, and their parameters.

The norms stand before the layers, all with gain and bias; the decoder normalises what it reads of the encoder each time anew. Rows are filled up with the
last kind of token, which no query sees. Encoders differ in how they advance their state; the decoder is Lie–Trotter with Euler sub-steps.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import autograd.numpy as np
from functions import Array, sigmoid
from parts import Parameters, Shape, Table, apart, linear, norm, sinusoids, weighted

Map = Callable[[int, Array], Array]


@dataclass(frozen=True)
class Translator:
    """How encoders advance their states by a layer, and the paths and shapes of what they learn beside the layers."""

    encode: Callable[[Parameters, int, Map, Array], Array]
    more: Callable[[Shape], Table]
    # The inputs of encoders; the label of the encoder of each, and the field by which the decoder reads it.
    inputs: tuple[str, ...] = ("source",)
    encoders: tuple[tuple[str, str], ...] = (("encoder", "cross"),)


def read(p: Parameters, at: str, heads: int, of: Array, by: Array, seen: Array) -> Array:
    """Attention of the tokens `of` to the tokens `by`."""
    q, k, v = (apart(linear(p, f"{at}.{m}", z), heads) for m, z in (("q", of), ("k", by), ("v", by)))
    return linear(p, f"{at}.o", weighted(q, k, v, seen, (of.shape[-1] // heads) ** -0.5))


def feed(p: Parameters, at: str, x: Array) -> Array:
    """`layernorm |> relu_mlp(hidden, bias)`."""
    return linear(p, f"{at}.down", np.maximum(linear(p, f"{at}.up", norm(p, at, x)), 0.0))


def normed(p: Parameters, at: str, n: int, x: Array) -> Array:
    """The n-th of two norms."""
    own = {f"own.norm.{part}": p[f"{at}.norm.{n}.{part}"] for part in ("gain", "bias")}
    return norm(own, "own", x)


def logits(of: Translator, shape: Shape, p: Parameters, *texts: Array) -> Array:
    """What is said of the token after each of the last text's, from all others."""
    *sources, tokens = texts
    table, padding = p["source.embed.token.weight"], shape.vocab - 1
    scaled = math.sqrt(shape.width) * table

    def encoded(label: str, source: Array) -> tuple[Array, Array]:
        held = (source != padding)[:, None, None, :]

        def layer(k: int, x: Array) -> Array:
            at = f"{label}.step.{k}"
            y = norm(p, f"{at}.att", x)
            x = x + read(p, f"{at}.att", shape.heads, y, y, held)
            return x + feed(p, f"{at}.ffn", x)

        return of.encode(p, shape.steps, layer, scaled[source] + sinusoids(source.shape[1], shape.width)), held

    ended = [(field, *encoded(label, source)) for (label, field), source in zip(of.encoders, sources, strict=True)]
    z = scaled[tokens] + sinusoids(tokens.shape[1], shape.width)
    before = np.tril(np.ones((tokens.shape[1],) * 2, bool))
    for k in range(shape.steps):
        at = f"decoder.step.{k}"
        y = norm(p, f"{at}.self", z)
        z = z + read(p, f"{at}.self", shape.heads, y, y, before)
        for field, x, held in ended:
            of_z, of_x = normed(p, f"{at}.{field}", 1, z), normed(p, f"{at}.{field}", 2, x)
            z = z + read(p, f"{at}.{field}", shape.heads, of_z, of_x, held)
        z = z + feed(p, f"{at}.ffn", z)
    return norm(p, "output", z) @ table.T


def table(of: Translator, shape: Shape) -> Table:
    """Path and shape of every parameter."""
    vector, square = (shape.width,), (shape.width, shape.width)
    one = {"norm.gain": vector, "norm.bias": vector}
    two = {f"norm.{n}.{part}": vector for n in (1, 2) for part in ("gain", "bias")}
    maps = {f"{m}.weight": square for m in "qkvo"}
    mlp = {"up.weight": (shape.hidden, shape.width), "up.bias": (shape.hidden,)}
    mlp |= {"down.weight": (shape.width, shape.hidden), "down.bias": vector}
    sides = {label: {"att": one | maps, "ffn": one | mlp} for label, _ in of.encoders}
    read_by = {field: two | maps for _, field in of.encoders}
    sides["decoder"] = {"self": one | maps, **read_by, "ffn": one | mlp}
    found: Table = {"source.embed.token.weight": (shape.vocab, shape.width)}
    for side, fields in sides.items():
        for k in range(shape.steps):
            for name, parts in fields.items():
                found |= {f"{side}.step.{k}.{name}.{part}": dims for part, dims in parts.items()}
    return found | {f"output.{part}": dims for part, dims in one.items()} | of.more(shape)


def plain(_: Parameters, steps: int, layer: Map, x: Array) -> Array:
    """Layer after layer (Vaswani et al. 2017)."""
    for k in range(steps):
        x = layer(k, x)
    return x


def gated_rk2(p: Parameters, steps: int, layer: Map, x: Array) -> Array:
    """x + g F₁ + (1 − g) F₂ with F₂ = F(x + F₁), g a sigmoid of both (Li et al. 2022, Eq. 11); one gate for all layers."""
    for k in range(steps):
        first = layer(k, x) - x
        y = x + first
        second = layer(k, y) - y
        g = sigmoid(linear(p, "encoder.gate.linear", np.concatenate([first, second], axis=-1)))
        x = x + g * first + (1 - g) * second
    return x


def gate_table(shape: Shape) -> Table:
    return {"encoder.gate.linear.weight": (1, 2 * shape.width), "encoder.gate.linear.bias": (1,)}


WINDOW = 3


def pcformer(p: Parameters, steps: int, layer: Map, x: Array) -> Array:
    """p = x + b(1 − b) F₁ + b F₂, then x + α F(p) + Σ βⱼ F₁ of the layer j layers ago (Li et al. 2024)."""
    firsts: list[Array] = []
    for k in range(steps):
        b, alpha = (p[f"encoder.step.{k}.scheme.{name}"] for name in ("b", "alpha"))
        first = layer(k, x) - x
        y = x + first
        guess = x + b * (1 - b) * first + b * (layer(k, y) - y)
        firsts.insert(0, first)
        past = sum(p[f"encoder.step.{k}.scheme.beta.{j}"] * f for j, f in enumerate(firsts[: WINDOW + 1]))
        x = x + alpha * (layer(k, guess) - guess) + past
    return x


def pcformer_table(shape: Shape) -> Table:
    found: Table = {}
    for k in range(shape.steps):
        names = ["b", "alpha", *(f"beta.{j}" for j in range(min(k, WINDOW) + 1))]
        found |= {f"encoder.step.{k}.scheme.{name}": () for name in names}
    return found


PLAIN = Translator(plain, lambda shape: {})
SEVERAL = Translator(plain, lambda shape: {}, inputs=("source", "nl"), encoders=(("first", "english"), ("second", "dutch")))
GATED_RK2 = Translator(gated_rk2, gate_table)
PCFORMER = Translator(pcformer, pcformer_table)
