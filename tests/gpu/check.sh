#!/bin/bash
# Checks the cuda backend on a machine with a GPU: every op against the reference, golden models,
# graphs against eager steps, the served pair, then figures. Writes check.json, table.txt and logs.txt
# to build/gpu-check, and to $OUT if set, after each part. Takes under 8 minutes, or SECONDS, even if
# something hangs: each part has a limit of its own, and none runs past the total.
#
#   tests/gpu/check.sh --pack [--programs [MODEL ...]]
#                                  where the project builds: makes build/gpu-pack, one archive of the
#                                  programs, and of what it takes to build them (tests/gpu/pack.py)
#   tests/gpu/check.sh [--seconds SECONDS] [PART ...]
#                                  where the GPU is, with build/gpu-pack in the working tree; PART is
#                                  cases, serve, integration, profile, torch, a tool of compute-sanitizer
#                                  (memcheck) or what gpu_figures_cuda measures
#   tests/gpu/check.sh --build     the same with programs that are built there
#   tests/gpu/check.sh --dry-run   anywhere, with build/gpu-pack: on an emulated device, tiny
#
# Nothing is fetched. Programs are built only if asked for, or if the packed ones do not start: that
# needs nvcc, a C++ compiler, CMake, ninja or make. All need python3; PyTorch, if it is there, runs the
# same shapes for comparison. Exit status 1: a part failed.
set -u
cd "$(dirname "$0")/../.."
archive=${TANDEM_GPU_PACK:-build/gpu-pack}/files.tar.xz
out=build/gpu-check
device=cuda slowness=1 builds=no total=470 parts=()
while [ $# -gt 0 ]; do
  case $1 in
    --pack) shift; exec python3 tests/gpu/pack.py "$@" ;;
    --dry-run) device=emulated slowness=10 builds=yes ;;  # on a machine with other load
    --build) builds=yes ;;
    --seconds) total=$2; shift ;;
    [a-z0-9]*) parts+=("$1") ;;
    *) sed -n '2,23s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done
