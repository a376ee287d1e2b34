#!/usr/bin/env python3
"""Trains every recipe of docs/cookbook.md, or writes what the page says of them.

    cookbook.py ODEC [--only WORD] [--jobs N]   trains each recipe on the Shakespeare corpus and generates text from it
    cookbook.py ODEC --write                    writes the table and what `odec check` prints into the page

A recipe fails if its loss does not fall below FALL of what it was before the first step, if a number is not finite, or if it does not
generate. Ends with 1 if one fails.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/cookbook.md"
STEPS, TOKENS, FALL = 150, 40, 0.75
TRAIN = f"""
train {{
  data      text("{ROOT / 'data/shakespeare.txt'}", tokenizer: bytes)
  optimizer adamw(lr: 1e-2, betas: (0.9, 0.95), weight_decay: 0.1)
  batch 8;  steps {STEPS};  clip 1.0;  seed 0
}}
"""
# What a recipe says that it is trained with.
LOSS = re.compile(r"`(loss [^`]*)`")
RECIPE = re.compile(r"```ode\n(?P<program>.*?)```\n\n```text\n\$ odec check (?P<file>\S+)\n(?P<report>.*?)```", re.DOTALL)
TABLE = re.compile(r"(?<=\n\n)\| architecture \|.*?\n(?=\n)", re.DOTALL)


@dataclass
class Recipe:
    section: str
    title: str
    program: str
    file: str
    # Empty where it does not say one.
    loss: str

    def lines(self) -> int:
        return sum(1 for line in self.program.splitlines() if line)


def recipes(page: str) -> list[Recipe]:
    """The recipes of the page, in its order."""
    found = []
    for section in page.split("\n## ")[1:]:
        for part in section.split("\n### ")[1:]:
            recipe = RECIPE.search(part)
            loss = LOSS.search(part[: recipe.start()])
            found.append(
                Recipe(
                    section.splitlines()[0], part.splitlines()[0], recipe["program"], recipe["file"], loss[1] if loss else ""
                )
            )
    return found


def odec(binary: str, *arguments: str) -> str:
    """What odec prints; raises an error with its message if it fails."""
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise RuntimeError(f"`odec {' '.join(arguments)}` ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def checked(binary: str, file: str, program: str, folder: Path) -> str:
    """The first lines of what `odec check` says, to the number of parameters."""
    (folder / file).write_text(program, encoding="utf-8")
    done = subprocess.run([binary, "check", file], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout[: re.search(r"\n    parameters .*\n", done.stdout).end()]


def anchor(title: str) -> str:
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def table(page: str) -> str:
    """The table of all recipes, from their programs and reports."""
    rows = ["| architecture | of | lines | parameters |", "|---|---|---|---|"]
    reports = [re.search(r"\n    parameters +([\d,]+)", r["report"])[1] for r in RECIPE.finditer(page)]
    for recipe, parameters in zip(recipes(page), reports, strict=True):
        rows.append(f"| [{recipe.title}](#{anchor(recipe.title)}) | {recipe.section} | {recipe.lines()} | {parameters} |")
    return "\n".join(rows) + "\n"


def write(binary: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="odec-cookbook-") as folder:

        def filled(r: re.Match) -> str:
            report = checked(binary, r["file"], r["program"], Path(folder))
            return f"```ode\n{r['program']}```\n\n```text\n$ odec check {r['file']}\n{report}```"

        page = RECIPE.sub(filled, page)
    page, found = TABLE.subn(lambda _: table(page), page)
    assert found == 1, "the page has one table of architectures"
    PAGE.write_text(page, encoding="utf-8")


def trained(binary: str, recipe: Recipe, folder: Path) -> tuple[str, bool]:
    """A line of the table that is printed, and whether the recipe learned and speaks."""
    source, run = folder / recipe.file, folder / f"{recipe.file}.run"
    source.write_text(recipe.program + TRAIN.replace("}", f"  {recipe.loss}\n}}"), encoding="utf-8")
    odec(binary, "train", str(source), "--out", str(run))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = [line for line in lines if "loss" in line]
    numbers = [line.get(what) for line in steps for what in ("loss", "grad_norm")]
    finite = all(isinstance(x, float) and math.isfinite(x) for x in numbers)
    first, last = steps[0]["loss"], steps[-1]["loss"]
    text = odec(binary, "generate", str(run), "--prompt", "ROMEO:", "--tokens", str(TOKENS), "--temperature", "0.8")
    spoken = text.rstrip("\n").removeprefix("ROMEO:")
    good = finite and len(steps) == STEPS and last < FALL * first and len(spoken.strip()) > 0
    shown = json.dumps(spoken, ensure_ascii=False)
    return f"{recipe.title:<38} {recipe.lines():>5} {first:9.3f} {last:8.3f}  {shown}{'' if good else '  FAILED'}", good


def train(binary: str, only: str | None, jobs: int) -> int:
    began, failures = time.monotonic(), 0
    chosen = [r for r in recipes(PAGE.read_text(encoding="utf-8")) if only is None or only.lower() in r.title.lower()]
    if not chosen:
        sys.exit(f"no title has the word {only}")
    print(f"{'architecture':<38} lines   step 1 step {STEPS}  after ROMEO:")
    with tempfile.TemporaryDirectory(prefix="odec-cookbook-") as folder, ThreadPoolExecutor(jobs) as pool:

        def line(recipe: Recipe) -> tuple[str, bool]:
            try:
                return trained(binary, recipe, Path(folder))
            except RuntimeError as error:
                return f"{recipe.title} FAILED: {error}", False

        # Rows come in the order of the page, however many train at once.
        for row, good in pool.map(line, chosen):
            print(row, flush=True)
            failures += not good
    verdict = "all learned" if failures == 0 else f"{failures} failed"
    print(f"{len(chosen)} architectures, {verdict}, {time.monotonic() - began:.0f} s")
    return int(failures > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("odec", help="the odec binary")
    parser.add_argument("--write", action="store_true", help="write the table and the reports into the page")
    parser.add_argument("--only", help="recipes with this word in their titles")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="recipes trained at once")
    arguments = parser.parse_args()
    binary = str(Path(arguments.odec).resolve())
    if arguments.write:
        write(binary)
        return 0
    return train(binary, arguments.only, arguments.jobs)


if __name__ == "__main__":
    sys.exit(main())
