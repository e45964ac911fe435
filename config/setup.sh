#!/bin/sh
# Installs convertd: Debian packages, and a virtual environment with the versions of a lock file.
#   sh config/setup.sh          installs what is needed to run convertd
#   sh config/setup.sh cluster  also installs Dask, which runs conversions on several machines
#   sh config/setup.sh mcp      also installs the package mcp, which gives agents tools
#   sh config/setup.sh sign     also installs pyHanko, which signs PDF files and verifies signatures
#   sh config/setup.sh otel     also installs the exporter of OpenTelemetry, which sends traces of requests
#   sh config/setup.sh console  also installs Swagger UI, which sends requests from a page of the documentation
#   sh config/setup.sh video    also installs PyAV, which reads and writes clips
#   sh config/setup.sh ocr      also installs Tesseract, which recognizes text
#   sh config/setup.sh office   also installs LibreOffice, which reads and writes files of Office
#   sh config/setup.sh browser  also installs Chromium, which shows pages of HTML
#   sh config/setup.sh cluster mcp sign otel console video ocr office browser  installs all of these
#   sh config/setup.sh test     also installs what the tests need
# Prints every step. Asks before it uses sudo in a terminal. Completed steps are skipped when it runs again.
set -eu
cd "$(dirname "$0")/.."

packages='
python3                runs convertd
python3-venv           makes the virtual environment
ca-certificates        checks certificates of HTTPS servers
curl                   sends the requests of the README
libcairo2              writes SVG that Typst refuses as PDF
libturbojpeg0          turns and cuts JPEG without loss
libseccomp2            restricts the system calls of conversions
ghostscript            reads EPS
pandoc                 reads and writes the structure of DOCX, ODT and EPUB
libpangoft2-1.0-0      lays out HTML and Markdown
libharfbuzz-subset0    stores their fonts in PDF
fonts-dejavu-core      draws text of SVG: Latin, Greek, Cyrillic, Hebrew, Arabic, symbols
fonts-liberation       draws text in Arial, Times and Courier
fonts-droid-fallback   draws Chinese, Japanese and Korean
fonts-noto-color-emoji draws emoji'
ocr_packages='
tesseract-ocr          recognizes English text; tesseract-ocr-deu is for German, tesseract-ocr-all for all languages'
office_packages='
libreoffice-writer-nogui   reads and writes documents of text
libreoffice-calc-nogui     reads and writes spreadsheets
libreoffice-impress-nogui  reads and writes presentations, and reads drawings
libreoffice-math-nogui     draws formulas
fonts-crosextra-carlito    draws text in Calibri
fonts-crosextra-caladea    draws text in Cambria'
browser_packages='
chromium-headless-shell  shows pages of HTML with their scripts'
test_packages='
djvulibre-bin            reads and writes DjVu
libheif-examples         reads HEIC independently
libjxl-tools             reads and writes JPEG XL independently
libjpeg-turbo-progs      rewrites JPEG without decoding it
libimage-exiftool-perl   reads metadata independently
redis-server             counts requests of several servers
postgresql               is the database of several servers
libjxr-tools             writes and reads JPEG XR independently
netpbm                   reads simple pictures and JPEG 2000 independently
poppler-utils            reads PDF independently
qpdf                     checks PDF independently
sqlite3                  makes backups
unzip                    reads ZIP independently
p7zip-full               reads ZIP independently
nginx                    is the reverse proxy
haproxy                  distributes requests to several servers
prometheus               checks metrics and alerts
systemd                  checks the service unit
iproute2                 drops packets between servers'

extra=""
locks=config/requirements.lock
export UV_COMPILE_BYTECODE=1
for part; do
    case $part in
    cluster | mcp | sign | otel | console | video)
        extra="$extra[$part]"
        locks="$locks config/requirements-$part.lock"
        ;;
    ocr) packages="$packages$ocr_packages" ;;
    office) packages="$packages$office_packages" ;;
    browser) packages="$packages$browser_packages" ;;
    test)
        packages="$packages$ocr_packages$office_packages$browser_packages$test_packages"
        extra="[test]"
        locks=config/requirements-test.lock
        # Most of what is installed is never loaded. What is loaded, the tests compile.
        export UV_COMPILE_BYTECODE=0 PIP_NO_COMPILE=1
        ;;
    *)
        echo "setup: $part is none of cluster, mcp, sign, otel, console, video, ocr, office, browser and test" >&2
        exit 2
        ;;
    esac
