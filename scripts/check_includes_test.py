#!/usr/bin/env python3
"""check_includes.py finds each kind of fault: each test writes a faulty file into a temporary tree."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import check_includes  # noqa: E402


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name

    def plant(self, path, text):
        full = pathlib.Path(self.root, path)
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text)

    def missing(self, text, path="a.cpp"):
        self.plant(path, text)
        return sorted(name for _, name, _ in check_includes.check_file(self.root, path))

    def test_a_name_without_its_header(self):
        self.assertEqual(self.missing("#include <vector>\nint f() { return std::max(1, 2); }\n"), ["std::max"])
        self.assertEqual(self.missing("#include <algorithm>\nint f() { return std::max(1, 2); }\n"), [])
        self.assertEqual(self.missing("int64_t f();\nvoid g() { errno = 0; }\n"), ["errno", "int64_t"])

    def test_a_macro_or_a_c_function_without_its_header(self):
        for use, header in (("HUGE_VAL", "cmath"), ("INT_MAX", "climits"), ("UINT64_C(1)", "cstdint"), ("stderr", "cstdio"), ("memcpy(a, b, 1)", "cstring"),
                            ("::printf(x)", "cstdio"), ("getenv(x)", "cstdlib"), ("PRId64", "cinttypes"), ("FE_UPWARD", "cfenv")):
            name = use.strip(":").split("(")[0]
            self.assertEqual(self.missing(f"auto x = {use};\n"), [name])
            for written in (header, header[1:] + ".h"):
                self.assertEqual(self.missing(f"#include <{written}>\nauto x = {use};\n"), [])
        self.assertEqual(self.missing("auto x = file.puts(1) + text->strlen() + My::INT_MAX;\n"), [])

    def test_names_of_lower_levels_without_the_header_that_makes_them_visible(self):
        self.plant("kernels/error.h", "namespace halfmark::kernels { class Error {}; }\n")
        self.plant("bench/namespaces.h", "namespace halfmark::bench { using namespace kernels; }\n")
        self.plant("bench/a.h", '#include "bench/namespaces.h"\nnamespace halfmark::bench {\n}\n')
        use = "namespace halfmark::bench {\nvoid f() { throw Error(); }\n}\n"
        for includes, lacks in (('#include "kernels/error.h"\n', "bench/namespaces.h"),
                                ('#include "bench/a.h"\n#include "kernels/error.h"\n', None), ("", None)):
            self.plant("bench/b.cpp", includes + use)
            self.assertEqual(check_includes.lacks_namespaces(self.root, "bench/b.cpp"), lacks)
        self.plant("kernels/c.cpp", '#include "kernels/error.h"\n')
        self.assertIsNone(check_includes.lacks_namespaces(self.root, "kernels/c.cpp"))

    def test_names_inside_names(self):
        self.assertEqual(self.missing("auto f() { return std::string::npos; }"), ["std::string"])
        self.assertEqual(self.missing("auto f() { return std::chrono::steady_clock::now(); }"), ["std::chrono::steady_clock"])
        self.assertEqual(self.missing("namespace fs = std::filesystem;"), ["std::filesystem"])
        self.assertEqual(self.missing("bool f() { return std::ranges::find(x, 1) == std::ranges::end(x); }"),
                         ["std::ranges::end", "std::ranges::find"])

    def test_other_ways_to_write_a_name(self):
        for text, names in (("std::\nsort(a);", ["std::sort"]), ("std /* a */ :: ranges :: sort(a);", ["std::ranges::sort"]), ("::std::sort(a);", ["std::sort"]),
                            ("using std::sort;", ["std::sort"]), ("using namespace std;", ["std"]), ("namespace s = std;", ["std"]),
                            ("#define HM_S std\n", ["std"]), ("namespace r = std::ranges;", ["std::ranges"]), ("namespace std {}", ["std"])):
            self.assertEqual(self.missing(text), names, text)

    def test_an_include_in_a_comment_or_a_literal_does_not_count(self):
        for text in ("// #include <map>\n", "/*\n#include <map>\n*/\n", 'const char* a = R"(\n#include <map>\n)";\n', "#/**/include <map>\n"):
            self.assertEqual(self.missing(text + "std::map<int, int> x;\n"), ["std::map"], text)

    def test_words_that_are_not_code(self):
        self.assertEqual(self.missing('// std::max\n/* std::map\n std::set */ const char* x = "std::vector \\" std::span";\n'), [])
        self.assertEqual(self.missing('auto x = R"(std::map " std::set)";\nconst char c = \'"\'; // "\nauto y = R"x(int8_t)")x";'), [])
        self.assertEqual(self.missing("auto n = 1'000'000; std::map<int, int> m; auto k = 2'0;\n"), ["std::map"])

    def test_the_header_of_the_same_name_counts_and_no_other(self):
        self.plant("a.h", "#include <vector>\n")
        self.plant("b.h", "#include <map>\n")
        self.assertEqual(self.missing('#include "a.h"\n#include "b.h"\nstd::vector<std::map<int, int>> x;\n'), ["std::map"])
        for name in ("a_test.cpp", "a_slow_test.cpp"):
            self.assertEqual(self.missing('#include "a.h"\nstd::vector<int> x;\n', name), [])
        self.plant("c.cuh", "#include <vector>\n")
        self.assertEqual(self.missing('#include "c.cuh"\nstd::vector<int> x;\n', "c.cu"), [])

    def test_a_header_of_ours_is_no_standard_header(self):
        self.assertEqual(self.missing('#include "vector"\nstd::vector<int> x;\n'), ["std::vector"])

    def test_what_the_standard_promises_of_a_header_counts(self):
        self.assertEqual(self.missing("#include <string>\nstd::string_view x;\n"), [])
        self.assertEqual(self.missing("#include <string_view>\nstd::string x;\n"), ["std::string"])

    def test_several_headers_may_promise_one_name(self):
        for header in ("utility", "algorithm", "vector"):
            self.assertEqual(self.missing(f"#include <{header}>\nvoid f() {{ std::swap(a, b); }}\n"), [])
        self.assertEqual(self.missing("void f() { std::swap(a, b); }\n"), ["std::swap"])

    def test_a_name_that_the_table_does_not_know_is_reported(self):
        self.plant("a.cpp", "std::brand_new x;\n")
        result = subprocess.run([sys.executable, os.path.join(HERE, "check_includes.py"), self.root], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stdout), (1, "a.cpp:1: std::brand_new is not in the table of scripts/check_includes.py\n"))

    def test_every_kind_of_file_is_looked_at_and_no_folder_of_a_build(self):
        for name in ("a.h", "a.cpp", "a.cu", "a.cuh", "build/a.cpp", "a.py"):
            self.plant(name, "std::vector<int> x;\n")
        self.assertEqual(check_includes.sources(self.root), ["a.cpp", "a.cu", "a.cuh", "a.h"])

    @unittest.skipUnless(shutil.which("git"), "no git here")
    def test_in_a_repository_new_files_count_and_ignored_ones_do_not(self):
        subprocess.run(["git", "init", "-q", self.root], check=True)
        for name, text in ((".gitignore", "/made/\n"), ("made/a.cpp", ""), ("a.cpp", ""), ("build/b.cpp", "")):
            self.plant(name, text)
        self.assertEqual(check_includes.sources(self.root), ["a.cpp", "build/b.cpp"])

    def test_every_row_of_the_table_names_a_header(self):
        for name, headers in check_includes.NEEDS.items():
            for header in headers:
                self.assertRegex(header, r"^[a-z_]+$", name)

    def test_what_is_missing_can_be_added(self):
        texts = {
            '#include "a.h"\n\n#include <unistd.h>\n\n#include <map>\n\n#include "b.h"\nstd::max(1, 2);\n':
                '#include "a.h"\n\n#include <unistd.h>\n\n#include <algorithm>\n#include <map>\n\n#include "b.h"\nstd::max(1, 2);\n',
            '#include "a.h"\n\n#include <unistd.h>\n\nstd::max(1, 2);\n': '#include "a.h"\n\n#include <unistd.h>\n\n#include <algorithm>\n\nstd::max(1, 2);\n',
            '#include "a.h"\n\n#include "b.h"\n\nstd::max(1, 2);\n': '#include "a.h"\n\n#include <algorithm>\n\n#include "b.h"\n\nstd::max(1, 2);\n',
            '// about\n#pragma once\n\nint64_t f();\n': '// about\n#pragma once\n\n#include <cstdint>\n\nint64_t f();\n',
            '#if X\n#include <map>\n#endif\n#include <set>\nstd::max(1, 2);\n': '#if X\n#include <map>\n#endif\n#include <algorithm>\n#include <set>\nstd::max(1, 2);\n',
        }
        for before, after in texts.items():
            self.plant("a.cpp", before)
            subprocess.run([sys.executable, os.path.join(HERE, "check_includes.py"), self.root, "--fix"], capture_output=True)
            self.assertEqual(pathlib.Path(self.root, "a.cpp").read_text(), after)


if __name__ == "__main__":
    unittest.main()
