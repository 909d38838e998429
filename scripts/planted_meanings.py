#!/usr/bin/env python3
"""Plants changes of meaning in the sources, one at a time, and writes which of them `halfmark gate` and `ab` find.

    scripts/planted_meanings.py LEDGER.csv                  each change that has no row yet; with the gate only
    scripts/planted_meanings.py LEDGER.csv --ab             also `halfmark ab --numbers-only` against the unchanged build
    scripts/planted_meanings.py LEDGER.csv --only bn_momentum nothing

The changes are in planted_changes.py. Each is made in a copy of the tracked files (build/planted), the program is built
there, a few small cases are run, and their report is judged against that of the unchanged program by the default rules.
The row `nothing` is the unchanged program, measured again. Exit code: 0 all found and `nothing` passes, else 1.
"""

import argparse
import collections
import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys

from planted_changes import CHANGES

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = ["name", "file", "what", "gate_exit", "gate_verdicts", "gate_first", "ab_exit", "ab_verdicts", "ab_first"]
# One small subject of each family. fp32 and a policy with a loss scale are enough: all share one fp64 reference.
SUBJECTS = ["linear/b4_i16_o8", "conv2d/b2_c4_o6_s6_k3", "conv2d/b2_c4_o4_s7_k3_t2", "conv2d/b1_c3_o4_s8_k3_d2",
            "batchnorm2d/b4_c3_s4", "relu/b2_c4_s5", "maxpool/b2_c4_s6_k2", "maxpool/b2_c4_s7_k3_t2", "avgpool/b2_c4_s6_k2",
            "globalpool/b2_c4_s5", "mlp/b8_i16_h24_o10", "logistic/b4_c1_s8", "convnet/b4_c1_s8_w4"]
SELECTION = ["--suite", "quick", "--device", "cpu", "--policy", "fp32,amp-fp16", *SUBJECTS]
HARNESSES = "error,range,training,batchnorm_drift"


class Trouble(Exception):
    pass


def run(command, folder, good=(0,)):
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True)
    if done.returncode not in good:
        text = (done.stdout + done.stderr).strip().splitlines()
        raise Trouble(f"{' '.join(str(part) for part in command)}: exit code {done.returncode}: " + "\n".join(text[-15:]))
    return done.returncode


class Copy:
    """A copy of the tracked files, with its build."""

    def __init__(self, folder, jobs):
        self.folder, self.jobs = folder, jobs
        folder.mkdir(parents=True, exist_ok=True)
        names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, names.split("\0")):
            source, target = ROOT / name, folder / name
            if not source.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_symlink():
                target.unlink(missing_ok=True)
                target.symlink_to(source.readlink())
                continue
            # A file that is equal keeps its time, so that it is not compiled again.
            if name == "CMakeLists.txt":
                continue
            if not target.exists() or target.read_bytes() != source.read_bytes():
                shutil.copy2(source, target)
                os.utime(target)
        self.build = folder / "build" / "release"
        # The changed folders are compiled file by file, without optimisation, so that a change compiles little, and without warnings.
        lists = folder / "CMakeLists.txt"
        text = (ROOT / "CMakeLists.txt").read_text()
        for target in ("halfmark_models", "halfmark_devices"):
            text += f"set_target_properties({target} PROPERTIES UNITY_BUILD OFF)\n"
            text += f"target_compile_options({target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0> $<$<COMPILE_LANGUAGE:CXX>:-w>)\n"
        if not lists.exists() or lists.read_text() != text:
            lists.write_text(text)
        run(["cmake", "-G", "Ninja", "-S", folder, "-B", self.build, "-DCMAKE_BUILD_TYPE=Release", "-DHALFMARK_CUDA=OFF",
             "-DHALFMARK_TESTS=OFF"], folder)

    def compiled(self):
        run(["cmake", "--build", self.build, "-j", self.jobs, "--target", "halfmark"], self.folder)
        return self.build / "halfmark"

    def with_change(self, change):
        """The program with the change. The files are as before when it returns."""
        before = {}
        try:
            for name, old, new in change.edits:
                path = self.folder / name
                text = path.read_text()
                before.setdefault(path, text)
                if text.count(old) != 1:
                    raise Trouble(f"{change.name}: {name} contains {text.count(old)} times: {old}")
                path.write_text(text.replace(old, new))
            return self.compiled()
        finally:
            for path, text in before.items():
                path.write_text(text)