done

print() { echo "setup: $*"; }

# Prints the packages that are not installed, a line with name and purpose for each.
missing_packages() {
    echo "$packages" | while read -r package purpose; do
        [ -z "$package" ] || dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            printf '  %-24s %s\n' "$package" "$purpose"
    done
}

# Returns 1 if this user cannot or does not want to become root. Sets as_root.
become_root() {
    as_root=""
    [ "$(id -u)" != 0 ] || return 0
    as_root=sudo
    command -v sudo >/dev/null || return 1
    [ -t 0 ] && [ -t 1 ] || return 0
    printf 'setup: install them with sudo apt-get? [Y/n] '
    read -r answer || answer=n
    case $answer in [Nn]*) return 1 ;; esac
}

# Installs the packages given as arguments.
install_packages() {
    export DEBIAN_FRONTEND=noninteractive
    # The tests start their own servers; Debian must not start them after installation.
    policy=/usr/sbin/policy-rc.d
    if [ "$extra" = "[test]" ] && [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
        $as_root chmod 755 "$policy"
        trap '$as_root rm -f "$policy"' EXIT
    fi
    print "installing $# Debian packages"
    $as_root apt-get update -qq
    $as_root apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

missing=$(missing_packages)
if [ -n "$missing" ]; then
    print "missing Debian packages:"
    echo "$missing"
    names=$(echo "$missing" | awk '{ print $1 }')
    if ! command -v apt-get >/dev/null; then
        print "apt-get not found: install their equivalents"
    elif become_root; then
        # shellcheck disable=SC2086
        install_packages $names
    else
        print "as root, run: apt-get install --no-install-recommends $(echo "$missing" | awk '{ print $1 }' | xargs)"
    fi
fi

# Prefers Debian's Python: it is an optimized build, which others on the path may not be.
for python in /usr/bin/python3 python3.13 python3.12 python3.11 python3; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
done
if [ ! -x .venv/bin/python ]; then
    print "creating .venv with $python"
    "$python" -m venv .venv
fi

# Prints this folder, the versions of all installed packages, and where those of this folder come from, sorted.
installation() {
    {
        pwd
        ls .venv/lib/python3*/site-packages
        cat .venv/lib/python3*/site-packages/convertd*.dist-info/direct_url.json
    } 2>/dev/null | grep -e / -e '\.dist-info$' | LC_ALL=C sort
}

installed=".venv/installed$extra"
lost=""
[ ! -e "$installed.state" ] || lost=$(installation | LC_ALL=C comm -13 - "$installed.state")
if [ -n "$lost" ]; then
    print "no longer as it was installed:"
    echo "$lost"
fi
# shellcheck disable=SC2086
if [ -n "$lost" ] || [ ! -e "$installed.state" ] ||
    ! cat pyproject.toml web/client/pyproject.toml $locks | cmp -s - "$installed"; then
    print "installing the Python packages of $locks into .venv"
    pip() { .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "$@"; }
    # uv is faster than pip, which installs where only pip has the addresses of a package index.
    install() { .venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps "$@" 2>/dev/null || pip "$@"; }
    pip --require-hashes --requirement config/requirements-uv.lock
    for lock in $locks; do install --require-hashes --requirement "$lock"; done
    install --no-build-isolation --editable . --editable ./web/client
    mkdir -p .venv/share/man/man1  # where man looks if .venv/bin is on the path
    .venv/bin/convertd man >.venv/share/man/man1/convertd.1
    cat pyproject.toml web/client/pyproject.toml $locks >"$installed"
    installation >"$installed.state"
fi
print "ready"
