#!/bin/bash
# build.sh FOLDER "cuda emulated" [PREFIX]: builds in FOLDER the programs that tests/gpu/check.sh runs,
# for these devices. With PREFIX, uses the libraries that tests/gpu/pack.py has put there, and
# fetches nothing. TANDEM_PRESET names another preset.
set -eu
cd "$(dirname "$0")/../.."
folder=$1 devices=$2 prefix=${3:-}
export PATH=$PATH:/usr/local/cuda/bin
options=(-DTANDEM_CUDA=ON -DTANDEM_BENCH=ON)
command -v ninja >/dev/null || options+=(-G "Unix Makefiles")
if [ -n "$prefix" ]; then
  # These libraries need others in the same folder. Programs name none, so that at run time the
  # machine's own come first if it has them.
  options+=(-DTANDEM_XGRAMMAR=OFF -DCMAKE_CXX_FLAGS_RELEASE=-O2 "-DCMAKE_PREFIX_PATH=$prefix" -DCMAKE_SKIP_BUILD_RPATH=ON
            "-DCMAKE_EXE_LINKER_FLAGS=-Wl,-rpath-link,$prefix/lib/x86_64-linux-gnu")
  # Headers of CUDA's libraries, for a machine that has only the compiler: after those that CMake names.
  export CPATH=$prefix/include${CPATH:+:$CPATH}
fi
cmake --preset "${TANDEM_PRESET:-cuda}" -B "$folder" "${options[@]}"
targets=(tandem tandem-frontend tandem-media tandem-engine-core stream_load)
for device in $devices; do targets+=(gpu_{kernels,golden,figures}_"$device"); done
[ -n "$prefix" ] || targets+=(tandem-grammar)
cmake --build "$folder" -j "$(nproc)" --target "${targets[@]}"
