"""Writes docs/systems.md: every system, its errors, and its loss after some steps beside the float64 reference.

    table.py ODEC [--only SYSTEM | --missing] [--jobs N] [--steps N] [--out FILE]

One row of `check.py` (the first size) and one of `train.py` for each system of `systems.py`, which are imported, not repeated.
Ends with 1 if an error is beyond its limit.
"""

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from check import BF16, LIMITS, ROOT, Failure, check
from systems import SYSTEMS
from train import LIMIT, NAMES, curves

HEAD = """# Every system, measured

Written by `make systems`. Small models (width 32 or 40, two steps or as many as the system needs) beside an independent implementation in float64
(`tests/reference/`, NumPy):

- **Gradient**: the relative error of loss and gradient for random weights and tokens, interpreted in f64, compiled in f32 (the worst element of any
  tensor) and in bf16 (the whole gradient in the Euclidean norm). `make test` holds the limits {limits} (1e-06 interpreted where a run starts from normal numbers, which have seven digits), and checks more sizes.
- **Training**: {steps} steps of AdamW from the same initial weights on the same batches of the text of LICENSE-APACHE. The loss before the first step and before the last, in the reference and
  in odec; the largest relative distance of the two curves at any step (f32); and the last loss of a bf16 run.

## Beside the papers

Where a source leaves a choice, or its code differs from its text, the library's files say what they do. The references follow the column in the middle.

| system | the library, and its source | elsewhere |
|---|---|---|
| [diffeqformer](../schemes/models/diffeqformer.ode) | the released code (SDML-KU/qkvflow): step k of L has the weights of the time (k + 1)/L; gains, shifts and biases come from MLPs (`vectors: mlp`); GELU by tanh | the paper prints the frequencies as exponents, and gives norms the time's features themselves (`vectors: linear`). In the code the gain and the shift of a norm have one MLP together and the gain a constant 1, a bias has the MLP of its matrix and no constant, q, k and v are one matrix; here each parameter has an MLP and a constant of its own, so the code's functions are among these |
| [dlcl](../schemes/transformer/dlcl.ode) | Eq. 9 and the released code (wangqiangneu/dlcl): also the first layer reads the embedding with a learned weight, 1 at the start | the code normalises the embedding only with `normalize_embed` |
| [vit](../schemes/models/vit.ode) | the mean of the last states, normed, in the place of a class token (Zhai et al. 2022); no dropout | Dosovitskiy et al. (2021), Eq. 1-4: a class token, whose last state is normed; dropout after linear layers |
| [encoder_stages](../schemes/models/encoder_stages.ode) | section 6.2: a convolution and a projection (`norm`) before the first step of each stage; depthwise convolutions with layernorms before the maps of queries, keys and values, several heads and a class token, as CvT | Tai et al. (2025), 6.1: one head; queries, keys and values are convolutions over the pixels of each token |
| [flow_matching](../schemes/models/flow_matching.ode) | tokens of time and class before the patches, a linear map of the waves of 32·t; logit-normal times; no long skips | U-ViT (Bao et al. 2023): long skips between the first and the second half of the layers, a convolution after the output, waves of 1000·t, noise prediction |
| [u_vit](../schemes/models/u_vit.ode) | five layers, of which two begin with a linear map of the state and a skip, with a bias; everything else as in flow_matching | U-ViT: 13 to 29 layers |
| [dit](../schemes/models/dit.ode) | scales and shifts are those of norms that have a gain and a bias themselves; the condition is a linear map of the waves of 32·t plus a row of the class; the last norm is a plain one; learned positions; it learns the velocity | DiT (Peebles & Xie 2023): norms without parameters, an MLP of the waves of t, scale and shift of the last norm, sines of the places on the grid, noise and its variance predicted, labels left out now and then for guidance (here `label_token(classes: 10, dropped: 10%)` would do so) |
| [universal](../schemes/models/universal.ode) | Eq. 4-7: norms follow the sums of attention and transition, steps are counted from 1; chances to halt are read after a step (Graves 2016) | the released code (tensor2tensor) normalises before attention and transition, counts steps from 0, learns a vector for each unless told otherwise, and reads the chance before a step |
| [iiet](../schemes/models/iiet.ode), [iiet_refresh](../schemes/models/iiet_refresh_layer.ode) | ε = 1e-6 in all norms (Table 4) | other models of the library have 1e-5 |
| [routed](guide/depth.md#a-router-decides-routed) steps | token choice; the share of the chosen number of steps multiplies every change Φ(x) − x | Bae et al. (2025), 2.2.1: step r gives Φ(x) times the share of r, and the last step adds x₀ |
| [routed](guide/depth.md#steps-that-choose-their-tokens) steps that choose | sigmoid(s) multiplies the change Φ(x) − x; a step takes its share of the tokens rounded up; positions are those in the text | Eq. 2.1 adds sigmoid(s)·Φ(x) to x. The released code (raymin0223/mixture_of_recursions) adds 1/10 of that by default, rounds down, at least to 1, and can lower capacities from 1 as training goes on |
| [routed](guide/depth.md#tokens-that-choose-after-training) steps with a `threshold` | `choice` in the loss: the binary cross-entropy of each step's scores with what it takes, of tokens that may take it, summed over steps; then sigmoid(s) above the threshold. Its gradient goes on through the router's input | Raposo et al. (2024, arXiv:2404.02258), 3.5, have this loss and, as another way, a second router that reads the states as constants and takes no part in the loss of the model. The released code (raymin0223/mixture_of_recursions) has both (`aux_loss`, `aux_router`); its mean is over the tokens that may take a step, here over all |
| [moe](guide/experts.md#capacity) with a `capacity` | a share of the context, counted in each text by itself; tokens come one after the other, each with all of its choices, so nothing depends on later tokens; weights stay as they are where a choice is dropped | GShard (Lepikhin et al. 2020) counts in groups of tokens of a batch, gives room to all first choices before all second ones, and drops some second ones at random; Switch Transformers (Fedus et al. 2021) have more room in evaluation than in training |
| [multi_source](../schemes/models/multi_source.ode) | an encoder for each text, with norms before the layers; the decoder attends to one after the other | Zoph and Knight (2016): LSTMs, whose last states are combined; Libovický et al. (2018): also in parallel, to all tokens together, and to summaries of both |
| [gpt](../schemes/models/gpt.ode) | the exact GELU | GPT-2 itself approximates it: `gelu(…, approximate: tanh)` |
| [bert](../schemes/models/bert.ode) | a line end separates segments, and is not hidden; what is hidden always becomes the mask; next sentence prediction reads the mean of all states; no dropout | Devlin et al. (2019), 3.1: `[SEP]`; of hidden tokens a tenth becomes another token and a tenth stays; `[CLS]`; dropout of 0.1; a bias for each kind of token in the logits |

## Measured

| system | file | gradient, f64 | f32 | bf16 | first loss | last, reference | last, odec f32 | distance | last, odec bf16 |
|---|---|---|---|---|---|---|---|---|---|
"""


