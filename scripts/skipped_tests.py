#!/usr/bin/env python3
"""Prints "SKIPPED name: reason" for every skipped test of the JUnit files that ctest wrote."""

import re
import sys
import xml.etree.ElementTree as ElementTree

# GoogleTest says "file.cpp:12: Skipped", then the words of GTEST_SKIP(), then an empty line or a line of its own.
GTEST = re.compile(r": Skipped\n(.*?)(?=\n\s*\n|\n\[|\Z)", re.DOTALL)
# unittest -v says "test_x (module.Class.test_x) ... skipped 'reason'".
UNITTEST = re.compile(r"^(\w+) \(.*?(?:\n.*)?\.\.\. skipped ['\"](.*)['\"]$", re.MULTILINE)


def one_line(text):
    return " ".join(text.split())


def skipped(path):
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = case.get("name")
        output = case.findtext("system-out") or ""
        inside = [(f"{name}/{test}", reason) for test, reason in UNITTEST.findall(output)]
        if inside:
            yield from inside
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            reasons = [one_line(reason) for reason in GTEST.findall(output)]
            element = case.find("skipped")
            fallback = element.get("message", "") if element is not None else ""
            yield name, "; ".join(reason for reason in reasons if reason) or fallback or "no reason given"


def main():
    for path in sys.argv[1:]:
        for name, reason in skipped(path):
            print(f"SKIPPED {name}: {reason}")


if __name__ == "__main__":
    main()
