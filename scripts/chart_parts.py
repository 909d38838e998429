"""What the charts share: one style for each policy, a figure of panels whose sizes follow from measured text, axes, labels,
legends, and files that contain their provenance.

All lengths are inches. Widths of text are measured before anything is placed, so nothing depends on a later layout.
"""

import functools
import io
import itertools
import math
import sys

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

INK, GREY, GRID = "#1A1A1A", "#595959", "0.92"
SMALL, BODY, TITLE = 6.8, 7.5, 8.2  # points
LINE = 1.32 / 72                    # inches of height for a point of text with its spacing
MARKER = 5.5                        # points
MOST_PANELS, MOST_ROWS, MOST_SOURCES = 9, 6, 4  # more would be too small to read
EDGE, GAP = 0.1, 0.08
FIT = 1.04  # drawn text may be wider than the measured outline by the rounding to pixels

# One style per policy in every chart: colour-blind-safe hues after Okabe and Ito and after Tol, darkened to a contrast of 3 : 1 to
# every background here; marker and dash together are unique, so that nothing depends on colour alone.
SOLID, DASHED, DOTTED, DASH_DOT = "-", (0, (4, 1.6)), (0, (1.2, 1.2)), (0, (5, 1.4, 1.2, 1.4))
LOOKS = {
    "fp32": ("#000000", "o", SOLID), "tf32": ("#666666", "s", DOTTED), "fp16": ("#B84300", "^", SOLID),
    "fp16-bn32": ("#882255", "v", DASHED), "amp-fp16": ("#946200", "D", DASH_DOT), "bf16": ("#0065A3", "P", SOLID),
    "amp-bf16": ("#3585C4", "X", DASHED),
}
SPARE = [(colour, marker, dash) for dash, markers in ((DASH_DOT, "h<>p8*d"), (DOTTED, "H^vDPXo"), (DASHED, "s<>p8*d"))
         for colour, marker in zip(("#007A5A", "#AA4499", "#5A50C8", "#661100", "#4E7A00", "#B3434F", "#44546A"), markers)]


def new_figure(size):
    figure = Figure(figsize=size, dpi=100)
    FigureCanvasAgg(figure)
    return figure


def style(policy):
    """Colour, marker, dash. Policies unknown here get the spare styles in order."""
    if policy not in LOOKS:
        LOOKS[policy] = SPARE[len(LOOKS) % len(SPARE)]
    return LOOKS[policy]


def set_defaults():
    matplotlib.rcParams.update({
        "font.family": "DejaVu Sans", "font.size": BODY, "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK,
        "ytick.color": INK, "axes.edgecolor": INK, "axes.spines.top": False, "axes.spines.right": False,
        "axes.linewidth": 0.7, "xtick.major.width": 0.7, "ytick.major.width": 0.7, "xtick.labelsize": SMALL,
        "ytick.labelsize": SMALL, "axes.labelsize": BODY, "axes.labelpad": 2.5, "svg.hashsalt": "halfmark", "svg.fonttype": "path",
        "hatch.linewidth": 0.5, "text.parse_math": False})  # names may hold a $


@functools.lru_cache(maxsize=None)
def advance_of(character):
    """In units of the font's size."""
    font = get_font(findfont("DejaVu Sans"))
    font.set_size(100, 72)
    return font.load_char(ord(character)).linearHoriAdvance / 65536 / 100


def width_of(text, size):
    """Width of the widest line."""
    return max(sum(map(advance_of, line)) for line in text.split("\n")) * size * FIT / 72


def wrapped(text, width, size, most=None):
    """Breaks after a space, or after / _ , - where a word is too long, or anywhere; at most `most` lines."""
    lines, rest = [], text
    while rest and width_of(rest, size) > width:
        fits = max(1, next(count for count in range(len(rest), -1, -1)
                           if count <= 1 or width_of(rest[:count], size) <= width))
        place = max(rest.rfind(" ", 0, fits + 1), 0)
        if not place:
            place = max((rest.rfind(mark, 0, fits) + 1 for mark in "/_,-="), default=0)
            place = place if place > fits // 2 else fits
        lines.append(rest[:place].rstrip())
        rest = rest[place:].lstrip()
    lines += [rest] if rest or not lines else []
    if most and len(lines) > most:
        lines = lines[:most - 1] + [lines[most - 1][:-2] + ".."]
    return "\n".join(lines)


