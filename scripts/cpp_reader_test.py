#!/usr/bin/env python3
"""check_levels.py cannot be walked around: each row of the tables is a trick, and what must be reported of it."""

import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import check_levels  # noqa: E402
import cpp_reader  # noqa: E402
import source_tree  # noqa: E402

FORM = cpp_reader.INCLUDE_FORM
LAYER = "kernels/ops/ may not include"

# Each text is kernels/ops/a.cpp: (text, line, words of the violation).
INCLUDES = [
    # the path
    ('#include "models/x.h"\n', 1, LAYER),
    ('#include "kernels/../models/x.h"\n', 1, FORM),
    ('#include "./models/x.h"\n', 1, FORM),
    ('#include "../../models/x.h"\n', 1, FORM),
    ('#include "models//x.h"\n', 1, FORM),
    ('#include "/models/x.h"\n', 1, FORM),
    ('#include "models/./x.h"\n', 1, FORM),
    ('#include " models/x.h"\n', 1, FORM),
    ('#include "models/x.h "\n', 1, FORM),
    ('#include "models\\x.h"\n', 1, FORM),
    ('#include <models/x.h>\n', 1, FORM),
    ('#include <kernels/number/x.h>\n', 1, FORM),
    ('#include </usr/include/x.h>\n', 1, FORM),
    ('#include <../models/x.h>\n', 1, FORM),
    ('#include "y.h"\n', 1, FORM),
    ('#include "gtest/gtest.h"\n', 1, "in angle brackets"),
    ('#include <x.h>\n', 1, "a file of ours has this name"),
    ('#include <policy.h>\n', 1, "not one of the libraries"),
    ('#include <number/x.h>\n', 1, "a file of ours has this name"),
    ('#include <builtin_types.h>\n', 1, "not one of the libraries"),
    ('#include "kernels/number/none.h"\n', 1, "no header of this repository"),
    ('#include "kernels/number/x.cpp"\n', 1, "no header of this repository"),
    ('#include "kernels/number/x.h.in"\n', 1, "no header of this repository"),
    ('#include "kernels/ops/x_testing.h"\n', 1, "is for tests"),
    # the directive
    ('  #include "models/x.h"\n', 1, LAYER),
    ('#  include "models/x.h"\n', 1, FORM),
    ('#include"models/x.h"\n', 1, FORM),
    ('#include  "models/x.h"\n', 1, FORM),
    ('#import "models/x.h"\n', 1, "#import is not a directive"),
    ('#include_next "models/x.h"\n', 1, "#include_next is not a directive"),
    ('#embed "models/x.h"\n', 1, "#embed is not a directive"),
    ('#line 7 "models/x.h"\n', 1, "#line is not a directive"),
    ('#\n', 1, "is not a directive"),
    ('%:include "models/x.h"\n', 1, "the digraph %:"),
    ('??=include "models/x.h"\n', 1, "a trigraph"),
    ('#define HM_X "models/x.h"\n#include HM_X\n', 2, FORM),
    ('#include \\\n  "models/x.h"\n', 1, FORM),
    ('#inc\\\nlude "models/x.h"\n', 1, "#inc is not a directive"),
    ('\\\n#include "models/x.h"\n', 1, "\\ outside a literal"),
    ('# \\\ninclude "models/x.h"\n', 1, "a continued line"),
    ('#include \\ \n"models/x.h"\n', 1, FORM),
    ('#/**/include "models/x.h"\n', 1, FORM),
    ('# include /**/ "models/x.h"\n', 1, FORM),
    ('#include /* a\n*/ "models/x.h"\n', 1, FORM),
    ('/**/ #include "models/x.h"\n', 1, "after a comment"),
    ('/* a\n*/ #include "models/x.h"\n', 2, "after a comment"),
    ('/* a\n*/\n#include "models/x.h"\n', 3, LAYER),
    ('#include "models/x.h"  // why\n', 1, LAYER),
    ('#include "models/x.h" /* why */\n', 1, FORM),
    ('#include "models/x.h" x\n', 1, FORM),
    ('#if __has_include("models/x.h")\n#include "models/x.h"\n#endif\n', 2, LAYER),
    ('#if __has_include("models/x.h")\n#endif\n', 1, "__has_include of a header of ours"),
    ('#if 0\n#else\n#include "models/x.h"\n#endif\n', 3, LAYER),
    ('#if 0\n#include "models/x.h"\n', 2, LAYER),
    ('#if 0\n', 2, "without #endif"),
    ('import "models/x.h";\n', 1, "no modules"),
    ('import <x.h>;\n', 1, "no modules"),
    ('export module a;\n', 1, "no modules"),
    ('#define HM_A(b) <% b\n', 1, "the digraph <%"),
    ('#define HM_A(b) f(b);\\\n  g(b)\n', 1, "after a blank"),
    # what hides a directive from a reader of lines, or from a reader of literals
    ('const char* a = R"(" /* )";\n#include "models/x.h"\n// */\n', 2, LAYER),
    ('const char* a = "/*";\n#include "models/x.h"\n', 2, LAYER),
    ("const char a = '\"';\n#include \"models/x.h\"\n", 2, LAYER),
    ("const int a = 1'000'0;\n#include \"models/x.h\"\nconst char b = ' ';\n", 2, LAYER),
    ('// R"(\n#include "models/x.h"\n// )"\n', 2, LAYER),
    ('#define HM_R R\nconst char* a = HM_R"(\n#include "models/x.h"\n)";\n', 2, "HM_R outside a literal"),
    ('#include <vector//*>\n#include "models/x.h"\n/**/\n', 1, FORM),
    ('// a \\\n#include "kernels/number/x.h"\n', 1, "ends in a backslash"),
    ('// a \\ \nint a;\n', 1, "ends in a backslash"),
    ('const char* a = "b\\\nc";\n', 1, "outside a literal"),
    ('\ufeff#include "models/x.h"\n', 1, "invisible character"),
    ('// a\r#include "models/x.h"\n', 1, "control"),
    ('\f#include "models/x.h"\n', 1, "control"),
    ('\t#include "models/x.h"\n', 1, "control"),
    ('int a; // \u202e\n', 1, "invisible character"),
    ('#error it\'s wrong\n', 1, "' outside a literal"),
    # flags
    ('#pragma GCC optimize("fast-math")\n', 1, "a pragma"),
    ('#pragma include_alias("a.h", "b.h")\n', 1, "a pragma"),
    ('#define HM_FAST _Pragma("GCC optimize(3)")\n', 1, "a pragma"),
    ('__attribute__((optimize("fast-math"))) int f();\n', 1, "optimize()"),
    ('[[gnu::optimize("fast-math")]] int f();\n', 1, "optimize()"),
]
NO_INCLUDE = [
    '// #include "models/x.h"\n',
    '/* a\n#include "models/x.h"\n*/\n',
    'const char* a = R"(\n#include "models/x.h"\n)";\n',
    'const char* a = R"x(\n)"\n#include "models/x.h"\n)x";\n',
    'const char* a = u8R"(\n#include "models/x.h"\n)";\n',
    'const char* a = "#include \\"models/x.h\\"";\n',
    '#define HM_A(b) \\\n  f(b);         \\\n  g(#b)\n',
    '#if defined(HM_A)  // why\n#include "kernels/number/x.h"\n#elif HM_B > 2\n#include <vector>\n#endif\n',
    '#include <fmt/format.h>\n#include <unistd.h>\n#include <vector>\n\n#include "kernels/number/x.h"\n',
    '#error a message\n#undef HM_A\n#pragma GCC unroll 4\n#pragma GCC diagnostic push\n',
    'auto a = std::vector<::b>{}; auto c = 0x1p-3f + 1\'0u; auto d = u8"x"; auto e = L\'x\'; auto f = "a"s;\n',
]

