#!/usr/bin/env bash
# Drives our engine core with vLLM 0.33's own Rust frontend and compares its answers with ours.
#   tests/interop/run.sh [preset] [test …]      tests/interop/run.sh release Answers
# The frontend is TANDEM_VLLM_RS, else build/interop/vllm-rs, else taken out of the wheel (336 MB from PyPI).
# --no-download skips in place of the last, unless TANDEM_INTEROP is set; ctest passes it.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly kWheelSha256=4b6bdec4ab269990bf70d45a3c1e94c3760a27064513760193b26d6f0da883aa

skip() {
  echo "SKIPPED: $1"
  exit 0
}

download=yes
if [ "${1:-}" = --no-download ]; then
  download=${TANDEM_INTEROP:-}
  shift
fi
if [ $# -gt 0 ] && [ -f "build/$1/CMakeCache.txt" ]; then
  export TANDEM_BIN_DIR=$PWD/build/$1/bin
  shift
fi
export TANDEM_BIN_DIR=${TANDEM_BIN_DIR:-$PWD/build/release/bin}
for binary in tandem tandem-frontend tandem-engine-core; do
  [ -x "$TANDEM_BIN_DIR/$binary" ] || { echo "$TANDEM_BIN_DIR/$binary is not built" >&2; exit 1; }
done

if [ -z "${TANDEM_VLLM_RS:-}" ]; then
  export TANDEM_VLLM_RS=$PWD/build/interop/vllm-rs
fi
if [ ! -x "$TANDEM_VLLM_RS" ]; then
  [ "$(uname -m)" = x86_64 ] || skip "no vllm-rs for $(uname -m) is known"
  [ -n "$download" ] || skip "there is no $TANDEM_VLLM_RS; TANDEM_INTEROP=1 or tests/interop/run.sh downloads it (336 MB)"
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  echo "vllm==0.33.0 --hash=sha256:$kWheelSha256" >"$folder/requirements.txt"
  [ -x build/venv/bin/python3 ] || /usr/bin/python3 -m venv build/venv
  build/venv/bin/python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    -r "$folder/requirements.txt" -d "$folder" || skip "the vllm 0.33.0 wheel could not be downloaded"
  mkdir -p build/interop
  /usr/bin/python3 -m zipfile -e "$folder"/vllm-*.whl "$folder/wheel"
  install -m 755 "$folder/wheel/vllm/vllm-rs" build/interop/vllm-rs
  export TANDEM_VLLM_RS=$PWD/build/interop/vllm-rs
  rm -rf "$folder"
  trap - EXIT
fi
exec /usr/bin/python3 tests/interop/interop_test.py "$@"
