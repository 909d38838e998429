#!/usr/bin/env python3
"""Checks reports against reports/schema: one line per problem; exit code 1 if there is any, 2 when a file cannot be read."""

import argparse
import json
import pathlib
import sys

SCHEMA = pathlib.Path(__file__).resolve().parent.parent / "reports" / "schema" / "report-1.schema.json"
LONGEST = 100  # characters of a message: some messages contain the whole value


def place(error):
    text = ""
    for step in error.absolute_path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text or "the report"


def no_constant(name):
    raise ValueError(f"{name} is not JSON, it is written as the string \"{name}\"")


def problems(report, validator):
    for error in sorted(validator.iter_errors(report), key=lambda error: [str(step) for step in error.absolute_path]):
        message = " ".join(error.message.split())
        yield f"{place(error)}: {message if len(message) <= LONGEST else message[:LONGEST - 3] + '...'}"
    # Rules that a JSON Schema cannot express.
    seen = set()
    records = report.get("records") if isinstance(report, dict) else None
    for index, record in enumerate(records if isinstance(records, list) else []):
        if not isinstance(record, dict):
            continue
        if record.get("id") in seen:
            yield f"records[{index}].id: {record['id']} is used twice"
        if isinstance(record.get("id"), str):
            seen.add(record["id"])
        series = record.get("series")
        for number, one in enumerate(series if isinstance(series, list) else []):
            x, y = (one.get("x"), one.get("y")) if isinstance(one, dict) else (None, None)
            if isinstance(x, list) and isinstance(y, list) and len(x) != len(y):
                yield f"records[{index}].series[{number}]: x has {len(x)} values and y has {len(y)}"


def main():
    parser = argparse.ArgumentParser(description="Check halfmark reports against their JSON Schema.")
    parser.add_argument("reports", nargs="+", metavar="REPORT")
    parser.add_argument("--schema", type=pathlib.Path, default=SCHEMA)
    arguments = parser.parse_args()
    try:
        import jsonschema
    except ImportError:
        print("validate_report.py: needs the Python package jsonschema (python3-jsonschema)", file=sys.stderr)
        return 2
    try:
        schema = json.loads(arguments.schema.read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
    except (OSError, ValueError, jsonschema.SchemaError) as error:
        print(f"{arguments.schema}: not a usable schema: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    validator = jsonschema.Draft202012Validator(schema)

    code = 0
    for path in arguments.reports:
        try:
            with open(path, encoding="utf-8") as file:
                report = json.load(file, parse_constant=no_constant)
        except (OSError, ValueError, RecursionError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            print(f"{path}: cannot be read: {reason}", file=sys.stderr)
            code = 2
            continue
        found = list(problems(report, validator))
        for problem in found:
            print(f"{path}: {problem}")
        if found:
            code = max(code, 1)
        else:
            print(f"{path}: valid")
    return code


if __name__ == "__main__":
    sys.exit(main())
