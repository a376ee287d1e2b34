#!/usr/bin/env bash
# The whole suite. Runs every step even if an earlier one failed, then prints a summary; ends with 1 if anything failed.
set -euo pipefail
source "$(dirname "$0")/common.sh"
# One seed: two runs of the suite look at the same cases of properties. `cargo test` alone looks at new ones.
export CARGO_TERM_PROGRESS_WHEN=never INSTA_UPDATE=no PROPTEST_RNG_SEED=1
# glibc's allocator keeps memory that a test frees. Otherwise the system takes its pages back, and zeroes them when the test asks again.
export MALLOC_TRIM_THRESHOLD_=1000000000 MALLOC_MMAP_THRESHOLD_=500000000

# Built by the tests, which run it. Every build selects the whole workspace: other selections have other features of dependencies, and would
# build some of them again.
program=${CARGO_TARGET_DIR:-target}/debug/odec

python_of_references() { scripts/venv.sh .venv tests/reference/requirements.txt; }
python_of_agreement() { PIP_RETRIES=1 PIP_DEFAULT_TIMEOUT=10 scripts/venv.sh .venv-agree tests/reference/agree.txt; }

notes=$(mktemp -d)
trap 'rm -rf "$notes"' EXIT

# Seconds of processor time of all that this shell has waited for, in a variable. The builtin writes to a file: in a subshell that prints, it would
# know of nothing.
spent=0
count_spent() {
    local clock=$notes/times.$BASHPID
    times >"$clock"
    spent=$(awk -F'[ ms]+' 'NR == 2 { printf "%d", 60 * ($1 + $3) + $2 + $4 }' "$clock")
}

# step NAME COMMAND…: runs the command, notes its result, time and processor time.
step() {
    local name=$1 began=$SECONDS before=$spent verdict=ok
    shift
    printf '\n── %s: %s\n' "$name" "$*"
    "$@" </dev/null || verdict=FAILED
    count_spent
    printf '   %-18s %-6s %5d s %5d s of processor time\n' "$name" "$verdict" $((SECONDS - began)) $((spent - before)) >>"$notes/results"
}

# beside LIST LIST: two lists of steps at the same time, each in its order; what the second says is printed when both have ended. For steps that use one core.
beside() {
    (spent=0 && "$2") >"$notes/said" 2>&1 &
    "$1"
    wait $! || printf '   %-18s FAILED (stopped)\n' "$2" >>"$notes/results"
    cat "$notes/said"
    count_spent
}

# What later steps fetch comes while others compute. A step waits for it with `fetched`, and then asks for it itself, which says what is wrong.
{ python_of_references && scripts/ptxas.sh && python_of_agreement; } </dev/null >/dev/null 2>&1 &
fetching=$!
fetched() { wait "$fetching" || true; }

rust_tests() {
    if cargo nextest --version >/dev/null 2>&1; then
        # nextest starts each test itself. By default a second process of nextest does, for the sake of Ctrl-Z.
        NEXTEST_DOUBLE_SPAWN=0 cargo nextest run --workspace --no-fail-fast --status-level fail --final-status-level fail
    else
        cargo test --quiet --workspace --tests --no-fail-fast
    fi
}

# `.ci/run` makes clippy's driver the compiler of the workspace's crates (rustc.sh): the build of the tests prints the lints, and a later build prints
# them again. No crate is then compiled in two ways. Without it, `cargo clippy` checks all crates in builds of its own.
linting_build() { [[ ${RUSTC_WORKSPACE_WRAPPER:-} == */scripts/rustc.sh ]]; }
! linting_build || have clippy-driver || unset RUSTC_WORKSPACE_WRAPPER

# lint SELECTION: of cargo's targets and features.
lint() {
    local said verdict=0
    if linting_build; then
        said=$(cargo build --quiet --workspace "$@" 2>&1) || verdict=1
        printf '%s' "$said"
        [ -z "$said" ] && return "$verdict"
    else
        cargo clippy --quiet --workspace "$@" -- -D warnings
    fi
}

# odec without LLVM: checking and drawing need no code generator, nor does a card's machine, where this one travels (gpu_script). It takes the program's
# place for a moment.
without_llvm() {
    cp "$program" "$notes/odec" || return 1
    lint --bin odec --no-default-features &&
        cargo build --quiet --workspace --bin odec --no-default-features &&
        cp "$program" "$notes/runner"
    local verdict=$?
    cp --remove-destination "$notes/odec" "$program" && [ "$verdict" = 0 ]
}

