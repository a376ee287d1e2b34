"""Draws where the time of a training step on a card goes: benches/results/h200.json -> h200.svg.

    card_picture.py [JSON] [SVG]

A bar for each run, of kernels by kind, in milliseconds of the card; the line is PyTorch's whole step. Needs Python alone.
"""

import json
import sys
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
# Kinds in order, with their colours; all else is the last one.
KINDS = {"contract": "#4269d0", "attend": "#efb118", "attend_backward": "#ff725c", "rows": "#6cc5b0", "columns": "#3ca951", "scatter_add": "#9c6b4e"}
NAMES = {"contract": "contractions", "attend": "attention", "attend_backward": "its gradient", "rows": "rows", "columns": "sums over rows", "scatter_add": "gradient of the embedding"}
LEFT, WIDE, HIGH, GAP = 190, 520, 24, 10


def bar(y: float, kernels: dict[str, float], scale: float, line: float) -> list[str]:
    """A bar of kinds side by side, and its sum; a line through it goes through no number."""
    out, x = [], float(LEFT)
    for kind, colour in KINDS.items():
        width = kernels.get(kind, 0.0) * scale
        if width > 0.2:
            out.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{HIGH}" fill="{colour}"/>')
        if width > 34:
            middle = x + width / 2
            if abs(middle - line) < 12:
                middle = line + (14 if middle >= line else -14)
            out.append(f'<text x="{middle:.1f}" y="{y + 16}" class="in">{kernels[kind]:.0f}</text>')
        x += width
    out.append(f'<text x="{x + 6:.1f}" y="{y + 16}">{sum(kernels.values()):.0f} ms</text>')
    return out


def main() -> None:
    source, target = (Path(a) if a else RESULTS / d for a, d in zip((sys.argv[1:] + ["", ""])[:2], ("h200.json", "h200.svg"), strict=True))
    results = json.loads(source.read_text(encoding="utf-8"))
    rivals = {s["label"]: s["torch"]["step_ms_median"] for s in results["speed"]}
    body, y = [], 44
    for label in ("prenorm-340M", "prenorm-55M"):
        first, now = results["first_run"]["kernels_ms"][label], results["kernels_ms"][label]
        scale = (WIDE - 60) / sum(first.values())
        body.append(f'<text x="12" y="{y + 16}" class="title">{label.replace("-", ", ")} parameters</text>')
        y += 26
        x = LEFT + rivals[label] * scale
        for name, kernels in (("first run on a card", first), ("fourth session", now)):
            body.append(f'<text x="{LEFT - 8}" y="{y + 16}" class="name">{name}</text>')
            body += bar(y, kernels, scale, x)
            y += HIGH + GAP
        top = y - 2 * (HIGH + GAP) - 4
        body.append(f'<path d="M{x:.1f} {top}V{y - 4}" stroke="#222" stroke-width="1.5" stroke-dasharray="4 3"/>')
        body.append(f'<text x="{x + 5:.1f}" y="{y + 8}">PyTorch, torch.compile: {rivals[label]:.0f} ms</text>')
        y += 30
    x = 12.0
    legend = []
    for kind, colour in KINDS.items():
        legend.append(f'<rect x="{x:.0f}" y="{y}" width="12" height="12" fill="{colour}"/><text x="{x + 17:.0f}" y="{y + 10}">{NAMES[kind]}</text>')
        x += 34 + 6.6 * len(NAMES[kind])
    card = results["card"]["name"]
    text = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDE + 40} {y + 26}" font-family="sans-serif" font-size="12" fill="#222">',
        "<style>.in{fill:#fff;text-anchor:middle}.name{text-anchor:end}.title{font-weight:bold}</style>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="12" y="24" font-size="14">Milliseconds of kernels in a training step, bf16, 8 × 2048 tokens, {card}</text>',
        *body,
        *legend,
        "</svg>",
    ]
    target.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
