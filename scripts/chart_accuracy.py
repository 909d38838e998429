"""The chart of trained models: share of held-out samples classified correctly, with its standard error."""

import math

from chart_figures import baseline_first, some
from chart_parts import GRID, INK, SMALL, Sheet, set_ticks, step_of, style, width_of, wrapped
from chart_report import LeftOut, Panel

WIDTH = 2.55         # inches of the axes
SEEDS = "replicate"  # the axis whose settings are seeds
CONTROL = "control"  # the axis of trainings whose bad outcome is intended


def mean_of(seeds):
    """(mean, standard error) of [(accuracy, own standard error)]. The error is the larger of two: from the differences of the
    seeds, from two seeds on, and from their own errors. Chance alone can make the seeds equal."""
    count = len(seeds)
    mean = sum(value for value, _ in seeds) / count
    own = math.sqrt(sum(error ** 2 for _, error in seeds)) / count
    between = math.sqrt(sum((value - mean) ** 2 for value, _ in seeds) / (count - 1) / count) if count > 1 else 0
    return mean, max(own, between)


def accuracies(reports):
    """{panel: {policy: [(accuracy, standard error, samples) of each seed]}}. An accuracy without sample or error is left out."""
    found = {}
    for subject, index, source in reports.pairs():
        for policy in source.policies(subject):
            for record in source.measured(subject, policy):
                if record["axes"].get(CONTROL, "none") != "none":
                    continue
                samples = next((one["value"] for one in record["measurements"] if one["metric"] == "evaluation.samples"), 0)
                one = next((one for one in record["measurements"]
                            if (one["metric"], one["at"]) == ("evaluation.accuracy", "fp32")), None)
                error = one.get("standard_error", math.nan) if one else math.nan
                if not (samples > 0 and math.isfinite(error) and math.isfinite(one["value"])):
                    continue
                settings = ", ".join(f"{key}={value}" for key, value in record["axes"].items() if key not in (SEEDS, CONTROL))
                panel = found.setdefault(Panel(subject, index, settings), {})
                panel.setdefault(policy, []).append((one["value"], error, samples))
    return found


def accuracy(reports):
    found = accuracies(reports)
    if not found:
        raise LeftOut("needs the harness training (evaluation.accuracy with its standard error, and evaluation.samples)")
    names = {policy: wrapped(policy, 1.6, SMALL) for rows in found.values() for policy in rows}
    row = 0.14 * max(name.count("\n") + 1 for name in names.values()) + 0.12
    size = (WIDTH, row * max(len(rows) for rows in found.values()) + 0.1)
    texts = {}
    for panel, rows in found.items():
        for policy, seeds in rows.items():
            mean, error = mean_of([seed[:2] for seed in seeds])
            texts[panel, policy] = (mean, error, f"{100 * mean:.1f} ± {100 * error:.1f} %")
    sheet = Sheet("accuracy", "Held-out samples classified correctly after a short training", list(found), reports.sources, size,
                  left=max(width_of(name, SMALL) for name in names.values()) + 0.14,
                  right=max(width_of(text, SMALL) for _, _, text in texts.values()) + 0.2)
    for panel in sheet.panels:
        axes, rows = sheet.axes[panel], found[panel]
        peers = [texts[other, policy][:2] for other in sheet.panels if other.row == panel.row for policy in found[other]]
        low, high = min(mean - error for mean, error in peers), max(mean + error for mean, error in peers)
        margin = max(0.08 * (high - low), 0.005)
        low, high = max(0, low - margin), min(1, high + margin)
        for line, policy in enumerate(baseline_first(rows)):
            mean, error, text = texts[panel, policy]
            colour, marker, _ = style(policy)
            one_seed = len(rows[policy]) == 1
            axes.errorbar(mean, line, xerr=error, color=colour, marker=marker, ms=4, lw=1.1, capsize=2, capthick=1.1,
                          mfc="white" if one_seed else colour)
            axes.text(1 + 0.08 / size[0], line, text, transform=axes.get_yaxis_transform(), va="center", fontsize=SMALL,
                      color=INK)
        set_ticks(axes.yaxis, (list(range(len(rows))), [names[policy] for policy in baseline_first(rows)]))
        axes.set(ylim=(len(rows) - 0.4, -0.6), xlim=(low, high))
        axes.tick_params(axis="y", length=0)
        step = step_of(high - low, 5, (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2))
        ticks = [step * count for count in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
        set_ticks(axes.xaxis, (ticks, [f"{100 * tick:.3g} %" for tick in ticks]))
        axes.grid(True, axis="x", color=GRID, lw=0.6)
        axes.set_axisbelow(True)
        axes.set_xlabel("accuracy on held-out samples (linear)")
    shown = [seeds for panel in sheet.panels for seeds in found[panel].values()]
    samples = [int(sample) for seeds in shown for _, _, sample in seeds]
    seeds = [len(one) for one in shown]
    sheet.note(f"Bars: one standard error on each side. {some(samples)} held-out samples for each of {some(seeds)} "
               f"seed{'' if max(seeds) == 1 else 's'}, evaluated in fp32.")
    if min(seeds) == 1:
        sheet.note("Hollow: one seed. The error is that of the samples alone, another seed differs by more: this ranks no precisions.")
    return sheet
