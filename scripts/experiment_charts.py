#!/usr/bin/env python3
"""Draws the experiments of reports: numbers lost by the loss scale, errors of statistics and sums, lost updates, bits, layers.

Reads only the JSON reports. Prints the names of the files written. A chart is drawn if a report holds its experiment.
"""

import argparse
import fnmatch
import math
import pathlib
import sys
from dataclasses import dataclass

from chart_report import LeftOut, Panel, Reports, ending

MISSING = ""  # the Python package that cannot be imported; --help works without it
try:
    import matplotlib  # noqa: F401: imported here, so that one line reports a missing package
    import numpy as np
    from matplotlib.lines import Line2D
except ImportError as error:
    MISSING = error.name
else:
    from chart_curves import settings_of
    from chart_parts import (GRID, INK, SMALL, Sheet, every, line_of, power_ticks, round_ticks, set_defaults, set_ticks, step_of,
                             style, width_of, wrapped, write)

FORMATS = ("png", "svg", "pdf")
AXES = (2.55, 2.0)     # inches
MOST_ROWS = 30         # of a panel of layers or formats
MOST_CURVES = 14       # of a panel
NOT_FINITE = "not finite"
EXAMPLES = """examples:
  experiment_charts.py report.json                          all experiments of a report, into the folder charts
  experiment_charts.py report.json --chart underflow,mantissa
  experiment_charts.py report.json --subject 'mlp/*' --policy 'amp-*' --format png,svg

halfmark run --suite experiments makes such a report. With several reports, or several devices in a report, each is a column
A, B, ..., named in the caption.

Exit codes: 0 drawn; 2 a file is not a report, the folder cannot be written, or matplotlib is missing; 3 the reports hold no
experiment that has a chart."""


@dataclass(frozen=True)
class Curves:
    """A chart of curves: one of each policy in a panel of the subject, or one of each place in a panel of subject and policy."""
    name: str
    title: str
    metric: str
    x: str
    y: str
    by: str = "policy"  # or "at"
    x_base: int = 0     # of a logarithmic axis; 0: linear
    y_base: int = 0
    theory: str = ""    # a metric over the same x at the same places, drawn grey
    note: str = ""


@dataclass(frozen=True)
class Rows:
    """A chart of numbers: a row for each place, a marker for each policy. `split`: the part of the place before the slash is
    that of the panel."""
    name: str
    title: str
    metrics: tuple  # of (metric, name before the place)
    x: str
    x_base: int = 10
    split: bool = False
    note: str = ""


CHARTS = (
    Curves("underflow", "Share of log-normal numbers that a cast makes 0", "underflow.zero", "log2 of the loss scale", "share that is 0",
           by="at", theory="underflow.expected_zero", note="Each curve is a median of the numbers. Grey: from the normal distribution."),
    Curves("overflow", "Largest value of a training", "overflow.largest", "training step", "largest |value|", y_base=2),
    Curves("batchnorm_statistics", "Error of the variance of a batch by its arithmetic", "batchnorm_statistics.variance_error",
           "mean / standard deviation", "relative error", by="at", x_base=10, y_base=10),
    Curves("row_statistics", "Safe region of the sum of squares of a row: the largest standard deviation",
           "row_statistics.safe_to", "width of the row", "standard deviation", by="at", x_base=2, y_base=2),
    Curves("reduction", "Error of a loss over many terms", "reduction.error", "terms", "relative error", by="at", x_base=10, y_base=10),
    Curves("all_reduce", "Error of the mean gradient of many ranks", "all_reduce.error", "ranks", "relative error", by="at", x_base=2,
           y_base=10),
    Curves("updates", "Updates that change no bit, by the learning rate", "updates.noop", "learning rate", "share of the updates",
           x_base=10),
    Curves("loss_scale", "Loss after a training, by the loss scale", "loss_scale.loss", "log2 of the loss scale", "loss"),
    Curves("mantissa", "Error by the number of fraction bits", "mantissa.error", "fraction bits", "relative error", by="at", y_base=10),
    Curves("mantissa_training", "Held-out loss less that of fp32, trained with few fraction bits", "mantissa.trained_gap",
           "fraction bits", "loss gap", by="at"),
    Curves("evaluation", "Error of the logits of each form of evaluation", "evaluation.logit_error_rms", "training step",
           "error / logits", by="at", y_base=10),
    Curves("evaluation_memory", "Peak of memory of an evaluation", "evaluation.peak_bytes", "batches", "bytes", by="at", x_base=2,
           y_base=2),
    Curves("batch_invariance", "Largest difference of a sample's output in a batch to that alone", "invariance.batch_difference",
           "batch", "difference / outputs", x_base=2, y_base=10),
    Curves("capacity", "Memory of a training step as a share of that under fp32, predicted", "capacity.bytes_ratio", "batch",
           "share of fp32", x_base=2),
    Rows("sensitivity", "Error of the output with one layer alone in half", (("sensitivity.half_alone", ""),), "relative error"),
    Rows("what_if", "Error of the tensors of a training if they had another format", (("what_if.nmse", ""),), "nmse", split=True),
    Rows("checkpointing", "Memory of a training step with and without recomputation",
         (("checkpointing.saved_bytes", "kept, "), ("checkpointing.peak_bytes", "peak, ")), "bytes", x_base=2),
)


