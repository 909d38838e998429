#!/usr/bin/env python3
"""HalfmarkLevels.cmake refuses a target that uses a higher level, in every way in which a target can name another one."""

import os
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
LEVELS = ("reports", "kernels", "models", "accuracy", "bench", "scripts")
LOWER = {"reports": (), "kernels": (), "models": ("kernels",), "accuracy": ("reports", "kernels", "models"),
         "bench": ("reports", "kernels", "models", "accuracy"), "scripts": ()}


class Targets(unittest.TestCase):
    def configured(self, more):
        """The error text of CMake for a project with a library of each level; more: {folder: further lines of its CMakeLists.txt}."""
        with tempfile.TemporaryDirectory() as root:
            with open(f"{root}/CMakeLists.txt", "w", encoding="utf-8") as file:
                file.write("cmake_minimum_required(VERSION 3.25)\nproject(sample LANGUAGES NONE)\n"
                           f'include("{HERE}/cmake/HalfmarkLevels.cmake")\n'
                           + "".join(f"add_subdirectory({level})\n" for level in LEVELS) + "halfmark_check_levels()\n")
            for level in LEVELS:
                os.makedirs(f"{root}/{level}/deeper")
                for name in (f"{level}/a.cpp", f"{level}/deeper/b.cpp", f"{level}/deeper/CMakeLists.txt"):
                    with open(f"{root}/{name}", "w", encoding="utf-8"):
                        pass
                with open(f"{root}/{level}/CMakeLists.txt", "w", encoding="utf-8") as file:
                    file.write(f"add_library(of_{level} INTERFACE)\n" + more.get(level, ""))
            made = subprocess.run(["cmake", "-S", root, "-B", f"{root}/build"], capture_output=True, text=True, check=False)
            self.assertEqual(made.returncode == 0, not made.stderr, made.stderr)
            return made.stderr

    def test_a_target_may_link_what_is_below_it_and_nothing_else(self):
        for level in LEVELS:
            below = "".join(f"target_link_libraries(of_{level} INTERFACE of_{other})\n" for other in LOWER[level])
            self.assertEqual(self.configured({level: below}), "", level)
            others = [other for other in LEVELS if other != level and other not in LOWER[level]]
            errors = self.configured({level: "".join(f"target_link_libraries(of_{level} INTERFACE of_{other})\n" for other in others)})
            for other in others:
                self.assertIn(f"of_{level} of {level}/ depends on of_{other} of {other}/", errors)

    def test_every_way_to_use_a_higher_level_is_seen(self):
        for line in ("target_link_libraries(of_kernels INTERFACE $<LINK_ONLY:of_bench>)",
                     "target_link_libraries(of_kernels INTERFACE \"$<$<BOOL:1>:of_bench>\")",
                     "set_property(TARGET of_kernels APPEND PROPERTY INTERFACE_LINK_LIBRARIES of_bench)",
                     "add_custom_target(other)\nadd_dependencies(other of_bench)",
                     "target_sources(of_kernels INTERFACE ../bench/a.cpp)",
                     "target_sources(of_kernels INTERFACE \"${CMAKE_SOURCE_DIR}/bench/deeper/b.cpp\")",
                     "add_custom_target(other SOURCES ../bench/deeper/../a.cpp)"):
            errors = self.configured({"kernels": line + "\n"})
            self.assertRegex(errors, "of kernels/ (depends on of_bench|compiles bench/)", line)

    def test_own_sources_in_any_folder_are_allowed(self):
        self.assertEqual(self.configured({"kernels": "target_sources(of_kernels INTERFACE a.cpp deeper/b.cpp)\n"
                                                     "target_sources(of_kernels INTERFACE \"${CMAKE_BINARY_DIR}/made.cpp\")\n"}), "")


if __name__ == "__main__":
    unittest.main()
