#!/usr/bin/env bash
# Checks a machine with an NVIDIA GPU, without network or root: the CUDA tests (every kernel row against
# the CPU's reference), matrix instructions against their simulated rows, how the libraries add, and a suite with its controls.
# Runs from the packed archive (../bin/halfmark) or from the sources after a build (../build/release/halfmark).
#   scripts/gpu_check.sh [-o FOLDER] [-d cuda:0] [-s quick] [-m MINUTES] [-r ROWS] [-v tensor_core_probes.csv]
# MINUTES for known results (1), ROWS for each matrix instruction in the tests: a million with 12 cores and more, else 100000.
# Leaves FOLDER/gpu_report.json, ready to be a baseline of halfmark gate, check.json, probe.json and gpu_check.log, with several
# GPUs and NCCL also all_reduce.json.
# Exit codes: 0 all well, 1 a test or a case failed, 2 no GPU or nothing built.
set -euo pipefail

usage() {
  echo "usage: gpu_check.sh [-o FOLDER] [-d cuda:N] [-s SUITE] [-m MINUTES] [-r ROWS] [-v VECTORS.csv]" >&2
  exit 2
}

help() {
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
  exit 0
}

out=gpu_check
device=cuda:0
suite=quick
minutes=1
cores=$(nproc)
rows=$((cores >= 12 ? 1000000 : 100000))
vectors=""
while (($# > 0)); do
  case "$1" in
    -o | --output) out=${2:-} ;;
    -d | --device) device=${2:-} ;;
    -s | --suite) suite=${2:-} ;;
    -m | --minutes) minutes=${2:-} ;;
    -r | --rows) rows=${2:-} ;;
    -v | --vectors) vectors=${2:-} ;;
    -h | --help) help ;;
    *) usage ;;
  esac
  [[ -n "${2:-}" ]] || usage
  shift 2
done

nothing() {
  echo "gpu_check: $*" >&2
  exit 2
}

[[ "$device" =~ ^cuda:[0-9]+$ ]] || nothing "--device $device: write cuda:0, cuda:1, ..."
[[ "$minutes" =~ ^[0-9]*\.?[0-9]+$ ]] || nothing "--minutes $minutes: is not a number"
[[ "$rows" =~ ^[1-9][0-9]*$ ]] || nothing "--rows $rows: is not a positive whole number"

# The build: an archive has bin/ and lib/, a build folder has everything side by side.
home=$(CDPATH="" cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
halfmark="" tests="" plugin=""
for place in "$home" "$home/build/release" "$home/build/cuda"; do
  for program in "$place/bin/halfmark" "$place/halfmark"; do
    [[ -z "$halfmark" && -f "$program" && -x "$program" ]] || continue
    halfmark=$program
    for file in "$(dirname "$program")/cuda_tests" "$place/cuda_tests"; do
      [[ -x "$file" ]] && tests=$file && break
    done
    plugin=$(find "$place" "$place/lib" -maxdepth 1 -name '*halfmark_cuda.so' -print -quit 2> /dev/null || true)
  done
done
[[ -n "$halfmark" ]] || nothing "no build: neither $home/bin/halfmark nor $home/build/release/halfmark exists"
[[ -n "$plugin" ]] || nothing "$halfmark was built without CUDA: no halfmark_cuda.so beside it"

# The GPU. Some containers have the driver but not nvidia-smi.
# Not a pipe into `grep -q`, which stops reading: the writer would fail by SIGPIPE.
listed=$(nvidia-smi -L 2> /dev/null || true)
if [[ "$listed" != GPU* && "$listed" != *$'\n'GPU* && ! -e /dev/nvidia0 ]]; then
  nothing "no NVIDIA GPU: nvidia-smi lists none and /dev/nvidia0 is missing"
fi

mkdir -p "$out"
report=$out/gpu_report.json
log=$out/gpu_check.log
rm -f "$report" "$out/check.json" "$out/probe.json" "$out/all_reduce.json"

# Folders outside the loader's search path that may hold cuBLASLt and cuDNN: toolkits, the container's driver folder, Python wheels.
library_folders() {
  printf '%s\n' /usr/local/cuda/lib64 /usr/local/cuda-*/lib64 /usr/local/cuda*/targets/*/lib /usr/local/nvidia/lib64 \
    /usr/lib64 /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu
  [[ -n "${CUDA_HOME:-}" ]] && printf '%s\n' "$CUDA_HOME/lib64" "$CUDA_HOME/lib"
  [[ -n "${CONDA_PREFIX:-}" ]] && printf '%s\n' "$CONDA_PREFIX/lib"
  local python
  for python in python3 /usr/bin/python3; do
    "$python" - 2> /dev/null << 'END' || true
import glob, os, site, sys, sysconfig
roots = {sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"], site.getusersitepackages(), *site.getsitepackages(), *sys.path}
for root in sorted(filter(None, roots)):
    for pattern in ("nvidia/*/lib", "nvidia/lib", "torch/lib"):
        for folder in sorted(glob.glob(os.path.join(root, pattern))):
            print(folder)
END
  done
}

missing_libraries() { # the sonames that the plugin needs and the loader does not find
  ldd "$plugin" 2> /dev/null | sed -n 's/^[[:space:]]*\([^ ]*\) => not found.*/\1/p'
}

find_libraries() {
  local wanted name folder found
  wanted=$(missing_libraries)
  # cuDNN opens these itself at run time; Python wheels have them in separate folders.
  for name in $wanted libcuda.so.1 libnvidia-ml.so.1 libnvrtc.so.13; do
    ldconfig -p 2> /dev/null | grep -qF "$name " && continue
    found=""
    while read -r folder; do
      if [[ -e "$folder/$name" ]]; then
        found=$folder
        break
      fi
    done < <(library_folders)
    if [[ -n "$found" ]]; then
      echo "found $name in $found"
      case ":${LD_LIBRARY_PATH:-}:" in
        *":$found:"*) ;;
        *) export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$found" ;;
      esac
    fi
  done
  wanted=$(missing_libraries)
  if [[ -n "$wanted" ]]; then
    echo "not found anywhere: ${wanted//$'\n'/ }; the program will list what is unavailable"
  fi
  ldd "$plugin" | grep -E 'libcublas|libcudnn|libcudart' || true
}

