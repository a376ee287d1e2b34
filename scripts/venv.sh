#!/usr/bin/env bash
# Makes or refreshes a Python virtual environment:  venv.sh FOLDER REQUIREMENTS
# Quiet when FOLDER already holds what REQUIREMENTS names.
set -euo pipefail
source "$(dirname "$0")/common.sh"
[ $# -eq 2 ] || fail "usage: scripts/venv.sh FOLDER REQUIREMENTS"
folder=$1 requirements=$2

# The stamp holds the requirements it was made from and the Python that made it: if either changes, it is made anew.
want="$(python3 -c 'import sys; print(sys.version)')
$(cat "$requirements")"
if [ -f "$folder/odec-stamp" ] && [ "$(cat "$folder/odec-stamp")" = "$want" ]; then
    exit 0
fi
say "making the Python environment $folder from $requirements"
rm -rf "$folder"
python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements" ||
    fail "pip could not install $requirements into $folder (is PyPI reachable?)"
printf '%s\n' "$want" >"$folder/odec-stamp"
