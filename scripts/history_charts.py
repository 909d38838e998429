#!/usr/bin/env python3
"""Draws a history (halfmark history DIR --json FILE): for each series the ratios to the anchor over time, with its levels
and change points. Series that changed come first; the others are drawn with --all."""

import argparse
import math
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, MaxNLocator

from chart_parts import GREY, LONGEST_TITLE, BadReport, ending, read_json

WORSE, BETTER, POINTS = "#D55E00", "#009E73", "#0072B2"  # of the colour-blind-safe set of Okabe and Ito
PANEL = (6.6, 1.9)  # inches
MOST_PANELS = 12


def read_history(path):
    history = read_json(path)
    try:
        if history["history"] != 1:
            raise BadReport(f"{path}: is a history of schema {history['history']}, this script reads schema 1")
        for series in history["series"]:
            [str(series[key]) for key in ("case", "metric", "at", "machine", "better")]
            [(str(point["started"]), str(point["build"]), 1 / float(point["ratio"])) for point in series["points"]]
            for change in series["changes"]:
                series["points"][change["at"]], math.log(change["before"]), math.log(change["after"]), bool(change["worse"])
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        raise BadReport(f"{path}: is no history ({type(error).__name__}: {error}); "
                        "halfmark history DIR --json FILE writes one") from None
    return history


def title_of(series):
    title = f"{series['case']}  {series['metric']}" + (f" at {series['at']}" if series["at"] else "")
    title += f", {series['machine']}" if series["machine"] else ""
    title = title if len(title) <= 2 * LONGEST_TITLE + 12 else title[:2 * LONGEST_TITLE + 10] + ".."
    return title.replace("$", r"\$")  # no formula


def draw(axes, series):
    points = series["points"]
    percent = [100 * (point["ratio"] - 1) for point in points]
    axes.plot(range(len(points)), percent, "o", color=POINTS, ms=3.2, mew=0, zorder=3)
    axes.axhline(0, color="0.8", lw=0.8, zorder=1)
    edges = [0] + [change["at"] for change in series["changes"]] + [len(points)]
    for index, (begin, end) in enumerate(zip(edges, edges[1:])):
        changes = series["changes"]
        level = changes[index - 1]["after"] if index else changes[0]["before"] if changes else None
        if level is not None:
            axes.plot([begin - 0.4, end - 0.6], [100 * (level - 1)] * 2, color="0.25", lw=1.3, zorder=2)
    for change in series["changes"]:
        colour = WORSE if change["worse"] else BETTER
        axes.axvline(change["at"] - 0.5, color=colour, lw=1.1, ls="--", zorder=2)
        axes.annotate(f"{100 * (change['after'] / change['before'] - 1):+.1f} %  {points[change['at']]['build'][:10]}",
                      (change["at"] - 0.5, 1), xycoords=axes.get_xaxis_transform(), xytext=(3, -3),
                      textcoords="offset points", va="top", fontsize=6.5, color=colour,
                      bbox={"fc": "white", "ec": "none", "pad": 0.6, "alpha": 0.8}, zorder=4)
    spread = max(percent) - min(percent)
    margin = max(0.12 * spread, 1)
    axes.set_xlim(-1, len(points))
    axes.set_ylim(min(percent) - margin, max(percent) + 2.2 * margin)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(
        lambda x, _: points[int(x)]["started"][:10] if x == int(x) and 0 <= x < len(points) else ""))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:+g} %" if y else "anchor"))
    axes.grid(True, axis="y", color="0.93", lw=0.6, zorder=0)
    axes.set_title(title_of(series), loc="left")


def main():
    parser = argparse.ArgumentParser(description="Draw what halfmark history found.")
    parser.add_argument("history", metavar="HISTORY.json", type=pathlib.Path)
    parser.add_argument("-o", dest="file", metavar="FILE", type=pathlib.Path, default=pathlib.Path("history.png"),
                        help="png, svg or pdf by its name")
    parser.add_argument("--all", action="store_true", help="also the series that did not change")
    arguments = parser.parse_args()
    if arguments.file.suffix not in (".png", ".svg", ".pdf"):
        parser.error(f"-o {arguments.file}: the name must end with .png, .svg or .pdf")
    plt.rcParams.update({"font.size": 7.5, "axes.titlesize": 7.5, "axes.spines.top": False, "axes.spines.right": False,
                         "font.family": "DejaVu Sans", "svg.hashsalt": "halfmark"})

    def draw_all():
        history = read_history(arguments.history)
        found = [series for series in history["series"] if series["points"] and (series["changes"] or arguments.all)]
        if not found:
            print(f"{arguments.history}: no series changed; --all draws them all the same", file=sys.stderr)
            return
        if len(found) > MOST_PANELS:
            print(f"shows {MOST_PANELS} of {len(found)} series, those that changed most", file=sys.stderr)
        found = found[:MOST_PANELS]
        figure, grid = plt.subplots(len(found), 1, figsize=(PANEL[0], PANEL[1] * len(found) + 0.25), squeeze=False,
                                    layout="constrained")
        for axes, series in zip(grid[:, 0], found):
            draw(axes, series)
        figure.supxlabel(f"Ratio to the anchor {history['anchor'][:12]}; one point a build; line: level; dashed: change "
                         "point (orange worse, green better)", fontsize=6.5, color=GREY)
        figure.savefig(arguments.file, dpi=200)
        print(arguments.file)

    return ending(draw_all, arguments.file)


if __name__ == "__main__":
    sys.exit(main())
