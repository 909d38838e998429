#!/usr/bin/env python3
"""How much a time depends on where the program file is in memory: copies of one build are timed against each other.

    scripts/placement.py [--copies 8] [--rounds 12]

In every round each copy runs in a new process; all run on one core and are timed in turn. F is the variance between copies
over that within them. If a copy has no lasting effect on its processes, F is about 1, and stays so when the names are permuted
within each round (p: the share of 1000 permutations with a mean F as large). This is done twice: with processes that share the
pages of their code, as programs do, and with private pages as in `halfmark ab` (bench/ab/private_code_pages.h).
"""

import argparse
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import ab_ledger  # the cases, and how a build is copied

SLICES = 8
DEALS = 1000


def one_round(programs, options, random_order):
    """[case][copy]: ln(time / median of this round)."""
    core = random_order.choice(sorted(os.sched_getaffinity(0)))
    order = random_order.sample(range(len(programs)), len(programs))
    processes = {}
    for copy in order:
        command = ["taskset", "-c", str(core), programs[copy], "sample", "--seconds", "0.005", "--threads", "1", *options]
        processes[copy] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    result = []
    for case in ab_ledger.CASES:
        seconds = [[] for _ in programs]
        for part in range(SLICES):
            for copy in order if part % 2 else reversed(order):
                processes[copy].stdin.write(case + "\n")
                processes[copy].stdin.flush()
                answer = json.loads(processes[copy].stdout.readline())
                if answer["reason"]:
                    sys.exit(f"{case}: {answer['reason']}")
                seconds[copy].append(answer["seconds"])
        level = [math.log(statistics.median(of_copy)) for of_copy in seconds]
        middle = statistics.median(level)
        result.append([one - middle for one in level])
    for process in processes.values():
        process.stdin.close()
        process.wait()
    return result


def means_and_f(rounds):
    """F of one case, from [round][copy]."""
    copies = list(zip(*rounds))
    means = [statistics.fmean(one) for one in copies]
    within = statistics.fmean(statistics.variance(one) for one in copies)
    return means, len(rounds) * statistics.variance(means) / within, math.sqrt(within)


def mean_f(cases):
    return statistics.fmean(means_and_f(rounds)[1] for rounds in cases)


def report(title, rounds):
    cases = [[of_round[case] for of_round in rounds] for case in range(len(ab_ledger.CASES))]
    print(f"\n{title}\n{'case':<45} {'between processes':>18} {'fastest to slowest copy':>24} {'F':>5}")
    for name, of_case in zip(ab_ledger.CASES, cases):
        means, f, within = means_and_f(of_case)
        print(f"{name:<45} {100 * within:16.1f} % {100 * (max(means) - min(means)):22.1f} % {f:5.1f}")
    found, dealer = mean_f(cases), random.Random(1)
    larger = 0
    for _ in range(DEALS):
        deals = [dealer.sample(range(len(of_round[0])), len(of_round[0])) for of_round in rounds]
        larger += mean_f([[[of_round[copy] for copy in deal] for of_round, deal in zip(of_case, deals)]
                          for of_case in cases]) >= found
    print(f"mean F {found:.2f}, p = {(larger + 1) / (DEALS + 1):.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=12)
    arguments = parser.parse_args()
    if not (ab_ledger.BUILD / "halfmark_planted").exists():
        sys.exit(f"{ab_ledger.BUILD}/halfmark_planted is missing: build the preset release with its tests")
    with tempfile.TemporaryDirectory() as scratch:
        programs = [ab_ledger.copy_of_the_build(pathlib.Path(scratch) / str(copy), {}) for copy in range(arguments.copies)]
        order, found = random.Random(0), {"--shared-pages": [], "": []}
        for done in range(arguments.rounds):
            for option, rounds in found.items():
                print(f"\rround {done + 1} of {arguments.rounds}", end="", file=sys.stderr, flush=True)
                rounds.append(one_round(programs, option.split(), order))
    print(file=sys.stderr)
    report("code pages shared by all processes of a copy", found["--shared-pages"])
    report("private code pages for each process", found[""])


if __name__ == "__main__":
    main()
