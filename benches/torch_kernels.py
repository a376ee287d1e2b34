"""What PyTorch takes for single kernels of a training step on a card: products by cuBLAS, attention by the fastest of its own.

    torch_kernels.py SHAPE_JSON DIMS_JSON CARD

SHAPE has `batch`, `context`, `width` and `heads`; DIMS is a list of `[m, n, k]`. Factors and results are bf16, sums f32; a product whose
inner index counts tokens has its factors across that, as the gradient of a weight does. Prints a line of JSON: microseconds of each product, by
`m n k`, and of attention forward and backward.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

ROUNDS = 20


def microseconds(work: Callable[[], Any]) -> float:
    """The mean of several launches that are queued together."""
    for _ in range(3):
        work()
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    first.record()
    for _ in range(ROUNDS):
        work()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / ROUNDS * 1e3


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def product(m: int, n: int, k: int, tokens: int) -> float:
    """A product of m × n elements over k."""
    if k == tokens:
        a, b = drawn(k, m), drawn(k, n)
        return microseconds(lambda: a.T @ b)
    a, b = drawn(m, k), drawn(n, k)
    return microseconds(lambda: a @ b.T)


def attention(shape: dict[str, int]) -> tuple[float, float]:
    """Causal attention forward, and its gradients alone."""
    heads = shape["heads"]
    size = (shape["batch"], heads, shape["context"], shape["width"] // heads)
    q, k, v = (drawn(*size).requires_grad_() for _ in range(3))
    attend = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    o = attend()
    d = torch.randn_like(o)
    with torch.no_grad():
        forward = microseconds(attend)
    return forward, microseconds(lambda: torch.autograd.grad(o, (q, k, v), d, retain_graph=True))


def main() -> None:
    shape, dims, card = json.loads(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
    torch.cuda.set_device(card)
    torch.manual_seed(0)
    tokens = shape["batch"] * shape["context"]
    products = {f"{m} {n} {k}": product(m, n, k, tokens) for m, n, k in dims}
    forward, backward = attention(shape)
    print(json.dumps({"products": products, "attend": forward, "attend_backward": backward}))


if __name__ == "__main__":
    main()
