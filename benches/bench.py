"""The training step of odec beside PyTorch's, for five decoders, a mixture of experts, an encoder of images and an encoder–decoder.

    bench.py ODEC [--systems a,b] [--precisions f32,bf16] [--rounds N] [--steps N] [--tokens N] [--batches 1,8] [--threads N] [--out DIR]

Same mathematics (checked first: both must give the same loss from the same parameters), same shapes, whole training
steps: forward, backward, clipping, AdamW. In bf16 PyTorch runs under `torch.autocast`, with parameters in f32 as odec has them.
Speed on shared machines drifts by tens of per cent within minutes, so every
round times odec, PyTorch eager and torch.compile one after the other, in rotating order, and only ratios within a round
are believed. The figure of a system is the median over rounds of

    (time of the faster PyTorch mode) / (time of odec)

where a time is the median of a round's steps, and the faster mode is the one with the smaller median over all rounds.

After the steps, decoders read tokens one by one, of one text and of several at once (`--batches`), with keys and values kept: PyTorch's in buffers of a fixed size, under a
mask where the reader is compiled, in bf16 with all of the model in bf16.

PyTorch's MKL takes its AVX2 code on processors that are not Intel's, at half the speed it could have. What users get is the
rival that counts, but on such machines a second pair is timed in f32 with `mkl_unlock.c` preloaded, and its ratio printed too.
Products of bf16 are oneDNN's, which asks for instructions, not for makers.
Writes the table as Markdown and everything measured as JSON.
"""

import argparse
import datetime
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch_mixture import Experts
from torch_models import Shape
from torch_translator import Pairs
from torch_vit import Images

ROOT = Path(__file__).resolve().parents[1]
SHAPE = Shape(vocab=256, context=256, batch=8, width=256, steps=6, heads=4, hidden=704)
# The file and the shape of each system. Macaron's two FFNs have half the hidden width each.
SYSTEMS: dict[str, tuple[str, Shape | Images]] = {
    "prenorm": ("prenorm.ode", SHAPE),
    "macaron": ("macaron.ode", replace(SHAPE, hidden=352)),
    "rk2": ("rk2.ode", SHAPE),
    "rk4": ("rk4_layer.ode", SHAPE),
    "iiet": ("iiet.ode", SHAPE),
    # Two experts of half the hidden width multiply as much as one MLP.
    "mixture": ("mixtral.ode", Experts(**asdict(replace(SHAPE, hidden=352)), kv_heads=2, experts=8, top_k=2)),
    "vit": ("vit.ode", Images(image=32, patch=4, channels=3, classes=10, batch=32, width=192, steps=6, heads=3, hidden=768)),
    "translator": ("translator.ode", Pairs(vocab=259, context=128, batch=8, width=256, steps=3, heads=4, hidden=1024)),
}
MODES = ("eager", "compile")
# Each with the greatest relative difference of the two losses on the same parameters and tokens: twice the largest error that
# docs/training.md gives for odec's loss in bf16, one for each side.
PRECISIONS = {"f32": 1e-5, "bf16": 4e-3}
# The suffix of a mode that runs with MKL unlocked.
UNLOCKED = "+"
GOAL = 0.7
# Above this share of the machine used by others, a warning.
BUSY = 0.05
# PyTorch returns every large buffer to the system and faults it in again at its next use unless the allocator is told
# to keep them: worth up to 8 % here, so its best is with these.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "17179869184"}


class Broken(Exception):
    """A contestant failed, or the two do not compute the same."""


