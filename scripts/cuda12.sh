#!/usr/bin/env bash
# Checks that the plugin compiles with CUDA 12, whose headers, device library and assembler are on PyPI without a compiler.
#   scripts/cuda12.sh              host sources, with the C++ compiler
#   scripts/cuda12.sh --device     device code for sm_70 and sm_90, with a clang that knows CUDA 12
# Exit code 77 if CUDA 12 or that clang is not there.
#   scripts/cuda12.sh --install    fetches it (1.3 GB) into build/cuda12
#   HALFMARK_CUDA12=FOLDER         takes it from a folder with include/, bin/ptxas and nvvm/libdevice/
#   HALFMARK_CLANG=COMPILER        instead of clang++-19
set -euo pipefail
CDPATH="" cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${HALFMARK_CUDA12:-build/cuda12}
is_complete() { [[ -f $folder/include/cudnn.h && -f $folder/include/nv/target && -x $folder/bin/ptxas ]]; }
case "$*" in
  "" | --device) ;;
  --install)
    if ! is_complete; then
      parts=$(mktemp -d)
      trap 'rm -rf "$parts"' EXIT
      python3 -m pip install --quiet --no-deps --target "$parts" nvidia-cuda-nvcc-cu12==12.9.86 \
        nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-cccl-cu12==12.9.27 nvidia-curand-cu12==10.3.10.19 \
        nvidia-cublas-cu12==12.9.3.13 nvidia-cudnn-cu12==9.28.0.42
      mkdir -p "$folder/include" "$folder/bin" "$folder/nvvm"
      cp -r "$parts"/nvidia/*/include/. "$folder/include/"
      cp -r "$parts/nvidia/cuda_nvcc/nvvm/libdevice" "$folder/nvvm/"
      install -m 755 "$parts/nvidia/cuda_nvcc/bin/ptxas" "$folder/bin/ptxas"
    fi
    exit 0
    ;;
  *)
    echo "usage: scripts/cuda12.sh [--install | --device]" >&2
    exit 2
    ;;
esac

if ! is_complete; then
  echo "no CUDA 12 in $folder; scripts/cuda12.sh --install fetches it"
  exit 77
fi
version=$(sed -n 's/^#define CUDART_VERSION *\([0-9]*\).*/\1/p' "$folder/include/cuda_runtime_api.h")
echo "CUDART_VERSION $version"
[[ $version == 12* ]] || {
  echo "this is not CUDA 12"
  exit 1
}
if [[ $* != --device ]]; then
  for source in kernels/cuda/*.cpp; do
    [[ $source == *_test.cpp ]] && continue
    echo "$source"
    # The plugin's warnings are those of the build; here only what the headers change counts.
    "${CXX:-c++}" -std=c++20 -fsyntax-only -I. -isystem "$folder/include" -DHALFMARK_STAMP='""' \
      -DHALFMARK_DOT_ARCHITECTURES='""' "$source"
  done
  exit 0
fi

clang=${HALFMARK_CLANG:-clang++-19}
if ! command -v "$clang" >/dev/null; then
  echo "no $clang; the package clang-19 has it, or HALFMARK_CLANG names another"
  exit 77
fi
object=$(mktemp)
trap 'rm -f "$object"' EXIT
for source in kernels/cuda/*.cu; do
  case ${source##*/} in
    dot_tcgen05.cu) reason="clang 19 does not know sm_100a" ;;
    dot.cu) reason='clang 19 does not know the constraint "C" of asm' ;;
    *) reason="" ;;
  esac
  if [[ $reason ]]; then
    echo "$source NOT COMPILED: $reason"
    continue
  fi
  for architecture in sm_70 sm_90; do
    echo "$source $architecture"
    # This clang was released before CUDA 12.9, of which it warns, and ignores __grid_constant__. Without -isystem it would take the
    # headers of another CUDA from /usr/local/include.
    "$clang" -x cuda --cuda-path="$folder" --cuda-device-only --cuda-gpu-arch="$architecture" -isystem "$folder/include" \
      -std=c++20 -O1 -ffp-contract=off -Wno-unknown-cuda-version -Wno-unknown-attributes -Wno-pass-failed -I. -c "$source" -o "$object"
  done
done
