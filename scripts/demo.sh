#!/usr/bin/env bash
# From a scheme file to a model that talks: check, draw, build, train (at most three minutes), evaluate, generate.
#   demo.sh ODEC
set -euo pipefail
source "$(dirname "$0")/common.sh"
[ $# -eq 1 ] || fail "usage: scripts/demo.sh ODEC"
odec=$1
run=runs/demo
seconds=170

# Prints the command it runs, so that the demo is also a lesson.
show() {
    printf '\n\033[1m$ odec %s\033[0m\n' "$*"
    "$odec" "$@"
}

rm -rf "$run"
mkdir -p "$run"
show check schemes/models/iiet.ode
show graph schemes/models/iiet.ode --format svg -o "$run/graph.svg"
show build schemes/models/iiet.ode -o "$run/iiet.odex"
show train "$run/iiet.odex" --out "$run" --time-limit "$seconds"
show eval "$run"
show generate "$run" --prompt 'ROMEO:' --tokens 400 --temperature 0.8

printf '\nPictures:\n'
find "$run" -name '*.svg' | sort | sed 's/^/  /'
printf 'The run (checkpoint, metrics, artifact): %s\n' "$run"
