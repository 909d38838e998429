"""The roofline: the rate of a training step against its intensity, below what copies and large products attained in the same run."""

import math
import sys

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.textpath import TextPath

from chart_figures import interval_note
from chart_parts import GRID, INK, SMALL, Sheet, power_ticks, set_ticks, style, wrapped
from chart_report import HOT, LeftOut, Panel, with_interval

WIDTH, HEIGHT = 2.55, 2.0  # inches of the axes
MOST_SUBJECTS = 40
DIGIT = 5.2                # points, the height of a number that marks a subject
NEEDED = "roofline.intensity and roofline.attainable_copy and _matmul, which only rows that are not emulated have"


def number_of(record, metric, places=("",)):
    return next((one["value"] for one in record["measurements"] if one["metric"] == metric and one["at"] in places), math.nan)


def point_of(record):
    """(intensity, rate, time of a step as a Value, (bytes, operations) attainable per second), None if one is not there."""
    time = next((with_interval(one, record) for one in record["measurements"]
                 if one["metric"] == "time.step" and one["at"] in HOT), None)
    intensity, rate = number_of(record, "roofline.intensity", HOT), number_of(record, "throughput.flops", HOT)
    roof = number_of(record, "roofline.attainable_copy"), number_of(record, "roofline.attainable_matmul")
    if not time or not all(0 < value < math.inf for value in (intensity, rate, time.value, *roof)):
        return None
    return intensity, rate, time, roof


def points_of(reports):
    """{panel of a policy: [(subject, point)]}, and the subjects that have a point only where the time is suspect."""
    found, suspect = {}, {}
    for subject, index, source in reports.pairs():
        for policy in source.policies(subject):
            for record in source.measured(subject, policy):
                point = point_of(record)
                if point and record["status"] == "ok":
                    found.setdefault(Panel(policy, index), []).append((subject, point))
                elif point:
                    suspect.setdefault(policy, set()).add(subject)
    return found, suspect


def roofline(reports):
    found, suspect = points_of(reports)
    if not found:
        raise LeftOut(f"every time beside a roofline is suspect: {', '.join(suspect)}; the records say why" if suspect else
                      f"needs the harness throughput ({NEEDED})")
    present = {subject for points in found.values() for subject, _ in points}
    subjects = [subject for subject in reports.subjects if subject in present]
    if len(subjects) > MOST_SUBJECTS:
        print(f"roofline: shows {MOST_SUBJECTS} of {len(subjects)} subjects, choose others with --subject", file=sys.stderr)
    number = {subject: f"{index + 1}" for index, subject in enumerate(subjects[:MOST_SUBJECTS])}
    found = {panel: [one for one in points if one[0] in number] for panel, points in found.items()}
    found = {panel: points for panel, points in found.items() if points}
    # Panels of one policy are neighbours, the policies in the order of the report.
    order = {panel.subject: None for panel in found}
    sheet = Sheet("roofline", "Rate of a training step, and the most that copies and large products allow",
                  sorted(found, key=lambda panel: (list(order).index(panel.subject), panel.source)), reports.sources, (WIDTH, HEIGHT))
    shown = [point for panel in sheet.panels for _, point in found[panel]]
    left, right = limits([point[0] for point in shown] + [peak / copy for _, _, _, (copy, peak) in shown])
    bottom, top = limits([point[1] for point in shown] + [peak for _, _, _, (_, peak) in shown])
    for panel in sheet.panels:
        axes = sheet.axes[panel]
        colour = style(panel.subject)[0]
        for copy, peak in {point[3] for _, point in found[panel]}:
            x = np.array([left, peak / copy, right])
            axes.plot(x, np.minimum(copy * x, peak), color=INK, lw=1, zorder=2)
        for subject, (x, y, time, _) in found[panel]:
            axes.plot([x, x], [y * time.value / time.high, y * time.value / max(time.low, time.value / 1e3)], color=colour, lw=1,
                      zorder=3)
            axes.plot([x], [y], ls="", color=colour, **digits(number[subject]), zorder=4, clip_on=False, label=subject)
        shares = [y / min(copy * x, peak) for _, (x, y, _, (copy, peak)) in found[panel]]
        sheet.head(panel, f"{100 * min(shares):.2g} % to {100 * max(shares):.2g} % of what is attainable")
        axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, top))
        set_ticks(axes.xaxis, power_ticks(left, right, WIDTH))
        set_ticks(axes.yaxis, power_ticks(bottom, top, HEIGHT))
        axes.grid(True, color=GRID, lw=0.6, zorder=0)
        axes.set_axisbelow(True)
        axes.set_xlabel("FLOP per byte of operands (log)", labelpad=1)
        axes.set_ylabel("FLOP/s (log)")
    for subject, text in number.items():
        sheet.legend[wrapped(subject, 2.6, SMALL)] = Line2D([], [], color=INK, ls="", **digits(text))
    sheet.note("Line: the smaller of intensity times the rate of a large copy, and the rate of a large product of the policy's type, "
               "both measured in the run. Above it: operands stay in caches.")
    sheet.note(interval_note("Bars, time", [point[2] for point in shown]))
    if suspect:
        sheet.note("Not drawn, the time is suspect: " + ", ".join(
            f"{len(names)} subject{'s' if len(names) > 1 else ''} under {policy}" for policy, names in suspect.items()) + ".")
    return sheet


def limits(values):
    return min(values) / 2, max(values) * 2


def digits(text):
    """A marker that shows a number, whatever its width in digits of equal height."""
    outline = TextPath((0, 0), text, size=10)
    vertices, codes = np.array(outline.vertices), outline.codes
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    return {"marker": Path(vertices - (low + high) / 2, codes), "ms": DIGIT * max(high - low) / (high - low)[1], "mew": 0}
