#!/usr/bin/env python3
"""How often `halfmark ab` is right on this machine: runs of one build against itself, some with planted slow-downs.

    scripts/ab_ledger.py LEDGER.csv --runs same:50 5:25 10:25     measures what is still missing, one row per run
    scripts/ab_ledger.py LEDGER.csv --runs same:3 5:3 --layouts 24     with 24 layouts of each build, linked for each run
    scripts/ab_ledger.py LEDGER.csv --summary                     counts

The build is build/release/halfmark_planted, copied under two names. A planted run makes the timed steps of three of the
twenty cases 5 (10) % longer in the second copy. Every attempt gets a row, even an interrupted one. The run's number
determines which cases are planted and in which order pairs are measured, so nothing can be chosen afterwards.
"""

import argparse
import csv
import datetime
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
# Fast cases: a run takes a minute or two.
SUBJECTS = [
    "mlp/b8_i16_h24_o10", "mlp/b32_i64_h128_o10", "convnet/b4_c1_s8_w4", "convnet/b16_c3_s16_w16", "logistic/b16_c3_s16",
    "linear/b8_i32_o16", "conv2d/b2_c4_o6_s6_k3", "batchnorm2d/b4_c3_s4", "maxpool/b2_c4_s6_k2", "relu/b2_c4_s5",
]
POLICIES = ["fp32", "bf16"]
CASES = [f"{subject}/cpu/{policy}/throughput" for subject in SUBJECTS for policy in POLICIES]
PLANTED = 3
COLUMNS = ["number", "kind", "started", "build", "verdict", "exit_code", "planted", "planted_found", "planted_open",
           "others_found", "others_open", "confirmed", "seconds", "load_before", "processor", "others"]


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def copy_of_the_build(folder, planted):
    folder.mkdir()
    shutil.copy2(BUILD / "halfmark_planted", folder / "halfmark")
    for library in BUILD.glob("libhalfmark_*.so*"):
        shutil.copy2(library, folder)
    (folder / "planted").write_text("".join(f"{case}={share}\n" for case, share in planted.items()))
    return folder / "halfmark"


def layouts_of_the_build(folder, count, seed, planted):
    """Newly linked layouts of the build (relink_layouts.py)."""
    subprocess.run([sys.executable, ROOT / "scripts" / "relink_layouts.py", BUILD, folder, "--target", "halfmark_planted",
                    "--layouts", str(count), "--seed", str(seed)], stdout=subprocess.DEVNULL, check=True)
    for layout in folder.iterdir():
        (layout / "planted").write_text("".join(f"{case}={share}\n" for case, share in planted.items()))
    return folder


def run(number, kind, arguments):
    share = 0.0 if kind == "same" else float(kind) / 100
    chosen = random.Random(f"{kind} {number}").sample(CASES, PLANTED) if share else []
    row = dict.fromkeys(COLUMNS, "")
    row.update(number=number, kind=kind, planted=" ".join(chosen), processor=processor(), load_before=f"{os.getloadavg()[0]:.2f}",
               started=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"))
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        program = a = copy_of_the_build(scratch / "a", {})
        b = copy_of_the_build(scratch / "b", dict.fromkeys(chosen, share))
        options = []
        if arguments.layouts:
            seed = random.Random(f"layouts {kind} {number}").randrange(2**30)
            a = layouts_of_the_build(scratch / "layouts-a", arguments.layouts, 2 * seed, {})
            b = layouts_of_the_build(scratch / "layouts-b", arguments.layouts, 2 * seed + 1, dict.fromkeys(chosen, share))
            options = ["--layouts"]
        row["build"] = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        out = scratch / "judgement.json"
        begin = datetime.datetime.now()
        done = subprocess.run(
            [program, "ab", *options, a, b, "--suite", "full", *SUBJECTS, "--policy", ",".join(POLICIES), "--device", "cpu",
             "--threads", "1", "--time-only", "--seconds", str(arguments.seconds), "--seed", str(number), "--json", out],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        row["seconds"] = round((datetime.datetime.now() - begin).total_seconds(), 1)
        row["exit_code"] = done.returncode
        if not out.exists():
            row["verdict"] = "ERROR " + done.stderr.strip()[:200]
            return row
        judgement = json.loads(out.read_text())
    row["verdict"] = judgement["verdict"]
    of_time = {line["case"]: line["verdict"] for line in judgement["cases"] if line["question"] == "time"}
    missing = set(CASES) - set(of_time)
    if missing:
        row["verdict"] = "ERROR no line about " + min(missing)
    count = lambda cases, word: sum(of_time.get(case) == word for case in cases)
    others = [case for case in CASES if case not in chosen]
    row["others"] = " ".join(f"{case}={of_time[case]}" for case in others
                             if of_time.get(case) in ("REGRESSION", "INCONCLUSIVE"))
    row.update(planted_found=count(chosen, "REGRESSION"), planted_open=count(chosen, "INCONCLUSIVE"),
               others_found=count(others, "REGRESSION"), others_open=count(others, "INCONCLUSIVE"),
               confirmed=judgement.get("counts", {}).get("routed", ""))
    return row


def read(path):
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(path, row):
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def summary(rows):
    for kind in sorted({row["kind"] for row in rows}, key=lambda kind: (kind != "same", kind.zfill(3))):
        of_kind = [row for row in rows if row["kind"] == kind]
        number = lambda column: sum(int(row[column] or 0) for row in of_kind)
        verdicts = {}
        for row in of_kind:
            word = row["verdict"].split()[0] if row["verdict"] else "INTERRUPTED"
            verdicts[word] = verdicts.get(word, 0) + 1
        planted = 0 if kind == "same" else PLANTED * len(of_kind)
        print(f"{kind:>4}: {len(of_kind)} runs, " + ", ".join(f"{n} {word}" for word, n in sorted(verdicts.items())) +
              f"; planted found {number('planted_found')} of {planted}, open {number('planted_open')};"
              f" others found {number('others_found')}, open {number('others_open')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ledger", type=pathlib.Path)
    parser.add_argument("--runs", nargs="+", default=[], metavar="KIND:N",
                        help="N runs of a KIND: same, or the planted slow-down in per cent (same:50 5:25)")
    parser.add_argument("--seconds", type=float, default=0.05, help="of timed steps for a case in a process run")
    parser.add_argument("--layouts", type=int, default=0, metavar="N",
                        help="compare N newly linked layouts of each build (halfmark ab --layouts)")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no new run after this time")
    parser.add_argument("--summary", action="store_true")
    arguments = parser.parse_args()
    if not arguments.summary and not (BUILD / "halfmark_planted").exists():
        parser.error(f"{BUILD}/halfmark_planted is missing: build the preset release with its tests")
    end = datetime.datetime.now() + datetime.timedelta(minutes=arguments.minutes)
    # The kinds alternate, so that all are measured under the same load of the machine.
    wanted = {kind: int(count) for kind, count in (entry.split(":") for entry in arguments.runs)}
    for number in range(1, max(wanted.values(), default=0) + 1):
        for kind, count in wanted.items():
            done = {(row["kind"], int(row["number"])) for row in read(arguments.ledger)}
            if number > count or (kind, number) in done or datetime.datetime.now() > end:
                continue
            row = {"number": number, "kind": kind}
            try:
                row = run(number, kind, arguments)
            finally:
                append(arguments.ledger, row)
            print(f"{kind} {number}: {row['verdict']}, {row['seconds']} s", flush=True)
    summary(read(arguments.ledger))


if __name__ == "__main__":
    main()
