"""The systems: how odec is told about each, its parameters, and one step of it, as systems.md writes it.

A system is a shipped `.ode` file, or a flow that takes the place of the one in `prenorm.ode`. Unless it says otherwise,
each step has a field `att` and a field `ffn` of its own, and h = 1.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, factorial, sqrt

import autograd.numpy as np
import history
import stages
import time_dependent
import translators
from autograd import make_vjp
from functions import Array, exact_gelu, log_sigmoid, sigmoid, silu, softmax, stop_gradient
from mixers import MIXERS, convolved, maps, operands
from numpy.polynomial.legendre import leggauss
from parts import (
    EPS,
    Field,
    Parameters,
    Shape,
    Table,
    affine_table,
    attend,
    attention,
    attention_table,
    bias_table,
    dropout,
    gate,
    gated,
    gelu,
    gelu_table,
    gelu_tanh,
    grid_attention,
    grouped_table,
    gpt_attention,
    layernorm,
    linear,
    norm,
    norm_table,
    normal,
    post_norm_encoder,
    rmsnorm,
    rope,
    sinusoids,
    swiglu,
    swiglu_table,
    vit_attention,
)

ALL_SIZES = ("even", "odd", "wide", "full")


@dataclass(frozen=True)
class System:
    """What odec compiles, and the same in float64."""

    step: Callable[["Step", Array], Array]
    file: str = "prenorm.ode"
    # Takes the place of the flow, and of what stands in braces after it.
    flow: str | None = None
    options: str = "h = 1;  weights per step"
    # Takes the place of the number of steps, where it is found as the model runs: `step` then makes all of them.
    depth: str | None = None
    # Takes the place of the embedding.
    embed: str | None = None
    # What is added to the embedding: "learned", "sinusoidal" or nothing.
    positions: str = ""
    # How many segments the embedding tells apart, and the token that ends them.
    segments: tuple[int, int] | None = None
    # The label of the evolve whose steps are counted, with a point.
    label: str = ""
    # The norm before the logits, if any.
    norm: str | None = "rmsnorm"
    # Takes the place of that norm.
    output: str | None = None
    # Inside the root of the norms of `att`, `ffn` and the output.
    eps: float = EPS
    # Takes the place of the loss: its terms with their coefficients.
    loss: dict[str, float] = field(default_factory=dict)
    # Whether the loss is over hidden tokens, behind the last kind.
    masked: bool = False
    # Part of what each field computes that is dropped in training, or a rule of the step and the number of steps.
    drops: float | Callable[[int, int], float] = 0.0
    # What has a random number of its own there, by field, if not an element.
    each: dict[str, str] = field(default_factory=dict)
    # Whether a state, or noise of steps, is drawn.
    starts: bool = False
    # Whether GELU is approximated.
    tanh: bool = False
    # Whether it is run in bf16: rounded scores may choose other experts.
    half: bool = True
    # Largest error of the interpreter.
    limit: float = 1e-9
    # Schemes and fields of its own.
    definitions: str = ""
    # Kind of each field, by its path below the step.
    fields: dict[str, str] = field(default_factory=lambda: {"att": "att", "ffn": "ffn"})
    # Learned coefficients, by their path below the step: `True` where each channel has one.
    learned: dict[str, bool] = field(default_factory=dict)
    # Parameters that are not the same at each step.
    more: Callable[[Shape], Table] = lambda shape: {}
    # The beginning of the paths of a field's parameters at a step.
    owner: Callable[[str, int], str] = lambda name, k: f"step.{k}."
    # Paths of the sizes that `--set` changes.
    heads: tuple[str, ...] = ("att.heads",)
    hidden: tuple[str, ...] = ("ffn.hidden",)
    sizes: tuple[str, ...] = ("odd",)
    steps: int | None = None
    # Other numbers that `--set` changes, by their paths.
    sets: dict[str, int] = field(default_factory=dict)
    # Side of the grey images that it reads, and of their patches: the state is made by a linear map, and each image has one of ten classes.
    image: tuple[int, int] | None = None
    # Whether it gives the velocity between noise and images: it is told the time, by waves of this frequency, and the class, and both are rows before the patches.
    velocity: float | None = None
    # Whether time and class are no rows, but a sum that steps read.
    conditioned: bool = False
    # Numbers of each vector that it reads, and how many it predicts, for each vector or for all of them.
    vectors: tuple[int, int] | None = None
    # Columns of the embedding's table, where a matrix widens it.
    factorised: int | None = None
    # Whether a learned row stands before those of the input, and what is said is read there.
    class_token: bool = False
    # How many more of them that nothing reads.
    registers: int = 0
    # Whether sequences of vectors have two numbers and one of five classes besides.
    several: bool = False
    # An output `follows` has two classes, one for each row.
    follows: bool = False
    # How many classes texts are of, of which each has one: rows of several lengths, filled up with the last kind of token, which attention and the mean of
    # the last states leave out.
    classes: int | None = None
    # What two texts become, in the place of steps of one.
    translator: translators.Translator | None = None
    # Stages of images, in the place of steps of one state.
    staged: stages.Staged | None = None

    def shaped(self, shape: Shape) -> Shape:
        """The sizes of this system where others have those."""
        shape = replace(shape, steps=self.steps or shape.steps)
        if self.vectors:
            return replace(shape, vocab=self.vectors[1], context=17 + self.class_token, batch=16)
        if self.translator or self.classes:
            # Bytes and three more.
            return replace(shape, vocab=259)
        if self.image is None:
            return shape
        side, patch = self.image
        # As many predictions as texts have, so that the roundings of bf16 average out alike.
        if self.velocity:
            return replace(shape, vocab=patch**2, context=(side // patch) ** 2 + 2 * (not self.conditioned), batch=16)
        return replace(shape, vocab=10, context=(side // patch) ** 2 + self.class_token + self.registers, batch=48)

    @property
    def reads(self) -> str:
        """What it reads, as odec names it."""
        return "patches" if self.image else "vectors" if self.vectors else "tokens"

    def table(self, shape: Shape) -> Table:
        """Path and shape of every parameter of the steps."""
        parts = {
            "att": norm_table(shape) | attention_table(shape),
            "ffn": norm_table(shape) | swiglu_table(shape),
            "grouped": norm_table(shape) | grouped_table(shape, self.sets.get("att.kv_heads", 1)),
            "both": norm_table(shape) | attention_table(shape) | swiglu_table(shape),
            "bare_att": attention_table(shape),
            "bare_vit_att": attention_table(shape) | bias_table(shape, *"qkvo"),
            "bare_gelu": gelu_table(shape),
            "up": affine_table(4 * shape.width, shape.width),
            "down": affine_table(shape.width, 4 * shape.width),
            "gate": {"linear.weight": (1, 2 * shape.width), "linear.bias": (1,)},
            "halt": norm_table(shape) | {"linear.weight": (1, shape.width)},
            "inject": {"linear.weight": (shape.width, shape.width)},
            "joined": {"linear.weight": (shape.width, 2 * shape.width)},
            "normed": norm_table(shape) | {"linear.weight": (shape.width, shape.width)},
            "gpt_att": norm_table(shape) | attention_table(shape) | bias_table(shape, "norm", *"qkvo"),
            "vit_att": norm_table(shape) | attention_table(shape) | bias_table(shape, "norm", *"qkvo"),
            "grid_att": norm_table(shape) | attention_table(shape) | bias_table(shape, "norm", *"qkvo"),
            "gpt_ffn": norm_table(shape) | gelu_table(shape) | bias_table(shape, "norm"),
            "layernorm": norm_table(shape) | bias_table(shape, "norm"),
            "bert_att": attention_table(shape) | bias_table(shape, *"qkvo"),
            "relu": gelu_table(shape),
            "halt_bias": affine_table(1, shape.width),
            "route": {"linear.weight": (3, shape.width)},
            "once": {"linear.weight": (1, shape.width)},
            "decay": {"decay.log_rate": (shape.width,)},
            "turned": norm_table(shape) | attention_table(shape) | bias_table(shape, *"qkv"),
            "opened": norm_table(shape)
            | swiglu_table(shape)
            | bias_table(shape, "norm", "down")
            | {f"{part}.bias": (shape.hidden,) for part in ("gate", "up")},
            "mapped": norm_table(shape)
            | {"up.weight": (2 * shape.width, shape.width), "down.weight": (shape.width, 2 * shape.width)},
        }
        parts |= {kind: mixer.table(shape) for kind, mixer in MIXERS.items()}
        table = {}
        for k in range(shape.steps):
            for name, kind in self.fields.items():
                table |= {f"{self.owner(name, k)}{name}.{part}": dims for part, dims in parts[kind].items()}
            for name, per_channel in self.learned.items():
                table[f"{self.owner(name, k)}{name}"] = (shape.width,) if per_channel else ()
        return table | self.more(shape)


@dataclass(frozen=True)
class Step:
    """One step of a system: its fields and coefficients."""

    system: System
    shape: Shape
    p: Parameters
    k: int
    # What earlier steps made, by name, oldest first.
    past: dict[str, list[Array]]
    # What masks are chosen by.
    key: Array | int = 0

    def path(self, name: str) -> str:
        return self.system.owner(name, self.k) + name

    def value(self, name: str) -> Array:
        return self.p[self.path(name)]

    def field(self, name: str) -> Field:
        kind, at, system = self.system.fields[name], self.path(name), self.system
        own = {path.removeprefix(at): value for path, value in self.p.items() if path.startswith(f"{at}.")}
        kind = "gelu_tanh" if kind == "gpt_ffn" and system.tanh else kind
        settings = (self.shape.heads, system.eps, system.sets.get("att.window"))

        def computed(x: Array) -> Array:
            return evaluated(kind, settings, own, x)

        if not system.drops:
            return computed
        # Masks are numbered from 2, in the order in which a step needs them.
        names = list(system.fields)
        stream = 2 + self.k * len(names) + names.index(name)
        rate = system.drops(self.k, self.shape.steps) if callable(system.drops) else system.drops
        return lambda x: dropout(computed(x), rate, self.key, stream, system.each.get(name, "element"))

    def both(self, x: Array) -> Array:
        """`rmsnorm |> (attention + swiglu)`: one norm for both."""
        at = self.path("both")
        y = rmsnorm(x, self.p[f"{at}.norm.gain"])
        return attend(self.p, at, self.shape.heads, y) + gated(self.p, at, y)

    def att(self, x: Array) -> Array:
        return self.field("att")(x)

    def ffn(self, x: Array) -> Array:
        return self.field("ffn")(x)

    def layer(self, x: Array) -> Array:
        """The increment Φ(x) − x of the pre-norm layer Φ: Lie–Trotter with Euler sub-steps."""
        y = x + self.att(x)
        return y + self.ffn(y) - x


def evaluated(kind: str, settings: tuple[int, float, int | None], p: Parameters, x: Array) -> Array:
    """A field of this kind whose parameters are called by what follows its path."""
    heads, eps, window = settings
    kinds = {
        "att": lambda: attention(p, "", heads, eps=eps),
        "grouped": lambda: attention(p, "", heads, window=window),
        "ffn": lambda: swiglu(p, "", eps),
        "gpt_att": lambda: gpt_attention(p, "", heads),
        "vit_att": lambda: vit_attention(p, "", heads),
        "grid_att": lambda: grid_attention(p, "", heads),
        "gpt_ffn": lambda: gelu(p, ""),
        "gelu_tanh": lambda: gelu_tanh(p, ""),
        "turned": lambda: turned(p, "", heads),
        "opened": lambda: swiglu(p, "", 1 / 8),
        "mapped": lambda: gelu_tanh(p, ""),
    }
    return MIXERS[kind].compute(p, heads, x) if kind in MIXERS else kinds[kind]()(x)


def turned(p: Parameters, at: str, heads: int) -> Field:
    """The field `rmsnorm(eps: 1/4) |> attention(heads, causal, rope(base: 100), scale: 1/3, qkv_bias)`."""
    return lambda x: attend(p, at, heads, norm(p, at, x, 1 / 4), turn=lambda q: rope(q, 100.0), scale=1 / 3)


# ---- exponential integrators ----


def phi(k: int, z: Array) -> Array:
    """φₖ(z) = ∫₀¹ e^{(1−s)z} s^{k−1}/(k−1)! ds by Gauss and Legendre's rule, φ₀ the exponential."""
    if k == 0:
        return np.exp(z)
    nodes, weights = leggauss(32)
    s = (nodes + 1) / 2
    density = weights / 2 * s ** (k - 1) / factorial(k - 1)
    return np.sum(density[:, None] * np.exp((1 - s)[:, None] * z), axis=0)


