"""The charts over training steps: drift of BatchNorm's running variance, and loss with loss scale."""

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from chart_figures import BASELINE
from chart_parts import (GREY, GRID, INK, SMALL, Sheet, end_labels, end_labels_fit, every, line_of, power_ticks, round_ticks,
                         set_ticks, step_of, style, width_of)
from chart_report import LeftOut, Panel

AXES = (2.5, 2.0)     # inches
SCALE_HEIGHT = 0.62   # inches
DEFAULTS = {"noise": "no noise"}  # names of default values that are clearer than "default <axis>"
BAND = 0.5            # opacity of all bands of a panel together


def settings_of(record, without=()):
    return ", ".join(f"{key}={value}" for key, value in record["axes"].items() if key not in without)


def settings_with_defaults(record, keys):
    """Names every one of the axes: a report holds only those that differ from the default."""
    axes = record["axes"]
    return ", ".join(f"{key}={axes[key]}" if key in axes else DEFAULTS.get(key, f"default {key}") for key in keys)


def place_for_names(sheet_names, height):
    """Width to the right of the axes for names at the ends of curves, and whether they fit; if not, a legend is drawn."""
    fit = all(end_labels_fit(names, height) for names in sheet_names)
    names = {name for group in sheet_names for name in group}
    return (max((width_of(name, SMALL) for name in names), default=0) + 0.2 if fit else 0.15), fit


def step_axis(axes, low, high):
    """The axis of training steps, with one range for panels that share it; logarithmic if their lengths differ much."""
    if low > 0:
        axes.set_xscale("log")
        set_ticks(axes.xaxis, round_ticks(low, high, AXES[0], "{:g}".format))
    else:
        step = step_of(high, 6, [10 ** power * part for power in range(9) for part in (1, 2, 5)])
        ticks = [step * count for count in range(int(high / step) + 1)]
        set_ticks(axes.xaxis, (ticks, [f"{tick:g}" for tick in ticks]))
    axes.set_xlim(low, high)


def last_finite(y):
    finite = np.flatnonzero(np.isfinite(y))
    return finite[-1] if finite.size else None


# BatchNorm drift

DRIFT = "batchnorm.running_var_error"


def worst_layer(curves):
    """The greatest error over the layers at every step."""
    length = max(len(x) for x, _ in curves)
    whole = [(x, y) for x, y in curves if len(x) == length]
    worst = np.max(np.array([np.where(np.isfinite(y), y, -1) for _, y in whole]), axis=0)
    return np.array(whole[0][0]), np.where(worst > 0, worst, np.nan)


def drift_axes(reports):
    """The axes that any record of the drift names."""
    return sorted({key for subject, _, source in reports.pairs() for policy in source.policies(subject)
                   for record in source.measured(subject, policy) for key in record["axes"]
                   if any(one["metric"] == DRIFT for one in record["series"])})


def batchnorm_drift(reports):
    found, keys = {}, drift_axes(reports)
    for subject, index, source in reports.pairs():
        for policy in source.policies(subject):
            layers = {}
            for record in source.measured(subject, policy):
                layers.setdefault(settings_with_defaults(record, keys), []).extend(
                    (one["x"], one["y"]) for one in record["series"]
                    if one["metric"] == DRIFT and one["x"])
            for settings, curves in layers.items():
                if curves and np.isfinite((curve := worst_layer(curves))[1]).any():
                    found.setdefault(Panel(subject, index, settings), {})[policy] = curve
    if not found:
        raise LeftOut(f"needs the harness batchnorm_drift (series {DRIFT})")
    right, named = place_for_names([list(curves) for curves in found.values()], AXES[1])
    sheet = Sheet("batchnorm_drift", "Drift of BatchNorm's running variance from an fp64 reference on the same data", list(found),
                  reports.sources, AXES, right=right)
    shown = [curve for panel in sheet.panels for curve in found[panel].values()]
    errors = [error for _, y in shown for error in y[np.isfinite(y)]]
    high, low = max(errors) * 2, max(min(errors), max(errors) * 1e-9) / 2
    ends = [x[-1] for x, _ in shown]
    first, last = min(x[0] for x, _ in shown), max(ends)
    logarithmic = last > 2 * min(ends)
    for panel in sheet.panels:
        axes, labels = sheet.axes[panel], []
        axes.set(yscale="log", ylim=(low, high))
        step_axis(axes, max(first, 1) if logarithmic else 0, last)
        for order, (policy, (x, y)) in enumerate(found[panel].items()):
            colour, marker, dash = style(policy)
            axes.plot(x, np.maximum(y, low), color=colour, ls=dash, lw=1.2, marker=marker, ms=3.4, label=policy,
                      markevery=every(order, len(found[panel]), x, logarithmic))
            labels.append((max(y[last_finite(y)], low), policy, colour))
            if not named:
                sheet.legend[policy] = line_of(policy)
        set_ticks(axes.yaxis, power_ticks(low, high, AXES[1]))
        axes.grid(True, axis="y", color=GRID, lw=0.6)
        axes.set_xlabel(f"training step ({'log' if logarithmic else 'linear'})", labelpad=1.5)
        axes.set_ylabel("relative error (log)")
        if named:
            end_labels(axes, AXES[1], labels, max(x[-1] for x, _ in found[panel].values()))
    sheet.note("The worst layer at every step. One run for each curve: single values, no interval.")
    return sheet


