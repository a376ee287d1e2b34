"""Conformance and speed on an NVIDIA card.

    gpu.py prepare DIR --odec BINARY [--only a,b] [--targets sm_80,sm_90a] [--steps N] [--memory GIB] [--jobs N] [--tiny]
    gpu.py run DIR OUT [--device cuda:0] [--budget SECONDS] [--jobs N] [--python PYTHON] [--only a,b]

`prepare` needs odec with code generation and no card. It builds every system of the library, small, in both precisions, for
every kind of card and for this processor, trains each here to have losses to compare with, and builds the models that are timed.
`run` (`gpu_run.py`) needs the folder, a card with its driver, and Python. See `scripts/gpu.sh`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gpu_run
from gpu_cases import (
    PRECISIONS,
    REVOLVE,
    SIZES,
    SLOTS,
    SMALL,
    TIMED,
    TINY,
    Size,
    changed,
    sets,
    sized,
    trained,
)

HERE = Path(__file__).resolve().parent
# What `run` needs of this folder.
SCRIPTS = ("gpu.py", "gpu_run.py", "gpu_cases.py", "torch_card.py", "torch_models.py")
RUN = """#!/usr/bin/env bash
# Measures everything on this machine's card:  run.sh OUT [--device cuda:0] [--budget SECONDS]
folder=$(cd "$(dirname "$0")" && pwd)
exec python3 "$folder/scripts/gpu.py" run "$folder" "$@"
"""


class Broken(Exception):
    """Something could not be built."""


class Builder:
    """Builds into a folder."""

    def __init__(self, options: argparse.Namespace, folder: Path):
        self.odec, self.folder, self.options = str(Path(options.odec).resolve()), folder, options
        self.schemes = HERE.parent / "schemes"

    def call(self, *arguments: str) -> str:
        done = subprocess.run([self.odec, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Broken(f"`odec {' '.join(arguments)}` ended with {done.returncode}:\n{done.stderr.strip()}")
        return done.stdout

    def source(self, name: str, label: str, precision: str, slots: int | None = None) -> Path:
        """The changed file. It lies beside copies of all schemes, which it may import."""
        path = self.folder / "schemes" / f"{label}.ode"
        text = (self.schemes / f"{name}.ode").read_text(encoding="utf-8")
        path.write_text(changed(text, precision, slots), encoding="utf-8")
        return path

    def build(self, source: Path, values: dict[str, int], targets: list[str]) -> dict[str, str]:
        """Artifacts by target, as paths within the folder."""
        built = {}
        for target in targets:
            place = f"artifacts/{source.stem}.{target}.odex"
            out = str(self.folder / place)
            self.call("build", str(source), *sets(values), "--target", target, "-o", out)
            built[target] = place
        return built

    def conformance(self, name: str, precision: str, slots: int | None = None) -> dict[str, Any]:
        """A system made small, and its losses on this processor."""
        label = f"{name}-{precision}" + ("-revolve" if slots else "")
        source = self.source(name, label, precision, slots)
        artifacts = self.build(source, SMALL, [*self.options.targets, "cpu"])
        case = {"label": label, "system": name, "precision": precision, "revolve": bool(slots), "artifacts": artifacts}
        if not slots:
            with tempfile.TemporaryDirectory(prefix="odec-gpu-") as scratch:
                run = gpu_run.train([self.odec], self.folder, artifacts["cpu"], "cpu", self.options.steps, Path(scratch), 600)
                case["losses"] = gpu_run.losses(run)
        return case

    def timed(self, name: str, size: Size) -> dict[str, Any]:
        """A model to be timed, with the largest batch whose plan fits."""
        label = f"{name}-{size.name}"
        source = self.source(name, label, "bf16")
        batches = list(size.batches)
        while True:
            values = sized(size, batches[0])
            model = json.loads(self.call("check", str(source), *sets(values), "--json"))[0]["model"]
            needed = model["state_bytes"] + model["activation_bytes"]
            if needed <= self.options.memory * 2**30 or len(batches) == 1:
                break
            batches.pop(0)
        targets = [*self.options.targets, *(["cpu"] if self.options.tiny else [])]
        shape = {
            "vocab": size.vocab,
            "context": size.context,
            "batch": batches[0],
            "width": size.width,
            "steps": size.steps,
            "heads": size.heads,
            "hidden": size.hidden,
        }
        return {
            "label": label,
            "system": name,
            "rival": TIMED[name],
            "size": size.name,
            "shape": shape,
            "parameters": model["parameters"],
            "flops_per_token": model["training_flops_per_token"],
            "needed_bytes": needed,
            "artifacts": self.build(source, values, targets),
        }


def bundle(binary: Path, folder: Path) -> None:
    """The binary, and the libraries it was linked to with their loader, for machines that have older ones."""
    shutil.copy2(binary, folder / "odec")
    subprocess.run(["strip", str(folder / "odec")], check=False, capture_output=True)
    listed = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=True).stdout
    (folder / "lib").mkdir(exist_ok=True)
    for word in listed.split():
        if word.startswith("/") and Path(word).is_file():
            shutil.copy2(word, folder / "lib" / Path(word).name)


def ops(builder: Builder, names: list[str]) -> list[str]:
    """The operations of the graphs of all systems, gradients included."""
    found: set[str] = set()
    for name in names:
        text = builder.call("build", str(builder.schemes / f"{name}.ode"), "--emit", "graph")
        found |= {line.split("=", 1)[1].split("(")[0].strip() for line in text.splitlines() if line.lstrip().startswith("%")}
    return sorted(found)


def prepare(options: argparse.Namespace) -> int:
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()) and not (folder / "plan.json").is_file():
        print(f"{folder} is not empty and was not made by this script", file=sys.stderr)
        return 1
    shutil.rmtree(folder / "schemes", ignore_errors=True)
    shutil.copytree(HERE.parent / "schemes", folder / "schemes")
    (folder / "artifacts").mkdir(exist_ok=True)
    (folder / "scripts").mkdir(exist_ok=True)
    for script in SCRIPTS:
        shutil.copy2(HERE / script, folder / "scripts" / script)
    shutil.copy2(HERE.parent / "LICENSE-APACHE", folder / "text.txt")
    (folder / "run.sh").write_text(RUN, encoding="utf-8")
    (folder / "run.sh").chmod(0o755)
    bundle(Path(options.odec).resolve(), folder)

    builder = Builder(options, folder)
    names = trained(builder.schemes)
    unknown = [name for name in options.only if name not in names]
    if unknown:
        print(f"no such system: {', '.join(unknown)}", file=sys.stderr)
        return 2
    names = options.only or names
    jobs = [(builder.conformance, (name, precision)) for name in names for precision in PRECISIONS]
    jobs += [(builder.conformance, (name, precision, SLOTS)) for name in names if name in REVOLVE for precision in PRECISIONS]
    timed = [(builder.timed, (name, size)) for size in (TINY if options.tiny else SIZES) for name in TIMED if name in names]
    began = time.monotonic()

    def done(job: tuple[Any, tuple[Any, ...]]) -> dict[str, Any]:
        case = job[0](*job[1])
        print(f"{time.monotonic() - began:6.0f} s  {case['label']}", flush=True)
        return case

    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            cases, speeds = list(pool.map(done, jobs)), list(pool.map(done, timed))
    except Broken as error:
        print(error, file=sys.stderr)
        return 1
    plan = {
        "prepared": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
        "odec": builder.call("--version").strip(),
        "targets": options.targets,
        "steps": options.steps,
        "ops": ops(builder, names),
        "conformance": cases,
        "speed": speeds,
    }
    (folder / "plan.json").write_text(json.dumps(plan, indent=1), encoding="utf-8")
    print(f"{folder}: {len(cases)} conformance cases, {len(speeds)} models to time, {len(plan['ops'])} ops")
    return 0


def names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    phases = parser.add_subparsers(dest="phase", required=True)
    first = phases.add_parser("prepare", help="build everything into a folder; needs no card")
    first.add_argument("folder", type=Path)
    first.add_argument("--odec", required=True, help="the odec binary (release)")
    first.add_argument("--only", type=names, default=[], help="comma-separated systems (default: all that are trained)")
    first.add_argument("--targets", type=names, default=["sm_80", "sm_90a"])
    first.add_argument("--steps", type=int, default=100, help="training steps whose losses are compared")
    first.add_argument("--memory", type=float, default=70, help="GiB that a timed model may need")
    first.add_argument("--jobs", type=int, default=os.cpu_count())
    first.add_argument("--tiny", action="store_true", help="time toy sizes: for trying the scripts")
    second = phases.add_parser("run", help="measure on the card of this machine")
    second.add_argument("folder", type=Path)
    second.add_argument("out", type=Path)
    second.add_argument("--device", default="cuda:0", help="cuda:N; cuda:dry computes nothing, cpu runs what was built for it")
    second.add_argument("--budget", type=float, default=570, help="seconds in all; what has not begun by then is left out")
    second.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1), help="conformance cases at once")
    second.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    second.add_argument("--only", type=names, default=[], help="comma-separated systems")
    options = parser.parse_args()
    return prepare(options) if options.phase == "prepare" else gpu_run.run(options)


if __name__ == "__main__":
    sys.exit(main())
