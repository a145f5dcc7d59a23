# Set-up shared by scripts/run and scripts/test, which source it. It installs only what is missing, says what it
# installs, and costs nothing when everything is there.
# shellcheck shell=bash

# Debian keeps servers in /usr/sbin, which an ordinary user's PATH leaves out.
export PATH="$PATH:/usr/sbin"

say() { printf '==> %s\n' "$*" >&2; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# The toolchain itself is rust-toolchain.toml's business; here only: is there a cargo, and does it start?
need_cargo() {
    local env="${CARGO_HOME:-$HOME/.cargo}/env"
    if ! command -v cargo >/dev/null && [[ -f "$env" ]]; then
        # shellcheck disable=SC1090  # written by rustup
        source "$env"
    fi
    command -v cargo >/dev/null || die "cargo is not installed: install Rust with rustup, then run this again"
    cargo --version >/dev/null || die "cargo does not start: it needs the toolchain that rust-toolchain.toml names (see above)"
}

# need PROOF=PACKAGE...: installs each Debian package whose proof, a command or an absolute path, is not there.
need() {
    local pair proof missing=()
    for pair in "$@"; do
        proof=${pair%%=*}
        if [[ "$proof" == /* ]]; then
            [[ -e "$proof" ]] || missing+=("${pair#*=}")
        else
            command -v "$proof" >/dev/null || missing+=("${pair#*=}")
        fi
    done
    [[ ${#missing[@]} == 0 ]] || install_packages "${missing[@]}"
}

install_packages() {
    command -v apt-get >/dev/null || die "missing: $*. There is no apt-get here; install them by hand"
    [[ "$(id -u)" == 0 ]] || command -v sudo >/dev/null || die "missing: $*. As root: apt-get install $*"
    say "installing Debian packages: $*"
    as_root apt-get update -q >&2 || die "apt-get update failed (see above)"
    forbid_services
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" >&2 ||
        die "apt-get could not install $* (see above)"
    allow_services
    disable_services "$@"
}

# What a package brings (nginx, prometheus) must not start at the next boot either: only programs are wanted of it here.
disable_services() {
    local package unit
    [[ -d /run/systemd/system ]] || return 0
    for package in "$@"; do
        for unit in $(dpkg -L "$package" | sed -n 's:^\(/usr\)\?/lib/systemd/system/\([^/@]*\.service\)$:\2:p'); do
            as_root systemctl disable --quiet "$unit" >&2 || say "could not disable $unit"
        done
    done
}

as_root() {
    if [[ "$(id -u)" == 0 ]]; then
        "$@"
    else
        sudo "$@"
    fi
}

# Debian starts a server as soon as it is installed (nginx, on port 80). Tests start their own, so that is forbidden for
# the length of the installation, unless the machine has a policy of its own.
policy=/usr/sbin/policy-rc.d
policy_is_ours=no

forbid_services() {
    [[ -e "$policy" ]] && return
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
    policy_is_ours=yes
    trap allow_services EXIT
}

allow_services() {
    [[ "$policy_is_ours" == yes ]] || return 0
    as_root rm -f "$policy"
    policy_is_ours=no
    trap - EXIT
}

# need_venv FOLDER ARGUMENT...: a virtual environment of Python in a new folder, with what pip is told to install there.
need_venv() {
    local folder=$1
    shift
    # Debian has python3 without what makes virtual environments; other builds of Python bring it.
    need python3=python3
    python3 -c 'import ensurepip, venv' 2>/dev/null || install_packages python3-venv
    say "installing from PyPI into $folder: $*"
    rm -rf "$folder"
    python3 -m venv "$folder" && "$folder/bin/pip" install --quiet --disable-pip-version-check "$@" ||
        die "what $folder is for could not be installed (see above)"
}

# What building takes: cmake for Pingora's zlib-ng, a C compiler for that, ring and mimalloc.
need_build_tools() {
    need_cargo
    need cmake=cmake make=make cc=gcc /usr/include/stdlib.h=libc6-dev
}
