#!/usr/bin/env bash
# Writes the pages of docs/ that odec prints, and the checked answers of the cookbook. Tests compare them.
set -euo pipefail
source "$(dirname "$0")/common.sh"
odec=${1:?the program}

# page NAME COMMAND…: what the command prints becomes the page, if it succeeds.
page() {
    local name=$1
    shift
    "$odec" "$@" >"docs/$name.md.new" && mv "docs/$name.md.new" "docs/$name.md"
}

page layers help layers
page parts help parts
page errors explain --markdown
page schemes schemes
page methods methods
scripts/cookbook.py "$odec" --write