# The tests use cuda:0: the chosen GPU is made the first.
visible_device() {
  local number=${device#cuda:} listed
  IFS=, read -ra listed <<< "${CUDA_VISIBLE_DEVICES:-}"
  echo "${listed[number]:-$number}"
}

# Most of the time the tests compute on the CPU what the GPU should give, so several processes share the GPU.
run_tests() { # FILE for the output
  local output=$1 shards=$((cores / 2)) i status=0
  shards=$((shards < 1 ? 1 : shards > 8 ? 8 : shards))
  local -a processes=()
  for ((i = 0; i < shards; ++i)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i HALFMARK_DOT_ROWS=$rows CUDA_VISIBLE_DEVICES=$(visible_device) \
      OMP_NUM_THREADS=$((cores / shards > 0 ? cores / shards : 1)) "$tests" > "$output.$i" 2>&1 &
    processes+=($!)
  done
  for ((i = 0; i < shards; ++i)); do
    wait "${processes[i]}" || status=$?
    cat "$output.$i"
    ((status < 128)) || echo "the tests above were ended by signal $((status - 128))"
  done
  cat "$output".* > "$output"
  rm -f "$output".*
  return "$status"
}

stages=()
# The line of a stage in the table at the end: name, exit code, what is to be known of it.
result() {
  local word=ok
  (($2 == 0)) || word=FAILED failed=1
  stages+=("$(printf '%-22s %-7s %s' "$1" "$word" "$3")")
}

check() {
  local failed=0 status=0
  echo "== machine"
  date -u '+%Y-%m-%d %H:%M:%S UTC'
  uname -srm
  if command -v nvidia-smi > /dev/null; then
    nvidia-smi || true
    nvidia-smi --query-gpu=index,name,driver_version,compute_cap,memory.total,clocks.max.sm --format=csv || true
  else
    cat /proc/driver/nvidia/version 2> /dev/null || true
  fi

  echo "== libraries"
  find_libraries
  "$halfmark" --version || true
  "$halfmark" list devices || true

  echo "== tests"
  local words=$out/.tests
  if [[ -z "$tests" ]]; then
    result "CUDA tests" 1 "cuda_tests was not built"
  else
    status=0
    run_tests "$words" || status=$?
    # On a machine with a GPU it is an error if all tests are skipped.
    if ((status == 0)) && ! grep -q '^\[       OK \]' "$words"; then
      echo "no CUDA test ran"
      status=1
    fi
    result "CUDA tests" "$status" "$(grep -c '^\[       OK \]' "$words") passed, $rows rows for each matrix instruction"
    rm -f "$words"
  fi

  echo "== known results on $device, $minutes min"
  status=0
  "$halfmark" check --device "$device" --minutes "$minutes" -o "$out/check.json" | tee "$words" || status=$?
  result "known results" "$status" "$(head -n 1 "$words")"
  rm -f "$words"

  echo "== how $device adds"
  status=0
  "$halfmark" probe --device "$device" -o "$out/probe.json" || status=$?
  result "probe" "$status" "$out/probe.json"
  if [[ -n "$vectors" ]]; then
    status=0
    "$halfmark" probe --device "$device" --vectors "$vectors" || status=$?
    result "probe of vectors" "$status" "$vectors"
  fi

  # As the program numbers them. Without NCCL the stage is left out with the reason, as it is with one GPU.
  local gpus
  gpus=$("$halfmark" list devices 'cuda:*' | awk '$1 ~ /^cuda:/ && $2 != "absent:" { printf "%s%s", sep, $1; sep = "," }')
  if [[ "$gpus" == *,* ]]; then
    echo "== how GPUs add across each other"
    status=0
    "$halfmark" probe --all-reduce --device "$gpus" -o "$out/all_reduce.json" || status=$?
    if ((status == 2)); then
      stages+=("$(printf '%-22s %-7s %s' "sums across GPUs" "-" "left out, for the reason above")")
    else
      result "sums across GPUs" "$status" "$out/all_reduce.json"
    fi
  fi

  echo "== $suite suite on $device"
  status=0
  "$halfmark" run --suite "$suite" --device "$device" -o "$report" || status=$?
  if ((status != 0)); then
    echo "halfmark run: exit code $status"
  elif [[ ! -s "$report" ]]; then
    echo "halfmark run left no report"
    status=1
  fi
  result "$suite suite" "$status" "$report"

  echo "== result"
  printf '%s\n' "${stages[@]}"
  if ((failed == 0)); then
    echo "all well; report $report, log $log"
  else
    echo "FAILED; log $log"
  fi
  return "$failed"
}

# A subshell without `set -e`, so that every part of `check` runs; each part reports its own failure.
set +e
(
  set +e
  check
) 2>&1 | tee "$log"
exit "${PIPESTATUS[0]}"
