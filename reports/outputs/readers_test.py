#!/usr/bin/env python3
"""Reads every output with an independent reader. The files are those that OutputsTest left: readers_test.py FOLDER."""

import csv
import html.parser
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unicodedata
import unittest

FOLDER = None
SCHEMA = pathlib.Path(__file__).resolve().parent.parent / "schema" / "judgement-1.schema.json"
NAMES = ("sample", "hostile")
SKIPPED = {"INCONCLUSIVE", "SUSPECTED", "ENV_SUSPECT", "UNTRUSTED"}

try:
    import junitparser
except ImportError:
    junitparser = None
try:
    import jsonschema
except ImportError:
    jsonschema = None
try:
    import scipy
except ImportError:
    scipy = None

try:
    from prometheus_client.openmetrics import parser as openmetrics
except ImportError:
    openmetrics = None
try:
    import pyarrow.parquet
except ImportError:
    pyarrow = None

COMPARE = next((path for path in ("/usr/share/benchmark/compare.py", shutil.which("compare.py"))
                if path and os.path.isfile(path)), None)


def no_constant(name):
    raise ValueError(f"{name} is not JSON")


def read_json(name):
    return json.loads((FOLDER / name).read_bytes().decode("utf-8"), parse_constant=no_constant)


def without_forbidden(text):
    """XML 1.0 forbids most control characters; halfmark replaces all of them but line ends and tabs, and
        those that change the text direction, so that no output can control a terminal."""
    def shown(character):
        if character in "\t\n\r":
            return character
        if character in "\u2028\u2029":
            return " "
        turns = unicodedata.bidirectional(character) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        gone = unicodedata.category(character) == "Cc" or turns or character in "\u200e\u200f\u061c\ufffe\uffff"
        return "\ufffd" if gone else character
    return "".join(map(shown, text))


def on_one_line(text):
    text = re.sub("[\t\n\r\u2028\u2029]", " ", text)
    return re.sub("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", "\ufffd", text)


class Json(unittest.TestCase):
    @unittest.skipUnless(jsonschema, "no Python package jsonschema (install python3-jsonschema)")
    def test_fits_its_schema(self):
        schema = json.loads(SCHEMA.read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        for name in NAMES:
            judgement = read_json(f"{name}.json")
            self.assertEqual([error.message for error in validator.iter_errors(judgement)], [])
            # The schema must reject invalid files.
            for spoil in (lambda j: j.pop("verdict"), lambda j: j["cases"][0].update(base="nan"),
                          lambda j: j["cases"][0].update(verdict="FAIL"), lambda j: j.update(schema="gate/2"),
                          lambda j: j["counts"].pop("new"), lambda j: j.update(exit_code=4)):
                spoilt = json.loads(json.dumps(judgement))
                spoil(spoilt)
                self.assertFalse(validator.is_valid(spoilt))

    def test_counts_are_those_of_its_lines(self):
        for name in NAMES:
            judgement = read_json(f"{name}.json")
            lines = judgement["cases"]
            self.assertEqual(judgement["counts"]["lines"], len(lines))
            self.assertEqual(judgement["counts"]["cases"], len({line["case"] for line in lines}))
            for verdict in {line["verdict"] for line in lines}:
                self.assertEqual(judgement["counts"][verdict.lower()],
                                 sum(line["verdict"] == verdict for line in lines))


class Csv(unittest.TestCase):
    def test_python_reads_the_same_lines(self):
        for name in NAMES:
            with open(FOLDER / f"{name}.csv", encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file, strict=True))
            lines = read_json(f"{name}.json")["cases"]
            self.assertEqual(len(rows), len(lines))
            for row, line in zip(rows, lines):
                self.assertNotIn(None, row)  # a field too many
                self.assertNotIn(None, row.values())  # a field too few
                for key in ("case", "question", "verdict", "metric", "at", "unit", "words", "rerun"):
                    self.assertEqual(row[key], line[key])
                for key in ("base", "found", "limit"):
                    self.assertEqual(repr(float(row[key] or "nan")), repr(float(line[key])))

    def test_lines_end_as_the_rfc_says(self):
        self.assertTrue((FOLDER / "sample.csv").read_bytes().endswith(b"\r\n"))
        self.assertEqual((FOLDER / "sample.csv").read_bytes().count(b"\n"), (FOLDER / "sample.csv").read_bytes().count(b"\r\n"))


