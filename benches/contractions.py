"""The matrix products of a training step in isolation: odec's kernels beside OpenBLAS, one thread.

    contractions.py ODEC [MODEL] [--set PATH=VALUE …] [--rounds N] [--beside ODEC] [--out FILE]

Builds the model for this processor, takes each kind of contraction of its training step, but those with an epilogue, and times it beside NumPy's
product of the same matrices in f32, and beside the kernel of another build of odec (`--beside`). All of them take turns, some milliseconds each: processors that are
shared drift by tens of per cent within seconds, so only ratios within a round are believed. The roof is what `odec profile` measures: multiply-adds in
registers, at the processor's fastest moments. Each product is first compared with NumPy's. Prints a Markdown table.

Panels of B are packed before: programs pack a weight once a step. With `--set train.precision=bf16`, those contractions are measured whose factors are
rounded to bf16; NumPy has no such product.
"""

import argparse
import ctypes
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"
# OpenBLAS takes AVX2 code on AMD's processors that it does not know, at half the speed it could have.
PROCESSOR = Path("/proc/cpuinfo").read_text(encoding="utf-8")
if "AuthenticAMD" in PROCESSOR and "avx512f" in PROCESSOR:
    os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")
import numpy as np  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
# As odec_program::kernel::contract has them: tiles that are enough for threads to share, of one panel of rows and of several.
TILES = {"chain": (64, 16), "dots": (64, 16), "pairs": (64, 8)}


@dataclass(frozen=True)
class Case:
    """C(m, n) = A·B, A as stored [m, k], or [k, m] where it is transposed."""

    m: int
    n: int
    k: int
    transposed: bool
    # Types of A and B in memory.
    types: tuple[str, str]

    def words(self) -> str:
        types = "" if self.types == ("f32", "f32") else f", {self.types[0]} · {self.types[1]}"
        return f"{self.m} × {self.n} × {self.k}{', Aᵀ' if self.transposed else ''}{types}"

    def operations(self) -> int:
        return 2 * self.m * self.n * self.k


def aligned(count: int) -> np.ndarray:
    """So many floats that begin at a page."""
    room = np.zeros(count + 1024, np.float32)
    first = -room.ctypes.data % 4096 // 4
    return room[first : first + count]


def built(odec: str, arguments: list[str], folder: Path) -> tuple[dict[str, Any], ctypes.CDLL]:
    subprocess.run([odec, "build", *arguments, "-o", str(folder)], check=True, stdout=subprocess.DEVNULL)
    return json.loads((folder / "manifest.json").read_text()), ctypes.CDLL(str(folder / "kernels.so"))


def contractions(manifest: dict[str, Any]) -> dict[Case, tuple[dict[str, Any], int]]:
    """The kernels of the entry `grad`, and how many launches a step has of each kind."""
    program = manifest["program"]
    sizes, found = program["maxima"], {}
    for launch in program["entries"]["grad"]["instrs"]:
        kernel = program["kernels"][launch["kernel"]]
        spec = kernel["spec"]
        if spec["kind"] != "contract" or spec["dtype"] != "f32" or spec["b"] not in ("f32", "bf16"):
            continue
        extent = [d["factor"] * sizes["batch"] ** d.get("batch", 0) * sizes["seq"] ** d.get("seq", 0) for d in launch["dims"]]
        case = Case(*extent, spec["a_transposed"], (spec["a"], spec["b"]))
        plain = not spec["accumulate"] and not spec["epilogue"]
        before, count = found.get(case, (None, 0))
        found[case] = (kernel if plain else before, count + 1)
    return {case: (kernel, count) for case, (kernel, count) in found.items() if kernel}


def rounded(x: np.ndarray) -> np.ndarray:
    """The nearest bf16, ties to even, as f32."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def halves(x: np.ndarray) -> np.ndarray:
    """Numbers that are bf16 in half the room."""
    out = aligned(-(-x.size // 2)).view(np.uint16)[: x.size]
    out[:] = (np.ascontiguousarray(x).view(np.uint32) >> 16).ravel()
    return out


# Values of k that are multiplied at once.
CHUNKS = {"chain": 1, "dots": 2, "pairs": 32}


def permit_tiles() -> None:
    """Asks Linux for Intel's tile registers (ARCH_REQ_XCOMP_PERM, XTILEDATA); where there are none, kernels do not name them."""
    arch_prctl = 158
    ctypes.CDLL(None).syscall(arch_prctl, 0x1023, 18)


