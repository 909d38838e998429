#!/usr/bin/env bash
# Fuzzes the readers of files and messages with libFuzzer under sanitizers.
#   scripts/fuzz.sh [SECONDS]     for each reader; default 60. A finding is saved in build/fuzz/findings and makes the exit code non-zero
#   scripts/fuzz.sh --coverage    how many lines of each reader are reached by its tests, the seeds and the corpus
# Seeds are beside the fuzzers in seeds/; the corpus is kept in build/fuzz/corpus and used again.
set -euo pipefail
CDPATH="" cd "$(dirname "${BASH_SOURCE[0]}")/.."
usage() {
  echo "usage: scripts/fuzz.sh [SECONDS | --coverage]" >&2
  exit 2
}
(($# <= 1)) || usage
what=${1-60}

build() { # DIRECTORY TARGET... -- [configure arguments]
  local directory=$1 targets=()
  shift
  while (($#)) && [[ $1 != -- ]]; do targets+=("$1") && shift; done
  mkdir -p "$directory"
  if ! { cmake --preset fuzz -B "$directory" "${@:2}" && cmake --build "$directory" --target "${targets[@]}" --parallel "$(nproc)"; } \
    > "$directory/build.log" 2>&1; then
    tail -n 40 "$directory/build.log" >&2
    exit 1
  fi
}

seeds_of() { # FUZZER
  compgen -G "*/fuzz/seeds/$1"
}

fuzz_one() { # FUZZER SECONDS
  local name log executions
  name=$(basename "$1")
  log=build/fuzz/$name.log
  mkdir -p "build/fuzz/corpus/$name"
  if ! "$1" -max_total_time="$2" -max_len=20000 -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 -close_fd_mask=1 \
    -artifact_prefix="build/fuzz/findings/$name-" "build/fuzz/corpus/$name" "$(seeds_of "$name")" > "$log" 2>&1; then
    printf '%s: FOUND, the end of %s:\n%s\n' "$name" "$log" "$(tail -n 30 "$log")"
    return 1
  fi
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  printf '%-20s %12d executions\n' "$name" "$executions"
}

fuzz() { # SECONDS
  build build/fuzz fuzzers
  mkdir -p build/fuzz/findings
  export -f fuzz_one seeds_of
  # One fuzzer on each core.
  printf '%s\0' build/fuzz/*_fuzz | xargs -0 -P "$(nproc)" -I{} bash -euo pipefail -c 'fuzz_one "$@"' bash {} "$1"
}

# The sources of the readers: files, command lines, and messages of child processes.
readers=(reports/record/{report,journal,json_parser,json_reader}.cpp reports/gate/{gate_rules,acknowledgement}.cpp
  reports/history/history_store.cpp bench/vectors/{csv,scalar_vectors,dot_vectors}.cpp bench/commands/command_line.cpp
  models/files/{idx,mnist,cifar,jpeg,png}.cpp)

# Executed by the seeds, the corpus, and the readers' own tests, which also check the results.
coverage() {
  ls "${readers[@]}" > /dev/null # fails if one of them is missing; otherwise its coverage would be omitted without a message
  local llvm=(llvm-profdata llvm-cov) tool
  for tool in "${llvm[@]}"; do
    command -v "$tool" > /dev/null || {
      echo "scripts/fuzz.sh: no $tool; install llvm (scripts/setup.sh --dev)" >&2
      exit 2
    }
  done
  # Without a compiler cache, because it shortens the file names in the coverage data.
  build build/coverage fuzzers reports_tests -- -DHALFMARK_SANITIZE= -DCMAKE_BUILD_TYPE=Debug -DHALFMARK_UNITY=OFF -DHALFMARK_CCACHE=OFF \
    -DHALFMARK_QUICK_LEVEL=-O0 -DHALFMARK_TESTS=ON -DCMAKE_CXX_FLAGS="-fprofile-instr-generate -fcoverage-mapping" \
    -DCMAKE_EXE_LINKER_FLAGS=-fsanitize=fuzzer-no-link
  local fuzzer name objects=(build/coverage/reports_tests)
  LLVM_PROFILE_FILE=build/coverage/reports_tests.profraw build/coverage/reports_tests --gtest_filter='-*Slow*' > build/coverage/reports_tests.log
  for fuzzer in build/coverage/*_fuzz; do
    name=$(basename "$fuzzer")
    mkdir -p "build/fuzz/corpus/$name"
    LLVM_PROFILE_FILE="build/coverage/$name.profraw" "$fuzzer" -runs=0 -close_fd_mask=1 "build/fuzz/corpus/$name" \
      "$(seeds_of "$name")" > "build/coverage/$name.log" 2>&1
    objects+=(-object "$fuzzer")
  done
  llvm-profdata merge -sparse build/coverage/*.profraw -o build/coverage/all.profdata
  llvm-cov report "${objects[@]}" -instr-profile build/coverage/all.profdata "${readers[@]}"
}

case "$what" in
  --coverage) coverage ;;
  *[!0-9]* | "") usage ;;
  *) fuzz "$what" ;;
esac
