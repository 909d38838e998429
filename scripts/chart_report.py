"""Reports as the charts see them: reading and checking, values with their intervals, provenance, the order of subjects."""

import hashlib
import json
import math
import pathlib
import re
import sys
from dataclasses import dataclass

NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
HOT = ["hot", ""]  # `at` of a time with warm caches; cold times are not drawn
MEDIAN_INTERVAL, PROCESSES, RANGE, SINGLE, IN_TURN = "interval", "processes", "range", "single", "in turn"
DEVICE_NAMES = ("name", "gpu", "processor")  # keys of environment.devices.<device>; the first one present is used


LARGEST = 1e100  # products and powers of larger numbers overflow; no chart has such an axis
LONGEST = 200    # characters of a name


class BadReport(Exception):
    """The file is not a report; the message is one line."""


class LeftOut(Exception):
    """No report has what this chart needs; the message says what is missing."""


@dataclass
class Value:
    """A number with its interval; low and high equal the value if the report has no interval."""
    value: float
    low: float
    high: float
    samples: int
    interval: str  # MEDIAN_INTERVAL, RANGE of the samples, PROCESSES (range of their medians), IN_TURN (of a ratio) or SINGLE


@dataclass(frozen=True)
class Panel:
    """What one panel shows: the settings are axes of the harness, "momentum=0.1"."""
    subject: str
    source: int
    settings: str = ""

    @property
    def row(self):
        return self.subject, self.settings


def human_bytes(largest):
    return next(((2 ** power, name) for power, name in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB"))
                 if largest >= 2 ** power), (1, "B"))


def short(name):
    """A long name keeps its ends; a hash keeps names apart that differ only in the middle."""
    name = str(name)
    if len(name) <= LONGEST:
        return name
    mark = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:12]
    return f"{name[:LONGEST // 2 - 12]} .. {name[-(LONGEST // 2 - 12):]}#{mark}"


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise BadReport(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BadReport(f"{path}: is not valid JSON: {error}; is this a file of halfmark?") from None


def ending(draw, target):
    """Runs the drawing and returns its exit code (0 if it gives none); 2, with one line on standard error, if a file is wrong or cannot be written."""
    try:
        return draw() or 0
    except (BadReport, LeftOut) as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error.filename or target}: cannot be written: {error.strerror}", file=sys.stderr)
        return 2


def read_report(path):
    """The report as a tree, every number a float, every record with axes, measurements and series."""
    def bad(what):
        raise BadReport(f"{path}: {what}; is this a halfmark report?")

    def number(value, place):
        if isinstance(value, str) and value in NUMBERS:
            return NUMBERS[value]
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            bad(f"{place}: expected a number")
        if LARGEST < abs(value):
            replaced.append(place)
            return math.inf if value > 0 else -math.inf
        if 0 < abs(value) < 1 / LARGEST:
            replaced.append(place)
            return 0.0
        return float(value)

    def numbers(one, key, place):
        if not isinstance(one.get(key), list):
            bad(f"{place}: {one['metric']}.{key}: expected a list")
        return [number(value, f"{place}: {one['metric']}.{key}") for value in one[key]]

    def listed(record, key, place):
        values = record.get(key, [])
        if not isinstance(values, list) or not all(isinstance(one, dict) for one in values):
            bad(f"{place}.{key}: expected a list of objects")
        return values

    replaced = []
    report = read_json(path)
    if not isinstance(report, dict) or "schema" not in report:
        bad("\"schema\" is missing")
    if report["schema"] != 1:
        raise BadReport(f"{path}: is a report of schema {report['schema']}, this script reads schema 1")
    if not isinstance(report.get("records"), list):
        bad("records: expected a list")
    for index, record in enumerate(report["records"]):
        place = f"records[{index}]"
        if not isinstance(record, dict):
            bad(f"{place}: expected an object")
        for key in ("subject", "device", "policy", "status"):
            if not isinstance(record.get(key), str):
                bad(f"{place}.{key}: expected text")
            record[key] = short(record[key])
        if not isinstance(record.setdefault("axes", {}), dict):
            bad(f"{place}.axes: expected an object")
        record["axes"] = {short(key): short(value) for key, value in record["axes"].items()}
        record["measurements"] = listed(record, "measurements", place)
        record["series"] = listed(record, "series", place)
        for one in record["measurements"] + record["series"]:
            if not isinstance(one.get("metric"), str) or not isinstance(one.setdefault("at", ""), str):
                bad(f"{place}: a measurement or series without a metric")
            one["at"] = short(one["at"])
        for one in record["measurements"]:
            one["value"] = number(one.get("value"), f"{place}: {one['metric']}")
            one["samples"] = numbers(one, "samples", place) if "samples" in one else []
            if "standard_error" in one:
                one["standard_error"] = number(one["standard_error"], f"{place}: {one['metric']}.standard_error")
            one["interval"] = numbers(one, "interval", place) if "interval" in one else None
            if one["interval"] is not None and (len(one["interval"]) != 2 or not one["interval"][0] <= one["interval"][1]):
                bad(f"{place}: {one['metric']}.interval: expected two numbers, the smaller one first")
        for one in record["series"]:
            one["x"], one["y"] = numbers(one, "x", place), numbers(one, "y", place)
            if len(one["x"]) != len(one["y"]):
                bad(f"{place}: {one['metric']}: x and y differ in length")
    if replaced:
        print(f"{path}: numbers beyond 1e100 are drawn as infinite, below 1e-100 as 0: {short(replaced[0])}"
              f"{f' and {len(replaced) - 1} more' if len(replaced) > 1 else ''}", file=sys.stderr)
    return report


