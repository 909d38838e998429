"""The charts of one batch or one step: speed against error, memory by purpose, exponents of the gradients."""

import math

import numpy as np
from matplotlib.patches import Patch

from chart_parts import (GREY, GRID, INK, MARKER, SMALL, Sheet, line_of, power_ticks, round_ticks, set_ticks, step_of, style,
                         width_of, wrapped)
from chart_report import HOT, MEDIAN_INTERVAL, PROCESSES, RANGE, LeftOut, Panel, human_bytes

BASELINE = "fp32"
FORMAT_NAMES = ("fp32", "tf32", "fp16", "bf16")  # policies that are named as their low format
AXES = (2.55, 2.0)  # inches
STRIP = "0.93"      # background for points that are outside the axis

PURPOSES = {  # of memory, in the order they are stacked: colours after Tol, hatches distinguish colours of equal grey
    "weights": ("#332288", ""), "master": ("#88CCEE", ""), "gradients": ("#CC6677", ""), "optimizer": ("#DDCC77", "////"),
    "state": ("#882255", ""), "saved": ("#117733", ""), "temporary": ("#44AA99", "////"), "casts": ("#D9A3D0", "||||"),
    "input": ("#FFFFFF", ""), "other": ("#BBBBBB", "\\\\\\\\"),
}
ZONES = {"exponent out of range (left: zero, right: overflow)": "#F9DDD3", "subnormal": "#FDF3DC", "normal": "#FFFFFF"}


def baseline_first(policies):
    return sorted(policies, key=lambda policy: policy != BASELINE)


def some(counts):
    """"9", or "6 to 51"."""
    return f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def interval_note(what, values):
    """What the error bars mean, and from how many samples."""
    notes = []
    for kind, name, of in ((PROCESSES, "least to greatest median of a process", "processes"),
                           (MEDIAN_INTERVAL, "95 % interval of the median", "samples"),
                           (RANGE, "least to greatest sample", "samples")):
        counts = [value.samples for value in values if value.interval == kind]
        if counts:
            notes.append(f"{name} ({some(counts)} {of})")
    single = sum(value.interval not in (MEDIAN_INTERVAL, PROCESSES, RANGE) for value in values)
    if single:
        notes.append("no bar: single value" if notes else "single value, no interval")
    return f"{what}: {'; '.join(notes)}."


# Speed against error

def speed_points(reports):
    """{panel: {policy: (time or None where it is suspect, error)}}, the panels without any valid time, and
    {panel: {policy: speed-up measured in turn}}."""
    found, suspect, ratios = {}, [], {}
    for subject, index, source in reports.pairs():
        points = {}
        for policy in source.policies(subject):
            error = source.value(subject, policy, "error.nmse", ["output", ""], max)
            seconds = source.value(subject, policy, "time.step", HOT, min, status="ok")
            if error and (seconds or source.value(subject, policy, "time.step", HOT, min)):
                points[policy] = (seconds, error)
            ratio = source.value(subject, policy, "speedup.step", HOT, max, status="ok")
            if ratio:
                ratios.setdefault(Panel(subject, index), {})[policy] = ratio
        if any(seconds for seconds, _ in points.values()):
            found[Panel(subject, index)] = points
        elif points:
            suspect.append(f"{subject} ({source.letter})" if source.letter else subject)
    return found, suspect, ratios


