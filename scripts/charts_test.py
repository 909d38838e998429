#!/usr/bin/env python3
"""Tests of charts.py: the charts of a synthetic report that contains every kind of data, and the messages for broken reports."""

import contextlib
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from charts_testing import FIXTURES, SCRIPTS, made_up_report, of_other_machine, replaced, series

try:
    import matplotlib
except ImportError:
    matplotlib = None
if matplotlib:
    import charts

CNN, MLP, TRANSFORMER = "cnn/b32_c3_s32", "mlp/b64_i784_h512_o10", "transformer/b8_t128_d256_l4"
NAMES = ["accuracy", "batchnorm_drift", "gradient_range", "memory", "roofline", "speed_against_error", "training"]
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

    def test_a_software_gpu_is_never_drawn_under_the_name_of_a_gpu(self):
        from PIL import Image
        report = made_up_report([MLP])
        for record in report["records"]:
            record["numerics"] = "software GPU: PTX interpreted on the CPU"
        code, files, err = self.draw(report)
        self.assertEqual(code, 0, err)
        self.assertGreater(len(files), 0)
        for name, path in files.items():
            facts = " ".join(Image.open(path).text.values())
            self.assertIn("cuda:0 (not a GPU, software GPU: PTX interpreted on the CPU)", facts, name)
            self.assertNotIn("Example GPU 9000", facts, name)

    def test_equal_reports_give_equal_files(self):
        options = ("--format", "png,svg")
        first = {name: path.read_bytes() for name, path in self.draw(made_up_report([MLP]), options=options)[1].items()}
        again = self.draw(made_up_report([MLP]), options=options)[1]
        self.assertEqual(first, {name: path.read_bytes() for name, path in again.items()})

    def test_says_which_charts_a_report_cannot_feed(self):
        report = made_up_report([MLP])
        report["records"] = [one for one in report["records"] if one["harness"] != "memory"]
        code, files, err = self.draw(report)
        self.assertEqual((code, sorted(files)), (0, ["accuracy.png", "gradient_range.png", "roofline.png", "speed_against_error.png",
                                                   "training.png"]), err)
        self.assertEqual(len(err.splitlines()), 2, err)
        self.assertRegex(err, r"memory: not drawn: .*memory\.tensors")
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

    def test_draws_only_what_was_asked_for(self):
        path = self.file(made_up_report([MLP]))
        code, files, err = self.run_main(path, "-o", self.folder / "charts", "--format", "svg", "--policy", "*bf16")
        self.assertEqual(code, 0, err)
        drawn = files["memory.svg"].read_text()
        self.assertIn("<!-- amp-bf16 -->", drawn)
        self.assertNotIn("<!-- fp16 -->", drawn)
        for option in ("--policy", "--subject", "--device"):
            self.assert_refused(self.run_main(path, "-o", self.folder / "none", option, "absent"), "no subject, device and policy that match")

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
        self.assertEqual(len(done.stdout.splitlines()), len(NAMES) - 1)  # without batch norm no drift
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


if __name__ == "__main__":
    unittest.main()
