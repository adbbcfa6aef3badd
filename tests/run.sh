#!/usr/bin/env bash
# Installs what is missing, builds a preset (default dev) and runs all tests with ctest.
#   tests/run.sh [preset] [ctest arguments …]      tests/run.sh release -L unit
set -euo pipefail
cd "$(dirname "$0")/.."

preset=dev
if [ $# -gt 0 ] && [[ $1 != -* ]]; then
  preset=$1
  shift
fi
deploy/install_dependencies.sh --tests

# The clients that the integration tests use, pinned by hash. Where they cannot be installed (no
# network), the tests that need them are skipped with a message.
venv=build/venv
if ! cmp -s tests/requirements.txt "$venv/installed.txt"; then
  /usr/bin/python3 -m venv --clear "$venv"
  if "$venv/bin/pip" install -q --disable-pip-version-check --no-deps --no-compile --require-hashes -r tests/requirements.txt; then
    cp tests/requirements.txt "$venv/installed.txt"
  else
    echo "tests/run.sh: the Python clients could not be installed; tests that need them are skipped" >&2
  fi
fi

cmake --preset "$preset"
cmake --build "build/$preset"
# One more than there are processors: most of the time is of tests that start servers and wait for them.
export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$(($(nproc) + 1))}
ctest --test-dir "build/$preset" --output-on-failure --no-tests=error "$@"
