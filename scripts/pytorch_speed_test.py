#!/usr/bin/env python3
"""Tests of scripts/peers/pytorch_speed.py that need no PyTorch: its statistics, its doubts, its reports."""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(SCRIPTS / "peers"))
import turns  # noqa: E402

PROGRAM = os.environ.get("HALFMARK", str(SCRIPTS.parent / "build" / "release" / "halfmark"))
QUIET = {"others": 0.0, "stolen": 0.0}


def rounds(ours, peer, count=10, second=1.0):
    """Rounds with a little scatter; `second`: how much slower the second process of ours is."""
    made = []
    for number in range(count):
        drift = 1 + 0.01 * number
        made.append({"ours": [ours * drift, ours * drift * second], "peer": [peer * drift, peer * drift * (1 + 0.001 * (-1) ** number)]})
    return made


class Statistics(unittest.TestCase):
    def test_hodges_lehmann_gives_the_numbers_of_a_worked_example(self):
        # Hollander and Wolfe, Nonparametric Statistical Methods, example 3.1 (Hamilton depression scale): the estimate is
        # -0.46, and the interval with the confidence 96.1 % is [-0.786, -0.010].
        values = [-0.952, 0.147, -1.022, -0.430, -0.620, -0.590, -0.490, 0.080, -0.010]
        estimate, lower, upper = turns.hodges_lehmann(values, 0.95)
        self.assertAlmostEqual(estimate, -0.46, 3)
        self.assertAlmostEqual(lower, -0.786, 3)
        self.assertAlmostEqual(upper, -0.010, 3)

    def test_too_few_values_have_no_interval(self):
        self.assertEqual(turns.hodges_lehmann([1.0, 2.0, 3.0])[1:], (-math.inf, math.inf))
        self.assertTrue(math.isfinite(turns.hodges_lehmann([float(i) for i in range(8)], 0.99)[1]))

    def test_the_ratio_is_the_time_of_the_peer_over_ours_whatever_both_drift(self):
        found = turns.summary(rounds(1e-3, 2e-3))
        self.assertAlmostEqual(found["ratio"][0], 2, 2)
        self.assertLessEqual(found["ratio"][1], found["ratio"][0])
        self.assertLess(found["ratio"][2], 2.01)

    def test_a_control_that_does_not_hold_one_is_named(self):
        self.assertEqual(turns.reasons_to_doubt(turns.summary(rounds(1e-3, 2e-3)), QUIET, 2, 2), [])
        doubts = turns.reasons_to_doubt(turns.summary(rounds(1e-3, 2e-3, second=1.1)), QUIET, 2, 2)
        self.assertEqual(len(doubts), 1)
        self.assertIn("the control of halfmark is 1.100", doubts[0])

    def test_other_work_is_doubted_only_where_it_needs_the_cores(self):
        found = turns.summary(rounds(1e-3, 2e-3))
        busy = {"others": 0.9, "stolen": 0.0}
        self.assertEqual(turns.reasons_to_doubt(found, busy, 1, 2), [])
        self.assertIn("0.90 of 2 cores", turns.reasons_to_doubt(found, busy, 2, 2)[0])

    def test_the_meter_of_this_process_sees_no_others_in_its_own_work(self):
        meter = turns.ContentionMeter([os.getpid()])
        read = meter.read()
        self.assertGreaterEqual(read["others"], 0)
        self.assertEqual(turns.ContentionMeter([-1]).read(), QUIET)


class Reports(unittest.TestCase):
    def made(self, who):
        records = []
        for subject, policy, reasons in [("mlp/b32_i64_h128_o10", "fp32", []), ("relu/b16_c64_s28", "amp-bf16", ["a reason"])]:
            records.append(turns.record(who, subject, policy, 2, turns.summary(rounds(1e-3, 2e-3)), QUIET, reasons, 3.0))
        return turns.report(records, {"cpu": {"cores": 2}}, "pytorch_speed.py", "2026-01-01T00:00:00Z", 5.0)

    def test_reports_are_valid(self):
        try:
            import jsonschema  # noqa: F401
        except ImportError:
            self.skipTest("jsonschema is not installed")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report.json"
            for who in ("ours", "peer"):
                path.write_text(json.dumps(self.made(who)), encoding="utf-8")
                done = subprocess.run([sys.executable, str(SCRIPTS / "validate_report.py"), str(path)], capture_output=True,
                                      text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipUnless(os.access(PROGRAM, os.X_OK), "halfmark is not built in build/release")
    def test_compare_shows_both_programs_side_by_side(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [str(pathlib.Path(folder) / name) for name in ("ours.json", "pytorch.json")]
            for path, who in zip(paths, ("ours", "peer"), strict=True):
                pathlib.Path(path).write_text(json.dumps(self.made(who)), encoding="utf-8")
            done = subprocess.run([PROGRAM, "compare", *paths], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("cpu-t2", done.stdout)
        self.assertIn("pytorch-t2", done.stdout)
        self.assertIn("2.09 ms (0.50x)", done.stdout)
        self.assertIn("suspect", done.stdout)


class CommandLine(unittest.TestCase):
    def run_with(self, *arguments):
        return subprocess.run([sys.executable, str(SCRIPTS / "peers" / "pytorch_speed.py"), *arguments], capture_output=True,
                              text=True, check=False)

    def test_the_cases_are_listed_and_wrong_input_is_one_line(self):
        self.assertIn("mlp/b32_i64_h128_o10", self.run_with("models", "--list").stdout.split())
        few = self.run_with("--rounds", "2")
        self.assertEqual(few.returncode, 2)
        self.assertEqual(few.stderr.count("\n"), 1)
        absent = self.run_with("--halfmark", "/nowhere")
        self.assertEqual(absent.returncode, 2)
        self.assertIn("/nowhere", absent.stderr)


if __name__ == "__main__":
    unittest.main()