def row(binary: str, name: str, steps: int, folder: Path) -> tuple[str, bool]:
    """One line of the table; whether it is within the limits."""
    system = SYSTEMS[name]
    found = check(binary, name, system.sizes[0], folder)
    errors = " | ".join(f"{found.errors[mode]:.1e}" if mode in found.errors else "–" for mode in (*LIMITS, "bf16"))
    flow = f"{system.flow} for {system.depth} steps" if system.depth else system.flow
    file = f"[{Path(system.file).name}]({os.path.normpath(f'../schemes/models/{system.file}')})" + (f", `{flow}`" if system.flow else "")
    if name not in NAMES:
        # Its training is on images, pairs of texts or texts with classes, which this table has none of.
        return f"| {name} | {file} | {errors} | – | – | – | – | – |", found.good
    (ours, half), theirs = curves(binary, name, steps, folder, ("f32", "bf16"))
    distance = max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))
    cells = f"{theirs[0]:.4f} | {theirs[-1]:.4f} | {ours[-1]:.4f} | {distance:.0e} | {half[-1]:.4f}"
    return f"| {name} | {file} | {errors} | {cells} |", found.good and distance <= LIMIT


def rows(table: Path) -> dict[str, str]:
    """The lines that an earlier run wrote, by system."""
    lines = table.read_text(encoding="utf-8").splitlines()
    return {line.split("|")[1].strip(): line for line in lines if line.startswith("|")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("odec", help="the odec binary")
    parser.add_argument("--only", choices=SYSTEMS, help="one system only")
    parser.add_argument("--missing", action="store_true", help="measure what the table has no row of, and keep its other rows")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="systems measured at once")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "systems.md")
    arguments = parser.parse_args()
    binary = str(Path(arguments.odec).resolve())
    began, failures, lines = time.monotonic(), 0, []
    kept = rows(arguments.out) if arguments.missing else {}
    with tempfile.TemporaryDirectory(prefix="odec-table-") as scratch, ThreadPoolExecutor(arguments.jobs) as pool:

        def measured(name: str) -> tuple[str, bool]:
            if name in kept:
                return kept[name], True
            folder = Path(scratch) / name
            folder.mkdir()
            try:
                return row(binary, name, arguments.steps, folder)
            except Failure as failure:
                return f"{name} FAILED: {failure}", False

        # Rows come in the order of the list, however many are measured at once.
        for line, good in pool.map(measured, SYSTEMS if arguments.only is None else (arguments.only,)):
            print(line, flush=True)
            if line.startswith("|"):
                lines.append(line)
            failures += not good
    limits = ", ".join(f"{limit:g} {mode}" for mode, limit in (*LIMITS.items(), ("bf16", BF16["norm"])))
    head = HEAD.format(steps=arguments.steps, limits=limits)
    arguments.out.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"{arguments.out}: {len(lines)} systems, {failures} failed, {time.monotonic() - began:.0f} s")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