def program_in(folder, program):
    """The program and its libraries, copied."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in [program, *program.parent.glob("libhalfmark_*.so*")]:
        shutil.copy2(file, folder)
    return folder / "halfmark"


def judged(path):
    """Verdict words with their counts, and the first line that is worse than information."""
    judgement = json.loads(path.read_text())
    worse = [line for line in judgement["cases"] if line["verdict"] not in ("PASS", "INFO", "NEW", "IMPROVED")]
    words = collections.Counter(line["verdict"] for line in worse)
    # The line about the fp64 reference says most; else the worst.
    first = next((line for line in worse if line["verdict"] == "REFERENCE_CHANGED"), worse[0] if worse else None)
    text = ""
    if first:
        text = f"{first['case']}: {first['metric'] or first['question']}" + (f" at {first['at']}" if first["at"] else "")
    return " ".join(f"{word}:{count}" for word, count in sorted(words.items())), text


def measure(change, copy, base, scratch, with_ab):
    row = dict.fromkeys(COLUMNS, "")
    row.update(name=change.name, file=" ".join(dict.fromkeys(edit[0] for edit in change.edits)), what=change.what)
    program = program_in(scratch / "new", copy.with_change(change))
    report, judgement = scratch / "new.json", scratch / "judgement.json"
    run([program, "run", *SELECTION, "--harness", HARNESSES, "-o", report], scratch, good=(0, 1))
    row["gate_exit"] = run([base, "gate", scratch / "base.json", report, "--json", judgement], scratch, good=(0, 1, 3))
    row["gate_verdicts"], row["gate_first"] = judged(judgement)
    if with_ab:
        row["ab_exit"] = run([base, "ab", base, program, *SELECTION, "--numbers-only", "--json", judgement], scratch,
                             good=(0, 1, 3))
        row["ab_verdicts"], row["ab_first"] = judged(judgement)
    return row


def read(path):
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def write(path, rows):
    order = {change.name: place for place, change in enumerate(CHANGES)}
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows.values(), key=lambda row: order.get(row["name"], len(order))))


def is_right(row, with_ab):
    wanted = ("0",) if row["name"] == "nothing" else ("1", "3")
    return all(str(row[column]) in wanted for column in (["gate_exit", "ab_exit"] if with_ab else ["gate_exit"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ledger", type=pathlib.Path)
    parser.add_argument("--ab", action="store_true", help="also compare the two programs with halfmark ab")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these changes, measured again")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "planted", help="of the copy and its build")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    known = {change.name for change in CHANGES}
    if arguments.only and not known.issuperset(arguments.only):
        parser.error(f"unknown change: {', '.join(sorted(set(arguments.only) - known))}")
    scratch = arguments.folder.resolve() / "scratch"
    rows = read(arguments.ledger)
    done = lambda row: row and row["gate_exit"] != "" and (row["ab_exit"] != "" or not arguments.ab)
    wanted = [change for change in CHANGES
              if (change.name in arguments.only if arguments.only else not done(rows.get(change.name)))]
    try:
        copy = Copy(arguments.folder.resolve() / "source", arguments.jobs)
        base = program_in(scratch / "base", copy.compiled())
        run([base, "run", *SELECTION, "--harness", HARNESSES, "-o", scratch / "base.json"], scratch)
        for change in wanted:
            row = rows[change.name] = measure(change, copy, base, scratch, arguments.ab)
            write(arguments.ledger, rows)
            print(f"{change.name}: gate {row['gate_exit']} {row['gate_verdicts']}"
                  f"{' ab ' + str(row['ab_exit']) if arguments.ab else ''}; {row['gate_first']}", flush=True)
    except Trouble as trouble:
        print(f"planted_meanings.py: {trouble}", file=sys.stderr)
        return 2
    wrong = [row["name"] for row in rows.values() if not is_right(row, arguments.ab)]
    print(f"{len(rows)} rows, {len(wrong)} wrong{': ' + ' '.join(wrong) if wrong else ''}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
