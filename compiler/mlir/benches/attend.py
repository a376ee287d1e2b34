"""Attention against PyTorch's scaled_dot_product_attention, one thread, interleaved, as ratios.

usage: attend.py PATH_TO_EXAMPLE_kernels [--batch 8 --seq 256 --heads 4 --head 64] [--rounds 15] [--target cpu] [--full]

GFLOP/s count the products under the causal mask only (half of the square, plus the diagonal): two per pair of a query
and a key forward, five backward.
"""

import argparse, ctypes, json, subprocess, tempfile, time
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

ap = argparse.ArgumentParser()
ap.add_argument("kernels")
for name, value in [("batch", 8), ("seq", 256), ("heads", 4), ("head", 64), ("rounds", 15)]:
    ap.add_argument("--" + name, type=int, default=value)
ap.add_argument("--target", default="cpu")
ap.add_argument("--full", action="store_true", help="no causal mask")
args = ap.parse_args()
torch.set_num_threads(1)
B, S, H, D = args.batch, args.seq, args.heads, args.head
scale = D**-0.5

common = dict(dtype="f32", heads=H, head=D, causal=not args.full, scale=scale)
specs = [dict(kind="attend", **common), dict(kind="attend_backward", **common)]
so = tempfile.mktemp(suffix=".so")
start = time.time()
symbols = subprocess.run([args.kernels, args.target, so], input=json.dumps(specs), text=True, check=True,
                         stdout=subprocess.PIPE).stdout.split()
print(f"compiled in {time.time() - start:.2f} s")
lib = ctypes.CDLL(so)
padded = -(-D // 16) * 16
scratch = torch.zeros(16 * 64 * padded + 4 * 64 * 64 + 2 * (S + 64) * padded + 1024)
scratch = scratch[(-scratch.data_ptr() % 64) // 4:]


def launcher(symbol, operands, tiles):
    f = lib[symbol]
    pointers = (ctypes.c_void_p * len(operands))(*[x.data_ptr() for x in operands])
    sizes = (ctypes.c_int64 * 2)(B, S)
    return lambda: f(pointers, sizes, None, ctypes.c_int64(0), ctypes.c_int64(tiles), ctypes.c_void_p(scratch.data_ptr()))


def timed(f, reps):
    f()
    t = time.perf_counter()
    for _ in range(reps):
        f()
    return (time.perf_counter() - t) / reps


q, k, v, d_o = (torch.randn(B, S, H * D) for _ in range(4))
o, d_q, d_k, d_v = (torch.full((B, S, H * D), float("nan")) for _ in range(4))
lse = torch.zeros(B, S, H)
forward = launcher(symbols[0], [q, k, v, o, lse], B * H * -(-S // 64))
backward = launcher(symbols[1], [q, k, v, o, lse, d_o, d_q, d_k, d_v], B * H)
heads = lambda x: x.view(B, S, H, D).transpose(1, 2)
leaves = [heads(x).detach().requires_grad_() for x in (q, k, v)]
causal = not args.full
with torch.no_grad():
    torch_forward = lambda: sdpa(heads(q), heads(k), heads(v), is_causal=causal)
def torch_f():
    with torch.no_grad():
        return sdpa(leaves[0], leaves[1], leaves[2], is_causal=causal)
out = sdpa(*leaves, is_causal=causal)
torch_b = lambda: torch.autograd.grad(out, leaves, heads(d_o), retain_graph=True)
forward(), backward()
want = torch_b()
print("error", (heads(o) - out).abs().max().item(), *[(heads(g) - w).abs().max().item() for g, w in zip((d_q, d_k, d_v), want)])

pairs = B * H * (S * S if args.full else S * (S + 1) // 2)
for name, ours, theirs, products in [("forward", forward, torch_f, 2), ("backward", backward, torch_b, 5)]:
    work = 2e-9 * pairs * D * products
    reps = max(1, int(0.02 / (work / 60)))
    times = {"ours": [], "torch": []}
    for _ in range(args.rounds):
        times["torch"].append(timed(theirs, reps))
        times["ours"].append(timed(ours, reps))
    best = {f: min(t) for f, t in times.items()}
    median = sorted(t / o for t, o in zip(times["torch"], times["ours"]))[args.rounds // 2]
    print(f"{name:9} ours {best['ours'] * 1e3:7.3f} ms {work / best['ours']:6.1f} GF/s   torch {best['torch'] * 1e3:7.3f} ms"
          f" {work / best['torch']:6.1f} GF/s   ratio {best['torch'] / best['ours']:.2f} (median {median:.2f})")
