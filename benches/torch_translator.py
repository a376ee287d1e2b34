"""The library's encoder–decoder Transformer as a PyTorch user would write it for speed.

Takes `Pairs`; gives a module whose `forward(source, tokens, targets)` is the mean cross-entropy. The mathematics is that of `schemes/models/translator.ode`
on sequences of full length: nothing is padding, so no mask but the causal one is asked for. One table of embeddings, times √width, serves both sequences and
the logits. Projections are joined where they read the same.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_models import Shape


@dataclass(frozen=True)
class Pairs(Shape):
    """Sizes of an encoder–decoder and its batch: both sequences have `context` tokens, encoder and decoder `steps` layers each."""

    # Bytes, which the tokens that begin, end and fill up a text are not.
    bytes: int = 256
    reads: ClassVar[bool] = False

    def overrides(self) -> dict[str, int]:
        """What `odec build --set` is told."""
        sizes = {f"model.{of}{name}": getattr(self, name) for of in ("", "source.") for name in ("vocab", "context")}
        layers = {f"model.{evolve}.steps": self.steps for evolve in ("encoder", "decoder")}
        fields = {f"{field}.heads": self.heads for field in ("att", "self", "cross")}
        return sizes | layers | fields | {"ffn.hidden": self.hidden, "model.source.width": self.width, "train.batch": self.batch}

    def draw(self, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """A batch: three times [batch, context] tokens."""
        names = ("source", "tokens", "targets")
        return {name: torch.randint(self.bytes, (self.batch, self.context), generator=generator) for name in names}

    def model(self, _system: str) -> "Translator":
        return Translator(self)

    def words(self) -> str:
        return f"translator: batch {self.batch}, twice {self.context} tokens, width {self.width}, twice {self.steps} layers, {self.heads} heads, ReLU {self.hidden}, vocabulary {self.vocab}"


def sinusoids(context: int, width: int) -> Tensor:
    """sin(p / 10⁴^(2i/width)) at column 2i, the cosine at 2i + 1: [context, width]."""
    rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(context, dtype=torch.float64), rates)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1).float()


class Attention(nn.Module):
    """Attention of queries to keys and values, without biases; to the same rows, or to those of another sequence."""

    def __init__(self, shape: Pairs, causal: bool, crosses: bool):
        super().__init__()
        self.heads, self.causal = shape.heads, causal
        self.norm = nn.LayerNorm(shape.width)
        self.other = nn.LayerNorm(shape.width) if crosses else None
        parts = [1, 2] if crosses else [3]
        self.projections = nn.ModuleList(nn.Linear(shape.width, n * shape.width, bias=False) for n in parts)
        self.out = nn.Linear(shape.width, shape.width, bias=False)

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """[batch, tokens, n · width] as n times [batch, heads, tokens, head]."""
        batch, tokens, columns = x.shape
        width = self.out.in_features
        x = x.view(batch, tokens, columns // width, self.heads, width // self.heads)
        return x.permute(2, 0, 3, 1, 4).unbind(0)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        own = self.split(self.projections[0](self.norm(x)))
        q, k, v = own if memory is None else (*own, *self.split(self.projections[1](self.other(memory))))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(o.transpose(1, 2).reshape(x.shape))


class Mlp(nn.Module):
    """ReLU between two linear maps of a norm."""

    def __init__(self, shape: Pairs):
        super().__init__()
        self.norm = nn.LayerNorm(shape.width)
        self.up, self.down = nn.Linear(shape.width, shape.hidden), nn.Linear(shape.hidden, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(self.norm(x))))


class Layer(nn.Module):
    """Attention, attention to the other sequence where there is one, an MLP."""

    def __init__(self, shape: Pairs, decodes: bool):
        super().__init__()
        self.att = Attention(shape, causal=decodes, crosses=False)
        self.cross = Attention(shape, causal=False, crosses=True) if decodes else None
        self.ffn = Mlp(shape)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        x = x + self.att(x)
        if self.cross is not None:
            x = x + self.cross(x, memory)
        return x + self.ffn(x)


class Translator(nn.Module):
    """Two sequences to the logits of the second."""

    def __init__(self, shape: Pairs):
        super().__init__()
        self.scale = math.sqrt(shape.width)
        self.embed = nn.Embedding(shape.vocab, shape.width)
        self.encoder = nn.ModuleList(Layer(shape, decodes=False) for _ in range(shape.steps))
        self.decoder = nn.ModuleList(Layer(shape, decodes=True) for _ in range(shape.steps))
        self.norm = nn.LayerNorm(shape.width)
        self.register_buffer("positions", sinusoids(shape.context, shape.width), persistent=False)
        nn.init.normal_(self.embed.weight, std=0.06)

    def forward(self, source: Tensor, tokens: Tensor, targets: Tensor) -> Tensor:
        memory, x = (self.embed(text) * self.scale + self.positions for text in (source, tokens))
        for layer in self.encoder:
            memory = layer(memory)
        for layer in self.decoder:
            x = layer(x, memory)
        logits = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def load(self, parameters: dict[str, Tensor]) -> None:
        """Takes odec's parameters by their paths. Every one must be used."""
        left = dict(parameters)

        def norm(module: nn.LayerNorm, path: str) -> None:
            module.weight.copy_(left.pop(f"{path}.gain"))
            module.bias.copy_(left.pop(f"{path}.bias"))

        def linear(module: nn.Linear, *paths: str) -> None:
            module.weight.copy_(torch.cat([left.pop(f"{path}.weight") for path in paths]))
            if module.bias is not None:
                module.bias.copy_(torch.cat([left.pop(f"{path}.bias") for path in paths]))

        self.embed.weight.copy_(left.pop("source.embed.token.weight"))
        for name, layers in (("encoder", self.encoder), ("decoder", self.decoder)):
            for k, layer in enumerate(layers):
                at = f"{name}.step.{k}"
                own = f"{at}.att" if name == "encoder" else f"{at}.self"
                norm(layer.att.norm, f"{own}.norm")
                linear(layer.att.projections[0], *(f"{own}.{m}" for m in "qkv"))
                linear(layer.att.out, f"{own}.o")
                if layer.cross is not None:
                    norm(layer.cross.norm, f"{at}.cross.norm.1")
                    norm(layer.cross.other, f"{at}.cross.norm.2")
                    linear(layer.cross.projections[0], f"{at}.cross.q")
                    linear(layer.cross.projections[1], f"{at}.cross.k", f"{at}.cross.v")
                    linear(layer.cross.out, f"{at}.cross.o")
                norm(layer.ffn.norm, f"{at}.ffn.norm")
                linear(layer.ffn.up, f"{at}.ffn.up")
                linear(layer.ffn.down, f"{at}.ffn.down")
        norm(self.norm, "output.norm")
        if left:
            raise KeyError("parameters that the rival lacks: " + ", ".join(sorted(left)))
