#!/usr/bin/env python3
"""check_binaries.py finds each kind of fault: each test compiles a program with another search path."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import check_binaries  # noqa: E402

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


@unittest.skipUnless(COMPILER and shutil.which("readelf"), "no C compiler or no readelf")
class Binaries(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def compile(self, rpath, name="program", tags="--enable-new-dtags", source="int main(void) { return 0; }", extra=()):
        path = self.folder / name
        path.with_suffix(".c").write_text(source)
        words = [f"-Wl,-rpath,{rpath},{tags}"] if rpath is not None else []
        subprocess.run([COMPILER, "-o", path, path.with_suffix(".c"), *extra, *words], check=True)
        return path

    def found(self, rpath, installed=False, **how):
        return check_binaries.violations(self.compile(rpath, **how), installed)

    def test_paths_from_the_binary_itself_pass(self):
        for rpath in (None, "$ORIGIN", "$ORIGIN/../lib", "${ORIGIN}/x:$ORIGIN"):
            for tags in ("--enable-new-dtags", "--disable-new-dtags"):
                self.assertEqual(self.found(rpath, True, tags=tags), [])

    def test_empty_elements(self):
        for rpath in ("$ORIGIN:", ":$ORIGIN", "$ORIGIN::/usr/lib"):
            for tags in ("--enable-new-dtags", "--disable-new-dtags"):
                found = self.found(rpath, tags=tags)
                self.assertEqual(len(found), 1, rpath)
                self.assertIn("an empty element is the current directory", found[0])

    def test_relative_elements(self):
        for rpath in ("lib", "./lib", "..", "ORIGIN/lib", "$ORIGINAL/lib"):
            self.assertEqual(len(self.found(rpath)), 1, rpath)

    def test_absolute_elements_are_for_build_folders_alone(self):
        self.assertEqual(self.found("/opt/lib"), [])
        self.assertEqual(len(self.found("/opt/lib", True)), 1)
        self.assertEqual(self.found("/usr/local/cuda/lib64", True, name="halfmark_cuda.so"), [])
        self.assertEqual(len(self.found("/usr/local/cuda/lib64", True, name="halfmark")), 1)

    def test_an_empty_element_loads_from_the_current_directory(self):
        """Why the check matters: the loader takes a library from the folder in which the program is started."""
        library = "const char* who(void); const char* who(void) { return WHO; }"
        for place in ("good", "planted"):
            (self.folder / place).mkdir()
            self.compile(None, f"{place}/libwho.so", source=library, extra=["-shared", "-fPIC", f'-DWHO="{place}"'])
        program = "#include <stdio.h>\nconst char* who(void);\nint main(void) { return puts(who()) < 0; }"
        for rpath, loaded in ((":$ORIGIN/good", "planted"), ("$ORIGIN/good", "good")):
            path = self.compile(rpath, source=program, extra=[f"-L{self.folder}/good", "-lwho"])
            clean = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
            said = subprocess.run([path], cwd=self.folder / "planted", capture_output=True, text=True, env=clean).stdout
            self.assertEqual(said.strip(), loaded)
            self.assertEqual(bool(check_binaries.violations(path, False)), loaded == "planted")

    def test_the_exit_code_and_what_is_looked_at(self):
        script = [sys.executable, HERE / "check_binaries.py", self.folder]
        self.assertEqual(subprocess.run(script, capture_output=True).returncode, 2)  # a folder without binaries is an error
        self.compile("$ORIGIN")
        self.assertEqual(subprocess.run(script, capture_output=True).returncode, 0)
        self.compile("lib", name="another")
        result = subprocess.run(script, capture_output=True, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("another: ", result.stdout)

    def test_installed_is_asked_for_on_the_command_line(self):
        self.compile("/opt/lib")
        script = [sys.executable, HERE / "check_binaries.py", self.folder]
        self.assertEqual(subprocess.run(script, capture_output=True).returncode, 0)
        result = subprocess.run([*script, "--installed"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("'/opt/lib' is a folder of the machine that built it", result.stdout)

    def test_every_folder_is_looked_at_but_those_of_cmake_and_of_fuzzers(self):
        places = ("sub/folder", *check_binaries.FOREIGN)
        for place in places:
            (self.folder / place).mkdir(parents=True)
            self.compile(None, f"{place}/program")
        self.compile(None, "object.o", extra=["-c"])
        (self.folder / "text").write_text("no binary")
        (self.folder / "link").symlink_to("sub/folder/program")
        self.assertEqual([path.relative_to(self.folder) for path in check_binaries.elf_files(self.folder)],
                         [pathlib.Path("sub/folder/program")])


if __name__ == "__main__":
    unittest.main()
