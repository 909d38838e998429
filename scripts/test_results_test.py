#!/usr/bin/env python3
"""Tests test_results.py with the JUnit file of a ctest of this machine, and with texts of GoogleTest and unittest."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from xml.sax.saxutils import escape

SCRIPT = pathlib.Path(__file__).resolve().parent / "test_results.py"

GTEST_OUTPUT = """[ RUN      ] Sums.AreRight
[       OK ] Sums.AreRight (0 ms)
[ RUN      ] Sums.AreWrong
sums_test.cpp:7: Failure
Expected equality of these values:
  1
  2
[  FAILED  ] Sums.AreWrong (0 ms)
[ RUN      ] Sums.NeedAGpu
sums_test.cpp:9: Skipped
no GPU

[  SKIPPED ] Sums.NeedAGpu (0 ms)
"""

UNITTEST_PROGRAM = """import unittest
class Sums(unittest.TestCase):
    def test_are_right(self): pass
    def test_are_wrong(self): self.assertEqual(1, 2, "the planted failure")
    def test_raise(self): raise ValueError("the planted error")
    @unittest.skip("no GPU")
    def test_need_a_gpu(self): pass
unittest.main()
"""


class TestResults(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def results(self, file):
        return subprocess.run([sys.executable, SCRIPT, file], capture_output=True, text=True)

    def printed(self, *cases):
        """What the script prints about test cases, each (name, status, output)."""
        file = self.folder / "junit.xml"
        texts = [f'<testcase name="{name}" status="{status}">{"<failure/>" if status == "fail" else ""}'
                 f"<system-out>{escape(output)}</system-out></testcase>" for name, status, output in cases]
        file.write_text(f"<testsuite>{''.join(texts)}</testsuite>")
        result = self.results(file)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_each_failed_test_of_a_program_is_named_with_what_it_said(self):
        self.assertEqual(self.printed(("sums.1", "fail", GTEST_OUTPUT)),
                         "3 tests, 1 skipped, 1 failed\nSKIPPED Sums.NeedAGpu: no GPU\nFAILED sums.1/Sums.AreWrong\n"
                         "    sums_test.cpp:7: Failure\n    Expected equality of these values:\n      1\n      2\n")

    def test_a_test_that_ended_its_process_is_named(self):
        printed = self.printed(("sums.1", "fail", "[ RUN      ] Sums.Crash\nabout to crash\n"))
        self.assertEqual(printed, "1 tests, 0 skipped, 1 failed\nFAILED sums.1/Sums.Crash\n    about to crash\n    (its process ended)\n")

    def test_without_a_name_inside_the_end_of_the_output_is_shown(self):
        printed = self.printed(("levels", "fail", "".join(f"line {i}\n" for i in range(100))))
        self.assertTrue(printed.startswith("1 tests, 0 skipped, 1 failed\nFAILED levels\n    (70 lines before these)\n    line 70\n"))
        self.assertTrue(printed.endswith("    line 99\n"))

    def test_what_passed_prints_no_line(self):
        self.assertEqual(self.printed(("sums.1", "run", "[ RUN      ] Sums.AreRight\n[       OK ] Sums.AreRight (0 ms)\n")),
                         "1 tests, 0 skipped, 0 failed\n")

    def test_failures_and_skips_of_unittest_are_named(self):
        (self.folder / "sums.py").write_text(UNITTEST_PROGRAM)
        program = subprocess.run([sys.executable, self.folder / "sums.py", "-v"], capture_output=True, text=True)
        printed = self.printed(("scripts.sums", "fail", program.stderr))
        self.assertIn("SKIPPED scripts.sums/test_need_a_gpu: no GPU\n", printed)
        self.assertRegex(printed, r"FAILED scripts\.sums/test_are_wrong\n(    .*\n)+?    AssertionError: 1 != 2 : the planted failure\n")
        self.assertRegex(printed, r"FAILED scripts\.sums/test_raise\n(    .*\n)+?    ValueError: the planted error\n")
        self.assertNotIn("test_are_right", printed)

    @unittest.skipUnless(shutil.which("ctest"), "no ctest")
    def test_reads_what_ctest_writes(self):
        (self.folder / "CTestTestfile.cmake").write_text(
            f'add_test(bad "{sys.executable}" "-c" "print(\'the reason\'); raise SystemExit(3)")\n'
            f'add_test(absent "{self.folder}/absent")\nadd_test(good "{sys.executable}" "-c" "pass")\n')
        subprocess.run(["ctest", "--test-dir", self.folder, "--output-junit", self.folder / "junit.xml"], capture_output=True)
        printed = self.results(self.folder / "junit.xml").stdout
        self.assertIn("FAILED bad\n    the reason\n", printed)
        self.assertIn("FAILED absent\n", printed)
        self.assertNotIn("good", printed)

    def test_a_file_that_cannot_be_read_is_one_line(self):
        (self.folder / "broken.xml").write_text("<testsuite>")
        for name in ("broken.xml", "none.xml"):
            result = self.results(self.folder / name)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertEqual(result.stderr.count("\n"), 1)
            self.assertIn(name, result.stderr)


if __name__ == "__main__":
    unittest.main()