SPACE = "namespace halfmark::kernels {\n"
TWICE = "halfmark::kernels::Noise is also defined at kernels/ops/a.h:2"
UNREAD = "cannot read this type"
# Beside kernels/ops/a.h, which defines Noise in line 2: (text of kernels/ops/b.h, line, words).
TYPES = [(f"{SPACE}{text}\n}}\n", line, words) for text, line, words in [
    ("struct Noise {};", 2, TWICE),
    ("class Noise final : public A<B{}> {};", 2, TWICE),
    ("union Noise {};", 2, TWICE),
    ("enum Noise { kA };", 2, TWICE),
    ("enum class Noise : int { kA };", 2, TWICE),
    ("enum struct Noise { kA };", 2, TWICE),
    ("using Noise = int;", 2, TWICE),
    ("using Noise [[maybe_unused]] = int;", 2, TWICE),
    ("template <class T>\nusing Noise = A<T>;", 3, TWICE),
    ("typedef int Noise;", 2, "write using"),
    ("typedef struct {\n} Noise;", 2, "write using"),
    ("struct alignas(64) Noise {};", 2, TWICE),
    ("struct [[nodiscard]] alignas(A) Noise {};", 2, TWICE),
    ("struct [[nodiscard, gnu::packed]] Noise {};", 2, TWICE),
    ("struct __attribute__((packed)) Noise {};", 2, TWICE),
    ("struct __attribute((packed)) [[a]] Noise {};", 2, TWICE),
    ("struct HM_PACKED Noise {};", 2, TWICE),
    ("struct HM_ALIGNED(8) Noise {};", 2, TWICE),
    ("struct Noise HM_PACKED {};", 2, TWICE),
    ("using other::Noise;", 2, TWICE),
    ("using other::A, other::Noise;", 2, "several names"),
    ("}\nnamespace halfmark::models {\nvoid train();", 3, "kernels/ops/ may not open halfmark::models"),
    ("}\nnamespace halfmark {\nnamespace bench::run {\nvoid run();\n}", 4, "kernels/ops/ may not open halfmark::bench"),
    ("struct HM_A HM_B {};", 2, UNREAD),
    ("struct Packed Noise {};", 2, UNREAD),
    ("#define HM_NAME Noise\nstruct HM_NAME {};", 3, "a macro as the name"),
    ("#define HM_NAME(a) Noise##a\nstruct HM_NAME(1) {};", 3, UNREAD),
    ("#define HM_NAME Noise\nusing HM_NAME = int;", 3, "a macro as the name"),
    ("#define HM_BODY { int a; }\nstruct Noise HM_BODY;", 3, "a macro beside the name"),
    ("#define HM_OPEN {\nstruct Noise HM_OPEN\n};", 3, "a macro beside the name"),
    ("#define HM_ID(a) a\nHM_ID(struct) Noise {};", 3, "in the arguments of a macro"),
    ("#define HM_ID(a) a\nHM_ID(struct Noise {};)", 3, "in the arguments of a macro"),
    ("}\n#define HM_SPACE halfmark::models\nnamespace HM_SPACE {", 4, "cannot read this namespace"),
    ("using Noise __attribute__((aligned(8))) = int;", 2, TWICE),
    ("int typedef Noise;", 2, "write using"),
    ("struct noise {};", 2, UNREAD),
    ("struct\nNoise\n{\n};", 2, TWICE),
    ("struct /* { */ Noise // ;\n{};", 2, TWICE),
    ("template <class A,\n          bool B = (1 > 2), class C = D<E<int>>>\nstruct Noise {};", 4, TWICE),
    ("template <class T>\n  requires(A<T> && B<T>)\nclass Noise {};", 4, TWICE),
    ("template <class T>\n  requires requires(T a) { a.b(); }\nclass Noise {};", 4, TWICE),
    ("template <int N = 1 << 2> struct Noise {};", 2, TWICE),
    ("inline constexpr struct Noise {} kNoise;", 2, TWICE),
    ("const struct Noise {\n} kNoise = {};", 2, TWICE),
    ("using Other = struct Noise {};", 2, "a type in an alias"),
    ("struct Other {} a, b; struct Noise {};", 2, TWICE),
    ("void f() { struct A {}; }\nstruct Noise {};", 3, TWICE),
    ("bool operator==(A, A) { return true; }\nstruct Noise {};", 3, TWICE),
    ("bool A::operator()(int) { return true; }\nstruct Noise {};", 3, TWICE),
    ("A::A() : a_{1}, b_(2) {}\nstruct Noise {};", 3, TWICE),
    ("auto a = [] { return B{}; };\nstruct Noise {};", 3, TWICE),
    ("HM_THING(a)\nstruct Noise {};", 3, TWICE),
    ('extern "C" {\nstruct Noise {};\n}', 3, TWICE),
    ("struct halfmark::kernels::Noise {};", 2, UNREAD),
    ("namespace {\nstruct A {};\n}", 2, "an unnamed namespace in a header"),
    ("inline namespace v1 {\nstruct Noise {};\n}", 2, "inline namespace"),
    ("namespace [[deprecated]] a::inline b {\n}", 2, "cannot read this namespace"),
    ("#define HM_TYPE struct Noise {}", 2, "'struct' in a macro"),
    ("#define HM_OPEN namespace a {", 2, "'namespace' in a macro"),
    ("#define struct class", 2, "macro struct"),
    ("#define Other Noise", 2, "macro Other"),
    ("#if HM_A\nstruct A\n#else\nstruct B\n#endif\n{};", 3, UNREAD),
    ("#if HM_A\nnamespace a {\n#endif\nstruct B {};\n#if HM_A\n}\n#endif", 4, "must close the braces"),
    ("#if HM_A\nstruct Noise {};\n#endif", 3, TWICE),
    ("#if HM_A\nusing B = int;\nstruct B {};\n#endif", 4, "B is also defined at kernels/ops/b.h:3"),
    ("#if HM_A\nusing B = int;\n#endif\n#if HM_B\nstruct B {};\n#endif", 6, "B is also defined at kernels/ops/b.h:3"),
    ("str\\\nuct Noise {};", 2, "\\ outside a literal"),
    ("struct No\\u0069se {};", 2, "\\ outside a literal"),
    ("struct Noise <%%>;", 2, "the digraph <%"),
    ("struct No\u0456se {};", 2, "\u0456"),
    ("int a = f(1;", 3, "closes nothing"),
    ("}", 3, "closes nothing"),
    ("{", 1, "is not closed"),
]] + [
    ("namespace halfmark { namespace kernels { struct Noise {}; } }\n", 1, TWICE),
    ("namespace halfmark::kernels{struct Noise{};}\n", 1, TWICE),
    ("namespace halfmark\n{\nnamespace kernels\n{\nstruct Noise\n{\n};\n}\n}\n", 5, TWICE),
    ("namespace [[gnu::visibility(\"default\")]] halfmark::kernels {\nstruct Noise {};\n}\n", 2, TWICE),
    ("namespace halfmark::kernels { namespace a {} struct Noise {}; }\n", 1, TWICE),
    ("struct Outer {};\nstruct Outer {};\n", 2, "Outer is also defined at kernels/ops/b.h:1"),
    ("namespace m = halfmark::kernels;\nstruct m::Noise {};\n", 2, UNREAD),
    ("struct ::halfmark::kernels::Noise {};\n", 1, UNREAD),
]
NO_TWICE = [f"{SPACE}{text}\n}}\n" for text in [
    "struct Noise;\nclass Noise;\nenum class Noise : int;\ntemplate <class T> struct Noise;",
    "template <> struct Noise<int> {};\ntemplate <class T>\nstruct Noise<T*> {};\ntemplate struct Noise<long>;",
    "struct Noise f(struct Noise a);\nstruct Noise g(int) noexcept {\n  return {};\n}\nvoid h(struct Noise*);",
    "namespace other {\nstruct Noise {};\n}",
    "struct Outer {\n  struct Noise {};\n  using A = int;\n  enum { kA };\n};",
    "void f() {\n  struct Noise {};\n  using A = int;\n}\ninline void g() {\n  using A = int;\n}",
    "// struct Noise {};\n/* struct Noise {}; */\nconst char* a = \"struct Noise {\";\nconst char* b = R\"(\nstruct Noise {\n)\";",
    "#if HM_A\nusing B = int;\n#elif HM_C\nusing B = long;\n#else\nstruct B {};\n#endif",
    "enum { kA };\nenum { kB };\nconst struct {\n  int a;\n} kC = {1};",
    "template <class T, struct A* = nullptr>\nT f();\nusing namespace other;\nusing other::A;\nusing other::A;\nusing a::noise;\nusing enum Other;",
    "template <>\nstruct std::hash<A> {};\ntemplate <>\nstruct fmt::formatter<A> : fmt::formatter<B> {};",
    "struct Outer::Noise {};\nstruct Outer2::Noise {};",
    "template <class T>\nconcept A = requires(T a) { typename T::B; };\nstruct C {};",
    "bool operator<(A, A);\nbool operator<=(A, A) {\n  return true;\n}\nA::operator bool() const { return true; }\nint operator\"\"_x(char);",
]]