def limits(numbers, base):
    """Ends of an axis with a margin. `numbers` are finite, and positive if the axis has a base."""
    low, high = min(numbers), max(numbers)
    if base:
        margin = max(high / low, base) ** 0.08
        return low / margin, high * margin
    margin = 0.06 * (high - low) or 0.06 * abs(high) or 1
    return low - margin, high + margin


def drawable(values, base):
    return [value for value in values if math.isfinite(value) and (value > 0 or not base)]


def scale(axis, low, high, base, length, vertical):
    """The ticks of an axis whose limits are set."""
    if not base:
        step = step_of(high - low, 5, [10.0 ** power * part for power in range(-12, 12) for part in (1, 2, 5)])
        ticks = [step * count for count in range(math.ceil(low / step), math.floor(high / step) + 1)]
        return set_ticks(axis, (ticks, [f"{tick:.4g}" for tick in ticks]))
    ticks = power_ticks(low, high, length, base)
    if len(ticks[0]) < 2:
        ticks = round_ticks(low, high, length, "{:.3g}".format, vertical=vertical)
    return set_ticks(axis, ticks)


def at_edges(values, low, high, base):
    """The values where they are drawn: what is not finite at the upper edge, what a logarithm does not have at the lower one."""
    return [high if not math.isfinite(value) else max(value, low) if base else value for value in values]


# Curves

def curves_of(reports, chart, policy_matches):
    """{panel: {name: (x, y, theory or None)}}."""
    found = {}
    for subject, index, source in reports.pairs():
        for policy in filter(policy_matches, source.policies(subject)):
            for record in source.measured(subject, policy):
                theory = {one["at"]: one["y"] for one in record["series"] if one["metric"] == chart.theory}
                for one in record["series"]:
                    if one["metric"] != chart.metric or len(one["x"]) < 2:
                        continue
                    settings = [settings_of(record)] + ([policy] if chart.by == "at" else [one["at"]])
                    panel = Panel(subject, index, ", ".join(filter(None, settings)))
                    points = sorted(zip(one["x"], one["y"], theory.get(one["at"], [math.nan] * len(one["x"]))))
                    points = [point for point in points if math.isfinite(point[0]) and (point[0] > 0 or not chart.x_base)]
                    if len(points) > 1:
                        name = policy if chart.by == "policy" else one["at"] or chart.metric
                        found.setdefault(panel, {})[name] = tuple(np.array(part, float) for part in zip(*points))
    return found