def speed_against_error(reports):
    found, suspect, ratios = speed_points(reports)
    if not found:
        raise LeftOut(f"every time beside an error is suspect: {', '.join(suspect)}; the records say why" if suspect else
                      "needs the harnesses throughput (time.step of status ok) and error (error.nmse at output) on the same subject")
    # A ratio of two times that were not taken in turn is not drawn as a speed-up.
    relative = len(reports.sources) == 1 and all(
        points.get(BASELINE, (None,))[0] and all(policy in ratios.get(panel, {}) for policy, (time, _) in points.items()
                                                 if time and policy != BASELINE)
        for panel, points in found.items())
    sheet = Sheet("speed_against_error", "Speed of a training step against the error of its output", list(found),
                  reports.sources, AXES)
    bars = {}  # {panel: {policy: (x, low, high)}}
    for panel in sheet.panels:
        for policy, (time, _) in found[panel].items():
            if time and relative:
                ratio = ratios.get(panel, {}).get(policy)
                bar = (1, 1, 1) if policy == BASELINE else (ratio.value, ratio.low, ratio.high)
            elif time:
                bar = (1 / time.value, 1 / time.high, 1 / time.low if time.low > 0 else math.inf)
            if time:
                bars.setdefault(panel, {})[policy] = bar
    errors = [error.value for panel in sheet.panels for _, error in found[panel].values()]
    heights = Heights(errors)
    strip = max(sum(policy not in bars[panel] for policy in found[panel]) for panel in sheet.panels)
    for panel in sheet.panels:
        peers = [other for other in sheet.panels if relative or other.row == panel.row]
        xs = [bar for peer in peers for bar in bars[peer].values()]
        draw_speeds(sheet, panel, found[panel], bars[panel], Widths(xs, strip), heights, relative)
    times = [time for panel in sheet.panels for time, _ in found[panel].values() if time]
    if relative:
        sheet.note(f"Horizontal bars: 95 % intervals of speed-ups, timed in turn with {BASELINE}. A bar that reaches 1 is no gain.")
    else:
        sheet.note(interval_note("Horizontal bars, time", times))
    if any(time.interval in (MEDIAN_INTERVAL, RANGE) for time in times):
        sheet.note("Bars: steps of one process; differences between processes come on top (measure with --processes).")
    sheet.note(interval_note("Error", [error for panel in sheet.panels for _, error in found[panel].values()]))
    if strip:
        sheet.note("Hollow: the time is suspect (its record says why), so there is an error and no speed.")
    if suspect:
        sheet.note(f"Not drawn, every time is suspect: {', '.join(suspect)}.")
    return sheet


class Heights:
    """The axis of errors: logarithmic, with one strip for NaN and infinity and one for zero."""

    def __init__(self, errors):
        numbers = [error for error in errors if 0 < error < math.inf] or [1e-8, 1]
        self.low, self.high = min(numbers) / 5, max(numbers) * 5
        whole = max(math.log10(self.high / self.low), 1)
        self.infinite = any(not math.isfinite(error) for error in errors)
        self.zero = any(error == 0 for error in errors)
        self.top = self.high * 10 ** (0.14 * whole * self.infinite)
        self.bottom = self.low / 10 ** (0.14 * whole * self.zero)

    def place(self, error):
        if not math.isfinite(error):
            return math.sqrt(self.high * self.top)
        return error if error > 0 else math.sqrt(self.low * self.bottom)

    def draw(self, axes):
        positions, texts = power_ticks(self.low, self.high, AXES[1])
        if self.infinite:
            axes.axhspan(self.high, self.top, color=STRIP, lw=0, zorder=0)
            positions, texts = positions + [self.place(math.nan)], texts + ["not finite"]
        if self.zero:
            axes.axhspan(self.bottom, self.low, color=STRIP, lw=0, zorder=0)
            positions, texts = [self.place(0)] + positions, ["0"] + texts
        axes.set(yscale="log", ylim=(self.bottom, self.top))
        set_ticks(axes.yaxis, (positions, texts))


class Widths:
    """The axis of speeds: logarithmic, with a strip at its left for policies without a valid time."""

    def __init__(self, bars, without):
        ends = [end for bar in bars for end in bar if 0 < end < math.inf]
        spread = max(max(ends) / min(ends), 1.5)
        self.low, self.high = min(ends) / spread ** 0.12, max(ends) * spread ** 0.12
        widen = max(1, math.sqrt(2.5 * self.low / self.high))  # a range of 2.5 has at least two round numbers
        self.low, self.high = self.low / widen, self.high * widen
        share = min(max(0.22, 0.07 * without), 0.5) if without else 0
        self.left = self.low / (self.high / self.low) ** (share / (1 - share))
        self.length = AXES[0] * (1 - share)
        self.without = without

    def slot(self, index):
        return self.left * (self.low / self.left) ** ((index + 0.5) / self.without)

    def draw(self, axes, form):
        spread = self.high / self.low
        positions, texts = round_ticks(self.low * spread ** 0.05, self.high / spread ** 0.02, self.length * 0.93, form)
        if self.without:
            axes.axvspan(self.left, self.low, color=STRIP, lw=0, zorder=0)
            positions, texts = positions + [math.sqrt(self.left * self.low)], texts + ["no valid\ntime"]
        axes.set(xscale="log", xlim=(self.left, self.high))
        set_ticks(axes.xaxis, (positions, texts))


