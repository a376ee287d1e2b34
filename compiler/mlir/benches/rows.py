"""Row and column kernels, one thread: bytes per second, and the ratio to PyTorch eager.

usage: rows.py PATH_TO_EXAMPLE_kernels [--tokens 2048] [--rounds 15] [--target cpu]

`copy` is the bound: torch's copy of as many bytes as the kernel reads and writes.
"""

import argparse, ctypes, json, subprocess, tempfile, time
import torch

ap = argparse.ArgumentParser()
ap.add_argument("kernels")
for name, value in [("tokens", 2048), ("rounds", 15)]:
    ap.add_argument("--" + name, type=int, default=value)
ap.add_argument("--target", default="cpu")
args = ap.parse_args()
torch.set_num_threads(1)
T = args.tokens

full = lambda cols: dict(row="row", col="col", stride=cols)
per_col = dict(row="zero", col="col", stride=0)
per_row = dict(row="row", col="zero", stride=1)


class Body:
    def __init__(self):
        self.nodes = []

    def push(self, node):
        if node not in self.nodes:
            self.nodes.append(node)
        return self.nodes.index(node)

    def load(self, operand, access):
        return self.push(dict(load=dict(operand=operand, access=access)))

    def const(self, x):
        return self.push(dict(const=x))

    def unary(self, op, a):
        return self.push(dict(unary=[op, a]))

    def binary(self, op, a, b):
        return self.push(dict(binary=[op, a, b]))

    def fma(self, a, b, c):
        return self.push(dict(fma=[a, b, c]))

    def reduce(self, op, a):
        return self.push(dict(reduce=[op, a]))


def rows(cols, operands, body, stores):
    stores = [dict(operand=o, access=a, value=v) for o, a, v in stores]
    return dict(kind="rows", dtype="f32", cols=cols, operands=operands, uniforms=0, body=body.nodes, stores=stores)


def norm(cols):
    b = Body()
    x, g = b.load(0, full(cols)), b.load(1, per_col)
    mean = b.binary("mul", b.reduce("sum", b.binary("mul", x, x)), b.const(1 / cols))
    r = b.binary("div", b.const(1.0), b.unary("sqrt", b.binary("add", mean, b.const(1e-5))))
    y = b.binary("mul", b.binary("mul", x, r), g)
    return rows(cols, ["f32"] * 4, b, [(2, full(cols), y), (3, per_row, r)])


def swiglu(cols):
    b = Body()
    x, u = b.load(0, full(cols)), b.load(1, full(cols))
    e = b.unary("exp", b.unary("neg", x))
    y = b.binary("mul", b.binary("div", x, b.binary("add", b.const(1.0), e)), u)
    return rows(cols, ["f32"] * 3, b, [(2, full(cols), y)])


def add(cols):
    b = Body()
    y = b.fma(b.load(0, full(cols)), b.const(0.5), b.load(1, full(cols)))
    return rows(cols, ["f32"] * 3, b, [(2, full(cols), y)])


def softmax(cols):
    b = Body()
    x = b.load(0, full(cols))
    e = b.unary("exp", b.binary("sub", x, b.reduce("max", x)))
    y = b.binary("div", e, b.reduce("sum", e))
    return rows(cols, ["f32"] * 2, b, [(1, full(cols), y)])


def rope(cols, head=64):
    b = Body()
    x = b.load(0, full(cols))
    other = b.load(0, dict(row="row", col=dict(half_swap=head), stride=cols))
    table = lambda n: b.load(n, dict(row="position", col=dict(mod=head), stride=head))
    y = b.fma(other, table(2), b.binary("mul", x, table(1)))
    return rows(cols, ["f32"] * 4, b, [(3, full(cols), y)])


def column_sum(cols):
    b = Body()
    y = b.binary("mul", b.binary("mul", b.load(0, full(cols)), b.load(1, full(cols))), b.load(2, per_row))
    return dict(kind="columns", dtype="f32", cols=cols, operands=["f32"] * 4, uniforms=0, body=b.nodes, value=y,
                accumulate=False)


def cases():
    x, y, u, v = (torch.randn(T, 256) for _ in range(4))
    g, r, s = torch.randn(256), torch.randn(T), torch.empty(256)
    a, b, c = (torch.randn(T, 704) for _ in range(3))
    cos, sin = torch.randn(256, 64), torch.randn(256, 64)
    heads = lambda t: t.view(T // 256, 256, 4, 64)
    swap = lambda t: heads(t).roll(32, -1)
    turned = lambda: heads(x) * cos[:, None] + swap(x) * sin[:, None]
    yield "norm 256", norm(256), [x, g, y, r], 8 * T * 256, lambda: torch.rms_norm(x, (256,), g, 1e-5), y
    yield "swiglu 704", swiglu(704), [a, b, c], 12 * T * 704, lambda: torch.nn.functional.silu(a) * b, c
    yield "add 256", add(256), [x, u, v], 12 * T * 256, lambda: torch.add(u, x, alpha=0.5), v
    yield "softmax 256", softmax(256), [x, y], 8 * T * 256, lambda: torch.softmax(x, 1), y
    yield "rotary 256", rope(256), [x, cos, sin, v], 8 * T * 256, lambda: turned().view(T, 256), v
    yield "columns 256", column_sum(256), [x, u, r, s], 8 * T * 256, lambda: ((x * u) * r[:, None]).sum(0), s


all_cases = list(cases())
so = tempfile.mktemp(suffix=".so")
start = time.time()
specs = [c[1] for c in all_cases]
symbols = subprocess.run([args.kernels, args.target, so], input=json.dumps(specs), text=True, check=True,
                         stdout=subprocess.PIPE).stdout.split()
print(f"{len(specs)} kernels compiled in {time.time() - start:.2f} s")
lib = ctypes.CDLL(so)


def launcher(symbol, operands, tiles):
    f = lib[symbol]
    pointers = (ctypes.c_void_p * len(operands))(*[x.data_ptr() for x in operands])
    sizes = (ctypes.c_int64 * 2)(T, 256)
    return lambda: f(pointers, sizes, None, ctypes.c_int64(0), ctypes.c_int64(tiles), None)


def timed(f, reps):
    f()
    t = time.perf_counter()
    for _ in range(reps):
        f()
    return (time.perf_counter() - t) / reps


for symbol, (name, spec, operands, nbytes, theirs, out) in zip(symbols, all_cases):
    tiles = T if spec["kind"] == "rows" else -(-spec["cols"] // 64)
    ours = launcher(symbol, operands, tiles)
    ours()
    want = theirs()
    error = (out - want).abs().max().item() / want.abs().max().item()
    from_, to = torch.randn(nbytes // 8), torch.randn(nbytes // 8)
    reps = max(1, int(5e-3 / (nbytes / 2e10)))
    times = {"ours": [], "torch": [], "copy": []}
    for _ in range(args.rounds):
        times["torch"].append(timed(theirs, reps))
        times["copy"].append(timed(lambda: to.copy_(from_), reps))
        times["ours"].append(timed(ours, reps))
    rate = {k: nbytes / min(t) * 1e-9 for k, t in times.items()}
    print(f"{name:12} ours {rate['ours']:6.1f} GB/s  copy {rate['copy']:6.1f}  torch {rate['torch']:6.1f}"
          f"   ratio {rate['ours'] / rate['torch']:5.2f}   {min(times['ours']) * 1e6:7.1f} us  error {error:.1e}")
