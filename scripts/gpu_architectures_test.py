#!/usr/bin/env python3
"""Tests of the architectures that the plugin is built for by default, with a program in the place of nvidia-smi."""

import os
import pathlib
import subprocess
import tempfile
import unittest

FUNCTION = pathlib.Path(__file__).resolve().parent / "cmake" / "HalfmarkGpuArchitectures.cmake"
SCRIPT = f'include("{FUNCTION}")\nhalfmark_gpu_architectures(found)\nmessage("${{found}}")\n'


class GpuArchitectures(unittest.TestCase):
    def found(self, nvidia_smi):
        """The list, where nvidia-smi is a shell script with this text; None: there is none."""
        with tempfile.TemporaryDirectory() as home:
            folder = pathlib.Path(home)
            if nvidia_smi is not None:
                (folder / "nvidia-smi").write_text("#!/bin/sh\n" + nvidia_smi)
                (folder / "nvidia-smi").chmod(0o755)
            (folder / "script.cmake").write_text(SCRIPT)
            without = [one for one in os.environ["PATH"].split(os.pathsep)
                       if not (pathlib.Path(one) / "nvidia-smi").exists()]
            done = subprocess.run(["cmake", "-P", folder / "script.cmake"], capture_output=True, text=True, check=True,
                                  env=dict(os.environ, PATH=os.pathsep.join([home, *without])))
            return done.stderr.strip()

    def test_are_those_of_the_gpus_of_this_machine(self):
        for capability, architecture in (("7.5", "75-real"), ("8.6", "86-real"), ("8.9", "89-real"), ("9.0", "90-real"),
                                         ("10.0", "100-real"), ("12.0", "120-real")):
            self.assertEqual(self.found(f"echo {capability}\n"), architecture)

    def test_are_those_of_all_gpus_once(self):
        self.assertEqual(self.found("echo 8.0; echo 8.0; echo 12.0\n"), "80-real;120-real")

    def test_are_those_of_an_h100_where_no_gpu_is_listed(self):
        self.assertEqual(self.found(None), "90-real")
        self.assertEqual(self.found("echo 'No devices were found'; exit 6\n"), "90-real")
        self.assertEqual(self.found("echo 8.9; exit 9\n"), "90-real")
        self.assertEqual(self.found("echo '[N/A]'\n"), "90-real")


if __name__ == "__main__":
    unittest.main()
