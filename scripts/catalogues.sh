#!/usr/bin/env bash
# Fetches English messages of LibreOffice with their German translations: data/catalogue.de.jsonl, a line {"en": …, "de": …} for each, in the
# order of the English ones. They are from the message catalogues of Debian's package libreoffice-l10n-de 7.4.7 (MPL-2.0).
# Marks of access keys (`_Open`, `~Open`) are taken out. A message that has several translations, for several places,
# keeps the one that most of them have, so that none stands twice; messages with plural forms are left out.
# Needs no network when the file is there. Whatever arrives is checked against the hashes below.
set -euo pipefail
source "$(dirname "$0")/common.sh"
source scripts/messages.sh

OUT=data/catalogue.de.jsonl
SHA256=e8417b860dbd887da827dc9928387ea97552f0a8efac456ffec38babf07c131b
PACKAGE_SHA256=aee22c8e3b3c0431f6e1b0bc66f757ba36c860e2651a05eb050fde4897f06548

if matches "$OUT" "$SHA256"; then
    exit 0
fi
[ ! -e "$OUT" ] || say "$OUT is not the expected file; fetching it again"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
say "fetching LibreOffice's messages in German from Debian (0.9 MB)"
fetch_messages de "$PACKAGE_SHA256" "$scratch/de" \
    "Pairs of your own do as well: a file of JSON lines such as {\"en\": \"Open\", \"de\": \"Öffnen\"} at $OUT, or any that --data names"
PYTHONPATH=scripts PYTHONDONTWRITEBYTECODE=1 python3 - "$scratch/de" "$scratch/pairs.jsonl" <<'PYTHON'
"""All messages below a folder, as one file of JSON lines: the same bytes on every machine."""

import collections
import json
import sys

from messages import messages

folder, out = sys.argv[1:]
found = collections.defaultdict(collections.Counter)
for source, target in messages(folder):
    found[source][target] += 1

with open(out, "w", encoding="utf-8", newline="\n") as file:
    for source, targets in sorted(found.items()):
        target = min(targets, key=lambda text: (-targets[text], text))
        file.write(json.dumps({"en": source, "de": target}, ensure_ascii=False) + "\n")
PYTHON
matches "$scratch/pairs.jsonl" "$SHA256" || fail "the pairs are not the expected ones (SHA-256 differs)"
mkdir -p data
mv "$scratch/pairs.jsonl" "$OUT"
say "wrote $OUT ($(wc -l <"$OUT") pairs)"
