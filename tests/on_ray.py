#!/usr/bin/env python3
"""Explorations on two local Ray nodes, whose workers are killed:  on_ray.py ODEC

Compares everything with an exploration of this process alone: parameters of all trials bit for bit, and the ranking. Kills in mid-trial a worker (also of a Ray client), a trial's
own process, a node, and odec itself; stops by Ctrl-C. Nothing may be lost or trained anew. Needs tests/on_ray.txt (`make ray`)."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ray.cluster_utils import Cluster

MODEL = """
field att = rmsnorm |> attention(heads: 2, causal, rope)
field ffn = rmsnorm |> swiglu(hidden: 24)

model tiny {
  input  tokens(vocab: 256, context: 16)
  embed  learned(width: 16)
  evolve lie(att, ffn) for 2 steps { h = 1;  weights per step }
  output rmsnorm |> logits(tied)
}

train {
  data      text("corpus.txt", tokenizer: bytes)
  loss      cross_entropy
  optimizer adamw(lr: 1e-2)
  batch 4;  steps 300
}

explore {
  scheme in [lie(att, ffn), strang(ffn, att)]
  seed   in 0..2
  SEARCH
}
"""
# After a step a checkpoint: what a trial has done is what it has saved.
RAY = ["--engine", "ray", "--checkpoint-every", "0"]
# Of anything that is waited for, in seconds. Nothing here takes a tenth of it.
PATIENCE = 300


def fail(said):
    raise SystemExit(f"on_ray.py: {said}")


def until(what, holds):
    """Waits for something, and gives it."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := holds():
            return found
        time.sleep(0.02)
    fail(f"{what}: not after {PATIENCE} s")


def trials_under_way(odec):
    """Processes that train: their number, their parent's, and their run's hash."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if words[:2] != [str(odec).encode(), b"__trial"]:
                continue
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            opened = " ".join(os.readlink(link) for link in (entry / "fd").iterdir())
        except (OSError, ValueError):
            continue
        run = re.search(r"/trials/([0-9a-f]{16})/", opened)
        found.append((int(entry.name), parent, run and run[1]))
    return found


def steps(folder, trial):
    """The last step in a run's metrics."""
    try:
        text = (folder / "trials" / trial / "metrics.jsonl").read_text()
    except OSError:
        return 0
    found = re.findall(r'^\{"step":(\d+),', text, re.MULTILINE)
    return int(found[-1]) if found else 0


def tensors(folder):
    """The tensors of all trials; what else is in a checkpoint are seconds."""
    found = {}
    for trial in sorted((folder / "trials").iterdir()):
        data = (trial / "checkpoint.safetensors").read_bytes()
        found[trial.name] = data[8 + int.from_bytes(data[:8], "little") :]
    return found