def draw_curves(reports, chart, policy_matches):
    found = curves_of(reports, chart, policy_matches)
    if not found:
        raise LeftOut(f"no record has the curve {chart.metric}")
    sheet = Sheet(chart.name, chart.title, list(found), reports.sources, AXES)
    for panel in sheet.panels:
        peers = [curve for other in sheet.panels if other.subject == panel.subject for curve in found[other].values()]
        xs = [x for curve in peers for x in curve[0]]
        ys = drawable([y for curve in peers for part in curve[1:] for y in part], chart.y_base)
        y_base = chart.y_base if ys else None  # without a positive number a logarithmic axis would show numbers that no curve has
        x_limits, y_limits = limits(xs, chart.x_base), limits(ys, y_base) if ys else (0, 1)
        axes = sheet.axes[panel]
        for axis, base in (("x", chart.x_base), ("y", y_base)):
            if base:
                getattr(axes, f"set_{axis}scale")("log", base=base)
        axes.set(xlim=x_limits, ylim=y_limits)
        shown = dict(list(found[panel].items())[:MOST_CURVES])
        if len(shown) < len(found[panel]):
            sheet.head(panel, f"{len(shown)} of {len(found[panel])} curves")
        for order, (name, (x, y, theory)) in enumerate(shown.items()):
            colour, marker, dash = style(name)
            places = np.array(at_edges(y, *y_limits, y_base))
            axes.plot(x, places, color=colour, ls=dash, lw=1.2, marker=marker, ms=3.4, label=name, clip_on=False,
                      markevery=every(order, len(shown), x / x[0] if chart.x_base else x, bool(chart.x_base)))
            if (lost := ~np.isfinite(y)).any():
                axes.plot(x[lost], places[lost], "x", color=colour, ms=6, mew=1.3, clip_on=False, zorder=5)
                sheet.legend[NOT_FINITE] = Line2D([], [], ls="", marker="x", ms=6, mew=1.3, color=INK)
            if np.isfinite(theory).any():
                axes.plot(x, theory, color="#8C8C8C", lw=2.4, label=f"_{name} in theory", zorder=1)
            sheet.legend.setdefault(name, line_of(name))
        scale(axes.xaxis, *x_limits, chart.x_base, AXES[0], False)
        scale(axes.yaxis, *y_limits, y_base, AXES[1], True)
        axes.grid(True, axis="y", color=GRID, lw=0.6)
        axes.set_axisbelow(True)
        axes.set_xlabel(f"{chart.x} ({'log' if chart.x_base else 'linear'})", labelpad=1.5)
        axes.set_ylabel(f"{chart.y} ({'log' if y_base else 'linear'})")
    if chart.y_base and any((curve[1] <= 0).any() for panel in sheet.panels for curve in found[panel].values()):
        sheet.note("0 is drawn at the lower edge.")
    sheet.note("Panels of one subject share their axes.")
    if chart.note:
        sheet.note(chart.note)
    return sheet


# Rows

def rows_of(reports, chart, policy_matches):
    """{panel: {row: {policy: (value, standard error)}}}."""
    found = {}
    for subject, index, source in reports.pairs():
        for policy in filter(policy_matches, source.policies(subject)):
            for record in source.measured(subject, policy):
                for metric, before in chart.metrics:
                    for one in record["measurements"]:
                        if one["metric"] != metric or not one["at"]:
                            continue
                        kind, slash, rest = one["at"].partition("/") if chart.split else ("", "", one["at"])
                        row, kind = (rest, kind) if slash or not chart.split else (kind, "")
                        panel = Panel(subject, index, ", ".join(filter(None, [settings_of(record), kind])))
                        rows = found.setdefault(panel, {})
                        rows.setdefault(before + row, {})[policy] = (one["value"], one.get("standard_error", 0))
    return found


def largest_rows(rows):
    """Those with the largest numbers, in their order."""
    def size(row):
        return max(math.inf if math.isnan(value) else value for value, _ in rows[row].values())
    kept = set(sorted(rows, key=size, reverse=True)[:MOST_ROWS])
    return [row for row in rows if row in kept]


def draw_rows(reports, chart, policy_matches):
    found = rows_of(reports, chart, policy_matches)
    if not found:
        raise LeftOut(f"no record has {chart.metrics[0][0]}")
    shown = {panel: largest_rows(rows) for panel, rows in found.items()}
    names = {row: wrapped(row, 1.5, SMALL, 2) for rows in shown.values() for row in rows}
    height = 0.13 * max(name.count("\n") + 1 for name in names.values()) + 0.05
    size = (AXES[0], max(height * max(map(len, shown.values())) + 0.1, 0.5))
    sheet = Sheet(chart.name, chart.title, list(found), reports.sources, size,
                  left=max(width_of(name, SMALL) for name in names.values()) + 0.14)
    for panel in sheet.panels:
        axes, rows = sheet.axes[panel], shown[panel]
        peers = [found[other][row].values() for other in sheet.panels if other.subject == panel.subject for row in shown[other]]
        numbers = drawable([end for peer in peers for value, error in peer for end in (value - 2 * error, value, value + 2 * error)],
                           chart.x_base) or [0.5, 1]
        low, high = limits(numbers, chart.x_base)
        if chart.x_base:
            axes.set_xscale("log", base=chart.x_base)
        axes.set(xlim=(low, high), ylim=(len(rows) - 0.5, -0.5))
        for line, row in enumerate(rows):
            for policy, (value, error) in found[panel][row].items():
                colour, marker, _ = style(policy)
                place, = at_edges([value], low, high, chart.x_base)
                if math.isfinite(value) and error > 0:
                    ends = at_edges([value - 2 * error, value + 2 * error], low, high, chart.x_base)
                    axes.plot(ends, [line, line], color=colour, lw=1, zorder=2)
                hollow = not math.isfinite(value) or place != value
                axes.plot([place], [line], marker, color=colour, ms=4.5, mew=1, mfc="white" if hollow else colour, clip_on=False,
                          zorder=3, label=f"{policy} {row}")
                sheet.legend.setdefault(policy, line_of(policy, ls=""))
                if hollow:
                    sheet.note("Hollow at an edge: 0 at the left, not finite at the right.")
        if len(rows) < len(found[panel]):
            sheet.head(panel, f"the {len(rows)} largest of {len(found[panel])} rows")
        set_ticks(axes.yaxis, (list(range(len(rows))), [names[row] for row in rows]))
        axes.tick_params(axis="y", length=0)
        scale(axes.xaxis, low, high, chart.x_base, AXES[0], False)
        axes.grid(True, axis="both", color=GRID, lw=0.6)
        axes.set_axisbelow(True)
        axes.set_xlabel(f"{chart.x} ({'log' if chart.x_base else 'linear'})", labelpad=1.5)
    if any(error > 0 for panel in sheet.panels for row in shown[panel] for _, error in found[panel][row].values()):
        sheet.note("Bars: two standard errors on each side.")
    if chart.note:
        sheet.note(chart.note)
    return sheet