def height_of(text, size):
    return (text.count("\n") + 1) * size * LINE if text else 0


def power(base, exponent):
    """"10⁻³" in Unicode characters, without math typesetting."""
    return str(base) + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def power_ticks(low, high, length, base=10):
    """Ticks of a logarithmic axis at powers, as many as stay readable: positions and texts."""
    first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
    step = max(1, math.ceil((last - first + 1) * 0.16 / length))
    exponents = [exponent for exponent in range(first, last + 1) if exponent % step == 0]
    return [float(base) ** exponent for exponent in exponents], [power(base, exponent) for exponent in exponents]


def round_ticks(low, high, length, form, vertical=False):
    """Ticks of a logarithmic axis at round numbers, as many as fit: positions and texts."""
    def place(value):
        return length * math.log(value / low) / math.log(high / low)
    taken, found = [], {}
    for mantissas in ((1,), (2, 5), (3, 1.5), (1.2, 2.5, 4, 7), (1.1, 1.3, 1.4, 1.6, 1.8, 2.2, 6, 8)):
        for decade in range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1):
            for mantissa in mantissas:
                tick = float(f"{mantissa * 10.0 ** decade:.4g}")
                if not low * 0.9999 <= tick <= high * 1.0001:
                    continue
                room = 0.17 if vertical else width_of(form(tick), SMALL) + 0.12
                if all(abs(place(tick) - other) >= (room + size) / 2 for other, size in taken):
                    taken.append((place(tick), room))
                    found[tick] = form(tick)
    return list(found), list(found.values())


def step_of(length, most, steps):
    """The first of the steps, and then of the powers of ten, that divides the length into at most `most` parts."""
    return next(step for step in itertools.chain(steps, (10 ** exponent for exponent in range(300))) if length / step <= most)


def set_ticks(axis, ticks):
    axis.set_ticks(ticks[0])
    axis.set_ticklabels(ticks[1])
    axis.set_minor_locator(NullLocator())


def shape_of_legend(labels, width):
    """Columns and height of a legend of the full width."""
    if not labels:
        return 1, 0
    widest = max(width_of(label, SMALL) for label in labels)
    columns = max(1, min(len(labels), int(width / (widest + 0.48))))
    rows = math.ceil(len(labels) / columns)
    columns = math.ceil(len(labels) / rows)
    lines = max(label.count("\n") + 1 for label in labels)
    return columns, rows * (lines * SMALL * LINE + 0.035) + 0.06


LEGEND = {"frameon": False, "fontsize": SMALL, "handlelength": 2.6, "handletextpad": 0.5, "columnspacing": 1.0,
          "borderaxespad": 0, "borderpad": 0.2, "labelspacing": 0.3}


def line_of(policy, **more):
    colour, marker, dash = style(policy)
    return Line2D([], [], **{"color": colour, "marker": marker, "ls": dash, "lw": 1.2, "ms": 4, **more})


