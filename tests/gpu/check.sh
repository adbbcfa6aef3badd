#!/bin/bash
# Checks the cuda backend on a machine with a GPU: the build there, every op against the reference,
# golden models, graphs against eager steps, the served pair, then figures. Writes check.json, table.txt
# and logs.txt to build/gpu-check, and to $OUT if set, after each part. Takes under 8 minutes even if
# something hangs: each part has a limit of its own, and none runs past the total.
#
#   tests/gpu/check.sh --pack      where the project builds: makes build/gpu-pack, one archive of the
#                                  headers and libraries that the build needs (tests/gpu/pack.py)
#   tests/gpu/check.sh             where the GPU is, with build/gpu-pack in the working tree
#   tests/gpu/check.sh --dry-run   anywhere, with build/gpu-pack: the same on an emulated device, tiny
#
# Nothing is fetched. The second form needs nvcc, a C++ compiler, CMake, ninja or make, and python3; if
# the build fails, it reports that and runs the packed programs. PyTorch, if python3 has it, runs the
# same shapes for comparison. Exit status 1: a part failed.
set -u
cd "$(dirname "$0")/../.."
archive=build/gpu-pack/files.tar.xz
out=build/gpu-check
case ${1:-run} in
  --pack) exec python3 tests/gpu/pack.py ;;
  --dry-run) device=emulated slowness=10 ;;  # on a machine with other load
  run) device=cuda slowness=1 ;;
  *) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
[ -f "$archive" ] || { echo "there is no $archive: run tests/gpu/check.sh --pack where the project builds"; exit 2; }
# Keeps what an earlier call has built.
pack=$out/pack
rm -rf "$out"/{*.*,bin,lib,pack} && mkdir -p "$out"/{bin,build,lib,pack}
tar -C "$pack" -xJf "$archive" || python3 -m tarfile -e "$archive" "$pack" || exit 1
cp -a "$pack/_deps" "$out/build/" || exit 1
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
  local name=$1 limit=$(($2 * slowness)) left=$((470 * slowness - SECONDS)) log=$out/$3.log rc from=$SECONDS
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

attempts=("packed own" "packed packed")
if run "the build" 200 build tests/gpu/build.sh "$PWD/$out/build" $device "$PWD/$pack/usr"; then
  attempts=("built own" "${attempts[@]}")
  ln -s "$PWD/$out"/build/{bin/tandem*,gpu/gpu_*} "$out/bin/"
else
  echo "FAILED build: ran the packed programs" | tee -a "$out/verdicts.txt"
fi

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
for attempt in "${attempts[@]}"; do
  read -r programs loader <<<"$attempt"
  bin=$PWD/$pack/bin
  [ "$programs" = packed ] || bin=$PWD/$out/bin
  log=$out/probe-$programs-$loader.log
  timeout 40 bash -c 'start "$@"' - "$bin/gpu_figures_$device" --probe >"$log" 2>&1 && break
  echo "FAILED start of the $programs programs with the $loader C library: $(tail -n 1 "$log")" | tee -a "$out/verdicts.txt"
  failed=1
  programs=none
done
if [ "$programs" = none ]; then
  echo "no program starts here, or there is no device:"; cat "$out"/probe-*.log
  deliver
  exit 1
fi
echo "the $programs programs with the $loader C library: $(tail -n 1 "$log")" | tee -a "$out/verdicts.txt"
[ $device = emulated ] || nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

run "ops against the reference" 60 kernels start "$bin/gpu_kernels_$device"
run "golden models, graphs against eager steps" 45 golden start "$bin/gpu_golden_$device"
if [ $device = emulated ]; then
  run "figures" 70 figures-tiny start "$bin/gpu_figures_emulated" --tiny --json="$out/figures-tiny.json" attention products tiny tiny-int4
else
  run "attention alone, by each backend" 30 figures-attention start "$bin/gpu_figures_cuda" --json="$out/figures-attention.json" attention
  run "products with matrices in codes" 30 figures-products start "$bin/gpu_figures_cuda" --json="$out/figures-products.json" products
  for shape in 0.6b 8b 8b-int4 1b; do
    run "figures of $shape" 70 "figures-$shape" start "$bin/gpu_figures_cuda" --json="$out/figures-$shape.json" $shape
  done
fi
export TANDEM_BIN_DIR=$bin
if [ $loader != own ]; then
  echo "skipped  the served pair: its programs start each other with the machine's own C library" | tee -a "$out/verdicts.txt"
elif [ $device = emulated ]; then
  run "the served pair, on the cpu" 60 serve start python3 tests/gpu/serve.py --device cpu --streams 4 --tokens 20
  run "the pair with two ranks, on the cpu" 60 serve-ranks start python3 tests/gpu/serve.py --device cpu --streams 4 --tokens 20 --ranks 2
else
  run "the served pair" 50 serve start python3 tests/gpu/serve.py
  if [ "$(nvidia-smi -L | wc -l)" -ge 2 ]; then
    run "the pair with two devices" 60 serve-ranks start python3 tests/gpu/serve.py --ranks 2
  else
    echo "skipped  the pair with two devices: there is one" | tee -a "$out/verdicts.txt"
  fi
fi
if python3 -c 'import torch' 2>/dev/null; then
  tiny=(); [ $device = emulated ] && tiny=(--tiny)
  run "the PyTorch loop" 65 torch python3 tests/gpu/torch_loop.py "${tiny[@]}" --json "$out/torch.json"
else
  echo "skipped  the PyTorch loop: there is no PyTorch" | tee -a "$out/verdicts.txt"
fi
cat "$out/verdicts.txt"
echo "took $SECONDS s; $out/check.json, $out/table.txt"
exit $failed