def call(library: ctypes.CDLL, kernel: dict[str, Any], case: Case, a: np.ndarray, b: np.ndarray) -> tuple[Callable[[], None], np.ndarray]:
    """What runs all tiles of a kernel, and C. B is [k, n]."""
    blocking = kernel["spec"]["blocking"]
    mr, nr = blocking["mr"], blocking["nr"]
    rows, panels = -(-case.m // mr), -(-case.n // nr)
    order = kernel["spec"].get("order", "chain")
    chunk = CHUNKS[order]
    depth = -(-case.k // chunk) * chunk
    c = aligned(case.m * case.n)
    wide = np.zeros((depth, panels * nr), np.float32)
    wide[: case.k, : case.n] = b
    if chunk == 1:
        packed = aligned(wide.size)
        packed[:] = wide.reshape(depth, panels, nr).transpose(1, 0, 2).ravel()
    else:
        # Neighbours in k are neighbours in memory.
        packed = wide.reshape(depth // 2, 2, panels, nr).transpose(2, 0, 3, 1)
    if case.types[1] == "bf16":
        packed = halves(packed)
    if case.types[0] == "bf16":
        a = halves(a)
    group = max(1, min(panels, rows * panels // TILES[order][rows > 1]))
    tiles = rows * -(-panels // group)
    scratch = aligned(1 << 20)
    operands = (ctypes.c_void_p * 3)(a.ctypes.data, packed.ctypes.data, c.ctypes.data)
    dims = (ctypes.c_int64 * 3)(case.m, case.n, case.k)
    run = library[kernel["symbol"]]
    keep = (a, packed, c, scratch)

    def launch(_keep: tuple[np.ndarray, ...] = keep) -> None:
        run(operands, dims, None, ctypes.c_int64(0), ctypes.c_int64(tiles), ctypes.c_void_p(scratch.ctypes.data))

    return launch, c.reshape(case.m, case.n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("odec")
    parser.add_argument("model", nargs="?", default=str(ROOT / "schemes/models/prenorm.ode"))
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--beside", metavar="ODEC", help="another build, timed in the same rounds")
    parser.add_argument("--out", metavar="FILE", help="everything measured, as JSON")
    given = parser.parse_args()

    arguments = [given.model, *(word for value in given.set for word in ("--set", value))]
    programs = {"odec": given.odec} | ({"beside": given.beside} if given.beside else {})
    permit_tiles()
    random = np.random.default_rng(0)
    runs: dict[tuple[Case, str], Callable[[], Any]] = {}
    launches: dict[Case, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, program in programs.items():
            manifest, library = built(program, arguments, Path(folder) / f"{name}.odex")
            for case, (kernel, count) in contractions(manifest).items():
                a, b = aligned(case.m * case.k), aligned(case.n * case.k)
                a[:], b[:] = random.standard_normal(a.size), random.standard_normal(b.size)
                if case.types[1] == "bf16":
                    a[:], b[:] = rounded(a), rounded(b)
                a2 = a.reshape(case.k, case.m).T if case.transposed else a.reshape(case.m, case.k)
                b2 = b.reshape(case.k, case.n)
                runs[case, name], c = call(library, kernel, case, a, b2)
                runs[case, name]()
                # Sums of k products of numbers about one, in other orders.
                worst = np.abs(c - a2.astype(np.float64) @ b2.astype(np.float64)).max()
                if not worst < 1e-5 * math.sqrt(case.k) * 8:
                    sys.exit(f"{case.words()}: a result is off by {worst}")
                if case.types == ("f32", "f32"):
                    runs[case, "OpenBLAS"] = lambda a2=a2, b2=b2: a2 @ b2
                launches[case] = count

        times: dict[tuple[Case, str], list[float]] = {key: [] for key in runs}
        for _ in range(given.rounds):
            for key, run in runs.items():
                run()
                began = time.perf_counter()
                run()
                run()
                times[key].append((time.perf_counter() - began) / 2)
        said = subprocess.run(
            [given.odec, "profile", *arguments, "--steps", "1", "--json"], check=True, stdout=subprocess.PIPE, env=os.environ | {"ODEC_THREADS": "1"}
        )
    roofs = json.loads(said.stdout)["roof"]
    in_pairs = any(case.types[1] == "bf16" for case in launches) and roofs["pairs_gflop_per_s"]
    roof = in_pairs or roofs["gflop_per_s"]

    def rate(case: Case, name: str, of: Callable[[list[float]], float]) -> float:
        return case.operations() / of(times[case, name]) / 1e9

    others = [name for name in ("OpenBLAS", "beside") if any(name == of for _, of in runs)]
    print(f"roof of one thread: {roof:.0f} Gflop/s\n")
    print("| m × n × k | launches a step | fastest | of the roof | median |", *(f"median of {name} | ratio |" for name in others))
    print("|---|---:|---:|---:|---:|" + "---:|---:|" * len(others))
    for case in sorted(launches, key=lambda case: -launches[case] * case.operations()):
        best, middle = rate(case, "odec", min), rate(case, "odec", statistics.median)
        cells = [case.words(), str(launches[case]), f"{best:.0f}", f"{best / roof:.0%}", f"{middle:.0f}"]
        for name in others:
            ratio = statistics.median(theirs / ours for ours, theirs in zip(times[case, "odec"], times[case, name], strict=True))
            cells += [f"{rate(case, name, statistics.median):.0f}", f"{ratio:.2f}"]
        print("|", " | ".join(cells), "|")
    if given.out:
        measured = [{"m": c.m, "n": c.n, "k": c.k, "transposed": c.transposed, "of": name, "seconds": t} for (c, name), t in times.items()]
        Path(given.out).write_text(json.dumps({"roof_gflop_per_s": roof, "products": measured}) + "\n")


if __name__ == "__main__":
    # The reader of the output, such as `head`, may close the pipe: then the script ends quietly.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
