#!/usr/bin/env python3
"""Tests of experiment_charts.py: each experiment of a made-up report, numbers that an axis does not have, and messages."""

import contextlib
import io
import itertools
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

from charts_testing import SCRIPTS, made_up_report, measurement, of_other_machine, record, series

try:
    import matplotlib
except ImportError:
    matplotlib = None
if matplotlib:
    from chart_layout_test import contrast, drawn_texts, overlap

    import chart_parts
    import experiment_charts
    from chart_report import LeftOut, Reports

CONVNET, MLP = "convnet/b16_c3_s16_w16", "mlp/b32_i64_h128_o10"
PLACES = {"underflow": ("2^-30", "2^-25", "2^-20"), "batchnorm_statistics": ("one pass fp16", "two passes fp32"),
          "row_statistics": ("fp16", "fp32"), "reduction": ("sum/fp16", "mean/fp32"), "all_reduce": ("policy/ring", "fp32/ring"),
          "mantissa": ("output", "gradient/weight"), "mantissa_training": ("passes", "weights"),
          "evaluation": ("fp32", "full_fp16"), "evaluation_memory": ("fp32/kept", "fp32/streamed")}


def made_up_experiments():
    """A report with the numbers of every chart, some of them 0, infinite or NaN."""
    records = []
    for subject, policy in itertools.product((CONVNET, MLP), ("fp16", "amp-fp16")):
        for chart in experiment_charts.CHARTS:
            if isinstance(chart, experiment_charts.Curves):
                x = [2.0 ** power for power in range(6)]
                curves = [series(chart.metric, at, x, [0.0, *(2.0 ** -power for power in range(4)), math.inf])
                          for at in PLACES.get(chart.name, ("",))]
                if chart.theory:
                    curves += [series(chart.theory, at, x, [0.5] * 6) for at in PLACES[chart.name]]
                records.append(record(subject, "cpu", policy, chart.name, [], curves))
            else:
                found = [{**measurement(metric, at, value), "standard_error": 0.01} for metric, _ in chart.metrics
                         for at, value in (("gradients/e4m3", 0.25), ("gradients/fp16", 0.125), ("weights/fp16", 0.0))]
                records.append(record(subject, "cpu", policy, chart.name, found))
    return {**made_up_report([]), "records": records}


