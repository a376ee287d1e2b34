"""Compares odec with the float64 reference: loss and every gradient, interpreted in f64, compiled in f32 and in bf16.

    check.py ODEC [--only SYSTEM] [--jobs N] [--keep DIR]

For every system of `systems.py` and size it takes the `.ode` file with `--set` overrides, asks odec for its parameters, draws
them at random, runs `odec exec --entry grad` in all modes (bf16 at the first size), and prints one row. A gradient's error is the largest
deviation of any element, divided by the largest magnitude in the reference's tensor (in all tensors, where that one is
zero). In bf16 the second number is the error of the whole gradient in the Euclidean norm; single elements are held to a
wider limit. Ends with 1 if a name, a shape or a number is off.
"""

import argparse
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from parts import Parameters, Shape
from particles import LIMIT, PROFILES, distance
from reference import expected, loss_and_gradient
from safetensors.numpy import load_file, save_file
from systems import SYSTEMS, System

ROOT = Path(__file__).resolve().parents[2]
LIMITS = {"interpreted": 1e-9, "compiled": 1e-4}
# Factors are off by 2⁻⁹ at most, 0.2%, and a gradient passes some twenty of them per evaluation, each scheme amplifying in
# its own way (Yoshida's steps go back and forth). Measured over all systems: loss 1.3e-3, norm 0.10. Elements, beside the largest of their tensor: 0.33
# where a tensor of six numbers gathers what a whole matrix is off by (`theta_of_t`), 0.26 in a gradient of queries that is small beside all others
# (`dit`): with pairs in attention gradients of scores are rounded, so they no longer add up to zero, and what keys have in common no longer cancels.
BF16 = {"loss": 2e-3, "norm": 0.15, "element": 0.5}
# Even sizes, and sizes that divide by nothing: ragged tiles, odd head counts, a sequence of one odd length.
SHAPES = {
    "even": Shape(vocab=256, context=24, batch=2, width=32, steps=2, heads=2, hidden=48),
    "odd": Shape(vocab=259, context=17, batch=3, width=40, steps=2, heads=5, hidden=53),
    "wide": Shape(vocab=256, context=70, batch=1, width=96, steps=1, heads=3, hidden=200),
    "full": Shape(vocab=256, context=256, batch=2, width=256, steps=2, heads=4, hidden=704),
}
# Several blocks of every contraction: too much for the interpreter, which is checked on the others.
COMPILED_ONLY = ("full",)


class Failure(Exception):
    """odec did not do what was asked; the message says what."""


def overrides(system: System, shape: Shape) -> list[str]:
    """The shape as `--set` arguments."""
    values = {"model.width": shape.width, "train.batch": shape.batch}
    if system.vectors:
        values = {"train.batch": shape.batch}
    if system.staged:
        values = {"train.batch": shape.batch} | system.staged.sets
        return [part for path, value in values.items() for part in ("--set", f"{path}={value}")]
    if system.translator:
        values = {"model.vocab": shape.vocab, "model.context": shape.context}
        values |= {"model.source.width": shape.width, "train.batch": shape.batch}
        for name in system.translator.inputs:
            values |= {f"model.{name}.vocab": shape.vocab, f"model.{name}.context": beside(shape)}
        sides = [*(label for label, _ in system.translator.encoders), "decoder"]
        values |= {f"model.{side}.steps": shape.steps for side in sides}
    values |= {} if system.reads != "tokens" or system.translator else {"model.vocab": shape.vocab, "model.context": shape.context}
    # A list of flows has as many steps as it has entries, and some numbers of steps are found as the model runs.
    counted = not (system.translator or (system.flow or "").startswith("[") or system.depth)
    values |= {f"model.{system.label}steps": shape.steps} if counted else {}
    fields = {name.split(".")[0] for name in system.fields}
    values |= {path: shape.heads for path in system.heads if path.split(".")[0] in fields}
    values |= {path: shape.hidden for path in system.hidden}
    values |= system.sets
    return [part for path, value in values.items() for part in ("--set", f"{path}={value}")]