class Planted(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        for path in ("models/x.h", "kernels/number/x.h", "kernels/number/x.cpp", "kernels/number/x.h.in", "kernels/ops/x_testing.h"):
            self.plant(path, "")

    def plant(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8", newline="") as file:
            file.write(text)

    def violations(self):
        return check_levels.check(self.root)[0]


class Tricks(Planted):
    def reported(self, path, table):
        for text, line, words in table:
            with self.subTest(text=text):
                self.plant(path, text)
                found = self.violations()
                self.assertTrue(any(one.startswith(f"{path}:{line}: ") and words in one for one in found), found)

    def clean(self, path, texts):
        for text in texts:
            with self.subTest(text=text):
                self.plant(path, text)
                self.assertEqual(self.violations(), [])

    def test_includes_are_understood_or_refused(self):
        self.reported("kernels/ops/a.cpp", INCLUDES)

    def test_what_is_no_include_does_not_count(self):
        self.clean("kernels/ops/a.cpp", NO_INCLUDE)

    def test_the_short_way_to_the_includes_finds_the_same(self):
        root = os.path.dirname(HERE)
        for path in source_tree.tree_files(root)[0]:
            if path.endswith(check_levels.CODE):
                with open(os.path.join(root, path), encoding="utf-8") as file:
                    text = file.read()
                self.assertEqual(cpp_reader.includes_of(text, cpp_reader.code_of(text)), cpp_reader.read(text).includes, path)
        for text in NO_INCLUDE:
            self.assertEqual(cpp_reader.includes_of(text, cpp_reader.code_of(text)), cpp_reader.read(text).includes, text)

    def test_a_byte_that_is_no_utf8(self):
        full = os.path.join(self.root, "kernels/ops/a.cpp")
        with open(full, "wb") as file:
            file.write(b"// \xff\n")
        self.assertIn("not UTF-8", self.violations()[0])

    def test_two_types_of_one_name(self):
        self.plant("kernels/ops/a.h", f"{SPACE}struct Noise {{}};\n}}\n")
        self.reported("kernels/ops/b.h", TYPES)

    def test_what_is_no_second_type(self):
        self.plant("kernels/ops/a.h", f"{SPACE}struct Noise {{}};\n}}\n")
        self.clean("kernels/ops/b.h", NO_TWICE)

    def test_a_type_of_a_test_differs_from_all_others(self):
        self.plant("kernels/ops/z.h", f"{SPACE}struct Noise {{}};\n}}\n")
        self.plant("kernels/ops/a_test.cpp", f"{SPACE}struct Noise {{}};\nstruct Fixture {{}};\n}}\n")
        self.plant("kernels/ops/b_test.cpp", f"{SPACE}using Fixture = int;\n}}\n")
        self.assertEqual(self.violations(), [
            "kernels/ops/a_test.cpp:2: halfmark::kernels::Noise is also defined at kernels/ops/z.h:2: "
            "put the type of a test into an unnamed namespace",
            "kernels/ops/b_test.cpp:2: halfmark::kernels::Fixture is also defined at kernels/ops/a_test.cpp:3: "
            "put the type of a test into an unnamed namespace"])
        for name in "ab":
            self.plant(f"kernels/ops/{name}_test.cpp", f"{SPACE}namespace {{\nstruct Noise {{}};\nstruct Fixture {{}};\n}}\n}}\n")
        self.assertEqual(self.violations(), [])

    def test_a_cycle_through_a_header_that_cmake_writes(self):
        self.plant("models/made.h.in", '#include "models/a.h"\n')
        self.plant("models/a.h", '#include "made.h"\n')
        self.assertIn("modules include each other: models/a, models/made", self.violations()[0])

    def test_code_in_a_testing_source_file_is_code_of_the_library(self):
        self.plant("kernels/ops/a_testing.cpp", '#include "kernels/devices.h"\n')
        self.plant("kernels/devices.h", "")
        self.assertIn(LAYER, self.violations()[0])


class Kinds(Planted):
    def test_files_of_kinds_that_nothing_reads(self):
        for path in ("models/a.ipp", "models/a.tpp", "models/a.hh", "models/a.hpp", "models/a.cxx", "models/a.cc", "models/a.inl",
                     "models/a.def", "models/a.inc", "models/a.H", "models/a.C", "models/a.c", "models/a.ixx", "models/a.txt",
                     "models/vector", "models/a.h~", "reports/fuzz/seeds/a/a.h", "models/seeds/a"):
            with self.subTest(path=path):
                self.plant(path, "")
                found = self.violations()
                os.remove(os.path.join(self.root, path))
                self.assertEqual(len(found), 1, found)
                self.assertTrue(found[0].startswith(f"{path}:1: "), found)
        self.plant("reports/fuzz/seeds/a/a", '#include "models/x.h"\n')
        self.assertEqual(self.violations(), [])

    def test_links_are_no_way_into_another_folder(self):
        for name, target in (("y.h", "../../models/x.h"), ("linked", "../../models")):
            os.symlink(target, os.path.join(self.root, "kernels/ops", name))
            found = self.violations()
            os.remove(os.path.join(self.root, "kernels/ops", name))
            self.assertEqual(found, [f"kernels/ops/{name}:1: a link or a repository of its own: put the file here"])

    def test_includes_that_no_source_shows(self):
        for path, text in (("CMakeLists.txt", 'target_precompile_headers(a PRIVATE "models/x.h")\n'),
                           ("scripts/cmake/a.cmake", 'add_compile_options("SHELL:-include models/x.h")\n'),
                           ("scripts/cmake/b.cmake", 'file(WRITE "a.cpp" "#include \\"models/x.h\\"")\n'),
                           ("scripts/cmake/c.cmake", 'file(WRITE "a.cpp" [[\n #  include <models/x.h>]]\n)\n'),
                           ("CMakePresets.json", '{"CMAKE_CXX_FLAGS": "-imacros models/x.h"}\n')):
            with self.subTest(path=path):
                self.plant(path, text)
                self.assertEqual(len(self.violations()), 1)
                os.remove(os.path.join(self.root, path))


if __name__ == "__main__":
    unittest.main()
