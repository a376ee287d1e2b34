"""Conformance and speed on an NVIDIA card.

    gpu.py prepare DIR --odec BINARY --runner BINARY [--only a,b] [--targets sm_90a] [--sizes 55M] [--launches DIR] [--cubins PTXAS] [--steps N] [--memory GIB] [--jobs N] [--tiny]
    gpu.py run FOLDER OUT [--device cuda:0] [--phase all] [--budget SECONDS] [--limit SECONDS] [--jobs N] [--python PYTHON] [--only a,b]

`prepare` needs odec with code generation and no card. It builds every system of the library, small, in both precisions, for
every kind of card, and models of real size whose launches are compared or that are timed; it trains the small ones on this processor, whose
losses travel, not its code. All of it, with an odec that has no code generation, is packed into one file.
`run` (`gpu_run.py`) needs what was packed, a card with its driver, and Python. See `scripts/gpu.sh`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gpu_run
from gpu_cases import (
    LAUNCHES,
    PRECISIONS,
    REVOLVE,
    SIZES,
    SLOTS,
    TIMED,
    TINY,
    TINY_LAUNCHES,
    Launches,
    Size,
    changed,
    reads_text,
    sets,
    sized,
    small,
    trained,
)

HERE = Path(__file__).resolve().parent
# What `run` needs of this folder.
SCRIPTS = ("evidence.py", "gpu.py", "gpu_run.py", "gpu_cases.py", "torch_card.py", "torch_kernels.py", "torch_models.py")
# The file that travels, and the most that it may weigh: what is lent takes 64 MiB, the working tree with it.
PACKED, MOST = "kit.tar.xz", 50 << 20
RUN = """#!/usr/bin/env bash
# Measures on this machine's card:  run.sh OUT [--phase smoke|launches|...|all] [--device cuda:0] [--budget SECONDS]
# Unpacks into the user's cache, once for each kit; needs the driver and python3.
set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/odec
place=$cache/kit-@ID@
if [ ! -f "$place/plan.json" ]; then
    mkdir -p "$cache"
    part=$(mktemp -d "$cache/part-XXXXXX")
    python3 -m tarfile -e "$folder/kit.tar.xz" "$part"
    # Another run of this script may have been as fast.
    mv -T "$part" "$place" 2>/dev/null || [ -f "$place/plan.json" ]
