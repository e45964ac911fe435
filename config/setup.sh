#!/bin/sh
# Installs convertd: system packages and a virtual environment with the project.
#   sh config/setup.sh        installs what is needed to run convertd
#   sh config/setup.sh test   also installs what the tests need; further arguments are passed to pip
# Completed steps are skipped when it runs again.
set -eu
cd "$(dirname "$0")/.."

packages="python3 python3-venv ca-certificates libcairo2 libseccomp2 ghostscript"
# Fonts of SVG: Latin, Greek, Cyrillic, Hebrew, Arabic and symbols; metrics of Arial, Times and Courier; Chinese, Japanese and Korean.
packages="$packages fonts-dejavu-core fonts-liberation fonts-droid-fallback"
extra=""
lock=config/requirements.lock
if [ "${1:-}" = test ]; then
    packages="$packages chromium-headless-shell libheif-examples libimage-exiftool-perl redis-server postgresql sqlite3 nginx prometheus systemd"
    extra="[test]"
    lock=config/requirements-test.lock
fi

[ $# = 0 ] || shift

missing=""
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
if [ -n "$missing" ]; then
    if command -v apt-get >/dev/null; then
        as_root=""
        [ "$(id -u)" = 0 ] || as_root="sudo"
        export DEBIAN_FRONTEND=noninteractive
        # The tests start their own servers; Debian must not start them after installation.
        policy=/usr/sbin/policy-rc.d
        if [ -n "$extra" ] && [ ! -e "$policy" ]; then
            printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
            $as_root chmod 755 "$policy"
            trap '$as_root rm -f "$policy"' EXIT
        fi
        $as_root apt-get update -qq
        # shellcheck disable=SC2086
        $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
    else
        echo "setup: apt-get not found; install the equivalents of these Debian packages:$missing" >&2
    fi
fi

# Prefers Debian's Python: it is an optimised build, which others on the path may not be.
for python in /usr/bin/python3 python3.13 python3.12 python3.11 python3; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
done
[ -x .venv/bin/python ] || "$python" -m venv .venv
installed=".venv/installed$extra"
if ! cat pyproject.toml "$lock" | cmp -s - "$installed"; then
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@" --require-hashes --requirement "$lock"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@" --no-deps --editable .
    cat pyproject.toml "$lock" >"$installed"
fi
echo "setup: ready"
