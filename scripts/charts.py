#!/usr/bin/env python3
"""Draws the charts of a report: speed against error, memory, gradient range, BatchNorm drift, training.

Reads the report's JSON and nothing else. Prints the files written; what a report lacks for a chart is said on stderr.
"""

import argparse
import fnmatch
import math
import pathlib
import sys
import textwrap

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from chart_parts import (GREY, BadReport, LeftOut, end_labels, ending, human_bytes, legend_below, panels, place_end_labels,
                         point_labels, read_report, style)

BASELINE = "fp32"
MOST_PANELS = 9      # more would be too small to read
MOST_NAMES = 9       # names beside the points of a panel; of more there is a legend
MOST_SCALES = 5      # names beside the small panel; more are told by their colour above
PANEL = (3.3, 2.6)   # inches

PURPOSES = {  # of memory, in the order they are stacked; colours after Paul Tol's schemes for the colour-blind
    "weights": "#332288", "master": "#88CCEE", "gradients": "#CC6677", "optimizer": "#DDCC77", "state": "#882255",
    "saved": "#117733", "temporary": "#44AA99", "casts": "#AA4499", "workspace": "#999933", "input": "#BBBBBB",
    "other": "#777777",
}
HOT = ["hot", ""]    # where a time with warm caches stands; a cold one is never drawn beside it
COINCIDE = 0.01      # summed difference in share below which two histograms are one curve


def baseline_first(policies):
    return sorted(policies, key=lambda policy: policy != BASELINE)


def round_numbers(low, high):
    """Ticks of a logarithmic axis over one or two decades, as few as can be read."""
    steps = (1, 1.2, 1.5, 2, 2.5, 3, 4, 6, 8) if high / low < 2.5 else (1, 1.5, 2, 3, 5) if high / low < 15 else (1, 3)
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{step * 10.0 ** decade:.3g}") for decade in decades for step in steps]
    return [tick for tick in ticks if low * 1.02 < tick < high / 1.02]


def speed_against_error(report, subjects):
    found = {}
    suspects = 0
    for subject in subjects:
        points = {}
        for policy in report.policies(subject):
            error = report.value(subject, policy, "error.nmse", ["output", ""], worst=max)
            seconds = report.value(subject, policy, "time.step", HOT, worst=min, status="ok")
            suspect = seconds is None and report.value(subject, policy, "time.step", HOT, worst=min) is not None
            suspects += suspect
            if error is not None and (seconds or suspect):
                points[policy] = (seconds, error)
        if sum(seconds is not None for seconds, _ in points.values()) > 0:
            found[subject] = points
    if not found:
        raise LeftOut("every time in the report is suspect" if suspects else
                      "needs time.step of status ok and error.nmse at output of the same subject")
    named = max(len(points) for points in found.values()) <= MOST_NAMES
    for figure, axes, subject in panels(report, "speed_against_error", found, MOST_PANELS, PANEL):
        points = found[subject]
        base = points.get(BASELINE, (None, None))[0]
        measured = {policy: (base / seconds if base else seconds * 1e3, error)
                    for policy, (seconds, error) in points.items() if seconds}
        errors = [error for _, error in points.values() if math.isfinite(error) and error > 0] or [1]
        low, high = min(errors) / 30, max(errors) * 30
        infinite = any(not math.isfinite(error) for _, error in points.values())
        speeds = [speed for speed, _ in measured.values()]
        margin = max(max(speeds) / min(speeds), 1.6) ** 0.22
        left, right = min(speeds) / margin, max(speeds) * margin ** 1.6
        aside = None
        if len(measured) < len(points):  # a strip of its own, so that nobody reads a speed from it
            aside = left
            left = left / (right / left) ** 0.3
            axes.axvspan(left, aside, color="0.93", lw=0, zorder=0)
            axes.axvline(aside, color="0.75", lw=0.8, zorder=1)
        if infinite:
            high *= 30
            axes.axhspan(high / 30, high, color="0.93", lw=0, zorder=0)
        axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, high))
        labels = []
        for policy, (_, error) in points.items():
            x = measured[policy][0] if policy in measured else math.sqrt(left * aside)
            y = min(max(error, low * 3), high / 6) if math.isfinite(error) else high / 30 ** 0.5
            colour, marker, _ = style(policy)
            axes.plot([x], [y], marker, color=colour, ms=6, mew=1.1, zorder=3, clip_on=False,
                      mfc=colour if policy in measured else "white")
            if not named:
                figure.legend_items[policy] = plt.Line2D([], [], ls="", color=colour, marker=marker, ms=6)
            labels.append((x, y, policy if error != 0 else f"{policy} (error 0)", colour))
        ticks = {tick: f"{tick:g}{'x' if base else ''}" for tick in round_numbers(aside or left, right)}
        if aside:
            ticks[math.sqrt(left * aside)] = "no valid\ntime"
        axes.set_xticks(list(ticks), list(ticks.values()))
        axes.xaxis.set_minor_locator(NullLocator())
        decades = [tick for tick in LogLocator(10, numticks=8).tick_values(low, high)
                   if low <= tick <= (high / 100 if infinite else high)]
        ticks = {tick: f"$10^{{{math.log10(tick):.0f}}}$" for tick in decades}
        if infinite:
            ticks[high / 30 ** 0.5] = "not\nfinite"
        axes.set_yticks(list(ticks), list(ticks.values()))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.grid(True, color="0.92", lw=0.6, zorder=0)
        axes.set_xlabel(f"speed-up over {BASELINE}" if base else "time of a step (ms)")
        axes.set_ylabel("normalised mean squared error")
        if named:
            figure.later.append(lambda axes=axes, labels=labels: point_labels(axes, labels))
        if aside:
            figure.note = "Hollow: the time is suspect (its record says why), so there is an error and no speed."
    return report.figures