fi
exec python3 "$place/scripts/gpu.py" run "$place" "$@"
"""


class Broken(Exception):
    """Something could not be built."""


class Builder:
    """Builds into a folder."""

    def __init__(self, options: argparse.Namespace, folder: Path, schemes: Path):
        self.odec, self.folder, self.options = str(Path(options.odec).resolve()), folder, options
        self.schemes = schemes

    def call(self, *arguments: str) -> str:
        done = subprocess.run([self.odec, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Broken(f"`odec {' '.join(arguments)}` ended with {done.returncode}:\n{done.stderr.strip()}")
        return done.stdout

    def source(self, name: str, label: str, precision: str, slots: int | None = None) -> Path:
        """The changed file. It lies beside copies of all models."""
        path = self.schemes / f"{label}.ode"
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
            if self.options.cubins and target != "cpu":
                self.assemble(Path(out), target)
        return built

    def assemble(self, artifact: Path, target: str) -> None:
        """What an assembler makes of an artifact's code, beside it: the driver need not compile it."""
        cubin = artifact.with_suffix(".cubin")
        command = [str(self.options.cubins), f"-arch={target}", str(artifact / "kernels.ptx"), "-o", str(cubin)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Broken(f"{artifact.name} does not assemble:\n{done.stderr.strip()}")

    def conformance(self, name: str, precision: str, slots: int | None = None) -> dict[str, Any]:
        """A system made small, and its losses on this processor."""
        label = f"{name}-{precision}" + ("-revolve" if slots else "")
        source = self.source(name, label, precision, slots)
        text = source.read_text(encoding="utf-8")
        values = small(text)
        artifacts = self.build(source, values, self.options.targets)
        case = {"label": label, "system": name, "precision": precision, "revolve": bool(slots), "artifacts": artifacts}
        if not slots and reads_text(text):
            with tempfile.TemporaryDirectory(prefix="odec-gpu-") as scratch:
                here = Path(scratch) / "here.odex"
                self.call("build", str(source), *sets(values), "-o", str(here))
                out = Path(scratch) / "run"
                self.call(*gpu_run.train(str(here), self.folder, "cpu", self.options.steps, out))
                case["losses"] = gpu_run.losses(out)
        return case

    def launches(self, case: Launches) -> dict[str, Any]:
        """A model of real size whose launches are compared one by one."""
        label = case.label
        source = self.source(case.system, label, case.precision)
        artifacts = self.build(source, case.values, self.options.targets)
        return {"label": label, "system": case.system, "precision": case.precision, "artifacts": artifacts}

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
            "artifacts": self.build(source, values, self.options.targets),
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


def pack(stage: Path, folder: Path, preset: int) -> int:
    """One file of all that travels; gives its size."""
    packed = folder / PACKED
    with tarfile.open(packed, "w:xz", preset=preset) as tar:
        for path in sorted(stage.iterdir()):
            tar.add(path, path.name)
    return packed.stat().st_size


def weight(stage: Path, cases: list[dict[str, Any]], planned: int) -> int:
    """What a kit of so many cases would weigh: each as much as the heaviest artifact that was built, packed by itself, and all else."""
    heaviest = 0
    for place in {place for case in cases for place in case["artifacts"].values()}:
        with tempfile.TemporaryFile() as file:
            with tarfile.open(fileobj=file, mode="w:xz", preset=1) as tar:
                tar.add(stage / place, place)
            heaviest = max(heaviest, file.tell())
    with tempfile.TemporaryFile() as file:
        with tarfile.open(fileobj=file, mode="w:xz", preset=1) as tar:
            for path in stage.iterdir():
                if path.name != "artifacts":
                    tar.add(path, path.name)
        return file.tell() + planned * heaviest


def all_cases(every: list[str]) -> int:
    """How many artifacts a whole kit has, for one target."""
    again = sum(name in REVOLVE for name in every) * len(PRECISIONS)
    return len(every) * len(PRECISIONS) + again + len(LAUNCHES) + len(SIZES) * len(TIMED)


def prepare(options: argparse.Namespace) -> int:
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()) and not (folder / "plan.json").is_file():
        print(f"{folder} is not empty and was not made by this script", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="odec-kit-") as scratch:
        return staged(options, folder, Path(scratch))