def source_of(system: System, folder: Path) -> str:
    """The system's `.ode` file; where it is a flow, a copy of the shipped one with this flow."""
    path = ROOT / "schemes" / "models" / system.file
    if system.flow is None and system.embed is None and system.output is None and not system.loss:
        return str(path)
    text, steps = path.read_text(encoding="utf-8"), system.depth or system.steps or 6
    for word, line in {
        "evolve": system.flow and f"{system.flow} for {steps} steps {{ {system.options} }}",
        "embed": system.embed,
        "output": system.output,
        "loss": " + ".join(f"{c}*{name}" for name, c in system.loss.items()) or None,
    }.items():
        if line is not None:
            # On one line, or to the brace that ends it.
            entry = rf"  {word} .*?(?:\{{\n(?:    .*\n)*  \}})?\n"
            text, found = re.subn(entry, lambda _, w=word, t=line: f"  {w} {t}\n", text)
            assert found == 1, f"{path} has one {word}"
    layer = "field layer = increment(lie(att, ffn))\n"
    copy = folder / "system.ode"
    copy.write_text(system.definitions + layer + text, encoding="utf-8")
    return str(copy)


def odec(binary: str, *arguments: str) -> str:
    """Runs odec and gives its standard output."""
    done = subprocess.run([binary, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"`odec {' '.join(arguments)}` ended with {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


def check_names(listed: list[dict], system: System, shape: Shape) -> None:
    """odec's parameter table must be the agreed one."""
    ours = {entry["path"]: tuple(entry["shape"]) for entry in listed}
    theirs = expected(system, shape)
    if len(ours) != len(listed):
        raise Failure("a parameter is listed twice")
    if ours != theirs:
        wrong = sorted(path for path in ours.keys() | theirs.keys() if ours.get(path) != theirs.get(path))
        lines = [f"  {path}: odec {ours.get(path)}, expected {theirs.get(path)}" for path in wrong[:12]]
        raise Failure(f"{len(wrong)} parameters differ\n" + "\n".join(lines))


def draw(system: str, name: str, shape: Shape) -> tuple[Parameters, np.ndarray]:
    """Parameters that are exact in f32 and large enough for every non-linearity to matter, and random tokens."""
    rng = np.random.default_rng(zlib.crc32(f"{system}/{name}".encode()))
    drawn, table = {}, expected(SYSTEMS[system], shape)
    for path, dims in table.items():
        if len(dims) < 2:
            value = 1.0 + 0.2 * rng.standard_normal(dims)
        else:
            # Large enough for scores and gates to leave their linear range, small enough that f32 itself errs by 3e-6 only.
            value = rng.standard_normal(dims) / np.sqrt(dims[1])
            owner, time_dependent, last = path.partition(".time.")
            if time_dependent and last in ("weight", "proj.weight"):
                # What time adds to a parameter is no larger than the parameter.
                value *= 0.2 if len(table[owner]) < 2 else 1 / np.sqrt(table[owner][1])
        drawn[path] = np.asarray(value, np.float32)
    return drawn, rng.integers(0, shape.vocab, (shape.batch, shape.context + 1), dtype=np.int32)


def images(system: System, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Random patches, and the class of each image."""
    rng, (_, patch) = np.random.default_rng(2), system.image
    patches = rng.standard_normal((shape.batch, shape.context, patch**2)).astype(np.float32)
    return patches, rng.integers(0, shape.vocab, shape.batch, dtype=np.int32)


def flows(system: System, shape: Shape) -> tuple[np.ndarray, ...]:
    """Random patches with two empty rows behind them, times, classes, and velocities."""
    rng, size = np.random.default_rng(4), (shape.batch, shape.context, shape.vocab)
    points, moves = (rng.standard_normal(size).astype(np.float32) for _ in range(2))
    points[:, -2:], moves[:, -2:] = 0, 0
    time = rng.random((shape.batch, 1, 1)).astype(np.float32)
    label = np.eye(10, dtype=np.float32)[rng.integers(0, 10, (shape.batch, 1))]
    return points, time, label, moves


def vectors(system: System, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Random vectors, and random numbers from 0 to 1 to compare with."""
    rng, (width, columns) = np.random.default_rng(3), system.vectors
    read = rng.standard_normal((shape.batch, shape.context, width)).astype(np.float32)
    rows = 1 if system.class_token else shape.context
    return read, rng.random((shape.batch, rows, columns)).astype(np.float32)


def beside(shape: Shape) -> int:
    """Columns of sources, which are longer than targets."""
    return shape.context + 7


def pairs(shape: Shape, sources: int) -> list[np.ndarray]:
    """So many sources, what stands before each target, and targets: rows of several lengths, one of them full. The last three kinds of tokens are `begin`,
    `end` and what fills up rows."""
    rng = np.random.default_rng(3)
    begin, end, padding = range(shape.vocab - 3, shape.vocab)
    widths = [*(sources * [beside(shape)]), shape.context, shape.context]
    *read, tokens, targets = (np.full((shape.batch, width), padding, np.int32) for width in widths)
    for row in range(shape.batch):
        first = [beside(shape) - 1, *((sources - 1) * [beside(shape) // 2]), shape.context // 3]
        lengths = first if row == 0 else rng.integers(1, widths[:-1])
        *texts, said = (rng.integers(0, begin, n, dtype=np.int32) for n in lengths)
        for to, text in [*zip(read, ([*text, end] for text in texts), strict=True), (tokens, [begin, *said]), (targets, [*said, end])]:
            to[row, : len(text)] = text
    return [*read, tokens, targets]


def labelled(classes: int, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Texts with their begin and end in rows of several lengths, one of them full, and the class of each."""
    rng = np.random.default_rng(8)
    begin, end, padding = range(shape.vocab - 3, shape.vocab)
    tokens = np.full((shape.batch, shape.context), padding, np.int32)
    for row in range(shape.batch):
        length = shape.context - 2 if row == 0 else rng.integers(1, shape.context - 2)
        tokens[row, : length + 2] = [begin, *rng.integers(0, begin, length), end]
    return tokens, rng.integers(0, classes, shape.batch, dtype=np.int32)


def group_of(path: str) -> str:
    """The entries of a learned list are one tensor: `step.3.scheme.w` for `step.3.scheme.w.2`."""
    name, _, last = path.rpartition(".")
    return name if last.isdigit() else path


def compare(outputs: dict[str, np.ndarray], loss: float, gradient: Parameters) -> tuple[float, float, str]:
    """Relative error of the loss, worst relative error of a gradient, and that gradient's path."""
    missing = {"loss"} | {f"grad.{path}" for path in gradient}
    if missing - outputs.keys():
        raise Failure("outputs lack " + ", ".join(sorted(missing - outputs.keys())[:5]))
    got = np.asarray(outputs["loss"], np.float64).reshape(())
    loss_error = float(abs(got - loss) / abs(loss))
    largest = max(float(np.max(np.abs(g))) for g in gradient.values())
    worst, where = -1.0, ""
    scale: dict[str, float] = {}
    for path, reference in gradient.items():
        group = group_of(path)
        scale[group] = max(scale.get(group, 0.0), float(np.max(np.abs(reference))))
    for path, reference in gradient.items():
        ours, reference = np.asarray(outputs[f"grad.{path}"], np.float64), np.asarray(reference)
        if ours.shape != reference.shape:
            raise Failure(f"grad.{path} has shape {ours.shape}, expected {reference.shape}")
        size = scale[group_of(path)]
        # A derivative that is zero but for rounding (softmax does not see the bias of k) has no size of its own.
        size = size if size > 1e-12 * largest else largest
        error = float(np.max(np.abs(ours - reference)) / size)
        # `not <=` so that a NaN is the worst error there is.
        if not error <= worst:
            worst, where = error, path
            if np.isnan(error):
                break
    return loss_error, worst, where


def compare_bf16(outputs: dict[str, np.ndarray], loss: float, gradient: Parameters) -> tuple[float, float, str, bool]:
    """Relative error of the loss, of the gradient in the Euclidean norm, the worst gradient's path; whether within limits."""
    # Sums of products over all tokens and columns cancel, so a tensor of one number has no size to be measured by.
    several = {path: g for path, g in gradient.items() if np.size(g) > 1}
    loss_error, worst, where = compare(outputs, loss, several)
    square = lambda x: float(np.sum(np.square(np.asarray(x, np.float64))))
    off = sum(square(np.asarray(outputs[f"grad.{path}"], np.float64) - np.asarray(g)) for path, g in gradient.items())
    norm = float(np.sqrt(off / sum(square(g) for g in gradient.values())))
    # `<=` so that a NaN is outside.
    within = loss_error <= BF16["loss"] and norm <= BF16["norm"] and worst <= BF16["element"]
    return loss_error, norm, where, within


@dataclasses.dataclass
class Row:
    """What was found for one system at one size: each mode's error of the gradient (worst element, in bf16 the norm), and whether all is within the limits."""

    errors: dict[str, float]
    good: bool = True
    line: str = ""


def check(binary: str, system: str, name: str, folder: Path) -> Row:
    """Measures one row of the table."""
    meant = SYSTEMS[system]
    shape = meant.shaped(SHAPES[name])
    source, sets = source_of(meant, folder), overrides(meant, shape)
    check_names(json.loads(odec(binary, "build", source, *sets, "--emit", "params")), meant, shape)
    parameters, text = draw(system, name, shape)
    tokens, targets = np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:])
    if meant.segments:
        separates = np.random.default_rng(4).random(text.shape) < 0.1
        tokens = np.where(separates[:, :-1], np.int32(meant.segments[1]), tokens)
    if meant.masked:
        hidden = np.random.default_rng(1).random(tokens.shape) < 0.15
        targets, tokens = tokens, np.where(hidden, np.int32(shape.vocab - 1), tokens)
    if meant.follows:
        targets = (targets, np.random.default_rng(7).integers(0, 2, shape.batch, dtype=np.int32))
    if meant.classes:
        tokens, targets = labelled(meant.classes, shape)
    if meant.image:
        tokens, targets = images(meant, shape)
    if meant.vectors:
        tokens, targets = vectors(meant, shape)
    if meant.several:
        rng = np.random.default_rng(6)
        places = rng.random((shape.batch, 1, 2)).astype(np.float32)
        kinds = rng.integers(0, 5, shape.batch, dtype=np.int32)
        targets = (targets, places, kinds)
    given = {meant.reads: tokens}
    if meant.velocity:
        points, time, label, targets = flows(meant, shape)
        given, tokens = {"patches": points, "time": time, "label": label}, (points, time, label)
    if meant.translator:
        *tokens, targets = pairs(shape, len(meant.translator.inputs))
        given = dict(zip((*meant.translator.inputs, "tokens"), tokens, strict=True))
    key = zlib.crc32(name.encode()) >> 8
    loss, gradient = loss_and_gradient(meant, shape, parameters, tokens, targets, key)

    inputs = folder / "in.safetensors"
    drawn = {"noise": np.array([key], np.int32)} if meant.drops or meant.starts else {}
    compared = {"targets": targets}
    if meant.several:
        compared = dict(zip(("targets", "place.targets", "kind.targets"), targets, strict=True))
    if meant.follows:
        compared = dict(zip(("targets", "follows.targets"), targets, strict=True))
    save_file({**given, **compared, **drawn, **parameters}, inputs)
    runs = {"interpreted": [source, *sets, "--interpret"], "compiled": [source, *sets]}
    if name == meant.sizes[0] and meant.half:
        runs["bf16"] = [source, *sets, "--set", "train.precision=bf16"]
    row, cells = Row({}), []
    for mode, what in runs.items():
        if mode == "interpreted" and name in COMPILED_ONLY:
            cells.append(f"{'–':>9} {'–':>9}  {'':<26}")
            continue
        outputs = folder / f"{mode}.safetensors"
        odec(binary, "exec", *what, "--entry", "grad", "--inputs", str(inputs), "--outputs", str(outputs))
        if mode == "bf16":
            loss_error, worst, where, within = compare_bf16(load_file(outputs), loss, gradient)
            row.good &= within
            row.errors[mode] = worst
            cells.append(f"{loss_error:9.1e} {worst:9.1e}{' ' if within else '!'} {where:<26}")
            continue
        loss_error, worst, where = compare(load_file(outputs), loss, gradient)
        limit = meant.limit if mode == "interpreted" else LIMITS[mode]
        within = loss_error <= limit and worst <= limit
        row.good &= within
        row.errors[mode] = worst
        cells.append(f"{loss_error:9.1e} {worst:9.1e}{' ' if within else '!'} {where:<26}")
    row.line = f"{system:<17} {name:<5} {loss:9.6f}  {' '.join(cells)}".rstrip()
    return row


def moved(binary: str, profile: str, folder: Path) -> Row:
    """One row of particles: no gradient, the paths themselves."""
    error, clusters = distance(odec, binary, profile, folder)
    good = error <= LIMIT
    line = f"{'particles':<17} {profile:<5} {'paths':>9}  {error:9.1e}{' ' if good else '!'} {clusters} clusters at the end"
    return Row({"interpreted": error}, good, line)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("odec", help="the odec binary")
    parser.add_argument("--only", choices=[*SYSTEMS, "particles"], help="check one system only")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="systems measured at once")
    parser.add_argument("--keep", type=Path, help="keep sources and tensors in this folder")
    arguments = parser.parse_args()
    binary = str(Path(arguments.odec).resolve())

    began = time.monotonic()
    print("errors relative to the float64 reference; limits: " + ", ".join(f"{m} {x:.0e}" for m, x in LIMITS.items()), end="; ")
    print("bf16: " + ", ".join(f"{m} {x:g}" for m, x in BF16.items()))
    both = f"{'loss':>9} {'gradient':>9}  {'worst gradient':<26}"
    print(f"{'':17} {'':5} {'':9}  {'interpreted, f64':<47} {'compiled, f32':<47} compiled, bf16")
    print(f"{'system':<17} {'sizes':<5} {'loss':>9}  {both} {both} {both}".rstrip())
    failures = 0
    with tempfile.TemporaryDirectory(prefix="odec-reference-") as scratch, ThreadPoolExecutor(arguments.jobs) as pool:

        def measured(case: tuple[str, str]) -> Row:
            system, name = case
            folder = (arguments.keep or Path(scratch)) / f"{system}-{name}"
            folder.mkdir(parents=True, exist_ok=True)
            try:
                return moved(binary, name, folder) if system == "particles" else check(binary, system, name, folder)
            except Failure as failure:
                return Row({}, good=False, line=f"{system:<17} {name:<5} FAILED: {failure}")

        sizes = {name: system.sizes for name, system in SYSTEMS.items()} | {"particles": tuple(PROFILES)}
        systems = sizes if arguments.only is None else (arguments.only,)
        cases = [(system, name) for system in systems for name in sizes[system]]
        # Rows come in the order of the list, however many are measured at once.
        for row in pool.map(measured, cases):
            failures += not row.good
            print(row.line, flush=True)
    verdict = "all within the limits" if failures == 0 else f"{failures} failed"
    print(f"{verdict}, {time.monotonic() - began:.0f} s")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
