#!/usr/bin/env bash
# What the optimised odec compiles models to, beside what the one that tests run does: launches, plans and kernels' text of every model of the library, for a
# GPU and for processors, must be the same. rustc may make other code of the two (Cargo.toml has a case).
# profiles.sh RELEASE DEBUG
set -euo pipefail
[ $# = 2 ] || { echo 'usage: scripts/profiles.sh RELEASE DEBUG' >&2; exit 2; }
compared=0 differ=0
for model in schemes/models/*.ode; do
    for of in 'sm_90a f32' 'sm_90a bf16' 'cpu:avx512bf16 bf16' 'cpu:avx2 f32'; do
        read -r target precision <<<"$of"
        for stage in program mlir; do
            # A model that cannot be built so is refused in the same words.
            texts=()
            for odec in "$@"; do
                texts+=("$({ "$odec" build "$model" --target "$target" --set "train.precision=$precision" --emit "$stage" || true; } 2>&1 | sha256sum)")
            done
            compared=$((compared + 1))
            if [ "${texts[0]}" != "${texts[1]}" ]; then
                differ=$((differ + 1))
                echo "$model: $stage for $target, $precision, differs"
            fi
        done
    done
done
echo "$compared texts compared, $differ differ"
[ "$differ" = 0 ]
