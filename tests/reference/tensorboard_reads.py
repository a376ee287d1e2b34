#!/usr/bin/env python3
"""TensorBoard reads what `odec export --metrics tensorboard` writes:  tensorboard_reads.py ODEC

Trains a small model twice, exports what was logged, and compares what TensorBoard's own reader finds with `metrics.jsonl`: every tag, step,
time and number. Needs tests/reference/tensorboard.txt (`make tensorboard`)."""

import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

MODEL = """
field att = rmsnorm |> attention(heads: 2, causal, rope)
field ffn = rmsnorm |> swiglu(hidden: 24)

model tiny {
  input  tokens(vocab: 256, context: 16)
  embed  learned(width: 16)
  evolve lie(att, ffn) for 2 steps { h = 1;  weights per step;  report size = square }
  output rmsnorm |> logits(tied)
}

train {
  data      text("corpus.txt", tokenizer: bytes)
  loss      cross_entropy
  optimizer adamw(lr: 1e-2)
  batch 4;  steps 40
}
"""
TAGS = {
    "loss": "loss/training", "lr": "learning_rate", "grad_norm": "gradient_norm", "tokens_per_s": "tokens_per_s", "flops": "flops", "flop_per_s": "flop_per_s",
    "held_out_loss": "loss/held_out",
}


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def said(lines):
    """The numbers of a run's metrics: by tag, a list of step, time and number."""
    found = {}
    for line in lines:
        numbers = [(TAGS[key], x) for key, x in line.items() if key in TAGS]
        of = "held_out_reports" if "held_out_loss" in line else "reports"
        numbers += [(f"{of}/{name}/{n}", x) for name, each in line.get("reports", {}).items() for n, x in enumerate(each)]
        numbers += [(f"{of}/{path}", x) for of in ("update_to_weight", "coefficients") for path, x in line.get(of, {}).items()]
        for tag, x in numbers:
            found.setdefault(tag, []).append((line["step"], line["seconds"], f32(x)))
    return found


def main(odec):
    odec = Path(odec).resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "tiny.ode").write_text(MODEL)
        (folder / "corpus.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 200)

        def run(*args):
            subprocess.run([odec, *args], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        for seed in "01":
            run("train", "tiny.ode", "--set", f"train.seed={seed}", "--out", f"runs/seed{seed}")
        run("export", "runs", "--metrics", "tensorboard", "-o", "events")
        read = EventMultiplexer(size_guidance={"scalars": 0}).AddRunsFromDirectory(str(folder / "events")).Reload()
        assert sorted(read.Runs()) == ["seed0", "seed1"], read.Runs()
        count = 0
        for name, tags in read.Runs().items():
            lines = [json.loads(l) for l in (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()]
            want = said(lines)
            assert sorted(tags["scalars"]) == sorted(want), (sorted(tags["scalars"]), sorted(want))
            start = read.Scalars(name, "loss/training")[0].wall_time - lines[0]["seconds"]
            for tag, numbers in want.items():
                events = read.Scalars(name, tag)
                assert [(e.step, e.value) for e in events] == [(s, x) for s, _, x in numbers], (name, tag)
                for event, (_, seconds, _) in zip(events, numbers):
                    assert abs(event.wall_time - start - seconds) < 1e-4, (name, tag, event.wall_time - start, seconds)
                count += len(events)
        print(f"TensorBoard reads {count} numbers of {len(read.Runs())} runs as they were logged")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
