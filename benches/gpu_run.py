"""The phases on the card's machine, each by itself or all in order. Needs Python alone.

Takes what `gpu.py prepare` packed; writes `results.json` after every case, so that a run cut short leaves what it
found, `results.md` with the tables, `log.txt` with every command, and `failures-N.zip` with all that a failure needs (`evidence.py`). Every
kind of code is judged by itself: what works on one hides nothing of another. The phases:

- smoke: the card and its driver; three steps of the smallest model, one launch at a time, then in graphs;
- launches: every launch of models of real size beside the reference device (`odec compare --launches`);
- conformance: every entry of all systems beside it (`odec compare`): in f32 every bit, in bf16 within the bounds that it states;
- losses: training twice: the same parameters in every bit; losses those of the processor, all bits in f32, on average within LOSS_BOUND in bf16;
  with states computed again (`memory revolve`) those of the run that stores them, in every bit;
- profile, speed, generation: the time of each kernel, of a training step, and of reading token by token, beside PyTorch's if there is one.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from evidence import Done, Evidence, Failed, run as execute
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
# The phases in order, and the part of the budget that is gone when each ends, where all are run.
PHASES = {"smoke": 0.15, "kernels": 0.25, "launches": 0.4, "conformance": 0.55, "losses": 0.7, "profile": 0.78, "speed": 0.93, "generation": 1.0}
# What of these is timed runs alone, and what has work for all processors: a few cases end before their limit, not all a little later.
ALONE = ("smoke", "launches", "profile", "speed", "generation")
# Seconds, and how often, that a command which was stopped is run again to name the launch that does not end.
NAMING, NAMINGS = 15.0, 3
STEPS, TOKENS = 10, 128
# Seconds that PyTorch may take to compile a model, time it and read with it, and how many are compiled at once.
RIVAL, RIVALS = 300.0, 5
# Of which the time of each kernel is measured.
PROFILED = ("prenorm", "iiet")
SHOWN = 12
# How every command of odec that opens an artifact is called, behind its name: the artifacts were built on another machine, by whoever
# made the folder that this file is in, and the runner there has no code generation.
OPENS: tuple[str, ...] = ("--trust",)
# Launches that fail are named when each is waited for, and one that does not end is the last that was named.
ONE_BY_ONE = {"ODEC_GRAPHS": "off", "CUDA_LAUNCH_BLOCKING": "1", "ODEC_JIT_LOG": "1", "ODEC_LAUNCH_LOG": "1"}
# How odec begins the line that names a launch.
BEGINS = "begins "
# Cards of compute capability 9.0 alone run code for sm_90a.
CAPABILITY = {"sm_90a": lambda c: c == (9, 0), "sm_80": lambda c: c >= (8, 0)}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def train(artifact: str, folder: Path, device: str, steps: int, out: Path) -> list[str]:
    """Arguments that train an artifact on the folder's text."""
    arguments = ["train", *OPENS, artifact, "--data", str(folder / "text.txt"), "--steps", str(steps)]
    return [*arguments, "--out", str(out), "--device", device, "--checkpoint-every", "100000", "--json"]