class Sheet:
    """A figure of panels. With one source they fill rows, the largest subject first; with several, each source is a column and
    each subject a row. `size` is that of the axes of a panel, `lower` the height of a second axes under it."""

    def __init__(self, chart, title, panels, sources, size, left=0.66, right=0.12, bottom=0.4, lower=0, most=MOST_PANELS):
        self.chart, self.title, self.sources = chart, title, sources
        self.size, self.left, self.right, self.bottom, self.lower = size, left, right, bottom, lower
        self.legend, self.notes, self.heads, self.below, self.absent = {}, [], {}, {}, []
        rows = list(dict.fromkeys(panel.row for panel in panels))
        if len(sources) > 1:
            self.columns = min(len(sources), MOST_SOURCES)
            self.say_left_out(len(sources), MOST_SOURCES, "sources (devices of reports), choose others with --device")
            self.say_left_out(len(rows), MOST_ROWS, "rows of panels, choose others with --subject and --policy")
            places = {(row, source): (line, source) for line, row in enumerate(rows[:MOST_ROWS])
                      for source in range(self.columns)}
            self.panels = [panel for panel in panels if (panel.row, panel.source) in places]
            self.place = {panel: places.pop((panel.row, panel.source)) for panel in self.panels}
            self.absent = list(places.items())
            self.rows = min(len(rows), MOST_ROWS)
        else:
            self.say_left_out(len(panels), most, "panels, choose others with --subject, --policy and --device")
            self.panels = panels[:most]
            self.columns = min(len(self.panels), 3) if len(self.panels) != 4 else 2
            self.rows = math.ceil(len(self.panels) / self.columns)
            self.place = {panel: divmod(index, self.columns) for index, panel in enumerate(self.panels)}
        self.figure = new_figure((1, 1))
        self.axes = {panel: self.figure.add_axes((0, 0, 1, 1), label=str(panel)) for panel in self.panels}
        self.lower_axes = {panel: self.figure.add_axes((0, 0, 1, 1), label=f"lower {panel}") for panel in self.panels if lower}
        for axes in [*self.axes.values(), *self.lower_axes.values()]:
            axes.panel_width = size[0]

    def say_left_out(self, count, most, what):
        if count > most:
            print(f"{self.chart}: shows {most} of {count} {what}", file=sys.stderr)

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)

    def head(self, panel, text):
        """A line under the title of the panel."""
        self.heads.setdefault(panel, []).append(text)

    def title_of(self, panel, width):
        lines = [wrapped(panel.subject, width, TITLE, 4)]
        if len(self.sources) > 1:
            lines.append(wrapped(self.sources[panel.source].title(), width, SMALL))
        if panel.settings:
            lines.append(wrapped(panel.settings, width, SMALL))
        lines += [wrapped(text, width, SMALL) for text in self.heads.get(panel, [])]
        return lines[0], "\n".join(lines[1:])

    def settle(self):
        """Fixes the size of the figure and places everything in it."""
        width = self.columns * (self.left + self.size[0] + self.right) + 2 * EDGE
        if self.columns == 1:  # a caption needs some width
            width = max(width, 4.6)
        inner = width - 2 * EDGE
        titles = {panel: self.title_of(panel, self.size[0] + self.right - GAP) for panel in self.panels}
        over = max(height_of(name, TITLE) + height_of(more, SMALL) for name, more in titles.values()) + 0.06
        legends = {panel: shape_of_legend([label for label, _ in items], self.size[0] + self.right - GAP)
                   for panel, items in self.below.items()}
        under = max((height for _, height in legends.values()), default=0)
        columns, legend_height = shape_of_legend(list(self.legend), inner)
        caption = "\n".join(wrapped(text, inner, SMALL) for text in [" ".join(self.notes)] +
                            [source.provenance() for source in self.sources[:self.columns if len(self.sources) > 1 else 1]])
        caption_height = height_of(caption, SMALL)
        heading = wrapped(self.title, inner, TITLE + 1)
        heading_height = height_of(heading, TITLE + 1) + 0.06
        row_height = over + self.size[1] + (self.lower + 0.1 if self.lower else 0) + self.bottom + under + GAP
        height = EDGE + caption_height + 0.06 + legend_height + self.rows * row_height + heading_height + EDGE
        self.figure.set_size_inches(width, height)

        def box(x, y, w, h):
            return x / width, y / height, w / width, h / height
        self.figure.text(EDGE / width, 1 - EDGE / height, heading, fontsize=TITLE + 1, fontweight="normal", va="top", linespacing=1.15)
        for panel, (row, column) in self.place.items():
            name, more = titles[panel]
            x = EDGE + column * (self.left + self.size[0] + self.right) + self.left
            top = height - EDGE - heading_height - row * row_height - over
            self.axes[panel].set_position(box(x, top - self.size[1], *self.size))
            rise = top + 0.04 + height_of(more, SMALL)
            self.figure.text(x / width, (rise + height_of(name, TITLE)) / height, name, fontsize=TITLE, va="top", linespacing=1.15)
            self.figure.text(x / width, rise / height, more, fontsize=SMALL, color=GREY, va="top", linespacing=1.15)
            base = top - self.size[1]
            if self.lower:
                base -= self.lower + 0.1
                self.lower_axes[panel].set_position(box(x, base, self.size[0], self.lower))
            if panel in self.below:
                labels, handles = zip(*self.below[panel])
                legend = self.figure.legend(handles, labels, loc="upper left", ncol=legends[panel][0],
                                            bbox_to_anchor=(x / width, (base - self.bottom) / height),
                                            **LEGEND)
                legend.set_in_layout(False)
        for ((subject, _), source), (row, column) in self.absent:
            x = EDGE + column * (self.left + self.size[0] + self.right) + self.left
            top = height - EDGE - heading_height - row * row_height - over
            text = wrapped(f"{self.sources[source].title()}: nothing to draw for {subject}", self.size[0], SMALL)
            self.figure.text(x / width, (top - 0.3) / height, text, fontsize=SMALL, color=GREY, va="top", linespacing=1.15)
        self.figure.text(EDGE / width, EDGE / height, caption, fontsize=SMALL, color=GREY, va="bottom", linespacing=1.15)
        if self.legend:
            self.figure.legend(self.legend.values(), self.legend.keys(), loc="lower center", ncol=columns,
                               bbox_to_anchor=(0.5, (EDGE + caption_height + 0.06) / height), **LEGEND)
        return self.figure

    def provenance(self):
        return " ".join(source.provenance() for source in self.sources)


