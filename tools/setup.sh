# shellcheck shell=sh
# What ./run and ./check share: the packages a build needs, how they get onto the machine, and one build step.
# Everything here speaks on stderr; stdout belongs to the model's text and to the tests. Expects to be in the repo root.

# Debian 12's names. docs/dependencies.md says what each library is for.
build_packages="g++ cmake ninja-build libfmt-dev nlohmann-json3-dev libcli11-dev libxxhash-dev libzstd-dev"
# shellcheck disable=SC2034  # used by ./check
test_packages="libgtest-dev libpcre2-dev"
# shellcheck disable=SC2034
sanitizer_packages="clang libclang-rt-dev"

say() { printf '%s\n' "$*" >&2; }
die() {
    say "$@"
    exit 1
}

# For machines without apt-get: what to install by hand. The names for other package managers were not tried by us.
explain_packages() {
    say "Vesta needs g++ 12 or newer, cmake 3.25 or newer, ninja, and the libraries fmt 9, nlohmann-json 3.11, CLI11 2, xxHash 0.8 and zstd 1.5." \
        "(./check also: GoogleTest, pcre2 and clang.)"
    if command -v dnf >/dev/null; then
        say "With dnf, probably: dnf install gcc-c++ cmake ninja-build fmt-devel json-devel cli11-devel xxhash-devel libzstd-devel"
    elif command -v pacman >/dev/null; then
        say "With pacman, probably: pacman -S gcc cmake ninja fmt nlohmann-json cli11 xxhash zstd"
    elif command -v zypper >/dev/null; then
        say "With zypper, probably: zypper install gcc-c++ cmake ninja fmt-devel nlohmann_json-devel cli11-devel xxhash-devel libzstd-devel"
    fi
    say "On Debian 12 they are: $build_packages"
}

# need_packages NAME...: installs the Debian packages that are missing; says so first.
need_packages() {
    if ! command -v apt-get >/dev/null; then
        for tool in g++ cmake ninja; do
            command -v "$tool" >/dev/null && continue
            say "$tool is missing, and this script installs packages only where there is apt-get."
            explain_packages
            exit 1
        done
        return 0 # a missing library shows at configure time
    fi
    installed=" $(dpkg-query -W -f='${Package} ${db:Status-Status} ' "$@" 2>/dev/null || true)"
    missing=
    for package in "$@"; do
        case $installed in
        *" $package installed "*) ;;
        *) missing="$missing $package" ;;
        esac
    done
    [ -n "$missing" ] || return 0

    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "These packages are missing; as root, run: apt-get install$missing"
        as_root=sudo
    fi
    say "Installing with ${as_root:+$as_root }apt-get:$missing"
    $as_root apt-get update -qq >&2 || say "apt-get update failed; trying with the package lists that are here"
    # shellcheck disable=SC2086  # $missing is a list
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends $missing >&2 ||
        die "apt-get could not install:$missing"
}

# configure PRESET [cmake options]
configure() {
    cmake --preset "$@" >&2 && return 0
    say "Configuring failed; the reason is above."
    explain_packages
    say "If this folder was moved since it was last built, delete its build/ and start again."
    exit 1
}

# build PRESET [--target ...]
build() { cmake --build --preset "$@" >&2 || die "The build failed; the reason is above."; }
