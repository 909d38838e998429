#!/usr/bin/env python3
"""Tests of charts.py on a made-up report with everything in it that the charts can draw, and on broken ones."""

import json
import math
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent
FIXTURES = SCRIPTS.parent / "reports" / "fixtures"

#        speed-up, nmse of a small GEMM, bytes of a parameter and of an activation, master copy, loss scale
POLICIES = {
    "fp32": (1.00, 4e-14, 4, 4, False, None),
    "tf32": (1.55, 9e-8, 4, 4, False, None),
    "bf16": (2.30, 6e-6, 2, 2, False, None),
    "fp16": (2.45, 4e-7, 2, 2, False, None),
    "amp-fp16": (2.05, 2e-7, 4, 2, True, 65536.0),
    "amp-bf16": (1.95, 3e-6, 4, 2, True, None),
    "apex-o2": (2.15, 2.4e-7, 2, 2, True, 32768.0),
    "fp8": (2.90, 8e-4, 4, 1, True, None),
}
#              exponents of the largest, the least normal and the least number of the low format
LOW_FORMATS = dict.fromkeys(("bf16", "amp-bf16"), (127, -126, -133)) | dict.fromkeys(
    ("fp16", "amp-fp16", "apex-o2"), (15, -14, -24)) | {
    "fp32": (127, -126, -149), "tf32": (127, -126, -136), "fp8": (8, -6, -9)}
SUBJECTS = {  # parameters, activation values, seconds a step
    "mlp/b64_i784_h512_o10": (4.1e5, 8e4, 6e-4),
    "cnn/b32_c3_s32": (1.2e6, 3.5e6, 4.2e-3),
    "transformer/b8_t128_d256_l4": (3.4e6, 9e6, 1.1e-2),
}
PURPOSES = ("weights", "master", "gradients", "optimizer", "state", "saved", "temporary", "casts", "workspace", "input",
            "other")


def measurement(metric, at, value, unit="1", better="lower", kind="exact", **more):
    return {"metric": metric, "at": at, "value": number(value), "unit": unit, "better": better, "kind": kind, **more}


def number(value):
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def series(metric, at, x, y, x_unit="1", y_unit="1"):
    return {"metric": metric, "at": at, "x": x, "y": [number(value) for value in y], "x_unit": x_unit, "y_unit": y_unit}


def record(subject, device, policy, harness, measurements=(), curves=(), status="ok", reason="", **axes):
    name = "/".join([subject, device, policy, harness] + [f"{key}={value}" for key, value in axes.items()])
    return {"id": name, "case_version": 1, "subject": subject, "device": device, "policy": policy, "harness": harness,
            "axes": axes, "status": status, "reason": reason, "repro": f"halfmark run --case {name}", "kernels": [],
            "measurements": list(measurements), "series": list(curves)}


def throughput(subject, device, policy, draw):
    speed_up, _, _, _, _, _ = POLICIES[policy]
    seconds = SUBJECTS[subject][2] / speed_up * (1 + 0.05 * draw.random())
    suspect = policy == "fp8"
    samples = [seconds * (1 + 0.01 * draw.random()) for _ in range(9)]
    return record(subject, device, policy, "throughput", [
        measurement("time.step", "hot", seconds, "s", kind="sampled", samples=samples),
        measurement("throughput.step", "hot", 32 / seconds, "1/s", "higher", "sampled"),
    ], status="suspect" if suspect else "ok",
        reason="emulated kernel in the timed region: matmul e4m3,e4m3->f16 (reference)" if suspect else "")


def error(subject, device, policy, draw):
    nmse = POLICIES[policy][1] * (1 + draw.random()) * SUBJECTS[subject][0] / 4e5
    if policy == "fp16" and subject.startswith("transformer"):
        nmse = math.nan
    return record(subject, device, policy, "error", [
        measurement("error.nmse", "output", nmse, kind="bounded", bound=1e-2),
        measurement("error.cosine", "output", 1 - nmse / 2, better="higher"),
        measurement("error.zeroed", "gradient/fc1/weight", 0.04 if policy == "fp16" else 0.0),
        measurement("error.infinite", "output", 0.0),
        measurement("error.nmse", "gradient/fc1/weight", nmse * 9),
        measurement("error.nmse", "gradient/input", nmse * 5),
    ], [series("error.ulp_histogram", "output", [0, 1, 2, 4], [80, 30, 8, 1])])


def memory(subject, device, policy):
    parameters, activations, _ = SUBJECTS[subject]
    _, _, parameter, activation, master, _ = POLICIES[policy]
    purposes = {
        "weights": parameters * (2 if master and parameter == 2 else parameter),
        "master": parameters * 4 if master and parameter == 2 else 0, "gradients": parameters * parameter,
        "optimizer": parameters * 8, "state": 1e4, "saved": activations * activation,
        "temporary": activations * activation * 0.3, "casts": parameters * 2 if master and parameter == 4 else 0,
        "workspace": 2e5, "input": activations * 0.05, "other": 2e4,
    }
    found = [measurement(f"memory.peak.{purpose}", "train", round(size), "B") for purpose, size in purposes.items()]
    found.append(measurement("memory.peak", "train", sum(round(size) for size in purposes.values()), "B"))
    found.append(measurement("memory.peak", "evaluate", round(purposes["weights"] + purposes["temporary"]), "B"))
    return record(subject, device, policy, "memory", found)


