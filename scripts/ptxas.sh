#!/usr/bin/env bash
# Fetches NVIDIA's assembler for GPU code: .ptxas/ptxas, out of the package `nvidia-cuda-nvcc-cu12` 12.0.140 on PyPI. Only
# tests use it, to see that every kernel assembles; building and running models do not. It is never committed.
# Needs no network when the file is there. Whatever arrives is checked against the hash below.
set -euo pipefail
source "$(dirname "$0")/common.sh"

OUT=.ptxas
PACKAGE=nvidia-cuda-nvcc-cu12
VERSION=12.0.140
WHEEL_SHA256=958d54df87d0c0b7207e7fed403d6eeda0890a01cc44cfeaccf87c7f90e9b165

if [ -x "$OUT/ptxas" ] && [ "$(cat "$OUT/version" 2>/dev/null)" = "$VERSION" ]; then
    exit 0
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
say "fetching ptxas $VERSION from PyPI (20 MB)"
python3 -m venv "$scratch/venv"
printf '%s==%s --hash=sha256:%s\n' "$PACKAGE" "$VERSION" "$WHEEL_SHA256" >"$scratch/requirements.txt"
"$scratch/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --dest "$scratch" -r "$scratch/requirements.txt" ||
    fail "pip could not fetch $PACKAGE $VERSION (is PyPI, or a mirror that pip knows, reachable?)" \
        "With ptxas from elsewhere: put it at $OUT/ptxas, and $VERSION into $OUT/version"
python3 -m zipfile -e "$scratch"/*.whl "$scratch/wheel"
mkdir -p "$OUT"
mv "$scratch/wheel/nvidia/cuda_nvcc/bin/ptxas" "$OUT/ptxas"
chmod +x "$OUT/ptxas"
printf '%s\n' "$VERSION" >"$OUT/version"
"$OUT/ptxas" --version >/dev/null || fail "$OUT/ptxas does not run on this machine"
