#!/bin/sh
# Writes the lock files: the newest versions that pyproject.toml allows, with hashes. Keeps versions that are locked
# and still allowed.
#   sh config/lock.sh             after a change of pyproject.toml
#   sh config/lock.sh --upgrade   takes the newest versions of all packages; further arguments are passed to uv
set -eu
cd "$(dirname "$0")/.."

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools"
"$tools/bin/pip" install --quiet --disable-pip-version-check uv

# PyMuPDF requires the libraries of its neural networks, which are never loaded (see engine/mupdf.py) and take 100 MB.
for package in networkx onnxruntime; do echo "$package; python_version < '3'"; done >"$tools/overrides.txt"

lock() {
    # The build backend is installed from the lock file, too.
    "$tools/bin/python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])' |
        "$tools/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
            --override "$tools/overrides.txt" --custom-compile-command "sh config/lock.sh" pyproject.toml - "$@"
}

lock --extra postgres --extra s3 --output-file config/requirements.lock "$@"
lock --extra postgres --extra s3 --extra cluster --constraint config/requirements.lock \
    --output-file config/requirements-cluster.lock "$@"
lock --extra postgres --extra s3 --extra mcp --constraint config/requirements-cluster.lock \
    --output-file config/requirements-mcp.lock "$@"
lock --extra postgres --extra s3 --extra sign --constraint config/requirements-cluster.lock \
    --constraint config/requirements-mcp.lock --output-file config/requirements-sign.lock "$@"
lock --extra postgres --extra s3 --extra video --constraint config/requirements.lock \
    --output-file config/requirements-video.lock "$@"
lock --extra postgres --extra s3 --extra otel --constraint config/requirements-cluster.lock \
    --constraint config/requirements-mcp.lock --constraint config/requirements-sign.lock \
    --output-file config/requirements-otel.lock "$@"
lock --extra postgres --extra s3 --extra console --constraint config/requirements-cluster.lock \
    --output-file config/requirements-console.lock "$@"
lock --extra test --constraint config/requirements-cluster.lock --constraint config/requirements-mcp.lock \
    --constraint config/requirements-sign.lock --constraint config/requirements-video.lock \
    --constraint config/requirements-otel.lock --constraint config/requirements-console.lock \
    --output-file config/requirements-test.lock "$@"
echo uv | "$tools/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
    --custom-compile-command "sh config/lock.sh" - --output-file config/requirements-uv.lock "$@"
