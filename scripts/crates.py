#!/usr/bin/env python3
"""Draws docs/crates.svg: the crates of the workspace, each above those it uses.

`crates.py` writes the picture, `crates.py --check` fails if it is not what would be written.
An arrow that follows from others is left out: a → c where a → b → c. Dependencies of tests do not count.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs/crates.svg"
WIDTH, HEIGHT, ROW, MARGIN, GAP, BEND = 132, 44, 84, 24, 16, 8


def crates():
    """The crates and those each uses, by name; and their folders."""
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--offline"]
    packages = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)["packages"]
    names = {p["name"] for p in packages}
    uses = {p["name"]: {d["name"] for d in p["dependencies"] if d["kind"] != "dev" and d["name"] in names} for p in packages}
    return uses, {p["name"]: Path(p["manifest_path"]).parent for p in packages}


def reaches(uses, name):
    """All that a crate uses, directly or not."""
    found, open_ = set(), list(uses[name])
    while open_:
        crate = open_.pop()
        if crate not in found:
            found.add(crate)
            open_.extend(uses[crate])
    return found


def reduced(uses):
    """The uses that do not follow from others."""
    return {name: sorted(b for b in below if not any(b in reaches(uses, c) for c in below if c != b)) for name, below in uses.items()}


def floors(arrows):
    """Rows of boxes and of bends, the lowest first. A bend `(crate, below)` is where an arrow passes a floor in between."""
    height = {}
    for name in sorted(arrows, key=lambda n: len(reaches(arrows, n))):
        height[name] = 1 + max((height[b] for b in arrows[name]), default=-1)
    rows = [[n for n in sorted(arrows) if height[n] == h] for h in range(1 + max(height.values()))]
    paths = []
    for name in sorted(arrows):
        for below in arrows[name]:
            path = [name, *((name, below, h) for h in range(height[name] - 1, height[below], -1)), below]
            paths.append(path)
            for bend in path[1:-1]:
                rows[bend[2]].append(bend)
    return rows, paths


def wide(node):
    return WIDTH if isinstance(node, str) else BEND


def placed(rows, paths):
    """The middle of every box and bend: near what it is joined to, in rows without overlaps."""
    joined = {}
    for path in paths:
        for a, b in zip(path, path[1:]):
            joined.setdefault(a, []).append(b)
            joined.setdefault(b, []).append(a)
    x = {node: (i - len(row) / 2) * (WIDTH + GAP) for row in rows for i, node in enumerate(row)}
    for _ in range(400):
        for row in [*rows, *reversed(rows)]:
            wish = {n: sum(x[m] for m in joined.get(n, [n])) / len(joined.get(n, [n])) for n in row}
            row.sort(key=lambda n: (wish[n], str(n)))
            # Neighbours that wish for the same place share it: a block of boxes stands around the mean of its wishes.
            blocks = []
            for n in row:
                blocks.append(([n], wish[n], wide(n) + GAP))
                while len(blocks) > 1 and blocks[-2][1] + blocks[-2][2] / 2 > blocks[-1][1] - blocks[-1][2] / 2:
                    (a, ma, wa), (b, mb, wb) = blocks[-2:]
                    middle = (len(a) * ma + len(b) * mb) / (len(a) + len(b))
                    blocks[-2:] = [(a + b, middle, wa + wb)]
            for nodes, middle, width in blocks:
                left = middle - width / 2
                for n in nodes:
                    x[n] = left + (wide(n) + GAP) / 2
                    left += wide(n) + GAP
    return x


def svg():
    uses, folders = crates()
    rows, paths = floors(reduced(uses))
    x = placed(rows, paths)
    least = min(x[n] - wide(n) / 2 for n in x)
    x = {n: round(x[n] - least + MARGIN) for n in x}
    width = max(x[n] + wide(n) // 2 for n in x) + MARGIN
    height = 2 * MARGIN + (len(rows) - 1) * ROW + HEIGHT
    top = {n: height - MARGIN - HEIGHT - floor * ROW for floor, row in enumerate(rows) for n in row}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" text-anchor="middle">',
        "<title>The crates of odec, each above those it uses</title>",
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#7a8699"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for path in paths:
        d = f"M{x[path[0]]} {top[path[0]] + HEIGHT}"
        for above, below in zip(path, path[1:]):
            start, end = top[above] + HEIGHT, top[below]
            middle = (start + end) / 2
            d += f"C{x[above]} {middle:g} {x[below]} {middle:g} {x[below]} {end}"
            if not isinstance(below, str):
                d += f"V{end + HEIGHT}"
        lines.append(f'<path d="{d}" fill="none" stroke="#7a8699" marker-end="url(#a)"/>')
    for name in sorted(folders):
        left, folder = x[name] - WIDTH // 2, folders[name].relative_to(ROOT).as_posix()
        lines.append(f'<rect x="{left}" y="{top[name]}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#eef3fb" stroke="#40639c"/>')
        lines.append(f'<text x="{x[name]}" y="{top[name] + 19}" font-size="14" fill="#16294a">{name}</text>')
        lines.append(f'<text x="{x[name]}" y="{top[name] + 35}" font-size="11" fill="#5a6577">{"src" if folder == "." else folder}/</text>')
    return "\n".join([*lines, "</svg>", ""])


def main():
    if "--check" not in sys.argv:
        PICTURE.write_text(svg())
    elif PICTURE.read_text() != svg():
        sys.exit("docs/crates.svg is not what the crates are: run scripts/crates.py")


main()
