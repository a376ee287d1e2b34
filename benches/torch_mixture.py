"""The library's Mixtral as a PyTorch user would write it for speed.

Takes `Experts`; gives a module whose `forward(tokens, targets)` is the mean cross-entropy, and in training 1/50 of the balancing loss beside it. The mathematics is that of
`schemes/models/mixtral.ode`. Choices are sorted by expert, and each expert multiplies its own rows: on a processor that is
faster than `F.grouped_mm`, and than `torch.bmm` of as many rows for each expert.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_models import Attention, Decoder, Kept, Norm, Shape, Step, rotate

BALANCE = 2 / 100


@dataclass(frozen=True)
class Experts(Shape):
    """Sizes of a decoder whose MLPs are mixtures, and its batch: a token meets `top_k` of `experts` SwiGLUs, each `hidden` wide inside."""

    kv_heads: int
    experts: int
    top_k: int

    @property
    def kept_heads(self) -> int:
        return self.kv_heads

    def overrides(self) -> dict[str, int]:
        """What `odec build --set` is told."""
        return super().overrides() | {"att.kv_heads": self.kv_heads, "ffn.experts": self.experts, "ffn.top_k": self.top_k}

    def model(self, _system: str) -> "MixtureDecoder":
        return MixtureDecoder(self)

    def words(self) -> str:
        return (
            f"mixture: batch {self.batch}, context {self.context}, width {self.width}, {self.steps} layers, {self.heads} heads, {self.kv_heads} of keys, "
            f"{self.top_k} of {self.experts} SwiGLUs of {self.hidden}, vocabulary {self.vocab}"
        )


class SharedKeys(Attention):
    """The field `rmsnorm |> attention(heads, kv_heads, causal, rope)`: heads share keys and values."""

    def __init__(self, shape: Experts):
        super().__init__(shape)
        self.own, self.shared = shape.heads, shape.kv_heads
        self.qkv = nn.Linear(shape.width, (self.own + 2 * self.shared) * (shape.width // self.own), bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, kept: Kept | None = None) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, tokens, -1, width // self.own).transpose(1, 2)
        qk, v = qkv.split((self.own + self.shared, self.shared), dim=1)
        q, k = rotate(qk, cos, sin).split((self.own, self.shared), dim=1)
        o = kept.attend(q, k, v) if kept else F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(o.transpose(1, 2).reshape(batch, tokens, width))


class Mixture(nn.Module):
    """The field `rmsnorm |> moe(experts, top_k, hidden)`. `uneven` is the balancing loss of its last call, 1 for even use."""

    def __init__(self, shape: Experts):
        super().__init__()
        self.top_k, experts, hidden, width = shape.top_k, shape.experts, shape.hidden, shape.width
        self.norm = Norm(width)
        self.router = nn.Linear(width, experts, bias=False)
        self.gate_up = nn.Parameter(torch.empty(experts, 2 * hidden, width))
        self.down = nn.Parameter(torch.empty(experts, width, hidden))
        for weight in (self.gate_up, self.down):
            nn.init.normal_(weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.norm(x).flatten(0, 1)
        scores = self.router(rows)
        best, chosen = scores.topk(self.top_k, dim=-1)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=len(self.down))
        self.uneven = len(self.down) * (counts / chosen.numel() * scores.softmax(-1).mean(0)).sum()
        of = order // self.top_k
        results = []
        # oneDNN, which multiplies bf16, makes code for each number of rows: with multiples of 64 it has met most of them before.
        whole = 64 if torch.is_autocast_enabled("cpu") else 1
        each = zip(rows.index_select(0, of).split(counts.tolist()), self.gate_up.unbind(), self.down.unbind(), strict=True)
        for own, gate_up, down in each:
            padded = F.pad(own, (0, 0, 0, -len(own) % whole)) if whole > 1 else own
            gate, up = F.linear(padded, gate_up).chunk(2, dim=-1)
            results.append(F.linear(F.silu(gate) * up, down)[: len(own)])
        weighted = torch.cat(results) * best.softmax(-1).flatten()[order, None]
        return torch.zeros_like(weighted[: len(rows)]).index_add(0, of, weighted).view(x.shape)


class MixtureStep(Step):
    """A pre-norm layer with a mixture in place of the MLP."""

    def __init__(self, shape: Experts):
        super().__init__(shape, "prenorm")
        self.att, self.ffn = SharedKeys(shape), Mixture(shape)


class MixtureDecoder(Decoder):
    """A decoder of such layers. Its logits have a matrix of their own."""

    base = 1000000.0

    def __init__(self, shape: Experts):
        super().__init__(shape, "mixtral")
        self.classes = nn.Linear(shape.width, shape.vocab, bias=False)
        nn.init.normal_(self.classes.weight, std=0.02)

    def layer(self) -> nn.Module:
        return MixtureStep(self.shape)

    def head(self, x: Tensor) -> Tensor:
        return self.classes(self.norm(x))

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        loss = super().forward(tokens, targets)
        return loss + BALANCE * sum(step.ffn.uneven for step in self.steps) if self.training else loss

    @torch.no_grad()
    def load(self, parameters: dict[str, Tensor]) -> None:
        """Takes odec's parameters by their paths, joining q/k/v and gate/up. Every one must be used."""
        left = dict(parameters)

        def put(target: Tensor, *paths: str, along: int = 0) -> None:
            target.copy_(torch.cat([left.pop(path) for path in paths], dim=along))

        put(self.embed.weight, "embed.token.weight")
        put(self.norm.gain, "output.norm.gain")
        put(self.classes.weight, "output.logits.weight")
        for k, step in enumerate(self.steps):
            att, ffn = f"step.{k}.att", f"step.{k}.ffn"
            put(step.att.norm.gain, f"{att}.norm.gain")
            put(step.att.qkv.weight, *(f"{att}.{m}.weight" for m in "qkv"))
            put(step.att.out.weight, f"{att}.o.weight")
            put(step.ffn.norm.gain, f"{ffn}.norm.gain")
            put(step.ffn.router.weight, f"{ffn}.router.weight")
            put(step.ffn.gate_up, f"{ffn}.gate.weight", f"{ffn}.up.weight", along=1)
            put(step.ffn.down, f"{ffn}.down.weight")
        if left:
            raise KeyError("parameters that the rival lacks: " + ", ".join(sorted(left)))
