#!/usr/bin/env python3
"""check_archive.py finds each kind of fault: each test damages one thing in a small copy of an unpacked archive."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import check_archive  # noqa: E402

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


@unittest.skipUnless(COMPILER and shutil.which("readelf") and shutil.which("ldd"), "no C compiler, readelf or ldd")
class Spoiled(unittest.TestCase):
    def setUp(self):
        self.addCleanup(os.umask, os.umask(0o022))
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
        self.write("lib/libnvidia-ml.so.1", "text")
        (self.root / "bin" / "halfmark_micro").unlink()
        for name in ("sample_report.json", "planted.txt", "charts_test.py", "charts_testing.py", "charts.pyc"):
            self.write(f"share/halfmark/{name}", "text")
        self.assert_wrong(check_archive.Archive.holds_what_it_should, "charts.py is missing", "notes is not one", "bin/halfmark_micro is missing",
                          "bin/kernels_tests does not belong", "libgtest.so.1 is only used by tests", "libnvidia-ml.so.1 has the name of a library of NVIDIA", "charts.pyc is only", "charts_test.py is only", "charts_testing.py is only", "planted.txt is only",
                          "sample_report.json is only")

    def test_a_library_from_outside(self):
        self.library(self.outside / "libmore.so.1")
        self.program(self.root / "bin" / "halfmark_micro", self.outside, self.outside / "libmore.so.1")
        self.assert_wrong(check_archive.Archive.finds_its_libraries,
                          "bin/halfmark_micro loads a library from outside the archive: libmore.so.1")
        self.assert_wrong(check_archive.Archive.looks_for_libraries_in_itself, "is a folder of the machine that built it")
        self.assert_wrong(check_archive.Archive.names_no_place_of_its_build, f"bin/halfmark_micro holds the path {self.outside}")

    def test_our_own_libraries_are_held_to_it_and_those_of_others_are_not(self):
        self.library(self.outside / "libmore.so.1")
        self.library(self.outside / "libcudart.so.13")
        for name in ("halfmark_cuda.so", "libof_others.so"):
            self.compile(self.root / "lib" / name, "int x(void); int x(void) { return 0; }", "-shared", "-fPIC", f"-Wl,-rpath,{self.outside}",
                         "-Wl,--no-as-needed", self.outside / "libmore.so.1", self.outside / "libcudart.so.13")
        self.assert_wrong(check_archive.Archive.finds_its_libraries, "lib/halfmark_cuda.so loads a library from outside the archive: libmore.so.1")
        self.assert_wrong(check_archive.Archive.looks_for_libraries_in_itself, "halfmark_cuda.so: RUNPATH")
        # Only the plugin may load the GPU's libraries; a program may not.
        self.program(self.root / "bin" / "halfmark_micro", self.outside, self.outside / "libcudart.so.13")
        found = check_archive.Archive.finds_its_libraries(self.archive)
        self.assertEqual(len(found), 2, found)
        self.assertIn("bin/halfmark_micro loads a library from outside the archive: libcudart.so.13", found[0])

    def test_what_was_not_asked_for_is_skipped_and_not_passed(self):
        with self.assertRaises(check_archive.Skipped):
            check_archive.Archive(self.root).names_no_place_of_its_build()

    def test_licences(self):
        self.library(self.root / "lib" / "libmore.so.1")
        self.write("licenses/other", " ")
        (self.root / "licenses" / "common-GPL-3").unlink()
        self.assert_wrong(check_archive.Archive.carries_the_licences, "lib/libother.so.1 of other: licenses/other is missing or empty",
                          "libcli11-dev points to GPL-3", "no licence for lib/libmore.so.1")

    def test_licences_of_what_is_compiled_in(self):
        contents = self.root / "licenses" / "CONTENTS"
        for name in sorted(check_archive.INSIDE):
            text = contents.read_text()
            contents.write_text(text.replace(f"compiled in\t{name}\tlicenses/{name}\n", ""))
            self.assert_wrong(check_archive.Archive.carries_the_licences, f"no licence for {name}")
            contents.write_text(text)
        contents.unlink()
        self.assert_wrong(check_archive.Archive.carries_the_licences, "licenses/CONTENTS is missing")

    def test_every_library_that_the_sources_include_is_accounted_for(self):
        """A header-only library has no file in the archive, so its licence is easily forgotten."""
        package_of = {"CLI": "libcli11-dev", "nlohmann": "nlohmann-json3-dev", "boost": "libboost-dev", "gtest": "libgtest-dev"}
        # libraries with a file of their own; the C library, the kernel's interface, the compiler
        shared = {"benchmark", "fmt", "halfmark", "linux", "sys", "sanitizer"}
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
        self.speaking_program(exit_code=3)
        self.assert_wrong(check_archive.Archive.starts, "ended with 3", "ended with 3", "ended with 3")
        self.speaking_program()
        self.assertEqual(self.archive.starts(), [])

    def speaking_program(self, exit_code=0):
        """Lists a device, and writes a file where a run writes its report. Needs no library: without /proc there is no $ORIGIN."""
        self.compile(self.root / "bin" / "halfmark", f"""