def draw_speeds(sheet, panel, points, bars, widths, heights, relative):
    axes = sheet.axes[panel]
    without = 0
    for order, policy in enumerate(baseline_first(points)):
        error = points[policy][1]
        y = heights.place(error.value)
        colour, marker, _ = style(policy)
        if policy in bars:
            x, low, high = bars[policy]
            axes.plot([max(low, widths.low), min(high, widths.high)], [y, y], color=colour, lw=1, marker="|", ms=4, zorder=2)
        else:
            x, without = widths.slot(without), without + 1
        if error.interval == RANGE and error.low > 0:
            axes.plot([x, x], [max(error.low, heights.low), min(error.high, heights.high)], color=colour, lw=1, marker="_", ms=4,
                      zorder=2)
        # Where points coincide, the ones drawn first are larger, so that they stay visible.
        axes.plot([x], [y], marker, color=colour, ms=MARKER * (1.35 - 0.07 * min(order, 8)), mew=1, zorder=3, clip_on=False,
                  mfc=colour if policy in bars else "white", label=policy)
        sheet.legend.setdefault(policy, line_of(policy, ls="", ms=MARKER))
    heights.draw(axes)
    widths.draw(axes, lambda tick: f"{tick:g}{'x' if relative else ''}")
    axes.grid(True, color=GRID, lw=0.6, zorder=0)
    axes.set_axisbelow(True)
    axes.set_xlabel(f"speed-up over {BASELINE} (log; right is faster)" if relative else
                    "training steps per second (log; right is faster)", labelpad=1)
    axes.set_ylabel("normalised mean squared error (log)")


# Memory

def memory(reports):
    found = {}
    for subject, index, source in reports.pairs():
        for policy in source.policies(subject):
            parts = {purpose: source.number(subject, policy, f"memory.tensors.{purpose}", ["train", ""]) or 0
                     for purpose in PURPOSES}
            if 0 < sum(parts.values()) < math.inf:
                found.setdefault(Panel(subject, index), {})[policy] = parts
    if not found:
        raise LeftOut("needs the harness memory (memory.tensors.<purpose>: weights, saved, ...)")
    names = {policy: wrapped(policy, 1.6, SMALL) for bars in found.values() for policy in bars}
    row = 0.14 * max(name.count("\n") + 1 for name in names.values()) + 0.08
    size = (AXES[0], row * max(len(bars) for bars in found.values()) + 0.1)
    sheet = Sheet("memory", "Memory of the tensors of a training step by purpose", list(found), reports.sources, size,
                  left=max(width_of(name, SMALL) for name in names.values()) + 0.14)
    used = [purpose for purpose in PURPOSES if any(parts[purpose] > 0.002 * sum(parts.values())
                                                   for panel in sheet.panels for parts in found[panel].values())]
    bases = {}  # the same for all panels of a row
    for panel in sheet.panels:
        if BASELINE in found[panel]:
            bases.setdefault(panel.row, sum(found[panel][BASELINE].values()))
    relative = all(panel.row in bases for panel in sheet.panels)
    largest = max(sum(parts.values()) for panel in sheet.panels for parts in found[panel].values())
    scale, unit = human_bytes(largest)

    def text_of(total, base):
        own, name = human_bytes(total)
        return f"{total / own:.3g} {name}" + (f" ({total / base:.2f}x)" if relative else "")

    def length_of(panel, policy):
        return sum(found[panel][policy].values()) / (bases[panel.row] if relative else scale)

    def limit(panels):  # each bar and the number after it fit
        return max(length_of(panel, policy) / (1 - min(0.75, (width_of(text_of(sum(parts.values()), bases.get(panel.row)), SMALL)
                                                              + 0.1) / size[0]))
                   for panel in panels for policy, parts in found[panel].items())
    for panel in sheet.panels:
        axes, bars = sheet.axes[panel], found[panel]
        base = bases[panel.row] if relative else scale
        right = limit(sheet.panels if relative else [other for other in sheet.panels if other.row == panel.row])
        for line, policy in enumerate(baseline_first(bars)):
            start = 0
            for purpose in used:
                colour, hatch = PURPOSES[purpose]
                length = bars[policy][purpose] / base
                axes.barh(line, length, left=start, height=0.72, color=colour, hatch=hatch, edgecolor=INK, lw=0.5)
                start += length
            axes.text(length_of(panel, policy) + right * 0.05 / size[0], line, text_of(sum(bars[policy].values()), base), va="center",
                      fontsize=SMALL, bbox={"fc": "white", "ec": "none", "pad": 2.5})
        if relative:
            axes.axvline(1, color=INK, lw=0.7, ls=(0, (3, 2)), zorder=0)
        set_ticks(axes.yaxis, (list(range(len(bars))), [names[policy] for policy in baseline_first(bars)]))
        axes.set(ylim=(len(bars) - 0.4, -0.6), xlim=(0, right))
        axes.tick_params(axis="y", length=0)
        step = step_of(right, 5.5, (0.1, 0.2, 0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000))
        ticks = [step * count for count in range(int(right / step * 0.97) + 1)]
        set_ticks(axes.xaxis, (ticks, [f"{tick:g}{'x' if relative and tick else ''}" for tick in ticks]))
        axes.set_xlabel(f"relative to {BASELINE}{' of ' + reports.sources[0].letter if len(reports.sources) > 1 else ''} (linear)"
                        if relative else f"{unit} (linear)")
    sheet.legend = {purpose: Patch(facecolor=PURPOSES[purpose][0], hatch=PURPOSES[purpose][1], edgecolor=INK, lw=0.5)
                    for purpose in used}
    sheet.note("Of memory.tensors, at the instant when the tensors have most bytes. Counted, not sampled: single values.")
    return sheet


