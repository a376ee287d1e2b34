"""Models of images in stages, in float64: CvT (Wu et al. 2021, ICCV), its convolutions on images [batch, channels, rows, columns].

Layernorm stands where the paper has batch norm behind the depthwise convolutions. Each stage is Lie's splitting of attention and MLP with Euler steps, or
the integro-differential encoder with two maps: a layer of the post-norm encoder.
"""

from dataclasses import dataclass
from itertools import product

import autograd.numpy as np
from functions import Array
from parts import Parameters, Shape, Table, apart, gelu, layernorm, linear, norm, weighted


@dataclass(frozen=True)
class Stage:
    """A convolution that gives a stage its tokens, and the stage's blocks."""

    name: str
    kernel: int
    stride: int
    width: int
    heads: int
    steps: int
    class_token: bool = False


@dataclass(frozen=True)
class Staged:
    """The stages, each smaller than in the file."""

    side: int
    stages: tuple[Stage, ...]
    # Norms behind sums, and ReLU, in the place of norms in fields and GELU.
    post_norm: bool = False

    @property
    def sets(self) -> dict[str, int]:
        """The numbers that `--set` changes, by their paths."""
        values = {"model.size": self.side}
        for n, s in enumerate(self.stages):
            at = f"model.{s.name}." if n else "model."
            values |= {f"{at}width": s.width, f"model.{s.name}.steps": s.steps, f"att_{n + 1}.heads": s.heads}
        return values


CVT = Staged(
    12,
    (
        Stage("one", 5, 2, 8, 1, 1),
        Stage("two", 3, 2, 12, 2, 2),
        Stage("three", 3, 2, 20, 4, 1, class_token=True),
    ),
)

ENCODER = Staged(CVT.side, CVT.stages, post_norm=True)


def table(system: Staged, shape: Shape) -> Table:
    """Path and shape of every parameter."""
    found, inputs = {}, 1
    for n, s in enumerate(system.stages):
        w, embed = s.width, f"{s.name}.embed" if n else "embed"
        vectors = [f"{embed}.conv.bias", f"{embed}.norm.gain", f"{embed}.norm.bias"]
        vectors += [f"{embed}.class_token"] if s.class_token else []
        found[f"{embed}.conv.weight"] = (w, inputs, s.kernel, s.kernel)
        for k in range(s.steps):
            att, ffn = f"{s.name}.step.{k}.att_{n + 1}", f"{s.name}.step.{k}.ffn"
            for m in (1, 2, 3):
                found[f"{att}.depthwise.{m}.weight"] = (w, 1, 3, 3)
            for m in (1, 2, 3, 4):
                found[f"{att}.linear.{m}.weight"] = (w, w)
                vectors += [f"{att}.linear.{m}.bias"]
            for m in (1, 2, 3) if system.post_norm else (1, 2, 3, 4):
                vectors += [f"{att}.norm.{m}.gain", f"{att}.norm.{m}.bias"]
            if system.post_norm:
                at = f"{s.name}.step.{k}"
                found |= {f"{at}.up.linear.weight": (4 * w, w), f"{at}.up.linear.bias": (4 * w,), f"{at}.down.linear.weight": (w, 4 * w)}
                vectors += [f"{at}.down.linear.bias", *(f"{at}.scheme.{name}" for name in ("m1", "s1", "m2", "s2"))]
                continue
            found |= {f"{ffn}.up.weight": (4 * w, w), f"{ffn}.up.bias": (4 * w,), f"{ffn}.down.weight": (w, 4 * w)}
            vectors += [f"{ffn}.down.bias", f"{ffn}.norm.gain", f"{ffn}.norm.bias"]
        found |= {path: (w,) for path in vectors}
        inputs = w
    ends = {} if system.post_norm else {"output.norm.gain": (inputs,), "output.norm.bias": (inputs,)}
    return found | ends | {"output.classes.weight": (shape.vocab, inputs), "output.classes.bias": (shape.vocab,)}


