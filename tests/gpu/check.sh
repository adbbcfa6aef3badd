#!/bin/bash
# The cuda backend on a machine with a GPU: every op against the reference, golden models, graphs
# against eager steps, the served pair, then figures. check.json, table.txt and logs.txt are in
# build/gpu-check, and in $OUT where that is set, after each part. Under 8 minutes; each part has a
# limit of its own, so that one that hangs costs only itself.
#
#   tests/gpu/check.sh --pack      where the project builds: makes build/gpu-pack, one archive of the
#                                  programs and the libraries they need (no GPU wanted)
#   tests/gpu/check.sh             where the GPU is, with build/gpu-pack in the working tree
#   tests/gpu/check.sh --dry-run   where it was packed: the same on an emulated device, tiny
#
# Nothing is fetched, and the second form needs neither compiler nor network; python3 serves and
# merges, and PyTorch, where it has it, runs the same shapes for comparison. Exit status 1: something
# was wrong.
set -u
cd "$(dirname "$0")/../.."
archive=build/gpu-pack/files.tar.xz
out=build/gpu-check
build=build/${TANDEM_PRESET:-cuda}  # of --pack and --dry-run
mode=${1:-run}

pack() {
  local files=build/gpu-files program file
  cmake --preset "${build#build/}" -DTANDEM_CUDA=ON >/dev/null &&
    cmake --build "$build" --target gpu_{figures,kernels,golden}_{cuda,emulated} tandem tandem-frontend \
      tandem-engine-core || return 1
  rm -rf "$files" && mkdir -p "$files"/{bin,lib,libc} build/gpu-pack || return 1
  for program in "$build"/gpu/gpu_*_cuda "$build"/bin/tandem{,-frontend,-engine-core}; do
    strip -o "$files/bin/$(basename "$program")" "$program" || return 1
  done
  for file in $(ldd "$files"/bin/* | awk '/=> \//{print $3} /^\t\/.*ld-linux/{print $1}' | sort -u); do
    # The C and C++ libraries go along with their loader, for a machine whose own are too old.
    case $(basename "$file") in
      libc.so* | libm.so* | libdl.so* | librt.so* | libpthread.so* | libresolv.so* | libgcc_s.so* | libstdc++.so* | ld-linux*)
        cp -L "$file" "$files/libc/" ;;
      *) cp -L "$file" "$files/lib/" ;;
    esac || return 1
  done
  # The programs have much in common, which a dictionary as large as all of them finds.
  tar -C "$files" -c . | xz -T1 --lzma2=preset=3,dict=128MiB >"$archive" && rm -rf "$files" && ls -lh "$archive"
}

case $mode in
  --pack) pack; exit ;;
  --dry-run) device=emulated ;;
  run) device=cuda ;;
  *) sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
[ -f "$archive" ] || { echo "there is no $archive: run tests/gpu/check.sh --pack where the project builds"; exit 2; }
rm -rf "$out" && mkdir -p "$out"/{pack,lib}
pack=$out/pack
tar -C "$pack" -xJf "$archive" || python3 -m tarfile -e "$archive" "$pack" || exit 1
[ $device = cuda ] || cp "$build"/gpu/gpu_*_emulated "$pack/bin/" || exit 1
failed=0
begin=$SECONDS
: >"$out/verdicts.txt"

# cuBLASLt is opened by its name: where PyTorch or the toolkit brought it.
cublas=$(python3 -c 'import os, nvidia, glob
print(":".join(sorted({os.path.dirname(f) for p in nvidia.__path__
                       for f in glob.glob(p + "/**/libcublasLt.so.*", recursive=True)})))' 2>/dev/null)
# Of the packed libraries, those that this machine lacks.
known=" $(ldconfig -p 2>/dev/null | awk '{print $1}' | tr '\n' ' ') "
for file in "$pack"/lib/*; do
  case $known in *" $(basename "$file") "*) ;; *) ln -sf "$PWD/$file" "$out/lib/" ;; esac
done
paths="$PWD/$out/lib:${cublas:+$cublas:}/usr/local/cuda/lib64:/usr/local/cuda/lib:/usr/local/nvidia/lib64:/usr/local/nvidia/lib:${LD_LIBRARY_PATH:-}"
# With the machine's own C library, else with the packed one.
start() {
  if [ "$loader" = own ]; then LD_LIBRARY_PATH=$paths "$@"
  else "$PWD/$pack"/libc/ld-linux-* --library-path "$PWD/$pack/libc:$PWD/$pack/lib:$paths" "$@"; fi
}
export -f start
export pack out paths loader
for loader in own packed; do
  timeout 40 bash -c 'start "$@"' - "$pack/bin/gpu_figures_$device" --probe >"$out/probe-$loader.log" 2>&1 && break
  echo "with the $loader C library: $(tail -n 1 "$out/probe-$loader.log")"
  loader=none
done
if [ $loader = none ]; then
  echo "no packed program starts here, or there is no device:"; cat "$out"/probe-*.log
  exit 1
fi
echo "with the $loader C library: $(tail -n 1 "$out/probe-$loader.log")" | tee -a "$out/verdicts.txt"
[ $device = emulated ] || nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

# What there is so far, for whoever ends this before its time.
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

slowness=$([ $device = emulated ] && echo 10 || echo 1)  # of an emulated device, beside others' work
# run NAME SECONDS LOG COMMAND …: its output to the log, its verdict to the table.
run() {
  local name=$1 limit=$(($2 * slowness)) log=$out/$3.log rc from=$SECONDS
  shift 3
  echo "== $name"
  timeout -k 5 "$limit" bash -c '"$@"' - "$@" >"$log" 2>&1
  rc=$?
  tail -n 40 "$log"
  [ $rc = 0 ] || { echo "FAILED: $name (status $rc)"; failed=1; }
  echo "$([ $rc = 0 ] && echo ok || echo "FAILED $rc")  $name, $((SECONDS - from)) s" >>"$out/verdicts.txt"
  deliver
}

run "ops against the reference" 60 kernels start "$pack/bin/gpu_kernels_$device"
run "golden models, graphs against eager steps" 45 golden start "$pack/bin/gpu_golden_$device"
if [ $device = emulated ]; then
  run "figures" 70 figures-tiny start "$pack/bin/gpu_figures_emulated" --tiny --json="$out/figures-tiny.json" attention tiny
else
  run "attention alone, by each backend" 30 figures-attention start "$pack/bin/gpu_figures_cuda" --json="$out/figures-attention.json" attention
  for shape in 0.6b 8b 1b; do
    run "figures of $shape" 70 "figures-$shape" start "$pack/bin/gpu_figures_cuda" --json="$out/figures-$shape.json" $shape
  done
fi
export TANDEM_BIN_DIR=$PWD/$pack/bin
if [ $loader != own ]; then
  echo "skipped  the served pair: its programs start each other with the machine's own C library" | tee -a "$out/verdicts.txt"
elif [ $device = emulated ]; then
  run "the served pair, on the cpu" 60 serve start python3 tests/gpu/serve.py --device cpu --streams 4 --tokens 20
else
  run "the served pair" 50 serve start python3 tests/gpu/serve.py
fi
if python3 -c 'import torch' 2>/dev/null; then
  tiny=(); [ $device = emulated ] && tiny=(--tiny)
  run "the PyTorch loop" 65 torch python3 tests/gpu/torch_loop.py "${tiny[@]}" --json "$out/torch.json"
else
  echo "skipped  the PyTorch loop: there is no PyTorch" | tee -a "$out/verdicts.txt"
fi
cat "$out/verdicts.txt"
echo "took $((SECONDS - begin)) s; $out/check.json, $out/table.txt"
exit $failed
