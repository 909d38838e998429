#!/usr/bin/env python3
"""Reads the CSV of `halfmark export --to csv` from standard input and writes the same rows as Parquet.

    halfmark export report.json --to csv | export_parquet.py -o report.parquet

Exit code 2, with one line that says why, if it fails.
"""

import argparse
import sys

COLUMNS = {  # columns of numbers; every other column is text
    "case_version": "int64", "value": "float64", "interval_low": "float64", "interval_high": "float64",
    "standard_error": "float64", "bound": "float64", "samples": "int64"}


def read(source):
    import pyarrow
    import pyarrow.csv
    header, newline, rest = source.partition(b"\r\n")
    names = header.decode().split(",")
    types = {name: getattr(pyarrow, COLUMNS[name])() if name in COLUMNS else pyarrow.string() for name in names}
    # A missing number is an empty field; NaN and infinities are numbers. Text may be empty.
    convert = pyarrow.csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=False)
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    return pyarrow.csv.read_csv(pyarrow.py_buffer(source), parse_options=parse, convert_options=convert)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", required=True)
    arguments = parser.parse_args()
    try:
        import pyarrow.parquet
    except ImportError:
        print("no Python package pyarrow (python3 -m pip install pyarrow); csv needs none", end="", file=sys.stderr)
        return 2
    try:
        pyarrow.parquet.write_table(read(sys.stdin.buffer.read()), arguments.output)
    except (OSError, pyarrow.ArrowException) as error:
        print(f"{arguments.output}: {str(error).splitlines()[0]}", end="", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
