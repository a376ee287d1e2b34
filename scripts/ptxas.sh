#!/usr/bin/env bash
# Fetches NVIDIA's assemblers for GPU code out of packages on PyPI: .ptxas/ptxas (`nvidia-cuda-nvcc-cu12` 12.0.140, the oldest that
# takes the PTX) and .ptxas/newest/ptxas (`nvidia-cuda-nvcc` 13.5.37). Only tests and `gpu.sh prepare --cubins` use them: that every
# kernel assembles; building and running models do not. They are never committed.
# Needs no network when the files are there. Whatever arrives is checked against the hashes below.
set -euo pipefail
source "$(dirname "$0")/common.sh"

# fetch FOLDER PACKAGE VERSION SHA256 MEGABYTES PATH-IN-THE-WHEEL
fetch() {
    local out=$1 package=$2 version=$3 hash=$4 megabytes=$5 path=$6 scratch
    if [ -x "$out/ptxas" ] && [ "$(cat "$out/version" 2>/dev/null)" = "$version" ]; then
        return 0
    fi
    scratch=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$scratch'" EXIT
    say "fetching ptxas $version from PyPI ($megabytes MB)"
    python3 -m venv "$scratch/venv"
    printf '%s==%s --hash=sha256:%s\n' "$package" "$version" "$hash" >"$scratch/requirements.txt"
    "$scratch/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --dest "$scratch" -r "$scratch/requirements.txt" ||
        fail "pip could not fetch $package $version (is PyPI, or a mirror that pip knows, reachable?)" \
            "With ptxas from elsewhere: put it at $out/ptxas, and $version into $out/version"
    python3 -m zipfile -e "$scratch"/*.whl "$scratch/wheel"
    mkdir -p "$out"
    mv "$scratch/wheel/$path" "$out/ptxas"
    chmod +x "$out/ptxas"
    printf '%s\n' "$version" >"$out/version"
    "$out/ptxas" --version >/dev/null || fail "$out/ptxas does not run on this machine"
    rm -rf "$scratch"
}

fetch .ptxas nvidia-cuda-nvcc-cu12 12.0.140 \
    958d54df87d0c0b7207e7fed403d6eeda0890a01cc44cfeaccf87c7f90e9b165 20 nvidia/cuda_nvcc/bin/ptxas
fetch .ptxas/newest nvidia-cuda-nvcc 13.5.37 \
    f5c4f7ead5d964fb4af42bbf1e6d3ec3c1e6e9d83b53749f691d387e7fcaa3a7 47 nvidia/cu13/bin/ptxas