# Exponents of the gradients

def histogram(source, subject, policy):
    counts = {}
    curves = source.curves(subject, policy, "range.histogram", lambda at: at == "gradients")
    curves = curves or source.curves(subject, policy, "range.histogram", lambda at: at.startswith("gradient/"))
    for x, y in curves:
        for exponent, count in zip(x, y):
            if math.isfinite(exponent) and math.isfinite(count) and count > 0:
                counts[round(exponent)] = counts.get(round(exponent), 0) + count
    return counts


def format_limits(source, subject, policy):
    """Exponents of the least subnormal, the least normal and the largest number of the policy's low format, or None."""
    limits = tuple(source.number(subject, policy, f"range.format_{name}_exponent") for name in ("min", "min_normal", "max"))
    return limits if None not in limits and all(map(math.isfinite, limits)) else None


def low_format(policy):
    """How a title names the low format of the policy."""
    return policy if policy in FORMAT_NAMES else f"the low format of {policy}"


def within(counts, limits):
    """The bins that the format can hold, and the share of values in the others: tensors that are kept in a wider format."""
    if limits is None:
        return counts, 0
    inside = {exponent: count for exponent, count in counts.items() if limits[0] <= exponent <= limits[2]}
    return inside, 1 - sum(inside.values()) / sum(counts.values())


def equal_curves(curves):
    """[(shares, policies)]: policies are one curve where they are equal in every bin."""
    found = []
    for policy in baseline_first(curves):
        same = next((names for shares, names in found if shares == curves[policy]), None)
        if same:
            same.append(policy)
        else:
            found.append((curves[policy], [policy]))
    return found


