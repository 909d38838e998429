#!/usr/bin/env python3
"""Checks where the binaries of a folder look for libraries: the RPATH or RUNPATH of every ELF file, as readelf shows it.

    check_binaries.py [--installed] FOLDER    a line per violation; exit code 1 if there is any

An empty or relative element makes the loader search the current directory, where anybody may have put a library of that
name. In an archive (--installed) an element must start with $ORIGIN, or be one of INSTALLED_ALSO.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

ENTRY = re.compile(r"\((RPATH|RUNPATH)\)\s+Library (?:rpath|runpath): \[(.*)\]$", re.MULTILINE)
ORIGIN = re.compile(r"^\$(ORIGIN|\{ORIGIN\})(/|$)")
# The toolkit of the GPU machine, where only root can write; only the plugin may name it.
INSTALLED_ALSO = {"halfmark_cuda.so": {"/usr/local/cuda/lib64"}}
FOREIGN = ("CMakeFiles", "corpus", "Testing")  # folders in a build folder: CMake's compiler checks, the fuzzers' corpus


def elf_files(folder):
    """Programs and shared libraries below the folder, without links and object files (these have no dynamic section)."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - set(FOREIGN))
        for name in sorted(names):
            path = pathlib.Path(place, name)
            if path.is_symlink() or name.endswith((".o", ".a")) or not path.is_file():
                continue
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def search_paths(path):
    """[(RPATH or RUNPATH, its elements)] of one file."""
    shown = subprocess.run(["readelf", "--wide", "--dynamic", path], capture_output=True, text=True, check=True,
                           env=dict(os.environ, LC_ALL="C")).stdout
    return [(kind, text.split(":")) for kind, text in ENTRY.findall(shown)]


def violations(path, installed):
    found = []
    for kind, elements in search_paths(path):
        for element in dict.fromkeys(elements):
            text = f"{path}: {kind} {':'.join(elements)!r}: "
            if not element:
                found.append(text + "an empty element is the current directory")
            elif ORIGIN.match(element):
                continue
            elif not element.startswith("/"):
                found.append(text + f"{element!r} is relative to the current directory")
            elif installed and element not in INSTALLED_ALSO.get(path.name, ()):
                found.append(text + f"{element!r} is a folder of the machine that built it")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--installed", action="store_true", help="only $ORIGIN, and what INSTALLED_ALSO names")
    options = parser.parse_args()
    files = list(elf_files(options.folder))
    if not files:
        print(f"check_binaries: no binary in {options.folder}", file=sys.stderr)
        return 2
    found = [line for path in files for line in violations(path, options.installed)]
    print("\n".join(found) if found else f"{len(files)} binaries, none searches the current directory")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
