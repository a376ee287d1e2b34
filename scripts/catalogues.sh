#!/usr/bin/env bash
# Fetches English messages of LibreOffice with their German translations: data/catalogue.de.jsonl, a line {"en": …, "de": …} for each, in the
# order of the English ones. They are from the message catalogues of Debian's package libreoffice-l10n-de 7.4.7 (MPL-2.0), which is unpacked and
# not installed. Marks of access keys (`_Open`, `~Open`) are taken out. A message that has several translations, for several places,
# keeps the one that most of them have, so that none stands twice; messages with plural forms are left out.
# Needs no network when the file is there. Whatever arrives is checked against the hashes below.
set -euo pipefail
source "$(dirname "$0")/common.sh"

OUT=data/catalogue.de.jsonl
SHA256=e8417b860dbd887da827dc9928387ea97552f0a8efac456ffec38babf07c131b
PACKAGE=libreoffice-l10n-de_7.4.7-1+deb12u14_all.deb
PACKAGE_SHA256=aee22c8e3b3c0431f6e1b0bc66f757ba36c860e2651a05eb050fde4897f06548
URL=http://deb.debian.org/debian/pool/main/libr/libreoffice/$PACKAGE

matches() { [ -f "$1" ] && [ "$(sha256sum <"$1" | cut -d ' ' -f 1)" = "$2" ]; }

if matches "$OUT" "$SHA256"; then
    exit 0
fi
[ ! -e "$OUT" ] || say "$OUT is not the expected file; fetching it again"
for tool in curl ar tar xz python3; do
    have "$tool" || fail "$tool is missing (Debian has it in curl, binutils, tar, xz-utils and python3)"
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
say "fetching LibreOffice's messages in German from Debian (0.9 MB)"
curl -fsSL -o "$scratch/package.deb" "$URL" ||
    fail "$PACKAGE could not be fetched (is deb.debian.org reachable, and has it this version still?)" \
        "Pairs of your own do as well: a file of JSON lines such as {\"en\": \"Open\", \"de\": \"Öffnen\"} at $OUT, or any that --data names"
matches "$scratch/package.deb" "$PACKAGE_SHA256" || fail "the package that arrived is not $PACKAGE (SHA-256 differs)"

(cd "$scratch" && ar x package.deb data.tar.xz && tar -xJf data.tar.xz)
python3 - "$scratch" "$scratch/pairs.jsonl" <<'PYTHON'
"""All message catalogues below a folder, as one file of JSON lines: the same bytes on every machine."""

import collections
import gettext
import glob
import json
import sys

folder, out = sys.argv[1:]


def plain(text):
    """Without the mark of an access key, which a message has once."""
    for mark in "_~":
        if text.count(mark) == 1:
            text = text.replace(mark, "")
    return text.strip()


found = collections.defaultdict(collections.Counter)
for path in sorted(glob.glob(f"{folder}/**/*.mo", recursive=True)):
    with open(path, "rb") as file:
        messages = gettext.GNUTranslations(file)._catalog
    for message, translation in messages.items():
        # Plural forms have a number beside them; the entry without a message is the catalogue's head.
        if isinstance(message, tuple) or not message:
            continue
        # What stands before this byte says where the message is used.
        source, target = plain(message.split("\x04", 1)[-1]), plain(translation)
        if source and target:
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
