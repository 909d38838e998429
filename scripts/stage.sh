# shellcheck shell=bash disable=SC2034,SC2154 # shared with the script that sources this
# Sourced by run.sh and test.sh: prints a line per stage with its time, writes the log to a file, and shows its end if the
# stage fails. The caller sets `logs`, a folder. After `stage`, `stage_ok` is the result; `stage_rows` collects the final
# table.

stage_rows=()
stage_ok=true
stage_log=""
any_failed=false

unset CLICOLOR_FORCE # ctest would write colours into the logs, which test.sh reads

configure_arguments=() # the options of every preset

red="" green="" yellow="" plain=""
if [[ -t 1 && -z "${NO_COLOR:-}" ]]; then
  red=$'\e[31m' green=$'\e[32m' yellow=$'\e[33m' plain=$'\e[0m'
fi

seconds_since() { # a value of EPOCHREALTIME -> "12.3"
  local now=${EPOCHREALTIME//[.,]/} then=${1//[.,]/}
  printf '%d.%d' $(((now - then) / 1000000)) $(((now - then) / 100000 % 10))
}

# Passes its input to standard output. Meanwhile it shows the latest step of ninja ("[12/64] Building x.cpp.o") on the terminal,
# descriptor 3.
show_steps() { # NAME
  local line width=${COLUMNS:-80}
  width=$(($(tput cols 2> /dev/null || echo "$width") - 26))
  while IFS= read -r line; do
    printf '%s\n' "$line"
    if [[ $line =~ ^\[[0-9]+/[0-9]+\]\  ]]; then
      printf '\r%-24s %s\e[K' "$1" "${line:0:width}" >&3
    fi
  done
  printf '\r%-24s \e[K' "$1" >&3
}

# stage NAME COMMAND...: never call it in a condition (`if stage`, `stage ||`): bash would then ignore `set -e` inside it.
stage() {
  local name=$1 began=$EPOCHREALTIME status seconds
  shift
  stage_log="$logs/${name// /-}.log"
  printf '%-24s ' "$name"
  set +e
  if [[ -t 1 ]]; then
    (
      set -e
      "$@"
    ) 2>&1 < /dev/null 3>&- | show_steps "$name" 3>&1 > "$stage_log"
    status=${PIPESTATUS[0]}
  else
    (
      set -e
      "$@"
    ) > "$stage_log" 2>&1 < /dev/null
    status=$?
  fi
  set -e
  seconds=$(seconds_since "$began")
  if ((status == 0)); then
    stage_ok=true
    printf '%s %8s s\n' "${green}ok     ${plain}" "$seconds"
    stage_rows+=("$(printf '%-24s ok      %8s s' "$name" "$seconds")")
  else
    stage_ok=false any_failed=true
    printf '%s %8s s   %s\n' "${red}FAILED ${plain}" "$seconds" "$stage_log"
    stage_rows+=("$(printf '%-24s FAILED  %8s s   exit %d, log: %s' "$name" "$seconds" "$status" "$stage_log")")
    # Lines about passed and skipped tests would push the failure out of the part that is shown.
    { grep -vE '^ *Start +[0-9]+:|Passed +[0-9.]+ sec$|\(Skipped\)$|^\[[0-9]+/[0-9]+\] |^\[( RUN  |   +OK |  SKIPPED)' "$stage_log" || true; } | tail -n 150 | sed 's/^/    /'
    printf '%s\n' "${red}$name failed (exit $status); the whole log: $stage_log${plain}"
  fi
}

# skip_stage NAME REASON: not wanted or not possible here; not a failure.
skip_stage() {
  printf '%-24s %s              %s\n' "$1" "${yellow}skipped${plain}" "$2"
  stage_rows+=("$(printf '%-24s skipped              %s' "$1" "$2")")
}

# miss_stage NAME REASON: could not run because something before it failed. Counts as a failure.
miss_stage() {
  any_failed=true
  printf '%-24s %s              %s\n' "$1" "${red}NOT RUN${plain}" "$2"
  stage_rows+=("$(printf '%-24s NOT RUN              %s' "$1" "$2")")
}

build_preset() { # PRESET [cmake --build arguments]
  local preset=$1
  shift
  cmake --preset "$preset" ${configure_arguments[@]+"${configure_arguments[@]}"}
  cmake --build --preset "$preset" --parallel "$(nproc)" "$@"
}
