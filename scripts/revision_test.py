#!/usr/bin/env python3
"""Tests HalfmarkRevision.cmake with a small project in a repository of its own: a program names the revision of its last build."""

import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest

MODULES = pathlib.Path(__file__).resolve().parent / "cmake"
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(sample LANGUAGES CXX)
include("${CMAKE_SOURCE_DIR}/scripts/cmake/HalfmarkRevision.cmake")
halfmark_revision(sample_revision)
add_executable(sample main.cpp)
target_link_libraries(sample PRIVATE sample_revision)
"""
PROGRAM = """#include <cstdio>
namespace halfmark::bench { const char* built_revision(); }
int main() { std::puts(halfmark::bench::built_revision()); }
"""
COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")


@unittest.skipUnless(COMPILER and shutil.which("cmake") and shutil.which("ninja"), "no compiler, cmake or ninja")
class Revision(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = pathlib.Path(folder.name)
        self.source = self.top / "sour ce"
        (self.source / "scripts").mkdir(parents=True)
        shutil.copytree(MODULES, self.source / "scripts" / "cmake")
        # Written again, because `git archive` has replaced its text if these sources come from a tarball.
        (self.source / "scripts" / "cmake" / "archived_revision.txt").write_text("$Format:%H$\n")
        shutil.copy(MODULES.parent.parent / ".gitattributes", self.source)
        (self.source / "CMakeLists.txt").write_text(PROJECT)
        (self.source / "main.cpp").write_text(PROGRAM)

    def git(self, *words, source=None):
        identity = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "init.defaultBranch=main"]
        return subprocess.run(["git", *identity, "-C", source or self.source, *words],
                              check=True, capture_output=True, text=True).stdout.strip()

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "-q", "--allow-empty", "-m", "a change")
        return self.git("rev-parse", "HEAD")[:12]

    def built(self, source=None):
        """Configures in a new folder, builds, and returns what the program prints."""
        source = source or self.source
        build = self.top / f"build of {source.name}"
        if not (build / "build.ninja").exists():
            subprocess.run(["cmake", "-G", "Ninja", "-S", source, "-B", build, f"-DCMAKE_CXX_COMPILER={COMPILER}"],
                           check=True, capture_output=True)
        self.output = subprocess.run(["cmake", "--build", build], check=True, capture_output=True, text=True).stdout
        return subprocess.run([build / "sample"], check=True, capture_output=True, text=True).stdout.strip()

    @unittest.skipUnless(shutil.which("git"), "no git here")
    def test_it_is_the_built_one_and_not_the_configured_one(self):
        self.git("init", "-q")
        first = self.commit()
        self.assertEqual(self.built(), first)
        second = self.commit()
        self.assertNotEqual(first, second)
        self.assertEqual(self.built(), second)

        # Nothing changed: nothing is compiled or linked.
        self.assertEqual(self.built(), second)
        self.assertNotIn("Building", self.output)
        self.assertNotIn("Linking", self.output)

        # A tag does not change the revision: a tarball of the same commit does not contain the tag.
        self.git("tag", "-a", "v1", "-m", "a version")
        self.assertEqual(self.built(), second)
        link = self.top / "link"
        link.symlink_to(self.source)
        self.assertEqual(self.built(link), second)

        (self.source / "main.cpp").write_text(PROGRAM + "// changed\n")
        self.assertEqual(self.built(), second + "+")
        self.assertEqual(self.commit(), self.built())

    @unittest.skipUnless(shutil.which("git"), "no git here")
    def test_a_tarball_knows_its_revision_also_inside_another_repository(self):
        self.git("init", "-q")
        revision = self.commit()
        self.git("archive", "--prefix=unpacked/", "-o", self.top / "sources.tar", "HEAD")
        other = self.top / "other"
        other.mkdir()
        with tarfile.open(self.top / "sources.tar") as archive:
            archive.extractall(other)
        self.assertEqual(self.built(other / "unpacked"), revision)
        self.git("init", "-q", source=other)
        self.git("commit", "-q", "--allow-empty", "-m", "not ours", source=other)
        self.assertEqual(self.built(other / "unpacked"), revision)

    def test_without_a_repository_nothing_is_claimed(self):
        self.assertEqual(self.built(), "unknown")


if __name__ == "__main__":
    unittest.main()