def memory(report, subjects):
    found = {}
    for subject in subjects:
        bars = {}
        for policy in report.policies(subject):
            parts = {purpose: report.value(subject, policy, f"memory.peak.{purpose}", ["train", ""], worst=max) or 0
                     for purpose in PURPOSES}
            if 0 < sum(parts.values()) < math.inf:
                bars[policy] = parts
        if bars:
            found[subject] = bars
    if not found:
        raise LeftOut("needs memory.peak.<purpose> (weights, saved, ...)")
    rows = max(len(bars) for bars in found.values())
    used = [purpose for purpose in PURPOSES if any(parts[purpose] > 0.002 * sum(parts.values())
                                                   for bars in found.values() for parts in bars.values())]
    for figure, axes, subject in panels(report, "memory", found, MOST_PANELS, (PANEL[0] + 0.3, 0.9 + 0.24 * rows)):
        bars = found[subject]
        policies = baseline_first(bars)
        largest = max(sum(parts.values()) for parts in bars.values())
        scale, unit = human_bytes(largest)
        base = sum(bars[BASELINE].values()) if BASELINE in bars else None
        for row, policy in enumerate(policies):
            start = 0
            for purpose in used:
                size = bars[policy][purpose] / scale
                axes.barh(row, size, left=start, height=0.72, color=PURPOSES[purpose], edgecolor="white", lw=0.4)
                start += size
            total = sum(bars[policy].values())
            text = f"{total / scale:.3g}" + (f" ({total / base:.2f}x)" if base and policy != BASELINE else "")
            axes.text(start + largest / scale * 0.015, row, text, va="center", fontsize=6.5)
        axes.set_yticks(range(len(policies)), policies)
        axes.set(ylim=(len(policies) - 0.4, -0.6), xlim=(0, largest / scale * 1.34))
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.set_xlabel(f"peak memory of a training step ({unit})")
        figure.legend_items = {purpose: plt.Rectangle((0, 0), 1, 1, color=PURPOSES[purpose]) for purpose in used}
    return report.figures


def histogram(report, subject, policy):
    counts = {}
    curves = report.curves(subject, policy, "range.histogram", lambda at: at == "gradients")
    curves = curves or report.curves(subject, policy, "range.histogram", lambda at: at.startswith("gradient/"))
    for _, x, y in curves:
        for exponent, count in zip(x, y):
            if math.isfinite(exponent) and math.isfinite(count) and count > 0:
                counts[round(exponent)] = counts.get(round(exponent), 0) + count
    return counts


def narrowest_format(report, subject):
    """(policy, exponents of the least subnormal, the least normal and the largest number) of the low format that reaches
    the least way down and up; of equal ones the policy first named."""
    found = []
    for policy in report.policies(subject):
        least, normal, largest = (report.value(subject, policy, f"range.format_{name}_exponent", None, worst=max)
                                  for name in ("min", "min_normal", "max"))
        if None not in (least, normal, largest) and all(map(math.isfinite, (least, normal, largest))):
            found.append((policy, least, normal, largest))
    return min(found, key=lambda one: one[3] - one[1], default=None)


