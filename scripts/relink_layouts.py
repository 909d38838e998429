#!/usr/bin/env python3
"""Links a program of a ninja build several times, each time with another layout of its code, for `halfmark ab --layouts`.

    scripts/relink_layouts.py BUILD_FOLDER OUTPUT_FOLDER [--target halfmark] [--layouts 24] [--seed 0]

Every layout has its own folder with the program and the shared libraries of the build that it uses. In each of them the
objects, and the members of static libraries of the build, stand in random order, and an object of random size stands before
each of up to eight of them, which moves the code behind it. Nothing is compiled again. The commands are those of `ninja -t commands`.
"""

import argparse
import os
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile

PADS = 8
MOST_PADDING = 4096  # bytes: one page, so that every place in a page and in a cache line occurs


def fail(words):
    sys.exit(f"relink_layouts.py: {words}")


def output_of(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        fail(f"{' '.join(command[:3])} ... failed in {folder}: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    return done.stdout


def link_command(build, target):
    """The words of the command that links this file of the build."""
    lines = output_of(["ninja", "-t", "commands", target], build).strip().splitlines()
    for line in reversed(lines):
        words = [word.replace("\\$", "$") for word in shlex.split(line.replace("&& :", "").removeprefix(": && "))]
        if "-o" in words and words[words.index("-o") + 1] == target:
            return words
    fail(f"{build} has no command that links {target}")


def is_own(build, word, suffix):
    return word.endswith(suffix) and not word.startswith("-") and (build / word).resolve().is_relative_to(build)


def padding(compiler, folder, number, size):
    source = folder / f"pad{number}.s"
    source.write_text(f'.text\n.skip {size}, 0xcc\n.section .note.GNU-stack,"",%progbits\n')
    output_of([compiler, "-c", str(source), "-o", str(source.with_suffix(".o"))], folder)
    return str(source.with_suffix(".o"))


def shuffled_archive(build, archive, folder, dice):
    """A copy of a static library with its members in random order. Members of equal names keep apart by their number."""
    place = folder / archive.replace("/", "_")
    place.mkdir()
    members, seen = [], {}
    for name in output_of(["ar", "t", str(build / archive)], place).split():
        seen[name] = seen.get(name, 0) + 1
        output_of(["ar", "xN", str(seen[name]), str(build / archive), name], place)
        os.rename(place / name, place / f"{len(members)}_{name}")
        members.append(f"{len(members)}_{name}")
    dice.shuffle(members)
    output_of(["ar", "rcs", "shuffled.a", *members], place)
    return str(place / "shuffled.a")


def link(build, target, result, libraries, dice):
    """Links one file in a new order. `libraries`: those of the build that are linked anew, by their name in the command."""
    words = link_command(build, target)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        places = [i for i, word in enumerate(words) if is_own(build, word, ".o")]
        objects = [words[i] for i in places]
        dice.shuffle(objects)
        for place, word in zip(places, objects):
            words[place] = word
        words = [shuffled_archive(build, word, scratch, dice) if is_own(build, word, ".a") else libraries.get(word, word)
                 for word in words]
        before = sorted(dice.sample(places, min(PADS, len(places))), reverse=True)
        for number, place in enumerate(before):
            words.insert(place, padding(words[0], scratch, number, dice.randrange(16, MOST_PADDING, 16)))
        words[words.index("-o") + 1] = str(result)
        output_of(words, build)


def own_libraries(build, target):
    return [word for word in link_command(build, target) if is_own(build, word, ".so")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--target", default="halfmark")
    parser.add_argument("--layouts", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    build, output = arguments.build.resolve(), arguments.output.resolve()
    if not (build / "build.ninja").exists():
        fail(f"{arguments.build} has no build.ninja; configure with `cmake -G Ninja`")
    if not (build / arguments.target).exists():
        fail(f"{arguments.build} has no {arguments.target}; build it first")
    if arguments.layouts < 1:
        fail("--layouts: at least 1")
    if output.exists() and any(output.iterdir()):
        fail(f"{arguments.output} is not empty")
    for number in range(arguments.layouts):
        dice = random.Random(f"{arguments.seed} {number}")
        folder = output / f"layout-{number:03}"
        folder.mkdir(parents=True)
        libraries = {}
        for library in own_libraries(build, arguments.target):
            result = folder / pathlib.Path(library).name
            link(build, library, result, {}, dice)
            libraries[library] = str(result)
        link(build, arguments.target, folder / pathlib.Path(arguments.target).name, libraries, dice)
    print(f"{arguments.layouts} layouts of {arguments.target} in {arguments.output}")


if __name__ == "__main__":
    main()