def bell(centre, width, count):
    exponents = list(range(centre - 26, centre + 17))
    return exponents, [round(count * math.exp(-((x - centre) / width) ** 2 / 2)) for x in exponents]


def ranges(subject, device, policy):
    centre = -17 - 3 * list(SUBJECTS).index(subject)
    exponents, counts = bell(centre, 4.5, 2e5)
    if policy == "fp16":  # below the subnormals nothing is left
        counts = [count if exponent >= -24 else 0 for exponent, count in zip(exponents, counts)]
    if policy == "fp8":
        counts = [count if exponent >= -16 else 0 for exponent, count in zip(exponents, counts)]
    curves = [series("range.histogram", "gradients", exponents, counts)]
    curves += [series("range.histogram", f"gradient/layer{i}", *bell(centre - i, 3.5, 4e4)) for i in range(3)]
    curves.append(series("range.histogram", "activations", *bell(-1, 2, 3e5)))
    return record(subject, device, policy, "range", [
        measurement("range.headroom", "gradients", 3.0, "bit", "higher"),
        measurement("range.zero", "gradients", 0.03),
        measurement("range.underflow", "gradients", 0.12),
        *(measurement(f"range.format_{name}_exponent", "", exponent, "1", "neither", "information")
          for name, exponent in zip(("max", "min_normal", "min"), LOW_FORMATS[policy])),
    ], curves)


def drift(subject, device, policy, draw):
    found = []
    for momentum, storage in (("0.1", "f32"), ("0.01", "f32"), ("0.1", "f16"), ("0.01", "f16")):
        steps = list(range(0, 400, 4))
        floor = {"fp32": 3e-8, "bf16": 4e-3, "fp16": 6e-4}.get(policy, 2e-5) * (1 if storage == "f32" else 12)
        rise = float(momentum) * 0.4
        curves = []
        for layer, factor in (("bn1", 1.0), ("bn2", 1.7)):
            values = [factor * floor * (1 - math.exp(-rise * step)) * (0.9 + 0.2 * draw.random()) for step in steps]
            curves.append(series("batchnorm.running_var_error", layer, steps, values))
            curves.append(series("batchnorm.running_mean_error", layer, steps, [value * 0.6 for value in values]))
        found.append(record(subject, device, policy, "batchnorm_drift",
                            [measurement("batchnorm.running_var_drift", "bn2", floor * 1.7)], curves,
                            momentum=momentum, storage=storage))
    return found


def training(subject, device, policy, draw):
    steps = list(range(295))
    scale = POLICIES[policy][5]
    twin = [2.3 * math.exp(-step / 90) + 0.12 + 0.05 * draw.random() for step in steps]
    blown = policy == "fp16" and subject.startswith("transformer")
    loss = [math.nan if blown and step > 140 else value * (1 + POLICIES[policy][1] ** 0.35 * draw.random())
            for step, value in enumerate(twin)]
    if blown:
        loss[110:141] = [value * 1.04 ** i for i, value in enumerate(loss[110:141])]
    curves = [series("training.loss", "", steps, loss), series("training.loss_fp32", "", steps, twin)]
    skipped = 0
    if scale:
        history = []
        for step in steps:
            if step in (0, 1, 120, 251):
                scale, skipped = scale / 2, skipped + 1
            elif step % 60 == 59:
                scale *= 2
            history.append(scale)
        curves.append(series("training.scale", "", steps, history))
    return record(subject, device, policy, "training", [
        measurement("training.final_loss", "", loss[-1]),
        measurement("training.skipped_steps", "", skipped),
        measurement("training.noop_updates", "", 0.21 if policy == "bf16" else 0.001),
    ], curves)


def made_up_report(subjects=tuple(SUBJECTS), device="cuda:0"):
    draw = random.Random(1)
    records = []
    for subject in subjects:
        for policy in POLICIES:
            records += [throughput(subject, device, policy, draw), error(subject, device, policy, draw),
                        memory(subject, device, policy), ranges(subject, device, policy),
                        training(subject, device, policy, draw)]
            if subject.startswith("cnn"):
                records += drift(subject, device, policy, draw)
    return {"schema": 1, "minor": 0, "environment": {"machine": "made up", "gpu": {"name": "none"}},
            "run": {"started": "2025-03-01T12:00:00Z", "seconds": 60, "command": "", "seed": 1, "suite": "made up"},
            "records": records}


