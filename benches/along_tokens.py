"""Time of a training step along tokens: attention beside linear attention, the delta rule and a recurrence.

    along_tokens.py ODEC [--contexts 1024,2048,…] [--width N] [--heads N] [--rounds N] [--steps N] [--threads N] [--out DIR]

One sequence, one layer, a vocabulary of 16 and no MLP, so that a step is the forward pass and the gradient of what is
compared: an update takes the same few parameters at every context. `linear` stands for all that is no mixing of tokens.

Speed on shared machines drifts, so every round times every mixer at every context one after the other, in an order that
turns from round to round, and only ratios within a round are believed. A figure is the median over rounds of

    (time at this context) / (time at the shortest context)

where a time is the median of a round's steps. Beside it stands what a mixer whose time grows with the text, and one whose
time grows with its square, would have. Prints a Markdown table; writes it, a picture and everything measured to a folder.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from math import log2
from pathlib import Path

# Each gives as many columns as it takes.
MIXERS = {
    "attention": "attention(heads: {heads}, causal)",
    "linear_attention": "linear_attention(linear, linear, linear, heads: {heads}, decay: linear({heads}) |> sigmoid) |> linear",
    "delta rule": "linear_attention(linear, linear |> normalize(heads: {heads}), linear, heads: {heads}, delta: linear({heads}) |> sigmoid) |> linear",
    "scan": "scan(linear |> sigmoid, linear) |> linear",
    "linear": "linear",
}
MODEL = """field mix = rmsnorm |> {mixer}

model along_tokens {{
  input  tokens(vocab: 16, context: {context})
  embed  learned(width: {width})
  evolve euler(mix) for 1 step
  output logits
}}

