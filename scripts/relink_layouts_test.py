#!/usr/bin/env python3
"""Tests relink_layouts.py with a small project: every layout works as the build does, and no two place their code alike."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "relink_layouts.py"
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(sample LANGUAGES CXX)
add_library(kernels SHARED one.cpp two.cpp)
add_library(parts STATIC three.cpp sub/three.cpp)
add_executable(sample main.cpp four.cpp)
target_link_libraries(sample PRIVATE parts kernels)
set_target_properties(sample PROPERTIES BUILD_RPATH "$ORIGIN" BUILD_RPATH_USE_ORIGIN ON)
"""
FUNCTIONS = {"one.cpp": "one", "two.cpp": "two", "three.cpp": "three", "sub/three.cpp": "other", "four.cpp": "four"}
COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")


@unittest.skipUnless(COMPILER and shutil.which("cmake") and shutil.which("ninja"), "no compiler, cmake or ninja")
class RelinkLayouts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        (cls.root / "sub").mkdir()
        (cls.root / "CMakeLists.txt").write_text(PROJECT)
        for name, function in FUNCTIONS.items():
            (cls.root / name).write_text(f"int {function}() {{ return {len(function)}; }}\n")
        calls = "+".join(f"{function}()" for function in FUNCTIONS.values())
        declared = "".join(f"int {function}(); " for function in FUNCTIONS.values())
        (cls.root / "main.cpp").write_text(f"#include <cstdio>\n{declared}\nint main() {{ std::printf(\"%d\\n\", {calls}); }}\n")
        cls.build = cls.root / "build"
        for command in (["cmake", "-G", "Ninja", "-S", cls.root, "-B", cls.build, f"-DCMAKE_CXX_COMPILER={COMPILER}"],
                        ["cmake", "--build", cls.build]):
            subprocess.run(command, check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def relink(self, *arguments):
        return subprocess.run([sys.executable, SCRIPT, self.build, *arguments], capture_output=True, text=True)

    def test_links_layouts_that_work_and_differ(self):
        output = self.root / "layouts"
        done = self.relink(output, "--target", "sample", "--layouts", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        programs, libraries = set(), set()
        for number in range(4):
            folder = output / f"layout-{number:03}"
            answer = subprocess.run([folder / "sample"], capture_output=True, text=True, check=True).stdout
            self.assertEqual(answer, "20\n")
            used = subprocess.run(["ldd", folder / "sample"], capture_output=True, text=True, check=True).stdout
            self.assertIn(str(folder / "libkernels.so"), used, "each layout uses its own library")
            programs.add((folder / "sample").read_bytes())
            libraries.add((folder / "libkernels.so").read_bytes())
        self.assertEqual(len(programs), 4)
        self.assertEqual(len(libraries), 4)

    def test_gives_the_same_layouts_for_a_seed(self):
        for name in ("first", "second"):
            self.relink(self.root / name, "--target", "sample", "--layouts", "1", "--seed", "7")
        addresses = [subprocess.run(["nm", self.root / name / "layout-000" / "sample"], capture_output=True, text=True).stdout
                     for name in ("first", "second")]
        self.assertEqual(addresses[0], addresses[1])
        self.assertTrue(addresses[0])

    def test_refuses_in_one_line(self):
        (self.root / "full").mkdir()
        (self.root / "full" / "file").write_text("")
        for arguments, words in (((self.root / "x", "--target", "none"), "has no none; build it first"),
                                 ((self.root / "x", "--target", "sample", "--layouts", "0"), "at least 1"),
                                 ((self.root / "full", "--target", "sample"), "is not empty")):
            done = self.relink(*arguments)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
