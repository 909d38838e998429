#!/usr/bin/env python3
"""How often the speed-ups of `halfmark run` are right on this machine: policies with equal kernels, some slowed down.

    scripts/ratio_ledger.py LEDGER.csv --runs quiet:25 busy:25 planted:5    measures what is still missing
    scripts/ratio_ledger.py LEDGER.csv --summary                            counts

Layers without a matrix product run the same kernels under tf32 as under fp32, so the true ratio is 1. A run measures eight
of them, one row each. busy: another process computes all the time. planted: build/release/halfmark_planted waits after each
step under tf32 for 5 % of its time; after the wait a thread may have to be woken, so a step can become slower than that. Every
attempt gets its rows; the run's number is the seed, so nothing can be chosen afterwards. Leave the machine alone while it runs.
"""

import argparse
import csv
import datetime
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
SUBJECTS = ["batchnorm2d/b16_c64_s28", "batchnorm2d/b4_c3_s4", "relu/b16_c64_s28", "relu/b2_c4_s5", "maxpool/b16_c64_s28_k2",
            "maxpool/b2_c4_s7_k3_t2", "avgpool/b16_c64_s28_k2", "globalpool/b16_c64_s28"]
SHARE = 0.05
COLUMNS = ["run", "kind", "started", "build", "subject", "status", "reason", "same_kernels", "value", "low", "high", "rounds", "control",
           "others", "stolen", "processor"]


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def measure(number, kind, scratch):
    """The report of one run as a tree."""
    folder = scratch / "build"
    folder.mkdir()
    program = pathlib.Path(shutil.copy2(BUILD / "halfmark_planted", folder / "halfmark"))
    for library in BUILD.glob("libhalfmark_*.so*"):
        shutil.copy2(library, folder)
    slow = SUBJECTS if kind == "planted" else []
    (folder / "planted").write_text("".join(f"{subject}/cpu/tf32/throughput={SHARE}\n" for subject in slow))
    out = scratch / "report.json"
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if kind == "busy" else None
    try:
        done = subprocess.run([program, "run", "--suite", "full", *SUBJECTS, "throughput", "--policy", "tf32", "--device", "cpu",
                               "--seed", str(number), "-o", out], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    finally:
        if other:
            other.kill()
            other.wait()
    if not out.exists():
        sys.exit(f"ratio_ledger: the run ended with exit code {done.returncode}: {done.stderr.strip()[:200]}")
    return json.loads(out.read_text())


def rows_of(number, kind):
    with tempfile.TemporaryDirectory() as scratch:
        report = measure(number, kind, pathlib.Path(scratch))
    rows = []
    for record in report["records"]:
        found = {(one["metric"], one["at"]): one for one in record["measurements"]}

        def value(metric, at="hot"):
            return found.get((metric, at), {}).get("value", "")
        ratio = found.get(("speedup.step", "hot"), {})
        low, high = ratio.get("interval", ["", ""])
        rows.append({"run": number, "kind": kind, "started": report["run"]["started"],
                     "build": report["environment"]["halfmark"]["git"], "subject": record["subject"], "status": record["status"],
                     "reason": record["reason"], "same_kernels": value("speedup.same_kernels"), "value": ratio.get("value", ""),
                     "low": low, "high": high, "rounds": len(ratio.get("samples", [])), "control": value("speedup.control"),
                     "others": value("contention.others", "hot/step"), "stolen": value("contention.stolen", "hot/step"),
                     "processor": processor()})
    return rows


def summary(rows):
    for kind in dict.fromkeys(row["kind"] for row in rows):
        of_kind = [row for row in rows if row["kind"] == kind]
        ok = [row for row in of_kind if row["status"] == "ok"]
        known = [row for row in of_kind if row["low"] != ""]
        covered = sum(float(row["low"]) <= 1 <= float(row["high"]) for row in known)
        covered_ok = sum(float(row["low"]) <= 1 <= float(row["high"]) for row in ok if row["low"] != "")
        far = [max(float(row["value"]), 1 / float(row["value"])) for row in ok if row["value"] != ""]
        line = f"{kind}: {len(of_kind)} pairs, {len(ok)} ok; "
        if kind == "planted":
            found = sum(float(row["high"]) < 1 for row in ok if row["low"] != "")
            below = sum(float(row["high"]) < 1 for row in known)
            print(f"{line}of these {found} found (the interval lies below 1), of all {below}")
            continue
        line += (f"the interval holds 1 in {covered} of {len(known)}, of the ok ones in {covered_ok} of {len(ok)}; the ok ratio that "
                 f"is farthest off: {max(far, default=1):.3f}x")
        print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ledger", type=pathlib.Path)
    parser.add_argument("--runs", nargs="*", default=[], metavar="KIND:N", help="quiet, busy or planted, and how many runs")
    parser.add_argument("--summary", action="store_true", help="only count")
    arguments = parser.parse_args()
    rows = list(csv.DictReader(arguments.ledger.open())) if arguments.ledger.exists() else []
    for wanted in [] if arguments.summary else arguments.runs:
        kind, colon, count = wanted.partition(":")
        if kind not in ("quiet", "busy", "planted") or not count.isdigit():
            sys.exit(f"ratio_ledger: '{wanted}' is not KIND:N with a kind of quiet, busy, planted")
        done = {int(row["run"]) for row in rows if row["kind"] == kind}
        for number in range(1, int(count) + 1):
            if number in done:
                continue
            new = rows_of(number, kind)
            is_new = not arguments.ledger.exists()
            with arguments.ledger.open("a", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                if is_new:
                    writer.writeheader()
                writer.writerows(new)
            rows += [{key: str(value) for key, value in row.items()} for row in new]
            print(f"{datetime.datetime.now():%H:%M:%S} {kind} {number}", *(f"{row['value']:.3f}" if row["value"] != "" else row["status"]
                                                                            for row in new), flush=True)
    summary(rows)


if __name__ == "__main__":
    main()