class Place:
    def __init__(self, odec, folder):
        self.odec, self.folder = odec, folder
        (folder / "corpus.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 200)
        (folder / "e.ode").write_text(MODEL.replace("SEARCH", ""))
        (folder / "h.ode").write_text(MODEL.replace("SEARCH", "search halving(factor: 2, rungs: 2)"))

    def start(self, out, *options, file="e.ode"):
        known = {**os.environ, "ODEC_PYTHON": sys.executable}
        command = [str(self.odec), "explore", file, "--out", out, "--json", *options]
        return subprocess.Popen(command, cwd=self.folder, env=known, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def good(self, out, *options, file="e.ode"):
        self.finished(self.start(out, *options, file=file), out)

    def finished(self, process, out, code=0):
        printed, wrong = process.communicate(timeout=PATIENCE)
        if process.returncode != code:
            log = self.folder / out / "ray.log"
            fail(f"{out} ended with {process.returncode}, not {code}\n{printed}\n{wrong}\n{log.read_text() if log.exists() else ''}")

    def compare(self, out, whole="whole"):
        if tensors(self.folder / whole) != tensors(self.folder / out):
            fail(f"{out}: other parameters than {whole}")
        for name in ["ranking.json", "promotions.json"]:
            known, found = [self.folder / e / name for e in (whole, out)]
            if known.exists() and known.read_bytes() != found.read_bytes():
                fail(f"{out}: another {name} than {whole}")

    def in_mid_trial(self, out, process, but=()):
        """A trial that has some steps and no result: its process, its worker, its hash and how far it is."""
        folder = self.folder / out

        def found():
            if process.poll() is not None:
                fail(f"{out} ended before anything could be killed: {process.communicate()}")
            for child, worker, trial in trials_under_way(self.odec):
                done = steps(folder, trial) if trial and trial not in but else 0
                if 20 <= done <= 250:
                    return child, worker, trial, done
            return None

        return until("a trial under way", found)

    def goes_on(self, out, process, trial, done):
        """Watches a trial until it has a result: it never stands before where it was."""
        folder = self.folder / out
        result = folder / "results" / f"{trial}.json"
        least = done

        def found():
            nonlocal least
            least = min(least, steps(folder, trial))
            return result.exists() or process.poll() is not None

        until(f"the result of {trial}", found)
        # The step that was under way may be lost.
        if least < done - 1:
            fail(f"{out}: {trial} went back from step {done} to {least}")
        print(f"   {trial} killed at step {done}, went on from step {least}", flush=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    odec = Path(sys.argv[1]).resolve()
    port = free_port()
    head = {"num_cpus": 1, "include_dashboard": False, "ray_client_server_port": port}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        with tempfile.TemporaryDirectory() as folder:
            check(Place(odec, Path(folder)), cluster, second, f"ray://127.0.0.1:{port}")
    finally:
        cluster.shutdown()


def check(place, cluster, second, client):
    print("in this process", flush=True)
    place.good("whole")
    place.good("halved", "--jobs", "1", file="h.ode")

    print("a worker is killed, then a trial's own process", flush=True)
    process = place.start("killed", *RAY)
    child, worker, trial, done = place.in_mid_trial("killed", process)
    name = Path(f"/proc/{worker}/cmdline").read_bytes()
    if not name.startswith(b"ray::"):
        fail(f"{worker} is no worker of Ray: {name}")
    os.kill(worker, signal.SIGKILL)
    place.goes_on("killed", process, trial, done)
    child, worker, other, done = place.in_mid_trial("killed", process, but=[trial])
    os.kill(child, signal.SIGKILL)
    place.goes_on("killed", process, other, done)
    place.finished(process, "killed")
    place.compare("killed")

    print("odec is killed, then stopped by Ctrl-C, then goes on", flush=True)
    process = place.start("again", *RAY)
    place.in_mid_trial("again", process)
    process.kill()
    process.communicate()
    until("nothing goes on without odec", lambda: not trials_under_way(place.odec))
    process = place.start("again", *RAY)
    place.in_mid_trial("again", process)
    process.send_signal(signal.SIGINT)
    place.finished(process, "again", code=128 + signal.SIGINT)
    until("nothing goes on behind Ctrl-C", lambda: not trials_under_way(place.odec))
    process = place.start("again", *RAY)
    place.finished(process, "again")
    place.compare("again")

    print("successive halving", flush=True)
    place.good("rungs", *RAY, "--jobs", "1", file="h.ode")
    place.compare("rungs", "halved")

    print("a node is lost", flush=True)
    process = place.start("lost", *RAY)
    until("two at once", lambda: len(trials_under_way(place.odec)) == 2)
    place.in_mid_trial("lost", process)
    cluster.remove_node(second, allow_graceful=False)
    place.finished(process, "lost")
    place.compare("lost")

    print("a client, of which a worker is killed", flush=True)
    process = place.start("client", *RAY[2:], "--engine", client)
    child, worker, trial, done = place.in_mid_trial("client", process)
    os.kill(worker, signal.SIGKILL)
    place.goes_on("client", process, trial, done)
    place.finished(process, "client")
    place.compare("client")
    print("good", flush=True)


main()
