#!/usr/bin/env python3
"""Tests of the table of planted changes: every text that it replaces occurs once in the sources."""

import pathlib
import unittest

from planted_changes import CHANGES

ROOT = pathlib.Path(__file__).resolve().parent.parent


class PlantedChanges(unittest.TestCase):
    def test_replace_texts_that_occur_once_and_leave_other_texts(self):
        for change in CHANGES:
            texts = {}
            for name, old, new in change.edits:
                text = texts.get(name) or (ROOT / name).read_text()
                self.assertEqual(text.count(old), 1, f"{change.name}: {name}: {old}")
                texts[name] = text.replace(old, new)
                self.assertNotEqual(texts[name], text, change.name)

    def test_have_names_of_their_own_and_one_changes_nothing(self):
        names = [change.name for change in CHANGES]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual([change.name for change in CHANGES if not change.edits], ["nothing"])
        self.assertGreaterEqual(len(names), 46)


if __name__ == "__main__":
    unittest.main()
