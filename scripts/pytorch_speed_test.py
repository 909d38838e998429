#!/usr/bin/env python3
"""Tests of scripts/peers/pytorch_speed.py that need no PyTorch: its statistics, its doubts, its reports, its arguments, and
what it does with processes that fail. Stand-ins of halfmark and of a Python with PyTorch answer with fixed times."""

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
import speed_team  # noqa: E402
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

    def test_records_of_a_gpu_carry_launch_and_the_seconds_of_all_forms(self):
        found = turns.summary(rounds(1e-3, 2e-3))
        ours, peer = (turns.record(who, "mlp/b32_i64_h128_o10", "tf32", 1, found, QUIET, [], 1.0, "cuda:0", {"launch": "graph"},
                                   {"graph": 1e-3, "compiled-graph": 2e-3}) for who in ("ours", "peer"))
        self.assertEqual(ours["id"], "mlp/b32_i64_h128_o10/cuda:0/tf32/throughput/launch=graph")
        self.assertEqual(peer["id"], "mlp/b32_i64_h128_o10/pytorch-cuda:0/tf32/throughput/launch=graph")
        self.assertEqual((ours["device"], ours["axes"]), ("cuda:0", {"launch": "graph"}))
        forms = {one["at"]: one["value"] for one in peer["measurements"] if one["metric"] == "time.form"}
        self.assertEqual(forms, {"graph": 1e-3, "compiled-graph": 2e-3})
        self.assertFalse(turns.report([ours], {}, "", "2026-01-01T00:00:00Z", 5.0, planned=2)["run"]["complete"])

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


HALFMARK = """#!{python}
import json, os, pathlib, sys
if sys.argv[1] == "dump":
    pathlib.Path(sys.argv[sys.argv.index("-o") + 1]).mkdir()
elif sys.argv[1] == "--version":
    print("halfmark 0")
else:
    for line in sys.stdin:
        with open(os.environ["ASKED"], "a") as file:
            file.write(line)
        if "linear" in line:
            sys.exit(1)
        print(json.dumps({{"seconds": 1e-3, "reason": ""}}), flush=True)
"""
TORCH = """#!{python}
import json, sys
if sys.argv[1] == "-c":
    print(json.dumps({{"version": "2", "cuda": "13", "cudnn": "9", "gpu": "a GPU"}}))
    sys.exit(0)
for line in sys.stdin:
    asked = json.loads(line)
    seconds = {{"eager": 4e-3, "graph": 2e-3, "compiled-graph": 3e-3}}.get(asked["form"], 0)
    wrong = bool(asked["as"]) and asked["as"] != {{"layout": "contiguous", "optimizer": "fused"}}
    print(json.dumps({{"seconds": seconds, "optimizer": "fused", "layout": "contiguous",
                      "reason": "cannot compile" if asked["form"] == "compiled" else "wrong choice" if wrong else ""}}),
          flush=True)
"""


