#!/usr/bin/env bash
# Takes the place of rustdoc in `cargo test --doc`: makes a crate's pages, with warnings as errors, before it runs the crate's examples.
# `cargo doc` would check every dependency once more for that. `cargo test --doc` leaves out binaries, so their pages are not made.
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
