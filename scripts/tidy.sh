#!/usr/bin/env bash
# clang-tidy over our C++ sources, or over the files given, named from the root. Configures a clang build for its compile commands.
set -euo pipefail
CDPATH="" cd "$(dirname "${BASH_SOURCE[0]}")/.."

for argument in "$@"; do
  if [[ ! -f "$argument" ]]; then
    echo "usage: scripts/tidy.sh [FILES], from the root of the sources; no such file: $argument" >&2
    exit 2
  fi
done
if ! command -v clang-tidy > /dev/null; then
  echo "tidy: no clang-tidy; scripts/setup.sh --dev installs it" >&2
  exit 2
fi

# Without unity builds: each file is checked as it is written.
database=build/tidy
cmake --preset ci -B "$database" -DHALFMARK_UNITY=OFF > /dev/null
# CUDA code is left out: the distributions' clang cannot parse the headers of newer toolkits. Tests and micro benchmarks are
# left out because the macros of their libraries expand to code that many checks report. package_example is left out because
# it is a separate project, which needs an installed copy.
files=("$@")
if ((${#files[@]} == 0)); then
  mapfile -t files < <(git ls-files -- '*.cpp' ':!kernels/cuda/' ':!*_test.cpp' ':!bench/micro/' \
    ':!bench/package_example/')
fi
if ((${#files[@]} == 0)); then
  echo "tidy: git lists no sources here" >&2
  exit 2
fi
clang-tidy --version | sed -n 's/^ *//; /version/p'
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet -p "$database"