train {{
  data      tokens("none.bin")
  optimizer sgd(lr: 1e-3)
  batch 1;  steps 1
}}
"""
# Blue, vermilion, green, purple and grey: told apart by most eyes (Okabe & Ito 2008).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#777777")

Key = tuple[str, int]


class Broken(Exception):
    """odec failed."""


def call(binary: str, threads: int, *arguments: str) -> str:
    """What odec prints."""
    environment = os.environ | {"ODEC_THREADS": str(threads)}
    done = subprocess.run([binary, *arguments], env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Broken(f"`odec {' '.join(arguments)}` ended with {done.returncode}:\n{done.stderr.strip()}")
    return done.stdout


def build(options: argparse.Namespace, folder: Path) -> dict[Key, Path]:
    """An artifact for each mixer and context."""
    built = {}
    for number, (name, mixer) in enumerate(MIXERS.items()):
        for context in options.contexts:
            source = folder / f"{number}_{context}.ode"
            mixer_text = mixer.format(heads=options.heads)
            source.write_text(MODEL.format(mixer=mixer_text, context=context, width=options.width), encoding="utf-8")
            built[name, context] = source.with_suffix(".odex")
            call(options.odec, options.threads, "build", str(source), "-o", str(built[name, context]))
    return built


def measure(options: argparse.Namespace, built: dict[Key, Path]) -> dict[Key, list[float]]:
    """Milliseconds of a step, of each round."""
    times: dict[Key, list[float]] = {key: [] for key in built}
    order = list(built)
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds} …", file=sys.stderr, flush=True)
        start = number * len(order) // options.rounds
        for key in order[start:] + order[:start]:
            said = call(options.odec, options.threads, "bench", str(built[key]), "--steps", str(options.steps), "--warmup", "1", "--json")
            times[key].append(json.loads(said)["step_ms_median"])
    return times


def growth(options: argparse.Namespace, times: dict[Key, list[float]], name: str) -> list[float]:
    """The time at each context, as a multiple of that at the shortest."""
    first = times[name, options.contexts[0]]
    ratios = lambda context: [long / short for long, short in zip(times[name, context], first, strict=True)]
    return [statistics.median(ratios(context)) for context in options.contexts]


def table(options: argparse.Namespace, times: dict[Key, list[float]]) -> str:
    """Ratios, and milliseconds beside them."""
    shortest = options.contexts[0]
    head = ["time of a step", f"at {shortest} tokens", *(f"{context}" for context in options.contexts[1:])]
    rows = [head, ["---", *("---:" for _ in head[1:])]]
    for name in MIXERS:
        median = [statistics.median(times[name, context]) for context in options.contexts]
        cells = [f"{g:.1f}× ({ms:.3g} ms)" for g, ms in zip(growth(options, times, name)[1:], median[1:], strict=True)]
        rows.append([name, f"{median[0]:.3g} ms", *cells])
    for name, power in (("as the text", 1), ("as its square", 2)):
        rows.append([name, "", *(f"{(context / shortest) ** power:.1f}×" for context in options.contexts[1:])])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def report(options: argparse.Namespace, times: dict[Key, list[float]]) -> str:
    """What was measured and how, the table, and how the mixers compare at the longest text."""
    longest = options.contexts[-1]
    attention = times["attention", longest]
    faster = {
        name: statistics.median(slow / fast for slow, fast in zip(attention, times[name, longest], strict=True)) for name in MIXERS if name not in ("attention", "linear")
    }
    head = [
        f"`make tokens` on {processor()}, {options.threads} threads, {options.rounds} rounds of {options.steps} steps: width {options.width}, {options.heads} heads, one layer.",
        "Ratios are medians over rounds of ratios within a round, and times are medians over all rounds: on a shared machine they do not divide to the ratios.",
    ]
    said = ", ".join(f"{ratio:.1f}× as long as with {name}" for name, ratio in faster.items())
    return "\n".join([*head, "", table(options, times), "", f"At {longest} tokens a step with attention takes {said} (medians over rounds)."])


def processor() -> str:
    """The name that the system has for it."""
    named = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
    return named[0] if named else "an unnamed processor"


def picture(options: argparse.Namespace, times: dict[Key, list[float]]) -> str:
    """The ratios, both axes logarithmic: growth with the text is a line of slope 1."""
    width, height, left, right, top, bottom = 640, 400, 60, 150, 30, 50
    contexts = options.contexts
    curves = {name: growth(options, times, name) for name in MIXERS}
    across = log2(contexts[-1] / contexts[0])
    highest = max(max(curve) for curve in curves.values())
    up = max(1.0, log2(max(highest, contexts[-1] / contexts[0])))
    x = lambda context: left + (width - left - right) * log2(context / contexts[0]) / across
    y = lambda ratio: height - bottom - (height - top - bottom) * max(0.0, log2(ratio)) / up
    line = lambda points, style: '<polyline fill="none" ' + style + ' points="' + " ".join(f"{a:.1f},{b:.1f}" for a, b in points) + '"/>'
    text = lambda a, b, anchor, said: f'<text x="{a:.1f}" y="{b:.1f}" text-anchor="{anchor}">{said}</text>'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        text(left, 18, "start", f"time of a training step, as a multiple of that at {contexts[0]} tokens"),
        text((left + width - right) / 2, height - 12, "middle", "tokens"),
    ]
    for context in contexts:
        out += [line([(x(context), top), (x(context), height - bottom)], 'stroke="#dddddd"'), text(x(context), height - bottom + 18, "middle", context)]
    for power in range(int(up) + 1):
        out += [line([(left, y(2**power)), (width - right, y(2**power))], 'stroke="#dddddd"'), text(left - 8, y(2**power) + 4, "end", f"{2**power}×")]
    ends = [(contexts[0], 1), (contexts[-1], contexts[-1] / contexts[0])]
    out.append(line([(x(context), y(ratio)) for context, ratio in ends], 'stroke="#333333" stroke-dasharray="4 4"'))
    for number, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[number]
        points = [(x(context), y(ratio)) for context, ratio in zip(contexts, curve, strict=True)]
        key = (width - right + 14, top + 20 * number + 10)
        out += [line(points, f'stroke="{colour}" stroke-width="2"'), text(key[0] + 24, key[1] + 4, "start", name)]
        out.append(line([key, (key[0] + 18, key[1])], f'stroke="{colour}" stroke-width="2"'))
    key = (width - right + 14, top + 20 * len(curves) + 10)
    out += [line([key, (key[0] + 18, key[1])], 'stroke="#333333" stroke-dasharray="4 4"'), text(key[0] + 24, key[1] + 4, "start", "as the text")]
    return "\n".join([*out, "</svg>", ""])


def whole(text: str) -> int:
    """A number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number from 1 on")
    return int(text)


def ascending(text: str) -> list[int]:
    """Two contexts or more, the shortest first."""
    contexts = [whole(part) for part in text.split(",")]
    if len(contexts) < 2 or contexts != sorted(set(contexts)):
        raise argparse.ArgumentTypeError("two contexts or more, the shortest first")
    return contexts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("odec", help="the odec binary (release)", type=lambda path: str(Path(path).resolve()))
    parser.add_argument("--contexts", type=ascending, default="1024,2048,4096,8192,16384")
    parser.add_argument("--width", type=whole, default=128)
    parser.add_argument("--heads", type=whole, default=4)
    parser.add_argument("--rounds", type=whole, default=5)
    parser.add_argument("--steps", type=whole, default=3, help="timed steps of a round")
    parser.add_argument("--threads", type=whole, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            times = measure(options, build(options, Path(folder)))
    except Broken as error:
        print(error, file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    written = {
        "md": report(options, times) + "\n",
        "svg": picture(options, times),
        "json": json.dumps([{"mixer": name, "context": context, "round_ms": ms} for (name, context), ms in times.items()], indent=2) + "\n",
    }
    for suffix, text in written.items():
        (options.out / f"along_tokens.{suffix}").write_text(text, encoding="utf-8")
    print(written["md"], end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
