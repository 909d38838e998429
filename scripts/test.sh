#!/usr/bin/env bash
# Builds and tests everything; any failed stage makes the exit code 1 and is named at the end together with its log.
#   scripts/test.sh          what every commit must pass
#   scripts/test.sh --all    also thread sanitizer, clang-tidy, clang-format, every GPU architecture, long samples, bare systems
# shellcheck disable=SC2317 # functions are called through `stage`
set -euo pipefail
CDPATH="" cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=false
case "$*" in
  "") ;;
  --all) all=true ;;
  *)
    echo "usage: scripts/test.sh [--all]" >&2
    exit 2
    ;;
esac

logs=build/logs
mkdir -p "$logs"
rm -f "$logs"/*.log "$logs"/*.xml
# shellcheck source=scripts/stage.sh
source scripts/stage.sh

python=python3
[[ -x /usr/bin/python3 ]] && python=/usr/bin/python3
export PYTHONDONTWRITEBYTECODE=1
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
test_logs=()

finish() {
  printf '\n%-24s result       time\n' stage
  printf '%s\n' "${stage_rows[@]}"

  # One block per build: the skipped tests with their reasons, the failed ones with what they said, then the last lines of ctest.
  local name
  for name in "${test_logs[@]}"; do
    printf '\n%s\n' "$name"
    if [[ -f "$logs/${name// /-}.xml" ]]; then
      "$python" scripts/test_results.py "$logs/${name// /-}.xml"
    fi
    grep -A1000 -E '^[0-9]+% tests passed' "$logs/${name// /-}.log" | grep -vE '^$|did not run|\((Skipped|Not Run|Disabled)\)$' || true
  done

  if $any_failed; then
    printf '\n%s\n' "${red}FAILED:${plain}"
    printf '%s\n' "${stage_rows[@]}" | grep -E '^.{25}(FAILED|NOT RUN)'
    exit 1
  fi
  exit 0
}

run_tests() { # PRESET JUNIT_FILE [ctest arguments]
  local preset=$1 junit=$PWD/$2
  shift 2
  ctest --test-dir "build/$preset" --parallel "$(nproc)" --timeout 1800 --output-on-failure --no-tests=error \
    --test-output-size-passed 100000 --test-output-size-failed 3000000 --output-junit "$junit" "$@"
}

build_and_test() { # PRESET [ctest arguments]
  local preset=$1
  shift
  stage "build $preset" "${wrapper[@]}" build_preset "$preset" "${targets[@]}"
  built=$stage_ok
  if $built; then
    stage "tests $preset" "${wrapper[@]}" run_tests "$preset" "$logs/tests-$preset.xml" "$@"
    test_logs+=("tests $preset")
  else
    miss_stage "tests $preset" "build $preset failed"
  fi
}
wrapper=() # a command before that of the stage
targets=() # --target and the targets to build; all if empty
# With one process for each of a thousand tests, a third of the time would go into starting them.
configure_arguments=(-DHALFMARK_TEST_SHARDS=8)

check_levels() {
  "$python" scripts/check_levels.py
  "$python" scripts/check_includes.py
  "$python" scripts/check_readmes.py
  # The scripts are checked too.
  if command -v shellcheck > /dev/null; then
    shellcheck -x .ci/run scripts/*.sh
  fi
}

# The plugin is loaded at run time, so an undefined symbol would only be found on the GPU machine.
check_plugin() {
  local plugin=$1 words
  words=$(ldd -r "$plugin" 2>&1)
  printf '%s\n' "$words"
  if grep -E 'undefined symbol|not found' <<< "$words"; then
    echo "$plugin: the lines above name the undefined symbols"
    return 1
  fi
}

cuda_stages() {
  local state plugin
  # CMake's summary says whether CUDA is on, and if not, why.
  state=$(sed -n 's/^-- *CUDA  *//p' "$logs/build-release.log" | tail -n 1)
  if [[ -z "$state" || "$state" == off* ]]; then
    skip_stage "cuda plugin" "${state:-the configuration says nothing about CUDA}"
    return
  fi
  plugin=$(find build/release -maxdepth 1 -name '*halfmark_cuda.so' -print -quit)
  if [[ -z "$plugin" ]]; then
    miss_stage "cuda plugin" "CUDA is on ($state), yet build/release holds no halfmark_cuda.so"
  else
    stage "cuda plugin" check_plugin "$plugin"
  fi
  if $all; then
    stage "build cuda" build_preset cuda --target halfmark_cuda
    stage "install CUDA 12" scripts/cuda12.sh --install
    if $stage_ok; then
      stage "cuda 12" scripts/cuda12.sh
      if command -v "${HALFMARK_CLANG:-clang++-19}" > /dev/null; then
        stage "cuda 12 device code" scripts/cuda12.sh --device
      else
        skip_stage "cuda 12 device code" "no clang++-19; the package clang-19 has it"
      fi
    else
      miss_stage "cuda 12" "CUDA 12 could not be installed"
    fi
  fi
}

check_format() {
  clang-format --version
  local files
  mapfile -t files < <(git ls-files -- '*.h' '*.cpp' '*.cu' '*.cuh')
  # Outside a repository git lists nothing; that must not count as a success.
  ((${#files[@]} > 0)) || {
    echo "git lists no sources here"
    return 1
  }
  clang-format --dry-run -Werror "${files[@]}"
}

# Without address randomisation: older thread sanitizers fail on kernels that randomise more address bits.
fixed_addresses() {
  if setarch "$(uname -m)" -R true 2> /dev/null; then
    export -f build_preset run_tests
    setarch "$(uname -m)" -R bash -euo pipefail -c '"$@"' bash "$@"
  else
    "$@"
  fi
}

stage setup scripts/setup.sh --dev
$stage_ok || finish
# Needs the network once, so it is installed with --all only.
compare_with_pytorch() {
  $all && stage "install PyTorch" scripts/peers/pytorch.py --install
  if [[ -x build/peers/pytorch/bin/python ]]; then
    stage "against PyTorch" scripts/peers/pytorch.py
    stage "planted against PyTorch" scripts/peers/pytorch.py --self-test
  else
    skip_stage "against PyTorch" "it is not installed; scripts/peers/pytorch.py --install does it"
  fi
}

$all && export HALFMARK_LONG=1

stage levels check_levels
build_and_test release
if $built; then
  cuda_stages
  stage archive scripts/pack.sh release
  compare_with_pytorch
else
  miss_stage "cuda plugin" "build release failed"
  miss_stage archive "build release failed"
  miss_stage "against PyTorch" "build release failed"
fi
unset HALFMARK_LONG # the long samples run in one build only
# The scripts' tests were run with the release tests: no compiler changes them.
build_and_test dev -LE 'slow|scripts'
# Where clang optimises. The rest of the code is compiled by clang in the stage before.
if $all; then
  build_and_test ci -LE 'slow|scripts'
else
  targets=(--target kernels_tests)
  build_and_test ci -LE slow -R '^kernels_tests\.'
  targets=()
fi
if $all; then
  # Compiled in groups, a file can use what another one of its group includes.
  stage "each file alone" build_preset edit
  wrapper=(fixed_addresses)
  build_and_test tsan -LE 'slow|scripts'
  wrapper=()
  stage clang-format check_format
  stage clang-tidy scripts/tidy.sh
  stage "bare systems" scripts/bare_systems.sh
  while IFS=: read -r system reason; do
    skip_stage "${system#SKIPPED }" "${reason# }"
  done < <(grep '^SKIPPED ' "$stage_log")
fi
finish
