#!/usr/bin/env python3
"""check_archive.py finds each kind of fault: each test damages one thing in a small copy of an unpacked archive."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import check_archive  # noqa: E402

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


@unittest.skipUnless(COMPILER and shutil.which("readelf") and shutil.which("ldd"), "no C compiler, readelf or ldd")
class Spoiled(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name, "unpacked").resolve()
        self.outside = pathlib.Path(folder.name, "outside").resolve()
        self.outside.mkdir()
        for name in check_archive.NEEDED:
            self.write(name, "text")
        self.write("licenses/nlohmann-json3-dev", "text")
        self.write("licenses/libboost-dev", "text")
        self.write("licenses/libcli11-dev", "text, see /usr/share/common-licenses/GPL-3.")
        self.write("licenses/common-GPL-3", "text")
        self.write("licenses/other", "text")
        self.write("licenses/CONTENTS", "what\tof\tlicence\ncompiled in\tnlohmann-json3-dev\tlicenses/nlohmann-json3-dev\n"
                   "compiled in\tlibboost-dev\tlicenses/libboost-dev\n"
                   "compiled in\tlibcli11-dev\tlicenses/libcli11-dev\nlib/libother.so.1\tother\tlicenses/other\n")
        (self.root / "lib").mkdir()
        self.library(self.root / "lib" / "libother.so.1")
        for name in ("bin/halfmark", "bin/halfmark_micro", "libexec/halfmark"):
            self.program(self.root / name)
        self.archive = check_archive.Archive(self.root, [self.outside])

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def compile(self, path, source, *words):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = self.outside / "source.c"
        file.write_text(source)
        subprocess.run([COMPILER, "-o", path, file, *words], check=True)

    def library(self, path):
        self.compile(path, "int other(void); int other(void) { return 0; }", "-shared", "-fPIC", f"-Wl,-soname,{path.name}")

    def program(self, path, rpath="$ORIGIN/../lib", library=None):
        self.compile(path, "int other(void); int main(void) { return other(); }", f"-Wl,-rpath,{rpath}",
                     library or self.root / "lib" / "libother.so.1")

    def assert_wrong(self, check, *words):
        wrong = check(self.archive)
        self.assertEqual(len(wrong), len(words), wrong)
        for word, line in zip(words, wrong):
            self.assertIn(word, line)

    def test_as_it_should_be(self):
        for check in (check_archive.Archive.holds_what_it_should, check_archive.Archive.finds_its_libraries,
                      check_archive.Archive.looks_for_libraries_in_itself, check_archive.Archive.names_no_place_of_its_build,
                      check_archive.Archive.carries_the_licences):
            self.assertEqual(check(self.archive), [], check.__doc__)

    def test_members(self):
        (self.root / "share" / "halfmark" / "charts.py").unlink()
        self.program(self.root / "bin" / "kernels_tests")
        self.write("notes", "text")
        self.write("lib/libgtest.so.1", "text")
        self.assert_wrong(check_archive.Archive.holds_what_it_should, "charts.py is missing", "notes is not one", "bin/kernels_tests does not belong",
                          "libgtest.so.1 is only used by tests")

    def test_a_library_from_outside(self):
        self.library(self.outside / "libmore.so.1")
        self.program(self.root / "bin" / "halfmark_micro", self.outside, self.outside / "libmore.so.1")
        self.assert_wrong(check_archive.Archive.finds_its_libraries,
                          "bin/halfmark_micro loads a library from outside the archive: libmore.so.1")
        self.assert_wrong(check_archive.Archive.looks_for_libraries_in_itself, "is a folder of the machine that built it")
        self.assert_wrong(check_archive.Archive.names_no_place_of_its_build, f"bin/halfmark_micro holds the path {self.outside}")

    def test_licences(self):
        self.library(self.root / "lib" / "libmore.so.1")
        self.write("licenses/other", " ")
        (self.root / "licenses" / "common-GPL-3").unlink()
        self.assert_wrong(check_archive.Archive.carries_the_licences, "lib/libother.so.1 of other: licenses/other is missing or empty",
                          "libcli11-dev points to GPL-3", "no licence for lib/libmore.so.1")

    def test_every_library_that_the_sources_include_is_accounted_for(self):
        """A header-only library has no file in the archive, so its licence is easily forgotten."""
        package_of = {"CLI": "libcli11-dev", "nlohmann": "nlohmann-json3-dev", "boost": "libboost-dev", "gtest": "libgtest-dev"}
        shared = {"benchmark", "fmt", "sys", "sanitizer"}  # libraries with a file of their own, the C library, the compiler
        for path in HERE.parent.rglob("*"):
            if path.suffix in (".cpp", ".h", ".cu", ".cuh") and "build" not in path.relative_to(HERE.parent).parts:
                for name in re.findall(r"^#include <(\w+)/", path.read_text(), re.MULTILINE):
                    self.assertTrue(name in shared or package_of.get(name) in check_archive.INSIDE | check_archive.GPU_INSIDE, (path, name))

    def test_a_plugin_brings_duties(self):
        self.library(self.root / "lib" / "halfmark_cuda.so")
        self.assert_wrong(check_archive.Archive.holds_what_it_should, "bin/cuda_tests is missing")
        self.assert_wrong(check_archive.Archive.carries_the_licences, "no licence for cuda-runtime", "no licence for libgtest-dev")

    def test_a_program_that_does_not_start(self):
        self.assertEqual(len(self.archive.starts()), 3)


if __name__ == "__main__":
    unittest.main()
