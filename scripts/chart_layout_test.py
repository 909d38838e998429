#!/usr/bin/env python3
"""Tests of how the charts look, measured on the drawn figures: no overlapping or cut text, contrast, styles that differ in grey."""

import copy
import itertools
import json
import pathlib
import tempfile
import unittest

from charts_testing import QUICK, made_up_report, many_policies, of_other_machine, replaced

try:
    import matplotlib
except ImportError:
    matplotlib = None
if matplotlib:
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Polygon, Rectangle
    from matplotlib.text import Text

    import chart_figures
    import chart_parts
    import charts
    import history_charts
    from chart_report import Reports
    from history_charts_test import made_history

LONG = {"mlp/b64_i784_h512_o10": "mine/a_model_of_the_team_with_a_rather_long_name_for_a_subject",
        "cnn/b32_c3_s32": "W" * 60, "transformer/b8_t128_d256_l4": "$a name$ with spaces and a $dollar or two of sixty characters"}
WHITE = (1.0, 1.0, 1.0, 1.0)


def luminance(colour):
    """Relative luminance after WCAG 2."""
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour[:3]]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one, other):
    low, high = sorted((luminance(to_rgba(one)), luminance(to_rgba(other))))
    return (high + 0.05) / (low + 0.05)


def drawn_texts(figure):
    """[(Text, box)] of every text that is really drawn; ticks outside the range, for example, are not."""
    found, draw = [], Text.draw

    def watched(text, renderer, *arguments, **more):
        if text.get_visible() and text.get_text().strip():
            found.append(text)
        return draw(text, renderer, *arguments, **more)
    Text.draw = watched
    try:
        figure.draw_without_rendering()
    finally:
        Text.draw = draw
    renderer = figure.canvas.get_renderer()
    boxes = []
    for text in dict.fromkeys(found):
        box = Text.get_window_extent(text, renderer)
        boxes.append((text, (box.x0, box.y0, box.x1, box.y1)))
    return boxes


def overlap(one, other, allowed=0.5):
    """Whether two boxes (in pixels) overlap by more than rounding, in both directions."""
    return (min(one[2], other[2]) - max(one[0], other[0]) > allowed and
            min(one[3], other[3]) - max(one[1], other[1]) > allowed)


def spans(axes):
    """The shaded parts of the axes: (colour, box in pixels)."""
    found = []
    for patch in axes.patches:
        is_span = isinstance(patch, (Polygon, Rectangle)) and patch.get_linewidth() == 0 and patch.get_zorder() == 0
        if is_span:
            box = patch.get_window_extent()
            found.append((patch.get_facecolor(), (box.x0, box.y0, box.x1, box.y1)))
    return found