def convolved(x: Array, weight: Array, stride: int, depthwise: bool = False) -> Array:
    """Windows of an odd side around every so many pixels, zeros beside the image: a sum over the places in a window."""
    batch, channels, side, _ = x.shape
    kernel = weight.shape[-1]
    outputs = (side - 1) // stride + 1
    padded = np.pad(x, ((0, 0), (0, 0), (kernel // 2, kernel // 2), (kernel // 2, kernel // 2)), "constant")
    y = 0.0
    for row, column in product(range(kernel), repeat=2):
        rows, columns = (slice(first, first + stride * (outputs - 1) + 1, stride) for first in (row, column))
        pixels, tap = padded[:, :, rows, columns].reshape(batch, channels, -1), weight[:, :, row, column]
        y = y + (tap * pixels if depthwise else tap @ pixels)
    return y.reshape(batch, -1, outputs, outputs)


def tokens(x: Array) -> Array:
    return x.reshape(*x.shape[:2], -1).swapaxes(1, 2)


def projected(p: Parameters, at: str, number: int, norms: int, x: Array, side: int, stride: int) -> Array:
    """Behind so many norms of the field, tokens convolved column by column, normed and mapped; a class token before them is only normed and mapped."""
    batch, count, width = x.shape
    first, grid = x[:, : count - side**2], x[:, count - side**2 :]
    grid = grid.swapaxes(1, 2).reshape(batch, width, side, side)
    grid = tokens(convolved(grid, p[f"{at}.depthwise.{number}.weight"], stride, depthwise=True))
    y = np.concatenate([first, grid], axis=1)
    centred = y - np.mean(y, axis=-1, keepdims=True)
    y = centred / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + 1e-5)
    y = y * p[f"{at}.norm.{norms + number}.gain"] + p[f"{at}.norm.{norms + number}.bias"]
    return linear(p, f"{at}.linear.{number}", y)


def attention(p: Parameters, at: str, x: Array, heads: int, side: int, normed: bool) -> Array:
    """Convolutional projections, keys and values with a stride of 2 (section 3.2), of normed tokens."""
    y = layernorm(x, p[f"{at}.norm.1.gain"], p[f"{at}.norm.1.bias"]) if normed else x
    q, k, v = (apart(projected(p, at, n, int(normed), y, side, stride), heads) for n, stride in ((1, 1), (2, 2), (3, 2)))
    return linear(p, f"{at}.linear.4", weighted(q, k, v, True, 1 / np.sqrt(q.shape[-1])))


def logits(system: Staged, p: Parameters, pixels: Array) -> Array:
    """Of grey images [batch, pixels, 1]."""
    side, x = system.side, pixels
    for n, s in enumerate(system.stages):
        embed = f"{s.name}.embed" if n else "embed"
        image = x.swapaxes(1, 2).reshape(x.shape[0], -1, side, side)
        image = convolved(image, p[f"{embed}.conv.weight"], s.stride)
        side = image.shape[-1]
        x = norm(p, embed, tokens(image) + p[f"{embed}.conv.bias"])
        if s.class_token:
            first = np.ones((x.shape[0], 1, 1)) * p[f"{embed}.class_token"]
            x = np.concatenate([first, x], axis=1)
        for k in range(s.steps):
            at = f"{s.name}.step.{k}"
            x = x + attention(p, f"{at}.att_{n + 1}", x, s.heads, side, not system.post_norm)
            if system.post_norm:
                x = layernorm(x, p[f"{at}.scheme.s1"], p[f"{at}.scheme.m1"])
                hidden = np.maximum(linear(p, f"{at}.up.linear", x), 0.0)
                x = layernorm(x + linear(p, f"{at}.down.linear", hidden), p[f"{at}.scheme.s2"], p[f"{at}.scheme.m2"])
            else:
                x = x + gelu(p, f"{at}.ffn")(x)
    return linear(p, "output.classes", (x if system.post_norm else norm(p, "output", x))[:, 0])