def decays(s: Step, rate: float) -> Array:
    """The number below 0 that `decay` multiplies each channel by."""
    return -rate * np.exp(s.p[s.path("leak") + ".decay.log_rate"])


# The functions φₖ(cz) at one z.
Functions = Callable[[int, float], Array]


def exponential(
    nodes: list[float],
    stages: Callable[[Functions], list[list[Array | float]]],
    weights: Callable[[Functions], list[Array | float]],
    rate: float = 1.0,
    h: float = 1.0,
) -> Callable[[Step, Array], Array]:
    """e^{cz} x + h Σ a(z) F(Y): an exponential Runge–Kutta method over a whole layer."""

    def step(s: Step, x: Array) -> Array:
        z = h * decays(s, rate)

        def f(k: int, c: float) -> Array:
            return phi(k, c * z)

        ks: list[Array] = []
        for c, row in zip(nodes, stages(f), strict=True):
            ks.append(s.layer(np.exp(c * z) * x + h * sum(a * k for a, k in zip(row, ks, strict=True))))
        return np.exp(z) * x + h * sum(b * k for b, k in zip(weights(f), ks, strict=True))

    return step


def etdrk4_stages(f: Functions) -> list[list[Array | float]]:
    half = f(1, 0.5) / 2
    return [[], [half], [0.0, half], [half * (f(0, 0.5) - 1), 0.0, f(1, 0.5)]]


def cox_matthews_weights(f: Functions) -> list[Array | float]:
    middle = 2 * f(2, 1) - 4 * f(3, 1)
    return [f(1, 1) - 3 * f(2, 1) + 4 * f(3, 1), middle, middle, 4 * f(3, 1) - f(2, 1)]


def hochbruck_ostermann_stages(f: Functions) -> list[list[Array | float]]:
    a52 = f(2, 0.5) / 2 - f(3, 1) + f(2, 1) / 4 - f(3, 0.5) / 2
    a54 = f(2, 0.5) / 4 - a52
    return [
        [],
        [f(1, 0.5) / 2],
        [f(1, 0.5) / 2 - f(2, 0.5), f(2, 0.5)],
        [f(1, 1) - 2 * f(2, 1), f(2, 1), f(2, 1)],
        [f(1, 0.5) / 2 - 2 * a52 - a54, a52, a52, a54],
    ]


def hochbruck_ostermann_weights(f: Functions) -> list[Array | float]:
    first, middle, _, last = cox_matthews_weights(f)
    return [first, 0.0, 0.0, last, 2 * middle]


def lawson4(s: Step, x: Array) -> Array:
    rates = decays(s, 1.0)
    v = x
    ks: list[Array] = []
    for c in (0.0, 0.5, 0.5, 1.0):
        y = v + c * ks[-1] if ks else v
        ks.append(np.exp(-c * rates) * s.layer(np.exp(c * rates) * y))
    return np.exp(rates) * (v + (ks[0] + 2 * ks[1] + 2 * ks[2] + ks[3]) / 6)


# ---- schemes ----

Rows = list[list[float]]


def euler(f: Field, x: Array, h: float) -> Array:
    return x + h * f(x)


def heun(f: Field, x: Array, h: float) -> Array:
    k1 = f(x)
    return x + h * (k1 + f(x + h * k1)) / 2


def weighted(x: Array, h: float, weights: list[float], ks: list[Array]) -> Array:
    return x + h * sum(w * k for w, k in zip(weights, ks, strict=False))


def explicit(a: Rows, b: list[float]) -> Callable[[Field, Array, float], Array]:
    """The Runge–Kutta method with these stages and weights."""

    def method(f: Field, x: Array, h: float) -> Array:
        ks: list[Array] = []
        for row in a:
            ks.append(f(weighted(x, h, row, ks) if row else x))
        return weighted(x, h, b, ks)

    return method


def fixed_point(a: Rows, b: list[float], iterations: int) -> Callable[[Field, Array, float], Array]:
    """Y⁰ = x; all stages at once, `iterations` times; then the step from a last evaluation."""

    def method(f: Field, x: Array, h: float) -> Array:
        ys = [x for _ in a]
        for _ in range(iterations):
            ks = [f(y) for y in ys]
            ys = [weighted(x, h, row, ks) for row in a]
        return weighted(x, h, b, [f(y) for y in ys])

    return method


def whole(s: Step) -> float:
    return 1.0


def over_steps(s: Step) -> float:
    return 1.0 / s.shape.steps


def splitting(
    *parts: tuple[str, float],
    by: Callable[[Field, Array, float], Array] = euler,
    h: Callable[[Step], float] = whole,
) -> Callable[[Step, Array], Array]:
    """Flows of fields, one after the other, each with its fraction of h."""

    def step(s: Step, x: Array) -> Array:
        for name, fraction in parts:
            x = by(s.field(name), x, fraction * h(s))
        return x

    return step


def over_layer(method: Callable[[Field, Array, float], Array]) -> Callable[[Step, Array], Array]:
    return lambda s, x: method(s.layer, x, 1.0)


