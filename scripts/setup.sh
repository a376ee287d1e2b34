#!/usr/bin/env bash
# Installs what odec is built with, and says what is missing where it cannot. Quiet when there is nothing to do.
#
# Debian (root or sudo): the packages below, by apt. Elsewhere, or with an LLVM of your own: set ODEC_LLVM_PREFIX to the
# prefix of an LLVM 22 that was built with MLIR; then nothing is installed by apt, only checked.
# Rust is installed by rustup, into ~/.cargo, if there is none.
set -euo pipefail
source "$(dirname "$0")/common.sh"

RUST=1.95.0
LLVM_MAJOR=22
DEBIAN_PREFIX=/usr/lib/llvm-$LLVM_MAJOR
PREFIX=${ODEC_LLVM_PREFIX:-$DEBIAN_PREFIX}

PACKAGES=(
    # code generation: LLVM, MLIR, and libclang for their Rust bindings
    llvm-22-dev libmlir-22-dev mlir-22-tools libpolly-22-dev libclang-22-dev clang-22 lld-22
    # what LLVM itself links against
    libzstd-dev zlib1g-dev libxml2-dev libffi-dev libtinfo-dev
    # a linker for Rust; Python for the data, the references and the benchmark; a way to fetch Rust
    build-essential python3 python3-venv curl ca-certificates
)

# The packages of PACKAGES that are not installed, one per line.
missing_packages() {
    local package
    for package in "${PACKAGES[@]}"; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
    done
}

install_packages() {
    local missing as_root=()
    mapfile -t missing < <(missing_packages)
    [ ${#missing[@]} -gt 0 ] || return 0
    local by_hand="apt-get update && apt-get install --no-install-recommends ${missing[*]}"
    if [ "$(id -u)" != 0 ]; then
        have sudo || fail "these packages are missing and need root (there is no sudo):" "$by_hand"
        as_root=(sudo env)
    else
        as_root=(env)
    fi
    say "installing by apt: ${missing[*]}"
    "${as_root[@]}" apt-get update -qq || say "apt-get update failed; trying with the package lists that are there"
    local policy
    policy=$(apt-cache policy "llvm-$LLVM_MAJOR-dev")
    if ! [[ $policy =~ Candidate:\ *[0-9] ]]; then
        fail "this system's package sources have no LLVM $LLVM_MAJOR." \
            "Debian 12 has it in bookworm-security. Elsewhere install LLVM $LLVM_MAJOR with MLIR, for instance from https://apt.llvm.org," \
            "and name its prefix: ODEC_LLVM_PREFIX=/usr/lib/llvm-$LLVM_MAJOR make"
    fi
    "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
        fail "apt could not install them; try by hand:" "$by_hand"
}

# Whether the first version is at least the second.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

install_rust() {
    have curl || fail "Rust $RUST or newer is missing. Install it from https://rustup.rs (or install curl, and this script does it)."
    say "installing Rust $RUST by rustup, into ${CARGO_HOME:-$HOME/.cargo}"
    curl --proto '=https' --tlsv1.2 -fsSL https://static.rust-lang.org/rustup/rustup-init.sh |
        RUSTUP_INIT_SKIP_PATH_CHECK=yes sh -s -- -y -q --no-modify-path --profile minimal --default-toolchain "$RUST" \
            -c rustfmt -c clippy >/dev/null ||
        fail "rustup could not be installed; see https://rustup.rs"
}

rust_version() { cargo --version 2>/dev/null | awk '{print $2}'; }

check_rust() {
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    # A distribution's Rust that is too old is left alone: rustup's comes first in PATH (the Makefile sees to that too).
    if ! have cargo || { ! have rustup && ! at_least "$(rust_version)" "$RUST"; }; then
        install_rust
    fi
    at_least "$(rust_version)" "$RUST" ||
        fail "Rust $(rust_version) is too old: odec needs $RUST." "With rustup: rustup update stable"
    { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 ||
        say "rustfmt or clippy is missing; \`make test\` needs them: rustup component add rustfmt clippy"
}

check_llvm() {
    local missing=() version=none config="$PREFIX/bin/llvm-config"
    if [ -x "$config" ]; then
        version=$("$config" --version)
        [[ $version == "$LLVM_MAJOR".* ]] || missing+=("LLVM $LLVM_MAJOR: $config says $version")
        [ -f "$("$config" --includedir)/mlir-c/IR.h" ] || missing+=("MLIR's C headers: $("$config" --includedir)/mlir-c/IR.h")
        local libraries
        libraries=$("$config" --libdir)
        compgen -G "$libraries/libMLIRCAPIIR.a" >/dev/null || compgen -G "$libraries/libMLIR-C.so*" >/dev/null ||
            missing+=("MLIR's C libraries: libMLIRCAPI*.a or libMLIR-C.so in $libraries")
    else
        missing+=("$config (part of LLVM $LLVM_MAJOR)")
    fi
    [ -n "${LIBCLANG_PATH:-}" ] || compgen -G "$PREFIX/lib*/libclang*.so*" >/dev/null ||
        { have ldconfig && [[ $(ldconfig -p) == *libclang* ]]; } ||
        missing+=("libclang, which reads MLIR's headers: in $PREFIX/lib, or named by LIBCLANG_PATH")
    have ld || have ld.lld-$LLVM_MAJOR || have ld.lld || [ -x "$PREFIX/bin/ld.lld" ] || have cc ||
        missing+=("a linker for compiled models: ld, ld.lld of LLVM $LLVM_MAJOR or cc")
    have cc || missing+=("a C compiler, which Rust links with: cc")
    have c++ || missing+=("a C++ compiler and its library: c++")
    [ ${#missing[@]} -eq 0 ] || fail "these are missing under the LLVM prefix $PREFIX:" "${missing[@]/#/- }" \
        "Name another prefix with ODEC_LLVM_PREFIX; docs/install.md says how to build one."
}

check_python() {
    have python3 || fail "python3 is missing (3.11 or newer): it fetches the data and runs the reference tests."
    python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        fail "python3 must be 3.11 or newer and have the modules venv and ensurepip; this is $(python3 --version)."
}

if [ -z "${ODEC_LLVM_PREFIX:-}" ] && have apt-get && have dpkg-query; then
    install_packages
fi
check_rust
check_llvm
check_python
