#!/usr/bin/env python3
"""Counts the tests in JUnit files that ctest wrote, prints "SKIPPED name: reason" for every one that was skipped and
"FAILED name" with its first and last lines for every one that failed.

More than three skipped with one reason are one line with the names of their suites; so are those of one suite after the third."""

import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree

# GoogleTest: "[ RUN      ] name", "file.cpp:12: Skipped", the message of GTEST_SKIP(), "[  SKIPPED ] name (0 ms)". The last
# line may follow text without a line end. Whatever is between the two lines of a test is its own, also what the tests of a
# program print that it runs.
GTEST_BEGIN = re.compile(r"^\[ RUN      \] (\S+)$", re.MULTILINE)
GTEST_END = r"\[  (SKIPPED|FAILED|     OK)\s*\] {}(?:,|\s|$)"
GTEST_REASON = re.compile(r": Skipped\n(.*?)(?=\n\s*\n|\n\[|\Z)", re.DOTALL)
# unittest -v says "test_x (module.Class.test_x) ... skipped 'reason'", with a line of the test's own before the dots, and after
# all tests a line of equals signs, "FAIL: test_x (module.Class.test_x)", perhaps a line of the test's own, a line of minus signs
# and the traceback.
UNITTEST = re.compile(r"^(\w+) \(\S+\)(?:\n.*)? \.\.\. skipped ['\"](.*)['\"]$", re.MULTILINE)
UNITTEST_FAILED = re.compile(r"^={70}\n(?:FAIL|ERROR): (\w+) \(\S+\)( [^\n]*)?\n(?:[^\n]*\n)?-{70}\n"
                             r"(.*?)(?=^={70}\n(?:FAIL|ERROR): |^-{70}\nRan \d|\Z)",
                             re.DOTALL | re.MULTILINE)
UNITTEST_COUNT = re.compile(r"^-{70}\nRan (\d+) tests? in ", re.MULTILINE)
SKIPPED_BY_CTEST = re.compile(r"SKIP_RETURN_CODE|SKIP_REGULAR_EXPRESSION|Disabled|^$")
NO_RESULT = "\n(no result line: the program ended, or its output was cut)"
FIRST_LINES, LAST_LINES, LONGEST_LINE = 20, 20, 300


def one_line(text):
    return " ".join(text.split())


def gtests(output):
    """(name, text, end) of each test of a GoogleTest program; end is "" if there is no result line."""
    at = 0
    while begin := GTEST_BEGIN.search(output, at):
        end = re.compile(GTEST_END.format(re.escape(begin[1])), re.MULTILINE).search(output, begin.end())
        if end is None:  # the program ended, or ctest cut the output: what follows is of this test or of the next one
            following = GTEST_BEGIN.search(output, begin.end())
            at = following.start() if following else len(output)
            yield begin[1], output[begin.end():at], ""
        else:
            at = end.end()
            yield begin[1], output[begin.end():end.start()], end[1]


def failures(name, output, tests):
    """(name, text) of each test that failed within a CTest case that failed."""
    inside = [(f"{name}/{test}", text) for test, text, end in tests if end == "FAILED"]
    inside += [(f"{name}/{test}", text + NO_RESULT) for test, text, end in tests if not end]
    inside += [(f"{name}/{test}{parameters}", text) for test, parameters, text in UNITTEST_FAILED.findall(output)]
    return inside or [(name, output)]


def read(path):
    """How many tests there were, (name, reason) of those that were skipped, (name, text) of those that failed."""
    count, skipped, failed = 0, [], []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = case.get("name")
        output = case.findtext("system-out") or ""
        inside = [(f"{name}/{test}", reason) for test, reason in UNITTEST.findall(output)]
        tests = list(gtests(output))
        ran = UNITTEST_COUNT.search(output)
        count += len(tests) or (int(ran[1]) if ran else 1)
        for test, text, end in tests:
            if end == "SKIPPED":
                reasons = [one_line(reason) for reason in GTEST_REASON.findall(text)]
                inside.append((test, "; ".join(reason for reason in reasons if reason) or "no reason given"))
        # ctest fails what it could not run, and calls that skipped too.
        element, status = case.find("skipped"), case.get("status")
        message = element.get("message", "") if element is not None else ""
        not_run = element is not None or status in ("notrun", "disabled")
        if not_run and status != "disabled" and not SKIPPED_BY_CTEST.search(message):
            failed.append((name, message))
            continue
        if not inside and not_run:
            inside.append((name, message or "no reason given"))
        skipped += inside
        if status == "fail" or case.find("failure") is not None:
            failure = case.find("failure")
            why = failure.get("message", "") if failure is not None else ""
            failed += failures(name, f"{output}\n{why}", tests)
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
        said = [line for line in text.splitlines() if line.strip() and not re.match(r"\[( RUN  |   +OK |-{10}\]|={10}\])", line)]
        left_out = len(said) - FIRST_LINES - LAST_LINES
        if left_out > 0:
            said[FIRST_LINES:-LAST_LINES] = [f"({left_out} lines)"]
        yield from (f"    {line[:LONGEST_LINE]}" for line in said)


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
