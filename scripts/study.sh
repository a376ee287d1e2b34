#!/usr/bin/env bash
# The study of docs/study.md:  study.sh ODEC
#
# Four explorations in explorations/study, each of nine models on Shakespeare; pictures of three rankings into docs/study. What is killed goes on when it is
# called again; trials that have a result are not run again.
set -euo pipefail
source "$(dirname "$0")/common.sh"

odec=$1
out=explorations/study

# explore NAME FILE SETTINGS…
explore() {
    local name=$1 file=docs/study/$2
    shift 2
    "$odec" explore "$file" --out "$out/$name" "$@"
}

explore equal_flops equal_flops.ode
explore equal_steps equal_steps.ode
explore longer equal_flops.ode --set train.steps=6000
explore rates rates.ode
for name in equal_flops equal_steps longer; do
    cp "$out/$name/ranking.svg" "docs/study/$name.svg"
done
"$odec" report "$out/equal_flops" "$out/equal_steps" "$out/longer" -o "$out/report.html"
