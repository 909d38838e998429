#!/bin/sh
# Checks that Google Benchmark's compare.py reads the JSON of halfmark_micro: two short runs, one comparison.
# $1 = halfmark_micro, $2 = folder for the output.
set -eu
micro=$1
folder=$2
compare=""
for candidate in /usr/share/benchmark/compare.py "$(command -v compare.py || true)"; do
  if [ -n "$candidate" ] && [ -f "$candidate" ]; then compare=$candidate && break; fi
done
for run in 1 2; do
  "$micro" --benchmark_filter='^relu/f32->f32/.*/cpu/' --benchmark_min_time=0.01 --benchmark_out_format=json \
    --benchmark_out="$folder/micro_$run.json" > /dev/null
done
if [ -z "$compare" ]; then
  echo "skipped: compare.py not found (install libbenchmark-tools)"
  exit 77
fi
python=/usr/bin/python3
"$python" -c 'import scipy' 2> /dev/null || { echo "skipped: $python has no scipy (install python3-scipy)"; exit 77; }
"$python" "$compare" --no-color benchmarks "$folder/micro_1.json" "$folder/micro_2.json" | tee "$folder/micro_compare.txt"
grep -q 'relu/f32->f32' "$folder/micro_compare.txt"