# Runs the examples in comments and checks the links in them. In a linting build, rustdoc reads the crates that were built for the tests.
documentation() {
    if linting_build; then
        RUSTDOC=$PWD/scripts/rustdoc.sh cargo test --quiet --workspace --doc
    else
        cargo test --quiet --workspace --doc && RUSTDOCFLAGS='-D warnings' cargo doc --quiet --keep-going --workspace --no-deps
    fi
}

scripts_parse() {
    local script
    for script in scripts/*.sh .ci/run; do
        bash -n "$script" || return 1
    done
    if have shellcheck; then
        shellcheck --severity=warning --external-sources --source-path=SCRIPTDIR scripts/*.sh .ci/run || return 1
    fi
    python3 - benches/*.py explore/src/*.py scripts/*.py tests/*.py tests/reference/*.py <<'PYTHON'
import ast, pathlib, sys
for path in sys.argv[1:]:
    ast.parse(pathlib.Path(path).read_text(encoding="utf-8"), path)
PYTHON
}

# No cycle of imports between folders; and the picture of the crates is what they are.
floors() {
    local found verdict=0
    found=$(python3 scripts/cycles.py) || verdict=1
    grep -v '^  ' <<<"$found"
    [ "$verdict" = 0 ] && python3 scripts/crates.py --check
}

# Systems are measured side by side: threads of BLAS would only take processor time from each other.
reference() {
    fetched
    python_of_references && OPENBLAS_NUM_THREADS=1 .venv/bin/python tests/reference/check.py "$program"
}

# The library's tableaus and proved orders beside scipy's and nodepy's. Nothing else needs those: without them it is skipped.
agreement() {
    if ! python_of_agreement; then
        echo 'skipped: scipy and nodepy could not be installed'
        return 0
    fi
    .venv-agree/bin/python tests/reference/agree.py "$program"
}

# Every kernel of the library through NVIDIA's assembler: none may spill or call.
gpu_assembler() {
    fetched
    scripts/ptxas.sh && cargo test --quiet --workspace --test gpu assemble -- --ignored
}

# What measures a card, without one: packed, light enough for a kit of all systems to be carried, launched by the driver that computes
# nothing; refused where there is no card; and rehearsed with failures.
gpu_script() {
    local folder
    folder=$(mktemp -d) || return 1
    ODEC_KEEP_LAUNCHES=$folder/launches cargo test --quiet --workspace --test gpu -- kernels::gathers_scatters tensor::contractions_of_bf16_by_warpgroups &&
        ODEC=$program RUNNER=$notes/runner LAUNCHES=$folder/launches scripts/gpu.sh prepare "$folder/kit" --only prenorm --sizes 55M --steps 2 --preset 1 &&
        XDG_CACHE_HOME=$folder/cache "$folder/kit/run.sh" "$folder/out" --device cuda:dry >"$folder/said" &&
        grep -q '^| prenorm-bf16-revolve .* launched, nothing computed' "$folder/said" &&
        grep -q '^| contract-sm_90a .* launched, nothing computed' "$folder/said" &&
        grep -q '^sm_90a  generation .* good$' "$folder/said" &&
        ! XDG_CACHE_HOME=$folder/cache "$folder/kit/run.sh" "$folder/none" --device cuda:63 &&
        python3 benches/gpu_test.py
    local verdict=$?
    [ "$verdict" = 0 ] || cat "$folder/said"
    rm -rf "$folder"
    return "$verdict"
}

step 'format' cargo fmt --all -- --check -l
step 'scripts' scripts_parse
step 'floors' floors
step 'lint' lint --tests
step 'tests' rust_tests
step 'without LLVM' without_llvm
step 'GPU assembler' gpu_assembler
step 'float64 reference' reference
of_cards() { step 'GPU script' gpu_script; }
of_pages() {
    step 'agreement' agreement
    step 'documentation' documentation
}
beside of_cards of_pages

verdict=ok
! grep -q FAILED "$notes/results" || verdict=FAILED
printf '\n── summary\n'
cat "$notes/results"
printf '   %-18s %-6s %5d s %5d s of processor time\n' together "$verdict" "$SECONDS" "$spent"
[ "$verdict" = ok ]
