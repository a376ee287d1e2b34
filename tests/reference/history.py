"""Steps that read what earlier steps made, in float64.

Each function is one step from the state x; `s.past` keeps values by name, oldest first, over the steps of one model. Beside
each stand the paths and shapes of its coefficients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from functions import Array
from parts import Field, Shape, Table, norm

if TYPE_CHECKING:
    from systems import Step

WINDOW = 3


def pcformer(stages: int) -> Callable[[Step, Array], Array]:
    """Predictor p = x + Σ b (1−b)^(n−i) Fᵢ, corrector x + α F(p) + Σ βⱼ F₁ of the step j steps ago."""

    def step(s: Step, x: Array) -> Array:
        b = s.value("scheme.b")
        ks = [s.layer(x)]
        for fraction in (1.0,) if stages == 2 else (0.5, 0.5, 1.0):
            ks.append(s.layer(x + fraction * ks[-1]))
        p = x + sum(b * (1 - b) ** (stages - i) * k for i, k in enumerate(ks, start=1))
        first = s.past.setdefault("first", [])
        first.append(ks[0])
        recent = first[::-1][: WINDOW + 1]
        return x + s.value("scheme.alpha") * s.layer(p) + sum(s.value(f"scheme.beta.{j}") * k for j, k in enumerate(recent))

    return step


def pcformer_table(shape: Shape) -> Table:
    table: Table = {}
    for k in range(shape.steps):
        names = ["b", "alpha", *(f"beta.{j}" for j in range(min(k, WINDOW) + 1))]
        table |= {f"step.{k}.scheme.{name}": () for name in names}
    return table


def mixture(s: Step, name: str, entries: list[Array]) -> Array:
    """Σ of all entries, newest first, each with its coefficient of this step."""
    return sum(s.value(f"scheme.{name}.{j}") * e for j, e in enumerate(reversed(entries)))


def norm_of(s: Step, where: str) -> Field:
    """`layernorm`, with the parameters of a step or of the start."""
    return lambda x: norm(s.p, f"{where}.N", x)


def dlcl(s: Step, x: Array) -> Array:
    """x' = Σⱼ W[l, j] LN(yⱼ) over the embedding y₀ and the outputs of the layers; the first layer reads W[0, 0] LN(y₀)."""
    entries = s.past.setdefault("z", [])
    if s.k == 0:
        entries.append(norm_of(s, "start")(x))
        x = s.p["start.scheme.w.0"] * entries[0]
    entries.append(norm_of(s, f"step.{s.k}")(x + s.layer(x)))
    return mixture(s, "w", entries)


def pcformer_released(s: Step, x: Array) -> Array:
    """Predict, normalise, run the layer on a mixture of the history, overwrite the newest entry, mix again."""
    entries, normed = s.past.setdefault("z", []), norm_of(s, f"step.{s.k}")
    if s.k == 0:
        entries.append(norm_of(s, "start")(x))

    def phi(y: Array) -> Array:
        return y + s.layer(y)

    b = s.p["scheme.b"]
    k1 = phi(x)
    k2 = phi(x + k1)
    entries.append(normed(x + b * (1 - b) * k1 + b * k2))
    entries[-1] = normed(phi(mixture(s, "w", entries)))
    return mixture(s, "c", entries)


def norms_table(*rows: str) -> Callable[[Shape], Table]:
    """A norm for the start and for each step, and rows of coefficients as long as the history."""

    def table(shape: Shape) -> Table:
        both = {"gain": (shape.width,), "bias": (shape.width,)}
        table: Table = {f"start.N.norm.{part}": dims for part, dims in both.items()}
        for k in range(shape.steps):
            table |= {f"step.{k}.N.norm.{part}": dims for part, dims in both.items()}
            table |= {f"step.{k}.scheme.{row}.{j}": () for row in rows for j in range(k + 2)}
        return table

    return table


def dlcl_table(shape: Shape) -> Table:
    return {"start.scheme.w.0": ()} | norms_table("w")(shape)


def released_table(shape: Shape) -> Table:
    return {"scheme.b": ()} | norms_table("w", "c")(shape)


def iiet_refresh(s: Step, x: Array) -> Array:
    """yⁱ = x + αₙ F(yⁱ⁻¹) + Σ αⱼ F̃ⱼ, with F̃ₙ refreshed after each of three iterations."""
    changes = s.past.setdefault("f", [])
    changes.append(s.layer(x))
    for _ in range(3):
        changes[-1] = s.layer(x + mixture(s, "a", changes))
    return x + mixture(s, "a", changes)


