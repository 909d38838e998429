#!/usr/bin/env python3
"""Prints the speed of halfmark relative to direct library calls, and of rounding relative to memcpy: ratios.py result.json

A ratio of 1 means equal speed, below 1 means that halfmark is slower.

Chains and peers: run `halfmark_micro --benchmark_filter='chain|peer' --benchmark_repetitions=15
--benchmark_enable_random_interleaving=true --benchmark_out=result.json`. The fastest repetition of each side is compared, because
disturbances only make a run slower. On a busy machine add --threads=1 and --cpu: CPU time of one thread excludes other processes.

Rounding: --benchmark_filter='rounding|convert' with the same other options. It is compared with memcpy of the same number of floats
in the same run, as elements per second, medians of the repetitions, because both are limited by the same memory.

Large operands on a GPU: --benchmark_filter='^large/'. Bytes per second of each row as a share of those of a copy that ran in turn with
it, lowest first, and the FLOP/s of products. What must read an operand twice cannot reach 1: batch norm (2/3 forward, 3/5 backward), and
quantisers that first find the largest number of the whole matrix.

On the software GPU, whose times mean nothing, with HALFMARK_SOFTWARE_GPU_WORK=FILE: what the kernels execute and access, for each byte of
their operands, in place of shares and rates; most memory touched first (bench/micro/README.md).
"""
import argparse
import json
import statistics
import sys


def print_rounding(runs, clock):
    times = {}
    for run in runs:
        parts = run["name"].removesuffix("/real_time").split("/")
        if parts[0] in ("rounding", "convert"):
            times.setdefault((int(parts[-1]), "/".join(parts[:-1])), []).append(run[clock])
    medians = {key: statistics.median(values) for key, values in times.items()}
    for (count, name), median in sorted(medians.items()):
        copy = medians.get((count, "rounding/memcpy"))
        ratio = f"  ratio {copy / median:.2f}" if copy else ""
        print(f"{name:48} {count:9} elements  {count / median:7.2f} G/s{ratio}")


def print_tensor_cores(runs, clock):
    """Products of 1024 x 1024 matrices, compared with an sgemm with the same number of threads; medians of the repetitions."""
    times = {}
    for run in runs:
        if run["name"].startswith("tensor-core/"):
            times.setdefault(run["name"], []).append(run[clock])
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in sorted(medians.items()):
        if "/sgemm/" in name:
            continue
        threads = next(part for part in name.split("/") if part.startswith("threads:"))
        sgemm = next((t for other, t in medians.items() if other.startswith("tensor-core/sgemm/") and threads in other.split("/")), None)
        beside = f"  sgemm is {median / sgemm:.1f} times as fast" if sgemm else ""
        name = name.split(threads)[0] + threads  # without "/process_time/real_time"
        print(f"{name:44} {2 * 1024**3 / median:7.1f} GFLOP/s{beside}")


COUNTS = {"touched": "touched", "requested": "requested", "instructions": "instructions/byte"}  # of an option: the counter


def above(runs, most):
    """The counts of large operands above `most`, by name of the count."""
    return [
        f"{run['name']}: {name} {run[COUNTS[name]]:.2f}, more than {limit:g}"
        for run in runs
        for name, limit in most.items()
        if limit is not None and run["name"].startswith("large/") and run.get(COUNTS[name], 0) > limit
    ] + [
        f"{run['name']}: {name} was not counted"
        for run in runs
        for name, limit in most.items()
        if limit is not None and run["name"].startswith("large/") and COUNTS[name] not in run
    ]


def counts_lines(counts):
    lines = []
    for run, name in counts:
        text = f"touched {run['touched']:5.2f}  requested {run['requested']:6.2f}  instructions {run['instructions/byte']:6.2f} a byte"
        lines.append((-run["touched"], name, text))
    return sorted(lines)


FAST = 0.85  # share of the copy from which on a row is limited by memory


def print_large(runs):
    values = {}
    for run in runs:
        if run["name"].startswith("large/") and "copy" in run:
            operation, dtypes, shape, _, row = run["name"].split("/")[1:6]
            values.setdefault((operation, dtypes, shape, row), []).append(run)
    shares, products, counts = [], [], []
    for name, repetitions in values.items():
        if "touched" in repetitions[0]:
            counts.append((repetitions[0], name))
            continue
        median = {key: statistics.median(run[key] for run in repetitions) for key in ("copy", "bytes/s", "FLOP/s") if key in repetitions[0]}
        if "FLOP/s" in median:
            products.append((median["FLOP/s"], name, f"{median['FLOP/s'] / 1e12:7.1f} TFLOP/s"))
        else:
            shares.append((median["copy"], name, f"{median['bytes/s'] / 1e9:7.1f} GB/s  {median['copy']:.2f} of a copy"))
    for _, (operation, dtypes, shape, row), text in sorted(shares) + sorted(products) + counts_lines(counts):
        print(f"{operation:36} {dtypes:34} {shape:26} {row:9} {text}")
    for run in runs:
        if run["name"].startswith("large/") and run.get("error_occurred"):
            print(f"{run['name']}: not measured: {run['error_message']}")
    if shares:
        print(f"{sum(share < FAST for share, _, _ in shares)} of {len(shares)} are below {FAST} of a copy")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--cpu", action="store_true", help="compare CPU time instead of wall time (one thread only)")
    parser.add_argument("--least", type=float, default=0, help="exit code 1 if the ratio of a chain or peer is below this")
    for name in COUNTS:
        parser.add_argument(f"--{name}", type=float, help=f"exit code 1 if this count of a row on large operands is above ({COUNTS[name]})")
    arguments = parser.parse_args()
    with open(arguments.file, encoding="utf-8") as file:
        runs = [run for run in json.load(file)["benchmarks"] if run.get("run_type") == "iteration"]
    clock = "cpu_time" if arguments.cpu else "real_time"
    sides = {}
    for run in runs:
        parts = run["name"].split("/")
        for side in ("ours", "onednn"):
            if parts[0] in ("chain", "peer") and side in parts:
                name = "/".join(parts[: parts.index(side)])
                sides.setdefault(name, {}).setdefault(side, []).append(run)
    below = False
    for name, both in sorted(sides.items()):
        if len(both) < 2:
            continue
        best = {side: min(run[clock] for run in both[side]) for side in both}
        ratio = best["onednn"] / best["ours"]
        below = below or ratio < arguments.least
        reorders = [f"{both[side][0]['reorders']:g}" for side in ("ours", "onednn") if "reorders" in both[side][0]]
        note = f"  reorders {' and '.join(reorders)}" if reorders else ""
        print(f"{name:32} ours {best['ours'] / 1e6:9.3f} ms  onednn {best['onednn'] / 1e6:9.3f} ms  ratio {ratio:.3f}{note}")
    print_rounding(runs, clock)
    print_tensor_cores(runs, clock)
    print_large(runs)
    too_much = above(runs, {name: getattr(arguments, name) for name in COUNTS})
    for line in too_much:
        print(line, file=sys.stderr)
    return 1 if below or too_much else 0


if __name__ == "__main__":
    sys.exit(main())
