#!/usr/bin/env python3
"""Draws a history (halfmark history DIR --json FILE): for each series the ratios to the anchor over time, with its levels
and change points. Series that changed come first; the others are drawn with --all."""

import argparse
import math
import pathlib
import sys

from chart_report import LARGEST, BadReport, LeftOut, ending, read_json, short

MISSING = ""  # the Python package that cannot be imported; --help works without it
try:
    import matplotlib  # noqa: F401: imported here, so that one line reports a missing package
    import numpy  # noqa: F401
except ImportError as error:
    MISSING = error.name
else:
    from chart_parts import (GREY, GRID, INK, LINE, SMALL, TITLE, height_of, new_figure, set_defaults, set_ticks, width_of, wrapped,
                             write_figure)

WORSE, BETTER, POINTS = "#B84300", "#007A5A", "#0065A3"  # colour-blind-safe, 3 : 1 to white; each also has a text label
SIZE = (6.2, 1.2)  # inches of the axes
LEFT, RIGHT, BOTTOM, EDGE = 0.62, 0.15, 0.4, 0.1
MOST_PANELS = 12
EXAMPLES = """examples:
  halfmark history store --json history.json
  history_charts.py history.json -o history.png
  history_charts.py history.json -o history.svg --all

Exit codes: 0 drawn, or no series changed; 2 the file is not a history, FILE cannot be written, or matplotlib is missing."""


def positive(value):
    """A ratio that can be drawn."""
    if not 1 / LARGEST <= float(value) <= LARGEST:
        raise ValueError(f"{value} is no ratio that can be drawn")
    return float(value)


def read_history(path):
    history = read_json(path)
    try:
        if history["history"] != 1:
            raise BadReport(f"{path}: is a history of schema {history['history']}, this script reads schema 1")
        history["anchor"] = short(history["anchor"])
        for series in history["series"]:
            series.update({key: short(series[key]) for key in ("case", "metric", "at", "machine", "better")})
            for point in series["points"]:
                point.update(started=short(point["started"]), build=short(point["build"]), ratio=positive(point["ratio"]))
            for change in series["changes"]:
                change.update(before=positive(change["before"]), after=positive(change["after"]), worse=bool(change["worse"]))
                series["points"][change["at"]]
    except (KeyError, TypeError, ValueError, IndexError, ArithmeticError, AttributeError) as error:
        raise BadReport(f"{path}: is not a history ({type(error).__name__}: {error}); "
                        "halfmark history DIR --json FILE writes one") from None
    return history


def title_of(series):
    title = f"{series['case']}  {series['metric']}" + (f" at {series['at']}" if series["at"] else "")
    return wrapped(title + (f", {series['machine']}" if series["machine"] else ""), SIZE[0], TITLE)


def moment(point):
    return str(point["started"]), str(point["build"])


def labels_of(series, places):
    """[(x, text, colour, row)]: labels of the changes, in rows so that they do not overlap; right of their line if they fit."""
    labels, ends, first, last = [], [], -1, len(places)
    inch = (last - first) / SIZE[0]
    for change in series["changes"]:
        point = series["points"][change["at"]]
        x = places[moment(point)] - 0.5
        text = (f"{100 * (change['after'] / change['before'] - 1):+.1f} % {'worse' if change['worse'] else 'better'}, "
                f"{str(point['build'])[:10]}")
        width = (width_of(text, SMALL) + 0.1) * inch
        begin = min(x + 0.04 * inch, last - width)
        row = next((row for row, end in enumerate(ends) if end <= begin), len(ends))
        ends[row:row + 1] = [begin + width]
        labels.append((begin, text, x, WORSE if change["worse"] else BETTER, row))
    return labels, len(ends)


