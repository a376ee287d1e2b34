"""One PyTorch rival, kept alive between rounds.

    torch_worker.py SYSTEM PRECISION MODE SHAPE_JSON THREADS

PRECISION is `f32`, or `bf16`: the model runs under `torch.autocast`, with parameters and gradients in f32. MODE is `eager` or `compile`. Builds the model, warms up (compiling if asked), prints `{"torch": …, "warm_up_s": …}`, and
then answers every line on stdin with a line of JSON:

    steps N           runs N training steps (forward, backward, clipping to norm 1, AdamW), each on a fresh random batch:
                      {"ms": [N times], "loss": …, "peak_bytes": …, "import_bytes": …}
    tokens N BATCH    reads BATCH texts token by token, N tokens each, with keys and values in buffers of a fixed size;
                      in bf16 the whole model is bf16: {"ms": [N times]}
    loss FILE         takes parameters and a batch from a safetensors file: {"loss": …}

`peak_bytes` is the process's high-water mark since the warm-up, `import_bytes` what `import torch` alone held. End of
input ends it.
"""

import json
import sys
import time
from typing import Any

import torch
from safetensors.torch import load_file
from torch_mixture import Experts
from torch_models import Shape
from torch_translator import Pairs
from torch_vit import Images


def status_bytes(key: str) -> int:
    """A memory line of /proc/self/status, in bytes."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    raise KeyError(key)


def shape_of(system: str, sizes: dict[str, int]) -> Shape | Images:
    """The sizes of a system of `bench.py`."""
    return {"vit": Images, "translator": Pairs, "mixture": Experts}.get(system, Shape)(**sizes)


class Trainer:
    """A model, its optimiser, and the training step that is timed."""

    def __init__(self, system: str, precision: str, mode: str, shape: Shape | Images):
        torch.manual_seed(0)
        self.autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16")
        self.shape, self.system, self.precision, self.mode = shape, system, precision, mode
        self.readers: dict[int, Any] = {}
        self.model = shape.model(system)
        self.matrices = [p for p in self.model.parameters() if p.ndim > 1]
        self.vectors = [p for p in self.model.parameters() if p.ndim < 2]
        groups = [{"params": self.matrices, "weight_decay": 0.1}, {"params": self.vectors, "weight_decay": 0.0}]
        # Of PyTorch's three implementations the fused one is the fastest on a CPU: one pass over memory.
        self.optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
        self.loss = torch.compile(self.model, dynamic=False) if mode == "compile" else self.model

    def step(self, batch: dict[str, torch.Tensor]) -> float:
        with self.autocast:
            loss = self.loss(*batch.values())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.matrices + self.vectors, 1.0, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def timed(self, steps: int) -> dict[str, Any]:
        times, loss = [], float("nan")
        for _ in range(steps):
            batch = self.shape.draw()
            start = time.perf_counter()
            loss = self.step(batch)
            times.append((time.perf_counter() - start) * 1e3)
        return {"ms": times, "loss": loss, "peak_bytes": status_bytes("VmHWM")}

    @torch.no_grad()
    def read(self, tokens: int, batch: int) -> dict[str, Any]:
        if batch not in self.readers:
            dtype = torch.bfloat16 if self.precision == "bf16" else torch.float32
            model = self.shape.model(self.system).to(dtype).eval()
            read = torch.compile(model.read, dynamic=False) if self.mode == "compile" else model.read
            self.readers[batch] = (model, model.buffers_for(batch, dtype), model.buffers_for(batch, dtype), read)
        model, keys, values, read = self.readers[batch]
        places = torch.arange(self.shape.context)
        times = []
        for n in range(tokens):
            position = n % self.shape.context
            text = torch.randint(self.shape.vocab, (batch, 1))
            start = time.perf_counter()
            # Compiled code has shapes that do not change; eager code reads no more keys than there are.
            end = 0 if self.mode == "compile" else position + 1
            kept = (keys, values, places[position : position + 1].clone(), (places <= position)[None, None, None], end)
            read(text, model.cos[position : position + 1].clone(), model.sin[position : position + 1].clone(), kept)
            times.append((time.perf_counter() - start) * 1e3)
        return {"ms": times}

    @torch.no_grad()
    def loss_of(self, path: str) -> dict[str, Any]:
        tensors = load_file(path)
        batch = {name: tensors.pop(name).view(x.shape).to(x.dtype) for name, x in self.shape.draw().items()}
        self.model.load(tensors)
        self.model.eval()
        with self.autocast:
            loss = self.model(*batch.values()).item()
        self.model.train()
        return {"loss": loss}


def main() -> None:
    system, precision, mode, shape, threads = sys.argv[1:6]
    torch.set_num_threads(int(threads))
    torch.set_flush_denormal(True)
    imported = status_bytes("VmRSS")
    if mode == "compile":
        from torch._dynamo import config as dynamo
        from torch._inductor import config

        # Where no gradient is asked, weights are constants that the compiler may pack.
        config.freezing = True
        # How many rows experts have stays in the graph.
        dynamo.capture_scalar_outputs = True
    trainer = Trainer(system, precision, mode, shape_of(system, json.loads(shape)))
    began = time.perf_counter()
    for _ in range(3):
        trainer.step(trainer.shape.draw())
    # The compiler's own memory is no part of a training step: forget the high-water mark it left.
    with open("/proc/self/clear_refs", "w", encoding="ascii") as clear:
        clear.write("5")
    answer = {"torch": torch.__version__, "warm_up_s": time.perf_counter() - began}
    print(json.dumps(answer), flush=True)
    for line in sys.stdin:
        verb, argument = line.rstrip("\n").split(" ", 1)
        match verb:
            case "steps":
                answer = trainer.timed(int(argument))
            case "tokens":
                answer = trainer.read(*map(int, argument.split()))
            case _:
                answer = trainer.loss_of(argument)
        print(json.dumps(answer | {"import_bytes": imported}), flush=True)


if __name__ == "__main__":
    main()
