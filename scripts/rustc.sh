#!/usr/bin/env bash
# Compiles the workspace's crates for `.ci/run` (RUSTC_WORKSPACE_WRAPPER): clippy's driver, which is the compiler with lints. It leaves out the
# optimisations of rustc's own representation, not LLVM's.
# Most tests spend their time in the crates that they call. They themselves are not optimised, whatever their crate is: the integration tests of five
# optimised crates compile in 10 s of processor time instead of 53. Tests that compute much themselves are optimised.
set -euo pipefail
name='' test=false previous=''
for argument; do
    [ "$previous" != --crate-name ] || name=$argument
    [ "$argument" != --test ] || test=true
    previous=$argument
done
if "$test"; then
    case $name in
    eval) level=3 ;;      # the evaluator, generic over its memory
    cpu | gpu) level=1 ;; # products and attention in float64
    *) level=0 ;;
    esac
    # Whether there are debug assertions depends on the level where cargo does not say it.
    [[ " $* " == *debug-assertions=* ]] || set -- "$@" -C debug-assertions=off
    set -- "$@" -C opt-level="$level"
fi
exec clippy-driver "$@"