def end_labels_fit(names, height):
    return (not names or max(width_of(name, SMALL) for name in names) <= 1.2) and len(names) * SMALL * LINE <= height


def end_labels(axes, height, ends, last):
    """Writes the names (y, name, colour) right of x = last, each as close to its y as the others allow. Call it when the limits
    of the axes are final."""
    if not ends:
        return
    to_axes = axes.transData + axes.transAxes.inverted()
    left = axes.get_xlim()[0]
    end = to_axes.transform((last, axes.get_ylim()[0]))[0]
    gap, inch = SMALL * LINE / height, 1 / axes.panel_width
    wanted = sorted((min(max(to_axes.transform((left, y))[1], 0), 1), index) for index, (y, _, _) in enumerate(ends))
    # Least squares with a minimum gap: neighbours that are too close share their mean (isotonic regression).
    pools = []
    for rank, (place, _) in enumerate(wanted):
        pools.append([place - rank * gap, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            mean, count = pools.pop()
            pools[-1] = [(pools[-1][0] * pools[-1][1] + mean * count) / (pools[-1][1] + count), pools[-1][1] + count]
    shifted = [mean for mean, count in pools for _ in range(count)]
    for rank, (place, index) in enumerate(wanted):
        target = min(max(shifted[rank], 0), 1 - (len(wanted) - 1) * gap) + rank * gap
        _, name, colour = ends[index]
        axes.add_artist(Line2D([end, end + 0.1 * inch], [place, target], transform=axes.transAxes, color=colour, lw=0.7,
                               clip_on=False))
        axes.text(end + 0.12 * inch, target, name, transform=axes.transAxes, fontsize=SMALL, va="center")


def every(order, count, x, logarithmic=False, marks=6):
    """Which points of a curve get a marker: few, evenly along the axis, and different ones for each curve."""
    along = np.log(np.maximum(x, 1)) if logarithmic else np.asarray(x, float)
    wanted = along[0] + (along[-1] - along[0]) * (np.arange(marks) + (order + 0.5) / max(1, count)) / marks
    return sorted({int(np.abs(along - place).argmin()) for place in wanted})


def write(sheet, folder, formats, dpi):
    """Writes the figure with its provenance in the file, and yields the paths."""
    facts = {"Title": sheet.title, "Source": sheet.provenance(), "Description": " ".join(sheet.notes)}
    for kind in formats:
        path = folder / f"{sheet.chart}.{kind}"
        write_figure(sheet.figure, path, kind, dpi, facts)
        yield path


def write_figure(figure, path, kind, dpi, facts):
    """Stores Title, Source and Description in the file, and no date: equal input gives an equal file."""
    if kind == "png":
        write_png(figure, path, dpi, facts)
    elif kind == "svg":
        figure.savefig(path, metadata=dict(facts, Date=None))
    else:
        figure.savefig(path, metadata={"Title": facts["Title"], "Subject": facts["Source"], "Keywords": facts["Description"],
                                       "CreationDate": None})


def write_png(figure, path, dpi, facts):
    """Reduced to 256 colours, which makes the file three times smaller; charts have few colours."""
    from PIL import Image, PngImagePlugin  # comes with matplotlib
    pixels = io.BytesIO()
    figure.savefig(pixels, format="png", dpi=dpi)
    picture = Image.open(pixels).convert("RGB")
    words = PngImagePlugin.PngInfo()
    for key, text in facts.items():
        words.add_itxt(key, text)
    picture.quantize(256, dither=0).save(path, format="png", optimize=True, dpi=(dpi, dpi), pnginfo=words)
