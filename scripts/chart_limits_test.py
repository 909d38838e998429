#!/usr/bin/env python3
"""Tests of charts.py with numbers and names that no chart can hold: they are drawn, with one line that says how."""

import unittest

import charts_test
from charts_test import CNN, MLP, NAMES
from charts_testing import made_up_report, replaced

if charts_test.matplotlib:
    from chart_report import Reports


@unittest.skipUnless(charts_test.matplotlib, "no Python package matplotlib (install python3-matplotlib)")
class Limits(charts_test.Folder):
    draw, run_main = charts_test.Program.draw, charts_test.Program.run_main

    def test_draws_numbers_that_no_axis_holds_as_infinite_or_zero(self):
        report = made_up_report([CNN])
        for metric, value in (("error.nmse", 1e308), ("timing.half_width", 10 ** 400), ("range.format_max_exponent", 1e99),
                              ("memory.peak", 5e-324)):
            next(one for record in report["records"] for one in record["measurements"] if one["metric"] == metric)["value"] = value
        for metric in ("training.loss", "training.scale", "batchnorm.running_var_error"):
            next(one for record in report["records"] for one in record["series"] if one["metric"] == metric)["y"][3] = 1e308
        code, files, err = self.draw(report)
        self.assertEqual((code, sorted(files)), (0, [f"{name}.png" for name in NAMES]), err)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertIn("report-0.json: numbers beyond 1e100 are drawn as infinite, below 1e-100 as 0: records[0]", err)
        self.assertIn("and 5 more", err)

    def test_shortens_long_names(self):
        names = ["net/" + "x" * 50_000 + middle + "x" * 50_000 for middle in "ab"]
        report = replaced(made_up_report([CNN, MLP]), subject=dict(zip((CNN, MLP), names)), policy={"bf16": "p" * 100_000})
        report["environment"]["machine"] = "m" * 100_000
        read = Reports([self.file(report)], lambda _: True, lambda _: True)
        self.assertEqual(len(read.subjects), 2, "names that differ in the middle stay different")
        self.assertLess(max(map(len, read.subjects)), 250)
        code, files, err = self.draw(report)
        self.assertEqual((code, len(files), err), (0, len(NAMES), ""))

    def test_the_axis_of_speeds_has_two_labels_for_any_speed(self):
        from chart_figures import Widths
        from chart_parts import round_ticks
        for speed in [10 ** (exponent / 37) for exponent in range(-150, 150)]:
            axis = Widths([(speed, speed * 0.99, speed * 1.01)], 3)
            spread = axis.high / axis.low
            ticks, _ = round_ticks(axis.low * spread ** 0.05, axis.high / spread ** 0.02, axis.length * 0.93, "{:g}".format)
            self.assertGreaterEqual(len(ticks), 2, f"{speed} {axis.low} {axis.high}")


if __name__ == "__main__":
    unittest.main()
