"""What the charts share: the report as they see it, one look for every policy, panels, labels that do not collide."""

import json
import math
import sys
import textwrap

import matplotlib.pyplot as plt
import numpy as np

GREY = "0.35"
LONGEST_TITLE = 42  # characters that fit over a panel
NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

# One look a policy in every chart: hue after the colour-blind-safe sets of Okabe and Ito and of Tol, and a marker and a
# dash so that nothing hangs on colour alone.
LOOKS = {
    "fp32": ("#000000", "o", "-"), "fp64": ("#000000", "s", ":"), "tf32": ("#7F7F7F", "s", "-"),
    "fp16": ("#D55E00", "^", "-"), "fp16-bn32": ("#882255", "^", "--"), "bf16": ("#0072B2", "v", "-"),
    "amp-fp16": ("#E69F00", "D", "--"), "amp-bf16": ("#56B4E9", "P", "--"), "cpu-amp-bf16": ("#332288", "P", ":"),
    "apex-o1": ("#44AA99", "X", "--"), "apex-o2": ("#009E73", "X", "-"), "apex-o3": ("#999933", "X", ":"),
    "keras-fp16": ("#CC6677", "D", ":"), "fp8": ("#CC79A7", "*", "-"),
}
SPARE = [("#AA4499", "h", "-."), ("#117733", "<", "-."), ("#DDCC77", ">", "-."), ("#661100", "d", "-."),
         ("#6699CC", "p", "-."), ("#AA4466", "8", "-."), ("#4477AA", "H", "-.")]


class BadReport(Exception):
    """The file is no report; the message is one line."""


class LeftOut(Exception):
    """The report has nothing for this chart."""


def style(policy):
    """Colour, marker, dash. Policies unknown here take the spare looks as they come."""
    if policy not in LOOKS:
        LOOKS[policy] = SPARE[len(LOOKS) % len(SPARE)]
    return LOOKS[policy]


def human_bytes(largest):
    return next(((2 ** power, name) for power, name in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB"))
                 if largest >= 2 ** power), (1, "B"))


class Report:
    """Records by (subject, device) and policy. `figures` holds the figure under way, by the name of its chart."""

    def __init__(self, records):
        self.records = {}
        self.figures = {}
        for record in records:
            self.records.setdefault((record["subject"], record["device"]), {}).setdefault(record["policy"],
                                                                                         []).append(record)
        self.subjects = list(self.records)

    def policies(self, subject):
        return list(self.records[subject])

    def measured(self, subject, policy):
        return (record for record in self.records[subject][policy] if record["status"] in ("ok", "suspect"))

    def value(self, subject, policy, metric, places, worst, status=None):
        """Over records and places (None: all) the worst value, NaN being the worst of all; None when there is none."""
        values = [one["value"] for record in self.measured(subject, policy) if status in (None, record["status"])
                  for one in record["measurements"]
                  if one["metric"] == metric and (places is None or one["at"] in places)]
        if metric.startswith("time."):
            values = [value for value in values if 0 < value < math.inf]
        if not values:
            return None
        return math.nan if any(math.isnan(value) for value in values) else worst(values)

    def curves(self, subject, policy, metric, at):
        return [(one["at"], one["x"], one["y"]) for record in self.measured(subject, policy)
                for one in record["series"] if one["metric"] == metric and at(one["at"])]

    def curves_by_axes(self, subject, policy, metric):
        """{"momentum=0.1, storage=f16": [(x, y) of every layer]}"""
        found = {}
        for record in self.measured(subject, policy):
            curves = [(one["x"], one["y"]) for one in record["series"] if one["metric"] == metric and one["x"]]
            if curves:
                axes = ", ".join(f"{key}={value}" for key, value in record["axes"].items())
                found.setdefault(axes, []).extend(curves)
        return found


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise BadReport(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BadReport(f"{path}: is not valid JSON: {error}; is this a file of halfmark?") from None


def ending(draw, target):
    """The exit code of drawing: 2 and one line on standard error where a file is wrong or cannot be written."""
    try:
        draw()
    except BadReport as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error.filename or target}: cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    return 0


