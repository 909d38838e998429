#!/usr/bin/env python3
"""check_levels.py finds each kind of fault: each test writes a faulty file into a temporary tree."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import check_levels  # noqa: E402


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name

    def plant(self, path, text=""):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)

    def violations(self):
        return check_levels.check(self.root)[0]

    def including(self, path, header, quote='"'):
        """The violations of one file with one include; a header of ours exists."""
        written = f'"{header}"' if quote == '"' else f"<{header}>"
        planted = [path]
        if quote == '"' and re.fullmatch(r"(bench|accuracy|models|kernels|reports)/[\w/.]+\.h", header) and ".." not in header:
            if not os.path.exists(os.path.join(self.root, header)):
                self.plant(header)
                planted.append(header)
        self.plant(path, f"// what it is for\n#include {written}\n")
        found = self.violations()
        for made in planted:
            os.remove(os.path.join(self.root, made))
        return found

    def assert_refused(self, path, header, quote='"'):
        found = self.including(path, header, quote)
        self.assertEqual(len(found), 1, f"{path} including {header}: {found}")
        self.assertTrue(found[0].startswith(f"{path}:2: "), found[0])

    def assert_allowed(self, path, header, quote='"'):
        self.assertEqual(self.including(path, header, quote), [], f"{path} including {header}")


class Includes(Tree):
    # folder, what it may include, what it may not
    TABLE = [
        ("reports/record/a.cpp", ["reports/record/report.h"], ["kernels/number/format.h", "reports/text/table.h", "reports/statistics/decision.h"]),
        ("reports/statistics/a.cpp", ["reports/record/error.h", "reports/statistics/decision.h"], ["reports/record/report.h", "reports/text/table.h"]),
        ("reports/text/a.cpp", ["reports/record/report.h", "reports/text/table.h"], ["reports/gate/gate.h", "reports/outputs/text.h"]),
        ("reports/gate/a.cpp", ["reports/text/table.h", "reports/statistics/decision.h"], ["reports/outputs/text.h", "reports/history/history.h"]),
        ("reports/outputs/a.cpp", ["reports/gate/judgement.h"], ["reports/history/history.h", "bench/run/case.h"]),
        ("reports/history/a.cpp", ["reports/outputs/judgement_json.h"], ["kernels/number/format.h"]),
        ("reports/claims/a.cpp", ["reports/text/table.h", "reports/record/report.h"], ["reports/gate/gate.h", "bench/run/case.h"]),
        ("reports/predict/a.cpp", ["reports/text/table.h", "reports/record/report.h"], ["reports/claims/claims.h", "kernels/number/format.h"]),
        ("reports/fuzz/a.cpp", ["reports/history/history.h"], ["bench/run/case.h"]),
        ("kernels/number/a.cpp", ["kernels/number/format.h"], ["kernels/tensor/tensor.h", "reports/record/measurement.h"]),
        ("kernels/tensor/a.cpp", ["kernels/number/dtype.h", "kernels/tensor/device.h"], ["kernels/ops/ops.h"]),
        ("kernels/ops/a.cpp", ["kernels/tensor/tensor.h", "kernels/number/format.h"], ["kernels/cpu/cpu_device.h", "kernels/devices.h"]),
        ("kernels/cpu/onednn/a.cpp", ["kernels/cpu/onednn/engine.h", "kernels/ops/ops.h"], ["kernels/sim/sim_device.h", "kernels/plugin.h"]),
        ("kernels/sim/a.cpp", ["kernels/cpu/cpu_device.h", "kernels/number/format.h"], ["kernels/cuda/cuda.h", "kernels/devices.h"]),
        ("kernels/cuda/a.cu", ["kernels/plugin.h", "kernels/ops/ops.h", "kernels/cuda/cuda.h"], ["kernels/cpu/cpu_device.h", "models/policy.h"]),
        ("kernels/cuda/dot_tests/a.cpp", ["kernels/sim/tensor_core.h", "kernels/devices.h", "kernels/cuda/dot_table.h"],
         ["models/policy.h", "kernels/cuda/software_gpu/warp.h"]),
        ("kernels/cuda/software_gpu/a.cpp", ["kernels/sim/tensor_core.h", "kernels/cuda/software_gpu/warp.h", "kernels/cuda/hardware.h"],
         ["kernels/cuda/cuda_device.h", "kernels/sim/sim_device.h", "kernels/cpu/cpu_device.h"]),
        ("kernels/cuda/software_gpu/planted/a.cpp", ["kernels/cuda/launch.h", "kernels/cuda/software_gpu/warp.h"],
         ["kernels/cpu/cpu_device.h", "kernels/sim/sim_device.h"]),
        ("kernels/cuda/software_gpu/libraries/a.cpp", ["kernels/cuda/software_gpu/streams.h", "kernels/cpu/cpu_device.h"],
         ["kernels/cuda/cuda_device.h", "kernels/sim/tensor_core.h"]),
        ("kernels/devices.cpp", ["kernels/sim/sim_device.h", "kernels/plugin.h", "kernels/cpu/cpu_device.h"], ["kernels/cuda/cuda.h", "models/policy.h"]),
        ("models/layers/a.cpp", ["models/layer.h", "kernels/ops/ops.h", "kernels/tensor/random.h", "kernels/devices.h", "kernels/number/format.h"],
         ["kernels/cpu/cpu_device.h", "kernels/sim/tensor_core.h", "kernels/ops/detail.h", "kernels/plugin.h", "accuracy/accuracy.h", "reports/record/measurement.h"]),
        ("accuracy/a.cpp", ["models/trial.h", "kernels/ops/ops.h", "reports/record/measurement.h"],
         ["reports/record/report.h", "bench/run/case.h", "kernels/cpu/cpu_device.h", "accuracy/probe/probe.h"]),
        ("accuracy/probe/a.cpp", ["accuracy/stats.h", "accuracy/probe/probe.h"], ["bench/run/case.h"]),
        ("accuracy/experiments/a.cpp", ["accuracy/stats.h", "models/trial.h", "accuracy/probe/probe.h"], ["bench/run/case.h"]),
        ("bench/run/a.cpp", ["accuracy/accuracy.h", "reports/gate/gate.h", "bench/run/case.h"], ["bench/ab/build.h", "bench/commands/commands.h"]),
        ("bench/vectors/a.cpp", ["accuracy/probe/probe.h", "bench/vectors/csv.h"], ["bench/run/case.h", "bench/commands/commands.h"]),
        ("bench/ab/a.cpp", ["bench/run/case.h", "bench/ab/build.h"], ["bench/vectors/csv.h", "bench/commands/commands.h"]),
        ("bench/commands/a.cpp", ["bench/run/case.h", "bench/ab/build.h", "bench/vectors/csv.h"], ["bench/program.h", "bench/micro/micro.h"]),
        ("bench/micro/a.cpp", ["kernels/cpu/cpu_device.h", "accuracy/accuracy.h", "models/zoo.h", "bench/run/case.h"], ["bench/commands/commands.h"]),
        ("bench/planted/a.cpp", ["bench/program.h"], ["bench/micro/micro.h"]),
        ("bench/fuzz/a.cpp", ["bench/program.h", "bench/vectors/csv.h"], ["bench/micro/micro.h"]),
        ("bench/a.cpp", ["bench/program.h", "bench/commands/commands.h"], ["bench/micro/micro.h"]),
    ]

    def test_the_table_holds_both_ways(self):
        for path, allowed, refused in self.TABLE:
            for header in allowed:
                self.assert_allowed(path, header)
            for header in refused:
                self.assert_refused(path, header)

    def test_every_folder_of_the_table_is_tried(self):
        tried = {check_levels.folder_of(path) for path, _, _ in self.TABLE}
        self.assertEqual(tried, set(check_levels.MAY_INCLUDE))

    def test_angle_brackets_are_no_way_out(self):
        self.plant("models/a.cpp", "#include <bench/run/case.h>\n")
        self.assertEqual(len(self.violations()), 1)

    def test_every_way_to_write_an_include_is_seen(self):
        for path, line in (("models/a.inc", '#include "bench/run/case.h"'), ("models/a.h", ' #  include  "bench/run/case.h"')):
            self.plant(path, line + "\n")
            self.assertEqual(len(self.violations()), 1, line)
            os.remove(os.path.join(self.root, path))

    def test_a_folder_without_a_row_includes_nothing_of_ours(self):
        found = self.including("scripts/a.cpp", "models/policy.h")
        self.assertEqual(len(found), 1, found)
        self.assertIn("has no line for this folder", found[0])

    def test_tests_may_open_devices_and_nothing_more(self):
        self.assert_allowed("kernels/ops/ops_test.cpp", "kernels/devices.h")
        self.assert_refused("kernels/ops/ops_test.cpp", "models/policy.h")
        self.assert_refused("kernels/ops/operations/window.cpp", "kernels/devices.h")

    def test_includes_are_written_from_the_root(self):
        self.plant("reports/record/report.h")
        self.assert_refused("reports/record/report.cpp", "report.h")
        self.assert_refused("reports/record/report.cpp", "../reports/report.h")
        self.assert_refused("reports/record/report.cpp", "gtest/gtest.h")
        self.assert_allowed("reports/record/report.cpp", "gtest/gtest.h", "<")

    def test_cuda_headers_stay_in_their_folder(self):
        for header in ("cuda_runtime.h", "cuda_fp8.h", "cublasLt.h", "cudnn.h", "nvml.h", "cuda/std/array", "nvrtc.h", "nccl.h",
                       "nvtx3/nvToolsExt.h", "thrust/sort.h", "cub/cub.cuh", "curand.h", "cusparse.h", "cusolverDn.h", "cufft.h",
                       "vector_types.h", "device_launch_parameters.h", "cooperative_groups.h", "mma.h", "sm_61_intrinsics.h"):
            self.assert_allowed("kernels/cuda/a.cpp", header, "<")
            self.assert_allowed(check_levels.CUDA_HEADERS_TEST, header, "<")
            self.assert_refused("kernels/number/other_test.cpp", header, "<")
            self.assert_refused("kernels/cpu/a.cpp", header, "<")
            self.assert_refused("bench/a.cpp", header, "<")
            self.assert_refused("bench/a.cpp", header)


class Modules(Tree):
    def test_a_cycle_through_a_source_file(self):
        self.plant("models/a.h", '#include "models/b.h"\n')
        self.plant("models/b.h")
        self.assertEqual(self.violations(), [])
        self.plant("models/b.cpp", '#include "models/a.h"\n')
        found = self.violations()
        self.assertEqual(len(found), 1, found)
        self.assertIn("modules include each other: models/a, models/b", found[0])

    def test_a_cycle_of_several_modules(self):
        for module, other in ("ab", "bc", "ca", "da"):
            self.plant(f"models/{module}.h", f'#include "models/{other}.h"\n')
        found = self.violations()
        self.assertEqual(len(found), 1, found)
        self.assertIn("modules include each other: models/a, models/b, models/c (", found[0])

    def test_a_test_may_close_a_circle(self):
        self.plant("models/a.h", '#include "models/b.h"\n')
        self.plant("models/b.h")
        self.plant("models/b_test.cpp", '#include "models/a.h"\n')
        self.assertEqual(self.violations(), [])

    def test_private_parts_of_a_unit(self):
        self.plant("kernels/number/convert.h")
        self.plant("kernels/number/convert_paths.h", '#include "kernels/number/convert.h"\n')
        self.plant("kernels/number/convert.cpp", '#include "kernels/number/convert_paths.h"\n')
        self.assertEqual(self.violations(), [])
        self.assert_refused("kernels/number/dtype.cpp", "kernels/number/convert_paths.h")


class Files(Tree):
    def assert_one(self, words):
        found = self.violations()
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def test_device_code_elsewhere(self):
        self.plant("kernels/cuda/cast.cu")
        self.assertEqual(self.violations(), [])
        for name in ("cast.cu", "cast.cuh"):
            self.plant(f"kernels/cpu/{name}")
            self.assert_one(f"kernels/cpu/{name}:1: device code")
            os.remove(os.path.join(self.root, "kernels/cpu", name))

    def test_folders_without_meaning(self):
        for name in ("core", "common", "utils", "util"):
            self.plant(f"models/{name}/a.h")
            self.assert_one(f"a folder called {name}")
            os.remove(os.path.join(self.root, f"models/{name}/a.h"))

    def test_flags_that_change_numbers(self):
        for flag in ("-ffast-math", "-Ofast", "-funsafe-math-optimizations", "--use_fast_math", "-use_fast_math", "-march=native"):
            for path in ("CMakeLists.txt", "scripts/cmake/a.cmake", "CMakePresets.json", "kernels/cuda/CMakeLists.txt", "scripts/a.sh",
                         "scripts/a.yml", "scripts/a.yaml"):
                self.plant(path, f"\nadd_compile_options({flag})\n")
                self.assert_one(f"{path}:2: {flag}")
                os.remove(os.path.join(self.root, path))

    def test_in_cmake_files_flags_outside_the_list(self):
        for flag in ("-O3", "-fassociative-math", "-ffp-contract=fast", "-ffp-model=fast", "-mfma", "-mrecip=all", "--fmad=true", "-fno-signed-zeros",
                     "-Xptxas=-O3", "-Xcompiler=-ffinite-math-only", "-msse2", "-fopenmp-simd"):
            for path in ("CMakeLists.txt", "scripts/cmake/a.cmake", "scripts/cmake/a.cmake.in", "CMakePresets.json"):
                self.plant(path, f'set(X "a#b {flag}")\n')
                found = self.violations()
                self.assertEqual(len(found), 1, f"{flag} {found}")
                self.assertIn("not one of the flags", found[0])
                os.remove(os.path.join(self.root, path))
        for flag in ("-O2", "-ffp-contract=off", "-fsanitize=address,undefined", "-ffile-prefix-map=${X}/=", "--fmad=false", "-max_len=20", "a-file", "my-Ofast-x"):
            self.plant("CMakeLists.txt", f"set(X {flag})\n")
            self.assertEqual(self.violations(), [], flag)

    def test_a_comment_may_name_them(self):
        self.plant("CMakeLists.txt", "# never -ffast-math\nadd_compile_options(-ffp-contract=off)  # nor -Ofast\n")
        self.assertEqual(self.violations(), [])
        self.plant("CMakePresets.json", '{"flags": "# -ffast-math"}\n')  # JSON has no comments
        self.assert_one("CMakePresets.json:1: -ffast-math")

    def test_strangers_in_the_root(self):
        self.plant("README.md")
        self.plant(".clang-format")
        self.assertEqual(self.violations(), [])
        self.plant("docs/a.md")
        self.assert_one("docs:1: ")

    @unittest.skipUnless(shutil.which("git"), "no git here")
    def test_in_a_repository_only_tracked_files_stand_in_the_root(self):
        subprocess.run(["git", "init", "-q", self.root], check=True)
        self.plant("report.json")
        self.assertEqual(self.violations(), [])
        subprocess.run(["git", "-C", self.root, "add", "report.json"], check=True)
        self.assert_one("report.json:1: ")

    @unittest.skipUnless(shutil.which("git"), "no git here")
    def test_in_a_repository_new_files_count_and_ignored_ones_do_not(self):
        subprocess.run(["git", "init", "-q", self.root], check=True)
        self.plant(".gitignore", "/made/\n")
        for folder in ("made", "models"):
            self.plant(f"{folder}/a.cpp", '#include "bench/run/case.h"\n')
        self.assert_one("models/a.cpp:1: ")

    @unittest.skipUnless(shutil.which("git"), "no git here")
    def test_sources_in_an_ignored_folder_of_another_repository(self):
        subprocess.run(["git", "init", "-q", self.root], check=True)
        self.plant(".gitignore", "/sub/\n")
        self.plant("sub/models/a.cpp", '#include "bench/run/case.h"\n')
        found = check_levels.check(os.path.join(self.root, "sub"))[0]
        self.assertEqual(len(found), 1, found)
        self.assertIn("models/a.cpp:1: ", found[0])

    @unittest.skipUnless(shutil.which("git"), "no git here")
    def test_in_a_repository_only_tracked_files_are_of_a_known_kind(self):
        subprocess.run(["git", "init", "-q", self.root], check=True)
        self.plant("models/a.h~")
        self.assertEqual(self.violations(), [])
        subprocess.run(["git", "-C", self.root, "add", "models"], check=True)
        self.assert_one("models/a.h~:1: not one of the kinds of files")

    @unittest.skipUnless(shutil.which("git"), "no git here")
    def test_a_header_that_git_ignores_is_no_header_of_ours(self):
        subprocess.run(["git", "init", "-q", self.root], check=True)
        self.plant(".gitignore", "/models/local.h\n")
        self.plant("models/local.h")
        self.plant("models/a.cpp", '#include "models/local.h"\n')
        self.assert_one('models/a.cpp:1: "models/local.h": no header of this repository')

    def test_long_files_are_a_warning(self):
        self.plant("models/long.cpp", "\n" * (check_levels.LONG_FILE + 1))
        violations, warnings, _ = check_levels.check(self.root)
        self.assertEqual(violations, [])
        self.assertEqual(len(warnings), 1)

    def test_the_exit_code_and_the_lines(self):
        script = os.path.join(HERE, "check_levels.py")
        empty = subprocess.run([sys.executable, script, self.root], capture_output=True, text=True)
        self.assertEqual((empty.returncode, empty.stdout), (2, ""))
        self.assertIn("no files in", empty.stderr)
        self.assertEqual(subprocess.run([sys.executable, script, self.root, "more"], capture_output=True).returncode, 2)
        self.plant("reports/text/b.cpp")
        clean = subprocess.run([sys.executable, script, self.root], capture_output=True, text=True)
        self.assertEqual(clean.returncode, 0, clean.stdout)
        self.plant("reports/text/a.cpp", '#include "bench/run/case.h"\n')
        broken = subprocess.run([sys.executable, script, self.root], capture_output=True, text=True)
        self.assertEqual(broken.returncode, 1)
        self.assertIn('reports/text/a.cpp:1: reports/text/ may not include "bench/run/case.h"', broken.stdout)


if __name__ == "__main__":
    unittest.main()