def numbers(text: str) -> list[float]:
    return [float(Fraction(t)) for t in text.split()]


def rows(*texts: str) -> Rows:
    return [numbers(t) for t in texts]


RK4 = explicit(rows("", "1/2", "0 1/2", "0 0 1"), numbers("1/6 1/3 1/3 1/6"))
KUTTA3 = explicit(rows("", "1/2", "-1 2"), numbers("1/6 2/3 1/6"))
GAUSS4 = [[1 / 4, 1 / 4 - sqrt(3) / 6], [1 / 4 + sqrt(3) / 6, 1 / 4]]
GAUSS6 = [
    [5 / 36, 2 / 9 - sqrt(15) / 15, 5 / 36 - sqrt(15) / 30],
    [5 / 36 + sqrt(15) / 24, 2 / 9, 5 / 36 - sqrt(15) / 24],
    [5 / 36 + sqrt(15) / 30, 2 / 9 + sqrt(15) / 15, 5 / 36],
]
GAMMA = 1 - sqrt(2) / 2
YOSHIDA = 1 / (2 - 2 ** (1 / 3))
DORMAND_PRINCE = explicit(
    rows(
        "",
        "1/5",
        "3/40 9/40",
        "44/45 -56/15 32/9",
        "19372/6561 -25360/2187 64448/6561 -212/729",
        "9017/3168 -355/33 46732/5247 49/176 -5103/18656",
    ),
    numbers("35/384 0 500/1113 125/192 -2187/6784 11/84"),
)


def iiet(s: Step, x: Array) -> Array:
    """y⁰ = x + F(x), yⁱ = x + F(yⁱ⁻¹), i = 1, 2, 3."""
    y = x + s.layer(x)
    for _ in range(3):
        y = x + s.layer(y)
    return y


def yoshida4(s: Step, x: Array) -> Array:
    u, v = YOSHIDA, 1 - 2 * YOSHIDA
    a, b = "att", "ffn"
    parts = (a, u / 2), (b, u), (a, (u + v) / 2), (b, v), (a, (u + v) / 2), (b, u), (a, u / 2)
    return splitting(*parts, by=RK4, h=over_steps)(s, x)


def blanes_moan4(s: Step, x: Array) -> Array:
    a1, a2, a3 = 0.0792036964311957, 0.353172906049774, -0.0420650803577195
    b1, b2 = 0.209515106613362, -0.143851773179818
    a4, b3 = 1 - 2 * (a1 + a2 + a3), 1 / 2 - (b1 + b2)
    halves = [("att", a1), ("ffn", b1), ("att", a2), ("ffn", b2), ("att", a3), ("ffn", b3)]
    return splitting(*halves, ("att", a4), *reversed(halves))(s, x)


def hybrid(s: Step, x: Array) -> Array:
    """Two attentions side by side, each over twice the step, averaged; then the FFN. All Euler, so 2 · 1/2 = 1."""
    y = (x + 2 * s.field("att")(x) + x + 2 * s.field("near")(x)) / 2
    return y + s.ffn(y)


def equilibrium(s: Step, x: Array) -> Array:
    """z = F(z + G(x)) six times from 0."""
    injected = x @ s.value("inject.linear.weight").T
    z = 0 * x
    for _ in range(6):
        z = s.layer(z + injected)
    return z


Pair = Callable[[Step, Array, Array, Array], tuple[Array, Array]]


def adaptive(pair: Pair, order: int, tolerance: float, until: float, attempts: int) -> Callable[[Step, Array], Array]:
    """Steps of a pair, `order` the smaller of its two, with errors below the tolerance, from the whole way on (Hairer, Nørsett & Wanner 1993, II.4)."""

    def all_steps(s: Step, x: Array) -> Array:
        t, h = 0.0, until
        for _ in range(attempts):
            if t >= until:
                break
            new, partner = pair(s, x, t, h)
            before, after = stop_gradient(x), stop_gradient(new)
            off = (after - stop_gradient(partner)) / (tolerance * (1 + np.maximum(np.abs(before), np.abs(after))))
            error = np.sqrt(np.mean(off * off))
            if error < 1:
                x, t = new, t + h
            h = h * np.clip(0.9 * error ** (-1 / (order + 1)), 0.2, 5.0)
            h = until - t if h > 0.99 * (until - t) else h
        return x

    return all_steps


def halting(step: Callable[[Step, Array], Array], most: int, threshold: float) -> Callable[[Step, Array], Array]:
    """Adaptive computation time (Graves 2016, 2.1) of every token: chances are read from the states after steps, and a token that has
    halted keeps its state. N and R go to `past`."""

    def all_steps(s: Step, x: Array) -> Array:
        open_, spent, mixed, steps, rest = np.ones(x.shape[:2], bool), 0.0, 0.0, 0.0, 0.0
        for k in range(most):
            x = np.where(open_[..., None], step(replace(s, k=k), x), x)
            seen = norm(s.p, s.path("halt"), x) if s.path("halt.norm.gain") in s.p else x
            chance = sigmoid(linear(s.p, s.path("halt.linear"), seen))[..., 0]
            last = open_ & ((spent + chance >= threshold) | (k == most - 1))
            weight = np.where(last, 1 - spent, np.where(open_, chance, 0.0))
            mixed = mixed + weight[..., None] * x
            steps, rest = steps + open_, rest + np.where(last, weight, 0.0)
            spent, open_ = spent + np.where(last, 0.0, weight), open_ & ~last
        s.past["pondered"] = [steps + rest]
        return mixed

    return all_steps


def recurred(s: Step, x: Array, taking: Array, gate: Array) -> Array:
    """The state after a step `lie(att, ffn)` whose change is multiplied by the gate, of the tokens that take it and attend to each other."""
    normed = norm(s.p, s.path("att"), x)
    y = x + attend(s.p, s.path("att"), s.shape.heads, normed, among=taking)
    change = (y + s.ffn(y) - x) * gate[..., None]
    return np.where(taking[..., None], x + change, x)


def chosen_by_tokens(s: Step, x: Array) -> Array:
    """Mixture of recursions (Bae et al. 2025, 2.2.1): before the first step a token chooses how many it takes; the share of its choice
    multiplies each of them."""
    shares = softmax(linear(s.p, s.path("route.linear"), x))
    steps = np.argmax(shares, axis=-1)
    for k in range(shares.shape[-1]):
        x = recurred(s, x, steps >= k, np.max(shares, axis=-1))
    return x


def chosen_by_steps(capacities: list[Fraction]) -> Callable[[Step, Array], Array]:
    """The same where each step chooses (Eq. 2.1): of the tokens that took the step before, those with the largest scores of their text. How
    well the scores' sigmoids say which they are (Raposo et al. 2024, 3.5: binary cross-entropy) goes to `past`."""

    def all_steps(s: Step, x: Array) -> Array:
        tokens = x.shape[1]
        open_ = np.ones(x.shape[:2], bool)
        compared = np.zeros(x.shape[:2])
        for k, capacity in enumerate(capacities):
            score = linear(s.p, s.path("route.linear"), x)[..., k]
            falling = np.argsort(np.where(open_, -score, np.inf), axis=-1, stable=True)
            place = np.argsort(falling, axis=-1)
            taking = open_ & (place < ceil(capacity * tokens))
            if capacity < 1:
                surprise = -np.where(taking, log_sigmoid(score), log_sigmoid(-score))
                compared = compared + np.where(open_, surprise, 0.0)
            open_ = taking
            x = recurred(s, x, open_, sigmoid(score))
        s.past["compared"] = [compared]
        return x

    return all_steps


def sum_at(s: Step, y: Array, t: Array | float) -> Array:
    """`att + ffn` with the weights of a time; weights that have none are the same at all times."""
    now = replace(s, p=time_dependent.at_time(s.p, t))
    return now.att(y) + now.ffn(y)


def bogacki_shampine_pair(s: Step, x: Array, t: Array, h: Array) -> tuple[Array, Array]:
    k1 = sum_at(s, x, t)
    k2 = sum_at(s, x + h * k1 / 2, t + h / 2)
    k3 = sum_at(s, x + h * 3 * k2 / 4, t + h * 3 / 4)
    new = x + h * (2 * k1 + 3 * k2 + 4 * k3) / 9
    return new, x + h * (7 * k1 / 24 + k2 / 4 + k3 / 3 + sum_at(s, new, t + h) / 8)


def strang_lie_pair(s: Step, x: Array, t: Array, h: Array) -> tuple[Array, Array]:
    strang = heun(s.ffn, heun(s.att, heun(s.ffn, x, h / 2), h), h / 2)
    return strang, heun(s.att, heun(s.ffn, x, h), h)


