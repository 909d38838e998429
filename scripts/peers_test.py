#!/usr/bin/env python3
"""Tests of scripts/peers that need no PyTorch: what is read, the numbers that dropout draws, and that no layer is forgotten."""

import ast
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent
PEERS = SCRIPTS / "peers"
PROGRAM = os.environ.get("HALFMARK", str(SCRIPTS.parent / "build" / "release" / "halfmark"))

try:
    import numpy
except ImportError:
    numpy = None


def keys_of(table):
    """The keys of a dictionary that torch_network.py assigns at its top level."""
    tree = ast.parse((PEERS / "torch_network.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and node.targets[0].id == table:
            return {key.value for key in node.value.keys}
    raise AssertionError(f"torch_network.py has no table {table}")


@unittest.skipUnless(os.access(PROGRAM, os.X_OK), "halfmark is not built in build/release")
class Tables(unittest.TestCase):
    def test_every_kind_of_layer_has_a_counterpart(self):
        listed = json.loads(subprocess.run([PROGRAM, "list", "layers", "--json"], capture_output=True, check=True).stdout)
        self.assertEqual({row["layer"] for row in listed}, keys_of("KINDS"))

    def test_every_argument_of_a_layer_is_read(self):
        text = (PEERS / "torch_network.py").read_text(encoding="utf-8")
        listed = json.loads(subprocess.run([PROGRAM, "list", "layers", "--json"], capture_output=True, check=True).stdout)
        # Those that only say how initial values are drawn or how many numbers there are: the dumped tensors have them. One or
        # several operations compute the same.
        known = {"start", "deviation", "bias_start", "bias", "out", "entries", "features", "length", "affine", "fused"}
        for row in listed:
            for argument in row["arguments"]:
                if argument["name"] not in known:
                    read = any(quote + argument["name"] + quote in text for quote in "'\"")
                    self.assertTrue(read, f"{row['layer']} {argument['name']}")


@unittest.skipIf(numpy is None, "NumPy is not installed")
class Dumps(unittest.TestCase):
    def setUp(self):
        sys.path.insert(0, str(PEERS))
        import dumped
        self.dumped = dumped

    def tearDown(self):
        sys.path.remove(str(PEERS))

    def test_philox_gives_the_published_numbers(self):
        # Random123 1.14, tests/kat_vectors: philox4x32 10.
        for counter, key, expected in [
                ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
                ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0],
                 [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1])]:
            self.assertEqual([int(word) for word in self.dumped.philox(counter, key)], expected)

    def test_codes_of_bf16_are_decoded(self):
        codes = numpy.array([0x3F80, 0xC000, 0x7F80], dtype=numpy.uint16)
        self.assertEqual(list(self.dumped.decode(codes, "bf16")), [1.0, -2.0, float("inf")])

    @unittest.skipUnless(os.access(PROGRAM, os.X_OK), "halfmark is not built in build/release")
    def test_a_dump_is_read_and_a_folder_that_is_none_is_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(self.dumped.DumpError, "no dump of halfmark"):
                self.dumped.Dump(folder)
            made = pathlib.Path(folder) / "made"
            command = [PROGRAM, "dump", "mlp/b8_i16_h24_o10/cpu/amp-bf16", "-o", str(made), "--steps", "2"]
            subprocess.run(command, check=True, capture_output=True)
            dump = self.dumped.Dump(made)
            self.assertEqual(dump.get("input", "", 0).shape, (8, 16))
            self.assertEqual(dump.get("output", "", 1).shape, (8, 10))
            self.assertEqual(dump.dtype("output", "", 1), "bf16")
            self.assertEqual(sorted(dump.names("parameter")), sorted(dump.names("gradient", 1)))
            again = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(again.returncode, 2)
            self.assertIn("is not empty", again.stderr)
            self.assertEqual(len(again.stderr.strip().splitlines()), 1)
            self.assertEqual([one.name for one in pathlib.Path(folder).iterdir()], ["made"], "a folder was left behind")


if __name__ == "__main__":
    unittest.main()
