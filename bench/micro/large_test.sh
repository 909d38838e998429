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

# Rows that memory limits touch no more memory than their operands, ask caches for at most three times as much (norms read scale and shift, of
# fp32, with each two rows), and leave time for it: an H200 has time for 7.8 instructions of its own a byte, or 10 of PTX (README.md).
rows='add|relu|scale|cast|sgd_step|adam_step|unscale|gradient_norm|softmax|softmax_backward|normalize_rows|reorder|permute|bias_gradient|add_bias|batch_norm_inference'
rm -f "$folder/large_work.csv"
HALFMARK_LARGE_BYTES=262144 HALFMARK_SOFTWARE_GPU_WORK="$folder/large_work.csv" "$micro" --benchmark_filter="^large/($rows)/(f16|f32).*/cuda/" \
  --benchmark_out_format=json --benchmark_out="$folder/large_counts.json" > /dev/null 2> "$folder/large_errors.txt"
"$python" "$ratios" "$folder/large_counts.json" --touched 1.01 --requested 3 --instructions 9 > "$folder/large_counts.txt" || fail "counts"
[ "$(grep -c ' touched ' "$folder/large_counts.txt")" -ge 45 ] || fail "$(grep -c ' touched ' "$folder/large_counts.txt") rows are counted"
for limit in '--requested 1' '--touched 0.5' '--instructions 0.5'; do  # each is above in some row
  # shellcheck disable=SC2086
  ! "$python" "$ratios" "$folder/large_counts.json" $limit > /dev/null 2>&1 || fail "$limit is not held against the rows"
done
