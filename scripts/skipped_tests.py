#!/usr/bin/env python3
"""Counts the tests in JUnit files that ctest wrote and prints "SKIPPED name: reason" for every one that was skipped."""

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
        for name, reason in skipped:
            print(f"SKIPPED {name}: {reason}")


if __name__ == "__main__":
    main()
