#!/usr/bin/env bash
# One command from nothing to numbers: packages, release build, `halfmark run`, charts.
#   scripts/run.sh                             the quick suite on the best device
#   scripts/run.sh mlp --policy amp-fp16       arguments go to `halfmark run`
# shellcheck disable=SC2317 # functions are called through `stage`
set -euo pipefail
caller=$PWD # relative paths of the arguments begin here
CDPATH="" cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/release
logs=$build/logs
for argument in "$@"; do
  [[ "$argument" == -h || "$argument" == --help || "$argument" == --help-all ]] || continue
  if [[ -x "$build/halfmark" ]]; then exec "$build/halfmark" run "$@"; fi
  sed -n '2,/^#   scripts.*arguments go/s/^# \{0,1\}//p' scripts/run.sh
  echo "The program is not built yet. scripts/run.sh builds it; after that, scripts/run.sh --help lists all options."
  exit 0
done
if ! mkdir -p "$logs" 2> /dev/null || [[ ! -w "$logs" ]]; then
  echo "run.sh: $PWD/$logs cannot be written; copy the sources to a folder that can be written and start it there" >&2
  exit 2
fi
# shellcheck source=scripts/stage.sh
source scripts/stage.sh

must() {
  stage "$@"
  $stage_ok || exit 1
}

# The plugin takes longer to build than everything else, so it is built only if there is a GPU or an argument names one.
targets=(halfmark)
if [[ -e /dev/nvidiactl || -e /dev/dxg || " $* " =~ [\ =]cuda ]]; then
  targets+=(halfmark_cuda)
fi

build_program() {
  cmake --preset release
  # A build without the toolkit has no such target.
  if ! cmake --build --preset release --target help | grep -qE '^halfmark_cuda(\.so)?:'; then
    targets=(halfmark)
  fi
  cmake --build --preset release --parallel "$(nproc)" --target "${targets[@]}"
}

must setup scripts/setup.sh
must build build_program

# Options of the caller replace the defaults; the program rejects an option that is given twice.
report=$PWD/$build/report.json
program=$PWD/$build/halfmark
suite=(--suite quick)
output=(-o "$report")
previous=""
for argument in "$@"; do
  case "$argument" in
    --suite | --suite=*) suite=() ;;
    -o=* | --output=*) output=() report=${argument#*=} ;;
    --dry-run) cd "$caller" && exec "$program" run "$@" ;;
  esac
  [[ "$previous" == -o || "$previous" == --output ]] && output=() report=$argument
  previous=$argument
done

# 1: a case failed, but the report is complete; draw the charts and return this exit code.
status=0
(cd "$caller" && exec "$program" run "${suite[@]}" "${output[@]}" "$@") || status=$?
((status <= 1)) || exit "$status"
[[ "$report" == /* ]] || report=$caller/$report

# The python3 of a version manager often cannot import the system's matplotlib.
python=""
for candidate in /usr/bin/python3 python3; do
  if "$candidate" -c 'import matplotlib' 2> /dev/null; then
    python=$candidate
    break
  fi
done
charts=$build/charts
rm -f "$charts"/*.png # of the run before
draw() {
  local code=0
  "$python" scripts/charts.py "$report" -o "$charts" || code=$?
  ((code == 3)) || return "$code" # 3: the report has nothing that a chart shows; the log says what is missing
}
if [[ -z "$python" ]]; then
  skip_stage charts "no python3 can import matplotlib"
else
  stage charts draw
  $stage_ok || status=1
fi

echo "report   $report"
if compgen -G "$charts/*.png" > /dev/null; then
  echo "charts   $PWD/$charts"
  sed -n 's/^\([a-z_]*\): not drawn: /         without \1: /p' "$stage_log"
elif [[ -n "$python" ]]; then
  echo "charts   none, see $PWD/$stage_log"
fi
exit "$status"
