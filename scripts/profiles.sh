#!/usr/bin/env bash
# Compares what two builds of odec compile models to, the optimised one and the one that tests run: launches, plans and kernel text of every model of the
# library, for a GPU and for processors, must be the same. rustc may miscompile one of the builds (Cargo.toml has a case).
# profiles.sh RELEASE DEBUG
set -euo pipefail
[ $# = 2 ] || { echo 'usage: scripts/profiles.sh RELEASE DEBUG' >&2; exit 2; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
compared=0 differ=0 refused=0
for model in schemes/models/*.ode; do
    for of in 'sm_90a f32' 'sm_90a bf16' 'cpu:avx512bf16 bf16' 'cpu:avx2 f32'; do
        read -r target precision <<<"$of"
        for stage in program mlir; do
            command=(build "$model" --target "$target" --set "train.precision=$precision" --emit "$stage")
            # A model that cannot be built so is refused by both, in the same words.
            "$1" "${command[@]}" >"$scratch/release" 2>&1 || refused=$((refused + 1))
            "$2" "${command[@]}" >"$scratch/debug" 2>&1 || true
            compared=$((compared + 1))
            cmp -s "$scratch/release" "$scratch/debug" || {
                differ=$((differ + 1))
                echo "$model: $stage for $target, $precision, differs"
            }
        done
    done
done
echo "$compared texts compared, $refused of them refusals; $differ differ"
[ "$differ" = 0 ] && [ $((10 * refused)) -lt "$compared" ]
