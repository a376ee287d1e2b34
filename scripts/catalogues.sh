#!/usr/bin/env bash
# Fetches English messages of LibreOffice with their translations: data/catalogue.de.jsonl, a line {"en": …, "de": …} for each, and
# data/catalogue.nl.de.jsonl, {"en": …, "nl": …, "de": …} for those that have both and fit into 126 bytes in each language, in the order of the English
# ones. They are from the message catalogues of Debian's packages libreoffice-l10n-de and -nl 7.4.7 (MPL-2.0). Marks of access keys (`_Open`, `~Open`) are taken out. A message that has
# several translations, for several places, keeps the one that most of them have, so that none stands twice; messages with plural forms are left out.
# Needs no network when the files are there. Whatever arrives is checked against the hashes below.
set -euo pipefail
source "$(dirname "$0")/common.sh"
source scripts/messages.sh

GERMAN=data/catalogue.de.jsonl
GERMAN_SHA256=e8417b860dbd887da827dc9928387ea97552f0a8efac456ffec38babf07c131b
BOTH=data/catalogue.nl.de.jsonl
BOTH_SHA256=d5e95fe8ff549741e7d80cd637ae9cd14555852f1e5ae7cf3935f373bf55fc4d
DE_SHA256=aee22c8e3b3c0431f6e1b0bc66f757ba36c860e2651a05eb050fde4897f06548
NL_SHA256=80ca7ee9769ded222c23e41aba3be051c0c625d61f7d891266d749c6a893a3be

if matches "$GERMAN" "$GERMAN_SHA256" && matches "$BOTH" "$BOTH_SHA256"; then
    exit 0
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
say "fetching LibreOffice's messages in German and Dutch from Debian (1.7 MB)"
own="Pairs of your own do as well: a file of JSON lines such as {\"en\": \"Open\", \"de\": \"Öffnen\"} at $GERMAN, or any that --data names"
fetch_messages de "$DE_SHA256" "$scratch/de" "$own"
fetch_messages nl "$NL_SHA256" "$scratch/nl" "$own"
PYTHONPATH=scripts PYTHONDONTWRITEBYTECODE=1 python3 - "$scratch" <<'PYTHON'
"""Messages of each language below a folder, as files of JSON lines: the same bytes on every machine."""

import collections
import json
import sys

from messages import messages

(folder,) = sys.argv[1:]


def translations(language: str) -> dict[str, str]:
    """Of each English message the most frequent translation."""
    found = collections.defaultdict(collections.Counter)
    for source, target in messages(f"{folder}/{language}"):
        found[source][target] += 1
    return {source: min(targets, key=lambda text: (-targets[text], text)) for source, targets in found.items()}


german, dutch = translations("de"), translations("nl")
both = ({"en": text, "nl": dutch[text], "de": target} for text, target in sorted(german.items()) if text in dutch)
files = {
    "de.jsonl": ({"en": text, "de": target} for text, target in sorted(german.items())),
    "nl.de.jsonl": (texts for texts in both if all(len(text.encode()) <= 126 for text in texts.values())),
}
for name, lines in files.items():
    with open(f"{folder}/{name}", "w", encoding="utf-8", newline="\n") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
PYTHON
mkdir -p data
put() {
    matches "$1" "$3" || fail "the pairs are not the expected ones (SHA-256 differs)"
    mv "$1" "$2"
    say "wrote $2 ($(wc -l <"$2") pairs)"
}
put "$scratch/de.jsonl" "$GERMAN" "$GERMAN_SHA256"
put "$scratch/nl.de.jsonl" "$BOTH" "$BOTH_SHA256"