def read_report(path):
    def bad(what):
        raise BadReport(f"{path}: {what}; is this a halfmark report?")

    def number(value, place):
        if isinstance(value, str) and value in NUMBERS:
            return NUMBERS[value]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        bad(f"{place}: expected a number")

    def listed(record, key, place):
        values = record.get(key, [])
        if not isinstance(values, list) or not all(isinstance(one, dict) for one in values):
            bad(f"{place}.{key}: expected a list of objects")
        return values

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
        if not isinstance(record.setdefault("axes", {}), dict):
            bad(f"{place}.axes: expected an object")
        record["measurements"] = listed(record, "measurements", place)
        record["series"] = listed(record, "series", place)
        for one in record["measurements"] + record["series"]:
            if not isinstance(one.get("metric"), str) or not isinstance(one.setdefault("at", ""), str):
                bad(f"{place}: a measurement or series without a metric")
        for one in record["measurements"]:
            one["value"] = number(one.get("value"), f"{place}: {one['metric']}")
        for one in record["series"]:
            for key in ("x", "y"):
                if not isinstance(one.get(key), list):
                    bad(f"{place}: {one['metric']}.{key}: expected a list")
                one[key] = [number(value, f"{place}: {one['metric']}.{key}") for value in one[key]]
            if len(one["x"]) != len(one["y"]):
                bad(f"{place}: {one['metric']}: x and y differ in length")
    return Report(report["records"])


