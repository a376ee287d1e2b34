#!/usr/bin/env bash
# Coverage-guided fuzzing of parser, formatter and compiler: fuzz.sh [SECONDS]. Starts from the library's files; what it finds is kept in fuzz/corpus,
# what fails in fuzz/artifacts. The flags are those of cargo-fuzz without a sanitizer, which the stable compiler takes: no code here is unsafe.
set -euo pipefail
source "$(dirname "$0")/common.sh"

seconds=${1:-600}
target=$(rustc -vV | sed -n 's/^host: //p')
flags=(--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 -Cdebug-assertions)
for argument in coverage-level=4 coverage-inline-8bit-counters coverage-pc-table coverage-trace-compares; do
    flags+=("-Cllvm-args=-sanitizer-$argument")
done

cd fuzz
RUSTFLAGS="${flags[*]}" cargo build --release --target "$target"
mkdir -p corpus/source artifacts/source
# One word of the language a line, as libFuzzer wants them: "evolve".
grep -rho --include='*.ode' '[a-z_]\{3,\}' ../schemes | sort -u | sed 's/.*/"&"/' >artifacts/words.txt
"target/$target/release/source" corpus/source ../schemes -dict=artifacts/words.txt -artifact_prefix=artifacts/source/ \
    -max_len=4096 -len_control=0 -timeout=60 -rss_limit_mb=2048 -max_total_time="$seconds" -print_final_stats=1
