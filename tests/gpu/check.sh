#!/bin/bash
# The cuda backend on a machine with a GPU: every op against the reference, golden models, graphs
# against eager steps, then figures. One JSON and one table in $OUT (default: build/gpu-check).
#
#   tests/gpu/check.sh --pack      where the project builds: makes build/gpu-pack, which holds the
#                                  programs and the libraries they need (no GPU wanted)
#   tests/gpu/check.sh             where the GPU is, with build/gpu-pack beside the working tree
#   tests/gpu/check.sh --dry-run   after --pack, anywhere: the same on an emulated device, tiny
#
# Nothing is fetched, and the second form needs neither compiler nor network; PyTorch, where python3
# has it, runs the same shapes for comparison. Exit status 1: something was wrong.
set -u
cd "$(dirname "$0")/../.."
pack=build/gpu-pack
mode=${1:-run}

pack() {
  cmake --preset cuda >/dev/null &&
    cmake --build build/cuda --target gpu_{figures,kernels,golden}_{cuda,emulated} || return 1
  rm -rf "$pack" && mkdir -p "$pack/lib" || return 1
  local program
  for program in build/cuda/gpu/gpu_*; do
    strip -o "$pack/$(basename "$program")" "$program" || return 1
    # The loader goes along, so that the other machine may be older or newer than this one.
    ldd "$program" | awk '/=> \//{print $3} /^\t\/.*ld-linux/{print $1}' |
      xargs -I{} cp -Lu {} "$pack/lib/"
  done
  du -sh "$pack"
}

case $mode in
  --pack) pack; exit ;;
  --dry-run) device=emulated ;;
  run) device=cuda ;;
  *) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
[ -d "$pack" ] || { echo "there is no $pack: run tests/gpu/check.sh --pack where the project builds"; exit 2; }
out=${OUT:-build/gpu-check}
mkdir -p "$out"
failed=0
begin=$SECONDS

# cuBLASLt is opened by its name: where PyTorch or the toolkit brought it.
cublas=$(python3 -c 'import os, nvidia, glob
print(":".join(sorted({os.path.dirname(f) for p in nvidia.__path__
                       for f in glob.glob(p + "/**/libcublasLt.so.*", recursive=True)})))' 2>/dev/null)
paths="$PWD/$pack/lib:${cublas:+$cublas:}/usr/local/cuda/lib64:/usr/local/nvidia/lib64:/usr/local/nvidia/lib:${LD_LIBRARY_PATH:-}"
start() { "$(ls "$pack"/lib/ld-linux-* | head -1)" --library-path "$paths" "$@"; }
# Where the packed C library does not get on with the driver's: the machine's own.
start "$pack/gpu_figures_$device" >/dev/null 2>&1
[ $? = 2 ] || { rm -f "$pack"/lib/lib{c,m,dl,pthread,rt}.so.*; start() { LD_LIBRARY_PATH=$paths "$@"; }; }
export -f start; export pack paths

# run NAME SECONDS PROGRAM ARGUMENTS …: its output to the log, its verdict to the table.
run() {
  local name=$1 limit=$2 program=$3 rc
  shift 3
  echo "== $name"
  timeout "$limit" bash -c 'start "$@"' - "$pack/$program" "$@" >"$out/$program.log" 2>&1
  rc=$?
  tail -n 60 "$out/$program.log"
  [ $rc = 0 ] || { echo "FAILED: $name (status $rc)"; failed=1; }
  echo "$([ $rc = 0 ] && echo ok || echo "FAILED $rc")  $name" >>"$out/verdicts.txt"
}

: >"$out/verdicts.txt"
[ $device = emulated ] || nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
run "ops against the reference" 90 gpu_kernels_$device
run "golden models, graphs against eager steps" 60 gpu_golden_$device
if [ $device = emulated ]; then
  run "figures" 120 gpu_figures_emulated --tiny --json="$out/figures.json" tiny
else
  run "figures" 240 gpu_figures_cuda --json="$out/figures.json"
fi
if python3 -c 'import torch' 2>/dev/null; then
  torch_args=$([ $device = emulated ] && echo --tiny)
  timeout 75 python3 tests/gpu/torch_loop.py $torch_args --json "$out/torch.json" |
    tee "$out/torch.log"
  [ "${PIPESTATUS[0]}" = 0 ] || { echo "the PyTorch loop failed"; failed=1; }
else
  echo "no PyTorch here: no comparison"
fi
cat "$out/verdicts.txt" "$out/gpu_figures_$device.log" "$out/torch.log" 2>/dev/null >"$out/table.txt"
python3 - "$out" <<'EOF' || failed=1
import json, os, sys
out = sys.argv[1]
rows = [row for name in ("figures.json", "torch.json")
        if os.path.exists(os.path.join(out, name))
        for row in json.load(open(os.path.join(out, name)))]
verdicts = open(os.path.join(out, "verdicts.txt")).read().splitlines()
json.dump({"verdicts": verdicts, "figures": rows}, open(os.path.join(out, "check.json"), "w"), indent=1)
EOF
cat "$out/verdicts.txt"
echo "took $((SECONDS - begin)) s; $out/check.json, $out/table.txt"
exit $failed
