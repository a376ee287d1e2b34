#!/usr/bin/env bash
# Conformance and speed on an NVIDIA card, in two stages:
#   gpu.sh prepare DIR [--only a,b] [--tiny]   packs all that is needed into DIR/kit.tar.xz, on any machine with odec's tool chain
#   gpu.sh run DIR OUT [--phase smoke]         measures in one call (10 minutes) on the machine with the card: needs its
#                                              driver and python3, no network, no compiler; PyTorch if it is to be compared
# `DIR/run.sh OUT` is the second stage where there is no checkout. `--device cuda:dry` tries all of it without a card.
# ODEC names a built binary, and RUNNER one without code generation, which travels, instead of building them; LAUNCHES a folder
# of launches that the tests of kernels have kept, instead of running those tests.
set -euo pipefail
here=$PWD
source "$(dirname "$0")/common.sh"
usage='usage: scripts/gpu.sh prepare DIR [options], or scripts/gpu.sh run DIR OUT [options]'
absolute() { case $1 in /*) printf '%s' "$1" ;; *) printf '%s/%s' "$here" "$1" ;; esac; }
have python3 || fail 'python3 is needed'
built=${CARGO_TARGET_DIR:-$PWD/target}
case ${1:-} in
prepare)
    [ $# -ge 2 ] || fail "$usage"
    folder=$(absolute "$2")
    shift 2
    if [ -z "${ODEC:-}" ]; then
        cargo build --release --bin odec
        ODEC=$built/release/odec
    fi
    if [ -z "${RUNNER:-}" ]; then
        cargo build --profile runner --bin odec --no-default-features
        RUNNER=$built/runner/odec
    fi
    if [ -z "${LAUNCHES:-}" ]; then
        LAUNCHES=$built/launches
        rm -rf "$LAUNCHES"
        ODEC_KEEP_LAUNCHES=$LAUNCHES cargo test --quiet --workspace --test gpu -- kernels:: tensor::
    fi
    exec python3 benches/gpu.py prepare "$folder" --odec "$(absolute "$ODEC")" --runner "$(absolute "$RUNNER")" --launches "$(absolute "$LAUNCHES")" "$@"
    ;;
run)
    [ $# -ge 3 ] || fail "$usage"
    folder=$(absolute "$2") out=$(absolute "$3")
    shift 3
    exec "$folder/run.sh" "$out" "$@"
    ;;
*) fail "$usage" ;;
esac