def at_rest(f: Callable[[Array], Array], constant: Callable[[Array], Array], z: Array) -> Array:
    """The z = f(z) of one text that plain iteration leads to, with the derivative of the implicit function: one step of Newton's method with
    the Jacobian as a constant, which changes the value by what is left of its error only. `constant` is f without its derivatives."""
    for _ in range(120):
        z = constant(z)
    # One copy of the text for each row of the Jacobian.
    backward, _ = make_vjp(constant)(np.repeat(z, z.size, axis=0))
    jacobian = backward(np.eye(z.size).reshape(z.size, *z.shape[1:])).reshape(z.size, z.size)
    return z + np.linalg.solve(np.eye(z.size) - jacobian, (f(z) - z).ravel()).reshape(z.shape)


def deq(s: Step, x: Array) -> Array:
    """z = F(z + G(x)), F a quarter of the layer: a contraction with weights of any size that is drawn here."""
    gain, weight = (s.value(f"inject.{part}") for part in ("norm.gain", "linear.weight"))
    constant = replace(s, p={path: stop_gradient(value) for path, value in s.p.items()})
    alone = []
    for injected in np.split(rmsnorm(x, gain) @ weight.T, len(x)):
        fixed = stop_gradient(injected)
        alone.append(at_rest(lambda z, g=injected: s.layer(z + g) / 4, lambda z, g=fixed: constant.layer(z + g) / 4, 0 * fixed))
    return np.concatenate(alone)


def recurrent(s: Step, x: Array) -> Array:
    """F(I(x, e)), F a whole layer, from normal numbers; e is what comes in."""
    if s.k == 0:
        s.past["e"] = [x]
        x = normal(x, 0.4, s.key, 2)
    y = linear(s.p, s.path("inject.linear"), np.concatenate([x, s.past["e"][0]], axis=-1))
    return y + s.layer(y)


def euler_maruyama(s: Step, x: Array) -> Array:
    """x + h F(x) + √h N(0, 1/16), other numbers at each step."""
    h = 1 / 2
    return x + h * s.layer(x) + sqrt(h) * normal(x, 1 / 4, s.key, 2 + s.k)


def hybrid_of_three(s: Step, x: Array) -> Array:
    att, near, h = s.field("att"), s.field("near"), 1 / 2
    x = x + h / 2 * s.ffn(x)
    third = euler(near, x, 3 * h)
    third = euler(att, third, 3 * h)
    x = (euler(att, x, 3 * h) + heun(near, x, 3 * h) + third) / 3
    return x + h / 2 * s.ffn(x)


def parallel_heun(s: Step, x: Array) -> Array:
    h = 1 / 2
    return (heun(s.att, x, 2 * h) + heun(s.ffn, x, 2 * h)) / 2


def diffeqformer(s: Step, x: Array) -> Array:
    """As released: the weights of step k of L are those of the time (k + 1)/L."""
    h = 1 / s.shape.steps
    return x + h * sum_at(s, x, (s.k + 1) * h)


def kutta3_of_time(s: Step, x: Array) -> Array:
    """Kutta's nodes are 0, 1/2 and 1."""
    h = 1 / s.shape.steps
    t = s.k * h
    k1 = sum_at(s, x, t)
    k2 = sum_at(s, x + h * k1 / 2, t + h / 2)
    k3 = sum_at(s, x - h * k1 + 2 * h * k2, t + h)
    return x + h * (k1 + 4 * k2 + k3) / 6


def strang_of_time(s: Step, x: Array) -> Array:
    """Each field at the times that it has come to itself; the weights of the end of each step for `att`."""

    def at(t: float) -> Step:
        return replace(s, p=time_dependent.at_time(s.p, t))

    t, h = float(s.k), 1.0
    x = x + h / 2 * at(t).ffn(x)
    x = x + h * at(t + h).att(x)
    return x + h / 2 * at(t + h / 2).ffn(x)


def timed(*kinds: str, vectors_by_mlp: bool = False) -> Callable[[Shape], Table]:
    """What stands beside the parameters of `att` and `ffn`, fields of these kinds."""

    def table(shape: Shape) -> Table:
        fields = dict(zip(("att", "ffn"), kinds, strict=True))
        plain = System(lie, fields=fields, owner=lambda name, k: "")
        return time_dependent.table(plain.table(replace(shape, steps=1)), vectors_by_mlp)

    return table


def universal(s: Step, x: Array) -> Array:
    """Coordinates of the step are added before each layer (Dehghani et al. 2019)."""
    y = x + sinusoids(s.k + 1, s.shape.width)[s.k]
    return y + s.att(y) + s.ffn(y)


def told(s: Step, x: Array) -> Array:
    """Coordinates of the step and of the places are added to the state before each layer."""
    places, width = x.shape[1:]
    u = x + sinusoids(s.k + 1, width)[s.k] + sinusoids(places, width)
    return u + s.layer(u)


def revised(s: Step, x: Array) -> Array:
    """A step of the Universal Transformer as published (Dehghani et al. 2019, Eq. 4-7): steps are counted from 1, norms follow the sums."""
    coordinates = sinusoids(x.shape[1], s.shape.width) + sinusoids(s.k + 2, s.shape.width)[s.k + 1]
    u = x + coordinates
    u = norm(s.p, "N", u + attend(s.p, "att", s.shape.heads, u, turn=lambda q: q))
    hidden = np.maximum(linear(s.p, "ffn.up", u), 0.0)
    return norm(s.p, "M", u + linear(s.p, "ffn.down", hidden))


def learned_steps(s: Step, x: Array) -> Array:
    h = s.value("h")
    y = x + h * s.att(x)
    return y + h * s.ffn(y)


def rk2_gated(s: Step, x: Array) -> Array:
    k1 = s.layer(x)
    k2 = s.layer(x + k1)
    g = gate(s.p, s.path("gate"), k1, k2)
    return x + g * k1 + (1 - g) * k2


def held_attention(s: Step, x: Array) -> Array:
    """`rmsnorm |> attention(heads, rope)`: all tokens of a text see each other, and none what fills up its row."""
    at = s.path("att")
    y = norm(s.p, at, x, s.system.eps)
    return attend(s.p, at, s.shape.heads, y, causal=False, among=s.past["held"][0])


def classifier(s: Step, x: Array) -> Array:
    """Strang splitting, attention in the middle, of `rmsnorm |> conv(kernel: 4, causal, depthwise) |> swiglu(hidden)`."""

    def ffn(x: Array) -> Array:
        at = s.path("ffn")
        return gated(s.p, at, convolved(s.p, f"{at}.depthwise", norm(s.p, at, x, s.system.eps)))

    x = x + ffn(x) / 2
    x = x + held_attention(s, x)
    return x + ffn(x) / 2


def classifier_convolutions(shape: Shape) -> Table:
    return {f"step.{k}.ffn.depthwise.weight": (shape.width, 1, 4) for k in range(shape.steps)}


def strang_heun(outer: str, inner: str) -> Callable[[Step, Array], Array]:
    return splitting((outer, 1 / 2), (inner, 1.0), (outer, 1 / 2), by=heun)


def step_size(h: Callable[[int], float]) -> Callable[[Step, Array], Array]:
    """Lie–Trotter with Euler sub-steps of size h(k)."""

    def step(s: Step, x: Array) -> Array:
        y = x + h(s.k) * s.att(x)
        return y + h(s.k) * s.ffn(y)

    return step


def per_step(s: Step, x: Array) -> Array:
    """Heun in the first step; after it backward Euler by two iterations, also in the form of IIE."""
    return heun(s.layer, x, 1.0) if s.k == 0 else fixed_point([[1.0]], [1.0], 2)(s.layer, x, 1.0)


def layered(flow: str, method: Callable[[Field, Array, float], Array], **more) -> System:
    """A scheme over a whole layer."""
    return System(over_layer(method), flow=flow, **more)


def lie(s: Step, x: Array) -> Array:
    return x + s.layer(x)


def attentions(s: Step, x: Array) -> Array:
    """Three kinds of attention, then one whose values are mixed with those of the embedding (Zhou et al. 2024)."""
    if s.k == 0:
        s.past["values"] = [linear(s.p, "start.V.linear", norm(s.p, "start.N", x))]
    x = splitting(("same", 1.0), ("far", 1.0), ("less", 1.0))(s, x)
    u, own, (first,) = norm(s.p, s.path("N"), x), s.value("scheme.own"), s.past["values"]
    v = own * linear(s.p, s.path("V.linear"), u) + (1 - own) * first
    q, k = (linear(s.p, s.path(f"seen.linear.{n}"), u) for n in (1, 2))
    return x + linear(s.p, s.path("seen.linear.3"), operands(q, k, v, heads=4))


def attentions_table(shape: Shape) -> Table:
    """What is no field of one state."""
    table = maps(shape, "start.V.linear") | {f"start.{part}": dims for part, dims in norm_table(shape).items()}
    table = {path.replace("start.norm", "start.N.norm"): dims for path, dims in table.items()}
    for k in range(shape.steps):
        at = f"step.{k}"
        table |= maps(shape, f"{at}.V.linear", *(f"{at}.seen.linear.{n}" for n in (1, 2, 3)))
        table[f"{at}.N.norm.gain"] = (shape.width,)
    return table


