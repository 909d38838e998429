#!/usr/bin/env python3
"""Tests of what the figures of charts.py contain: curves, axes, intervals, and what is not drawn."""

import copy
import math
import re
import unittest

import charts_test
from charts_test import CNN, MLP, TRANSFORMER
from charts_testing import POLICIES, made_up_report, measurement, of_other_machine, replaced, series

if charts_test.matplotlib:
    import chart_accuracy
    import chart_curves
    import chart_figures
    import chart_parts
    import chart_roofline
    import charts
    from chart_report import Reports


@unittest.skipUnless(charts_test.matplotlib, "no Python package matplotlib (install python3-matplotlib)")
class Contents(charts_test.Folder):
    """Tests of the figures' contents."""

    @classmethod
    def setUpClass(cls):
        chart_parts.set_defaults()
        cls.whole, cls.sheets = made_up_report(), {}

    def reports(self, *reports):
        return Reports([self.file(report, f"{index}.json") for index, report in enumerate(reports)], lambda _: True, lambda _: True)

    def sheet(self, chart, *reports):
        if reports == (self.whole,):
            if chart not in self.sheets:
                self.sheets[chart] = chart(self.reports(self.whole))
                self.sheets[chart].settle()
            return self.sheets[chart]
        sheet = chart(self.reports(*reports))
        sheet.settle()
        return sheet

    def words(self, sheet):
        return re.sub(r"\s+", " ", " ".join(text.get_text() for text in sheet.figure.texts))

    def lines(self, sheet, subject=CNN, source=0):
        """{label: (x, y)} of the panel."""
        axes = next(axes for panel, axes in sheet.axes.items() if (panel.subject, panel.source) == (subject, source))
        return {line.get_label(): line.get_data() for line in axes.get_lines() if not line.get_label().startswith("_")}

    def of_harness(self, report, harness):
        return [one for one in report["records"] if one["harness"] == harness]

    def test_curves_are_one_only_where_they_are_equal_in_every_bin(self):
        report = made_up_report([CNN])
        names = set(self.lines(self.sheet(chart_figures.gradient_range, report)))
        self.assertIn("fp32, tf32, bf16, amp-bf16", names)
        for one in self.of_harness(report, "range"):
            if one["policy"] == "bf16":
                one["series"][0]["y"][20] += 1  # one value of a million
        names = set(self.lines(self.sheet(chart_figures.gradient_range, report)))
        self.assertIn("bf16", names)
        self.assertIn("fp32, tf32, amp-bf16", names)

    def test_no_curve_leaves_the_range_of_its_format(self):
        sheet = self.sheet(chart_figures.gradient_range, self.whole)
        limits = {"fp16": (-24, 15), "fp8": (-9, 8)}
        seen = set()
        for subject in (CNN, MLP, TRANSFORMER):
            for label, (x, y) in self.lines(sheet, subject).items():
                drawn = x[y > 1e-29]
                for policy in set(label.split(", ")) & set(limits):
                    low, high = limits[policy]
                    self.assertTrue(low <= drawn.min() and drawn.max() <= high, f"{policy}: {drawn.min()} to {drawn.max()}")
                    seen.add(policy)
                if label == "fp8":  # of all its values, also of those that are not drawn
                    counts = next(one["series"][0] for one in self.of_harness(self.whole, "range")
                                  if (one["subject"], one["policy"]) == (subject, "fp8"))
                    inside = sum(count for at, count in zip(counts["x"], counts["y"]) if -9 <= at <= 8)
                    self.assertAlmostEqual(y[y > 1e-29].sum(), inside / sum(counts["y"]), 9)
        self.assertEqual(seen, set(limits))
        self.assertRegex(self.words(sheet), r"Not drawn, tensors kept in a wider format than the low format: .*fp8 up to 0\.\d+ of")

    def test_the_exponent_just_below_the_least_subnormal_is_not_lost(self):
        report = made_up_report([CNN])
        report["records"] = [one for one in report["records"] if one["policy"] in ("fp32", "fp16")]
        for one in self.of_harness(report, "range"):
            if one["policy"] == "fp32":
                one["series"] = [series("range.histogram", "gradients", [-27, -26, -25, -24, -15, -14, 16], [1, 2, 4, 8, 16, 68, 1])]
        self.assertIn("of fp32's gradients, in fp16: 3.0 % zero, 28.0 % subnormal, 68.0 % normal, 1.0 % overflow",
                      self.words(self.sheet(chart_figures.gradient_range, report)))

    def test_shades_the_narrowest_format_that_the_report_names(self):
        def title(*left_out):
            report = dict(self.whole, records=[one for one in self.whole["records"] if one["policy"] not in left_out])
            return self.sheet(chart_figures.gradient_range, report).title
        self.assertTrue(title().endswith("and the range of the low format of fp8"))
        self.assertTrue(title("fp8").endswith("and the range of fp16"))
        self.assertTrue(title("fp8", "fp16", "amp-fp16", "apex-o2").endswith("and the range of bf16"))

    def test_panels_share_their_axes(self):
        for chart in (chart_figures.speed_against_error, chart_figures.memory, chart_figures.gradient_range,
                      chart_curves.batchnorm_drift):
            sheet = self.sheet(chart, self.whole)
            found = {(axes.get_xlim(), axes.get_ylim(), axes.get_xlabel(), axes.get_ylabel(), axes.get_xscale(), axes.get_yscale())
                     for axes in sheet.axes.values()}
            self.assertEqual(len(found), 1, chart.__name__)
            self.assertRegex(next(iter(found))[2], r"\((log|linear)", chart.__name__)
        sheet = self.sheet(chart_curves.training, self.whole)
        self.assertEqual(len({axes.get_ylim() for axes in sheet.lower_axes.values() if axes.lines}), 1)

    def test_subjects_come_in_the_order_of_work(self):
        for chart in (chart_figures.speed_against_error, chart_figures.memory, chart_figures.gradient_range, chart_curves.training):
            sheet = self.sheet(chart, self.whole)
            self.assertEqual([panel.subject for panel in sheet.panels], [TRANSFORMER, CNN, MLP], chart.__name__)
        report = dict(self.whole, records=self.of_harness(self.whole, "range"))  # nothing measured: by the name
        self.assertEqual(self.reports(replaced(report, subject={CNN: "cnn/b2", MLP: "mlp/b64_i784", TRANSFORMER: "t/b8"})).subjects,
                         ["mlp/b64_i784", "t/b8", "cnn/b2"])

    def test_never_draws_a_suspect_time_as_a_speed(self):
        report = made_up_report([CNN, MLP])
        for one in self.of_harness(report, "throughput"):
            if one["subject"] == CNN:
                one["status"], one["reason"] = "suspect", "emulated"
        sheet = self.sheet(chart_figures.speed_against_error, report)
        self.assertEqual([panel.subject for panel in sheet.panels], [MLP])
        self.assertIn(f"Not drawn, every time is suspect: {CNN}", self.words(sheet))
        axes = sheet.axes[sheet.panels[0]]
        strip = max(patch.get_window_extent().x1 for patch in axes.patches)
        x, y = self.lines(sheet, MLP)["fp8"]  # suspect in every panel
        self.assertLess(axes.transData.transform((x[0], y[0]))[0], strip)
        report["records"] = [one for one in report["records"] if one["subject"] == CNN]
        with self.assertRaisesRegex(charts.LeftOut, "suspect"):
            self.sheet(chart_figures.speed_against_error, report)

    def test_never_draws_a_cold_step_beside_hot_ones(self):
        report = made_up_report([CNN])
        for one in self.of_harness(report, "throughput"):
            if one["policy"] == "fp32":
                one["measurements"][0]["at"] = "cold"
        sheet = self.sheet(chart_figures.speed_against_error, report)
        self.assertNotIn("fp32", self.lines(sheet))
        self.assertIn("bf16", self.lines(sheet))
        self.assertRegex(sheet.axes[sheet.panels[0]].get_xlabel(), "^training steps per second .*right is faster")  # no baseline, no speed-up

    def test_a_roofline_is_what_was_attained_in_the_run_and_each_point_the_rate_of_a_step(self):
        report = made_up_report([CNN, MLP])
        sheet = self.sheet(chart_roofline.roofline, report)
        self.assertEqual([panel.subject for panel in sheet.panels], ["fp32", "tf32", "bf16", "fp16", "amp-fp16", "amp-bf16", "apex-o2"])
        self.assertIn("Not drawn, the time is suspect: 2 subjects under fp8.", self.words(sheet))
        for policy, peak in (("fp32", 1e12), ("bf16", 4e12)):
            axes = next(axes for panel, axes in sheet.axes.items() if panel.subject == policy)
            roof = next(line for line in axes.get_lines() if len(line.get_xdata()) == 3)
            for x, y in zip(*roof.get_data()):
                self.assertAlmostEqual(y / min(2e11 * x, peak), 1)
            self.assertAlmostEqual(roof.get_xdata()[1], peak / 2e11)  # where both bounds are equal
            shares = []
            for subject in (CNN, MLP):
                numbers = {one["metric"]: one["value"] for record in self.of_harness(report, "throughput")
                           for one in record["measurements"] if (record["subject"], record["policy"]) == (subject, policy)}
                (x,), (y,) = self.lines(sheet, policy)[subject]
                self.assertEqual((x, y), (numbers["roofline.intensity"], numbers["throughput.flops"]))
                shares.append(y / min(2e11 * x, peak))
            self.assertIn(f"{100 * min(shares):.2g} % to {100 * max(shares):.2g} % of what is attainable", self.words(sheet))

    def test_a_roofline_needs_every_number_of_it(self):
        for metric in ("roofline.intensity", "roofline.attainable_copy", "roofline.attainable_matmul", "throughput.flops"):
            report = made_up_report([CNN])
            for one in self.of_harness(report, "throughput"):
                if one["policy"] == "bf16":
                    one["measurements"] = [number for number in one["measurements"] if number["metric"] != metric]
            policies = [panel.subject for panel in self.sheet(chart_roofline.roofline, report).panels]
            self.assertIn("fp32", policies)
            self.assertNotIn("bf16", policies, metric)
        for one in self.of_harness(report, "throughput"):
            one["status"], one["reason"] = "suspect", "emulated"
        with self.assertRaisesRegex(charts.LeftOut, "suspect"):
            self.sheet(chart_roofline.roofline, report)

    def bars(self, sheet):
        """Ends of the horizontal bars by colour."""
        axes = sheet.axes[sheet.panels[0]]
        return {line.get_color(): tuple(line.get_xdata()) for line in axes.get_lines() if line.get_marker() == "|"}

    def test_a_speed_up_is_the_ratio_measured_in_turn_with_its_interval(self):
        report = made_up_report([CNN])
        report["records"] = [one for one in report["records"] if one["policy"] in ("fp32", "bf16")]
        ratio = next(one for record in self.of_harness(report, "throughput") for one in record["measurements"]
                     if one["metric"] == "speedup.step")
        ratio["value"], ratio["interval"] = 1.03, [0.97, 1.09]  # the times say more
        sheet = self.sheet(chart_figures.speed_against_error, report)
        self.assertEqual(self.bars(sheet)[chart_parts.style("bf16")[0]], (0.97, 1.09))
        self.assertAlmostEqual(self.lines(sheet)["bf16"][0][0], 1.03)
        self.assertEqual(self.bars(sheet)[chart_parts.style("fp32")[0]], (1, 1))
        self.assertIn("A bar that reaches 1 is no gain", self.words(sheet))

    def test_times_without_a_measured_ratio_are_not_drawn_as_speed_ups(self):
        for interval in (None, [0, 2], [0.9, math.inf]):
            report = made_up_report([CNN])
            for record in self.of_harness(report, "throughput"):
                for one in record["measurements"]:
                    if one["metric"] == "speedup.step" and record["policy"] == "bf16":
                        one["interval"] = interval
                        if interval is None:
                            del one["interval"]
            sheet = self.sheet(chart_figures.speed_against_error, report)
            self.assertRegex(sheet.axes[sheet.panels[0]].get_xlabel(), "^training steps per second")

    def test_intervals_of_times_are_drawn_and_named(self):
        report = made_up_report([CNN])
        report["records"] = [one for one in report["records"] if one["policy"] in ("fp32", "bf16", "tf32", "amp-fp16")]
        for one in self.of_harness(report, "throughput"):
            one["measurements"] = [number for number in one["measurements"] if number["metric"] != "speedup.step"]
        steps = {one["policy"]: one["measurements"][0] for one in self.of_harness(report, "throughput")}
        del steps["amp-fp16"]["samples"]
        report["records"] = [one for one in report["records"] if (one["policy"], one["harness"]) != ("amp-fp16", "throughput")
                             or one["measurements"].pop()]
        sheet = self.sheet(chart_figures.speed_against_error, report)
        bars = {policy: self.bars(sheet)[chart_parts.style(policy)[0]] for policy in ("fp32", "bf16", "tf32", "amp-fp16")}
        for policy, low, high in (("bf16", 0.97, 1.03), ("tf32", min(steps["tf32"]["samples"]) / steps["tf32"]["value"],
                                                         max(steps["tf32"]["samples"]) / steps["tf32"]["value"]),
                                  ("amp-fp16", 1, 1)):
            low = min(low, 1)  # the value itself may lie outside of its samples
            rate = 1 / steps[policy]["value"]
            self.assertAlmostEqual(bars[policy][0], rate / high, 9, policy)
            self.assertAlmostEqual(bars[policy][1], rate / low, 9, policy)
        words = self.words(sheet)
        for said in ("95 % interval of the median (9 samples)", "least to greatest sample (9 samples)", "no bar: single value",
                     "Error: single value, no interval."):
            self.assertIn(said, words)

    def test_says_what_the_bars_of_times_do_not_cover(self):
        report, times = made_up_report([CNN]), {}
        one_process = "Bars: steps of one process; differences between processes come on top (measure with --processes)."
        self.assertIn(one_process, self.words(self.sheet(chart_figures.speed_against_error, report)))
        for one in self.of_harness(report, "throughput"):
            step = times[one["policy"]] = one["measurements"][0]["value"]
            one["measurements"].append(measurement("time.process", "hot", step, "s", samples=[0.8 * step, step, 1.25 * step]))
        sheet = self.sheet(chart_figures.speed_against_error, report)
        self.assertNotIn(one_process, self.words(sheet))
        for one in self.of_harness(report, "throughput"):
            one["measurements"] = [number for number in one["measurements"] if number["metric"] != "speedup.step"]
        sheet = self.sheet(chart_figures.speed_against_error, report)
        self.assertIn("least to greatest median of a process (3 processes)", self.words(sheet))
        for end, factor in zip(self.bars(sheet)[chart_parts.style("bf16")[0]], (0.8, 1.25)):
            self.assertAlmostEqual(end, factor / times["bf16"], 9)

    def test_several_reports_have_the_band_of_suspect_times_on_the_slow_side(self):
        sheet = self.sheet(chart_figures.speed_against_error, self.whole, of_other_machine(self.whole))
        for panel, axes in sheet.axes.items():
            self.assertRegex(axes.get_xlabel(), "right is faster")
            lines = self.lines(sheet, panel.subject, panel.source)
            self.assertLess(lines["fp8"][0][0], min(x[0] for policy, (x, _) in lines.items() if policy != "fp8"))
            self.assertGreater(lines["bf16"][0][0], lines["fp32"][0][0])  # 2.3 times as fast

    def test_every_panel_of_the_drift_names_all_settings(self):
        report = made_up_report([CNN])
        for one in self.of_harness(report, "batchnorm_drift"):
            if one["axes"]["momentum"] == "0.1":
                del one["axes"]["momentum"]
            one["axes"]["noise"] = one["axes"].pop("storage")
            if one["axes"]["noise"] == "f32":
                del one["axes"]["noise"]
        sheet = self.sheet(chart_curves.batchnorm_drift, report)
        self.assertEqual(sorted(panel.settings for panel in sheet.panels), [
            "default momentum, no noise", "default momentum, noise=f16", "momentum=0.01, no noise", "momentum=0.01, noise=f16"])

    def test_an_accuracy_has_its_standard_error_and_its_sample(self):
        sheet = self.sheet(chart_accuracy.accuracy, self.whole)
        words = self.words(sheet)
        values = {panel.subject: {text.get_text() for text in axes.texts} for panel, axes in sheet.axes.items()}
        # Seeds 0.85, 0.87, 0.89: standard deviation 0.02 over the root of 3. A single seed has its own error.
        self.assertEqual(values[MLP], {"87.0 ± 1.2 %"})
        self.assertEqual(values[CNN], {"85.0 ± 1.1 %"})
        self.assertIn("1024 held-out samples for each of 1 to 3 seeds", words)
        self.assertIn("Hollow: one seed. The error is that of the samples alone", words)
        hollow = {panel.subject: {line.get_markerfacecolor() == "white" for line in axes.lines if line.get_marker() in "os^vDPX"}
                  for panel, axes in sheet.axes.items()}
        self.assertEqual((hollow[MLP], hollow[CNN]), ({False}, {True}))
        self.assertAlmostEqual(chart_accuracy.mean_of([(0.5, 0.02), (0.5, 0.02)])[1], 0.02 / math.sqrt(2))

    def test_replicates_of_a_training_are_a_band(self):
        sheet = self.sheet(chart_curves.training, self.whole)
        filled = {panel.subject: len(axes.collections) for panel, axes in sheet.axes.items()}
        self.assertEqual(filled[CNN], 0)
        self.assertGreaterEqual(filled[MLP], len(POLICIES) - 1)
        self.assertIn("Band: least to greatest of 3 replicates", self.words(sheet))
        self.assertIn("No band: a single run", self.words(sheet))

    def test_a_loss_that_stops_being_finite_is_named(self):
        sheet = self.sheet(chart_curves.training, self.whole)
        self.assertIn("fp16: loss not finite after step 140", self.words(sheet))
        self.assertIn("loss not finite after this step", sheet.legend)

    def test_two_reports_stand_side_by_side(self):
        other = of_other_machine(self.whole)
        other["records"] = [one for one in other["records"] if one["subject"] != TRANSFORMER]
        for chart in charts.CHARTS:
            sheet = self.sheet(chart, self.whole, other)
            words = self.words(sheet)
            for said in ("A: cuda:0, made up, git 0123456789ab", "B: cuda:0, second, git ba9876543210", "A: 0.json", "B: 1.json"):
                self.assertIn(said, words, chart.__name__)
            for (subject, _), axes in rows_of(sheet).items():
                self.assertEqual(len({(one.get_xlim(), one.get_ylim()) for one in axes}), 1, f"{chart.__name__}: {subject}")
        sheet = self.sheet(chart_figures.speed_against_error, self.whole, other)
        self.assertIn(f"nothing to draw for {TRANSFORMER}", self.words(sheet))
        speeds = [self.lines(sheet, MLP, source)["bf16"][0][0] for source in (0, 1)]
        self.assertAlmostEqual(speeds[1] / speeds[0], 2)  # half the time is right

    def test_a_software_gpu_beside_a_gpu_is_named_in_the_title_of_its_panels(self):
        other = copy.deepcopy(self.whole)
        for record in other["records"]:
            record["numerics"] = "software GPU: PTX interpreted on the CPU"
        for chart in charts.CHARTS:
            words = self.words(self.sheet(chart, self.whole, other))
            self.assertIn("B: cuda:0 (not a GPU), made up", words, chart.__name__)

    def test_an_axis_of_errors_has_places_for_zero_and_for_what_is_not_finite(self):
        report = made_up_report([TRANSFORMER])
        for one in self.of_harness(report, "error"):
            if one["policy"] == "fp32":
                one["measurements"][0]["value"] = 0
        sheet = self.sheet(chart_figures.speed_against_error, report)
        ticks = {text.get_text(): tick for text, tick in zip(sheet.axes[sheet.panels[0]].get_yticklabels(),
                                                             sheet.axes[sheet.panels[0]].get_yticks())}
        self.assertEqual(self.lines(sheet, TRANSFORMER)["fp32"][1][0], ticks["0"])
        self.assertEqual(self.lines(sheet, TRANSFORMER)["fp16"][1][0], ticks["not finite"])
        self.assertTrue(all(math.isfinite(tick) for tick in ticks.values()))


def rows_of(sheet):
    """{row: axes of the panels in it}."""
    rows = {}
    for panel, axes in sheet.axes.items():
        rows.setdefault(panel.row, []).append(axes)
    return rows


if __name__ == "__main__":
    unittest.main()
