#!/usr/bin/env bash
# Feeds the readers made-up bytes until they break, with libFuzzer under sanitizers.
#   scripts/fuzz.sh [SECONDS]     for each reader; default 60. What is found lies in build/fuzz/findings, and exit code 1 says so
# Seeds lie beside the fuzzers in seeds/; what is learned is kept in build/fuzz/corpus and used again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-60}
[[ "$seconds" =~ ^[0-9]+$ ]] || {
  echo "usage: scripts/fuzz.sh [SECONDS]" >&2
  exit 2
}

cmake --preset fuzz > /dev/null
cmake --build --preset fuzz --parallel "$(nproc)" > /dev/null
mkdir -p build/fuzz/findings
found=false
for fuzzer in build/fuzz/*_fuzz; do
  name=$(basename "$fuzzer")
  mkdir -p "build/fuzz/corpus/$name"
  if ! "$fuzzer" -max_total_time="$seconds" -max_len=20000 -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/findings/$name-" "build/fuzz/corpus/$name" "$(compgen -G "*/fuzz/seeds/$name")" > "build/fuzz/$name.log" 2>&1; then
    found=true
    echo "$name: FOUND, the end of build/fuzz/$name.log:"
    tail -n 30 "build/fuzz/$name.log"
  fi
  echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$name.log") executions"
done
! $found
