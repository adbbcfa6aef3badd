#!/usr/bin/env bash
# Builds the fuzz targets (preset fuzz: clang, libFuzzer, ASan, UBSan) and runs each for its share of SECONDS, or one.
#   tests/fuzz/run.sh [--built] SECONDS [TARGET …]      tests/fuzz/run.sh 1200 http
# --built: runs what is there, and nothing where nothing was built.
# Without the check of function types, with which clang 14 cannot compile coroutines.
# Inputs that reach new code are kept in build/fuzz/corpus/TARGET and are where the next run begins. An input that breaks a
# target is written to build/fuzz/found, and the status is 1; build/fuzz/tests/fuzz_TARGET FILE runs it again.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ "${1:-}" = --built ]; then
  shift
  [ -e build/fuzz/tests/fuzz_http ] || { echo "SKIPPED: the preset fuzz is not built (tests/fuzz/run.sh 60)"; exit 0; }
else
  command -v clang++ >/dev/null || { echo "SKIPPED: clang is not installed (apt-get install clang)"; exit 0; }
  [ -e build/fuzz/build.ninja ] || cmake --preset fuzz >/dev/null
  cmake --build --preset fuzz >/dev/null
fi
seconds=${1:?seconds to run}
shift

targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls tests/fuzz/corpus | sed 's/\.tar\.xz$//')
share=$((seconds / ${#targets[@]}))
mkdir -p build/fuzz/found
status=0
for target in "${targets[@]}"; do
  kept=build/fuzz/corpus/$target
  corpus=tests/fuzz/corpus/$target
  mkdir -p "$kept"
  if [ -e "$corpus.tar.xz" ]; then
    mkdir -p build/fuzz/unpacked/"$target"
    tar -xf "$corpus.tar.xz" -C build/fuzz/unpacked/"$target"
    corpus=build/fuzz/unpacked/$target
  fi
  log=build/fuzz/$target.log
  if build/fuzz/tests/fuzz_"$target" -max_total_time=$((share > 0 ? share : 1)) -timeout=10 -rss_limit_mb=2048 \
      -max_len=4096 -artifact_prefix="build/fuzz/found/$target-" -print_final_stats=1 \
      "$kept" "$corpus" >"$log" 2>&1; then
    echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs, $(ls "$kept" | wc -l) inputs kept"
  else
    echo "$target: FAILED, see $log"
    tail -n 40 "$log"
    status=1
  fi
done
exit $status
