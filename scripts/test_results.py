#!/usr/bin/env python3
"""Counts the tests in JUnit files that ctest wrote, prints "SKIPPED name: reason" for every one that was skipped and
"FAILED name" with its last lines for every one that failed.

More than three skipped with one reason are one line with the names of their suites; so are those of one suite after the third."""

import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree

# GoogleTest: "[ RUN      ] name", "file.cpp:12: Skipped", the message of GTEST_SKIP(), "[  SKIPPED ] name (0 ms)".
# A test that ended its process has no last line.
GTEST = re.compile(r"^\[ RUN      \] (\S+)$(.*?)(?:^\[  (SKIPPED|FAILED|     OK) |\Z|(?=^\[ RUN  ))", re.DOTALL | re.MULTILINE)
GTEST_REASON = re.compile(r": Skipped\n(.*?)(?=\n\s*\n|\n\[|\Z)", re.DOTALL)
# unittest -v says "test_x (module.Class.test_x) ... skipped 'reason'", with a line of the test's own before the dots, and after
# all tests "FAIL: test_x (module.Class.test_x)", a line of minus signs, and the traceback.
UNITTEST = re.compile(r"^(\w+) \(\S+\)(?:\n.*)? \.\.\. skipped ['\"](.*)['\"]$", re.MULTILINE)
UNITTEST_FAILED = re.compile(r"^(?:FAIL|ERROR): (\w+) .*?\n-{70}\n(.*?)(?=^={70}$|^-{70}$|\Z)", re.DOTALL | re.MULTILINE)
NO_PROGRAM = "Unable to find executable"  # ctest calls this skipped, and fails
LINES_OF_A_FAILURE = 30


def one_line(text):
    return " ".join(text.split())


def failures(name, output, tests):
    """(name, text) of each test that failed within a CTest case that failed."""
    inside = [(f"{name}/{test}", text) for test, text, end in tests if end == "FAILED"]
    inside += [(f"{name}/{test}", text + "\n(its process ended)") for test, text, end in tests if not end]
    inside += [(f"{name}/{test}", text) for test, text in UNITTEST_FAILED.findall(output)]
    return inside or [(name, output)]


def read(path):
    """How many tests there were, (name, reason) of those that were skipped, (name, text) of those that failed."""
    count, skipped, failed = 0, [], []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = case.get("name")
        output = case.findtext("system-out") or ""
        inside = [(f"{name}/{test}", reason) for test, reason in UNITTEST.findall(output)]
        tests = GTEST.findall(output)
        count += max(len(tests), 1)
        for test, text, end in tests:
            if end == "SKIPPED":
                reasons = [one_line(reason) for reason in GTEST_REASON.findall(text)]
                inside.append((test, "; ".join(reason for reason in reasons if reason) or "no reason given"))
        element = case.find("skipped")
        if element is not None and element.get("message") == NO_PROGRAM:
            failed.append((name, NO_PROGRAM))
            continue
        if not inside and (element is not None or case.get("status") in ("notrun", "disabled")):
            inside.append((name, (element.get("message", "") if element is not None else "") or "no reason given"))
        skipped += inside
        if case.get("status") == "fail" or case.find("failure") is not None:
            failed += failures(name, output, tests)
    return count, skipped, failed


def suite(name):
    return re.sub(r"[./][^.]*$", ".*", name)


def lines(skipped):
    """Lines for a person: more than three tests with one reason, or of one suite, are one line."""
    names, others = {}, {}
    for name, reason in skipped:
        names.setdefault(reason, []).append(name)
    for reason, some in names.items():
        if len(some) > 3:
            yield f"SKIPPED {len(some)} tests: {reason}: {', '.join(sorted(set(map(suite, some))))}"
        else:
            for name in some:
                others.setdefault(suite(name), []).append(f"{name}: {reason}")
    for some in others.values():
        yield from (f"SKIPPED {line}" for line in some[:3])
        if len(some) > 3:
            yield f"SKIPPED {len(some) - 3} more of {suite(some[0].partition(': ')[0])}, each for a reason of its own"


def failure_lines(failed):
    for name, text in failed:
        yield f"FAILED {name}"
        said = [line for line in text.splitlines() if line.strip()]
        if len(said) > LINES_OF_A_FAILURE:
            yield f"    ({len(said) - LINES_OF_A_FAILURE} lines before these)"
        yield from (f"    {line}" for line in said[-LINES_OF_A_FAILURE:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", metavar="FILE")
    for path in parser.parse_args().paths:
        try:
            count, skipped, failed = read(path)
        except (OSError, ElementTree.ParseError) as problem:
            print(f"test_results.py: {path} cannot be read: {problem}", file=sys.stderr)
            sys.exit(2)
        print(f"{count} tests, {len(skipped)} skipped, {len(failed)} failed")
        for line in [*lines(skipped), *failure_lines(failed)]:
            print(line)


if __name__ == "__main__":
    main()
