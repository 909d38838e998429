#!/usr/bin/env python3
"""Draws the charts of one report or of several side by side: speed against error, the roofline, memory, exponents of
the gradients, BatchNorm drift, training, held-out accuracy.

Reads only the JSON reports. Prints the names of the files written. If the reports lack the data for a chart, standard error
says which data is missing.
"""

import argparse
import fnmatch
import pathlib
import sys

from chart_report import LeftOut, Reports, ending

MISSING = ""  # the Python package that cannot be imported; --help works without it
try:
    import matplotlib  # noqa: F401: imported here, so that one line reports a missing package
    import numpy  # noqa: F401
except ImportError as error:
    MISSING = error.name
else:
    from chart_accuracy import accuracy
    from chart_curves import batchnorm_drift, training
    from chart_figures import gradient_range, memory, speed_against_error
    from chart_parts import set_defaults, write
    from chart_roofline import roofline

    CHARTS = [speed_against_error, roofline, memory, gradient_range, batchnorm_drift, training, accuracy]
FORMATS = ("png", "svg", "pdf")
EXAMPLES = """examples:
  charts.py report.json                                all charts of a report, into the folder charts
  charts.py report.json -o pictures --format png,svg   as PNG and as SVG
  charts.py a.json b.json -o both                      two machines or builds side by side in each chart
  charts.py report.json --subject 'mlp/*' --device cpu

With several reports, or several devices in a report, each is a column A, B, ..., named in the caption. Subjects with the most
work per step come first. The caption and the metadata of the file state git revision, device and time of the run.

Exit codes: 0 drawn, even if some charts were left out (standard error says which and why); 2 a file is not a report, the folder
cannot be written, or matplotlib is missing; 3 no chart has what it needs in the reports."""


def draw_sheets(reports):
    """Yields the finished sheets; reports on standard error which charts cannot be drawn and why."""
    for chart in CHARTS:
        try:
            sheet = chart(reports)
            sheet.settle()
        except LeftOut as reason:
            print(f"{chart.__name__}: not drawn: {reason}", file=sys.stderr)
            continue
        except (ArithmeticError, ValueError) as error:
            print(f"{chart.__name__}: not drawn: no axis can hold its numbers ({error})", file=sys.stderr)
            continue
        yield sheet


def main():
    parser = argparse.ArgumentParser(description="Draws the charts of halfmark reports.", epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", metavar="REPORT.json", type=pathlib.Path, nargs="+")
    parser.add_argument("-o", dest="folder", metavar="DIR", type=pathlib.Path, default=pathlib.Path("charts"),
                        help="output folder, created if missing (default: charts)")
    parser.add_argument("--format", default="png", help="png, svg, pdf, or several: png,svg (default: png)")
    parser.add_argument("--subject", default="*", metavar="GLOB", help="only subjects that match")
    parser.add_argument("--device", default="*", metavar="GLOB", help="only devices that match")
    parser.add_argument("--policy", default="*", metavar="GLOB", help="only policies that match")
    parser.add_argument("--dpi", type=int, default=160, choices=range(50, 1201), metavar="50..1200",
                        help="of a PNG (default: 160)")
    arguments = parser.parse_args()
    if MISSING:
        print(f"charts.py: no Python package {MISSING} for {sys.executable}: install python3-matplotlib, or start it with a "
              "python3 that has matplotlib", file=sys.stderr)
        return 2
    formats = list(dict.fromkeys(arguments.format.split(",")))
    if unknown := set(formats) - set(FORMATS):
        parser.error(f"--format: no such format: {', '.join(sorted(unknown))} ({', '.join(FORMATS)})")
    set_defaults()

    def draw():
        reports = Reports(arguments.reports, lambda subject: fnmatch.fnmatchcase(subject, arguments.subject),
                          lambda device: fnmatch.fnmatchcase(device, arguments.device),
                          lambda policy: fnmatch.fnmatchcase(policy, arguments.policy))
        arguments.folder.mkdir(parents=True, exist_ok=True)
        drawn = False
        for sheet in draw_sheets(reports):
            for path in write(sheet, arguments.folder, formats, arguments.dpi):
                print(path)
            drawn = True
        if not drawn:
            print(f"nothing drawn from {', '.join(map(str, arguments.reports))}: no chart has what it needs", file=sys.stderr)
            return 3
        return 0

    return ending(draw, arguments.folder)


if __name__ == "__main__":
    sys.exit(main())
