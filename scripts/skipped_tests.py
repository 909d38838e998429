#!/usr/bin/env python3
"""Counts the tests in JUnit files that ctest wrote and prints "SKIPPED name: reason" for every one that was skipped.

More than three with one reason are one line with the names of their suites; so are those of one suite after the third."""

import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree

# GoogleTest: "[ RUN      ] name", "file.cpp:12: Skipped", the message of GTEST_SKIP(), "[  SKIPPED ] name (0 ms)".
GTEST = re.compile(r"^\[ RUN      \] (\S+)$(.*?)^\[  (SKIPPED|FAILED|     OK) ", re.DOTALL | re.MULTILINE)
GTEST_REASON = re.compile(r": Skipped\n(.*?)(?=\n\s*\n|\n\[|\Z)", re.DOTALL)
# unittest -v says "test_x (module.Class.test_x) ... skipped 'reason'".
UNITTEST = re.compile(r"^(\w+) \(.*?(?:\n.*)?\.\.\. skipped ['\"](.*)['\"]$", re.MULTILINE)


def one_line(text):
    return " ".join(text.split())


def read(path):
    """How many tests there were, and (name, reason) of those that were skipped."""
    count, skipped = 0, []
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
        if not inside and (element is not None or case.get("status") in ("notrun", "disabled")):
            inside.append((name, (element.get("message", "") if element is not None else "") or "no reason given"))
        skipped += inside
    return count, skipped


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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", metavar="FILE")
    for path in parser.parse_args().paths:
        try:
            count, skipped = read(path)
        except (OSError, ElementTree.ParseError) as problem:
            print(f"skipped_tests.py: {path} cannot be read: {problem}", file=sys.stderr)
            sys.exit(2)
        print(f"{count} tests, {len(skipped)} skipped")
        for line in lines(skipped):
            print(line)


if __name__ == "__main__":
    main()
