#!/usr/bin/env python3
"""Tests of the ready workflow files: they parse, and the gate's exit codes have the effects that their comments state."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest

try:
    import yaml
except ImportError:
    yaml = None

WORKFLOWS = pathlib.Path(__file__).resolve().parent / "workflows"
# Replaces the program: records its arguments and ends with the given exit code.
PROGRAM = """#!/bin/sh
echo "$@" >> "$CALLS"
case $1 in run) exit "${RUN:-0}" ;; *) exit "${GATE:-0}" ;; esac
"""


def load(name):
    return yaml.safe_load((WORKFLOWS / name).read_text())


class Folder:
    """A folder with a fake `halfmark`, in which the lines of a workflow run."""

    def __init__(self, test):
        temporary = tempfile.TemporaryDirectory()
        test.addCleanup(temporary.cleanup)
        self.path = pathlib.Path(temporary.name)
        for place in (self.path, self.path / "halfmark" / "bin"):
            place.mkdir(parents=True, exist_ok=True)
        (self.path / "halfmark" / "bin" / "halfmark").write_text(PROGRAM)
        (self.path / "halfmark" / "bin" / "halfmark").chmod(0o755)

    def run(self, script, **settings):
        calls = self.path / "calls"
        calls.write_text("")
        environment = dict(os.environ, CALLS=str(calls), GITHUB_STEP_SUMMARY="summary.md", HALFMARK_SUITE="quick",
                           HALFMARK_BASELINE="base.json", **{key: str(value) for key, value in settings.items()})
        environment["PATH"] = f"{self.path}/halfmark/bin:{environment['PATH']}"
        result = subprocess.run(["bash", "-e", "-c", script], cwd=self.path, env=environment,
                                capture_output=True, text=True)
        return result.returncode, calls.read_text().splitlines(), result.stdout


@unittest.skipUnless(yaml, "no Python package yaml (install python3-yaml)")
class Workflows(unittest.TestCase):
    def steps(self):
        return load("github-gate.yml")["jobs"]["gate"]["steps"]

    def step(self, name):
        return next(step["run"] for step in self.steps() if step.get("name") == name)

    def test_every_script_is_a_shell_script(self):
        scripts = [step["run"] for step in self.steps() if "run" in step] + load("gitlab-gate.yml")["halfmark"]["script"]
        self.assertGreaterEqual(len(scripts), 7)
        for script in scripts:
            result = subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)

    @unittest.skipUnless(shutil.which("curl"), "no curl here")
    def test_an_archive_with_another_checksum_is_not_unpacked(self):
        unpack = {"github": self.step("unpack halfmark")}
        gitlab = load("gitlab-gate.yml")["halfmark"]["script"]
        unpack["gitlab"] = "\n".join(gitlab[:next(i for i, line in enumerate(gitlab) if "halfmark run" in line)])
        for name, script in unpack.items():
            for honest in (True, False):
                folder = Folder(self)
                inside = folder.path / "halfmark-0.1.0" / "bin"
                inside.mkdir(parents=True)
                (inside / "unpacked").write_text("")
                archive = folder.path / "offered.tar.gz"
                with tarfile.open(archive, "w:gz") as packed:
                    packed.add(inside.parent, "halfmark-0.1.0")
                checksum = hashlib.sha256(archive.read_bytes()).hexdigest() if honest else "0" * 64
                code, _, output = folder.run(script, HALFMARK_ARCHIVE=archive.as_uri(), HALFMARK_SHA256=checksum,
                                             RUNNER_TEMP=folder.path / "temp", GITHUB_PATH=folder.path / "path")
                unpacked = list(folder.path.rglob("bin/unpacked"))
                self.assertEqual((code == 0, len(unpacked)), (honest, 2 if honest else 1), f"{name}: {output}")

    def test_github_passes_the_gates_exit_code_on(self):
        folder = Folder(self)
        for code in (0, 1, 2):
            for allow in ("true", "false"):
                self.assertEqual(folder.run(self.step("gate"), GATE=code, HALFMARK_ALLOW_NO_VERDICT=allow)[0], code)

    def test_github_warns_of_no_verdict_where_that_is_allowed(self):
        code, _, output = Folder(self).run(self.step("gate"), GATE=3, HALFMARK_ALLOW_NO_VERDICT="true")
        self.assertEqual(code, 0)
        self.assertIn("::warning title=halfmark::no verdict", output)
        self.assertEqual(Folder(self).run(self.step("gate"), GATE=3, HALFMARK_ALLOW_NO_VERDICT="false")[0], 3)

    def test_github_gates_what_it_measured_and_keeps_what_it_wrote(self):
        folder = Folder(self)
        measured = folder.run(self.step("measure"))[1][0].split()
        gated = folder.run(self.step("gate"))[1][0].split()
        self.assertEqual(gated[:3], ["gate", "base.json", measured[measured.index("-o") + 1]])
        self.assertEqual(gated[gated.index("--markdown") + 1], "summary.md")
        self.assertIn("--annotations", gated)
        upload = next(step for step in self.steps() if "upload-artifact" in step.get("uses", ""))
        self.assertEqual(upload["if"], "always()")
        self.assertIn(gated[gated.index("--junit") + 1], upload["with"]["path"].split())

    def test_a_failed_case_goes_on_to_the_gate_and_a_wrong_command_does_not(self):
        measure = self.step("measure"), load("gitlab-gate.yml")["halfmark"]["script"][-2]
        for script in measure:
            for code, expected in ((0, 0), (1, 0), (2, 1)):
                self.assertEqual(Folder(self).run(script, RUN=code)[0], expected, script)

    def test_gitlab_allows_no_verdict_and_nothing_else(self):
        job = load("gitlab-gate.yml")["halfmark"]
        self.assertEqual(job["allow_failure"], {"exit_codes": 3})
        for code in (0, 1, 2, 3):
            self.assertEqual(Folder(self).run(job["script"][-1], GATE=code)[0], code)

    def test_gitlab_shows_the_junit_file_also_when_the_gate_fails(self):
        job = load("gitlab-gate.yml")["halfmark"]
        called = Folder(self).run(job["script"][-1])[1][0].split()
        self.assertEqual(job["artifacts"]["reports"]["junit"], called[called.index("--junit") + 1])
        self.assertEqual(job["artifacts"]["when"], "always")
        self.assertIn(called[called.index("--markdown") + 1], job["artifacts"]["paths"])

    def test_the_variables_that_are_used_are_set(self):
        github, gitlab = load("github-gate.yml"), load("gitlab-gate.yml")["halfmark"]
        scripts = "\n".join(step.get("run", "") for step in github["jobs"]["gate"]["steps"])
        for name in github["env"]:
            self.assertIn(f"${name}", scripts)
        for name in gitlab["variables"]:
            self.assertIn(f"${name}", "\n".join(gitlab["script"]))


if __name__ == "__main__":
    unittest.main()