def gradient_range(reports):
    found, formats, wider = {}, {}, {}
    for subject, index, source in reports.pairs():
        for policy in source.policies(subject):
            limits = format_limits(source, subject, policy)
            counts = histogram(source, subject, policy)
            if limits:
                formats.setdefault(policy, limits)
            inside, outside = within(counts, limits) if counts else ({}, 0)
            if outside:
                wider[policy] = max(outside, wider.get(policy, 0))
            if inside:
                total = sum(counts.values())
                found.setdefault(Panel(subject, index), {})[policy] = {at: count / total for at, count in inside.items()}
    if not found or not formats:
        raise LeftOut("needs the harness range (series range.histogram at gradients or gradient/<layer>, and "
                      "range.format_max_exponent, range.format_min_normal_exponent, range.format_min_exponent)")
    # One format for all panels: the one with the smallest range; of equal ones that of the first policy.
    narrow = min(formats, key=lambda policy: formats[policy][2] - formats[policy][0])
    least, normal, largest = formats[narrow]
    sheet = Sheet("gradient_range", f"Exponents of the gradients and the range of {low_format(narrow)}", list(found), reports.sources,
                  (3.0, 2.05), bottom=0.4)
    exponents = [exponent for panel in sheet.panels for curve in found[panel].values() for exponent in curve]
    left, right = min(min(exponents) - 1, least - 4) - 0.5, max(max(exponents) + 1, largest + 4) + 0.5
    low = max(min(share for panel in sheet.panels for curve in found[panel].values() for share in curve.values()), 1e-6)
    # A value one exponent below the least subnormal rounds up to it (except the exact half), so it is not lost.
    edges = [left, least - 1.5, normal - 0.5, largest + 0.5, right]
    tints = [*ZONES.values(), next(iter(ZONES.values()))]
    for panel in sheet.panels:
        axes, curves = sheet.axes[panel], found[panel]
        shown = BASELINE if BASELINE in curves else next(iter(curves))
        parts = []
        for name, begin, end, tint in zip(("zero", "subnormal", "normal", "overflow"), edges, edges[1:], tints):
            axes.axvspan(begin, end, color=tint, lw=0, zorder=0)
            share = sum(share for exponent, share in curves[shown].items() if begin < exponent < end)
            if share:
                parts.append(f"{f'{share * 100:.1f} %' if share >= 0.001 else '<0.1 %'} {name}")
        sheet.head(panel, f"of {shown}'s gradients, in {low_format(narrow)}: {', '.join(parts)}")
        x = np.arange(min(exponents) - 1, max(exponents) + 2)
        groups = equal_curves(curves)
        for order, (shares, names) in enumerate(groups):
            y = np.array([shares.get(exponent, 0) for exponent in x])
            colour, marker, dash = style(names[0])
            # Where curves nearly coincide, the ones drawn first are wider.
            width = 1 + 1.8 * (len(groups) - 1 - order) / max(1, len(groups) - 1)
            axes.plot(x, np.where(y > 0, y, 1e-30), drawstyle="steps-mid", color=colour, ls=dash, lw=width, zorder=2 + order / 99,
                      dash_capstyle="butt", label=", ".join(names))
            # Each curve has its markers at different bins, so that no curve hides the markers of another.
            marked = np.flatnonzero(y >= low)[order % 4::4]
            axes.plot(x[marked], y[marked], marker, color=colour, ms=3.6, mew=0, zorder=3 + order / 99)
            sheet.below.setdefault(panel, []).append((wrapped(", ".join(names), 2.8, SMALL), line_of(names[0])))
        axes.set(yscale="log", xlim=(left, right), ylim=(low / 2, 1.2))
        set_ticks(axes.yaxis, power_ticks(low / 2, 1.2, 2.05))
        set_ticks(axes.xaxis, exponent_ticks(left, right))
        axes.set_xlabel("binary exponent of a stored gradient (linear)", labelpad=1.5)
        axes.set_ylabel("share of non-zero values (log)")
    sheet.legend = {name: Patch(facecolor=tint, edgecolor=GREY, lw=0.5) for name, tint in ZONES.items()}
    sheet.note("As stored, loss scale included. One line with several names: equal in every bin. One batch, every value counted: "
               "single values. Over a panel: the shares of the curve named there; the exponent just below the least subnormal "
               "counts as subnormal, because its values round up.")
    if wider:
        sheet.note("Not drawn, tensors kept in a wider format than the low format: " +
                   ", ".join(f"{policy} up to {share:.2g} of the values" for policy, share in wider.items()) + ".")
    return sheet


def exponent_ticks(left, right):
    step = step_of(right - left, 9, (5, 10, 20, 50, 100, 200, 1000))
    ticks = [tick for tick in range(math.ceil(left / step) * step, math.floor(right) + 1, step)]
    return ticks, [str(tick).replace("-", "−") for tick in ticks]