def panels(report, chart, found, most, size, below=False):
    """Yields (figure, axes, name) for every panel; with `below`, axes is a pair of which the lower is small."""
    names = list(found)
    if len(names) > most:
        print(f"{chart}: shows {most} of {len(names)} panels, choose others with --subject and --device",
              file=sys.stderr)
        names = names[:most]
    columns = min(len(names), 3) if len(names) != 4 else 2
    rows = math.ceil(len(names) / columns)
    figure = plt.figure(figsize=(size[0] * columns, size[1] * rows + 0.45), layout="constrained")
    figure.set_constrained_layout_pads(w_pad=0.07, h_pad=0.07, wspace=0.03, hspace=0.04)
    figure.later, figure.ends, figure.legend_items, figure.note = [], [], {}, ""
    report.figures[chart] = figure
    one_device = len({device for _, device in names}) == 1
    grid = figure.add_gridspec(rows, columns)
    for index, name in enumerate(names):
        cell = grid[index // columns, index % columns]
        if below:
            inner = cell.subgridspec(2, 1, height_ratios=[2.6, 1], hspace=0.05)
            axes = (figure.add_subplot(inner[0]), figure.add_subplot(inner[1]))
        else:
            axes = figure.add_subplot(cell)
        title = name[0] if len(name[0]) <= LONGEST_TITLE else name[0].replace("/", "/\n", 1)
        title = "\n".join(line if len(line) <= LONGEST_TITLE else line[:LONGEST_TITLE - 2] + ".."
                          for line in title.split("\n"))
        if not one_device or "," in name[1]:
            title += "\n" + "\n".join(textwrap.wrap(name[1], LONGEST_TITLE))
        (axes[0] if below else axes).set_title(title, loc="left")
        yield figure, axes, name
    if one_device and "," not in names[0][1]:
        figure.note = f"{figure.note} Device {names[0][1]}.".strip()


def legend_below(figure):
    """One legend and one line of notes under all panels; the figure grows by the room they take."""
    width, height = figure.get_size_inches()
    room = 0.05
    figure.note = textwrap.fill(figure.note, int(width / 0.052))
    if figure.note:
        room += 0.11 * (figure.note.count("\n") + 1) + 0.02
    if figure.legend_items:
        longest = max(len(name) for name in figure.legend_items)
        columns = max(1, min(len(figure.legend_items), int((width - 0.2) / (0.062 * longest + 0.42))))
        rows = math.ceil(len(figure.legend_items) / columns)
        columns = math.ceil(len(figure.legend_items) / rows)
        legend_room = 0.145 * rows + 0.06
    else:
        legend_room = 0
    total = height + room + legend_room
    figure.set_size_inches(width, total)
    if figure.note:
        figure.text(0.5, 0.05 / total, figure.note, fontsize=6.5, color=GREY, ha="center", va="bottom")
    if figure.legend_items:
        figure.legend(figure.legend_items.values(), figure.legend_items.keys(), loc="lower center", ncol=columns,
                      bbox_to_anchor=(0.5, room / total), frameon=False, fontsize=7, handlelength=1.8,
                      columnspacing=1.4, borderaxespad=0, borderpad=0.2, labelspacing=0.3)
    bottom = (room + legend_room) / total
    figure.get_layout_engine().set(rect=(0, bottom, 1, 1 - bottom))


def end_labels(figure, axes, ends):
    """Names the curves at their right ends. Positions are final only after the layout: place_end_labels()."""
    texts = [(y, axes.annotate(name, (1, y), xytext=(1.035, 0.5), xycoords=axes.get_yaxis_transform(),
                               textcoords="axes fraction", color=colour, fontsize=6.3, va="center",
                               annotation_clip=False, arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.5,
                                                                  "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)}))
             for y, name, colour in ends]
    # The layout must not see the leader lines (before it is settled they point anywhere), only the width of the names.
    for _, text in texts:
        text.set_in_layout(False)
    if ends:
        axes.text(1.035, 0.5, max((name for _, name, _ in ends), key=len), transform=axes.transAxes, fontsize=6.3, alpha=0)
    figure.ends.append((axes, texts))


def place_end_labels(figure):
    for axes, texts in figure.ends:
        if not texts:
            continue
        box = axes.get_window_extent()
        gap = 7.4 * figure.dpi / 72 / box.height  # a line of text, in axes heights
        left = axes.get_xlim()[0]
        wanted = sorted((((axes.transData.transform((left, y))[1] - box.y0) / box.height, index, text)
                         for index, (y, text) in enumerate(texts)), key=lambda one: one[:2])
        places = [one[0] for one in wanted]
        for _ in range(200):  # push neighbours apart until all have room
            moved = False
            for i in range(len(places) - 1):
                short = gap - (places[i + 1] - places[i])
                if short > 1e-4:
                    places[i], places[i + 1], moved = places[i] - short / 2, places[i + 1] + short / 2, True
            if places[0] < 0.02:
                shift = 0.02 - places[0]
                places[0], moved = places[0] + shift, moved or shift > 1e-4
            if places[-1] > 0.98 and gap * len(places) < 1:
                places[-1], moved = 0.98, True
            if not moved:
                break
        for place, one in zip(places, wanted):
            one[-1].set_position((1.035, place))


def point_labels(axes, labels):
    """Names points, each on the side where it hits no other label and no point."""
    figure = axes.figure
    renderer = figure.canvas.get_renderer()
    frame = axes.get_window_extent(renderer)
    scale = figure.dpi / 72
    points = [axes.transData.transform((x, y)) for x, y, _, _ in labels]
    taken = [(px - 4 * scale, py - 4 * scale, px + 4 * scale, py + 4 * scale) for px, py in points]
    taken += [(box.x0, box.y0, box.x1, box.y1) for box in (text.get_window_extent(renderer) for text in axes.texts)]
    offsets = [(6, 0, "left", "center"), (-6, 0, "right", "center"), (0, 6, "center", "bottom"), (0, -6, "center", "top"),
               (5, 5, "left", "bottom"), (5, -5, "left", "top"), (-5, 5, "right", "bottom"), (-5, -5, "right", "top"),
               (0, 14, "center", "bottom"), (0, -14, "center", "top"), (12, 11, "left", "bottom"),
               (12, -11, "left", "top"), (-12, 11, "right", "bottom"), (-12, -11, "right", "top"),
               (0, 23, "center", "bottom"), (0, -23, "center", "top")]
    for (x, y, name, colour), own in zip(labels, points):
        best = None
        for order, (dx, dy, ha, va) in enumerate(offsets):
            text = axes.annotate(name, (x, y), xytext=(dx, dy), textcoords="offset points", ha=ha, va=va, fontsize=6.5,
                                 color=colour, zorder=4)
            box = text.get_window_extent(renderer)
            hits = sum(min(box.x1, bx1) > max(box.x0, bx0) and min(box.y1, by1) > max(box.y0, by0)
                       for bx0, by0, bx1, by1 in taken
                       if not (bx0 < own[0] < bx1 and by0 < own[1] < by1 and bx1 - bx0 < 9 * scale))
            far = max(abs(dx), abs(dy)) > 10
            if far:  # its leader must not cross a name
                end = (min(max(own[0], box.x0), box.x1), min(max(own[1], box.y0), box.y1))
                for t in (0.3, 0.45, 0.6, 0.75, 0.9):
                    px, py = own[0] + t * (end[0] - own[0]), own[1] + t * (end[1] - own[1])
                    hits += any(bx0 < px < bx1 and by0 < py < by1 for bx0, by0, bx1, by1 in taken)
            outside = box.x0 < frame.x0 or box.x1 > frame.x1 or box.y0 < frame.y0 or box.y1 > frame.y1
            cost = hits * 10 + outside * 15 + order * 0.1
            if best is None or cost < best[0]:
                if best:
                    best[1].remove()
                best = (cost, text, (box.x0, box.y0, box.x1, box.y1), far)
            else:
                text.remove()
            if cost < 1.6 and order == 0:
                break
        taken.append(best[2])
        if best[3]:  # far from its point: a thin line leads there
            best[1].arrow_patch = None
            dx, dy = best[1].xyann
            axes.annotate("", (x, y), xytext=(dx, dy), textcoords="offset points",
                          arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.5, "shrinkA": 0, "shrinkB": 3})
