"""The library's Vision Transformer as a PyTorch user would write it for speed.

Takes `Images`; gives a module whose `forward(patches, targets)` is the mean cross-entropy. The mathematics is that of `schemes/models/vit.ode`: pre-norm,
biases, learned positions, the class from the mean of the last states. Projections of q, k and v are joined; attention is `F.scaled_dot_product_attention`.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Images:
    """Sizes of an encoder of images and its batch; `image`, `patch` in pixels, `hidden` the width inside each MLP."""

    image: int
    patch: int
    channels: int
    classes: int
    batch: int
    width: int
    steps: int
    heads: int
    hidden: int
    reads: ClassVar[bool] = False

    @property
    def patches(self) -> int:
        return (self.image // self.patch) ** 2

    @property
    def pixels(self) -> int:
        """Numbers of a patch."""
        return self.patch**2 * self.channels

    def overrides(self) -> dict[str, int]:
        """What `odec build --set` is told."""
        model = {name: getattr(self, name) for name in ("image", "patch", "channels", "width", "steps")}
        values = {f"model.{name}": value for name, value in model.items()}
        return values | {"att.heads": self.heads, "ffn.hidden": self.hidden, "train.batch": self.batch}

    def draw(self, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """A batch: patches [batch, patches, pixels] and a class of each image."""
        patches = torch.randn((self.batch, self.patches, self.pixels), generator=generator)
        return {"patches": patches, "targets": torch.randint(self.classes, (self.batch,), generator=generator)}

    def model(self, _system: str) -> "VisionTransformer":
        return VisionTransformer(self)

    def words(self) -> str:
        return f"ViT: batch {self.batch}, {self.patches} patches of {self.pixels} numbers, width {self.width}, {self.steps} layers, {self.heads} heads, GELU {self.hidden}"


class Layer(nn.Module):
    """x + attention of its norm, then that + an MLP of its norm."""

    def __init__(self, shape: Images):
        super().__init__()
        self.heads = shape.heads
        self.att_norm, self.ffn_norm = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.qkv, self.out = nn.Linear(shape.width, 3 * shape.width), nn.Linear(shape.width, shape.width)
        self.up, self.down = nn.Linear(shape.width, shape.hidden), nn.Linear(shape.hidden, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(self.att_norm(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        o = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(o.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.ffn_norm(x))))


class VisionTransformer(nn.Module):
    """Patches to classes."""

    def __init__(self, shape: Images):
        super().__init__()
        self.embed = nn.Linear(shape.pixels, shape.width)
        self.positions = nn.Parameter(torch.zeros(shape.patches, shape.width))
        self.steps = nn.ModuleList(Layer(shape) for _ in range(shape.steps))
        self.norm, self.classes = nn.LayerNorm(shape.width), nn.Linear(shape.width, shape.classes)

    def forward(self, patches: Tensor, targets: Tensor) -> Tensor:
        x = self.embed(patches) + self.positions
        for step in self.steps:
            x = step(x)
        return F.cross_entropy(self.classes(self.norm(x).mean(1)), targets)

    @torch.no_grad()
    def load(self, parameters: dict[str, Tensor]) -> None:
        """Takes odec's parameters by their paths, joining q, k and v. Every one must be used."""
        left = dict(parameters)

        def put(module: nn.Module, *paths: str, weight: str = "weight") -> None:
            module.weight.copy_(torch.cat([left.pop(f"{path}.{weight}") for path in paths]))
            module.bias.copy_(torch.cat([left.pop(f"{path}.bias") for path in paths]))

        put(self.embed, "embed.linear")
        self.positions.copy_(left.pop("embed.position.weight"))
        for k, step in enumerate(self.steps):
            at = f"step.{k}"
            put(step.att_norm, f"{at}.att.norm", weight="gain")
            put(step.qkv, *(f"{at}.att.{m}" for m in "qkv"))
            put(step.out, f"{at}.att.o")
            put(step.ffn_norm, f"{at}.ffn.norm", weight="gain")
            put(step.up, f"{at}.ffn.up")
            put(step.down, f"{at}.ffn.down")
        put(self.norm, "output.norm", weight="gain")
        put(self.classes, "output.classes")
        if left:
            raise KeyError("parameters that the rival lacks: " + ", ".join(sorted(left)))
