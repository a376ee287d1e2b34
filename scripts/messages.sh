# shellcheck shell=bash
# Fetches message catalogues of LibreOffice 7.4.7 (MPL-2.0) from Debian's packages, which are unpacked and not installed; sourced, never run.

VERSION=7.4.7-1+deb12u14
PACKAGES=http://deb.debian.org/debian/pool/main/libr/libreoffice

# Puts the catalogues of a language into a folder; the package has this SHA-256. What follows is said where it cannot be fetched.
fetch_messages() {
    local language=$1 sha256=$2 folder=$3 otherwise=$4 tool
    local package=libreoffice-l10n-${language}_${VERSION}_all.deb
    for tool in curl ar tar xz python3; do
        have "$tool" || fail "$tool is missing (Debian has it in curl, binutils, tar, xz-utils and python3)"
    done
    mkdir -p "$folder"
    curl -fsSL -o "$folder/package.deb" "$PACKAGES/$package" ||
        fail "$package could not be fetched (is deb.debian.org reachable, and has it this version still?)" "$otherwise"
    matches "$folder/package.deb" "$sha256" || fail "the package that arrived is not $package (SHA-256 differs)"
    (cd "$folder" && ar x package.deb data.tar.xz && tar -xJf data.tar.xz)
}