# Without its closing brace.
OF_TIME = f"weights of time {{ embed: {time_dependent.WAVES}, hidden: {time_dependent.HIDDEN}, scale: {time_dependent.SCALE:g}"

def bert(s: Step, x: Array) -> Array:
    """A layer of BERT (Devlin et al. 2019), before the first of which the embedding is normed."""
    p, at = s.p, f"encoder.step.{s.k}"
    x = norm(p, "first.step.0.begin", x) if s.k == 0 else x
    y = norm(p, f"{at}.middle", x + attend(p, f"{at}.att", s.shape.heads, x, causal=False, turn=lambda q: q))
    return norm(p, f"{at}.end", y + linear(p, f"{at}.ffn.down", exact_gelu(linear(p, f"{at}.ffn.up", y))))


def bert_head(shape: Shape) -> Table:
    """What stands outside of the layers: the norm of the embedding, the maps before the logits and before the classes, and the classes."""
    first = {f"first.step.0.begin.norm.{part}": (shape.width,) for part in ("gain", "bias")}
    maps = {f"{at}.linear.{part}": dims for at in ("output", "follows.output") for part, dims in (("weight", (shape.width, shape.width)), ("bias", (shape.width,)))}
    return first | maps | {"follows.output.classes.weight": (2, shape.width), "follows.output.classes.bias": (2,)}


VIT = {
    "file": "vit.ode",
    "fields": {"att": "vit_att", "ffn": "gpt_ffn"},
    "norm": "layernorm",
    "image": (12, 4),
    "sets": {"model.image": 12, "model.patch": 4},
}

FLOW = VIT | {"file": "flow_matching.ode", "velocity": 32.0, "image": (14, 7), "sets": {"model.image": 14, "model.patch": 7}}


def u_vit(s: Step, x: Array) -> Array:
    """Five layers; the last two begin with a linear map of the state and of what the second and the first layer gave, side by side (Bao et al. 2023, section 3)."""

    def layer(n: int, x: Array) -> Array:
        y = x + s.field(f"att.{n}")(x)
        return y + s.field(f"ffn.{n}")(y)

    def joined(n: int, x: Array, skip: Array) -> Array:
        maps = [s.value(f"join.{n}.linear.{k}.weight") for k in (1, 2)]
        both = np.concatenate([x, skip], axis=-1) @ np.concatenate(maps, axis=1).T
        return both + s.value(f"join.{n}.linear.1.bias")

    a = layer(1, x)
    b = layer(2, a)
    up = layer(4, joined(1, layer(3, b), b))
    return layer(5, joined(2, up, a))


def dit(s: Step, x: Array) -> Array:
    """A step of adaLN-Zero (Peebles & Xie 2023, figure 3): c scales and shifts what attention and the MLP read, and opens what they give."""
    c = silu(s.past["condition"][0])

    def increment(name: str, of: Field) -> Array:
        gate, scale, shift = (linear(s.p, s.path(f"{name}.{part}"), c) for part in ("gate", "scale", "shift"))
        return gate * of((1 + scale) * layernorm(x, s.value(f"{name}.x.gain"), s.value(f"{name}.x.bias")) + shift)

    def mlp(y: Array) -> Array:
        up = linear(s.p, s.path("ffn.up"), y)
        return linear(s.p, s.path("ffn.down"), exact_gelu(up))

    x = x + increment("att", lambda y: attend(s.p, s.path("att"), s.shape.heads, y, causal=False, turn=lambda q: q))
    return x + increment("ffn", mlp)


def dit_table(shape: Shape) -> Table:
    table: Table = {}
    for k in range(shape.steps):
        for name in ("att", "ffn"):
            at = f"step.{k}.{name}"
            table |= {f"{at}.x.{part}": (shape.width,) for part in ("gain", "bias")}
            for part in ("gate", "scale", "shift"):
                table |= {f"{at}.{part}.weight": (shape.width, shape.width), f"{at}.{part}.bias": (shape.width,)}
    return table


def u_vit_table(shape: Shape) -> Table:
    square = (shape.width, shape.width)
    table: Table = {}
    for n in (1, 2):
        at = f"step.0.join.{n}.linear"
        table |= {f"{at}.1.weight": square, f"{at}.1.bias": (shape.width,), f"{at}.2.weight": square}
    return table

# The sizes are those of the file.
VECTORS = {
    "file": "../../tests/reference/vectors.ode",
    "fields": {"att": "vit_att", "ffn": "gpt_ffn"},
    "norm": "layernorm",
    "vectors": (7, 3),
}

TRANSLATOR = {
    "step": lambda s, x: x,
    "file": "translator.ode",
    "fields": {"att": "att", "self": "att", "cross": "att", "ffn": "ffn"},
    "heads": ("att.heads", "self.heads", "cross.heads"),
    "sizes": ("even",),
    # The two pairs of rows are too few: gradients of scores that hardly differ are small, and single elements are rounded by more than the bound.
    "half": False,
}

# The parts of a text that three steps take.
PARTS = [Fraction(1), Fraction(2, 3), Fraction(1, 3)]
STEPS_CHOOSE = "max: 3, choice: expert, capacity: [1, 2/3, 1/3]"
# With positions no two tokens have one score: equal tokens at the beginning of a text would, but for rounding.
PLACES = {"embed": "learned(width: 256), positions(learned)", "positions": "learned"}


def routed(step: Callable[["Step", Array], Array], depth: str, columns: int = 3, **other) -> System:
    """Steps that some tokens take, by a router of so many columns: in bf16 others might."""
    usual = {
        "definitions": f"field route = linear({columns})\n",
        "flow": "lie(att, ffn)",
        "depth": f"routed(route, {depth})",
        "options": "weights shared",
        "fields": {"att": "att", "ffn": "ffn", "route": "route"},
        "owner": lambda name, k: "",
        "steps": 1,
        "half": False,
    }
    return System(step, **(usual | other))


