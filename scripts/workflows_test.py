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
case $1 in run) exit "${RUN:-0}" ;; ab) exit "${AB:-0}" ;; *) exit "${GATE:-0}" ;; esac
"""


def load(name):
    return yaml.safe_load((WORKFLOWS / name).read_text())


def gitlab_scripts():
    """The lines of both jobs; the second one begins with those of the first."""
    jobs = load("gitlab-gate.yml")
    return jobs["halfmark"]["before_script"] + jobs["halfmark"]["script"] + jobs["halfmark-times"]["script"]


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
        scripts = [step["run"] for step in self.steps() if "run" in step] + gitlab_scripts()
        self.assertGreaterEqual(len(scripts), 10)
        for script in scripts:
            result = subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)

    @unittest.skipUnless(shutil.which("curl"), "no curl here")
    def test_an_archive_with_another_checksum_is_not_unpacked(self):
        unpack = {"github": self.step("unpack halfmark")}
        unpack["gitlab"] = "\n".join(load("gitlab-gate.yml")["halfmark"]["before_script"])
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

    def times(self, **settings):
        """Runs the step for times on both platforms with an archive to compare with: exit codes, calls and outputs."""
        scripts = {"github": self.step("times"), "gitlab": "\n".join(load("gitlab-gate.yml")["halfmark-times"]["script"])}
        results = {}
        for name, script in scripts.items():
            folder = Folder(self)
            (folder.path / "temp").mkdir()
            archive = folder.path / "offered.tar.gz"
            archive.write_text("the base build")
            given = {"HALFMARK_BASE_ARCHIVE": archive.as_uri(), "RUNNER_TEMP": folder.path / "temp",
                     "HALFMARK_BASE_SHA256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                     "HALFMARK_ALLOW_NO_VERDICT": "true"}
            results[name] = folder.run(script, **{**given, **settings})
        return results

    @unittest.skipUnless(shutil.which("curl"), "no curl here")
    def test_times_are_decided_by_ab_whose_exit_codes_pass_on(self):
        for code in (0, 1, 2, 3):
            results = self.times(AB=code, HALFMARK_ALLOW_NO_VERDICT="false")
            self.assertEqual([result[0] for result in results.values()], [code, code])
            for name, (_, calls, _) in results.items():
                words = calls[0].split()
                self.assertEqual(words[0], "ab", name)
                self.assertTrue(words[1].endswith("halfmark-base.tar.gz") and words[2].endswith("halfmark.tar.gz"), name)
                self.assertIn("--time-only", words, name)
                self.assertEqual(words[words.index("--suite") + 1], "quick", name)
        allowed = self.times(AB=3)["github"]
        self.assertEqual(allowed[0], 0)
        self.assertIn("::warning title=halfmark::no verdict on times", allowed[2])
        self.assertEqual(self.times(AB=1)["github"][0], 1)

    @unittest.skipUnless(shutil.which("curl"), "no curl here")
    def test_times_of_another_archive_than_the_named_one_are_not_measured(self):
        for name, (code, calls, _) in self.times(HALFMARK_BASE_SHA256="0" * 64).items():
            self.assertNotEqual(code, 0, name)
            self.assertEqual(calls, [], name)

    def test_a_workflow_without_a_build_to_compare_with_says_that_no_time_was_judged(self):
        results = self.times(HALFMARK_BASE_ARCHIVE="")
        self.assertEqual({name: result[0] for name, result in results.items()}, {"github": 0, "gitlab": 3})
        for name, (_, calls, output) in results.items():
            self.assertEqual(calls, [], name)
            self.assertIn("no time was judged: HALFMARK_BASE_ARCHIVE is empty", output, name)
        self.assertIn("::warning", results["github"][2])
        strict = self.times(HALFMARK_BASE_ARCHIVE="", HALFMARK_ALLOW_NO_VERDICT="false")
        self.assertEqual(strict["github"][0], 3)

    def test_times_are_judged_after_a_gate_that_failed_and_never_beside_it(self):
        names = [step.get("name") for step in self.steps()]
        self.assertGreater(names.index("times"), names.index("gate"))
        step = next(step for step in self.steps() if step.get("name") == "times")
        self.assertIn("!cancelled()", step["if"])
        self.assertIn("steps.measure.outcome == 'success'", step["if"])
        self.assertEqual(next(one for one in self.steps() if one.get("name") == "measure")["id"], "measure")
        jobs = load("gitlab-gate.yml")
        self.assertEqual(jobs["halfmark-times"]["extends"], "halfmark")
        self.assertNotIn("needs", jobs["halfmark-times"])
        self.assertTrue(jobs["halfmark"]["resource_group"])
        upload = next(step for step in self.steps() if "upload-artifact" in step.get("uses", ""))
        self.assertIn("halfmark-times.xml", upload["with"]["path"].split())

    def test_the_variables_that_are_used_are_set(self):
        github, gitlab = load("github-gate.yml"), load("gitlab-gate.yml")["halfmark"]
        scripts = "\n".join(step.get("run", "") for step in github["jobs"]["gate"]["steps"])
        for name in github["env"]:
            self.assertIn(f"${name}", scripts)
        for name in gitlab["variables"]:
            self.assertIn(f"${name}", "\n".join(gitlab_scripts()))


if __name__ == "__main__":
    unittest.main()
