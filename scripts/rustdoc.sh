#!/usr/bin/env bash
# Takes the place of rustdoc in `cargo test --doc`: makes a crate's pages, with warnings as errors, before it runs the crate's examples.
# `cargo doc` would check every dependency once more for that. `cargo test --doc` leaves out binaries, so their pages are not made. A crate without
# code in its comments has no examples to look for. Each crate has a folder of its own: in a folder for all crates, rustdoc would write
# the index of all of them anew for each, which takes longer than the pages.
set -euo pipefail
pages=() skip=false folder=
for argument; do
    case $argument in
    --test) ;;
    --test-run-directory) skip=true ;;
    */lib.rs) folder=${argument%/lib.rs} && pages+=("$argument") ;;
    *) "$skip" || pages+=("$argument") && skip=false ;;
    esac
done
[ -d "$folder" ] || { echo "rustdoc.sh: no lib.rs among the arguments" >&2 && exit 1; }
rustdoc "${pages[@]}" -D warnings --out-dir "${CARGO_TARGET_DIR:-target}/doc/$folder"
if grep -rqE --include='*.rs' '^\s*//[/!] *```' "$folder"; then
    exec rustdoc "$@"
fi