def branch(tree, *keys):
    """The value at the path of keys, {} if there is none: the layout of the environment is not fixed."""
    for key in keys:
        tree = tree.get(key, {}) if isinstance(tree, dict) else {}
    return tree


class Source:
    """The records of one device of one report, by subject and policy, and where they come from."""

    def __init__(self, path, report, device, records):
        self.file, self.device, self.letter = short(pathlib.Path(path).name), device, ""
        self.records = {}
        for record in records:
            self.records.setdefault(record["subject"], {}).setdefault(record["policy"], []).append(record)
        environment, run = report.get("environment"), report.get("run")
        device_facts = branch(environment, "devices", device)
        self.product = next((short(device_facts[key]) for key in DEVICE_NAMES if branch(device_facts, key)), "")
        if not self.product and device == "cpu":
            self.product = short(branch(environment, "cpu", "model") or "")
        # The software GPU of the tests has the name of a GPU, cuda:0; its records say what it is.
        numerics = next((short(record["numerics"]) for record in records if record.get("numerics")), "")
        self.is_substitute = device.startswith("cuda:") and bool(numerics)
        if self.is_substitute:
            self.product = f"not a GPU, {numerics}"
        self.machine = short(branch(environment, "machine") or "unknown")
        self.git = short(branch(environment, "halfmark", "git") or "unknown")
        self.version = short(branch(environment, "halfmark", "version") or "")
        self.started = short(branch(run, "started") or "unknown")
        self.suite = short(branch(run, "suite") or "unknown")
        self.complete = branch(run, "complete") is not False

    def title(self):
        device = f"{self.device} (not a GPU)" if self.is_substitute else self.device
        return f"{self.letter}: {device}, {self.machine}, git {self.git}"

    def provenance(self):
        """The origin of the numbers in one line."""
        name = f"{self.letter}: " if self.letter else ""
        device = f"{self.device} ({self.product})" if self.product else self.device
        return (f"{name}{self.file}, halfmark {self.version + ' ' if self.version else ''}git {self.git}, device {device}, machine "
                f"{self.machine}, suite {self.suite}, started {self.started}{'' if self.complete else ', incomplete report'}.")

    def policies(self, subject):
        return list(self.records.get(subject, {}))

    def measured(self, subject, policy):
        """The records that hold measurements."""
        return [record for record in self.records.get(subject, {}).get(policy, [])
                if record["status"] in ("ok", "suspect")]

    def value(self, subject, policy, metric, places, worst, status=None):
        """The worst Value over records and places (None: all places). NaN counts as the worst; None if there is no value."""
        found = [(one, record) for record in self.measured(subject, policy) if status in (None, record["status"])
                 for one in record["measurements"]
                 if one["metric"] == metric and (places is None or one["at"] in places)]
        if metric.startswith("time."):
            found = [(one, record) for one, record in found if 0 < one["value"] < math.inf]
        if metric.startswith("speedup."):  # without an interval it says nothing
            found = [(one, record) for one, record in found
                     if one["interval"] and 0 < one["interval"][0] and one["interval"][1] < math.inf]
        if not found:
            return None
        undefined = [pair for pair in found if math.isnan(pair[0]["value"])]
        one, record = undefined[0] if undefined else worst(found, key=lambda pair: pair[0]["value"])
        return with_interval(one, record)

    def number(self, subject, policy, metric, places=None, worst=max):
        found = self.value(subject, policy, metric, places, worst)
        return None if found is None else found.value

    def curves(self, subject, policy, metric, at):
        return [(one["x"], one["y"]) for record in self.measured(subject, policy)
                for one in record["series"] if one["metric"] == metric and at(one["at"])]

    def work(self, subject):
        """(floating point operations of a step, peak bytes), 0 if unknown. The operations are rate times time, a count that is
    valid even if the time is suspect."""
        counts, sizes = [0], [0]
        for policy in self.policies(subject):
            seconds = self.number(subject, policy, "time.step", HOT, min)
            rate = self.number(subject, policy, "throughput.flops", HOT)
            size = self.number(subject, policy, "memory.tensors", ["train", ""]) or self.number(subject, policy, "memory.peak", ["train", ""])
            counts += [rate * seconds] if rate and seconds and math.isfinite(rate * seconds) else []
            sizes += [size] if size and math.isfinite(size) else []
        # Rounded, because the product of two measured numbers differs in its last bits from run to run.
        return float(f"{max(counts):.2g}"), max(sizes)