class Charts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def draw(self, report, *options):
        path = self.folder / "report.json"
        path.write_text(report if isinstance(report, str) else json.dumps(report))
        return subprocess.run([sys.executable, SCRIPTS / "charts.py", path, "-o", self.folder / "charts", "--dpi", "80",
                               *options],
                              capture_output=True, text=True)

    def written(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        return {pathlib.Path(line).name: pathlib.Path(line) for line in result.stdout.splitlines()}

    def assert_drawn(self, path):
        import matplotlib.image
        pixels = matplotlib.image.imread(path)[..., :3]
        self.assertGreater(min(pixels.shape[:2]), 200, path)
        self.assertGreater((pixels < 0.9).any(axis=2).mean(), 0.005, f"{path} is blank")

    def texts(self, report, chart):
        """What is written in a chart: matplotlib names every text that it draws as a path."""
        path = self.written(self.draw(report, "--format", "svg"))[f"{chart}.svg"]
        return re.findall("<!-- (.*?) -->", path.read_text(), re.DOTALL)

    def test_draws_every_chart_that_the_report_holds(self):
        files = self.written(self.draw(made_up_report()))
        self.assertEqual(sorted(files), ["batchnorm_drift.png", "gradient_range.png", "memory.png",
                                         "speed_against_error.png", "training.png"])
        for path in files.values():
            self.assert_drawn(path)

    def test_writes_the_formats_asked_for(self):
        files = self.written(self.draw(made_up_report(["cnn/b32_c3_s32"]), "--format", "svg,png"))
        self.assertEqual(len(files), 10)
        self.assertIn("<svg", files["memory.svg"].read_text())

    def test_a_fixture_says_which_charts_it_cannot_feed(self):
        report = (FIXTURES / "report-1.0.json").read_text()
        result = self.draw(report)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"memory: left out: .*memory\.peak")

    def test_never_draws_a_suspect_time_as_a_speed(self):
        report = made_up_report(["cnn/b32_c3_s32"])
        for one in report["records"]:
            if one["harness"] == "throughput":
                one["status"], one["reason"] = "suspect", "emulated"
        result = self.draw(report)
        self.assertNotIn("speed_against_error.png", self.written(result))
        self.assertRegex(result.stderr, "speed_against_error: left out: .*suspect")

    def test_never_draws_a_cold_step_beside_hot_ones(self):
        report = made_up_report(["cnn/b32_c3_s32"])
        for one in report["records"]:
            if one["harness"] == "throughput" and one["policy"] == "fp32":
                one["measurements"][0]["at"] = "cold"
        drawn = self.texts(report, "speed_against_error")
        self.assertNotIn("fp32", drawn)
        self.assertIn("bf16", drawn)
        for one in report["records"]:
            if one["harness"] == "throughput":
                one["measurements"][0]["at"] = "cold"
        result = self.draw(report)
        self.assertNotIn("speed_against_error.png", self.written(result))

    def test_shades_the_narrowest_format_that_the_report_names(self):
        def note(*left_out):
            report = made_up_report(["cnn/b32_c3_s32"])
            report["records"] = [one for one in report["records"] if one["policy"] not in left_out]
            return " ".join(self.texts(report, "gradient_range"))
        self.assertIn("low format of fp8 ", note())
        self.assertIn("low format of fp16 ", note("fp8"))
        self.assertIn("low format of bf16 ", note("fp8", "fp16", "amp-fp16", "apex-o2"))

    def test_survives_reports_with_only_nan(self):
        report = made_up_report(["cnn/b32_c3_s32"])
        for one in report["records"]:
            for found in one["measurements"]:
                found["value"] = "NaN"
            for curve in one["series"]:
                curve["y"] = ["NaN"] * len(curve["y"])
        result = self.draw(report)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("Traceback", result.stderr)

    def test_says_so_when_there_are_more_subjects_than_panels(self):
        report = made_up_report(["mlp/b64_i784_h512_o10"])
        for i in range(10):
            for one in json.loads(json.dumps(report["records"][:10])):
                one["subject"] = f"mlp/h{i}"
                one["id"] = one["id"].replace("mlp/b64_i784_h512_o10", f"mlp/h{i}")
                report["records"].append(one)
        result = self.draw(report)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"memory: shows \d+ of 11")

    def test_refuses_what_is_no_report_in_one_line(self):
        whole = json.dumps(made_up_report(["cnn/b32_c3_s32"]))
        wrong_type = made_up_report(["cnn/b32_c3_s32"])
        wrong_type["records"][0]["measurements"] = 3
        for broken in (whole[:len(whole) // 2], "", "[]", "{}", '{"schema": 2, "records": []}', json.dumps(wrong_type)):
            result = self.draw(broken)
            self.assertEqual(result.returncode, 2, broken[:60])
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            self.assertIn("report.json", result.stderr)

    def test_refuses_a_folder_it_cannot_write(self):
        path = self.folder / "report.json"
        path.write_text(json.dumps(made_up_report(["cnn/b32_c3_s32"])))
        result = subprocess.run([sys.executable, SCRIPTS / "charts.py", path, "-o", path / "charts"],
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, 2)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)


if __name__ == "__main__":
    unittest.main()