SYSTEMS: dict[str, System] = {
    # The five of the first release, at all sizes.
    "prenorm": System(lie, sizes=ALL_SIZES),
    "macaron": System(
        splitting(("ffn.1", 1 / 2), ("att", 1.0), ("ffn.2", 1 / 2)),
        file="macaron.ode",
        # The two half FFNs have weights of their own, numbered in the order in which the step uses them.
        fields={"att": "att", "ffn.1": "ffn", "ffn.2": "ffn"},
        sizes=ALL_SIZES,
    ),
    "rk2": System(over_layer(heun), file="rk2.ode", sizes=ALL_SIZES),
    "rk4": System(over_layer(RK4), file="rk4_layer.ode", sizes=ALL_SIZES),
    "iiet": System(iiet, file="iiet.ode", eps=1e-6, sizes=ALL_SIZES),
    # Other fields, norms and positions.
    "gpt": System(
        lie,
        file="gpt.ode",
        fields={"att": "gpt_att", "ffn": "gpt_ffn"},
        positions="learned",
        norm="layernorm",
        sizes=("even", "odd", "full"),
    ),
    # A narrow table, widened by a matrix, and read the other way round at the output.
    "factorised": System(lie, embed="learned(width: 12) |> linear(width: 256)", factorised=12),
    # The scheme is the integro-differential encoder with two maps; the equations are the post-norm encoder's.
    "encoder": System(
        lambda s, x: post_norm_encoder(s.p, f"step.{s.k}", s.shape.heads, x),
        file="encoder_masked.ode",
        fields={"att": "bare_att", "up": "up", "down": "down"},
        learned={f"scheme.{name}": True for name in ("m1", "s1", "m2", "s2")},
        hidden=(),
        positions="sinusoidal",
        norm=None,
        masked=True,
        limit=1e-12,
    ),
    # A norm after each sum; the segment of a token is how many separators stand before it.
    "bert": System(
        bert,
        file="bert.ode",
        fields={"att": "bert_att", "middle": "layernorm", "ffn": "relu", "end": "layernorm"},
        owner=lambda name, k: f"encoder.step.{k}.",
        label="encoder.",
        more=bert_head,
        positions="learned",
        segments=(2, 10),
        norm="layernorm",
        masked=True,
        follows=True,
    ),
    "text_classifier": System(classifier, file="text_classifier.ode", classes=10, more=classifier_convolutions),
    "rk2_gated": System(
        rk2_gated,
        file="rk2_gated_layer.ode",
        fields={"att": "att", "ffn": "ffn", "gate": "gate"},
        owner=lambda name, k: "" if name == "gate" else f"step.{k}.",
        sizes=("even", "odd", "wide"),
    ),
    "dropout": System(lie, file="prenorm_dropout.ode", drops=0.1, sizes=("odd", "full")),
    # Both stages of a step see the same masks.
    "dropout_heun": System(over_layer(heun), file="prenorm_dropout.ode", flow="heun(layer)", drops=0.1),
    # Attention is left out for some sequences of a batch (Huang et al. 2016), the MLP for some tokens.
    "stochastic_depth": System(
        splitting(("mix", 1.0), ("mlp", 1.0)),
        flow="lie(mix, mlp)",
        definitions="""field mix = rmsnorm |> attention(heads: 4, causal, rope) |> dropout(25%, each: sequence)
field mlp = rmsnorm |> swiglu(hidden: 704) |> dropout(25%, each: token)
""",
        fields={"mix": "att", "mlp": "ffn"},
        heads=("mix.heads",),
        hidden=("mlp.hidden",),
        drops=0.25,
        each={"mix": "sequence", "mlp": "token"},
        sizes=("odd", "full"),
    ),
    # Later steps are left out more often.
    "growing_dropout": System(
        splitting(("mix", 1.0), ("mlp", 1.0)),
        flow="lie(mix, mlp)",
        definitions="""field mix = rmsnorm |> attention(heads: 4, causal, rope) |> dropout(50%*(k + 1)/steps, each: sequence)
field mlp = rmsnorm |> swiglu(hidden: 704) |> dropout(50%*(k + 1)/steps)
""",
        fields={"mix": "att", "mlp": "ffn"},
        heads=("mix.heads",),
        hidden=("mlp.hidden",),
        drops=lambda k, steps: 0.5 * (k + 1) / steps,
        each={"mix": "sequence"},
        sizes=("odd", "full"),
    ),
    # All heads share one of keys and values; the window is shorter than the text.
    "grouped": System(
        lie,
        file="grouped.ode",
        fields={"att": "grouped", "ffn": "ffn"},
        sizes=("even", "full"),
        sets={"att.window": 7, "att.kv_heads": 1},
    ),
    "sinusoidal": System(
        lie,
        flow="lie(att, ffn)",
        embed="learned(width: 256), positions(sinusoidal)",
        positions="sinusoidal",
    ),
    # Splittings.
    "strang_ffn": System(strang_heun("ffn", "att"), file="strang_ffn.ode"),
    "strang_att": System(strang_heun("att", "ffn"), file="strang_att.ode"),
    "unsplit": System(
        lambda s, x: x + s.both(x),
        file="unsplit.ode",
        fields={"both": "both"},
        heads=("both.heads",),
        hidden=("both.hidden",),
    ),
    "parallel": System(parallel_heun, file="parallel_layer.ode"),
    "hybrid": System(
        hybrid,
        file="hybrid.ode",
        fields={"att": "att", "near": "att", "ffn": "ffn"},
        heads=("att.heads", "near.heads"),
    ),
    "three_fields": System(
        splitting(("att", 1 / 3), ("near", 1 / 2), ("ffn", 1.0), ("near", 1 / 2), ("att", 2 / 3)),
        file="hybrid.ode",
        flow="three(att, near, ffn)",
        definitions="scheme three(A, B, C) { A(1/3) B(1/2) C(1) B(1/2) A(2/3) }\n",
        fields={"att": "att", "near": "att", "ffn": "ffn"},
        heads=("att.heads", "near.heads"),
    ),
    "parallel_of_three": System(
        # Each over three times the step, so that the average moves by h Σ f, up to what Heun adds.
        lambda s, x: sum(heun(s.field(name), x, 3 / 2) for name in ("att", "near", "ffn")) / 3,
        file="hybrid.ode",
        flow="parallel(att by heun, near by heun, ffn by heun)",
        options="h = 1/2",
        fields={"att": "att", "near": "att", "ffn": "ffn"},
        heads=("att.heads", "near.heads"),
    ),
    "hybrid_of_three": System(
        # Three sub-flows side by side, one of them a splitting, between two half steps of the FFN.
        hybrid_of_three,
        file="hybrid.ode",
        flow="strang(ffn, parallel(att, near by heun, lie(near, att)))",
        options="h = 1/2",
        fields={"att": "att", "near": "att", "ffn": "ffn"},
        heads=("att.heads", "near.heads"),
    ),
    "nested": System(
        # Strang inside Lie, every written use of the FFN with weights of its own.
        splitting(("ffn.1", 1 / 2), ("att", 1.0), ("ffn.2", 1 / 2), ("ffn.3", 1.0)),
        flow="lie(strang(ffn, att), ffn)",
        options="weights per use",
        fields={"att": "att", "ffn.1": "ffn", "ffn.2": "ffn", "ffn.3": "ffn"},
    ),
    "irrational": System(
        lambda s, x: x + (sqrt(2) * s.att(x) - s.ffn(x) / (1 + sqrt(3))) / 2 ** (1 / 3),
        flow="euler(sqrt(2)*att - ffn/(1 + sqrt(3)))",
        options="h = 1/root(2, 3)",
    ),
    "ruth3": System(
        splitting(
            *(("att", 7 / 24), ("ffn", 2 / 3), ("att", 3 / 4)),
            *(("ffn", -2 / 3), ("att", -1 / 24), ("ffn", 1.0)),
            by=explicit(rows("", "1/2", "-1 2"), numbers("1/6 2/3 1/6")),
            h=over_steps,
        ),
        file="ruth.ode",
        owner=lambda name, k: "",
    ),
    "yoshida4": System(yoshida4, file="yoshida.ode", owner=lambda name, k: ""),
    "blanes_moan4": System(blanes_moan4, flow="blanes_moan4(att, ffn)"),
    # Tableaus over a whole layer.
    "midpoint": layered("midpoint(layer)", explicit(rows("", "1/2"), numbers("0 1"))),
    "ralston": layered("ralston(layer)", explicit(rows("", "2/3"), numbers("1/4 3/4"))),
    "kutta3": layered("kutta3(layer)", explicit(rows("", "1/2", "-1 2"), numbers("1/6 2/3 1/6"))),
    "ssp33": layered("ssp33(layer)", explicit(rows("", "1", "1/4 1/4"), numbers("1/6 1/6 2/3"))),
    "rk38": layered("rk38(layer)", explicit(rows("", "1/3", "-1/3 1", "1 -1 1"), numbers("1/8 3/8 3/8 1/8"))),
    "bogacki_shampine": layered(
        "bogacki_shampine(layer)", explicit(rows("", "1/2", "0 3/4"), numbers("2/9 1/3 4/9"))
    ),
    "dormand_prince": layered("dormand_prince(layer)", DORMAND_PRINCE),
    # Implicit tableaus.
    "backward_euler": layered("backward_euler(layer, r: 2)", fixed_point([[1.0]], [1.0], 2)),
    "implicit_midpoint": layered("implicit_midpoint(layer)", fixed_point([[1 / 2]], [1.0], 3)),
    "gauss4": System(over_layer(fixed_point(GAUSS4, [1 / 2, 1 / 2], 3)), file="gauss.ode"),
    "gauss6": System(
        lambda s, x: fixed_point(GAUSS6, numbers("5/18 4/9 5/18"), 5)(s.ffn, x, 1.0),
        flow="gauss6(ffn)",
        fields={"ffn": "ffn"},
    ),
    "radau_iia3": layered(
        "radau_iia3(layer)", fixed_point(rows("5/12 -1/12", "3/4 1/4"), numbers("3/4 1/4"), 3)
    ),
    "sdirk2": System(
        over_layer(fixed_point([[GAMMA, 0.0], [1 - GAMMA, GAMMA]], [1 - GAMMA, GAMMA], 3)), file="sdirk.ode"
    ),
    "equilibrium": System(
        equilibrium,
        file="equilibrium_layer.ode",
        # As in the file. With two steps training amplifies a change of 1e-7 to 5e-2 within 100 steps, in float64 too.
        steps=1,
        fields={"att": "att", "ffn": "ffn", "inject": "inject"},
        owner=lambda name, k: "",
    ),
    "deq": System(
        deq,
        file="deq_layer.ode",
        flow="deq(1/4*core, inject, memory: 5, tol: 1e-12, max: 30)",
        options="h = 1;  weights shared",
        steps=1,
        fields={"att": "att", "ffn": "ffn", "inject": "normed"},
        owner=lambda name, k: "",
    ),
    # A state that is drawn; the quantile has seven digits.
    "recurrent_depth": System(
        recurrent,
        flow="injected(phi, inject)",
        options="weights shared",
        definitions="field phi = map(lie(att, ffn))\nfield inject(s, e) = concat(s, e) |> linear\n",
        fields={"att": "att", "ffn": "ffn", "inject": "joined"},
        owner=lambda name, k: "",
        starts=True,
        limit=1e-6,
    ),
    "euler_maruyama": System(
        euler_maruyama,
        flow="euler_maruyama(layer, std: 1/4)",
        options="h = 1/2",
        starts=True,
        limit=1e-6,
    ),
    # A loss that is a sum.
    "loss_terms": System(
        step_size(lambda k: 1 / 2),
        flow="lie(att, ffn)",
        options="h = 1/2",
        loss={"smooth(1/8)": 1.0, "z_loss": 0.25, "kinetic": 0.125},
    ),
    "drift": System(
        step_size(lambda k: 1 / 2),
        flow="lie(att, ffn)",
        options="h = 1/2",
        loss={"cross_entropy": 1.0, "drift": 1 / 1024},
    ),
    # Numbers of steps that are found.
    "neural_ode": System(
        adaptive(bogacki_shampine_pair, 2, 1e-2, 2.0, 16),
        file="neural_ode.ode",
        depth="adaptive",
        steps=1,
        owner=lambda name, k: "",
    ),
    "adaptive_splitting": System(
        adaptive(strang_lie_pair, 1, 1e-2, 1.0, 24),
        flow="strang_lie(ffn by heun, att by heun)",
        depth="adaptive(rtol: 1e-2, atol: 1e-2, until: 1, max: 24)",
        options="weights shared",
        steps=1,
        owner=lambda name, k: "",
    ),
    # Weights that are functions of time.
    "diffeqformer": System(
        diffeqformer,
        file="diffeqformer.ode",
        flow="euler(both)",
        options=f"h = 1/steps;  {OF_TIME}, at: right, vectors: mlp }}",
        fields={"att": "gpt_att", "ffn": "gpt_ffn"},
        tanh=True,
        owner=lambda name, k: "",
        more=timed("gpt_att", "gpt_ffn", vectors_by_mlp=True),
        positions="learned",
        norm="layernorm",
        steps=3,
    ),
    "kutta3_of_time": System(
        kutta3_of_time,
        definitions="field both = att + ffn\n",
        flow="kutta3(both)",
        options=f"h = 1/steps;  {OF_TIME} }}",
        owner=lambda name, k: "",
        more=timed("att", "ffn"),
    ),
    "strang_of_time": System(
        strang_of_time,
        flow="strang(ffn, att)",
        options=f"{OF_TIME} }}, att {OF_TIME.removeprefix('weights ')}, at: right }}",
        owner=lambda name, k: "",
        more=timed("att", "ffn"),
    ),
    "theta_of_t": System(
        adaptive(bogacki_shampine_pair, 2, 1e-1, 1.0, 16),
        definitions="field both = att + ffn\n",
        flow="bogacki_shampine(both)",
        depth="adaptive(rtol: 1e-1, atol: 1e-1, until: 1, max: 16)",
        options=f"{OF_TIME} }}",
        owner=lambda name, k: "",
        more=timed("att", "ffn"),
        steps=1,
    ),
    "universal": System(
        universal,
        definitions="field both = att + ffn\nfield clock = id + time(embed: width)\n"
        "scheme coordinates(F, G) { step x { y = G(x)  return y + F(y) } }\n",
        flow="coordinates(both, clock)",
        options="weights shared",
        owner=lambda name, k: "",
        steps=3,
    ),
    # Numbers of steps that tokens find for themselves: 3, 4 and 5 with the parameters that are drawn by this name.
    "per_token": System(
        halting(told, 5, 0.9),
        definitions="scheme told(F, E) { step x { u = x + E(x)  return u + h*F(u) } }\n"
        "field clock = time(embed: width) + positions(sinusoidal)\nfield halt = rmsnorm |> linear(1) |> sigmoid\n",
        flow="told(layer, clock)",
        depth="halting(halt, max: 5, threshold: 0.9)",
        options="weights shared",
        fields={"att": "att", "ffn": "ffn", "halt": "halt"},
        loss={"cross_entropy": 1.0, "ponder": 0.125},
        owner=lambda name, k: "",
        steps=1,
    ),
    # Steps that some tokens take.
    "routed_tokens": routed(chosen_by_tokens, "max: 3, choice: token"),
    "routed_steps": routed(chosen_by_steps(PARTS), STEPS_CHOOSE, **PLACES),
    # Mixture of depths: one step, with weights of its own.
    "routed_once": routed(
        chosen_by_steps([Fraction(3, 8)]),
        "max: 1, capacity: [3/8]",
        columns=1,
        options="weights per step",
        fields={"att": "att", "ffn": "ffn", "route": "once"},
        owner=lambda name, k: f"step.{k}." if name in ("att", "ffn") else "",
        **PLACES,
    ),
    # The same as `routed_steps` with scores that say which tokens they are.
    "routed_threshold": routed(
        chosen_by_steps(PARTS),
        f"{STEPS_CHOOSE}, threshold: 1/2",
        loss={"cross_entropy": 1.0, "choice": 0.125},
        **PLACES,
    ),
    # The published Universal Transformer.
    "universal_published": System(
        halting(revised, 6, 0.99),
        file="universal.ode",
        depth="halting(halt, max: 6, threshold: 0.99)",
        fields={"att": "bare_att", "ffn": "relu", "N": "layernorm", "M": "layernorm", "halt": "halt_bias"},
        loss={"cross_entropy": 1.0, "ponder": 0.01},
        norm=None,
        owner=lambda name, k: "",
        steps=1,
    ),
    # Functions of a decay: coefficients as the papers' tableaus have them.
    "etdrk4": System(
        exponential(numbers("0 1/2 1/2 1"), etdrk4_stages, cox_matthews_weights, rate=1 / 10),
        file="etdrk4_layer.ode",
        fields={"att": "att", "ffn": "ffn", "leak": "decay"},
        sizes=("even", "odd"),
    ),
    "hochbruck_ostermann4": System(
        exponential(numbers("0 1/2 1/2 1 1/2"), hochbruck_ostermann_stages, hochbruck_ostermann_weights, h=1 / 2),
        definitions="field leak = decay\n",
        flow="hochbruck_ostermann4(leak, layer)",
        options="h = 1/2",
        fields={"att": "att", "ffn": "ffn", "leak": "decay"},
    ),
    "lawson4": System(
        # The classical Runge–Kutta method for v(s) = e^{-sL} x(s), back in x.
        lawson4,
        definitions="field leak = decay\n",
        flow="lawson4(leak, layer)",
        options="weights shared",
        fields={"att": "att", "ffn": "ffn", "leak": "decay"},
        owner=lambda name, k: "",
    ),
    "decay_as_a_field": System(
        lambda s, x: heun(lambda y: y * decays(s, 1 / 4) + s.ffn(y), x, 1.0),
        definitions="field leak = decay(rate: 1/4)\n",
        flow="heun(leak + ffn)",
        fields={"ffn": "ffn", "leak": "decay"},
    ),
    # Arguments of layers that are not what is meant where nothing is said.
    "arguments": System(
        splitting(("turned", 1.0), ("opened", 1.0), ("mapped", 1.0)),
        definitions="scheme three(A, B, C) { A(1) B(1) C(1) }\n"
        "field turned = rmsnorm(eps: 1/4) |> attention(heads: 4, causal, rope(base: 100), scale: 1/3, qkv_bias)\n"
        "field opened = layernorm(eps: 1/8) |> swiglu(hidden: 64, bias)\n"
        "field mapped = rmsnorm |> gelu(hidden: 2*width, approximate: tanh)\n",
        flow="three(turned, opened, mapped)",
        output="rmsnorm(eps: 1/16) |> logits(tied)",
        eps=1 / 16,
        fields={"turned": "turned", "opened": "opened", "mapped": "mapped"},
        heads=("turned.heads",),
        hidden=("opened.hidden",),
    ),
    # Images.
    "translator": System(**TRANSLATOR, translator=translators.PLAIN),
    "translator_rk2": System(**TRANSLATOR | {"file": "translator_rk2.ode"}, translator=translators.GATED_RK2),
    "translator_pcformer": System(**TRANSLATOR | {"file": "translator_pcformer.ode"}, translator=translators.PCFORMER),
    "multi_source": System(
        **TRANSLATOR
        | {
            "file": "multi_source.ode",
            "fields": {"att": "att", "self": "att", "english": "att", "dutch": "att", "ffn": "ffn"},
            "heads": ("att.heads", "self.heads", "english.heads", "dutch.heads"),
        },
        translator=translators.SEVERAL,
    ),
    "vit": System(splitting(("att", 1.0), ("ffn", 1.0)), **VIT),
    "vit_strang": System(splitting(("ffn", 0.5), ("att", 1.0), ("ffn", 0.5)), flow="strang(ffn, att)", **VIT),
    "vit_class_token": System(
        splitting(("att", 1.0), ("ffn", 1.0)),
        embed="linear(width: 64, bias), class_token, positions(learned)",
        output="layernorm |> classes(10, of: class_token)",
        class_token=True,
        **VIT,
    ),
    "vit_registers": System(
        splitting(("att", 1.0), ("ffn", 1.0)),
        embed="linear(width: 64, bias), class_token, registers(rows: 3), positions(learned)",
        output="layernorm |> classes(10, of: class_token)",
        class_token=True,
        registers=3,
        **VIT,
    ),
    "vit_grid": System(
        splitting(("turned", 1.0), ("ffn", 1.0)),
        definitions="field turned = layernorm |> attention(heads: 4, bias, rope(grid, base: 100))\n",
        flow="lie(turned, ffn)",
        embed="linear(width: 64, bias), class_token, positions(learned)",
        output="layernorm |> classes(10, of: class_token)",
        class_token=True,
        heads=("turned.heads",),
        **VIT | {"fields": {"turned": "grid_att", "ffn": "gpt_ffn"}},
    ),
    "flow_matching": System(splitting(("att", 1.0), ("ffn", 1.0)), **FLOW),
    "flow_matching_rk2": System(over_layer(heun), flow="heun(layer)", **FLOW),
    "dit": System(
        dit,
        more=dit_table,
        conditioned=True,
        **FLOW | {"file": "dit.ode", "fields": {"att": "bare_vit_att", "ffn": "bare_gelu"}},
    ),
    "u_vit": System(
        u_vit,
        more=u_vit_table,
        steps=1,
        **FLOW
        | {
            "file": "u_vit.ode",
            "fields": {f"{name}.{n}": kind for n in range(1, 6) for name, kind in (("att", "vit_att"), ("ffn", "gpt_ffn"))},
        },
    ),
    "vectors": System(lie, **VECTORS),
    "vectors_bce": System(
        lie,
        embed="linear(width: 40, bias), class_token, positions(learned)",
        output="layernorm |> linear(3, bias, of: class_token)",
        class_token=True,
        loss={"bce": 1.0},
        **VECTORS,
    ),
    # A number and a class of each sequence beside numbers for its vectors, whose losses count half and a quarter.
    "vectors_several": System(
        lie,
        output="layernorm |> linear(3, bias)\n  output place: layernorm |> linear(2, of: mean)\n  output kind: layernorm |> classes(5)",
        loss={"mse": 1.0, "mse(of: place)": 1 / 2, "cross_entropy(of: kind)": 1 / 4},
        several=True,
        **VECTORS,
    ),
    "vit_rk2": System(over_layer(heun), flow="heun(layer)", **VIT),
    "vit_iie": System(iiet, flow="iie(layer)", **VIT),
    "cvt": System(lambda s, x: x, file="cvt.ode", image=(stages.CVT.side, 1), staged=stages.CVT),
    "encoder_stages": System(lambda s, x: x, file="encoder_stages.ode", image=(stages.ENCODER.side, 1), staged=stages.ENCODER),
    # Layers written in the language, and newer primitives: several in one program.
    "attentions": System(
        attentions,
        definitions="""scheme attentions(A, B, C, N, V, S) {
  learn own = 1/2
  start { first = V(N(x)) }
  step x {
    a = x + h*A(x);  b = a + h*B(a);  c = b + h*C(b)
    u = N(c)
    return c + h*S(u, own*V(u) + (1 - own)*first)
  }
}
field same = rmsnorm |> head_norm_attention(heads: 4)
field far  = rmsnorm |> alibi_attention(heads: 4)
field less = rmsnorm |> differential_attention(heads: 4)
field N = rmsnorm
field V = linear
field seen(u, v) = attend(u |> linear, u |> linear, v, heads: 4, causal) |> linear
""",
        flow="attentions(same, far, less, N, V, seen)",
        fields={"same": "head_norm", "far": "alibi", "less": "differential"},
        learned={"scheme.own": False},
        more=attentions_table,
        heads=("same.heads", "far.heads", "less.heads"),
        hidden=(),
    ),
    "distances": System(
        splitting(("near", 1.0), ("ffn", 1.0)),
        definitions="field near = rmsnorm |> distance_attention(heads: 4, distances: 5, buckets: 4, scale: 1, causal)\n",
        flow="lie(near, ffn)",
        fields={"near": "distances", "ffn": "ffn"},
        heads=("near.heads",),
    ),
    "latent": System(
        splitting(("near", 1.0), ("ffn", 1.0)),
        definitions="field near = rmsnorm |> latent_attention(heads: 4, latent: 8)\n",
        flow="lie(near, ffn)",
        fields={"near": "latent", "ffn": "ffn"},
        heads=("near.heads",),
    ),
    "mixers": System(
        splitting(("gated", 1.0), ("mamba", 1.0), ("moved", 1.0), ("local", 1.0), h=over_steps),
        definitions="scheme four(A, B, C, D) { A(1) B(1) C(1) D(1) }\n"
        "field gated = rmsnorm |> gla(heads: 4, chunks: 3)\nfield mamba = rmsnorm |> selective_scan(chunks: 4)\n"
        "field moved = rmsnorm |> token_shift |> linear\nfield local = conformer_conv(kernel: 5, causal)\n",
        flow="four(gated, mamba, moved, local)",
        options="h = 1/steps",
        fields={"gated": "gla", "mamba": "selective_scan", "moved": "token_shift", "local": "conformer"},
        heads=("gated.heads",),
        hidden=(),
    ),
    "memories": System(
        splitting(("experts", 1.0), ("memory", 1.0)),
        definitions="field experts = rmsnorm |> moe(experts: 4, top_k: 2, hidden: 64)\n"
        "field memory = rmsnorm |> hopfield(patterns: 16, beta: 1/2)\n",
        flow="lie(experts, memory)",
        fields={"experts": "experts", "memory": "hopfield"},
        heads=(),
        hidden=("experts.hidden",),
        half=False,
    ),
    "switch": System(
        splitting(("att", 1.0), ("switch", 1.0)),
        definitions="field switch = rmsnorm |> moe(experts: 4, top_k: 1, hidden: 64, capacity: 5/4, weights: all)\n",
        flow="lie(att, switch)",
        fields={"att": "att", "switch": "switch"},
        hidden=("switch.hidden",),
        half=False,
    ),
    # Histories.
    "pcformer": System(history.pcformer(2), file="pcformer_layer.ode", more=history.pcformer_table, steps=5),
    "pcformer4": System(history.pcformer(4), file="pcformer4_layer.ode", more=history.pcformer_table, steps=5),
    "pcformer_released": System(
        history.pcformer_released, file="pcformer_released_layer.ode", more=history.released_table, steps=4
    ),
    "dlcl": System(history.dlcl, file="dlcl_layer.ode", more=history.dlcl_table, steps=5),
    "iiet_refresh": System(history.iiet_refresh, file="iiet_refresh_layer.ode", eps=1e-6, more=history.row_table, steps=4),
    "learned_tableau": System(
        history.learned_rk4, file="learned_tableau.ode", more=history.learned_rk4_table
    ),
    "learned_implicit": System(
        history.learned_gauss4, file="learned_implicit.ode", more=history.learned_gauss4_table
    ),
    "learned_multistep": System(
        history.learned_adams, file="learned_multistep.ode", more=history.learned_adams_table, steps=5
    ),
    "ab2": System(history.adams(numbers("3/2 -1/2"), heun), file="ab2_layer.ode", steps=4),
    "ab3": System(history.adams(numbers("23/12 -4/3 5/12"), KUTTA3), flow="ab3(layer)", steps=4),
    "ab4": System(history.adams(numbers("55/24 -59/24 37/24 -3/8"), RK4), flow="ab4(layer)", steps=5),
    "am3": System(history.moulton3(KUTTA3), flow="am3(layer)", steps=4),
    "bdf2": System(history.bdf2(heun), flow="bdf2(layer)", steps=4),
    # Step sizes, weights policies, steps that differ.
    "h_over_steps": System(step_size(lambda k: 1 / 2), flow="lie(att, ffn)", options="h = 1/steps"),
    "h_decaying": System(step_size(lambda k: 1 / (k + 1)), flow="lie(att, ffn)", options="h = 1/(k + 1)"),
    "learned_h": System(learned_steps, file="residual_scaling.ode", learned={"h": True}),
    "shared": System(lie, flow="lie(att, ffn)", options="weights shared", owner=lambda name, k: "", steps=3),
    "every": System(
        lie, flow="lie(att, ffn)", options="weights every 2", owner=lambda name, k: f"step.{k // 2 * 2}.", steps=3
    ),
    "cycle": System(
        lie, flow="lie(att, ffn)", options="weights cycle 2", owner=lambda name, k: f"step.{k % 2}.", steps=3
    ),
    "one_shared": System(
        lie,
        flow="lie(att, ffn)",
        options="weights per step, ffn shared",
        owner=lambda name, k: "" if name == "ffn" else f"step.{k}.",
        steps=3,
    ),
    "flows_per_step": System(
        per_step, flow="[heun(layer), iie(layer, r: 2), backward_euler(layer, r: 2)]", steps=3
    ),
}