def with_interval(one, record):
    value, samples = one["value"], [sample for sample in one["samples"] if math.isfinite(sample)]
    if one["metric"].startswith("speedup."):
        low, high = one["interval"]
        return Value(value, low, high, len(samples), IN_TURN)
    if one["metric"] == "time.step":
        medians = next((more["samples"] for more in record["measurements"] if more["metric"] == "time.process"
                        and more["at"] == (one["at"] or "hot")), [])
        if len(medians) > 1:
            return Value(value, min(value, *medians), max(value, *medians), len(medians), PROCESSES)
        half_width = next((width["value"] for width in record["measurements"] if width["metric"] == "timing.half_width"
                           and width["at"] == f"{one['at'] or 'hot'}/step"), math.nan)
        if math.isfinite(half_width):
            return Value(value, value * (1 - half_width), value * (1 + half_width), len(samples), MEDIAN_INTERVAL)
    if len(samples) > 1 and math.isfinite(value):
        return Value(value, min(value, *samples), max(value, *samples), len(samples), RANGE)
    return Value(value, value, value, len(samples) or 1, SINGLE)


def name_size(subject):
    """The product of the numbers in a name (mlp/b32_i64): a rough size for subjects without a measurement."""
    return math.prod(int(digits) or 1 for digits in re.findall(r"\d+", subject.rpartition("/")[2])[:12])


class Reports:
    """All sources of a figure, and the subjects with the largest first."""

    def __init__(self, paths, subject_matches, device_matches, policy_matches=lambda policy: True):
        self.sources = []
        for path in paths:
            report, devices = read_report(path), {}
            for record in report["records"]:
                if subject_matches(record["subject"]) and device_matches(record["device"]) and policy_matches(record["policy"]):
                    devices.setdefault(record["device"], []).append(record)
            if not devices:
                raise BadReport(f"{path}: has no subject, device and policy that match")
            self.sources += [Source(path, report, device, records) for device, records in devices.items()]
        if len(self.sources) > 1:
            for index, source in enumerate(self.sources):
                source.letter = chr(ord("A") + index % 26)
        subjects = dict.fromkeys(subject for source in self.sources for subject in source.records)
        self.subjects = sorted(subjects, key=lambda subject: [-max(one) for one in zip(
            *(source.work(subject) for source in self.sources))] + [-name_size(subject)])

    def pairs(self):
        """(subject, index of the source, source), in the order in which they are drawn."""
        return [(subject, index, source) for subject in self.subjects for index, source in enumerate(self.sources)
                if subject in source.records]
