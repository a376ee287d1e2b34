"""PyTorch on a card, as fast as a user can have it: one training step and the reading of single tokens.

    torch_card.py SYSTEM SHAPE_JSON CARD STEPS TOKENS MODE

Parameters in f32, products in bf16 (autocast), fused attention (`scaled_dot_product_attention`), fused AdamW, clipping to
norm 1; MODE `compile` compiles model and step, `eager` does not. The whole step, and the reading of a token, are each captured into a
CUDA graph and replayed, unless that fails, which the answer says. Reading keeps keys and values in bf16 for the whole context and uses
parameters in bf16. What is timed waits until nobody else is: `ODEC_TURN` names a file that is locked meanwhile. Prints a line of JSON: `step_ms`, `token_ms`, `peak_bytes`, `mode`, `graphs`.
"""

import contextlib
import fcntl
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_models import Attention, Decoder, Shape, rotate


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """While nobody else measures on this card."""
    name = os.environ.get("ODEC_TURN")
    if name is None:
        yield
        return
    with open(name, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def captured(work: Callable[[], Any]) -> tuple[Callable[[], Any], bool]:
    """A replay of the work as a CUDA graph, or the work itself where it cannot be captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
    except RuntimeError as why:
        print(f"no graph: {why}", file=sys.stderr)
        torch.cuda.synchronize()
        return work, False
    return graph.replay, True


class Training:
    """The step that is timed."""

    def __init__(self, system: str, shape: Shape, compiled: bool):
        self.model = Decoder(shape, system).cuda()
        matrices = [p for p in self.model.parameters() if p.ndim == 2]
        vectors = [p for p in self.model.parameters() if p.ndim != 2]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
        self.parameters = matrices + vectors
        self.optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True, capturable=True)
        self.loss_of = torch.compile(self.model, dynamic=False) if compiled else self.model
        size = (shape.batch, shape.context + 1)
        self.draw = lambda: torch.randint(shape.vocab, size).pin_memory()
        self.text = self.draw().cuda()
        self.loss = torch.zeros((), device="cuda")
        self.step, self.graphs = captured(self.work)

    def work(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = self.loss_of(self.text[:, :-1], self.text[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimizer.step()
        self.loss.copy_(loss.detach())

    def timed(self, steps: int) -> list[float]:
        times = []
        for n in range(steps + 3):
            batch = self.draw()
            torch.cuda.synchronize()
            start = time.perf_counter()
            self.text.copy_(batch, non_blocking=True)
            self.step()
            self.loss.item()
            if n >= 3:
                times.append((time.perf_counter() - start) * 1e3)
        return times


class Kept(nn.Module):
    """Attention of one token to those before it, whose keys and values are kept, evaluation by evaluation."""

    def __init__(self, attention: Attention, evaluations: int, context: int, position: Tensor):
        super().__init__()
        self.attention, self.evaluations, self.position, self.turn = attention, evaluations, position, 0
        size = attention.out.weight.shape[0] // attention.heads
        shape = (evaluations, 2, 1, attention.heads, context, size)
        self.register_buffer("kept", torch.zeros(shape, device="cuda", dtype=torch.bfloat16), persistent=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, _: None = None) -> Tensor:
        a, (batch, tokens, width) = self.attention, x.shape
        qkv = a.qkv(a.norm(x)).view(batch, tokens, 3, a.heads, width // a.heads).permute(2, 0, 3, 1, 4)
        q, k = rotate(qkv[:2], cos[self.position].to(x.dtype), sin[self.position].to(x.dtype)).unbind(0)
        keys, values = self.kept[self.turn % self.evaluations]
        self.turn += 1
        keys.index_copy_(2, self.position, k)
        values.index_copy_(2, self.position, qkv[2])
        seen = torch.arange(keys.shape[2], device=x.device)[None, :] <= self.position[:, None]
        o = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen)
        return a.out(o.transpose(1, 2).reshape(batch, tokens, width))


class Reading:
    """Single tokens, one after the other."""

    def __init__(self, system: str, shape: Shape, compiled: bool):
        self.model = Decoder(shape, system).cuda().bfloat16().eval().requires_grad_(False)
        self.position = torch.zeros(1, dtype=torch.long, device="cuda")
        self.token = torch.zeros((1, 1), dtype=torch.long, device="cuda")
        evaluations = {"rk2": 2, "rk4": 4, "iiet": 4, "pcformer": 3}.get(system, 1)
        for step in self.model.steps:
            step.att = Kept(step.att, evaluations, shape.context, self.position)
        self.logits = torch.zeros((1, shape.vocab), device="cuda")
        self.read = torch.compile(self.model.logits, dynamic=False) if compiled else self.model.logits
        self.context = shape.context
        with torch.no_grad():
            self.step, self.graphs = captured(self.work)

    def work(self) -> None:
        for step in self.model.steps:
            step.att.turn = 0
        self.logits.copy_(self.read(self.token)[:, -1])

    def timed(self, tokens: int) -> list[float]:
        times = []
        with torch.no_grad():
            for n in range(min(tokens + 3, self.context)):
                torch.cuda.synchronize()
                start = time.perf_counter()
                self.position.fill_(n)
                self.step()
                self.logits.cpu()
                if n >= 3:
                    times.append((time.perf_counter() - start) * 1e3)
        return times


def main() -> None:
    system, shape, card, steps, tokens, mode = sys.argv[1:7]
    torch.cuda.set_device(int(card))
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    sizes, compiled = Shape(**json.loads(shape)), mode == "compile"
    training = Training(system, sizes, compiled)
    torch.cuda.reset_peak_memory_stats()
    with turn():
        answer: dict[str, Any] = {"step_ms": training.timed(int(steps)), "graphs": training.graphs}
    # A replayed graph allocates nothing anew: what it reserved is its peak.
    answer["peak_bytes"] = max(torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved())
    answer["mode"] = f"{mode}{', graph' if training.graphs else ''}"
    del training
    torch.cuda.empty_cache()
    try:
        reading = Reading(system, sizes, compiled)
        with turn():
            answer |= {"token_ms": statistics.median(reading.timed(int(tokens))), "token_graphs": reading.graphs}
    except Exception as why:  # noqa: BLE001: whatever it is, steps were measured
        answer["token_why"] = f"{type(why).__name__}: {why}"[-300:]
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
