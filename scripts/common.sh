# shellcheck shell=bash
# Shared by the scripts beside it; sourced, never run. Gives `say`, `fail`, `have`, `matches` and the repository's root as working folder.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# Prints one line about what is being done.
say() { printf 'odec: %s\n' "$*" >&2; }

# Prints the given lines as one message and ends the script.
fail() {
    printf 'odec: %s\n' "$1" >&2
    shift
    [ $# -eq 0 ] || printf '      %s\n' "$@" >&2
    exit 1
}

# Whether a file is there and has this SHA-256.
matches() { [ -f "$1" ] && [ "$(sha256sum <"$1" | cut -d ' ' -f 1)" = "$2" ]; }

have() { command -v "$1" >/dev/null 2>&1; }
