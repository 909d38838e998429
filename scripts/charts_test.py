#!/usr/bin/env python3
"""Tests of charts.py: the charts of a synthetic report that contains every kind of data, and the messages for broken reports."""

import contextlib
import io
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from charts_testing import FIXTURES, POLICIES, SCRIPTS, made_up_report, measurement, of_other_machine, replaced, series

try:
    import matplotlib
except ImportError:
    matplotlib = None
if matplotlib:
    import chart_accuracy
    import chart_curves
    import chart_figures
    import chart_parts
    import charts
    from chart_report import Reports

CNN, MLP, TRANSFORMER = "cnn/b32_c3_s32", "mlp/b64_i784_h512_o10", "transformer/b8_t128_d256_l4"
NAMES = ["accuracy", "batchnorm_drift", "gradient_range", "memory", "speed_against_error", "training"]
NEEDED = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, report, name="report.json"):
        path = self.folder / name
        path.write_text(report if isinstance(report, str) else json.dumps(report))
        return path


@unittest.skipUnless(matplotlib, "no Python package matplotlib (install python3-matplotlib)")
class Program(Folder):
    """Through main(): files, standard error, exit codes."""

    def draw(self, *reports, options=()):
        paths = [self.file(report, f"report-{index}.json") for index, report in enumerate(reports)]
        return self.run_main(*paths, "-o", self.folder / "charts", "--dpi", "60", *options)

    def run_main(self, *arguments):
        out, err, before = io.StringIO(), io.StringIO(), sys.argv
        sys.argv = ["charts.py", *map(str, arguments)]
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = charts.main()
        except SystemExit as end:
            code = end.code
        finally:
            sys.argv = before
        return code, {pathlib.Path(line).name: pathlib.Path(line) for line in out.getvalue().splitlines()}, err.getvalue()

    def assert_refused(self, result, said):
        code, files, err = result
        self.assertEqual((code, files), (2, {}), err)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertRegex(err, said)

    def test_draws_every_chart_that_the_report_holds(self):
        import matplotlib.image
        code, files, err = self.draw(made_up_report())
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(sorted(files), [f"{name}.png" for name in NAMES])
        for path in files.values():
            pixels = matplotlib.image.imread(path)[..., :3]
            self.assertGreater(min(pixels.shape[:2]), 200, path)
            self.assertGreater((pixels < 0.9).any(axis=2).mean(), 0.005, f"{path} is blank")

    def test_every_file_tells_where_its_numbers_come_from(self):
        from PIL import Image
        code, files, err = self.draw(made_up_report([CNN]), options=("--format", "svg,png,pdf"))
        self.assertEqual(code, 0, err)
        self.assertEqual(len(files), 3 * len(NAMES))
        for name, path in files.items():
            if name.endswith(".png"):
                facts = " ".join(Image.open(path).text.values())
            elif name.endswith(".svg"):
                facts = path.read_text()[:8000]
            else:
                facts = path.read_bytes().decode("latin-1")
            for fact in ("0123456789ab", "cuda:0", "Example GPU 9000", "2025-03-01T12:00:00Z", "made up"):
                self.assertIn(fact, facts, name)

    def test_equal_reports_give_equal_files(self):
        options = ("--format", "png,svg")
        first = {name: path.read_bytes() for name, path in self.draw(made_up_report([MLP]), options=options)[1].items()}
        again = self.draw(made_up_report([MLP]), options=options)[1]
        self.assertEqual(first, {name: path.read_bytes() for name, path in again.items()})

    def test_says_which_charts_a_report_cannot_feed(self):
        report = made_up_report([MLP])
        report["records"] = [one for one in report["records"] if one["harness"] != "memory"]
        code, files, err = self.draw(report)
        self.assertEqual((code, sorted(files)), (0, ["accuracy.png", "gradient_range.png", "speed_against_error.png", "training.png"]), err)
        self.assertEqual(len(err.splitlines()), 2, err)
        self.assertRegex(err, r"memory: not drawn: .*memory\.peak")
        self.assertRegex(err, r"batchnorm_drift: not drawn: .*batchnorm\.running_var_error")

    def test_an_accuracy_without_its_error_or_its_sample_is_not_drawn(self):
        for lacking in ("standard_error", "evaluation.samples"):
            report = made_up_report([MLP])
            for one in report["records"]:
                one["measurements"] = [kept for kept in one["measurements"] if kept["metric"] != lacking]
                for kept in one["measurements"]:
                    kept.pop(lacking, None)
            code, files, err = self.draw(report)
            self.assertNotIn("accuracy.png", files)
            self.assertRegex(err, r"accuracy: not drawn: .*standard error")

    def test_reads_the_fixtures(self):
        for fixture in ("report-1.0.json", "report-1.1.json", "report-1.2.json", "newer-minor.json"):
            code, files, err = self.draw((FIXTURES / fixture).read_text())
            self.assertEqual(len(files) + err.count(": not drawn: "), len(NAMES), err)
            self.assertEqual(code, 0 if files else 3, err)
        for fixture in FIXTURES.glob("bad-*.json"):
            self.assert_refused(self.draw(fixture.read_text()), r"report-0\.json: ")

    def test_a_report_without_anything_to_draw_has_its_own_exit_code_and_names_every_chart(self):
        report = made_up_report([CNN])
        for one in report["records"]:
            one["measurements"], one["series"] = [], []
        code, files, err = self.draw(report)
        self.assertEqual((code, files), (3, {}))
        for name in NAMES:
            self.assertIn(f"{name}: not drawn: ", err)
        self.assertRegex(err.splitlines()[-1], "nothing drawn from .*report-0.json")

    def test_survives_reports_with_only_nan(self):
        report = made_up_report([CNN])
        for one in report["records"]:
            for found in one["measurements"]:
                found["value"] = "NaN"
            for curve in one["series"]:
                curve["y"] = ["NaN"] * len(curve["y"])
        code, _, err = self.draw(report)
        self.assertEqual(code, 3)
        self.assertEqual(len(err.splitlines()), len(NAMES) + 1, err)

    def test_says_so_when_there_are_more_subjects_than_panels(self):
        report = made_up_report([MLP])
        report["records"] = [one for one in report["records"] if one["harness"] == "memory"]
        report["records"] += [one for index in range(10)
                              for one in replaced(report, subject={MLP: f"mlp/h{index}"})["records"]]
        code, _, err = self.draw(report)
        self.assertEqual(code, 0, err)
        self.assertRegex(err, r"memory: shows 9 of 11 panels")
        code, _, err = self.draw(report, of_other_machine(report))
        self.assertRegex(err, r"memory: shows 6 of 11 rows")

    def test_refuses_what_is_no_report_in_one_line(self):
        whole = json.dumps(made_up_report([CNN]))
        wrong_type, wrong_samples = made_up_report([CNN]), made_up_report([CNN])
        wrong_type["records"][0]["measurements"] = 3
        wrong_samples["records"][0]["measurements"][0]["samples"] = ["fast"]
        for broken in (whole[:len(whole) // 2], "", "[]", "{}", '{"schema": 2, "records": []}', '{"schema": 1, "records": []}',
                       json.dumps(wrong_type), json.dumps(wrong_samples)):
            self.assert_refused(self.draw(broken), r"report-0\.json: ")
        self.assert_refused(self.draw(made_up_report([CNN]), "{}"), r"report-1\.json: ")
        self.assert_refused(self.run_main(self.folder / "none.json"), r"none\.json: cannot be read: No such file")

    def test_refuses_a_folder_or_a_file_that_it_cannot_write(self):
        path = self.file(made_up_report([CNN]))
        self.assert_refused(self.run_main(path, "-o", path / "charts"), "cannot be written: Not a directory")
        (self.folder / "charts" / "speed_against_error.png").mkdir(parents=True)
        self.assert_refused(self.run_main(path, "-o", self.folder / "charts"),
                            r"speed_against_error\.png: cannot be written: Is a directory")

    def test_help_has_examples_and_exit_codes(self):
        result = self.run_main("--format", "bmp", "x.json")
        self.assertEqual(result[0], 2)
        self.assertIn("no such format: bmp", result[2])
        self.assertIn("charts.py a.json b.json -o both", charts.EXAMPLES)
        self.assertIn("Exit codes", charts.EXAMPLES)


class Installed(Folder):
    def start(self, folder, *arguments, **environment):
        return subprocess.run([sys.executable, folder / "charts.py", *arguments], cwd=self.folder, capture_output=True, text=True,
                              env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", **environment})

    @unittest.skipUnless(matplotlib, "no Python package matplotlib (install python3-matplotlib)")
    def test_the_installed_files_suffice(self):
        packaging = (SCRIPTS / "cmake" / "HalfmarkPackaging.cmake").read_text()
        installed = self.folder / "installed"
        installed.mkdir()
        patterns = re.search(r"install\(DIRECTORY scripts/ DESTINATION share/halfmark (.*?)\)", packaging, re.DOTALL)[1]
        self.assertEqual(re.findall(r'PATTERN "([^"]*)"', patterns), ["*chart*.py", "*_test.py", "*_testing.py"])
        names = {path.name for path in SCRIPTS.glob("*chart*.py") if not path.name.endswith(("_test.py", "_testing.py"))}
        for name in names:
            shutil.copy(SCRIPTS / name, installed)
        self.assertLessEqual({"charts.py", "history_charts.py"}, names)
        path = self.file(made_up_report([MLP]))
        done = self.start(installed, path, "-o", "out", "--dpi", "50")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 5)
        ours = {one.stem for one in SCRIPTS.glob("*.py")}
        for name in names:  # also what history_charts.py takes
            needed = set(NEEDED.findall((SCRIPTS / name).read_text())) & ours
            self.assertLessEqual({f"{one}.py" for one in needed}, names, name)

    def test_says_in_one_line_that_matplotlib_is_missing(self):
        (self.folder / "matplotlib.py").write_text("raise ModuleNotFoundError('none', name='matplotlib')\n")
        done = self.start(SCRIPTS, "report.json", PYTHONPATH=str(self.folder))
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1), done.stderr)
        self.assertIn("no Python package matplotlib", done.stderr)
        done = self.start(SCRIPTS, "--help", PYTHONPATH=str(self.folder))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("REPORT.json", done.stdout)


@unittest.skipUnless(matplotlib, "no Python package matplotlib (install python3-matplotlib)")
class Contents(Folder):
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
        self.assertIn("With one seed the error is that of the samples alone", words)
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
