"""The systems as a PyTorch user would write them for speed.

Takes a `Shape` and the name of a system, gives a module whose `forward(tokens, targets)` is the mean cross-entropy.
The mathematics is that of the `.ode` files under `schemes/`; the idioms are PyTorch's best: joined q/k/v and gate/up
projections, RoPE over q and k at once, `F.rms_norm`, `F.scaled_dot_product_attention(is_causal=True)`, stage sums by
`torch.add(alpha=…)`, and the increment of a layer taken as `a + b` rather than by subtracting the state again.
That the mathematics is the same is checked by `bench.py` before it times anything.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SYSTEMS = ("prenorm", "macaron", "rk2", "rk4", "iiet", "pcformer")


@dataclass(frozen=True)
class Shape:
    """Sizes of one decoder and its batch; `hidden` is the width inside each SwiGLU."""

    vocab: int
    context: int
    batch: int
    width: int
    steps: int
    heads: int
    hidden: int
    # Whether it is timed reading tokens one by one.
    reads: ClassVar[bool] = True

    @property
    def kept_heads(self) -> int:
        """Heads of keys and values."""
        return self.heads

    def overrides(self) -> dict[str, int]:
        """What `odec build --set` is told."""
        model = {name: getattr(self, name) for name in ("vocab", "context", "width", "steps")}
        values = {f"model.{name}": value for name, value in model.items()}
        return values | {"att.heads": self.heads, "ffn.hidden": self.hidden, "train.batch": self.batch}

    def draw(self, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """A batch: tokens and the tokens after them, [batch, context] each."""
        text = torch.randint(self.vocab, (self.batch, self.context + 1), generator=generator)
        return {"tokens": text[:, :-1], "targets": text[:, 1:]}

    def model(self, system: str) -> "Decoder":
        return Decoder(self, system)

    def words(self) -> str:
        return (
            f"decoders: batch {self.batch}, context {self.context}, width {self.width}, {self.steps} layers, {self.heads} heads, "
            f"SwiGLU {self.hidden} (Macaron: 2 × {self.hidden // 2}), vocabulary {self.vocab}"
        )


def rope_tables(context: int, size: int, base: float) -> tuple[Tensor, Tensor]:
    """cos and sin of every (position, pair) angle, half-split layout: each [context, size / 2]."""
    rates = base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angles = torch.outer(torch.arange(context, dtype=torch.float64), rates)
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns the pairs (i, i + size/2) of the last axis by their angles."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Norm(nn.Module):
    """RMSNorm with a gain, eps 1e-5 inside the root."""

    def __init__(self, width: int):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.gain.shape, self.gain, 1e-5)


class Kept:
    """Keys and values of the tokens so far, in buffers of a fixed size: a pair for each evaluation of attention, in the order in which these run.

    `at` is the position of the token at hand as a tensor; `end`, if it is not 0, how many places are read, else all are, under the mask `seen`.
    """

    def __init__(self, keys: list[Tensor], values: list[Tensor], at: Tensor, seen: Tensor, end: int):
        self.pairs = iter(zip(keys, values, strict=True))
        self.at, self.seen, self.end = at, seen, end

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = next(self.pairs)
        keys.index_copy_(2, self.at, k)
        values.index_copy_(2, self.at, v)
        shared = q.shape[1] != k.shape[1]
        if self.end:
            return F.scaled_dot_product_attention(q, keys[:, :, : self.end], values[:, :, : self.end], enable_gqa=shared)
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=self.seen, enable_gqa=shared)


class Attention(nn.Module):
    """The field `rmsnorm |> attention(heads, causal, rope)`: what is added to the state, not the new state."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.heads = shape.heads
        self.norm = Norm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, kept: Kept | None = None) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        qkv = qkv.permute(2, 0, 3, 1, 4)
        q, k = rotate(qkv[:2], cos, sin).unbind(0)
        v = qkv[2]
        o = kept.attend(q, k, v) if kept else F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(o.transpose(1, 2).reshape(batch, tokens, width))


class Ffn(nn.Module):
    """The field `rmsnorm |> swiglu(hidden)`."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.norm = Norm(width)
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(self.norm(x)).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Step(nn.Module):
    """One step of size 1 of a pre-norm layer under a Runge–Kutta-like scheme; its weights serve every evaluation."""

    def __init__(self, shape: Shape, system: str):
        super().__init__()
        self.system = system
        self.att = Attention(shape)
        self.ffn = Ffn(shape.width, shape.hidden)

    def increment(self, x: Tensor, cos: Tensor, sin: Tensor, kept: Kept | None) -> Tensor:
        """Φ(x) − x of the Lie–Trotter layer Φ."""
        a = self.att(x, cos, sin, kept)
        return a + self.ffn(x + a)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, kept: Kept | None = None) -> Tensor:
        if self.system == "prenorm":
            x = x + self.att(x, cos, sin, kept)
            return x + self.ffn(x)
        f = self.increment
        k1 = f(x, cos, sin, kept)
        if self.system == "rk2":
            return torch.add(x, k1 + f(x + k1, cos, sin, kept), alpha=0.5)
        if self.system == "rk4":
            k2 = f(torch.add(x, k1, alpha=0.5), cos, sin, kept)
            k3 = f(torch.add(x, k2, alpha=0.5), cos, sin, kept)
            k4 = f(x + k3, cos, sin, kept)
            return torch.add(x, torch.add(k1 + k4, k2 + k3, alpha=2.0), alpha=1.0 / 6.0)
        assert self.system == "iiet"
        y = x + k1
        for _ in range(3):
            y = x + f(y, cos, sin, kept)
        return y


class MacaronStep(nn.Module):
    """Strang splitting with Euler sub-steps and weights per use: half an FFN, attention, half another FFN."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.first = Ffn(shape.width, shape.hidden)
        self.att = Attention(shape)
        self.second = Ffn(shape.width, shape.hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, kept: Kept | None = None) -> Tensor:
        x = torch.add(x, self.first(x), alpha=0.5)
        x = x + self.att(x, cos, sin, kept)
        return torch.add(x, self.second(x), alpha=0.5)


