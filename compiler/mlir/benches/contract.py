"""Contractions of a Transformer against PyTorch, one thread, interleaved, as ratios.

usage: contract.py PATH_TO_EXAMPLE_kernels [--mr 14 --nr 32 --kc 256 --nc 512] [--rounds 15] [--target cpu]

For each layer shape: forward (A·Bᵀ, weights [out, in]), input gradient (A·B), weight gradient (Aᵀ·B). Ours includes
packing B in the column `with pack`; programs pack a weight once per step and use it in every evaluation.

Mind what PyTorch runs: MKL takes its AVX2 path on processors that are not Intel's, at half the speed of its AVX-512 one. Preloading
a library that defines `int mkl_serv_intel_cpu_true(void) { return 1; }` makes it take the faster one.
"""

import argparse, ctypes, json, subprocess, tempfile, time
import torch

ap = argparse.ArgumentParser()
ap.add_argument("kernels")
for name, value in [("mr", 14), ("nr", 32), ("kc", 256), ("nc", 512), ("rounds", 15), ("tokens", 2048)]:
    ap.add_argument("--" + name, type=int, default=value)
ap.add_argument("--target", default="cpu")
ap.add_argument("--only", default="")
args = ap.parse_args()
torch.set_num_threads(1)
T = args.tokens
block = dict(mr=args.mr, nr=args.nr, kc=args.kc, nc=args.nc)

# name, m, n, k, A transposed, B transposed; dynamic rows or inner length as in programs
cases = []
for out, inp in [(256, 256), (704, 256), (256, 704)]:
    cases.append((f"forward {out}x{inp}", T, out, inp, False, True))
    cases.append((f"dgrad   {out}x{inp}", T, inp, out, False, False))
    cases.append((f"wgrad   {out}x{inp}", out, inp, T, True, False))
cases = [c for c in cases if args.only in c[0]]

specs = []
for _, m, n, k, ta, tb in cases:
    extent = lambda x: "dynamic" if x == T else {"static": x}
    specs.append(dict(kind="pack", dtype="f32", n=extent(n), k=extent(k), nr=args.nr, transposed=tb))
    specs.append(dict(kind="contract", dtype="f32", m=extent(m), n=extent(n), k=extent(k), a_transposed=ta,
                      accumulate=False, blocking=block, epilogue=None))
so = tempfile.mktemp(suffix=".so")
start = time.time()
symbols = subprocess.run([args.kernels, args.target, so], input=json.dumps(specs), text=True, check=True,
                         stdout=subprocess.PIPE).stdout.split()
print(f"{len(specs)} kernels compiled in {time.time() - start:.2f} s, {block}")
lib = ctypes.CDLL(so)
scratch = torch.zeros(1 << 18)
scratch = scratch[(-scratch.data_ptr() % 64) // 4:]


def launcher(symbol, operands, dims, tiles):
    f = lib[symbol]
    pointers = (ctypes.c_void_p * len(operands))(*[x.data_ptr() for x in operands])
    sizes = (ctypes.c_int64 * len(dims))(*dims)
    return lambda: f(pointers, sizes, None, ctypes.c_int64(0), ctypes.c_int64(tiles), ctypes.c_void_p(scratch.data_ptr()))


def timed(f, reps):
    f()
    t = time.perf_counter()
    for _ in range(reps):
        f()
    return (time.perf_counter() - t) / reps


product = 1.0
for i, (name, m, n, k, ta, tb) in enumerate(cases):
    a = torch.randn((k, m) if ta else (m, k))
    b = torch.randn((n, k) if tb else (k, n))
    at, bt = (a.t() if ta else a), (b.t() if tb else b)
    panels = -(-n // args.nr)
    packed, c, d = torch.zeros(panels * args.nr * k + 16), torch.full((m, n), float("nan")), torch.zeros(m, n)
    packed = packed[(-packed.data_ptr() % 64) // 4:]
    pack = launcher(symbols[2 * i], [b, packed], [n, k], panels)
    run = launcher(symbols[2 * i + 1], [a, packed, c], [m, n, k], -(-m // args.mr))
    both = lambda: (pack(), run())
    both()
    error = (c.double() - at.double() @ bt.double()).abs().max().item()
    work = 2e-9 * m * n * k
    reps = max(1, int(0.01 / (work / 120)))
    times = {f: [] for f in ("torch", "ours", "packed")}
    for _ in range(args.rounds):
        times["torch"].append(timed(lambda: torch.mm(at, bt, out=d), reps))
        times["ours"].append(timed(run, reps))
        times["packed"].append(timed(both, reps))
    rate = {f: work / min(t) for f, t in times.items()}
    median = sorted(t / o for t, o in zip(times["torch"], times["ours"]))[args.rounds // 2]
    print(f"{name:16} torch {rate['torch']:6.1f}  ours {rate['ours']:6.1f}  with pack {rate['packed']:6.1f} GF/s"
          f"   ratio {rate['ours'] / rate['torch']:.2f} (median {median:.2f})  with pack {rate['packed'] / rate['torch']:.2f}"
          f"   error {error:.1e}")
