"""The phase on the card's machine: conformance, then speed. Needs Python alone.

Takes a folder that `gpu.py prepare` made; writes `results.json` after every case, so that a run cut short leaves what it
found, and `results.md` with the tables. Conformance of a case:

- every entry on the card and on odec's reference device (`odec compare`): in f32 every bit, in bf16 within the bounds that it states;
- training steps twice: the same parameters in every bit; losses those of the processor, all bits in f32, on average within LOSS_BOUND in bf16;
- with states computed again (`memory revolve`): losses those of the run that stores them, in every bit.

Speed: training step and reading token by token, median of single times, beside PyTorch's if there is one.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpu_cases import LOSS_BOUND

# Dense bf16 with f32 sums, 10¹² operations per second, by NVIDIA's data sheets; the first name that occurs counts.
PEAKS = (
    ("H100 PCIe", 756.0),
    ("H100 NVL", 835.0),
    ("H100", 989.4),
    ("H200", 989.4),
    ("A100", 311.9),
    ("A800", 311.9),
    ("L40S", 362.0),
    ("RTX 4090", 165.2),
    ("A10G", 70.0),
    ("A10", 125.0),
)
# Part of the budget after which no more conformance cases begin.
CONFORMANCE = 0.5
STEPS, TOKENS = 10, 128
# Of which the time of each kernel is kept as well.
PROFILED, PROFILED_SIZES = ("prenorm", "iiet"), ("55M", "tiny")
SHOWN = 12
# Seconds that one rival may take, compilation included.
RIVAL = 150.0
# Artifacts were built on another machine, by whoever made the folder that this file is in; this one may have no code generation.
TRUST = "--trust"


class Failed(Exception):
    """A program ended badly, in words."""


def call(command: list[str], seconds: float, cwd: Path | None = None) -> str:
    """Standard output of a command."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=max(1.0, seconds), cwd=cwd)
    except subprocess.TimeoutExpired:
        raise Failed(f"{Path(command[0]).name} {' '.join(command[1:3])}: stopped after {seconds:.0f} s") from None
    except OSError as error:
        raise Failed(str(error)) from None
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip()
        raise Failed(said[-1500:] or f"ended with {done.returncode}")
    return done.stdout


def train(odec: list[str], folder: Path, artifact: str, device: str, steps: int, scratch: Path, seconds: float) -> Path:
    """Trains an artifact on the folder's text; gives the run."""
    out = scratch / f"run-{time.monotonic_ns()}"
    arguments = ["train", str(folder / artifact), TRUST, "--data", str(folder / "text.txt"), "--steps", str(steps)]
    arguments += ["--out", str(out), "--device", device, "--checkpoint-every", "100000", "--json"]
    call([*odec, *arguments], seconds, scratch)
    return out