class Torch:
    """A running `torch_worker.py`."""

    def __init__(self, system: str, precision: str, mode: str, shape: Shape | Images, threads: int, unlock: Path | None):
        self.name = f"PyTorch {mode} on {system} in {precision}"
        self.log = tempfile.TemporaryFile("w+")
        preload = {"LD_PRELOAD": str(unlock)} if mode.endswith(UNLOCKED) else {}
        mode = mode.removesuffix(UNLOCKED)
        command = [sys.executable, "torch_worker.py", system, precision, mode, json.dumps(asdict(shape)), str(threads)]
        self.process = subprocess.Popen(
            command,
            cwd=Path(__file__).parent,
            env=os.environ | ALLOCATOR | preload,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self.ready = self.answer()

    def answer(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise Broken(f"{self.name} died:\n" + self.log.read()[-2000:])
        return json.loads(line)

    def ask(self, request: str) -> dict[str, Any]:
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.log.close()


class Odec:
    """A built artifact; every round runs it in a fresh process."""

    def __init__(self, binary: str, system: str, precision: str, threads: int, folder: Path):
        file, shape = SYSTEMS[system]
        self.binary, self.environment = binary, os.environ | {"ODEC_THREADS": str(threads)}
        self.artifact, self.folder, self.shape = str(folder / f"{system}.{precision}.odex"), folder, shape
        self.source = [str(ROOT / "schemes" / "models" / file)]
        values = shape.overrides() | {"train.precision": precision}
        for path, value in values.items():
            self.source += ["--set", f"{path}={value}"]
        began = time.perf_counter()
        self.call("build", *self.source, "-o", self.artifact)
        self.build_s = time.perf_counter() - began

    def call(self, *arguments: str) -> str:
        done = subprocess.run(
            [self.binary, *arguments], cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise Broken(f"`odec {' '.join(arguments)}` ended with {done.returncode}:\n{done.stderr.strip()}")
        return done.stdout

    def timed(self, steps: int) -> dict[str, Any]:
        return json.loads(self.call("bench", self.artifact, "--steps", str(steps), "--warmup", "2", "--json"))

    def token(self, tokens: int, batch: int) -> float:
        """Milliseconds per token of each of some texts, read token by token: the median."""
        said = self.call("bench", self.artifact, "--tokens", str(tokens), "--batch", str(batch), "--json")
        return json.loads(said)["token_ms_median"]

    def probe(self) -> tuple[str, float]:
        """A file of random parameters and a batch, and odec's loss on it."""
        listed = json.loads(self.call("build", *self.source, "--emit", "params"))
        draw = torch.Generator().manual_seed(0)
        tensors = {}
        for entry in listed:
            value = torch.randn(entry["shape"], generator=draw)
            matrix = len(entry["shape"]) > 1
            tensors[entry["path"]] = value / entry["shape"][-1] ** 0.5 if matrix else 1 + 0.2 * value
        for name, x in self.shape.draw(draw).items():
            # A class of an image is a row of one number.
            x = x if x.ndim > 1 else x[:, None, None]
            tensors[name] = (x if x.is_floating_point() else x.int()).contiguous()
        inputs, outputs = str(self.folder / "probe.safetensors"), str(self.folder / "loss.safetensors")
        save_file(tensors, inputs)
        self.call("exec", self.artifact, "--entry", "loss", "--inputs", inputs, "--outputs", outputs)
        return inputs, load_file(outputs)["loss"].item()


def check_same(odec: Odec, rival: Torch, tolerance: float) -> float:
    """Relative difference of the two losses on the same parameters and batch."""
    inputs, ours = odec.probe()
    theirs = rival.ask(f"loss {inputs}")["loss"]
    difference = abs(ours - theirs) / abs(theirs)
    if not difference <= tolerance:
        raise Broken(f"{rival.name} computes something else: loss {theirs}, odec {ours}")
    return difference


def against(medians: dict[str, list[float]], modes: list[str]) -> dict[str, Any] | None:
    """The ratios of every round to the faster of these modes."""
    if not modes:
        return None
    faster = min(modes, key=lambda mode: statistics.median(medians[mode]))
    ratios = [theirs / ours for theirs, ours in zip(medians[faster], medians["odec"], strict=True)]
    return {"faster": faster, "ratios": ratios, "ratio": statistics.median(ratios)}


def race(contestants: dict[str, Callable[[], float]], rounds: int) -> dict[str, Any]:
    """Interleaved rounds: what each contestant's milliseconds were, and odec's ratios to the others."""
    names = list(contestants)
    medians = {name: [] for name in names}
    for r in range(rounds):
        for name in names[r % len(names) :] + names[: r % len(names)]:
            medians[name].append(contestants[name]())
    rivals = [name for name in names if name != "odec"]
    return {
        "round_ms": medians,
        "ms": {name: statistics.median(times) for name, times in medians.items()},
        "stock": against(medians, [mode for mode in rivals if not mode.endswith(UNLOCKED)]),
        "unlocked": against(medians, [mode for mode in rivals if mode.endswith(UNLOCKED)]),
    }


def of_steps(odec: Odec, rivals: dict[str, Torch], options: argparse.Namespace) -> dict[str, Any]:
    """Training steps of all contestants, and the memory that these took."""
    contestants = {"odec": lambda: statistics.median(odec.timed(options.steps)["step_ms"])}
    for mode, rival in rivals.items():
        contestants[mode] = lambda rival=rival: statistics.median(rival.ask(f"steps {options.steps}")["ms"])
    result = race(contestants, options.rounds)
    last = odec.timed(1)
    result |= {
        "odec_peak_bytes": last["peak_resident_bytes"],
        "odec_planned_bytes": last["planned_bytes"],
        "odec_device": last["device"],
    }
    for mode, rival in rivals.items():
        last = rival.ask("steps 1")
        result[f"{mode}_peak_bytes"] = last["peak_bytes"]
        result[f"{mode}_import_bytes"] = last["import_bytes"]
        result[f"{mode}_warm_up_s"] = rival.ready["warm_up_s"]
    return result


def of_tokens(odec: Odec, rivals: dict[str, Torch], options: argparse.Namespace, batch: int) -> dict[str, Any]:
    """Tokens of all contestants, read one by one, of so many texts at once."""
    contestants = {"odec": lambda: odec.token(options.tokens, batch)}
    for mode, rival in rivals.items():
        rival.ask(f"tokens 8 {batch}")
        contestants[mode] = lambda rival=rival: statistics.median(rival.ask(f"tokens {options.tokens} {batch}")["ms"])
    return race(contestants, options.rounds)


def unlocking(folder: Path) -> Path | None:
    """The library that unlocks MKL, built into the folder; none on Intel's processors, which need none."""
    if processor()[0] == "GenuineIntel":
        return None
    library = folder / "mkl_unlock.so"
    source = Path(__file__).with_name("mkl_unlock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    return library


def run(binary: str, system: str, precision: str, options: argparse.Namespace, folder: Path, unlock: Path | None) -> dict[str, Any]:
    """Everything about one system in one precision."""
    _, shape = SYSTEMS[system]
    odec = Odec(binary, system, precision, options.threads, folder)
    unlock = unlock if precision == "f32" else None
    rivals: dict[str, Torch] = {}
    try:
        for mode in (*MODES, *(mode + UNLOCKED for mode in MODES if unlock)):
            rivals[mode] = Torch(system, precision, mode, shape, options.threads, unlock)
        difference = check_same(odec, rivals["eager"], PRECISIONS[precision])
        result = of_steps(odec, rivals, options)
        # By the number of texts.
        batches = options.batches if shape.reads else []
        result["tokens"] = {str(batch): of_tokens(odec, rivals, options, batch) for batch in batches}
        result |= {"system": system, "precision": precision, "shape": asdict(shape), "loss_difference": difference, "odec_build_s": odec.build_s}
        result["torch"] = rivals["eager"].ready["torch"]
        return result
    finally:
        for rival in rivals.values():
            rival.close()


def mib(value: float) -> str:
    return f"{value / 2**20:,.0f}"


def verdict(against: dict[str, Any] | None) -> str:
    """A cell: the ratio, its range over rounds, and against which mode."""
    if against is None:
        return "–"
    ratios = against["ratios"]
    return f"{against['ratio']:.2f}× ({min(ratios):.2f}–{max(ratios):.2f}) {against['faster'].removesuffix(UNLOCKED)}"


def table(results: list[dict[str, Any]]) -> str:
    """The results as a Markdown table."""
    head = (
        "system",
        "precision",
        "odec ms",
        "eager ms",
        "compile ms",
        "faster PyTorch / odec (rounds)",
        "with MKL unlocked",
        "odec MiB (planned)",
        "eager MiB",
        "compile MiB",
    )
    rows = [head, tuple("---" for _ in head)]
    for r in results:
        rows.append((
            r["system"],
            r["precision"],
            *(f"{r['ms'][name]:.0f}" for name in ("odec", *MODES)),
            verdict(r["stock"]),
            verdict(r["unlocked"]),
            f"{mib(r['odec_peak_bytes'])} ({mib(r['odec_planned_bytes'])})",
            *(mib(r[f"{mode}_peak_bytes"]) for mode in MODES),
        ))
    return aligned(rows)


def aligned(rows: list[tuple[str, ...]]) -> str:
    """Rows of a Markdown table, of which the second is its line."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rows[1] = tuple("-" * width for width in widths)
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in rows)


def mean(results: list[dict[str, Any]], precision: str) -> str:
    """A line: the geometric mean of the ratios of decoders without experts in a precision, and the smallest of them; empty where nothing was measured."""

    def of(pair: str) -> str | None:
        ratios = [r[pair]["ratio"] for r in results if r["precision"] == precision and type(SYSTEMS[r["system"]][1]) is Shape and r[pair]]
        return f"{statistics.geometric_mean(ratios):.2f}× (smallest {min(ratios):.2f}×)" if ratios else None

    stock, unlocked = of("stock"), of("unlocked")
    if stock is None:
        return ""
    return f"Geometric mean of decoders in {precision}: {stock}" + (f", with MKL unlocked {unlocked}" if unlocked else "") + ".\n"


def token_table(results: list[dict[str, Any]]) -> str:
    """Milliseconds per token as a Markdown table; empty where nothing reads tokens one by one."""
    if not any(r["tokens"] for r in results):
        return ""
    head = ("one token", "texts", "precision", "odec ms", "eager ms", "compile ms", "faster PyTorch / odec (rounds)", "with MKL unlocked")
    rows = [head, tuple("---" for _ in head)]
    for r in results:
        for texts, tokens in r["tokens"].items():
            times = (f"{tokens['ms'][name]:.2f}" for name in ("odec", *MODES))
            rows.append((r["system"], texts, r["precision"], *times, verdict(tokens["stock"]), verdict(tokens["unlocked"])))
    return aligned(rows)


def processor() -> tuple[str, str]:
    """The processor's vendor and name as Linux gives them; the name of a virtual one does not tell generations apart, family and model do."""
    fields = {}
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        for line in info:
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    name = fields.get("model name", platform.machine())
    return fields.get("vendor_id", "unknown"), f"{name} (family {fields.get('cpu family', '?')}, model {fields.get('model', '?')})"


def occupied(seconds: float = 2.0) -> float:
    """The fraction of all processors that somebody else uses, sampled while we sleep."""

    def counters() -> tuple[int, int]:
        with open("/proc/stat", encoding="ascii") as stat:
            times = [int(field) for field in stat.readline().split()[1:]]
        return sum(times[:8]), times[3] + times[4]

    all_before, idle_before = counters()
    time.sleep(seconds)
    all_after, idle_after = counters()
    return 1.0 - (idle_after - idle_before) / max(1, all_after - all_before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("odec", help="the odec binary (release)")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="comma-separated (default: all)")
    parser.add_argument("--precisions", default=",".join(PRECISIONS), help="comma-separated (default: both)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=4, help="training steps per round and contestant")
    parser.add_argument("--tokens", type=int, default=200, help="tokens per round and contestant, read one by one")
    parser.add_argument("--batches", default="1,8", help="how many texts are read at once, comma-separated (default: 1,8)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "benches" / "results")
    options = parser.parse_args()
    chosen = options.systems.split(",")
    options.batches = [int(n) for n in options.batches.split(",")]
    precisions = options.precisions.split(",")
    unknown = [name for name in chosen if name not in SYSTEMS] + [name for name in precisions if name not in PRECISIONS]
    if unknown or min(options.rounds, options.steps, options.tokens, *options.batches) < 1:
        parser.error(f"no such system or precision: {', '.join(unknown)}" if unknown else "--rounds, --steps, --tokens and --batches start at 1")
    binary = str(Path(options.odec).resolve())
    others = occupied()
    if others > BUSY:
        # Two threads that wait for each other suffer far more from a third process than the ratio can bear.
        print(f"other processes use {others:.0%} of this machine: the ratios will not mean much", file=sys.stderr)

    results: list[dict[str, Any]] = []
    broken = False
    with tempfile.TemporaryDirectory(prefix="odec-bench-") as scratch:
        unlock = unlocking(Path(scratch))
        for system, precision in itertools.product(chosen, precisions):
            print(f"{system} in {precision}: building, compiling, {options.rounds} rounds …", file=sys.stderr, flush=True)
            try:
                results.append(run(binary, system, precision, options, Path(scratch), unlock))
            except Broken as error:
                broken = True
                print(f"{system} in {precision}: {error}", file=sys.stderr, flush=True)
                continue
            print(table(results[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    if not results:
        return 1
    measured = {type(SYSTEMS[r["system"]][1]): SYSTEMS[r["system"]][1] for r in reversed(results)}
    shapes = [shape.words() for shape in reversed(measured.values())]
    conditions = (
        f"{datetime.date.today().isoformat()}; {processor()[1]}, {', '.join(dict.fromkeys(r['odec_device'] for r in results))}; PyTorch {results[0]['torch']}; "
        f"{options.rounds} interleaved rounds of {options.steps} steps; {'; '.join(shapes)}; other processes used {others:.0%} of the machine at the start.\nMemory is the process's peak, of which `import torch` alone is "
        f"{mib(results[0]['eager_import_bytes'])} MiB."
    )
    means = "".join(mean(results, precision) for precision in precisions)
    parts = [table(results), means.rstrip(), token_table(results), conditions]
    text = "\n\n".join(filter(None, parts)) + "\n"
    print(text)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "training_step.md").write_text(text, encoding="utf-8")
    record = {"goal": GOAL, "occupied_by_others": others, "conditions": conditions, "results": results}
    (options.out / "training_step.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    slow = [f"{r['system']} in {r['precision']}" for r in results if r["stock"]["ratio"] < GOAL]
    if slow:
        print(f"below {GOAL}× of PyTorch: {', '.join(slow)}")
    return int(broken or bool(slow))


if __name__ == "__main__":
    sys.exit(main())