def draw(axes, series, places, labels, rows, height):
    points = series["points"]
    xs = [places[moment(point)] for point in points]
    percent = [100 * (point["ratio"] - 1) for point in points]
    axes.plot(xs, percent, "o", color=POINTS, ms=3.2, mew=0, zorder=3)
    axes.axhline(0, color=GREY, lw=0.8, zorder=1)
    changes = series["changes"]
    edges = [0] + [change["at"] for change in changes] + [len(points)]
    for index, (begin, end) in enumerate(zip(edges, edges[1:])):
        level = changes[index - 1]["after"] if index else changes[0]["before"] if changes else None
        if level is not None and begin < end:
            axes.plot([xs[begin] - 0.4, xs[end - 1] + 0.4], [100 * (level - 1)] * 2, color=INK, lw=1.3, zorder=2)
    levels = [100 * (change[side] - 1) for change in changes for side in ("before", "after")]
    low, high = min(percent + levels), max(percent + levels)
    margin = max(0.08 * (high - low), 1)
    low, high = low - margin, high + margin
    room = rows * SMALL * LINE + 0.03  # rows of labels, above all points
    top = low + (high - low) * height / (height - room)
    axes.set(xlim=(-1, len(places)), ylim=(low, top))
    for begin, text, x, colour, row in labels:
        axes.axvline(x, color=colour, lw=1.1, ls="--", zorder=2)
        axes.text(begin, top - (top - low) * (0.02 + row * SMALL * LINE) / height, text, va="top", fontsize=SMALL,
                  bbox={"fc": "white", "ec": "none", "pad": 0.6}, zorder=4)
    step = max(1, math.ceil(len(places) / 6))
    axes_ticks = list(range(0, len(places), step))
    dates = [started[:10] for started, _ in places]
    set_ticks(axes.xaxis, (axes_ticks, [dates[tick] for tick in axes_ticks]))
    ticks = [tick for tick in axes.yaxis.get_major_locator().tick_values(low, high) if low <= tick <= high]
    ticks = ticks[::max(1, math.ceil(len(ticks) * 0.17 / height))]
    set_ticks(axes.yaxis, (ticks, [f"{tick:+g} %" if abs(tick) > 1e-9 else "0 %" for tick in ticks]))
    axes.grid(True, axis="y", color=GRID, lw=0.6, zorder=0)
    axes.set_ylabel("from anchor (linear)")
    axes.set_xlabel("builds of all panels in the order of time", labelpad=1.5)


def draw_history(history, found):
    """The figure and the provenance for its file."""
    places = {name: index for index, name in enumerate(sorted({moment(point) for series in found for point in series["points"]}))}
    width = LEFT + SIZE[0] + RIGHT + 2 * EDGE
    labels = [labels_of(series, places) for series in found]
    heights = [SIZE[1] + rows * SMALL * LINE for _, rows in labels]
    titles = [title_of(series) for series in found]
    source = f"halfmark history, anchor {history['anchor']}, {history.get('reports', 'unknown')} reports, {moment_range(places)}."
    note = ("Change of the ratio to the anchor; one point per build, a single value without interval; line: level, the median "
            "between changes; dashed: change point. All panels share the axis of builds; each has its own range of changes.")
    caption = wrapped(f"{note} {source}", width - 2 * EDGE, SMALL)
    total = 2 * EDGE + height_of(caption, SMALL) + sum(height + height_of(title, TITLE) + BOTTOM + 0.1
                                                       for height, title in zip(heights, titles))
    figure = new_figure((width, total))
    top = total - EDGE
    for series, title, height, (marks, rows) in zip(found, titles, heights, labels):
        figure.text((EDGE + LEFT) / width, top / total, title, fontsize=TITLE, va="top", linespacing=1.15)
        top -= height_of(title, TITLE) + 0.03 + height
        axes = figure.add_axes(((EDGE + LEFT) / width, top / total, SIZE[0] / width, height / total))
        draw(axes, series, places, marks, rows, height)
        top -= BOTTOM + 0.07
    figure.text(EDGE / width, EDGE / total, caption, fontsize=SMALL, color=GREY, va="bottom", linespacing=1.15)
    return figure, {"Title": "Changes of builds over time", "Source": source, "Description": note}


def moment_range(places):
    starts = [started for started, _ in places]
    return f"{len(starts)} builds from {starts[0]} to {starts[-1]}"


def main():
    parser = argparse.ArgumentParser(description="Draws what halfmark history found.", epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("history", metavar="HISTORY.json", type=pathlib.Path)
    parser.add_argument("-o", dest="file", metavar="FILE", type=pathlib.Path, default=pathlib.Path("history.png"),
                        help="png, svg or pdf by its name (default: history.png)")
    parser.add_argument("--all", action="store_true", help="also the series that did not change")
    arguments = parser.parse_args()
    if MISSING:
        print(f"history_charts.py: no Python package {MISSING} for {sys.executable}: install python3-matplotlib, or start it with a "
              "python3 that has matplotlib", file=sys.stderr)
        return 2
    if arguments.file.suffix not in (".png", ".svg", ".pdf"):
        parser.error(f"-o {arguments.file}: the name must end with .png, .svg or .pdf")
    set_defaults()

    def draw_all():
        history = read_history(arguments.history)
        found = [series for series in history["series"] if series["points"] and (series["changes"] or arguments.all)]
        if not history["series"]:
            raise LeftOut(f"{arguments.history}: holds no series, nothing to draw")
        if not found:
            print(f"{arguments.history}: no series changed; --all draws them anyway", file=sys.stderr)
            return
        if len(found) > MOST_PANELS:
            print(f"shows {MOST_PANELS} of {len(found)} series, those that changed most", file=sys.stderr)
        figure, facts = draw_history(history, found[:MOST_PANELS])
        write_figure(figure, arguments.file, arguments.file.suffix[1:], 160, facts)
        print(arguments.file)

    return ending(draw_all, arguments.file)


if __name__ == "__main__":
    sys.exit(main())
