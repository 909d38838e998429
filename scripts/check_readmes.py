#!/usr/bin/env python3
"""Checks that every source file is named in the README.md (or another Markdown file) of its folder or of a folder above.

    scripts/check_readmes.py [FOLDER]      exit code 1 if a file is not named

A README names a file by a word in backquotes: its name, its name without the ending, a glob such as `lint_rules.*`, or its folder with
a slash: `fuzz/`. Tests are not named: they have the name of what they test.
"""

import fnmatch
import pathlib
import re
import sys

from source_tree import tree_files

SOURCES = {".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".cmake"}
TEST = re.compile(r"_test\.\w+$")


def words_of(page):
    """The words in backquotes; of `scripts/x.py ARGUMENTS` the first."""
    spans = re.findall(r"`+([^`\n]+)`+", page.read_text(encoding="utf-8"))
    return {word for span in spans for word in re.split(r"[\s,]+", span)[:1]}


def names_of(path, folder, described):
    """What a page of `folder` may call the file. A folder with pages of its own names its files there."""
    within = path.relative_to(folder)
    names = {within.as_posix(), within.name, within.stem, within.with_suffix("").as_posix()}
    for inner in [above for above in within.parents if above != pathlib.Path(".")]:
        if folder / inner not in described:
            names |= {f"{inner.as_posix()}/", f"{inner.name}/"}
    return names


def unnamed(root, files):
    """The paths that no Markdown file of their folder or of a folder above names; the front page is about the whole."""
    words = {}
    for folder in {folder for path in files for folder in path.parents if folder != pathlib.Path(".")}:
        pages = sorted((root / folder).glob("*.md"))
        if pages:
            words[folder] = set().union(*map(words_of, pages))
    for path in files:
        above = [folder for folder in path.parents if folder in words]
        if path.suffix in SOURCES and not TEST.search(path.name) and above:
            if not any(fnmatch.fnmatchcase(name, word) for folder in above for name in names_of(path, folder, words)
                       for word in words[folder]):
                yield path, above[0]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    missing = list(unnamed(root, [pathlib.Path(path) for path in tree_files(root)[0]]))
    for path, folder in missing:
        print(f"{path}: the README.md of {folder} does not name it")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
