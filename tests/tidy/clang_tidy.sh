#!/usr/bin/env bash
# clang-tidy with the checks of .clang-tidy over what differs from main, over files, or over the whole tree.
#   tests/tidy/clang_tidy.sh [--all | FILE …]
# A header is checked through the source of its name. BUILD names the build folder (build/dev), JOBS how many run at once.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=${BUILD:-build/dev}
tool=$(command -v clang-tidy-19 || command -v clang-tidy) || { echo "SKIPPED: clang-tidy is not installed"; exit 0; }
[ -e "$build/compile_commands.json" ] || { echo "SKIPPED: no $build/compile_commands.json (cmake --preset dev)"; exit 0; }

folders='^(common|proto_msgpack|frontend|engine_core|kernels|grammar|media|gguf|pooling|deploy/cli)/.*\.cc$'
if [ "${1:-}" = --all ]; then
  files=$(git ls-files '*.cc')
elif [ $# -gt 0 ]; then
  files=$(printf '%s\n' "$@")
else
  base=$(git merge-base HEAD main 2>/dev/null || git rev-parse 'HEAD^')
  files=$(git diff --name-only --diff-filter=d "$base" -- '*.cc' '*.h')
fi
# Only what this build compiles: the CUDA backend is not everywhere.
files=$(sed 's/\.h$/.cc/' <<<"$files" | sort -u | grep -E "$folders" |
  while read -r file; do grep -q "/$file\"" "$build/compile_commands.json" && echo "$file"; done || true)
[ -n "$files" ] || { echo "nothing to check"; exit 0; }
echo "$(wc -l <<<"$files") files"
xargs -P "${JOBS:-$(nproc)}" -n 1 "$tool" -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option <<<"$files" 2>/dev/null
