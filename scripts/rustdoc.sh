#!/usr/bin/env bash
# Stands in for rustdoc where `cargo test --doc` runs a crate's examples: first makes the crate's pages, of the same builds, and takes no warning.
# `cargo doc` would have every crate of others read once more for that. Pages of programs are made by `cargo doc` alone.
set -euo pipefail
pages=() skip=false
for argument; do
    case $argument in
    --test) ;;
    --test-run-directory) skip=true ;;
    *) "$skip" || pages+=("$argument") && skip=false ;;
    esac
done
rustdoc "${pages[@]}" -D warnings --out-dir "${CARGO_TARGET_DIR:-target}/doc"
exec rustdoc "$@"
