#!/usr/bin/env python3
"""Tests of history_charts.py: a synthetic history is drawn, a broken one gives one clear line."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent
SCHEMA = SCRIPTS.parent / "reports" / "schema" / "history-1.schema.json"

try:
    import jsonschema
except ImportError:
    jsonschema = None
try:
    import matplotlib
except ImportError:
    matplotlib = None


def made_history(points=40, step_at=25):
    levels = [1.0 + 0.002 * (i % 3) + (0.08 if i >= step_at else 0) for i in range(points)]
    series = {"case": "mlp/b32/cpu/fp16/throughput", "metric": "time.step", "at": "hot", "machine": "bench-01",
              "better": "lower",
              "points": [{"started": f"2026-{1 + i // 28:02}-{1 + i % 28:02}T01:00:00Z", "build": f"b{i:010}",
                          "file": f"{i}.json", "ratio": level} for i, level in enumerate(levels)],
              "changes": [{"at": step_at, "before": 1.002, "after": 1.082, "p": 1e-30, "worse": True}]}
    still = dict(series, case="<i>$still$</i>" * 12, changes=[])
    return {"history": 1, "anchor": "57f0f4501b79", "reports": 80, "judgements": 0, "remarks": [],
            "series": [series, still]}


class WithoutMatplotlib(unittest.TestCase):
    def test_help_works_and_drawing_is_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "matplotlib.py").write_text("raise ImportError('hidden', name='matplotlib')")
            environment = dict(os.environ, PYTHONPATH=folder, PYTHONDONTWRITEBYTECODE="1")

            def run(script, *arguments):
                return subprocess.run([sys.executable, SCRIPTS / script, *arguments], cwd=folder, env=environment,
                                      capture_output=True, text=True)
            for script, option in (("history_charts.py", "--all"), ("charts.py", "--subject")):
                done = run(script, "--help")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn(option, done.stdout)
                done = run(script, "absent.json")
                self.assertEqual(done.returncode, 2)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn("no Python package matplotlib", done.stderr)


@unittest.skipUnless(matplotlib, "no Python package matplotlib (install python3-matplotlib)")
class HistoryCharts(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def draw(self, text, *arguments):
        (self.path / "history.json").write_text(text)
        return subprocess.run([sys.executable, SCRIPTS / "history_charts.py", "history.json", *arguments],
                              cwd=self.path, capture_output=True, text=True)

    def test_draws_what_changed(self):
        done = self.draw(json.dumps(made_history()), "-o", "h.svg")
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "h.svg"), done.stderr)
        self.assertGreater((self.path / "h.svg").stat().st_size, 5000)

    def test_draws_all(self):
        one, both = self.path / "one.png", self.path / "both.png"
        self.assertEqual(self.draw(json.dumps(made_history()), "-o", str(one)).returncode, 0)
        self.assertEqual(self.draw(json.dumps(made_history()), "--all", "-o", str(both)).returncode, 0)
        height = [int.from_bytes(file.read_bytes()[20:24], "big") for file in (one, both)]
        self.assertGreater(height[1], 1.5 * height[0])

    def test_says_when_nothing_changed(self):
        history = made_history()
        history["series"] = history["series"][1:]
        done = self.draw(json.dumps(history))
        self.assertEqual(done.returncode, 0)
        self.assertIn("no series changed", done.stderr)

    def test_refuses_what_is_no_history_in_one_line(self):
        history = made_history()
        history["series"][0]["points"][3]["ratio"] = 0
        late = made_history()
        late["series"][0]["changes"][0]["at"] = 40
        huge = []
        for place, key, value in (("points", "ratio", 1e308), ("points", "ratio", 10 ** 400), ("points", "ratio", 5e-324),
                                  ("changes", "before", "Infinity"), ("changes", "after", -1)):
            huge.append(made_history())
            huge[-1]["series"][0][place][0][key] = value
        for text in ("", "{", "[]", "{}", '{"history": 2}', '{"history": 1, "series": [{}]}', json.dumps(history),
                     json.dumps(late), *map(json.dumps, huge)):
            done = self.draw(text)
            self.assertEqual(done.returncode, 2, text[:60])
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertTrue(done.stderr.startswith("history.json: "), done.stderr)

    def test_draws_with_long_names_shortened(self):
        history = made_history()
        for key in ("case", "metric", "at", "machine"):
            history["series"][0][key] = key * 30_000
        for point in history["series"][0]["points"]:
            point["build"] = point["build"] * 10_000
        history["anchor"] = "a" * 100_000
        done = self.draw(json.dumps(history), "-o", "h.png")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        width, height = (int.from_bytes((self.path / "h.png").read_bytes()[at:at + 4], "big") for at in (16, 20))
        self.assertLess(height, 2 * width)

    def test_says_where_it_cannot_write(self):
        done = self.draw(json.dumps(made_history()), "-o", "none/h.png")
        self.assertEqual(done.returncode, 2)
        self.assertIn("none/h.png: cannot be written", done.stderr)


@unittest.skipUnless(jsonschema, "no Python package jsonschema (install python3-jsonschema)")
class HistorySchema(unittest.TestCase):
    def test_is_one_and_can_refuse(self):
        schema = json.loads(SCHEMA.read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        self.assertEqual(list(validator.iter_errors(made_history())), [])
        for spoil in (lambda h: h.update(history=2), lambda h: h["series"][0]["points"][0].update(ratio=0),
                      lambda h: h["series"][0]["changes"][0].pop("worse"), lambda h: h["series"][0].update(points=[])):
            spoiled = made_history()
            spoil(spoiled)
            self.assertNotEqual(list(validator.iter_errors(spoiled)), [])


if __name__ == "__main__":
    unittest.main()