def losses(run: Path) -> list[float]:
    """The loss of every step."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record["loss"] for record in map(json.loads, lines) if "loss" in record]


def card(number: int) -> dict[str, Any]:
    """What NVIDIA's tool says of a card."""
    fields = ("name", "compute_cap", "driver_version", "memory.total", "power.limit", "clocks.max.sm")
    said = call(["nvidia-smi", "-i", str(number), f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"], 20)
    return dict(zip(fields, (part.strip() for part in said.strip().split(",")), strict=True))


class Memory:
    """The most memory of the card in use while something runs, sampled; nothing without a card."""

    def __init__(self, number: int | None):
        self.number, self.most, self.stop = number, 0, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def watch(self) -> None:
        while self.number is not None and not self.stop.is_set():
            try:
                said = call(["nvidia-smi", "-i", str(self.number), "--query-gpu=memory.used", "--format=csv,noheader,nounits"], 10)
                self.most = max(self.most, int(said.strip()) << 20)
            except (Failed, ValueError):
                return
            self.stop.wait(0.3)

    def __enter__(self) -> "Memory":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()


class Session:
    """One run of this script."""

    def __init__(self, options: argparse.Namespace):
        self.options, self.folder, self.out = options, options.folder.resolve(), options.out.resolve()
        self.plan = json.loads((self.folder / "plan.json").read_text(encoding="utf-8"))
        self.began = time.monotonic()
        self.dry = options.device == "cuda:dry"
        self.odec = self.binary()
        self.card: dict[str, Any] = {}
        self.graphs = "none"
        self.number: int | None = None
        if options.device.startswith("cuda") and not self.dry:
            self.number = int(options.device.partition(":")[2] or 0)
            try:
                self.card = card(self.number)
            except Failed:
                # The driver may be there without its tool: what follows tries it.
                pass
        self.target = "cpu" if options.device == "cpu" else self.usable()
        self.lock = threading.Lock()
        self.results: dict[str, Any] = {"conformance": [], "speed": []}

    def binary(self) -> list[str]:
        """How the binary is called here: as it is, or with the loader and libraries that came along."""
        plain = [str(self.folder / "odec")]
        try:
            call([*plain, "--version"], 30)
            return plain
        except Failed as why:
            loader = next((self.folder / "lib").glob("ld-linux*"), None)
            if loader is None:
                raise Failed(f"odec does not run on this machine: {why}") from None
            bundled = [str(loader), "--library-path", str(self.folder / "lib"), *plain]
            call([*bundled, "--version"], 30)
            return bundled

    def usable(self) -> str:
        """The best target that runs here: the smallest model's step is tried."""
        smallest = min(self.plan["conformance"], key=lambda case: ("prenorm" not in case["label"], case["label"]))
        why: Failed | None = None
        # The driver keeps what it compiles on disk, for the next process: all of it.
        os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(4 << 30))
        # Three steps: launched, made a graph, replayed. Without graphs where only those fail.
        for graphs in ("on", "off"):
            os.environ["ODEC_GRAPHS"] = graphs
            for target in sorted(self.plan["targets"], reverse=True):
                artifact = str(self.folder / smallest["artifacts"][target])
                try:
                    call([*self.odec, "bench", artifact, TRUST, "--device", self.options.device, "--steps", "3", "--warmup", "0"], 120)
                    self.graphs = graphs if graphs == "on" else f"off: {why}"
                    return target
                except Failed as error:
                    why = why or error
        raise why or Failed(f"{self.folder} holds no code for cards")

    def left(self) -> float:
        return self.options.budget - (time.monotonic() - self.began)

    def add(self, kind: str, result: dict[str, Any]) -> None:
        """Keeps a result, on disk too."""
        with self.lock:
            self.results[kind].append(result)
            self.save()

    def save(self) -> None:
        text = json.dumps(self.results, indent=1)
        (self.out / "results.json").write_text(text, encoding="utf-8")

    def describe(self) -> None:
        """What it all ran on."""
        self.results |= {
            "date": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
            "device": self.options.device,
            "card": self.card,
            "target": self.target,
            "graphs": self.graphs,
            "odec": self.plan["odec"],
            "prepared": self.plan["prepared"],
            "ops": self.plan["ops"],
            "steps": self.plan["steps"],
            "loss_bound_bf16": LOSS_BOUND,
            "python": sys.version.split()[0],
            "torch": self.torch(),
        }
        self.save()

    def torch(self) -> dict[str, Any]:
        """PyTorch's version and whether it sees a card."""
        program = "import json, torch; print(json.dumps({'version': torch.__version__, 'cuda': torch.version.cuda, 'card': torch.cuda.is_available()}))"
        try:
            return json.loads(call([self.options.python, "-c", program], 120))
        except (Failed, ValueError):
            return {}

    def conformance(self, case: dict[str, Any]) -> None:
        """One system in one precision."""
        found: dict[str, Any] = {key: case[key] for key in ("label", "system", "precision", "revolve")}
        began = time.monotonic()
        if self.left() < (1 - CONFORMANCE) * self.options.budget:
            self.add("conformance", found | {"good": False, "why": "not begun: out of time"})
            return
        artifact = case["artifacts"][self.target]
        try:
            with tempfile.TemporaryDirectory(prefix="odec-gpu-") as scratch:
                found |= self.compared(artifact) | self.trained(case, artifact, Path(scratch))
            checks = [value for key, value in found.items() if key.endswith("_good")]
            found["good"] = bool(checks) and all(checks)
        except Failed as why:
            found |= {"good": False, "why": str(why)}
        found["seconds"] = round(time.monotonic() - began, 1)
        self.add("conformance", found)

    def compared(self, artifact: str) -> dict[str, Any]:
        """Every entry beside the reference device."""
        command = [*self.odec, "compare", str(self.folder / artifact), TRUST, "--device", self.options.device, "--steps", "1", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=max(1.0, self.left()))
        try:
            said = json.loads(done.stdout)
        except ValueError:
            raise Failed(done.stderr.strip()[-1500:] or f"odec compare ended with {done.returncode}") from None
        results = said["results"]
        worst = max((r["apart"] if r["apart"] is not None else float("inf") for r in results), default=0.0)
        wrong = [r["what"] for r in results if not r["good"]]
        exact = sum(r["differ"] == 0 for r in results)
        if not said["computed"]:
            return {"dry_good": True}
        return {"entries": len(results), "entries_exact": exact, "entries_apart": worst, "wrong": wrong, "entries_good": said["good"]}

    def trained(self, case: dict[str, Any], artifact: str, scratch: Path) -> dict[str, Any]:
        """Two runs: the same bits, and the processor's losses."""
        device, steps = self.options.device, self.plan["steps"]
        runs = [train(self.odec, self.folder, artifact, device, steps, scratch, self.left()) for _ in range(2)]
        hashes = []
        for run in runs:
            file = scratch / f"{run.name}.safetensors"
            call([*self.odec, "export", str(run), "-o", str(file)], self.left())
            hashes.append(hashlib.sha256(file.read_bytes()).hexdigest())
        ours = [losses(run) for run in runs]
        if len(ours[0]) != steps:
            raise Failed(f"{len(ours[0])} losses of {steps} steps")
        if self.dry:
            return {}
        found: dict[str, Any] = {"losses": ours[0], "repeats_good": ours[0] == ours[1] and hashes[0] == hashes[1]}
        theirs = case.get("losses")
        if theirs:
            distances = [abs(a - b) / abs(b) for a, b in zip(ours[0], theirs, strict=True)]
            apart = statistics.mean(distances)
            found |= {"losses_furthest": max(distances)}
            found |= {"losses_apart": apart, "losses_good": apart <= (0.0 if case["precision"] == "f32" else LOSS_BOUND)}
        return found

    def revolved(self) -> None:
        """Losses with states computed again, beside those with all states kept."""
        cases = {result["label"]: result for result in self.results["conformance"]}
        for label, result in cases.items():
            stored = cases.get(label.removesuffix("-revolve"))
            if result["revolve"] and stored and "losses" in result and "losses" in stored:
                result["revolve_good"] = result["losses"] == stored["losses"]
                result["good"] = result["good"] and result["revolve_good"]
        self.save()

    def speed(self, case: dict[str, Any]) -> None:
        """One model: odec's step and its reading, then the rival's."""
        found = {key: case[key] for key in ("label", "system", "size", "shape", "parameters", "flops_per_token", "needed_bytes")}
        shape = case["shape"]
        tokens = shape["batch"] * shape["context"]
        if self.left() < 20:
            self.add("speed", found | {"why": "not begun: out of time"})
            return
        artifact = str(self.folder / case["artifacts"][self.target])
        timed = [artifact, TRUST, "--device", self.options.device, "--json", "--warmup", "3"]
        bench = [*self.odec, "bench", *timed]
        try:
            with Memory(self.number) as memory:
                step = json.loads(call([*bench, "--steps", str(STEPS)], self.left()))
            found["odec"] = self.rates(case, step["step_ms_median"], tokens) | {
                "planned_bytes": step["planned_bytes"],
                "card_bytes": memory.most,
            }
            reading = json.loads(call([*bench, "--tokens", str(TOKENS)], self.left()))
            found["odec"]["token_ms"] = reading["token_ms_median"]
            if case["system"] in PROFILED and case["size"] in PROFILED_SIZES and self.left() > 20:
                said = json.loads(call([*self.odec, "profile", *timed, "--steps", "3"], self.left()))
                found["kernels"] = said["kernels"]
        except (Failed, ValueError) as why:
            found["why"] = str(why)
        if self.results["torch"].get("card") and self.number is not None:
            worker = Path(__file__).with_name("torch_card.py")
            command = [self.options.python, str(worker), case["rival"], json.dumps(shape), str(self.number), str(STEPS), str(TOKENS)]
            for mode in ("compile", "eager"):
                try:
                    limit = min(RIVAL, self.left())
                    said = json.loads(call([*command, mode], limit, worker.parent).splitlines()[-1])
                    found["torch"] = said | self.rates(case, statistics.median(said["step_ms"]), tokens)
                    break
                except (Failed, ValueError, IndexError, KeyError) as why:
                    found[f"torch_{mode}_why"] = str(why)[-600:]
        self.add("speed", found)

    def rates(self, case: dict[str, Any], ms: float, tokens: int) -> dict[str, Any]:
        """Tokens per second, and the part of the card's peak that the model's operations are."""
        per_second = tokens / ms * 1e3
        peak = next((peak for name, peak in PEAKS if name in self.card.get("name", "")), None)
        mfu = case["flops_per_token"] * per_second / (peak * 1e12) if peak else None
        return {"step_ms_median": ms, "tokens_per_s": per_second, "mfu": mfu}


def number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def profile(r: dict[str, Any]) -> list[str]:
    """The kernels of a model's step that take the longest."""
    lines = [
        "",
        f"## Kernels of a step of {r['label']}",
        "",
        f"The {SHOWN} that take the longest, each launch between two events, outside of graphs, over 3 steps; all of them are in results.json.",
        "",
        "| kernel | entry | launches | ms | share | Gflop/s | GB/s |",
        "|---|---|---|---|---|---|---|",
    ]
    for k in r["kernels"][:SHOWN]:
        lines.append(
            f"| `{k['kernel']}` {k['dims']} | {k['entry']} | {k['launches']} | {number(k['ms'], '.2f')} | {number(k['share'], '.1%')} | "
            f"{number(k['gflop_per_s'], ',.0f')} | {number(k['gbyte_per_s'], ',.0f')} |"
        )
    return lines


def tables(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    card = results["card"]
    about = f"{card['name']} (driver {card['driver_version']}, {card['memory.total']} MiB)" if card else results["device"]
    torch = results["torch"]
    lines = [
        f"# {results['odec']} on {about}",
        "",
        f"{results['date']}; code for {results['target']}; graphs {results['graphs']}; PyTorch {torch.get('version', 'absent')} (CUDA {torch.get('cuda', '–')}).",
        "",
        f"## Conformance ({len(results['ops'])} ops: {', '.join(results['ops'])})",
        "",
        f"| case | entries exact | worst entry | losses of {results['steps']} steps, mean distance | two runs | revolve = store | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    yes = {True: "same bits", False: "DIFFER", None: "–"}
    for r in sorted(results["conformance"], key=lambda r: r["label"]):
        good = "launched, nothing computed" if "dry_good" in r else "good"
        verdict = good if r["good"] else "**" + (r.get("why") or "WRONG: " + ", ".join(r.get("wrong") or ["see above"])).replace("\n", " ")[:160] + "**"
        lines.append(
            f"| {r['label']} | {r.get('entries_exact', '–')} of {r.get('entries', '–')} | {number(r.get('entries_apart'), '.1e')} | "
            f"{number(r.get('losses_apart'), '.1e')} | {yes[r.get('repeats_good')]} | {yes[r.get('revolve_good')]} | {verdict} |"
        )
    lines += [
        "",
        "## Speed (bf16)",
        "",
        "MFU counts the model's operations as `odec check` does, without what is computed again, over the data sheet's peak. Memory: planned, and the most that the card "
        "said was in use; PyTorch's is its allocator's peak. Token: milliseconds for reading one token after those before.",
        "",
        "| model | parameters | batch × context | odec step ms | tokens/s | MFU | GiB planned, in use | token ms | PyTorch | step ms | tokens/s | MFU | GiB | token ms | PyTorch / odec |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in results["speed"]:
        ours, theirs, shape = r.get("odec"), r.get("torch"), r["shape"]
        gib = lambda n: number(n / 2**30 if n else None, ".1f")
        left = f"| {r['label']} | {r['parameters'] / 1e6:.1f} M | {shape['batch']} × {shape['context']} | "
        if ours:
            left += f"{ours['step_ms_median']:.1f} | {ours['tokens_per_s']:,.0f} | {number(ours['mfu'], '.1%')} | "
            left += f"{gib(ours['planned_bytes'])}, {gib(ours['card_bytes'])} | {number(ours.get('token_ms'), '.3f')} | "
        else:
            left += f"**{r.get('why', '')[:120]}** | – | – | – | – | ".replace("\n", " ")
        if theirs:
            left += f"{theirs['mode']} | {theirs['step_ms_median']:.1f} | {theirs['tokens_per_s']:,.0f} | {number(theirs['mfu'], '.1%')} | "
            left += f"{gib(theirs['peak_bytes'])} | {number(theirs.get('token_ms'), '.3f')} | "
            left += (f"{theirs['step_ms_median'] / ours['step_ms_median']:.2f}× |") if ours else "– |"
        else:
            left += "– | – | – | – | – | – | – |"
        lines.append(left)
    for r in results["speed"]:
        if "kernels" in r:
            lines += profile(r)
    return "\n".join(lines) + "\n"


def run(options: argparse.Namespace) -> int:
    if not (options.folder / "plan.json").is_file():
        print(f"{options.folder} was not made by `gpu.sh prepare`: it has no plan.json", file=sys.stderr)
        return 1
    try:
        session = Session(options)
    except (Failed, ValueError) as why:
        reason = str(why).splitlines()[0].removeprefix("error: ")
        print(f"nothing can be measured on {options.device}: {reason}", file=sys.stderr)
        return 1
    session.out.mkdir(parents=True, exist_ok=True)
    session.describe()
    chosen = lambda case: not options.only or case["system"] in options.only
    cases = [case for case in session.plan["conformance"] if chosen(case)]
    # The first alone: where nothing works, it says so before many processes do.
    for case in cases[:1]:
        session.conformance(case)
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(session.conformance, cases[1:]))
    session.revolved()
    # Small models of all systems come before the large ones.
    for case in sorted(filter(chosen, session.plan["speed"]), key=lambda case: case["parameters"]):
        session.speed(case)
    text = tables(session.results)
    (session.out / "results.md").write_text(text, encoding="utf-8")
    print(text)
    bad = [r["label"] for r in session.results["conformance"] if not r["good"]]
    bad += [r["label"] for r in session.results["speed"] if "odec" not in r]
    seconds = time.monotonic() - session.began
    print(f"{session.out}: {len(bad)} failed, {seconds:.0f} s" + (": " + ", ".join(bad) if bad else ""))
    return int(bool(bad))