class JUnit(unittest.TestCase):
    def expected(self, name):
        """The expected element for each case and question, from the judgement as JSON."""
        suites = {"time": "perf", "bits": "accuracy"}
        worst = {}
        for line in read_json(f"{name}.json")["cases"]:  # worst first
            worst.setdefault((suites.get(line["question"], line["question"]), line["case"]), line["verdict"])
        return worst

    @unittest.skipUnless(shutil.which("xmllint"), "no xmllint (install libxml2-utils)")
    def test_is_well_formed(self):
        for name in NAMES:
            result = subprocess.run(["xmllint", "--noout", "--nonet", FOLDER / f"{name}.xml"], capture_output=True, text=True)
            self.assertEqual((result.returncode, result.stderr), (0, ""))

    @unittest.skipUnless(junitparser, "no Python package junitparser (install python3-junitparser)")
    def test_junitparser_finds_every_case_with_its_result(self):
        for name in NAMES:
            expected = {(suite, without_forbidden(case)): verdict for (suite, case), verdict in self.expected(name).items()}
            found = {}
            for suite in junitparser.JUnitXml.fromfile(str(FOLDER / f"{name}.xml")):
                cases = list(suite)
                self.assertEqual(suite.tests, len(cases))
                for case in cases:
                    self.assertNotIn((suite.name, case.name), found, "readers merge cases with the same name")
                    self.assertTrue(case.classname.startswith(f"{suite.name}."))
                    found[suite.name, case.name] = [type(result).__name__ for result in case.result]
                    for result in case.result:
                        self.assertTrue(result.message and result.text.strip())
            self.assertEqual(found.keys(), expected.keys())
            for key, verdict in expected.items():
                result = (["Failure"] if verdict in ("REGRESSION", "ACCURACY_FAIL", "REFERENCE_CHANGED") else
                          ["Error"] if verdict == "CASE_LOST" else ["Skipped"] if verdict in SKIPPED else [])
                self.assertEqual(found[key], result, (key, verdict))

    def test_gitlab_and_jenkins_find_the_fields_they_read(self):
        # docs.gitlab.com/ci/testing/unit_test_reports: testcase name, classname, and the content of failure, error,
        # skipped, system-out. plugins.jenkins.io/junit: the same, message and type.
        import xml.etree.ElementTree
        for name in NAMES:
            root = xml.etree.ElementTree.parse(FOLDER / f"{name}.xml").getroot()
            self.assertEqual(root.tag, "testsuites")
            for case in root.iter("testcase"):
                self.assertTrue(case.get("name") and case.get("classname"))
                for result in case:
                    self.assertIn(result.tag, ("failure", "error", "skipped", "system-out"))
                    self.assertTrue(result.text.strip())
                    self.assertTrue(result.tag == "system-out" or result.get("message"))


class Cells(html.parser.HTMLParser):
    """The tables, list items and headings of a page as a browser would show them."""

    def __init__(self, page):
        super().__init__()
        self.rows, self.items, self.tags = [], [], []
        self.target = None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.target = self.rows[-1]
        if tag == "li":
            self.items.append("")
            self.target = self.items
        if tag == "br" and self.target:
            self.target[-1] += "\n"

    def handle_endtag(self, tag):
        if tag in ("td", "th", "li"):
            self.target = None

    def handle_data(self, data):
        if self.target:
            self.target[-1] += data


