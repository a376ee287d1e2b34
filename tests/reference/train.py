"""Trains every system beside the float64 reference: same initial weights, same batches, loss by loss.

    train.py ODEC [--only SYSTEM] [--steps N]

For every system of `systems.py` it has odec train a small model (compiled, f32) on a text of this repository, and does the
same in float64: gradients by autograd, batches drawn as odec documents them (Philox4x32-10, stream "batch"), AdamW with clipping.
The initial weights come from a run with learning rate 0. Prints file, first and last losses, and the largest relative
distance of the two curves. Ends with 1 if a curve leaves the reference's by more than LIMIT.
"""

import argparse
import dataclasses
import hashlib
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from check import ROOT, SHAPES, Failure, odec, overrides, source_of
from parts import Parameters
from reference import loss_and_gradient
from safetensors.numpy import load_file
from systems import SYSTEMS

# Rounding errors of f32 grow with training: AdamW's first steps divide by gradients that are nearly zero.
LIMIT = 1e-3
# Those that read one text.
NAMES = [name for name, system in SYSTEMS.items() if system.reads == "tokens" and not (system.translator or system.classes)]
TEXT = ROOT / "LICENSE-APACHE"
LR, BETAS, EPS, DECAY, CLIP, SEED = 2e-3, (0.9, 0.95), 1e-8, 0.1, 1.0, 0
MASK = 0xFFFFFFFF
RATE = 0.15


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Ten rounds of Philox4x32 (Salmon et al. 2011)."""
    c, k = list(counter), list(key)
    for n in range(10):
        if n:
            k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
        p, q = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(q >> 32) ^ c[1] ^ k[0], q & MASK, (p >> 32) ^ c[3] ^ k[1], p & MASK]
    return c


def block(name: str, n: int) -> list[int]:
    """The n-th block of a stream."""
    digest = hashlib.sha256(name.encode()).digest()
    words = [int.from_bytes(digest[i : i + 4], "little") for i in (0, 4)]
    return philox([n & MASK, n >> 32, *words], [SEED & MASK, SEED >> 32])


def below(name: str, n: int, bound: int) -> int:
    """The n-th draw of a stream, in 0..bound."""
    b = block(name, n)
    return ((b[0] | b[1] << 32) * bound) >> 64


def uniform(name: str, n: int) -> float:
    """The n-th draw of a stream, in [0, 1)."""
    return (below(name, n, 1 << 64) >> 11) / (1 << 53)


def hidden(tokens: np.ndarray, step: int, mask: int, kept: int | None = None) -> np.ndarray:
    """The tokens with some of them hidden behind `mask`, as `loss masked(rate: RATE)` draws them; none that is `kept`."""
    out = tokens.copy()
    for r, row in enumerate(out):
        first = ((step << 16) + r) << 24
        others = [p for p in range(len(row)) if row[p] != kept]
        places = [p for p in others if uniform("mask", first + p) < RATE]
        row[places or [others[below("mask", first + len(row), len(others))]]] = mask
    return out


def batch(text: np.ndarray, step: int, rows: int, context: int) -> np.ndarray:
    starts = [below("batch", (step << 16) + r, len(text) - context) for r in range(rows)]
    return np.stack([text[s : s + context + 1] for s in starts])


def permuted(name: str, epoch: int, place: int, n: int) -> int:
    """Which of n stands at a place of an epoch's order: six rounds of a Feistel network, walked until it gives one of them (Black & Rogaway 2002)."""
    half = max(((n - 1).bit_length() + 1) // 2, 1)
    mask, x = (1 << half) - 1, place
    while True:
        for turn in range(6):
            left, right = x >> half, x & mask
            x = right << half | (left ^ (block(name, (epoch * 6 + turn) << half | right)[0] & mask))
        if x < n:
            return x


def segments(text: np.ndarray, step: int, rows: int, context: int, separator: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two segments, and whether the second follows another sentence than the first: 0 or 1."""
    ends = np.flatnonzero(text == separator) + 1
    firsts = np.concatenate([[0], ends[:-1]])
    whole = [(a, b) for a, b in zip(firsts, ends, strict=True) if b - a > 1 and b + context <= len(text)]
    tokens, classes = [], []
    for r in range(rows):
        epoch, place = divmod(step * rows + r, len(whole))
        n = permuted("sentences", epoch, place, len(whole))
        draw = below("next sentence", (step << 16) + r, 2 * (len(whole) - 1)) - (len(whole) - 1)
        other = n if draw < 0 else draw + (draw >= n)
        (first, end), (_, behind) = whole[n], whole[other]
        own = text[max(first, end - context // 2) : end]
        tokens.append(np.concatenate([own, text[behind : behind + context - len(own)]]))
        classes.append(int(draw >= 0))
    return np.stack(tokens), np.array(classes, np.int32)


def adamw(p: Parameters, g: Parameters, moments: dict, t: int) -> Parameters:
    """Loshchilov & Hutter 2019, algorithm 2; only matrices decay."""
    norm = np.sqrt(sum(np.sum(x**2) for x in g.values()))
    scale = np.minimum(1.0, CLIP / norm)
    out = {}
    for path, value in p.items():
        m, v = moments.get(path, (0.0, 0.0))
        x = g[path] * scale
        m, v = BETAS[0] * m + (1 - BETAS[0]) * x, BETAS[1] * v + (1 - BETAS[1]) * x**2
        moments[path] = m, v
        update = (m / (1 - BETAS[0] ** t)) / (np.sqrt(v / (1 - BETAS[1] ** t)) + EPS)
        decay = DECAY if value.ndim >= 2 else 0.0
        out[path] = value * (1 - LR * decay) - LR * update
    return out


def losses(run: Path) -> list[float]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["loss"] for line in lines if "loss" in line]


def curves(
    binary: str, name: str, steps: int, folder: Path, precisions: tuple[str, ...] = ("f32",)
) -> tuple[list[list[float]], list[float]]:
    """The losses of odec in each precision and of the reference, before each of `steps` steps."""
    system = SYSTEMS[name]
    shape = SHAPES["even"]
    if system.masked:
        # One kind of token more than there are bytes.
        shape = dataclasses.replace(shape, vocab=257)
    shape = shape if system.steps is None else type(shape)(**(vars(shape) | {"steps": system.steps}))
    source = Path(source_of(system, folder))
    text = source.read_text(encoding="utf-8")
    head, _, _ = text.partition("\ntrain {")
    summed = " + ".join(f"{c}*{term}" for term, c in system.loss.items()) or "cross_entropy"
    trained = f"""{head}
train {{
  data      {"sentences" if system.follows else "text"}("{TEXT}", tokenizer: bytes)
  loss      {(f"masked(rate: {RATE:.0%})" if system.masked else summed) + (" + cross_entropy(of: follows)" if system.follows else "")}
  optimizer adamw(lr: {LR}, betas: {BETAS}, eps: {EPS}, weight_decay: {DECAY})
  batch 2;  steps 1;  clip {CLIP};  seed {SEED}
}}
"""
    copy = folder / "trained.ode"
    copy.write_text(trained, encoding="utf-8")
    sets = overrides(system, shape)
    fixed = folder / "fixed"
    odec(binary, "train", str(copy), *sets, "--set", "train.lr=0", "--out", str(fixed))
    for precision in precisions:
        chosen = ["--set", f"train.steps={steps}", "--set", f"train.precision={precision}"]
        odec(binary, "train", str(copy), *sets, *chosen, "--out", str(folder / precision))
    start = {k: v for k, v in load_file(fixed / "checkpoint.safetensors").items() if not k.startswith("moment")}
    p = {path: np.asarray(value, np.float64) for path, value in start.items()}
    corpus = np.frombuffer(TEXT.read_bytes(), np.uint8).astype(np.int32)
    corpus = corpus[: len(corpus) - len(corpus) * 10 // 100]
    moments: dict = {}
    theirs = []
    for t in range(steps):
        kept = system.segments[1] if system.segments else None
        if system.follows:
            tokens, classes = segments(corpus, t, shape.batch, shape.context, kept)
        else:
            window = batch(corpus, t, shape.batch, shape.context)
            tokens, targets = window[:, :-1], window[:, 1:]
        if system.masked:
            tokens, targets = hidden(tokens, t, shape.vocab - 1, kept), tokens
        if system.follows:
            targets = (targets, classes)
        key = below("noise", t << 16, 1 << 24)
        value, gradient = loss_and_gradient(system, shape, p, tokens, targets, key)
        theirs.append(value)
        p = adamw(p, gradient, moments, t + 1)
    return [losses(folder / precision) for precision in precisions], theirs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("odec", help="the odec binary")
    parser.add_argument("--only", choices=NAMES, help="one system only")
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    binary = str(Path(arguments.odec).resolve())
    began, failures = time.monotonic(), 0
    print(f"{'system':<22} {'file':<26} {'first':>8} {'odec':>8} {'float64':>8} {'distance':>9}")
    with tempfile.TemporaryDirectory(prefix="odec-train-") as scratch:
        for name in NAMES if arguments.only is None else (arguments.only,):
            folder = Path(scratch) / name
            folder.mkdir()
            try:
                (ours,), theirs = curves(binary, name, arguments.steps, folder)
                if len(ours) != len(theirs):
                    raise Failure(f"{len(ours)} losses, expected {len(theirs)}")
                distance = max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))
                good = distance <= LIMIT
                print(
                    f"{name:<22} {SYSTEMS[name].file:<26} {theirs[0]:8.4f} {ours[-1]:8.4f} {theirs[-1]:8.4f} "
                    f"{distance:9.1e}{'' if good else '!'}",
                    flush=True,
                )
                failures += not good
            except Failure as failure:
                failures += 1
                print(f"{name:<22} FAILED: {failure}", flush=True)
    print(f"{'all within the limit' if failures == 0 else f'{failures} failed'}, {time.monotonic() - began:.0f} s")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