def gradient_range(report, subjects):
    found = {}
    for subject in subjects:
        curves = {policy: histogram(report, subject, policy) for policy in report.policies(subject)}
        curves = {policy: counts for policy, counts in curves.items() if counts}
        if curves and narrowest_format(report, subject):
            found[subject] = curves
    if not found:
        raise LeftOut("needs the series range.histogram at gradients or gradient/<layer>, and range.format_max_exponent, "
                      "range.format_min_normal_exponent, range.format_min_exponent")
    for figure, axes, subject in panels(report, "gradient_range", found, MOST_PANELS, (PANEL[0] + 0.9, PANEL[1])):
        curves = found[subject]
        shown = BASELINE if BASELINE in curves else next(iter(curves))
        exponents = [exponent for counts in curves.values() for exponent in counts]
        narrow, least, normal, largest = narrowest_format(report, subject)
        zones = [("lost as zero", -math.inf, least - 1, "#F4C7B8"), ("subnormal", least, normal - 1, "#FBE9C6"),
                 ("normal", normal, largest, "#DCEBDD"), ("overflow", largest + 1, math.inf, "#F4C7B8")]
        left, right = min(min(exponents) - 1, least - 12), max(max(exponents) + 1, largest + 11)
        total = sum(curves[shown].values())
        for name, first, last, colour in zones:
            begin, end = max(first - 0.5, left), min(last + 0.5, right)
            axes.axvspan(begin, end, color=colour, lw=0, zorder=0)
            share = sum(count for exponent, count in curves[shown].items() if first <= exponent <= last) / total
            text = "0%" if share == 0 else f"{share:.1%}" if share >= 0.001 else "<0.1%"
            axes.text((begin + end) / 2, 0.975, f"{name}\n{text}", transform=axes.get_xaxis_transform(), fontsize=6.3,
                      ha="center", va="top", linespacing=1.2)
        x = np.arange(min(exponents), max(exponents) + 2)
        drawn = []  # (shares, names): curves that coincide are drawn once and named together
        for policy in baseline_first(curves):
            total = sum(curves[policy].values())
            shares = np.array([curves[policy].get(exponent, 0) / total for exponent in x])
            twin = next((names for other, names in drawn if np.abs(shares - other).sum() < COINCIDE), None)
            if twin is None:
                drawn.append((shares, [policy]))
            else:
                twin.append(policy)
        for order, (shares, names) in enumerate(drawn):
            colour, _, dashes = style(names[0])
            axes.step(x, np.where(shares > 0, shares, 1e-30), where="mid", color=colour, ls=dashes, zorder=3,
                      lw=2.6 if order == 0 and len(drawn) > 1 else 1.1,
                      alpha=0.4 if order == 0 and len(drawn) > 1 else 1, label=textwrap.fill(", ".join(names), 20))
        axes.legend(loc="upper right", bbox_to_anchor=(1.0, 0.83), fontsize=6, handlelength=1.5, frameon=False,
                    borderaxespad=0.2, labelspacing=0.4)
        highest = max(shares.max() for shares, _ in drawn)
        lowest = max(min(shares[shares > 0].min() for shares, _ in drawn), 1e-6)
        axes.set(yscale="log", xlim=(left, right), ylim=(lowest / 2, highest * (highest / lowest) ** 0.33))
        axes.set_yticks([10.0 ** power for power in range(math.ceil(math.log10(lowest / 2)), 1)])
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("binary exponent of a gradient value")
        axes.set_ylabel("share of the values that are not 0")
        figure.note = (f"Shaded: where the low format of {narrow} puts a value of this exponent, with the share of the {shown} "
                       "gradients there.")
    return report.figures


