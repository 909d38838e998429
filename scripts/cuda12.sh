#!/usr/bin/env bash
# Checks that the plugin's host sources compile with the headers of CUDA 12 and of its cuDNN, which PyPI has without a compiler.
#   scripts/cuda12.sh              compiles; exit code 77 if the headers are not there
#   scripts/cuda12.sh --install    fetches them (1.3 GB) into build/cuda12
#   HALFMARK_CUDA12=FOLDER         takes them from a folder with include/cublasLt.h, cudnn.h and cuda_runtime_api.h
set -euo pipefail
CDPATH="" cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${HALFMARK_CUDA12:-build/cuda12}
case "$*" in
  "") ;;
  --install)
    if [[ ! -f $folder/include/cudnn.h ]]; then
      parts=$(mktemp -d)
      trap 'rm -rf "$parts"' EXIT
      python3 -m pip install --quiet --no-deps --target "$parts" nvidia-cuda-nvcc-cu12==12.9.86 \
        nvidia-cuda-runtime-cu12==12.9.79 nvidia-cublas-cu12==12.9.3.13 nvidia-cudnn-cu12==9.28.0.42
      mkdir -p "$folder/include"
      cp -r "$parts"/nvidia/*/include/. "$folder/include/"
    fi
    exit 0
    ;;
  *)
    echo "usage: scripts/cuda12.sh [--install]" >&2
    exit 2
    ;;
esac

if [[ ! -f $folder/include/cudnn.h ]]; then
  echo "no headers of CUDA 12 in $folder; scripts/cuda12.sh --install fetches them"
  exit 77
fi
version=$(sed -n 's/^#define CUDART_VERSION *\([0-9]*\).*/\1/p' "$folder/include/cuda_runtime_api.h")
echo "CUDART_VERSION $version"
[[ $version == 12* ]] || {
  echo "these are not the headers of CUDA 12"
  exit 1
}
for source in kernels/cuda/*.cpp; do
  [[ $source == *_test.cpp ]] && continue
  echo "$source"
  # The plugin's warnings are those of the build; here only what the headers change counts.
  "${CXX:-c++}" -std=c++20 -fsyntax-only -I. -isystem "$folder/include" -DHALFMARK_STAMP='""' \
    -DHALFMARK_DOT_ARCHITECTURES='""' "$source"
done