[ ${#parts[@]} -gt 0 ] || parts=(cases serve attention products 0.6b 8b 8b-int4 1b torch)
[ -f "$archive" ] || { echo "there is no $archive: run tests/gpu/check.sh --pack where the project builds"; exit 2; }
# Keeps what an earlier call has built.
pack=$out/pack
rm -rf "$out"/{*.*,bin,lib,pack} && mkdir -p "$out"/{bin,build,lib,pack}
tar -C "$pack" -xJf "$archive" || python3 -m tarfile -e "$archive" "$pack" || exit 1
[ ! -d "$pack/_deps" ] || cp -a "$pack/_deps" "$out/build/" || exit 1
[ ! -d "$pack/goldens" ] || export TANDEM_GOLDENS=$PWD/$pack/goldens
failed=0
: >"$out/verdicts.txt"

# The results so far, in case the check is ended early.
deliver() {
  cat "$out"/verdicts.txt "$out"/figures-*.log "$out"/torch.log "$out"/serve.log >"$out/table.txt" 2>/dev/null
  tail -n +1 "$out"/*.log >"$out/logs.txt"
  python3 - "$out" <<'EOF' || failed=1
import glob, json, os, sys
out = sys.argv[1]
rows = []
for name in sorted(glob.glob(out + "/figures-*.json") + glob.glob(out + "/torch.json")):
    try:
        rows += json.load(open(name))
    except ValueError as problem:
        print(name, problem)
times = {row["name"]: row["value"] for row in rows}
for name, value in times.items():
    step, found, _ = name.partition(" graph PyTorch")
    if found and f"{step} graph" in times:
        rows.append({"name": f"{step}: PyTorch's time over ours", "value": value / times[f"{step} graph"], "unit": "x"})
        with open(out + "/table.txt", "a") as table:
            print(f"{rows[-1]['name']:<46} {rows[-1]['value']:14.2f} x", file=table)
verdicts = open(os.path.join(out, "verdicts.txt")).read().splitlines()
json.dump({"verdicts": verdicts, "figures": rows}, open(os.path.join(out, "check.json"), "w"), indent=1)
EOF
  [ -z "${OUT:-}" ] || cp "$out"/{check.json,table.txt,logs.txt} "$OUT/"
}

# run NAME SECONDS LOG COMMAND …: its output to the log, its verdict to the table.
run() {
  local name=$1 limit=$(($2 * slowness)) left=$((total * slowness - SECONDS)) log=$out/$3.log rc from=$SECONDS
  shift 3
  echo "== $name"
  [ $left -gt 0 ] || left=1
  timeout -k 5 $((limit < left ? limit : left)) bash -c '"$@"' - "$@" >"$log" 2>&1
  rc=$?
  tail -n 40 "$log"
  [ $rc = 0 ] || { echo "FAILED: $name (status $rc)"; failed=1; }
  echo "$([ $rc = 0 ] && echo ok || echo "FAILED $rc")  $name, $((SECONDS - from)) s" >>"$out/verdicts.txt"
  deliver
  return $rc
}

# Of SECONDS, what is left to a part that is to end by itself.
most() {
  local limit=$(($1 * slowness)) left=$((total * slowness - SECONDS - 5))
  echo $((limit < left ? limit : left))
}

# cuBLASLt and NCCL are opened by name, from PyTorch's or the toolkit's folders.
nvidia=$(python3 -c 'import os, nvidia, glob
print(":".join(sorted({os.path.dirname(f) for p in nvidia.__path__ for name in ("cublasLt", "nccl")
                       for f in glob.glob(f"{p}/**/lib{name}.so.*", recursive=True)})))' 2>/dev/null)
# The packed libraries that this machine lacks.
libraries=$PWD/$pack/usr/lib/x86_64-linux-gnu
known=" $(ldconfig -p 2>/dev/null | awk '{print $1}' | tr '\n' ' ') "
for file in "$libraries"/*.so.*; do
  case $known in *" $(basename "$file") "*) ;; *) ln -s "$file" "$out/lib/" ;; esac
done
paths="$PWD/$out/lib:${nvidia:+$nvidia:}/usr/local/cuda/lib64:/usr/local/cuda/lib:/usr/local/nvidia/lib64:/usr/local/nvidia/lib:${LD_LIBRARY_PATH:-}"
# With the machine's own C library, or else the packed one.
start() {
  if [ "$loader" = own ]; then LD_LIBRARY_PATH=$paths "$@"
  else "$libc"/ld-linux-* --library-path "$libc:$libraries:$paths" "$@"; fi
}
libc=$PWD/$pack/libc bin='' loader=''
export -f start
export bin libc libraries loader paths
# try WHICH LOADER: whether the built or the packed programs start so.
try() {
  loader=$2
  bin=$PWD/$pack/bin
  [ "$1" = packed ] || bin=$PWD/$out/bin
  local log=$out/probe-$1-$loader.log
  if timeout 40 bash -c 'start "$@"' - "$bin/gpu_figures_$device" --probe >"$log" 2>&1; then
    echo "the $1 programs with the $loader C library: $(tail -n 1 "$log")" | tee -a "$out/verdicts.txt"
  else
    echo "FAILED start of the $1 programs with the $loader C library: $(tail -n 1 "$log")" | tee -a "$out/verdicts.txt"
    return 1
  fi
}
build() {
  [ -d "$pack/_deps" ] || { echo "the pack has only programs"; return 1; }
  run "the build" 200 build tests/gpu/build.sh "$PWD/$out/build" $device "$PWD/$pack/usr" &&
    ln -s "$PWD/$out"/build/{bin/tandem*,bench/stream_load,gpu/gpu_*} "$out/bin/" && try built own
}
starts=no
if [ $builds = yes ]; then
  build && starts=yes
else
  { try packed own || build || try packed packed; } && starts=yes
fi
if [ $starts = no ]; then
  echo "no program starts here, or there is no device:"; cat "$out"/probe-*.log
  deliver
  exit 1
fi
[ $device = emulated ] || nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

python=(start python3) prefix=''
[ "$loader" = own ] || { python=(python3) prefix="$(echo "$libc"/ld-linux-*) --library-path $libc:$libraries:$paths"; }
export TANDEM_BIN_DIR=$bin
for part in "${parts[@]}"; do
  case $part in
    cases)
      run "ops and whole models, case by case" 155 cases "${python[@]}" tests/gpu/cases.py --prefix "$prefix" \
        --jobs "$(nproc)" --seconds "$(most 150)" --case-seconds $((60 * slowness)) "$bin"/gpu_{kernels,golden}_$device ;;
    memcheck|racecheck|synccheck|initcheck)
      run "ops by compute-sanitizer, $part" 75 $part "${python[@]}" tests/gpu/cases.py --prefix "$prefix" \
        --sanitizer $part --jobs "$(nproc)" --seconds "$(most 70)" "$bin"/gpu_kernels_$device ;;
    serve)
      flags=()
      [ $device = cuda ] || flags=(--device cpu --streams 4 --tokens 20)
      if [ "$loader" != own ]; then
        echo "skipped  the served pair: its programs start each other with the machine's own C library" | tee -a "$out/verdicts.txt"
        continue
      fi
      run "the served pair" 60 serve start python3 tests/gpu/serve.py "${flags[@]}"
      if [ $device = emulated ] || [ "$(nvidia-smi -L | wc -l)" -ge 2 ]; then
        run "the pair with two ranks" 60 serve-ranks start python3 tests/gpu/serve.py "${flags[@]}" --ranks 2
      else
        echo "skipped  the pair with two devices: there is one" | tee -a "$out/verdicts.txt"
      fi ;;
    integration)
      run "integration tests" 100 integration start python3 tests/gpu/integration.py --jobs $(($(nproc) * 3 / 4)) \
        --seconds "$(most 90)" ;;
    profile)
      run "time by kernel" 60 profile start python3 tests/gpu/profile.py "$bin/gpu_figures_$device" ;;
    torch)
      if python3 -c 'import torch' 2>/dev/null; then
        tiny=(); [ $device = cuda ] || tiny=(--tiny)
        run "the PyTorch loop" 65 torch python3 tests/gpu/torch_loop.py "${tiny[@]}" --json "$out/torch.json"
      else
        echo "skipped  the PyTorch loop: there is no PyTorch" | tee -a "$out/verdicts.txt"
      fi ;;
    *)
      tiny=(); [ $device = cuda ] || tiny=(--tiny)
      run "figures of $part" 70 "figures-$part" start "$bin/gpu_figures_$device" "${tiny[@]}" \
        --json="$out/figures-$part.json" "$part" ;;
  esac
done
cat "$out/verdicts.txt"
echo "took $SECONDS s; $out/check.json, $out/table.txt"
exit $failed