@unittest.skipUnless(shutil.which("cmark-gfm"), "no cmark-gfm, GitHub's own renderer (install cmark-gfm)")
class Markdown(unittest.TestCase):
    def page(self, name):
        result = subprocess.run(["cmark-gfm", "--unsafe", "-e", "table", "-e", "autolink", "-e", "strikethrough", "-e", "tagfilter",
                                 FOLDER / f"{name}.md"], capture_output=True, check=True)
        return Cells(result.stdout.decode("utf-8"))

    def test_every_row_has_its_cells(self):
        for name in NAMES:
            page = self.page(name)
            self.assertGreater(len(page.rows), 5)
            for row in page.rows:
                self.assertIn(len(row), (2, 7), row)

    def test_names_are_shown_as_they_are_written(self):
        for name in NAMES:
            shown = {row[1] for row in self.page(name).rows if len(row) == 7}
            for line in read_json(f"{name}.json")["cases"]:
                if line["verdict"] != "PASS" and len(line["case"]) <= 600:
                    self.assertIn(on_one_line(line["case"]).strip(), {cell.strip() for cell in shown})

    def test_command_lines_can_be_copied(self):
        cells = [row[6] for row in self.page("hostile").rows if len(row) == 7]
        broken = [line for line in read_json("hostile.json")["cases"]
                  if line["verdict"] in ("ACCURACY_FAIL", "CASE_LOST") and len(line["rerun"]) < 4000]
        self.assertGreater(len(broken), 2)
        for line in broken:
            self.assertTrue(any(cell.endswith("reproduce: " + on_one_line(line["rerun"])) for cell in cells), line["rerun"])

    def test_nothing_in_a_name_becomes_markup(self):
        tags = set(self.page("hostile").tags)
        self.assertLessEqual(tags, {"p", "strong", "code", "table", "thead", "tbody", "tr", "th", "td", "br", "ul", "li",
                                    "details", "summary"})

    def test_nobody_is_mentioned(self):
        # GitHub looks for @name in the rendered text, outside of code.
        result = subprocess.run(["cmark-gfm", "--unsafe", "-e", "table", FOLDER / "hostile.md"], capture_output=True, check=True)
        text = re.sub(r"<code>.*?</code>", "", result.stdout.decode("utf-8"), flags=re.S)
        self.assertIn("someone", text)
        self.assertIsNone(re.search(r"@[a-z0-9]", text))

    def test_what_is_folded_can_be_unfolded(self):
        for name in NAMES:
            tags = self.page(name).tags
            self.assertGreater(tags.count("details"), 0)
            self.assertEqual(tags.count("details"), tags.count("summary"))


class Annotations(unittest.TestCase):
    """As the runner parses them: docs.github.com/actions, "Workflow commands", and actions/runner ActionCommand.cs."""

    def parsed(self, line):
        match = re.fullmatch(r"::(error|warning|notice) ([^:]*)::(.*)", line)
        self.assertIsNotNone(match, line)
        back = lambda text, codes: re.sub("|".join(codes), lambda found: chr(int(found[0][1:], 16)), text)
        properties = dict(part.split("=", 1) for part in match[2].split(","))
        properties = {key: back(value, ("%0D", "%0A", "%3A", "%2C", "%25")) for key, value in properties.items()}
        return match[1], properties, back(match[3], ("%0D", "%0A", "%25"))

    def test_are_read_back(self):
        for name in NAMES:
            lines = (FOLDER / f"{name}.annotations").read_bytes().decode("utf-8").split("\n")
            self.assertEqual(lines.pop(), "")
            self.assertLessEqual(len(lines), 5)
            cases = [line for line in read_json(f"{name}.json")["cases"]]
            for line, case in zip(lines[:4], cases):
                level, properties, message = self.parsed(line)
                self.assertEqual(level, "error" if case["verdict"] in ("REGRESSION", "ACCURACY_FAIL", "CASE_LOST") else "warning")
                self.assertEqual(properties, {"title": f"halfmark {case['verdict']}"})
                if len(case["case"]) < 500:
                    self.assertTrue(message.startswith(f"{on_one_line(case['case'])}, {case['question']}\n"), message)
                    self.assertIn("\nreproduce: ", message)


