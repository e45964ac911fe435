#!/bin/sh
# Sets convertd up: system packages, a virtual environment, the project in it.
#   sh config/setup.sh        to run it
#   sh config/setup.sh test   to test it too; options that follow are pip's
# Running it again only does what is not yet done.
set -eu
cd "$(dirname "$0")/.."

packages="python3 python3-venv ca-certificates libcairo2 ghostscript"
extra=""
if [ "${1:-}" = test ]; then
    packages="$packages chromium-headless-shell libheif-examples redis-server postgresql sqlite3 nginx prometheus systemd"
    extra="[test]"
fi

[ $# = 0 ] || shift

absent=""
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || absent="$absent $package"
done
if [ -n "$absent" ]; then
    if command -v apt-get >/dev/null; then
        as_root=""
        [ "$(id -u)" = 0 ] || as_root="sudo"
        export DEBIAN_FRONTEND=noninteractive
        # Servers that are installed for the tests are started by the tests, not by Debian.
        policy=/usr/sbin/policy-rc.d
        if [ -n "$extra" ] && [ ! -e "$policy" ]; then
            printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
            $as_root chmod 755 "$policy"
            trap '$as_root rm -f "$policy"' EXIT
        fi
        $as_root apt-get update -qq
        # shellcheck disable=SC2086
        $as_root apt-get install -y -qq --no-install-recommends $absent >/dev/null
    else
        echo "setup: apt-get is not here; install by other means what these Debian packages hold:$absent" >&2
    fi
fi

# Debian's own is built for speed, which others on the path need not be.
for python in /usr/bin/python3 python3.13 python3.12 python3.11 python3; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
done
[ -x .venv/bin/python ] || "$python" -m venv .venv
installed=".venv/installed$extra"
if ! cmp -s pyproject.toml "$installed"; then
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@" --editable ".$extra"
    cp pyproject.toml "$installed"
fi
echo "setup: ready"
