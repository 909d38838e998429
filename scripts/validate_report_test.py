#!/usr/bin/env python3
"""Tests of validate_report.py: what must be rejected, with which exit code and how many lines."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent
FIXTURES = SCRIPTS.parent / "reports" / "fixtures"
GOOD = FIXTURES / "report-1.0.json"


def validate(*paths):
    result = subprocess.run([sys.executable, SCRIPTS / "validate_report.py", *paths], capture_output=True, text=True)
    return result.returncode, (result.stdout + result.stderr).splitlines()


class ValidateReport(unittest.TestCase):
    def changed(self, change):
        """The messages for the valid fixture after `change` was applied to it."""
        report = json.loads(GOOD.read_text())
        change(report)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "changed.json"
            path.write_text(json.dumps(report))
            return validate(path)

    def assert_refused(self, change, expected):
        code, lines = self.changed(change)
        self.assertEqual(code, 1, lines)
        self.assertEqual(len(lines), 1, lines)
        self.assertIn(expected, lines[0])

    def test_takes_a_good_report(self):
        self.assertEqual(validate(GOOD), (0, [f"{GOOD}: valid"]))

    def test_ignores_unknown_fields(self):
        self.assertEqual(self.changed(lambda report: report["records"][0].update(weather="rain"))[0], 0)

    def test_refuses_wrong_types_with_a_line_for_each(self):
        code, lines = validate(FIXTURES / "bad-types.json")
        self.assertEqual(code, 1)
        self.assertEqual(len(lines), 3, lines)
        self.assertRegex(lines[0], r"records\[0\]\.axes\.momentum: 0\.1 is not of type 'string'")

    def test_refuses_another_major(self):
        code, lines = validate(FIXTURES / "bad-major.json")
        self.assertEqual(code, 1)
        self.assertTrue(any("schema: 1 was expected" in line for line in lines), lines)

    def test_refuses_what_is_missing_or_out_of_place(self):
        record = lambda report: report["records"][0]
        self.assert_refused(lambda report: record(report).pop("policy"), "'policy' is a required property")
        self.assert_refused(lambda report: record(report).update(status="failed"), "reason: ''")
        self.assert_refused(lambda report: record(report)["measurements"][0].update(better="up"), "better: 'up' is not")
        self.assert_refused(lambda report: record(report)["measurements"][0].update(metric="NMSE"), "metric: 'NMSE' does")
        self.assert_refused(lambda report: record(report)["series"][0]["x"].pop(), "x has 2 values and y has 3")
        self.assert_refused(lambda report: report["records"].append(record(report)), "is used twice")

    def test_cannot_read_what_is_no_json(self):
        with tempfile.TemporaryDirectory() as folder:
            bare = pathlib.Path(folder) / "bare.json"
            bare.write_text('{"schema": 1, "minor": NaN}')
            for path in (FIXTURES / "bad-truncated.json", FIXTURES / "none.json", FIXTURES, bare):
                code, lines = validate(path)
                self.assertEqual(code, 2)
                self.assertEqual(len(lines), 1, lines)
                self.assertIn(f"{path}: cannot be read", lines[0])


if __name__ == "__main__":
    unittest.main()