def batchnorm_drift(report, subjects):
    found = {}
    for subject in subjects:
        for policy in report.policies(subject):
            for axes, layers in report.curves_by_axes(subject, policy, "batchnorm.running_var_error").items():
                length = max(len(x) for x, _ in layers)
                whole = [(x, y) for x, y in layers if len(x) == length]
                worst = np.nanmax(np.array([np.where(np.isfinite(y), y, -1) for _, y in whole]), axis=0)
                worst = np.where(worst > 0, worst, np.nan)
                if np.isfinite(worst).any():
                    name = (subject[0], f"{subject[1]}, {axes}" if axes else subject[1])
                    found.setdefault(name, {})[policy] = (np.array(whole[0][0]), worst)
    if not found:
        raise LeftOut("needs the series batchnorm.running_var_error")
    limits = [value for curves in found.values() for _, y in curves.values() for value in y[np.isfinite(y)]]
    low, high = max(np.min(limits), np.max(limits) * 1e-9), np.max(limits)
    for figure, axes, name in panels(report, "batchnorm_drift", found, MOST_PANELS, PANEL):
        ends = []
        for policy, (x, y) in found[name].items():
            colour, _, dashes = style(policy)
            axes.plot(x, y, color=colour, ls=dashes, lw=1.2)
            last = np.flatnonzero(np.isfinite(y))[-1]
            ends.append((y[last], policy, colour))
        axes.set(yscale="log", ylim=(low / 2, high * 2))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_xlim(min(x[0] for x, _ in found[name].values()), max(x[-1] for x, _ in found[name].values()))
        axes.grid(True, axis="y", color="0.92", lw=0.6)
        axes.set_xlabel("training step")
        axes.set_ylabel("relative error, running variance")
        end_labels(figure, axes, ends)
        figure.note = "Against an fp64 twin that sees the same data; the worst layer at every step."
    return report.figures


def smooth(values, window):
    values = np.asarray(values, float)
    if window < 2:
        return values
    kernel = np.ones(window)
    finite = np.isfinite(values)
    sums = np.convolve(np.where(finite, values, 0), kernel, "same")
    counts = np.convolve(finite.astype(float), kernel, "same")
    return np.where(finite, sums / np.maximum(counts, 1), np.nan)


TRAINING_CURVES = {"loss": "training.loss", "scale": "training.scale", "twin": "training.loss_fp32"}


def training(report, subjects):
    found = {}
    for subject in subjects:
        for policy in report.policies(subject):
            for record in report.measured(subject, policy):
                # Trainings under other settings have another twin: a panel each. Of replicates the first is drawn.
                settings = {key: value for key, value in record["axes"].items() if key != "steps"}
                curve = {key: [(one["at"], one["x"], one["y"]) for one in record["series"] if one["metric"] == metric]
                         for key, metric in TRAINING_CURVES.items()}
                loss = curve["loss"]
                if "replicate" in settings or not loss or len(loss[0][1]) < 2 or not np.isfinite(loss[0][2]).any():
                    continue
                name = ", ".join([subject[1], *(f"{key}={value}" for key, value in settings.items())])
                found.setdefault((subject[0], name), {})[policy] = dict(curve, loss=loss[0])
    if not found:
        raise LeftOut("needs the series training.loss")
    window = 1
    for figure, (axes, below), subject in panels(report, "training", found, MOST_PANELS, (PANEL[0] + 0.5, PANEL[1] + 1.1),
                                                 below=True):
        curves = found[subject]
        ends = []
        labels = []
        steps = max(len(curve["loss"][1]) for curve in curves.values())
        window = max(1, steps // 40)
        twins = [curve["twin"][0] for curve in curves.values() if curve["twin"]]
        if twins:
            axes.plot(twins[0][1], smooth(twins[0][2], window), color="black", lw=3, alpha=0.3, zorder=2)
            figure.legend_items["fp32 twin"] = plt.Line2D([], [], color="black", lw=3, alpha=0.3)
        for policy, curve in curves.items():
            if policy == BASELINE and twins:
                continue
            colour, _, dashes = style(policy)
            _, x, loss = curve["loss"]
            y = smooth(loss, window)
            axes.plot(x, y, color=colour, ls=dashes, lw=1.1, zorder=3)
            last = np.flatnonzero(np.isfinite(y))[-1]
            broken = last < len(y) - 1
            if broken:
                axes.plot([x[last]], [y[last]], "x", color=colour, ms=6, mew=1.6, zorder=5)
                labels.append((x[last], y[last], f"{policy}: not finite from step {x[last + 1]:g}", colour))
            else:
                ends.append((y[last], policy, colour))
        axes.set_ylabel("training loss")
        if np.all([np.nanmin(curve["loss"][2]) > 0 for curve in curves.values()]):
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5), numticks=20))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.yaxis.set_minor_locator(NullLocator())
        axes.grid(True, axis="y", color="0.92", lw=0.6)
        axes.margins(x=0)
        axes.tick_params(labelbottom=False)
        end_labels(figure, axes, ends)
        figure.later.append(lambda axes=axes, labels=labels: point_labels(axes, labels))

        scaled = {policy: curve["scale"][0] for policy, curve in curves.items() if curve["scale"]}
        ends = []
        for policy, (_, x, scale) in scaled.items():
            colour, _, dashes = style(policy)
            x, scale = np.asarray(x), np.asarray(scale, float)
            below.step(x, scale, where="post", color=colour, ls=dashes, lw=1.1)
            drops = np.flatnonzero(np.diff(scale) < 0) + 1
            if drops.size:  # an unclipped line without points would pull the layout to the figure's corner
                below.plot(x[drops], scale[drops], "v", color=colour, ms=3.5, clip_on=False, zorder=4)
            if np.isfinite(scale).any():
                ends.append((scale[np.isfinite(scale)][-1], policy, colour))
        if scaled:
            below.set_yscale("log", base=2)
            below.yaxis.set_major_locator(LogLocator(2, numticks=5))
            below.margins(y=0.2)
            below.grid(True, axis="y", color="0.92", lw=0.6)
            end_labels(figure, below, ends if len(ends) <= MOST_SCALES else [])
            figure.legend_items["skipped step: the scale was lowered"] = plt.Line2D([], [], ls="", marker="v", ms=3.5,
                                                                                   color=GREY)
        else:
            below.set_yticks([])
            below.text(0.5, 0.5, "no loss scale", transform=below.transAxes, ha="center", va="center", color=GREY,
                       fontsize=7)
        below.set(xlim=axes.get_xlim(), xlabel="training step", ylabel="loss scale")
        figure.note = f"Running mean over {window} steps." if window > 1 else ""
    return report.figures