class PcformerStep(Step):
    """PCformer of second order with m = 3 earlier first stages (Li et al. 2024), its coefficients learned."""

    def __init__(self, shape: Shape):
        super().__init__(shape, "pcformer")
        self.b, self.alpha = nn.Parameter(torch.tensor([0.5])), nn.Parameter(torch.ones(1))
        self.beta = nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor, past: list[Tensor], cos: Tensor, sin: Tensor, kept: Kept | None = None) -> Tensor:
        f, b = self.increment, self.b
        k1 = f(x, cos, sin, kept)
        k2 = f(x + k1, cos, sin, kept)
        past.insert(0, k1)
        x_next = x + self.alpha * f(x + b * ((1 - b) * k1 + k2), cos, sin, kept)
        for beta, k in zip(self.beta, past[:4], strict=False):
            x_next = torch.addcmul(x_next, beta, k)
        return x_next


class Decoder(nn.Module):
    """Embedding, the steps, a final norm, logits tied to the embedding, mean cross-entropy."""

    base = 10000.0

    def __init__(self, shape: Shape, system: str):
        super().__init__()
        self.shape, self.system = shape, system
        self.embed = nn.Embedding(shape.vocab, shape.width)
        self.steps = nn.ModuleList(self.layer() for _ in range(shape.steps))
        self.norm = Norm(shape.width)
        cos, sin = rope_tables(shape.context, shape.width // shape.heads, self.base)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for weight in self.parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=0.02)

    def layer(self) -> nn.Module:
        """One step of the system."""
        own = {"macaron": MacaronStep, "pcformer": PcformerStep}.get(self.system)
        return own(self.shape) if own else Step(self.shape, self.system)

    def head(self, x: Tensor) -> Tensor:
        """Logits of states."""
        return F.linear(self.norm(x), self.embed.weight)

    def logits(self, tokens: Tensor) -> Tensor:
        x, past = self.embed(tokens), []
        for step in self.steps:
            x = step(x, past, self.cos, self.sin) if isinstance(step, PcformerStep) else step(x, self.cos, self.sin)
        return self.head(x)

    def buffers_for(self, batch: int, dtype: torch.dtype) -> list[Tensor]:
        """Keys or values of so many texts, for each evaluation of attention."""
        evaluations = {"rk2": 2, "pcformer": 3, "rk4": 4, "iiet": 4}.get(self.system, 1)
        size = (batch, self.shape.kept_heads, self.shape.context, self.shape.width // self.shape.heads)
        return [torch.zeros(size, dtype=dtype) for _ in range(evaluations * self.shape.steps)]

    def read(self, tokens: Tensor, cos: Tensor, sin: Tensor, kept: tuple[Any, ...]) -> Tensor:
        """Logits after the tokens [batch, 1] at one position, of which cos and sin are; `kept` are the arguments of `Kept`."""
        x, past, kept = self.embed(tokens), [], Kept(*kept)
        for step in self.steps:
            x = step(x, past, cos, sin, kept) if isinstance(step, PcformerStep) else step(x, cos, sin, kept)
        return self.head(x)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.logits(tokens).flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def load(self, parameters: dict[str, Tensor]) -> None:
        """Takes odec's parameters by their paths, joining q/k/v and gate/up. Every one must be used."""
        left = dict(parameters)

        def put(target: Tensor, *paths: str) -> None:
            target.copy_(torch.cat([left.pop(path) for path in paths]))

        def put_ffn(ffn: Ffn, at: str) -> None:
            put(ffn.norm.gain, f"{at}.norm.gain")
            put(ffn.gate_up.weight, f"{at}.gate.weight", f"{at}.up.weight")
            put(ffn.down.weight, f"{at}.down.weight")

        put(self.embed.weight, "embed.token.weight")
        put(self.norm.gain, "output.norm.gain")
        for k, step in enumerate(self.steps):
            at = f"step.{k}"
            put(step.att.norm.gain, f"{at}.att.norm.gain")
            put(step.att.qkv.weight, *(f"{at}.att.{m}.weight" for m in "qkv"))
            put(step.att.out.weight, f"{at}.att.o.weight")
            if isinstance(step, MacaronStep):
                put_ffn(step.first, f"{at}.ffn.1")
                put_ffn(step.second, f"{at}.ffn.2")
            else:
                put_ffn(step.ffn, f"{at}.ffn")
        if left:
            raise KeyError("parameters that the rival lacks: " + ", ".join(sorted(left)))