def staged(options: argparse.Namespace, folder: Path, stage: Path) -> int:
    """Builds in `stage`, packs into `folder`."""
    work = stage / "work"
    stage = stage / "kit"
    for made in (work, stage, stage / "artifacts", stage / "scripts"):
        made.mkdir()
    shutil.copytree(HERE.parent / "schemes", work / "schemes")
    for script in SCRIPTS:
        shutil.copy2(HERE / script, stage / "scripts" / script)
    shutil.copy2(HERE.parent / "LICENSE-APACHE", stage / "text.txt")
    bundle(Path(options.runner).resolve(), stage)
    # `KIND-TARGET-HASH.safetensors`, a folder for each kind and target.
    for kept in sorted(options.launches.glob("*.safetensors")) if options.launches else []:
        kind = stage / "launches" / kept.name.rpartition("-")[0]
        kind.mkdir(parents=True, exist_ok=True)
        shutil.copy2(kept, kind)

    builder = Builder(options, stage, work / "schemes" / "models")
    every = trained(builder.schemes)
    unknown = [name for name in options.only if name not in every]
    if unknown:
        print(f"no such system: {', '.join(unknown)}", file=sys.stderr)
        return 2
    names = options.only or every
    jobs = [(builder.conformance, (name, precision)) for name in names for precision in PRECISIONS]
    jobs += [(builder.conformance, (name, precision, SLOTS)) for name in names if name in REVOLVE for precision in PRECISIONS]
    shapes = [(builder.launches, (case,)) for case in (TINY_LAUNCHES if options.tiny else LAUNCHES) if case.system in names]
    sizes = TINY if options.tiny else [size for size in SIZES if not options.sizes or size.name in options.sizes]
    timed = [(builder.timed, (name, size)) for size in sizes for name in TIMED if name in names]
    began = time.monotonic()

    def done(job: tuple[Any, tuple[Any, ...]]) -> dict[str, Any]:
        case = job[0](*job[1])
        print(f"{time.monotonic() - began:6.0f} s  {case['label']}", flush=True)
        return case

    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            cases, launches, speeds = (list(pool.map(done, part)) for part in (jobs, shapes, timed))
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
        "launches": launches,
        "speed": speeds,
    }
    text = json.dumps(plan, indent=1)
    (stage / "plan.json").write_text(text, encoding="utf-8")
    size = pack(stage, folder, options.preset)
    (folder / "plan.json").write_text(text, encoding="utf-8")
    (folder / "run.sh").write_text(RUN.replace("@ID@", gpu_run.digest(folder / PACKED)[:16]), encoding="utf-8")
    (folder / "run.sh").chmod(0o755)
    print(
        f"{folder}: {size / 2**20:.1f} MiB; {len(cases)} conformance cases, {len(launches)} of launches, "
        f"{len(speeds)} models to time, {len(plan['ops'])} ops"
    )
    # A part of the list says what all of it would weigh.
    if options.only:
        size = weight(stage, [*cases, *launches, *speeds], all_cases(every) * len(options.targets))
        print(f"a kit of all systems would weigh about {size / 2**20:.1f} MiB")
    if size > MOST:
        print(f"that is more than {MOST >> 20} MiB, which is what can be carried", file=sys.stderr)
        return 1
    return 0


def names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    phases = parser.add_subparsers(dest="command", required=True)
    first = phases.add_parser("prepare", help="build everything into a folder; needs no card")
    first.add_argument("folder", type=Path)
    first.add_argument("--odec", required=True, help="the odec binary that builds")
    first.add_argument("--runner", required=True, help="the odec binary that travels: without code generation it is small")
    first.add_argument("--only", type=names, default=[], help="comma-separated systems (default: all that are trained)")
    first.add_argument("--targets", type=names, default=["sm_90a"])
    first.add_argument("--sizes", type=names, default=[], help="comma-separated sizes of what is timed: 55M, 340M (default: all)")
    first.add_argument("--launches", type=Path, help="a folder of launches of single kernels that tests have kept (docs/gpu.md)")
    first.add_argument("--cubins", type=Path, help="an assembler (ptxas), whose code is carried too and loaded instead of PTX")
    first.add_argument("--steps", type=int, default=50, help="training steps whose losses are compared")
    first.add_argument("--memory", type=float, default=70, help="GiB that a timed model may need")
    first.add_argument("--jobs", type=int, default=os.cpu_count())
    first.add_argument("--preset", type=int, default=6, help="of xz: 1 packs in a sixth of the time, and takes a fifth more room")
    first.add_argument("--tiny", action="store_true", help="toy sizes: for trying the scripts")
    second = phases.add_parser("run", help="measure on the card of this machine")
    second.add_argument("folder", type=Path)
    second.add_argument("out", type=Path)
    second.add_argument("--device", default="cuda:0", help="cuda:N; cuda:dry computes nothing")
    second.add_argument("--phase", choices=[*gpu_run.PHASES, "all"], default="all")
    second.add_argument("--budget", type=float, default=540, help="seconds in all; what has not begun by then is left out")
    second.add_argument("--limit", type=float, default=60, help="seconds that one command may take")
    second.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1), help="cases at once, where nothing is timed")
    second.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    second.add_argument("--only", type=names, default=[], help="comma-separated systems")
    return parser


def main() -> int:
    options = parser().parse_args()
    return prepare(options) if options.command == "prepare" else gpu_run.run(options)


if __name__ == "__main__":
    sys.exit(main())