# Training

def smooth(values, window):
    """Running mean over the finite values; NaN and infinity are kept."""
    values = np.asarray(values, float)
    if window < 2:
        return values
    kernel = np.ones(window)
    finite = np.isfinite(values)
    sums = np.convolve(np.where(finite, values, 0), kernel, "same")
    counts = np.convolve(finite.astype(float), kernel, "same")
    return np.where(finite, sums / np.maximum(counts, 1), np.nan)


FP32_CURVE = "fp32 training"
METRICS = {"loss": "training.loss", "scale": "training.scale", "fp32": "training.loss_fp32"}


def trainings(reports):
    """{panel: {policy: [curves of each replicate, in order]}}; each setting of the training is a panel."""
    found = {}
    for subject, index, source in reports.pairs():
        for policy in source.policies(subject):
            for record in source.measured(subject, policy):
                curves = {key: next(((np.array(one["x"]), np.array(one["y"], float)) for one in record["series"]
                                     if one["metric"] == metric and one["x"]), None) for key, metric in METRICS.items()}
                loss = curves["loss"]
                if loss is None or len(loss[0]) < 2 or not np.isfinite(loss[1]).any():
                    continue
                panel = Panel(subject, index, settings_of(record, ("steps", "replicate")))
                replicates = found.setdefault(panel, {}).setdefault(policy, [])
                replicates.insert(len(replicates) if "replicate" in record["axes"] else 0, curves)
    return found


def band(replicates, window):
    """The least and the greatest loss over the replicates at every step, or None for a single one."""
    losses = [smooth(curves["loss"][1], window) for curves in replicates if len(curves["loss"][0]) == len(replicates[0]["loss"][0])]
    if len(losses) < 2:
        return None
    losses = np.array(losses)
    whole = np.isfinite(losses).all(axis=0)
    return np.where(whole, losses.min(axis=0), np.nan), np.where(whole, losses.max(axis=0), np.nan)


def moving_scales(curves):
    """{policy: (steps, scales)} of policies whose scale is not 1 throughout."""
    scales = {policy: replicates[0]["scale"] for policy, replicates in curves.items() if replicates[0]["scale"]}
    return {policy: (x, y) for policy, (x, y) in scales.items() if np.isfinite(y).any() and (y > 0).any() and (y != 1).any()}


