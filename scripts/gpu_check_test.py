#!/usr/bin/env python3
"""Tests of gpu_check.sh with programs in the place of halfmark and cuda_tests: which stages run, and what their failures do."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "gpu_check.sh"
# Ends with the exit code in the file of its first word; `run` writes its report unless told not to.
HALFMARK = """#!/bin/sh
echo "$@" >> "$HOME_OF_TEST/calls"
while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; word=${word:-$1}; shift; done
[ -z "$out" ] || [ -e "$HOME_OF_TEST/no_report" ] || echo '{}' > "$out"
[ "$word" = list ] && [ -e "$HOME_OF_TEST/gpus" ] && cat "$HOME_OF_TEST/gpus"
[ "$word" = check ] && echo "cuda:0: 4096 results in 60 s"
[ ! -e "$HOME_OF_TEST/code_$word" ] || exit "$(cat "$HOME_OF_TEST/code_$word")"
"""
TESTS = """#!/bin/sh
echo "$GTEST_SHARD_INDEX of $GTEST_TOTAL_SHARDS, rows $HALFMARK_DOT_ROWS, GPU $CUDA_VISIBLE_DEVICES" >> "$HOME_OF_TEST/shards"
[ "$GTEST_SHARD_INDEX" != 0 ] || [ ! -e "$HOME_OF_TEST/crash" ] || kill -SEGV $$
[ -e "$HOME_OF_TEST/all_skipped" ] || echo "[       OK ] Ops/EveryRow.AgreesWithFp64/cuda_0_matmul"
[ ! -e "$HOME_OF_TEST/code_tests" ] || exit 1
"""
NVIDIA_SMI = "#!/bin/sh\necho 'GPU 0: a GPU of this test'\n"


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.home = pathlib.Path(temporary.name)
        for folder in ("scripts", "bin", "tools", "work"):
            (self.home / folder).mkdir()
        shutil.copy(SCRIPT, self.home / "scripts")
        self.program("bin/halfmark", HALFMARK)
        self.program("bin/cuda_tests", TESTS)
        self.program("tools/nvidia-smi", NVIDIA_SMI)
        (self.home / "halfmark_cuda.so").write_bytes(b"")

    def program(self, name, text):
        (self.home / name).write_text(text)
        (self.home / name).chmod(0o755)

    def mark(self, name, text=""):
        (self.home / name).write_text(text)

    def check(self, *arguments):
        done = subprocess.run(
            [self.home / "scripts" / "gpu_check.sh", *arguments], cwd=self.home / "work", capture_output=True, text=True,
            env={"PATH": f"{self.home}/tools:/usr/bin:/bin:/usr/sbin:/sbin", "HOME_OF_TEST": str(self.home), "HOME": str(self.home)})
        calls = self.home / "calls"
        self.calls = calls.read_text().splitlines() if calls.exists() else []
        return done

    def stages(self, done):
        lines = done.stdout.splitlines()
        return {line[:22].strip(): line[23:30].strip() for line in lines[lines.index("== result") + 1:-1]}

    def test_all_stages_run_and_the_report_is_left(self):
        done = self.check("-o", "out", "-d", "cuda:1", "-m", "2", "-v", "vectors.csv")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.stages(done), {"CUDA tests": "ok", "known results": "ok", "probe": "ok",
                                             "probe of vectors": "ok", "quick suite": "ok"})
        self.assertIn("check --device cuda:1 --minutes 2 -o out/check.json", self.calls)
        self.assertIn("probe --device cuda:1 --vectors vectors.csv", self.calls)
        self.assertIn("run --suite quick --device cuda:1 -o out/gpu_report.json", self.calls)
        self.assertTrue((self.home / "work/out/gpu_report.json").exists())
        self.assertTrue((self.home / "work/out/gpu_check.log").exists())

    def test_the_tests_run_in_shards_on_the_chosen_gpu(self):
        self.check("-d", "cuda:1", "-r", "700")
        lines = (self.home / "shards").read_text().splitlines()
        total = int(lines[0].split()[2].rstrip(","))
        self.assertEqual(sorted(lines), sorted(f"{i} of {total}, rows 700, GPU 1" for i in range(total)))

    def test_tests_that_crash_are_a_failure_with_the_signal(self):
        self.mark("crash")
        done = self.check()
        self.assertEqual(self.stages(done)["CUDA tests"], "FAILED")
        self.assertIn("ended by signal 11", done.stdout)

    def test_each_failing_stage_is_named_and_the_others_still_run(self):
        for word, stage in (("tests", "CUDA tests"), ("check", "known results"), ("probe", "probe"), ("run", "quick suite")):
            with self.subTest(stage=stage):
                self.mark(f"code_{word}", "1")
                done = self.check()
                (self.home / f"code_{word}").unlink()
                self.assertEqual(done.returncode, 1, done.stdout)
                stages = self.stages(done)
                self.assertEqual([name for name, word in stages.items() if word == "FAILED"], [stage])
                self.assertEqual(len(stages), 4)

    def test_several_gpus_are_asked_how_they_add_across_each_other(self):
        for gpus, asked in (("cuda:0  a GPU\n", ""), ("cuda:0  a GPU\ncuda:1  absent: no memory\n", ""),
                            ("cuda:0  a GPU\ncuda:1  another\ncuda:2  absent: busy\n", "cuda:0,cuda:1")):
            self.mark("gpus", gpus)
            (self.home / "calls").unlink(missing_ok=True)
            done = self.check()
            self.assertEqual(done.returncode, 0, done.stdout)
            calls = [call for call in self.calls if "--all-reduce" in call]
            self.assertEqual(calls, [f"probe --all-reduce --device {asked} -o gpu_check/all_reduce.json"] if asked else [])
            self.assertEqual(self.stages(done).get("sums across GPUs"), "ok" if asked else None)
        self.mark("code_probe", "2")  # no NCCL
        self.assertEqual(self.stages(self.check())["sums across GPUs"], "-")
        self.mark("code_probe", "1")
        self.assertEqual(self.stages(self.check())["sums across GPUs"], "FAILED")

    def test_a_run_without_a_report_and_tests_that_are_all_skipped_are_failures(self):
        self.mark("no_report")
        self.assertEqual(self.stages(self.check())["quick suite"], "FAILED")
        (self.home / "no_report").unlink()
        self.mark("all_skipped")
        done = self.check()
        self.assertEqual(self.stages(done)["CUDA tests"], "FAILED")
        self.assertEqual(done.returncode, 1)

    def test_without_a_gpu_a_build_or_a_plugin_it_ends_with_2_and_one_line(self):
        self.program("tools/nvidia-smi", "#!/bin/sh\nexit 9\n")
        if not pathlib.Path("/dev/nvidia0").exists():
            self.expect_refusal("no NVIDIA GPU")
        (self.home / "halfmark_cuda.so").unlink()
        self.expect_refusal("built without CUDA")
        (self.home / "bin/halfmark").unlink()
        self.expect_refusal("no build")

    def test_a_mistake_on_the_command_line_ends_with_2(self):
        for arguments in (("--nonsense", "1"), ("-o",), ("-d", "")):
            self.assertEqual(self.check(*arguments).returncode, 2, arguments)

    def expect_refusal(self, text):
        done = self.check()
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn(text, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