@unittest.skipUnless(matplotlib, "no Python package matplotlib (install python3-matplotlib)")
class Layout(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        chart_parts.set_defaults()
        made_up = made_up_report()
        cls.reports = {
            "made up": [made_up], "long names": [replaced(made_up, subject=LONG)],
            "14 policies": [many_policies(made_up_report(["mlp/b64_i784_h512_o10", "cnn/b32_c3_s32"]), 14)],
            "14 policies with long names": [many_policies(made_up_report(["cnn/b32_c3_s32"]), 14,
                                                          "a-policy-with-a-name-of-forty-letters-{}")],
            "long names on two machines": [replaced(made_up, subject=LONG), of_other_machine(replaced(made_up, subject=LONG))],
        }
        if QUICK.exists():
            quick = json.loads(QUICK.read_text())
            cls.reports["a real run"] = [quick]
            cls.reports["real runs on two machines"] = [quick, of_other_machine(quick)]
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.figures = {}
        for name, reports in cls.reports.items():
            paths = [pathlib.Path(cls.folder.name) / f"{index}.json" for index in range(len(reports))]
            for path, report in zip(paths, reports):
                path.write_text(json.dumps(report))
            for sheet in charts.draw_sheets(Reports(paths, lambda subject: True, lambda device: True)):
                cls.figures[f"{sheet.chart} of {name}"] = sheet.figure
        history = made_history()
        busy = copy.deepcopy(history["series"][0])
        busy["changes"] = [{"at": at, "before": 1.0, "after": 1.04, "p": 1e-9, "worse": at % 2 == 0} for at in (3, 4, 6, 25, 39)]
        for series in ([busy], history["series"]):
            figure, _ = history_charts.draw_history(history, series)
            cls.figures[f"history of {len(series)}"] = figure
        cls.texts = {name: drawn_texts(figure) for name, figure in cls.figures.items()}

    def test_every_chart_is_there(self):
        real = 0
        if QUICK.exists():  # a report of an older program may lack standard errors of accuracies, or the roofline
            text = QUICK.read_text()
            real = 2 * (len(charts.CHARTS) - ("standard_error" not in text) - ("roofline.intensity" not in text))
        self.assertEqual(len(self.figures), 5 * len(charts.CHARTS) + real + 2)
        for name, texts in self.texts.items():
            self.assertGreater(len(texts), 8, name)

    def test_no_two_texts_overlap(self):
        for name, texts in self.texts.items():
            for (one, box), (other, other_box) in itertools.combinations(texts, 2):
                self.assertFalse(overlap(box, other_box), f"{name}: {one.get_text()!r} over {other.get_text()!r}")

    def test_every_text_lies_inside_the_figure(self):
        for name, texts in self.texts.items():
            width, height = self.figures[name].get_size_inches() * self.figures[name].dpi
            for text, box in texts:
                self.assertTrue(box[0] >= 0 and box[1] >= 0 and box[2] <= width and box[3] <= height,
                                f"{name}: {text.get_text()!r} leaves the figure: {box} of {width:.0f} x {height:.0f}")

    def test_the_name_of_a_strip_stays_in_the_strip(self):
        checked = 0
        for name, texts in self.texts.items():
            for text, box in texts:
                if text.get_text() != "no valid\ntime":
                    continue
                strip = [span for axes in self.figures[name].axes for _, span in spans(axes)
                         if text in axes.get_xticklabels() and span[3] - span[1] > span[2] - span[0]]
                self.assertTrue(any(span[0] <= box[0] and box[2] <= span[2] for span in strip), f"{name}: {box} of {strip}")
                checked += 1
        self.assertGreater(checked, 5)

    def test_texts_have_a_contrast_of_4_5(self):
        for name, texts in self.texts.items():
            shaded = [span for axes in self.figures[name].axes for span in spans(axes)]
            for text, box in texts:
                for background in [WHITE] + [colour for colour, span in shaded if overlap(box, span)]:
                    found = contrast(text.get_color(), background)
                    self.assertGreaterEqual(found, 4.5, f"{name}: {text.get_text()!r} on {background}")

    def test_lines_and_markers_have_a_contrast_of_3(self):
        seen = set()
        for name, figure in self.figures.items():
            for axes in figure.axes:
                backgrounds = [WHITE] + [colour for colour, _ in spans(axes)]
                for line in axes.get_lines() + [one for one in axes.artists if hasattr(one, "get_linestyle")]:
                    colours = {to_rgba(line.get_color()), to_rgba(line.get_markeredgecolor())}
                    self.assertIn(line.get_alpha(), (None, 1), name)
                    seen |= colours
                    for colour, background in itertools.product(colours, backgrounds):
                        self.assertGreaterEqual(contrast(colour, background), 3, f"{name}: {colour} on {background}")
        self.assertGreater(len(seen), 15)

    def test_bars_have_an_edge_with_a_contrast_of_3(self):
        bars = [patch for name, figure in self.figures.items() if name.startswith("memory") for axes in figure.axes
                for patch in axes.patches]
        self.assertGreater(len(bars), 50)
        for bar in bars:
            self.assertGreaterEqual(contrast(bar.get_edgecolor(), WHITE), 3)
            self.assertGreater(bar.get_linewidth(), 0)

    def test_policies_differ_without_colour(self):
        looks = [*(chart_parts.LOOKS[policy] for policy in ("fp32", "tf32", "fp16", "fp16-bn32", "amp-fp16", "bf16", "amp-bf16")),
                 *chart_parts.SPARE]
        self.assertEqual(len({(marker, str(dash)) for _, marker, dash in looks}), len(looks))
        self.assertGreaterEqual(len(chart_parts.SPARE), 14)

    def test_purposes_differ_in_grey(self):
        for (one, (colour, hatch)), (other, (second, other_hatch)) in itertools.combinations(chart_figures.PURPOSES.items(), 2):
            self.assertTrue(hatch != other_hatch or contrast(colour, second) > 1.3, f"{one} and {other}")


if __name__ == "__main__":
    unittest.main()