class GoogleBenchmark(unittest.TestCase):
    FILES = ("before_gbench.json", "sample_gbench.json", "hostile_gbench.json", "sample_export.gbench")

    def test_github_action_benchmark_finds_its_fields(self):
        # benchmark-action/github-action-benchmark, src/extract.ts, extractGoogleCppResult: it reads every row.
        for name in self.FILES:
            rows = read_json(name)["benchmarks"]
            self.assertGreater(len(rows), 2)
            for row in rows:
                value = row["real_time"]
                self.assertTrue(isinstance(value, float) and math.isfinite(value) and value > 0)
                self.assertEqual(row["time_unit"] + "/iter", "ns/iter")
                self.assertTrue(row["name"] and row["iterations"] >= 1 and row["threads"] == 1)
                self.assertTrue(math.isfinite(row["cpu_time"]))
            names = [row["name"] for row in rows]
            self.assertEqual(len(names), len(set(names)), "rows with the same name would be one point of the history")

    def test_bencher_finds_its_fields(self):
        # bencherdev/bencher, lib/bencher_adapter/src/adapters/cpp/google.rs: requires context.caches, and in every row name,
        # real_time and time_unit; one row without them makes the file unreadable. Names have 1024 bytes at most.
        for name in self.FILES:
            report = read_json(name)
            self.assertIsInstance(report["context"]["caches"], list)
            for row in report["benchmarks"]:
                self.assertTrue(0 < len(row["name"].encode()) <= 1024)
                self.assertIsInstance(row["real_time"], float)
                self.assertIn(row["time_unit"], ("ns", "us", "ms", "s"))

    def test_github_action_benchmark_reads_the_plain_list(self):
        # src/extract.ts, extractCustomBenchmarkResult: name, value, unit.
        for name in ("sample_smaller.json", "hostile_smaller.json"):
            rows = read_json(name)
            self.assertGreater(len(rows), 0)
            for row in rows:
                self.assertTrue(row["name"] and row["unit"])
                self.assertTrue(isinstance(row["value"], (int, float)) and math.isfinite(row["value"]))

    @unittest.skipUnless(COMPARE, "no compare.py (install libbenchmark-tools)")
    @unittest.skipUnless(scipy, "no Python package scipy (install python3-scipy)")
    def test_compare_py_sees_what_became_slower(self):
        result = subprocess.run([sys.executable, COMPARE, "--no-color", "benchmarks", FOLDER / self.FILES[0], FOLDER / self.FILES[1]],
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = [line.split() for line in result.stdout.splitlines() if line.startswith("mlp/")]
        self.assertEqual(len(rows), 3, result.stdout)
        for row in rows:
            self.assertEqual(row[1], "+0.2500", result.stdout)


def is_misleading(record, measurement):
    return record["status"] == "suspect" and measurement["kind"] == "sampled"


def is_measured(record):
    return record["status"] in ("ok", "suspect")


def number(value):
    return float("nan") if value is None or value == "" else float(value)


class Exports(unittest.TestCase):
    """`halfmark export`: compares the saved report with each exported format."""

    def measurements(self, name):
        for record in read_json(f"{name}_report.json")["records"]:
            for measurement in record["measurements"]:
                yield record, measurement

    def expect_rows(self, name, rows):
        expected = list(self.measurements(name))
        self.assertEqual(len(rows), len(expected))
        for row, (record, measurement) in zip(rows, expected):
            for key in ("id", "subject", "device", "policy", "harness", "status"):
                self.assertEqual(row[key], record[key])
            for key in ("metric", "at", "unit", "better", "kind"):
                self.assertEqual(row[key], measurement[key])
            self.assertEqual(row["value"] in ("", None), is_misleading(record, measurement), row)
            value = "nan" if is_misleading(record, measurement) else measurement["value"]
            self.assertEqual(repr(number(row["value"])), repr(float(value)))
            self.assertEqual(int(row["samples"]), len(measurement.get("samples", [])))

    def test_csv_has_the_measurements_of_the_report(self):
        for name in NAMES:
            with open(FOLDER / f"{name}_export.csv", encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file, strict=True))
            self.assertFalse(any(None in row or None in row.values() for row in rows))
            self.expect_rows(name, rows)

    @unittest.skipUnless(pyarrow, "no Python package pyarrow (install it with pip: Debian has none)")
    def test_parquet_has_the_measurements_of_the_report(self):
        script = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "export_parquet.py"
        for name in NAMES:
            written = FOLDER / f"{name}_export.parquet"
            with open(FOLDER / f"{name}_export.csv", "rb") as source:
                subprocess.run([sys.executable, script, "-o", written], stdin=source, check=True)
            table = pyarrow.parquet.read_table(written)
            self.assertEqual(str(table.schema.field("value").type), "double")
            self.expect_rows(name, table.to_pylist())

    @unittest.skipUnless(jsonschema, "no Python package jsonschema (install python3-jsonschema)")
    def test_bmf_fits_what_bencher_documents(self):
        # bencher.dev/docs/reference/bencher-metric-format: the schema, and the longest names.
        metric = {"type": "object", "required": ["value"], "additionalProperties": False,
                  "properties": {key: {"type": "number"} for key in ("value", "lower_value", "upper_value")}}
        schema = {"type": "object", "propertyNames": {"minLength": 1, "maxLength": 1024}, "additionalProperties": {
            "type": "object", "minProperties": 1, "additionalProperties": metric,
            "propertyNames": {"pattern": "^[0-9a-z]+(-[0-9a-z]+)*$", "maxLength": 64}}}
        validator = jsonschema.Draft7Validator(schema)
        for name in NAMES:
            benchmarks = read_json(f"{name}_export.bmf")
            self.assertEqual([error.message for error in validator.iter_errors(benchmarks)], [])
        benchmarks = read_json("sample_export.bmf")
        expected = [(record, one) for record, one in self.measurements("sample")
                    if is_measured(record) and one["kind"] != "information" and not is_misleading(record, one)
                    and math.isfinite(float(one["value"]))]
        self.assertGreater(len(expected), 3)
        self.assertEqual(sum(map(len, benchmarks.values())), len(expected))
        for record, one in expected:
            found = benchmarks[f"{record['id']} at {one['at']}"][one["metric"].replace(".", "-")]
            self.assertEqual(found["value"], one["value"])

    @unittest.skipUnless(openmetrics, "no Python package prometheus_client (install python3-prometheus-client)")
    def test_prometheus_reads_the_same_samples(self):
        for name in NAMES:
            text = (FOLDER / f"{name}_export.openmetrics").read_bytes().decode("utf-8")
            samples, units = {}, {}
            for family in openmetrics.text_string_to_metric_families(text):
                units[family.name] = family.unit
                for sample in family.samples:
                    key = (sample.name, sample.labels["id"], sample.labels.get("at"))
                    self.assertNotIn(key, samples)
                    samples[key] = sample
            for record, one in self.measurements(name):
                if not is_measured(record):
                    continue
                found = [sample for (metric, case, at), sample in samples.items()
                         if case == record["id"] and at == one["at"] and metric.startswith(
                             "halfmark_" + one["metric"].replace(".", "_"))]
                self.assertEqual(len(found), 0 if is_misleading(record, one) else 1, (record["id"], one))
                for sample in found:
                    self.assertEqual(repr(float(sample.value)), repr(float(one["value"])))
                    self.assertEqual(sample.labels["policy"], record["policy"])
                    unit = units[sample.name]
                    self.assertEqual(unit, {"s": "seconds", "B": "bytes", "1": ""}[one["unit"]])
            for record in read_json(f"{name}_report.json")["records"]:
                self.assertEqual(samples["halfmark_record_info", record["id"], None].labels["status"], record["status"])

    @unittest.skipUnless(junitparser, "no Python package junitparser (install python3-junitparser)")
    def test_junitparser_finds_every_record_with_its_status(self):
        for name in NAMES:
            expected = {(record["harness"], without_forbidden(record["id"])): record["status"]
                        for record in read_json(f"{name}_report.json")["records"]}
            found = {}
            for suite in junitparser.JUnitXml.fromfile(str(FOLDER / f"{name}_export.junit")):
                cases = list(suite)
                self.assertEqual(suite.tests, len(cases))
                for case in cases:
                    found[suite.name, case.name] = [type(result).__name__ for result in case.result]
            self.assertEqual(found.keys(), expected.keys())
            for key, status in expected.items():
                self.assertEqual(found[key], {"failed": ["Failure"], "skipped": ["Skipped"]}.get(status, []))


if __name__ == "__main__":
    FOLDER = pathlib.Path(sys.argv.pop(1))
    unittest.main()
