"""Time of `odec build` where nothing of a model has been compiled before, and what its code is like.

    builds.py ODEC [--beside PROGRAM] [--rounds N] [--steps N] [MODEL:PRECISION …]

Every build has an empty cache, and is done once in every round; the fastest counts. `kernels.so` is the file of the model's
compiled kernels. With `--beside`, another build of odec takes turns with this one; columns hold both, and the last one has the ratio of
the time of a training step, this one's over the other's, the median over the rounds. Prints a Markdown table.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODELS = Path(__file__).parent.parent / "schemes" / "models"
USUAL = ["prenorm:f32", "prenorm:bf16", "rk4_layer:f32", "iiet:f32", "mixtral:f32", "mixtral:bf16", "vit:bf16", "cvt:f32"]


class Broken(Exception):
    """odec failed."""


def call(program: str, *arguments: str, cache: Path) -> str:
    """What odec prints."""
    environment = os.environ | {"ODEC_CACHE": str(cache)}
    try:
        done = subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Broken(f"{program} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        raise Broken(f"`{program} {' '.join(arguments)}` ended with {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


def build(program: str, model: str, folder: Path) -> tuple[float, Path, Path]:
    """Seconds, the artifact and its cache."""
    name, _, precision = model.partition(":")
    artifact, cache = folder / "model.odex", folder / "cache"
    setting = ["--set", f"train.precision={precision}"] if precision else []
    began = time.perf_counter()
    call(program, "build", str(MODELS / f"{name}.ode"), *setting, "-o", str(artifact), cache=cache)
    return time.perf_counter() - began, artifact, cache


def row(options: argparse.Namespace, model: str) -> str:
    """A line of the table."""
    programs = [options.odec] + ([options.beside] if options.beside else [])
    seconds, bytes_of, ratios = [[] for _ in programs], [0 for _ in programs], []
    for number in range(options.rounds):
        steps = [0.0 for _ in programs]
        turn = range(len(programs))
        for which in turn if number % 2 == 0 else reversed(turn):
            with tempfile.TemporaryDirectory() as folder:
                took, artifact, cache = build(programs[which], model, Path(folder))
                seconds[which].append(took)
                bytes_of[which] = (artifact / "kernels.so").stat().st_size
                if options.beside:
                    said = call(programs[which], "bench", str(artifact), "--steps", str(options.steps), "--json", cache=cache)
                    steps[which] = json.loads(said)["step_ms_median"]
        if options.beside:
            ratios.append(steps[0] / steps[1])
    cells = [model.replace(":", ", ")]
    cells += [f"{min(each):.2f} s" for each in seconds] + [f"{each / 1e3:.0f} kB" for each in bytes_of]
    cells += [f"{statistics.median(ratios):.2f}"] if ratios else []
    return f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("odec")
    parser.add_argument("models", nargs="*", default=USUAL, metavar="MODEL:PRECISION")
    parser.add_argument("--beside", metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_intermixed_args()
    if options.rounds < 1 or options.steps < 1:
        parser.error("rounds and steps are 1 or more")
    head = ["model", "build", "`kernels.so`"]
    if options.beside:
        head = ["model", "build", "the other's", "`kernels.so`", "the other's", "step, ratio"]
    print(f"| {' | '.join(head)} |\n|---|{'---:|' * (len(head) - 1)}", flush=True)
    try:
        for model in options.models:
            print(row(options, model), flush=True)
    except Broken as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