def losses(run: Path) -> list[float]:
    """The loss of every step."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record["loss"] for record in map(json.loads, lines) if "loss" in record]


def last_launch(done: Done) -> str:
    """Of a command whose launches were one by one, the last that began, in words."""
    begun = [line for line in done.err.splitlines() if line.startswith(BEGINS)]
    return f"; the last launch to begin was {begun[-1].removeprefix(BEGINS)}" if begun else ""


class Memory:
    """The most memory of the card in use while something runs, sampled; nothing without a card."""

    def __init__(self, number: int | None):
        self.number, self.most, self.stop = number, 0, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def watch(self) -> None:
        query = ["nvidia-smi", "-i", str(self.number), "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        while self.number is not None and not self.stop.is_set():
            said = execute(query, 10)
            if said.code != 0 or not said.out.strip().isdigit():
                return
            self.most = max(self.most, int(said.out.strip()) << 20)
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
        self.ends = options.budget
        self.dry = options.device.startswith("cuda:dry")
        self.number = None if self.dry or not options.device.startswith("cuda") else int(options.device.partition(":")[2] or 0)
        self.evidence = Evidence(self.out)
        self.lock = threading.Lock()
        # Locked by whoever measures; what PyTorch will have said, by case.
        self.turns = Path(os.environ.get("ODEC_TURN") or Path(tempfile.gettempdir()) / f"odec-turn-{os.getpid()}")
        self.rivals_under_way: dict[str, Future[Done]] = {}
        self.card: dict[str, Any] = {}
        self.graphs: dict[str, str] = {}
        self.results: dict[str, Any] = {"cases": []}
        self.namings = NAMINGS
        # The driver keeps what it compiles on disk, for the next process: all of it.
        os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(4 << 30))
        self.binary = self.runs_here()

    def runs_here(self) -> list[str]:
        """How the binary is called here: as it is, or with the loader and libraries that came along."""
        plain = [str(self.folder / "odec")]
        done = execute([*plain, "--version"], 30)
        if done.code == 0:
            return plain
        loader = next((self.folder / "lib").glob("ld-linux*"), None)
        bundled = [str(loader), "--library-path", str(self.folder / "lib"), *plain]
        if loader is None or execute([*bundled, "--version"], 30).code != 0:
            raise Failed(f"odec does not run on this machine: {done.why()}")
        return bundled

    def left(self) -> float:
        """Seconds until this phase ends."""
        return self.ends - (time.monotonic() - self.began)

    def odec(self, label: str, *arguments: str, env: dict[str, str] | None = None, artifact: str = "") -> Done:
        """Runs odec; a command that fails raises."""
        env = dict(env or {})
        cubin = (self.folder / artifact).with_suffix(".cubin") if artifact else None
        if cubin and cubin.is_file():
            env["ODEC_CUBIN"] = str(cubin)
        if self.left() < 2:
            raise Failed("not begun: out of time")
        done = execute([*self.binary, *arguments], min(self.options.limit, self.left()), env)
        self.evidence.log(label, done)
        if done.code is None:
            raise self.stopped(label, done)
        if done.code != 0:
            raise Failed(done.why(), done)
        return done

    def stopped(self, label: str, done: Done) -> Failed:
        """A command that was stopped, with the launch that did not end, if one at a time tells it."""
        seconds = min(NAMING, self.options.limit, self.left())
        if self.dry or self.namings == 0 or seconds < 2 or done.env.keys() >= ONE_BY_ONE.keys():
            return Failed(done.why() + last_launch(done), done)
        self.namings -= 1
        again = execute(done.command, seconds, done.env | ONE_BY_ONE)
        self.evidence.log(f"{label}-one-by-one", again)
        named = last_launch(again) if again.code is None else ""
        return Failed(done.why() + named, again if named else done)

    def opened(self, command: str, artifact: str) -> list[str]:
        """A command that opens an artifact on the device."""
        return [command, *OPENS, str(self.folder / artifact), "--device", self.options.device]

    def save(self) -> None:
        text = json.dumps(self.results, indent=1)
        (self.out / "results.json").write_text(text, encoding="utf-8")

    def case(self, phase: str, target: str, case: dict[str, Any], work: Callable[[dict[str, Any], str, Path], dict[str, Any]]) -> None:
        """One case of a phase: what `work` finds, or why it failed, with all that is known of that."""
        artifact = self.folder / case["artifacts"][target] if "artifacts" in case else None
        keys = ("label", "system", "precision", "revolve", "size", "shape", "parameters", "flops_per_token", "needed_bytes", "rival")
        found: dict[str, Any] = {"phase": phase, "target": target} | {key: case[key] for key in keys if key in case}
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="odec-gpu-") as scratch:
            dump = Path(scratch) / "dump"
            done = None
            try:
                found |= work(case, target, Path(scratch))
                checks = [value for key, value in found.items() if key.endswith("_good")]
                found["good"] = all(checks)
            except Failed as error:
                found |= {"good": False, "why": str(error)}
                done = error.done
            except (ValueError, KeyError, OSError, IndexError) as error:
                found |= {"good": False, "why": f"{type(error).__name__}: {error}"}
            if not found["good"]:
                why = str(found.get("why") or found.get("wrong") or found)
                self.evidence.keep(f"{phase}-{target}-{case['label']}", done, why, artifact, dump)
        found["seconds"] = round(time.monotonic() - began, 1)
        with self.lock:
            self.results["cases"].append(found)
            self.save()

    def describe(self, targets: list[str]) -> None:
        """What it all ran on."""
        self.results |= {
            "date": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
            "device": self.options.device,
            "phase": self.options.phase,
            "card": self.card,
            "targets": targets,
            "odec": self.plan["odec"],
            "prepared": self.plan["prepared"],
            "ops": self.plan["ops"],
            "steps": self.plan["steps"],
            "loss_bound_bf16": LOSS_BOUND,
            "python": sys.version.split()[0],
            "torch": self.torch(),
        }
        self.save()

    def find_card(self) -> None:
        """What NVIDIA's tool says of the card; the driver may be there without its tool."""
        if self.number is None:
            return
        self.evidence.log("card", said := execute(["nvidia-smi"], 20))
        self.results["nvidia_smi"] = said.out[-4000:] or said.why()
        fields = ("name", "compute_cap", "driver_version", "memory.total", "power.limit", "clocks.max.sm")
        said = execute(["nvidia-smi", "-i", str(self.number), f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"], 20)
        parts = [part.strip() for part in said.out.strip().split(",")]
        if said.code == 0 and len(parts) == len(fields):
            self.card = dict(zip(fields, parts, strict=True))

    def device_there(self, target: str) -> None:
        """Fails where there is no driver or no such card: then nothing else is worth a try."""
        if self.card or self.number is None:
            return
        artifact = self.plan["conformance"][0]["artifacts"][target]
        try:
            self.odec("device", *self.opened("bench", artifact), "--steps", "1", "--warmup", "0", artifact=artifact)
        except Failed as error:
            if any(words in str(error) for words in ("no NVIDIA driver", "there is no GPU number")):
                raise

    def targets(self) -> list[str]:
        """The kinds of code that are for this card: all, where nobody says what it is."""
        capability = self.card.get("compute_cap", "")
        if not capability:
            return list(self.plan["targets"])
        major, _, minor = capability.partition(".")
        fits = lambda target: target in CAPABILITY and CAPABILITY[target]((int(major), int(minor)))
        return [target for target in self.plan["targets"] if fits(target)]

    def torch(self) -> dict[str, Any]:
        """PyTorch's version and whether it sees a card."""
        program = "import json, torch; print(json.dumps({'version': torch.__version__, 'cuda': torch.version.cuda, 'card': torch.cuda.is_available()}))"
        done = execute([self.options.python, "-c", program], 60)
        try:
            return json.loads(done.out) if done.code == 0 else {}
        except ValueError:
            return {}

    def smoke(self, case: dict[str, Any], target: str, scratch: Path) -> dict[str, Any]:
        """Three steps with each launch waited for, then in graphs; without graphs later on where only those fail."""
        found: dict[str, Any] = {}
        artifact = case["artifacts"][target]
        for graphs, env in (("off", ONE_BY_ONE), ("on", {"ODEC_GRAPHS": "on"})):
            out = scratch / graphs
            command = train(str(self.folder / artifact), self.folder, self.options.device, 3, out)
            label = f"smoke-{target}-graphs-{graphs}"
            try:
                done = self.odec(label, *command, env=env, artifact=artifact)
                if graphs == "off":
                    log = "\n".join(line for line in done.err.splitlines() if not line.startswith(BEGINS))
                    self.results.setdefault("module_log", {})[target] = log[-20000:]
                found[f"graphs_{graphs}_good"] = self.dry or self.begins_well(case, losses(out))
            except Failed as error:
                found |= {f"graphs_{graphs}_good": False, "why": str(error)}
                self.evidence.keep(label, error.done, str(error), self.folder / artifact)
                self.sanitized(label, command, artifact)
        if found["graphs_off_good"] and not found["graphs_on_good"]:
            self.graphs[target] = "off"
        return found

    def begins_well(self, case: dict[str, Any], ours: list[float]) -> bool:
        """Whether the first loss, that of the initial parameters, is the processor's."""
        return len(ours) == 3 and abs(ours[0] - case["losses"][0]) <= LOSS_BOUND * abs(case["losses"][0])

    def sanitized(self, label: str, command: list[str], artifact: str) -> None:
        """What NVIDIA's checker says of a command that failed, where there is one."""
        checker = shutil.which("compute-sanitizer")
        for tool in ("memcheck", "synccheck") if checker and self.number is not None else ():
            out = f"{command[command.index('--out') + 1]}-{tool}"
            again = [out if word == command[command.index("--out") + 1] else word for word in command]
            if self.left() > 5:
                done = execute([str(checker), "--tool", tool, *self.binary, *again], min(self.options.limit, self.left()), ONE_BY_ONE)
                self.evidence.log(f"{label}-{tool}", done)
                self.evidence.keep(f"{label}-{tool}", done, tool, self.folder / artifact)

    def kernels(self, case: dict[str, Any], target: str, _: Path) -> dict[str, Any]:
        """Launches of one kind of kernel of ragged sizes, from files; code for older cards runs here too."""
        kept = self.folder / "launches" / case["label"]
        if target == "sm_80" and kept.name.endswith("-sm_90a"):
            return {"launches": 0, "skipped_good": True}
        done = self.odec(f"kernels-{target}-{case['label']}", "replay", *OPENS, str(kept), "--device", self.options.device, env=ONE_BY_ONE)
        return {"launches": int(done.out.split(" launches,")[0].split()[-1]), "dry_good" if self.dry else "replay_good": True}

    def launches(self, case: dict[str, Any], target: str, scratch: Path) -> dict[str, Any]:
        """Every launch beside the reference device."""
        said = self.compared("launches", case, target, "--launches", "--dump", str(scratch / "dump"))
        if not said["computed"]:
            return {"launches": said["launches"], "dry_good": True}
        wrong = [f"{w['site']}: kernel {w['kernel']} {w['dims']}, operand {w['operand']}" for w in said["wrong"]]
        found = {key: said[key] for key in ("launches", "bounded", "worst", "failed")}
        return found | {"wrong": wrong, "first": said["wrong"][:1], "launches_good": said["good"]}

    def conformance(self, case: dict[str, Any], target: str, _: Path) -> dict[str, Any]:
        """Every entry beside the reference device."""
        said = self.compared("conformance", case, target, "--steps", "1")
        if not said["computed"]:
            return {"dry_good": True}
        results = said["results"]
        worst = max((r["apart"] if r["apart"] is not None else float("inf") for r in results), default=0.0)
        wrong = [r["what"] for r in results if not r["good"]]
        exact = sum(r["differ"] == 0 for r in results)
        return {"entries": len(results), "entries_exact": exact, "entries_apart": worst, "wrong": wrong, "entries_good": said["good"]}

    def compared(self, phase: str, case: dict[str, Any], target: str, *arguments: str) -> dict[str, Any]:
        """What `odec compare` says, also when it ends with a failure that it found."""
        artifact = case["artifacts"][target]
        command = [*self.opened("compare", artifact), "--json", *arguments]
        try:
            done = self.odec(f"{phase}-{target}-{case['label']}", *command, env=self.settings(target), artifact=artifact)
        except Failed as error:
            if error.done is None or not error.done.out.startswith("{"):
                raise
            done = error.done
        return json.loads(done.out)

    def settings(self, target: str) -> dict[str, str]:
        return {"ODEC_GRAPHS": self.graphs.get(target, "on")}

    def losses(self, case: dict[str, Any], target: str, scratch: Path) -> dict[str, Any]:
        """Two runs: the same bits, and the processor's losses."""
        steps, artifact, ours, hashes = self.plan["steps"], case["artifacts"][target], [], []
        for n in range(2):
            out, label = scratch / f"run-{n}", f"losses-{target}-{case['label']}"
            command = train(str(self.folder / artifact), self.folder, self.options.device, steps, out)
            self.odec(label, *command, env=self.settings(target), artifact=artifact)
            file = scratch / f"{n}.safetensors"
            self.odec(label, "export", str(out), "-o", str(file))
            hashes.append(digest(file))
            ours.append(losses(out))
        if len(ours[0]) != steps:
            raise Failed(f"{len(ours[0])} losses of {steps} steps")
        if self.dry:
            return {"dry_good": True}
        found: dict[str, Any] = {"losses": ours[0], "repeats_good": ours[0] == ours[1] and hashes[0] == hashes[1]}
        theirs = case.get("losses")
        if theirs:
            distances = [abs(a - b) / abs(b) for a, b in zip(ours[0], theirs, strict=True)]
            apart = statistics.mean(distances)
            found |= {"losses_furthest": max(distances), "losses_apart": apart}
            found["losses_good"] = apart <= (0.0 if case["precision"] == "f32" else LOSS_BOUND)
        return found

    def revolved(self) -> None:
        """Losses with states computed again, beside those with all states kept."""
        cases = {(r["target"], r["label"]): r for r in self.results["cases"] if r["phase"] == "losses"}
        for (target, label), result in cases.items():
            stored = cases.get((target, label.removesuffix("-revolve")))
            if result.get("revolve") and stored and "losses" in result and "losses" in stored:
                result["revolve_good"] = result["losses"] == stored["losses"]
                result["good"] = result["good"] and result["revolve_good"]
        self.save()

    def timed(self, phase: str, case: dict[str, Any], target: str, command: str, *arguments: str) -> dict[str, Any]:
        artifact = case["artifacts"][target]
        words = [*self.opened(command, artifact), "--json", *arguments]
        return json.loads(self.odec(f"{phase}-{target}-{case['label']}", *words, env=self.settings(target), artifact=artifact).out)

    def profile(self, case: dict[str, Any], target: str, _: Path) -> dict[str, Any]:
        """The time of each kernel of a training step, and PyTorch's for products and attention."""
        kernels = self.timed("profile", case, target, "profile", "--warmup", "2", "--steps", "3")["kernels"]
        if self.results["torch"].get("card") and self.number is not None and not self.dry:
            self.rivals(case, [k for k in kernels if k["entry"] == "grad"])
        return {"kernels": kernels}

    def rivals(self, case: dict[str, Any], kernels: list[dict[str, Any]]) -> None:
        """Tells kernels how long PyTorch takes for the same, in microseconds, where it has such a kernel."""
        kind = lambda k: k["kernel"].rpartition("_")[0]
        dims = [k["dims"] for k in kernels if kind(k) == "contract"]
        worker = Path(__file__).with_name("torch_kernels.py")
        done = execute([self.options.python, str(worker), json.dumps(case["shape"]), json.dumps(dims), str(self.number)], self.options.limit)
        self.evidence.log(f"profile-torch-{case['label']}", done)
        try:
            said = json.loads(done.out.splitlines()[-1])
        except (ValueError, IndexError):
            return
        for k in kernels:
            of = said["products"].get(" ".join(map(str, k["dims"]))) if kind(k) == "contract" else said.get(kind(k))
            if of:
                k["torch_us"] = of

    def generation(self, case: dict[str, Any], target: str, _: Path) -> dict[str, Any]:
        """Reading token by token."""
        return {"token_ms": self.timed("generation", case, target, "bench", "--warmup", "3", "--tokens", str(TOKENS))["token_ms_median"]}

    def speed(self, case: dict[str, Any], target: str, _: Path) -> dict[str, Any]:
        """A training step, then the rival's, and its reading."""
        tokens = case["shape"]["batch"] * case["shape"]["context"]
        # What others hold of the card meanwhile is not this model's.
        watched = None if self.rivals_under_way else self.number
        with self.turn(), Memory(watched) as memory:
            step = self.timed("speed", case, target, "bench", "--warmup", "3", "--steps", str(STEPS))
        rates = self.rates(case, step["step_ms_median"], tokens)
        found: dict[str, Any] = {"odec": rates | {"planned_bytes": step["planned_bytes"], "card_bytes": memory.most}}
        if case["label"] not in self.rivals_under_way:
            return found
        done = self.rivals_under_way[case["label"]].result()
        for mode in ("compile", "eager"):
            try:
                said = json.loads(done.out.splitlines()[-1])
                found["torch"] = said | self.rates(case, statistics.median(said["step_ms"]), tokens)
                break
            except (ValueError, IndexError, KeyError):
                found[f"torch_{mode}_why"] = done.why()[-600:]
            if mode == "compile" and self.left() > 5:
                done = self.rival(case, "eager")
        return found

    def rival(self, case: dict[str, Any], mode: str) -> Done:
        """PyTorch's step and reading."""
        worker = Path(__file__).with_name("torch_card.py")
        command = [self.options.python, str(worker), case["rival"], json.dumps(case["shape"]), str(self.number), str(STEPS), str(TOKENS), mode]
        # What compiles takes long, but not the card: it is asked for ahead.
        done = execute(command, min(RIVAL, self.left()), {"ODEC_TURN": str(self.turns)}, cwd=worker.parent)
        self.evidence.log(f"speed-torch-{mode}-{case['label']}", done)
        return done

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """While nobody else measures on this card."""
        with self.turns.open("w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def rates(self, case: dict[str, Any], ms: float, tokens: int) -> dict[str, Any]:
        """Tokens per second, and the part of the card's peak that the model's operations are."""
        per_second = tokens / ms * 1e3
        peak = next((peak for name, peak in PEAKS if name in self.card.get("name", "")), None)
        mfu = case["flops_per_token"] * per_second / (peak * 1e12) if peak else None
        return {"step_ms_median": ms, "tokens_per_s": per_second, "mfu": mfu}

    def cases(self, phase: str) -> list[dict[str, Any]]:
        """The cases of a phase, in order."""
        chosen = lambda case: not self.options.only or case["system"] in self.options.only
        conformance = list(filter(chosen, self.plan["conformance"]))
        # Small models of all systems come before the large ones.
        speed = sorted(filter(chosen, self.plan["speed"]), key=lambda case: case["parameters"])
        match phase:
            case "smoke":
                first = [case for case in conformance if not case["revolve"]]
                return [min(first, key=lambda case: (case["label"] != "prenorm-bf16", case["label"]))] if first else []
            case "kernels":
                kept = [] if self.options.only else sorted((self.folder / "launches").glob("*"))
                return [{"label": folder.name, "system": "kernels"} for folder in kept]
            case "launches":
                return list(filter(chosen, self.plan["launches"]))
            case "conformance":
                return conformance
            case "losses":
                # Those of models that read the text that travels.
                return [case for case in conformance if case["revolve"] or "losses" in case]
            case "profile":
                return [case for case in speed if case["system"] in PROFILED]
            case _:
                return speed

    def run_phase(self, phase: str, targets: list[str]) -> None:
        """All cases of a phase, for all kinds of code."""
        work = getattr(self, phase)
        rivals = self.cases(phase) if phase == "speed" and self.results["torch"].get("card") and self.number is not None else []
        ahead = ThreadPoolExecutor(RIVALS)
        self.rivals_under_way = {case["label"]: ahead.submit(self.rival, case, "compile") for case in rivals}
        every = [(phase, target, case, work) for target in targets for case in self.cases(phase)]
        with ThreadPoolExecutor(1 if phase in ALONE else self.options.jobs) as pool:
            list(pool.map(lambda arguments: self.case(*arguments), every))
        if phase == "losses":
            self.revolved()


def number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def verdict(r: dict[str, Any]) -> str:
    """What became of a case, in a cell of a table."""
    if r["good"]:
        return "launched, nothing computed" if "dry_good" in r else "good"
    why = r.get("why") or ", ".join(r.get("wrong") or []) or "WRONG: " + ", ".join(key for key in r if key.endswith("_good") and not r[key])
    return "**" + why.replace("\n", " ").replace("|", "/")[:160] + "**"


def table(head: str, rows: Iterable[str]) -> list[str]:
    """A table, where it has rows."""
    lines = [f"| {row} |" for row in rows]
    return ["", f"| {head} |", "|" + "---|" * (head.count("|") + 1), *lines] if lines else []


YES = {True: "same bits", False: "DIFFER", None: "–"}
SPEED = "model | parameters | batch × context | odec step ms | tokens/s | MFU | GiB planned, in use | PyTorch | step ms | tokens/s | MFU | GiB | token ms | PyTorch / odec | verdict"


def speed_row(r: dict[str, Any]) -> str:
    """A model's step beside PyTorch's."""
    ours, theirs, shape = r.get("odec"), r.get("torch"), r["shape"]
    gib = lambda n: number(n / 2**30 if n else None, ".1f")
    row = f"{r['label']} | {r['parameters'] / 1e6:.1f} M | {shape['batch']} × {shape['context']} | "
    if ours:
        row += f"{ours['step_ms_median']:.1f} | {ours['tokens_per_s']:,.0f} | {number(ours['mfu'], '.1%')} | {gib(ours['planned_bytes'])}, {gib(ours['card_bytes'])} | "
    else:
        row += "– | – | – | – | "
    if theirs:
        row += f"{theirs['mode']} | {theirs['step_ms_median']:.1f} | {theirs['tokens_per_s']:,.0f} | {number(theirs['mfu'], '.1%')} | "
        row += f"{gib(theirs['peak_bytes'])} | {number(theirs.get('token_ms'), '.3f')} | "
        row += f"{theirs['step_ms_median'] / ours['step_ms_median']:.2f}× | " if ours else "– | "
    else:
        row += "– | – | – | – | – | – | – | "
    return row + verdict(r)


def kernel_row(k: dict[str, Any]) -> str:
    return (
        f"`{k['kernel']}` {k['dims']} | {k['entry']} | {k['launches']} | {number(k['ms'], '.2f')} | {number(k['share'], '.1%')} | "
        f"{number(k['gflop_per_s'], ',.0f')} | {number(k['gbyte_per_s'], ',.0f')} | "
        f"{number(k['ms'] * 1e3 / k['launches'] if k['ms'] and k['launches'] else None, ',.0f')} | {number(k.get('torch_us'), ',.0f')}"
    )


def tables(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    card, torch = results["card"], results["torch"]
    about = f"{card['name']} (driver {card['driver_version']}, {card['memory.total']} MiB)" if card else results["device"]
    lines = [
        f"# {results['odec']} on {about}",
        "",
        f"{results['date']}; phase {results['phase']}; code for {', '.join(results['targets'])}; PyTorch {torch.get('version', 'absent')} (CUDA {torch.get('cuda', '–')}).",
        f"Conformance covers {len(results['ops'])} ops: {', '.join(results['ops'])}.",
        "",
        *summary(results),
    ]
    for target in results["targets"]:
        of = lambda phase: sorted((r for r in results["cases"] if (r["target"], r["phase"]) == (target, phase)), key=lambda r: r["label"])
        lines += ["", f"## {target}"]
        lines += table("three steps | launches waited for | in graphs | verdict", (
            f"{r['label']} | {r.get('graphs_off_good', '–')} | {r.get('graphs_on_good', '–')} | {verdict(r)}" for r in of("smoke")
        ))
        lines += table("single kernels | launches | verdict", (f"{r['label']} | {r.get('launches', '–')} | {verdict(r)}" for r in of("kernels")))
        lines += table("every launch of | launches | on tensor cores | most of a bound used | wrong | verdict", (
            f"{r['label']} | {r.get('launches', '–')} | {r.get('bounded', '–')} | {number(r.get('worst'), '.0%')} | {r.get('failed', '–')} | {verdict(r)}"
            for r in of("launches")
        ))
        lines += table("every entry of | exact | worst | verdict", (
            f"{r['label']} | {r.get('entries_exact', '–')} of {r.get('entries', '–')} | {number(r.get('entries_apart'), '.1e')} | {verdict(r)}"
            for r in of("conformance")
        ))
        lines += table(f"losses of {results['steps']} steps | mean distance | two runs | revolve = store | verdict", (
            f"{r['label']} | {number(r.get('losses_apart'), '.1e')} | {YES[r.get('repeats_good')]} | {YES[r.get('revolve_good')]} | {verdict(r)}"
            for r in of("losses")
        ))
        for r in of("profile"):
            lines += ["", f"Kernels of a step of {r['label']}, the {SHOWN} longest, each launch between two events, outside of graphs: {verdict(r)}"]
            lines += table("kernel | entry | launches | ms | share | Gflop/s | GB/s | µs a launch | PyTorch µs", map(kernel_row, r.get("kernels", [])[:SHOWN]))
        lines += table(SPEED, map(speed_row, of("speed")))
        lines += table("reading token by token | ms | verdict", (
            f"{r['label']} | {number(r.get('token_ms'), '.3f')} | {verdict(r)}" for r in of("generation")
        ))
    notes = "MFU counts the model's operations as `odec check` does, without what is computed again, over the data sheet's peak."
    return "\n".join([*lines, "", notes]) + "\n"


def summary(results: dict[str, Any]) -> list[str]:
    """A line for each kind of code and phase: each is judged by itself."""
    lines = []
    for target in results["targets"]:
        for phase in PHASES:
            cases = [r for r in results["cases"] if (r["target"], r["phase"]) == (target, phase)]
            bad = [r["label"] for r in cases if not r["good"]]
            if cases:
                verdict = f"{len(cases) - len(bad)} of {len(cases)} good"
                lines.append(f"{target}  {phase:<12} {verdict}" + (f"; FAILED: {', '.join(bad)}" if bad else ""))
    return lines


def run(options: argparse.Namespace) -> int:
    if not (options.folder / "plan.json").is_file():
        print(f"{options.folder} was not made by `gpu.sh prepare`: it has no plan.json", file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        session = Session(options)
        session.find_card()
        targets = session.targets()
        if not targets:
            raise Failed(f"none of {', '.join(session.plan['targets'])} is for this card, {session.card['name']}")
        session.device_there(targets[0])
    except Failed as why:
        reason = str(why).splitlines()[0].removeprefix("error: ")
        print(f"nothing can be measured on {options.device}: {reason}", file=sys.stderr)
        return 1
    session.describe(targets)
    for phase, share in PHASES.items():
        if options.phase in (phase, "all"):
            session.ends = options.budget * (share if options.phase == "all" else 1.0)
            session.run_phase(phase, targets)
    seconds = time.monotonic() - session.began
    session.results |= {"seconds": round(seconds, 1), "left_out": session.evidence.left_out}
    session.save()
    text = tables(session.results)
    (session.out / "results.md").write_text(text, encoding="utf-8")
    print(text)
    print("\n".join(summary(session.results)))
    bad = sum(not r["good"] for r in session.results["cases"])
    print(f"{session.out}: {len(session.results['cases'])} cases, {bad} failed, {seconds:.0f} s")
    return int(bad > 0 or not session.results["cases"])
