"""What is measured on a card: which models, their sizes, and how their files are changed for it.

Takes the folder of schemes; gives sources and overrides for `odec build`. Leaves building to `gpu.py`, running to `gpu_run.py`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

TRAIN = "\ntrain {\n"
PRECISIONS = ("f32", "bf16")
# Conformance: small enough for the reference device, with heads of 16 columns, the narrowest that tensor cores take.
SMALL = {"model.width": 64, "model.context": 72, "train.batch": 2}
# Systems that are also trained with states computed again, and how many of them are kept.
REVOLVE, SLOTS = ("prenorm", "rk4_layer", "iiet"), 2
# The relative distance of two losses at the same step, the mean over all steps, in bf16, on tensor cores; in f32 it is zero.
LOSS_BOUND = 0.03


@dataclass(frozen=True)
class Size:
    """A decoder of about so many parameters: vocabulary 32768 and tied logits, heads of 64 columns."""

    name: str
    width: int
    steps: int
    hidden: int
    batches: tuple[int, ...]
    vocab: int = 32768
    context: int = 2048

    @property
    def heads(self) -> int:
        return max(1, self.width // 64)


SIZES = (
    Size("55M", width=512, steps=12, hidden=1408, batches=(8, 4, 2, 1)),
    Size("340M", width=1024, steps=24, hidden=2816, batches=(8, 4, 2, 1)),
)


@dataclass(frozen=True)
class Launches:
    """A model of one step in real sizes, of which every launch is compared: f32 by every bit, bf16 within the bounds of tensor cores."""

    system: str
    precision: str
    width: int
    heads: int
    hidden: int = 1408
    context: int = 1024

    @property
    def label(self) -> str:
        return f"{self.system}-{self.precision}-{self.width}-heads-of-{self.width // self.heads}"

    @property
    def values(self) -> dict[str, int]:
        return {
            "model.vocab": 512,
            "model.context": self.context,
            "model.width": self.width,
            "model.steps": 1,
            "att.heads": self.heads,
            "ffn.hidden": self.hidden,
            "train.batch": 1,
        }


# Heads of 64 and 128 columns; those that do not fill a 128-byte panel; epilogues of other systems.
LAUNCHES = (
    Launches("prenorm", "bf16", 512, 8),
    Launches("prenorm", "bf16", 1024, 8, hidden=2816),
    Launches("prenorm", "bf16", 1024, 16, hidden=2816),
    Launches("prenorm", "bf16", 640, 8),
    Launches("prenorm", "bf16", 768, 8),
    Launches("prenorm", "bf16", 896, 8),
    Launches("rk2", "bf16", 512, 8),
    Launches("iiet", "bf16", 512, 8),
    Launches("prenorm", "f32", 512, 8),
    Launches("prenorm", "f32", 512, 4),
)
# The same, for trying the scripts where there is no card.
TINY_LAUNCHES = (Launches("prenorm", "bf16", 64, 2, hidden=96, context=72),)
TINY = (Size("tiny", width=64, steps=2, hidden=96, batches=(2,), vocab=512, context=128),)
# What is timed: the file, and what PyTorch's rival calls the system.
TIMED = {"prenorm": "prenorm", "rk4_layer": "rk4", "pcformer_layer": "pcformer", "iiet": "iiet"}


def trained(schemes: Path) -> list[str]:
    """Names of all systems that are models with a train block, in order."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(schemes.glob("*.ode"))}
    return [name for name, text in texts.items() if "\nmodel " in text and TRAIN in text]


def reads_text(text: str) -> bool:
    """Whether a file's model is trained on one text, as the one that travels: its losses can be compared."""
    return re.search(r"^ *data +text\(", text, re.MULTILINE) is not None


def small(text: str) -> dict[str, int]:
    """Overrides that make a system small. Models of images and of pairs of texts keep their widths, which are small, and must fit each other."""
    if reads_text(text):
        return SMALL
    return {"train.batch": 2} if re.search(r"^ *batch +\d", text, re.MULTILINE) else {}


def changed(text: str, precision: str, slots: int | None) -> str:
    """A file with another precision, and a policy for the memory of its training."""
    lines = (f"  precision {precision}\n" if precision != "f32" else "") + (
        f"  memory revolve(slots: {slots})\n" if slots else ""
    )
    return text.replace(TRAIN, TRAIN + lines)


def sets(values: dict[str, int]) -> list[str]:
    """Overrides as arguments."""
    return [word for path, value in values.items() for word in ("--set", f"{path}={value}")]


def sized(size: Size, batch: int) -> dict[str, int]:
    """Overrides for a size."""
    return {
        "model.vocab": size.vocab,
        "model.context": size.context,
        "model.width": size.width,
        "model.steps": size.steps,
        "att.heads": size.heads,
        "ffn.hidden": size.hidden,
        "train.batch": batch,
    }