def training(reports):
    found = trainings(reports)
    if not found:
        raise LeftOut("needs the harness training (series training.loss)")
    names = [[*curves, FP32_CURVE] for curves in found.values()]
    scale_names = [list(moving_scales(curves)) for curves in found.values()]
    right, named = place_for_names(names, AXES[1])
    named_scales = named and all(end_labels_fit(group, SCALE_HEIGHT) for group in scale_names)
    sheet = Sheet("training", "Training loss beside the same training in fp32, and the loss scale", list(found),
                  reports.sources, AXES, right=right, lower=SCALE_HEIGHT)
    shown = {panel: found[panel] for panel in sheet.panels}
    longest = max(len(replicates[0]["loss"][0]) for curves in shown.values() for replicates in curves.values())
    window = max(1, longest // 40)
    losses = [loss for curves in shown.values() for replicates in curves.values() for one in replicates
              for loss in one["loss"][1][np.isfinite(one["loss"][1])]]
    logarithmic = min(losses) > 0
    scales = [scale for curves in shown.values() for _, y in moving_scales(curves).values() for scale in y[np.isfinite(y) & (y > 0)]]
    counts = []
    for panel in sheet.panels:
        peers = [shown[other] for other in sheet.panels if other.subject == panel.subject]
        last_step = max(replicates[0]["loss"][0][-1] for peer in peers for replicates in peer.values())
        counts += draw_losses(sheet, panel, shown[panel], peers, last_step, window, logarithmic, named)
        draw_scales(sheet, panel, shown[panel], scales, named_scales, last_step)
    if max(counts) > 1:
        sheet.note(f"Band: least to greatest of {max(counts)} replicates with other seeds; line: the first. No band: a single run."
                   if min(counts) == 1 else f"Band: least to greatest of {max(counts)} replicates with other seeds; line: the first.")
        sheet.legend["replicates"] = Patch(facecolor=GREY, alpha=BAND / 2)
    else:
        sheet.note("One run for each curve: single values, no interval.")
    if window > 1:
        sheet.note(f"Running mean over {window} steps.")
    sheet.note("Panels of one subject share their axes; all panels share the axis of the scale. A policy without a curve there "
               "keeps the scale 1.")
    return sheet


def draw_losses(sheet, panel, curves, peers, last_step, window, logarithmic, named):
    axes, labels = sheet.axes[panel], []
    fp32 = next((replicates[0]["fp32"] for replicates in curves.values() if replicates[0]["fp32"]), None)
    if fp32 is not None:
        y = smooth(fp32[1], window)
        axes.plot(fp32[0], y, color="#8C8C8C", lw=3.2, zorder=2, solid_capstyle="butt")
        if not named:
            sheet.legend[FP32_CURVE] = Line2D([], [], color="#8C8C8C", lw=3.2)
        if last_finite(y) is not None:
            labels.append((y[last_finite(y)], FP32_CURVE, "#8C8C8C"))
    counts = []
    for order, (policy, replicates) in enumerate(curves.items()):
        counts.append(len(replicates))
        colour, marker, dash = style(policy)
        x, y = replicates[0]["loss"][0], smooth(replicates[0]["loss"][1], window)
        if policy == BASELINE and fp32 is not None and len(y) == len(fp32[1]) and np.array_equal(y, smooth(fp32[1], window)):
            continue
        between = band(replicates, window)
        if between:
            axes.fill_between(x, *between, color=colour, alpha=BAND / len(curves), lw=0, zorder=1)
        axes.plot(x, y, color=colour, ls=dash, lw=1.1, marker=marker, ms=3.4, zorder=3, label=policy,
                  markevery=every(order, len(curves), x))
        if not named:
            sheet.legend[policy] = line_of(policy)
        last = last_finite(y)
        if last == len(y) - 1:
            labels.append((y[last], policy, colour))
        else:
            sheet.head(panel, f"{policy}: loss not finite after step {x[last]:g}")
            axes.plot([x[last]], [y[last]], "x", color=colour, ms=7, mew=1.6, zorder=5)
            sheet.legend["loss not finite after this step"] = Line2D([], [], ls="", marker="x", ms=7, mew=1.6, color=INK)
    low, high = loss_limits(peers, window)
    if logarithmic:
        axes.set(yscale="log", ylim=(low, high))
        set_ticks(axes.yaxis, round_ticks(low, high, AXES[1], "{:g}".format, vertical=True))
    else:
        axes.set_ylim(low, high)
    axes.grid(True, axis="y", color=GRID, lw=0.6)
    axes.set_axisbelow(True)
    step_axis(axes, 0, last_step)
    axes.tick_params(labelbottom=False)
    axes.set_ylabel(f"training loss ({'log' if logarithmic else 'linear'})")
    if named:
        end_labels(axes, AXES[1], labels, last_step)
    return counts


def loss_limits(peers, window):
    """Range of all curves of the panels with this subject, with a margin."""
    values = [smooth(curve[1], window) for peer in peers for replicates in peer.values() for one in replicates
              for curve in (one["loss"], one["fp32"]) if curve is not None]
    values = np.concatenate([value[np.isfinite(value)] for value in values])
    low, high = values.min(), values.max()
    if low > 0:
        margin = max(high / low, 1.05) ** 0.05
        return low / margin, high * margin
    margin = 0.05 * (high - low) or 1
    return low - margin, high + margin


def draw_scales(sheet, panel, curves, scales, named, last_step):
    below, labels = sheet.lower_axes[panel], []
    moving = moving_scales(curves)
    if moving:
        low, high = min(scales) / 4, max(scales) * 4
        below.set_yscale("log", base=2)
        below.set_ylim(low, high)
        for order, (policy, (x, y)) in enumerate(moving.items()):
            colour, marker, dash = style(policy)
            below.step(x, np.where(y > 0, y, np.nan), where="post", color=colour, ls=dash, lw=1.1)
            drops = np.flatnonzero(np.diff(y) < 0) + 1
            if drops.size:
                below.plot(x[drops], y[drops], "v", color=colour, ms=3.5, zorder=4)
                sheet.legend["skipped step: the scale was lowered"] = Line2D([], [], ls="", marker="v", ms=3.5, color=INK)
            if (last := last_finite(np.where(y > 0, y, np.nan))) is not None:
                labels.append((y[last], policy, colour))
        set_ticks(below.yaxis, power_ticks(low, high, SCALE_HEIGHT, base=2))
        below.grid(True, axis="y", color=GRID, lw=0.6)
    else:
        below.set_yticks([])
        below.text(0.5, 0.5, "scale 1 throughout", transform=below.transAxes, ha="center", va="center", fontsize=SMALL)
    step_axis(below, 0, last_step)
    below.set_xlabel("training step (linear)", labelpad=1.5)
    below.set_ylabel("scale (log)")
    if moving and named:
        end_labels(below, SCALE_HEIGHT, labels, last_step)
