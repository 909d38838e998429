#!/usr/bin/env python3
"""Tests of check_readmes.py on small trees."""

import pathlib
import tempfile
import unittest

from check_readmes import unnamed


class Unnamed(unittest.TestCase):
    def found(self, **pages):
        """The files that are not named, of a tree with these Markdown files: `a__README="text"` is a/README.md."""
        files = ["a/one.cpp", "a/one.h", "a/one_test.cpp", "a/data.json", "a/inner/two.cpp", "main.cpp"]
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in files:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).touch()
            for name, text in pages.items():
                (root / f"{name.replace('__', '/')}.md").write_text(text)
            return [path.as_posix() for path, _ in unnamed(root, [pathlib.Path(name) for name in files])]

    def test_a_file_is_named_by_its_name_its_stem_a_glob_or_its_folder(self):
        self.assertEqual(self.found(a__README="`one.cpp`, `one.h`, `two.cpp`"), [])
        self.assertEqual(self.found(a__README="`one`, `inner/`"), [])
        self.assertEqual(self.found(a__README="`on*.*`, `inner/two`"), [])
        self.assertEqual(self.found(a__README="`one.* OPTION`, `inner/`"), [])

    def test_a_file_that_no_page_names_is_found(self):
        self.assertEqual(self.found(a__README="`one.cpp`, `inner/`"), ["a/one.h"])
        self.assertEqual(self.found(a__README="one.cpp and `one.h`"), ["a/one.cpp", "a/inner/two.cpp"])
        self.assertEqual(self.found(a__README="nothing"), ["a/one.cpp", "a/one.h", "a/inner/two.cpp"])

    def test_any_page_of_the_folder_counts(self):
        self.assertEqual(self.found(a__README="`one.h`", a__more="`one.cpp`, `inner/`"), [])

    def test_a_folder_with_a_page_names_its_own_files(self):
        self.assertEqual(self.found(a__README="`one.*`, `inner/`", a__inner__README="nothing"), ["a/inner/two.cpp"])
        self.assertEqual(self.found(a__README="`one.*`, `inner/`", a__inner__README="`two.cpp`"), [])

    def test_the_front_page_names_no_files(self):
        self.assertEqual(self.found(README="`nothing`"), [])


if __name__ == "__main__":
    unittest.main()
