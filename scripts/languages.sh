#!/usr/bin/env bash
# Fetches messages of LibreOffice in ten languages: data/languages.jsonl, a line {"text": …, "label": "da"} for each, 4,000 of each language, in the order of
# the texts. They are from the message catalogues of Debian's packages libreoffice-l10n-da, -de and so on, 7.4.7 (MPL-2.0); English ones are what
# these translate. Marks of access keys (`_Open`, `~Open`) are taken out. A text that stands in two languages is in none; messages with plural forms are left out.
# Needs no network when the file is there. Whatever arrives is checked against the hashes below.
set -euo pipefail
source "$(dirname "$0")/common.sh"
source scripts/messages.sh

OUT=data/languages.jsonl
SHA256=467294e06df4a77f69b6cc0341a56fc931e3eef10d9be173aaf58020959cd6bf
PACKAGES_SHA256=(
    da:478ce1d8cfa3d492ae7aaccc38a036f6d95af6fa7adee67b883270ecb3165337
    de:aee22c8e3b3c0431f6e1b0bc66f757ba36c860e2651a05eb050fde4897f06548
    es:ec8c42bbef9a1d6053cb32380739fa7551968708205a629a91e82484865d9822
    fr:111da5e1b8379dc58a127ef76ef85e2b6819da5cb2c5fe73d13b25a0437f988c
    it:a1c9d025e5f2aa775a7f55d6c3720b6b16a6f89b67a2f442116367569308b7e0
    nb:60d749edebe5b7d7c282f6c3e9504b4e3002f4172c39c9843160ce4620ae61e6
    nl:80ca7ee9769ded222c23e41aba3be051c0c625d61f7d891266d749c6a893a3be
    pt:83ed70de5e5d53e5216445f10ddcd4722900a0712a3acdb3ea694f101aff919d
    sv:537d28ecbded9cc0d245a16ab4ec42b2cce5453f1cf987f60a7d2a50fedd9614
)

if matches "$OUT" "$SHA256"; then
    exit 0
fi
[ ! -e "$OUT" ] || say "$OUT is not the expected file; fetching it again"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
say "fetching LibreOffice's messages in nine languages from Debian (7.6 MB)"
for each in "${PACKAGES_SHA256[@]}"; do
    fetch_messages "${each%%:*}" "${each#*:}" "$scratch/${each%%:*}" \
        "Texts of your own do as well: a file of JSON lines such as {\"text\": \"Åbn\", \"label\": \"da\"} at $OUT, or any that --data names"
done
PYTHONPATH=scripts PYTHONDONTWRITEBYTECODE=1 python3 - "$scratch" "$scratch/languages.jsonl" <<'PYTHON'
"""Messages of each language below a folder, as one file of JSON lines: the same bytes on every machine."""

import collections
import json
import os
import sys

from messages import messages

EACH = 4000

folder, out = sys.argv[1:]
found = collections.defaultdict(set)
for language in sorted(name for name in os.listdir(folder) if os.path.isdir(f"{folder}/{name}")):
    for source, target in messages(f"{folder}/{language}"):
        found[source].add("en")
        found[target].add(language)
texts = collections.defaultdict(list)
for text, languages in sorted(found.items()):
    if len(languages) == 1:
        texts[min(languages)].append(text)
# Spread evenly over the texts of a language, which are in alphabetical order.
chosen = [(of[n * len(of) // EACH], language) for language, of in texts.items() for n in range(EACH)]
with open(out, "w", encoding="utf-8", newline="\n") as file:
    for text, language in sorted(chosen):
        file.write(json.dumps({"text": text, "label": language}, ensure_ascii=False) + "\n")
PYTHON
matches "$scratch/languages.jsonl" "$SHA256" || fail "the texts are not the expected ones (SHA-256 differs)"
mkdir -p data
mv "$scratch/languages.jsonl" "$OUT"
say "wrote $OUT ($(wc -l <"$OUT") texts)"