#include <stdio.h>
#include <string.h>
int main(int count, char** words) {{
  puts("cpu  a processor");
  if (count > 1 && strcmp(words[1], "run") == 0) fclose(fopen(words[count - 1], "w"));
  return {exit_code};
}}""")

    def test_charts_that_are_not_drawn(self):
        self.speaking_program()
        try:
            self.assert_wrong(check_archive.Archive.draws_its_charts, "charts.py ended with")  # its text is no Python
            self.write("share/halfmark/charts.py", "")
            self.assert_wrong(check_archive.Archive.draws_its_charts, "charts.py ended with 0")
        except check_archive.Skipped as reason:
            self.skipTest(str(reason))

    def test_libraries_that_the_caller_points_to_do_not_help(self):
        with unittest.mock.patch.dict("os.environ", {"LD_LIBRARY_PATH": str(self.outside), "LD_PRELOAD": "x"}):
            environment = check_archive.Archive(self.root).environment
        self.assertEqual([name for name in environment if name.startswith("LD_")], [])

    def test_every_check_is_made(self):
        written = [member for name, member in vars(check_archive.Archive).items() if callable(member) and member.__doc__]
        self.assertEqual(set(written), set(check_archive.Archive.CHECKS))

    def checked(self, *folders):
        """Exit code and output of the script for an archive of these folders."""
        packed = self.outside / "packed.tar.gz"
        with tarfile.open(packed, "w:gz") as archive:
            for folder in folders:
                archive.add(self.root, folder)
        result = subprocess.run([sys.executable, HERE / "check_archive.py", packed], capture_output=True, text=True)
        return result.returncode, result.stdout

    def test_what_only_the_owner_may_read(self):
        for name, right in (("licenses", 0o700), ("licenses/other", 0o600), ("bin", 0o754)):
            path = self.root / name
            before = path.stat().st_mode
            path.chmod(right)
            code, lines = self.checked("halfmark")
            path.chmod(before)
            self.assertEqual(code, 1)
            self.assertIn(f"FAILED   only the owner may read 1 members, halfmark/{name} is the first: pack it with umask 022", lines)

    def test_what_is_no_archive(self):
        for path in (self.root / "none.tar.gz", self.root / "LICENSE"):
            result = subprocess.run([sys.executable, HERE / "check_archive.py", path], capture_output=True, text=True)
            self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result.stderr)
            self.assertIn("cannot be unpacked", result.stderr)

    def test_the_exit_code_and_the_lines(self):
        self.speaking_program()
        self.write("share/halfmark/charts.py", "import pathlib, sys\nfolder = pathlib.Path(sys.argv[-1])\nfolder.mkdir()\n(folder / 'a.png').touch()\n")
        code, lines = self.checked("halfmark")
        self.assertEqual(code, 0, lines)
        self.assertNotIn("FAILED", lines)
        self.assertEqual(len(re.findall("^(?:passed|SKIPPED)  ", lines, re.MULTILINE)), len(check_archive.Archive.CHECKS), lines)
        self.assertIn("SKIPPED  no path of the machine that built it: no --path-of-the-build given", lines)
        self.write("notes", "text")
        code, lines = self.checked("halfmark")
        self.assertEqual(code, 1)
        self.assertIn("FAILED   all needed files are present", lines)
        self.assertIn("         notes is not one of ", lines)
        code, lines = self.checked("halfmark", "another")
        self.assertEqual(code, 1)
        self.assertIn("FAILED   expected one folder at the top", lines)


if __name__ == "__main__":
    unittest.main()