def row_table(shape: Shape) -> Table:
    return {f"step.{k}.scheme.a.{j}": () for k in range(shape.steps) for j in range(k + 1)}


def adams(beta: list[float], first: Callable[[Field, Array, float], Array]) -> Callable[[Step, Array], Array]:
    """x' = x + h Σ βⱼ f of the step j steps ago, after as many steps by another method as that needs."""

    def step(s: Step, x: Array) -> Array:
        rates = s.past.setdefault("f", [])
        rates.append(s.layer(x))
        if len(rates) < len(beta):
            return first(s.layer, x, 1.0)
        return x + sum(b * f for b, f in zip(beta, reversed(rates), strict=False))

    return step


def moulton3(first: Callable[[Field, Array, float], Array]) -> Callable[[Step, Array], Array]:
    """x' = x + 5/12 f(x') + 2/3 f(x) − 1/12 f of the step before, by two iterations from x' = x."""

    def step(s: Step, x: Array) -> Array:
        rates = s.past.setdefault("f", [])
        rates.append(s.layer(x))
        if len(rates) < 2:
            return first(s.layer, x, 1.0)
        y = x
        for _ in range(3):
            y = x + 5 / 12 * s.layer(y) + 2 / 3 * rates[-1] - 1 / 12 * rates[-2]
        return y

    return step


def bdf2(first: Callable[[Field, Array, float], Array]) -> Callable[[Step, Array], Array]:
    """x' = 4/3 x − 1/3 of the state before + 2/3 f(x'), by two iterations from x' = x."""

    def step(s: Step, x: Array) -> Array:
        states = s.past.setdefault("x", [])
        states.append(x)
        if len(states) < 2:
            return first(s.layer, x, 1.0)
        y = x
        for _ in range(3):
            y = 4 / 3 * x - 1 / 3 * states[-2] + 2 / 3 * s.layer(y)
        return y

    return step


def learned_rk4(s: Step, x: Array) -> Array:
    """Four stages, every entry below the diagonal and every weight learned."""
    ks: list[Array] = []
    for i in range(4):
        ks.append(s.layer(x + sum((s.value(f"scheme.a.{i}.{j}") * k for j, k in enumerate(ks)), start=0.0)))
    return x + sum(s.value(f"scheme.b.{j}") * k for j, k in enumerate(ks))


def learned_rk4_table(shape: Shape) -> Table:
    below = [f"a.{i}.{j}" for i in range(4) for j in range(i)]
    return {f"step.{k}.scheme.{name}": () for k in range(shape.steps) for name in [*below, *(f"b.{j}" for j in range(4))]}


def learned_gauss4(s: Step, x: Array) -> Array:
    """Two stages of which each sees both, every entry learned: all at x, three times renewed, then the weights."""

    def a(i: int, j: int) -> Array:
        return s.value(f"scheme.a.{i}.{j}")

    ys = [x, x]
    for _ in range(3):
        ks = [s.layer(y) for y in ys]
        ys = [x + a(i, 0) * ks[0] + a(i, 1) * ks[1] for i in range(2)]
    return x + sum(s.value(f"scheme.b.{j}") * s.layer(y) for j, y in enumerate(ys))


def learned_gauss4_table(shape: Shape) -> Table:
    names = [*(f"a.{i}.{j}" for i in range(2) for j in range(2)), "b.0", "b.1"]
    return {f"step.{k}.scheme.{name}": () for k in range(shape.steps) for name in names}


def learned_adams(s: Step, x: Array) -> Array:
    """x' = −α₁ x + Σ βⱼ₊₁ f of the step j steps ago, all learned, after three steps of RK4."""
    rates = s.past.setdefault("f", [])
    rates.append(s.layer(x))
    if s.k < 3:
        k1 = rates[-1]
        k2 = s.layer(x + k1 / 2)
        k3 = s.layer(x + k2 / 2)
        return x + (k1 + 2 * k2 + 2 * k3 + s.layer(x + k3)) / 6
    newest_first = rates[::-1][:4]
    return -s.value("scheme.alpha.1") * x + sum(
        s.value(f"scheme.beta.{j}") * f for j, f in enumerate(newest_first, start=1)
    )


def learned_adams_table(shape: Shape) -> Table:
    names = ["alpha.1", *(f"beta.{j}" for j in range(1, 5))]
    return {f"step.{k}.scheme.{name}": () for k in range(3, shape.steps) for name in names}
