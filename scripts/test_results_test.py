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
        self.assertEqual(printed, "1 tests, 0 skipped, 1 failed\nFAILED sums.1/Sums.Crash\n    about to crash\n"
                         "    (no result line: the program ended, or its output was cut)\n")

    def test_without_a_name_inside_the_end_of_the_output_is_shown(self):
        printed = self.printed(("levels", "fail", "".join(f"line {i}\n" for i in range(100))))
        self.assertTrue(printed.startswith("1 tests, 0 skipped, 1 failed\nFAILED levels\n    line 0\n"))
        self.assertIn("    line 19\n    (60 lines)\n    line 80\n", printed)
        self.assertTrue(printed.endswith("    line 99\n"))

    def test_a_long_line_is_cut_and_lines_of_passed_tests_are_left_out(self):
        printed = self.printed(("sums", "fail", "x" * 100000 + "\n[ RUN      ] Sums.AreRight\n[       OK ] Sums.AreRight (0 ms)\nleak\n"))
        self.assertEqual(printed, f"1 tests, 0 skipped, 1 failed\nFAILED sums\n    {'x' * 300}\n    leak\n")

    def test_a_result_line_may_follow_other_text(self):
        output = "[ RUN      ] A.A\nprogress 100 %[       OK ] A.A (0 ms)\n[ RUN      ] A.B\nbad\n[  FAILED  ] A.B, where GetParam() = 3 (1 ms)\n"
        self.assertEqual(self.printed(("a", "fail", output)), "2 tests, 0 skipped, 1 failed\nFAILED a/A.B\n    bad\n")

    def test_the_tests_of_a_program_that_a_test_runs_are_its_text(self):
        for last in ("[  FAILED  ] Inner.X (0 ms)\n", ""):
            output = f"[ RUN      ] Outer.A\n[ RUN      ] Inner.X\ninner\n{last}outer\n[  FAILED  ] Outer.A (5 ms)\n"
            printed = self.printed(("a", "fail", output))
            self.assertTrue(printed.startswith("1 tests, 0 skipped, 1 failed\nFAILED a/Outer.A\n"), printed)
            self.assertIn("    inner\n", printed)
            self.assertIn("    outer\n", printed)

    def test_lines_that_look_like_failures_of_unittest_are_text(self):
        output = "ERROR: cannot open file\n" * 20000 + "=" * 70 + "\nFAIL: test_a (m.C.test_a) (i=1)\n" + "-" * 70 + "\nbad\n" \
            + "-" * 70 + "\nworse\n\n" + "-" * 70 + "\nRan 1 test in 0.001s\n"
        self.assertEqual(self.printed(("s", "fail", output)),
                         f"1 tests, 0 skipped, 1 failed\nFAILED s/test_a (i=1)\n    bad\n    {'-' * 70}\n    worse\n")

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
            f'add_test(absent "{self.folder}/absent")\nadd_test(good "{sys.executable}" "-c" "pass")\n'
            f'add_test(needs "{sys.executable}" "-c" "pass")\nset_tests_properties(needs PROPERTIES REQUIRED_FILES "{self.folder}/no")\n'
            f'add_test(away "{sys.executable}" "-c" "pass")\nset_tests_properties(away PROPERTIES WORKING_DIRECTORY "{self.folder}/no")\n'
            f'add_test(left_out "{sys.executable}" "-c" "raise SystemExit(77)")\nset_tests_properties(left_out PROPERTIES SKIP_RETURN_CODE 77)\n'
            f'add_test(sets_up "{sys.executable}" "-c" "raise SystemExit(1)")\nset_tests_properties(sets_up PROPERTIES FIXTURES_SETUP f)\n'
            f'add_test(is_set_up "{sys.executable}" "-c" "pass")\nset_tests_properties(is_set_up PROPERTIES FIXTURES_REQUIRED f)\n')
        subprocess.run(["ctest", "--test-dir", self.folder, "--output-junit", self.folder / "junit.xml"], capture_output=True)
        printed = self.results(self.folder / "junit.xml").stdout
        self.assertIn("FAILED bad\n    the reason\n", printed)
        for name in ("absent", "needs", "away", "sets_up", "is_set_up"):
            self.assertIn(f"FAILED {name}\n", printed)
        self.assertIn("SKIPPED left_out: ", printed)
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
