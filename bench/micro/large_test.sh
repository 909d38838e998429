#!/bin/sh
# Runs the benchmarks of large operands on the software GPU, with small ones: every operation with a row of real speed has a case or
# a reason (halfmark_micro ends with an error if not), every case runs, and ratios.py reads the result.
# $1 = halfmark_micro beside the plugin for the software GPU, $2 = ratios.py, $3 = Python, $4 = folder for the output.
set -eu
micro=$1
ratios=$2
python=${3:-python3}
folder=$4
export HALFMARK_SOFTWARE_GPU=sm_90 HALFMARK_LARGE_BYTES=4096
fail() { echo "$1" >&2; exit 1; }

# Nothing else has such a name, and no name is there twice.
"$micro" --benchmark_filter='^large/' --benchmark_list_tests=true > "$folder/large_names.txt" 2> "$folder/large_errors.txt" ||
  { cat "$folder/large_errors.txt" >&2; exit 1; }
count=$(grep -c '^large/' "$folder/large_names.txt")
[ "$count" -gt 300 ] || fail "$count large benchmarks"
[ "$(sort -u "$folder/large_names.txt" | wc -l)" -eq "$(wc -l < "$folder/large_names.txt")" ] || fail "a name is there twice"
[ "$(wc -l < "$folder/large_names.txt")" -eq "$count" ] || fail "the filter selects others too"

"$micro" --benchmark_filter='^large/' --benchmark_out_format=json --benchmark_out="$folder/large.json" > /dev/null 2> "$folder/large_errors.txt"
"$python" "$ratios" "$folder/large.json" > "$folder/large.txt"
! grep 'not measured' "$folder/large.txt" || exit 1
[ "$(wc -l < "$folder/large.txt")" -eq $((count + 1)) ] || fail "ratios.py shows $(wc -l < "$folder/large.txt") lines for $count benchmarks"
tail -n 1 "$folder/large.txt" | grep -q 'are below 0.85 of a copy$' || fail "no last line"