def draw_chart(reports, chart, policy_matches=lambda _: True):
    """The finished sheet of one experiment. Raises LeftOut if no report holds it."""
    draw = draw_curves if isinstance(chart, Curves) else draw_rows
    sheet = draw(reports, chart, policy_matches)
    sheet.settle()
    return sheet


def main():
    names = [chart.name for chart in CHARTS]
    parser = argparse.ArgumentParser(description="Draws the experiments of halfmark reports.", epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", metavar="REPORT.json", type=pathlib.Path, nargs="+")
    parser.add_argument("-o", dest="folder", metavar="DIR", type=pathlib.Path, default=pathlib.Path("charts"),
                        help="output folder, created if missing (default: charts)")
    parser.add_argument("--chart", default="", metavar="NAMES", help=f"only these: {', '.join(names)}")
    parser.add_argument("--format", default="png", help="png, svg, pdf, or several: png,svg (default: png)")
    for part in ("subject", "device", "policy"):
        parser.add_argument(f"--{part}", default="*", metavar="GLOB", help=f"only {part[:-1] + 'ies' if part == 'policy' else part + 's'} that match")
    parser.add_argument("--dpi", type=int, default=160, choices=range(50, 1201), metavar="50..1200",
                        help="of a PNG (default: 160)")
    arguments = parser.parse_args()
    if MISSING:
        print(f"experiment_charts.py: no Python package {MISSING} for {sys.executable}: install python3-matplotlib, or start it with "
              "a python3 that has matplotlib", file=sys.stderr)
        return 2
    formats = list(dict.fromkeys(arguments.format.split(",")))
    if unknown := set(formats) - set(FORMATS):
        parser.error(f"--format: no such format: {', '.join(sorted(unknown))} ({', '.join(FORMATS)})")
    wanted = arguments.chart.split(",") if arguments.chart else names
    if unknown := set(wanted) - set(names):
        parser.error(f"--chart: no such chart: {', '.join(sorted(unknown))} ({', '.join(names)})")
    set_defaults()

    def matches(glob):
        return lambda name: fnmatch.fnmatchcase(name, glob)

    def draw():
        reports = Reports(arguments.reports, matches(arguments.subject), matches(arguments.device))
        arguments.folder.mkdir(parents=True, exist_ok=True)
        drawn = 0
        for chart in CHARTS:
            if chart.name not in wanted:
                continue
            try:
                sheet = draw_chart(reports, chart, matches(arguments.policy))
            except LeftOut as reason:
                if arguments.chart:
                    print(f"{chart.name}: not drawn: {reason}", file=sys.stderr)
                continue
            for path in write(sheet, arguments.folder, formats, arguments.dpi):
                print(path)
            drawn += 1
        if drawn == 0:
            print(f"nothing drawn from {', '.join(map(str, arguments.reports))}: no experiment that has a chart; halfmark run --suite "
                  "experiments measures them", file=sys.stderr)
            return 3
        return 0

    return ending(draw, arguments.folder)


if __name__ == "__main__":
    sys.exit(main())
