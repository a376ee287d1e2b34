#!/usr/bin/env python3
"""BLEU and chrF of a run's translations, beside those of copying the source:  bleu.py ODEC RUN [ARGUMENTS of odec translate …]

Translates the pairs that the run holds out, unless --data names others, and compares them with their own translations by sacrebleu (Post
2018, arXiv:1804.08771), whose signatures say how. Further arguments are those of `odec translate`: --pairs 500, --beam 1."""

import json
import subprocess
import sys

from sacrebleu.metrics import BLEU, CHRF


def main():
    odec, run, *more = sys.argv[1:]
    which = [] if "--data" in more else ["--held-out"]
    command = [odec, "translate", run, *which, "--json", *more]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    pairs = json.loads(done.stdout)
    references = [[p["target"] for p in pairs]]
    rows = {
        "translated": [p["translation"] for p in pairs],
        "source copied": [p["source"] for p in pairs],
    }
    metrics = [BLEU(), CHRF()]
    print(f"{len(pairs)} pairs")
    for name, texts in rows.items():
        scores = [m.corpus_score(texts, references) for m in metrics]
        exact = sum(a == b for a, b in zip(texts, references[0]))
        shown = "  ".join(f"{s.name} {s.score:5.1f}" for s in scores)
        print(f"{name:14}  {shown}  {exact} exactly ({100 * exact / max(len(pairs), 1):.1f} %)")
    for metric in metrics:
        print(metric.get_signature())


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main()