CHARTS = [speed_against_error, memory, gradient_range, batchnorm_drift, training]


def save(report, name, folder, formats, dpi):
    figure = report.figures.pop(name)
    legend_below(figure)
    figure.draw_without_rendering()  # the layout is settled by this, labels are placed by it
    place_end_labels(figure)
    for action in figure.later:
        action()
    for kind in formats:
        path = folder / f"{name}.{kind}"
        figure.savefig(path, dpi=dpi, metadata={"Date": None} if kind == "svg" else None)
        print(path)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description="Draw the charts of a halfmark report.")
    parser.add_argument("report", metavar="REPORT.json", type=pathlib.Path)
    parser.add_argument("-o", dest="folder", metavar="DIR", type=pathlib.Path, default=pathlib.Path("charts"))
    parser.add_argument("--format", default="png", help="png, svg, pdf, or several: png,svg")
    parser.add_argument("--subject", default="*", metavar="GLOB", help="only subjects that match")
    parser.add_argument("--device", default="*", metavar="GLOB", help="only devices that match")
    parser.add_argument("--dpi", type=int, default=200, choices=range(50, 1201), metavar="50..1200")
    arguments = parser.parse_args()
    formats = arguments.format.split(",")
    if unknown := set(formats) - {"png", "svg", "pdf"}:
        parser.error(f"--format: no such format: {', '.join(sorted(unknown))} (png, svg, pdf)")

    plt.rcParams.update({"font.size": 7.5, "axes.titlesize": 8, "axes.spines.top": False, "axes.spines.right": False,
                         "axes.linewidth": 0.7, "xtick.major.width": 0.7, "ytick.major.width": 0.7,
                         "font.family": "DejaVu Sans", "svg.hashsalt": "halfmark"})

    def draw():
        report = read_report(arguments.report)
        subjects = [subject for subject in report.subjects if fnmatch.fnmatchcase(subject[0], arguments.subject)
                    and fnmatch.fnmatchcase(subject[1], arguments.device)]
        if not subjects:
            raise BadReport(f"{arguments.report}: has no subject and device that match")
        arguments.folder.mkdir(parents=True, exist_ok=True)
        for chart in CHARTS:
            try:
                chart(report, subjects)
            except LeftOut as reason:
                print(f"{chart.__name__}: left out: {reason}", file=sys.stderr)
                continue
            save(report, chart.__name__, arguments.folder, formats, arguments.dpi)

    return ending(draw, arguments.folder)


if __name__ == "__main__":
    sys.exit(main())