class CommandLine(unittest.TestCase):
    def run_with(self, *arguments, **variables):
        return subprocess.run([sys.executable, str(SCRIPTS / "peers" / "pytorch_speed.py"), *arguments], capture_output=True,
                              text=True, check=False, env=dict(os.environ, **variables))

    def refused(self, *arguments):
        done = self.run_with(*arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        return done.stderr

    def with_stand_ins(self, *arguments):
        """(the text, the two reports, the lines that halfmark was asked) of a run on a GPU that there need not be."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for program, text in (("halfmark", HALFMARK), ("python", TORCH)):
                (folder / program).write_text(text.format(python=sys.executable), encoding="utf-8")
                (folder / program).chmod(0o755)
            (folder / "asked").touch()
            reports = [folder / "ours.json", folder / "pytorch.json"]
            done = self.run_with(*arguments, "--device", "cuda:0", "--halfmark", str(folder / "halfmark"), "--python",
                                 str(folder / "python"), "--rounds", "8", "--json", *map(str, reports),
                                 ASKED=str(folder / "asked"))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return (done.stdout, [json.loads(path.read_text(encoding="utf-8")) for path in reports],
                    (folder / "asked").read_text(encoding="utf-8").splitlines())

    def test_the_cases_are_listed_and_wrong_input_is_one_line(self):
        self.assertIn("mlp/b32_i64_h128_o10", self.run_with("models", "--list").stdout.split())
        self.assertIn("resnet50/b32_s224", self.run_with("models", "--list", "--device", "cuda:0").stdout.split())
        self.refused("--rounds", "2")
        self.assertIn("/nowhere", self.refused("--halfmark", "/nowhere"))

    def test_what_a_device_does_not_have_is_refused(self):
        self.assertIn("cuda:N", self.refused("--device", "cuda"))
        self.assertIn("cuda:N", self.refused("--launch", "graph"))
        self.assertIn("fp32, amp-bf16", self.refused("--policies", "tf32"))
        self.assertIn("one number", self.refused("--device", "cuda:0", "--threads", "1", "2"))
        self.assertIn("--launch", self.refused("--device", "cuda:0", "--axis", "launch=graph"))
        self.assertIn("KEY=VALUE", self.refused("--device", "cuda:0", "--axis", "fused"))

    def test_a_python_without_pytorch_is_one_line_and_code_77(self):
        for python in ("/nowhere/python", sys.executable):
            # Without its site packages no Python has PyTorch.
            done = self.run_with("--halfmark", "/bin/true", "--python", python, PYTHONPATH="", PYTHONNOUSERSITE="1")
            if done.returncode == 0:
                self.skipTest("this Python has PyTorch")
            self.assertEqual(done.returncode, 77)
            self.assertEqual(done.stderr.count("\n"), 1)
            self.assertIn(python, done.stderr)

    def test_a_graph_is_compared_with_the_fastest_form_that_runs(self):
        text, reports, asked = self.with_stand_ins("mlp/b32_i64_h128_o10", "--policies", "amp-fp16", "--axis", "fused=on",
                                                   "--forms", "eager", "compiled", "graph", "compiled-graph")
        self.assertIn("compiled failed: cannot compile", text)
        ratios = [next(one["value"] for one in record["measurements"] if one["metric"] == "speedup.pytorch")
                  for record in reports[0]["records"]]
        self.assertEqual([round(ratio, 6) for ratio in ratios], [4, 2])  # eager for kernels, graph for graph
        self.assertEqual(sorted(set(asked)), ["mlp/b32_i64_h128_o10/cuda:0/amp-fp16/throughput/fused=on",
                                              "mlp/b32_i64_h128_o10/cuda:0/amp-fp16/throughput/launch=graph/fused=on"])
        self.assertEqual(reports[1]["environment"]["gpu"]["name"], "a GPU")
        self.assertTrue(reports[0]["run"]["complete"])

    def test_a_process_that_ends_costs_its_case_only(self):
        text, reports, _ = self.with_stand_ins("linear/b4_i16_o8", "mlp/b32_i64_h128_o10", "--policies", "fp32",
                                               "--launch", "kernels")
        self.assertIn("not measured", text)
        self.assertEqual([record["subject"] for record in reports[0]["records"]], ["mlp/b32_i64_h128_o10"])
        self.assertFalse(reports[0]["run"]["complete"])

    def test_a_spent_budget_begins_no_case(self):
        text, reports, asked = self.with_stand_ins("mlp/b32_i64_h128_o10", "--policies", "fp32", "--budget", "1e-9")
        self.assertIn("2 cases were not measured", text)
        self.assertEqual((reports[0]["records"], asked), ([], []))

    def test_a_case_names_its_axes_in_the_id(self):
        case = speed_team.Case("relu/b16_c64_s28", "cuda:0", "fp32", (("launch", "graph"),))
        self.assertEqual((case.id(), case.launch), ("relu/b16_c64_s28/cuda:0/fp32/throughput/launch=graph", "graph"))


if __name__ == "__main__":
    unittest.main()