@unittest.skipUnless(matplotlib, "no Python package matplotlib (install python3-matplotlib)")
class Experiments(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        chart_parts.set_defaults()
        cls.report = made_up_experiments()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, report, name="report.json"):
        path = self.folder / name
        path.write_text(json.dumps(report))
        return path

    def run_main(self, *arguments):
        out, err, before = io.StringIO(), io.StringIO(), sys.argv
        sys.argv = ["experiment_charts.py", *map(str, arguments)]
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = experiment_charts.main()
        except SystemExit as end:
            code = end.code
        finally:
            sys.argv = before
        return code, [pathlib.Path(line) for line in out.getvalue().splitlines()], err.getvalue()

    def sheet(self, name, *reports):
        chart = next(chart for chart in experiment_charts.CHARTS if chart.name == name)
        paths = [self.file(report, f"{index}.json") for index, report in enumerate(reports or (self.report,))]
        return experiment_charts.draw_chart(Reports(paths, lambda _: True, lambda _: True), chart)

    def panel_lines(self, sheet, subject, settings=""):
        axes = next(axes for panel, axes in sheet.axes.items() if (panel.subject, panel.settings) == (subject, settings))
        return {line.get_label(): line.get_data() for line in axes.get_lines() if not line.get_label().startswith("_")}

    def test_draws_every_experiment_that_the_report_holds(self):
        code, files, err = self.run_main(self.file(self.report), "-o", self.folder / "out", "--dpi", "60")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual([path.stem for path in files], [chart.name for chart in experiment_charts.CHARTS])
        code, files, err = self.run_main(self.file({**self.report, "records": self.report["records"][:1]}), "-o", self.folder / "out",
                                         "--dpi", "60")
        self.assertEqual((code, [path.stem for path in files], err), (0, ["underflow"], ""))

    def test_a_curve_is_that_of_its_policy_or_of_its_place(self):
        lines = self.panel_lines(self.sheet("updates"), CONVNET)
        self.assertEqual(sorted(lines), ["amp-fp16", "fp16"])
        self.assertEqual(list(lines["fp16"][0]), [1, 2, 4, 8, 16, 32])
        self.assertEqual(list(lines["fp16"][1][1:5]), [1, 0.5, 0.25, 0.125])
        lines = self.panel_lines(self.sheet("underflow"), MLP, "amp-fp16")
        self.assertEqual(sorted(lines), sorted(PLACES["underflow"]))

    def test_0_and_infinity_are_drawn_at_the_edges(self):
        sheet = self.sheet("all_reduce")
        axes = next(iter(sheet.axes.values()))
        low, high = axes.get_ylim()
        _, y = self.panel_lines(sheet, CONVNET, "fp16")["policy/ring"]
        self.assertEqual((y[0], y[-1]), (low, high))
        self.assertIn("0 is drawn at the lower edge.", sheet.notes)
        self.assertIn("not finite", sheet.legend)
        self.assertNotIn("0 is drawn at the lower edge.", self.sheet("underflow").notes, "a linear axis has 0")

    def test_curves_of_zeros_alone_have_a_linear_axis_with_0(self):
        report = json.loads(json.dumps(self.report))
        for one in report["records"]:
            for curve in one["series"]:
                if one["subject"] == CONVNET:
                    curve["y"] = [0.0] * len(curve["y"])
        sheet = self.sheet("batch_invariance", report)
        scales = {panel.subject: axes.get_yscale() for panel, axes in sheet.axes.items()}
        self.assertEqual(scales, {CONVNET: "linear", MLP: "log"})
        axes = next(axes for panel, axes in sheet.axes.items() if panel.subject == CONVNET)
        self.assertEqual(axes.get_ylim(), (0, 1))
        self.assertTrue(axes.get_ylabel().endswith("(linear)"), axes.get_ylabel())

    def test_a_row_has_a_marker_for_each_policy_and_a_panel_for_each_kind(self):
        sheet = self.sheet("what_if")
        self.assertEqual({panel.settings for panel in sheet.panels}, {"gradients", "weights"})
        lines = self.panel_lines(sheet, MLP, "gradients")
        self.assertEqual(sorted(lines), ["amp-fp16 e4m3", "amp-fp16 fp16", "fp16 e4m3", "fp16 fp16"])
        self.assertEqual(lines["fp16 e4m3"][0], [0.25])
        self.assertIn("Bars: two standard errors on each side.", sheet.notes)
        lines = self.panel_lines(self.sheet("checkpointing"), MLP)
        self.assertIn("fp16 kept, gradients/e4m3", lines)
        self.assertIn("fp16 peak, gradients/e4m3", lines)

    def test_the_largest_rows_are_kept(self):
        rows = [measurement("sensitivity.half_alone", f"layer{index:03}", 1 / (1 + index)) for index in range(50)]
        report = {**self.report, "records": [record(MLP, "cpu", "fp16", "sensitivity", rows)]}
        sheet = self.sheet("sensitivity", report)
        names = [text.get_text() for text in next(iter(sheet.axes.values())).get_yticklabels()]
        self.assertEqual(names, [f"layer{index:03}" for index in range(experiment_charts.MOST_ROWS)])
        self.assertIn("the 30 largest of 50 rows", " ".join(text.get_text() for text in sheet.figure.texts))

    def test_no_text_overlaps_another_or_leaves_the_figure(self):
        for reports in ((self.report,), (self.report, of_other_machine(self.report))):
            for chart in experiment_charts.CHARTS:
                figure = self.sheet(chart.name, *reports).figure
                texts, (width, height) = drawn_texts(figure), figure.get_size_inches() * figure.dpi
                self.assertGreater(len(texts), 8, chart.name)
                for (one, box), (other, other_box) in itertools.combinations(texts, 2):
                    self.assertFalse(overlap(box, other_box), f"{chart.name}: {one.get_text()!r} over {other.get_text()!r}")
                for text, box in texts:
                    self.assertTrue(box[0] >= 0 and box[1] >= 0 and box[2] <= width and box[3] <= height,
                                    f"{chart.name}: {text.get_text()!r} leaves the figure")
                    self.assertGreaterEqual(contrast(text.get_color(), "white"), 4.5)

    def test_says_what_is_wrong_or_missing(self):
        path = self.file({**self.report, "records": made_up_report([])["records"] + [record(MLP, "cpu", "fp16", "error")]})
        code, files, err = self.run_main(path, "-o", self.folder / "out")
        self.assertEqual((code, files, len(err.splitlines())), (3, [], 1))
        self.assertIn("--suite experiments", err)
        code, _, err = self.run_main(path, "-o", self.folder / "out", "--chart", "mantissa")
        self.assertEqual(code, 3)
        self.assertIn("mantissa: not drawn: no record has the curve mantissa.error", err)
        for option, said in (("--chart=nonsense", "no such chart: nonsense"), ("--format=bmp", "no such format: bmp")):
            code, _, err = self.run_main(path, option)
            self.assertEqual(code, 2)
            self.assertIn(said, err)
        (self.folder / "broken.json").write_text("{")
        code, files, err = self.run_main(self.folder / "broken.json")
        self.assertEqual((code, files, len(err.splitlines())), (2, [], 1))
        with self.assertRaises(LeftOut):
            self.sheet("sensitivity", made_up_report([]) | {"records": [record(MLP, "cpu", "fp16", "error")]})


class WithoutMatplotlib(unittest.TestCase):
    def test_one_line_says_so_and_help_works(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "matplotlib.py").write_text("raise ModuleNotFoundError('none', name='matplotlib')\n")

            def start(*arguments):
                return subprocess.run([sys.executable, SCRIPTS / "experiment_charts.py", *arguments], capture_output=True, text=True,
                                      env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": folder})
            done = start("report.json")
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1), done.stderr)
            self.assertIn("no Python package matplotlib", done.stderr)
            done = start("--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("underflow", done.stdout)


if __name__ == "__main__":
    unittest.main()
