#!/usr/bin/env bash
# The site made of docs/, in target/site/docs. Installs mdBook into target/ by cargo where it is missing (three minutes).
set -euo pipefail
source "$(dirname "$0")/common.sh"

MDBOOK=0.5.4
TOOLS=target/tools
SITE=target/site

if [ "$("$TOOLS/bin/mdbook" --version 2>/dev/null)" != "mdbook v$MDBOOK" ]; then
    say "installing mdBook $MDBOOK into $TOOLS"
    CARGO_TARGET_DIR=$TOOLS/build cargo install mdbook --version "$MDBOOK" --locked --quiet --root "$TOOLS" ||
        fail "mdBook $MDBOOK could not be installed (is crates.io reachable?)"
    rm -rf "$TOOLS/build"
fi

rm -rf "$SITE"
"$TOOLS/bin/mdbook" build
# What pages link to outside of docs/.
cp -r schemes "$SITE/schemes"
mkdir -p "$SITE/grammar"
cp grammar/odec.pest "$SITE/grammar/"
say "the site is $SITE/docs/index.html"
