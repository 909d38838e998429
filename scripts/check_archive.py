#!/usr/bin/env python3
"""Checks an archive that pack.sh made: unpacks it into a temporary folder and checks what HalfmarkPackaging.cmake promises.

    check_archive.py ARCHIVE [--path-of-the-build PATH...]

Prints one line per check: passed, FAILED with the problem, or SKIPPED with the reason. Exit code 1 if any failed.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import check_binaries

PROGRAMS = {"halfmark", "halfmark_micro"}          # in bin/
GPU_PROGRAMS = {"cuda_tests"}                      # only together with the plugin
TOP = {"bin", "include", "lib", "libexec", "licenses", "scripts", "share", "reports", "LICENSE", "README.md"}
NEEDED = ["LICENSE", "README.md", "libexec/halfmark", "scripts/gpu_check.sh", "share/halfmark/charts.py", "licenses/CONTENTS",
          "reports/gate/rules/default.json", "reports/gate/rules/strict.json", "lib/libhalfmark.so",
          "include/halfmark/bench/halfmark.h", "share/cmake/halfmark/halfmarkConfig.cmake"]
# Third-party code that is compiled into our files, so there is no library file of it.
INSIDE = {"nlohmann-json3-dev", "libcli11-dev", "libboost-dev"}
GPU_INSIDE = {"cuda-runtime", "libgtest-dev"}
# Libraries that the target machine provides: the C and C++ run time, and for the plugin those of the GPU.
OF_THE_MACHINE = re.compile(r"^(linux-vdso|ld-linux|/lib.*/ld-linux|lib(c|m|mvec|pthread|dl|rt|resolv)\.so|libstdc\+\+|libgcc_s)")
OF_THE_GPU = re.compile(r"^lib(cuda|cublas|cudnn|nv|nccl)")


class Skipped(Exception):
    pass


class Archive:
    def __init__(self, root, build_paths=()):
        self.root = pathlib.Path(root)
        self.build_paths = [str(path) for path in build_paths]
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("LD_")}

    @property
    def has_plugin(self):
        return (self.root / "lib" / "halfmark_cuda.so").exists()

    def files(self):
        return sorted(path for path in self.root.rglob("*") if path.is_file())

    def run(self, *words, **how):
        return subprocess.run([str(word) for word in words], capture_output=True, text=True, env=self.environment, cwd="/", **how)

    def holds_what_it_should(self):
        """all needed files are present; no tests except those that gpu_check.sh runs, and no libraries of tests"""
        wrong = [f"{name} is missing" for name in NEEDED if not (self.root / name).is_file()]
        wrong += [f"{name} is not one of {', '.join(sorted(TOP))}" for name in sorted(os.listdir(self.root)) if name not in TOP]
        programs = PROGRAMS | (GPU_PROGRAMS if self.has_plugin else set())
        there = set(os.listdir(self.root / "bin"))
        wrong += [f"bin/{name} is missing" for name in sorted(programs - there)]
        wrong += [f"bin/{name} does not belong in an archive" for name in sorted(there - programs)]
        for path in self.files():
            if path.parent.name != "licenses" and re.search(r"gtest|gmock|sample_|planted|_test(ing)?\.py$|\.pyc$", path.name):
                wrong.append(f"{path.relative_to(self.root)} is only used by tests")
            if path.parent.name == "lib" and OF_THE_GPU.match(path.name):
                wrong.append(f"{path.relative_to(self.root)} has the name of a library of NVIDIA, which belongs to the machine")
        return wrong

    def finds_its_libraries(self):
        """every library that a minimal system lacks is in the archive"""
        wrong = []
        for path in check_binaries.elf_files(self.root):
            # Bundled libraries find their dependencies through the program that loads them, so they are not checked alone.
            if path.parent.name == "lib" and "halfmark" not in path.name:
                continue
            for line in self.run("ldd", path).stdout.splitlines():
                name, _, place = line.strip().partition(" => ")
                if OF_THE_MACHINE.match(name) or place.startswith(f"{self.root}/"):
                    continue
                if self.has_plugin and OF_THE_GPU.match(name) and path.name == "halfmark_cuda.so":
                    continue
                wrong.append(f"{path.relative_to(self.root)} loads a library from outside the archive: {line.strip()}")
        return wrong

    def looks_for_libraries_in_itself(self):
        """no search path but $ORIGIN"""
        return [line for path in check_binaries.elf_files(self.root) for line in check_binaries.violations(path, installed=True)
                if "halfmark" in path.name or path.parent.name != "lib"]

    def names_no_place_of_its_build(self):
        """no path of the machine that built it"""
        if not self.build_paths:
            raise Skipped("no --path-of-the-build given")
        return [f"{path.relative_to(self.root)} holds the path {place}" for path in self.files() for place in self.build_paths
                if place.encode() in path.read_bytes()]

    def carries_the_licences(self):
        """the licences of all third-party parts, with the common licence texts they refer to"""
        contents = self.root / "licenses" / "CONTENTS"
        if not contents.is_file():
            return ["licenses/CONTENTS is missing"]
        rows = [line.split("\t") for line in contents.read_text().splitlines()[1:]]
        wrong = [f"CONTENTS: {what} of {name}: {text} is missing or empty" for what, name, text in rows
                 if not (self.root / text).is_file() or not (self.root / text).read_text(errors="replace").strip()]
        said = {what for what, _, _ in rows} | {name for what, name, _ in rows if what == "compiled in"}
        wanted = {f"lib/{path.name}" for path in (self.root / "lib").iterdir() if "halfmark" not in path.name}
        wanted |= INSIDE | (GPU_INSIDE if self.has_plugin else set())
        wrong += [f"no licence for {name}" for name in sorted(wanted - said)]
        for _, _, text in rows:
            if (self.root / text).is_file():
                for name in re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", (self.root / text).read_text(errors="replace")):
                    if not (self.root / "licenses" / f"common-{name}").is_file():
                        wrong.append(f"{text} points to {name}, which is not in the archive")
        return sorted(set(wrong))

    def starts(self, *before):
        """the program starts by its path, through a symbolic link and from PATH"""
        wrong = []
        with tempfile.TemporaryDirectory() as folder:
            link = pathlib.Path(folder, "linked")
            link.symlink_to(self.root / "bin" / "halfmark")
            for words in ([self.root / "bin" / "halfmark"], [link],
                          ["env", f"PATH={self.root}/bin:{os.environ['PATH']}", "halfmark"]):
                result = self.run(*before, *words, "list", "devices")
                if result.returncode != 0 or "cpu " not in result.stdout:
                    wrong.append(f"{' '.join(map(str, words))} ended with {result.returncode}: {result.stderr.strip()[:200]}")
        return wrong

    def starts_without_proc(self):
        """the program starts and measures without /proc"""
        if os.geteuid() != 0:
            raise Skipped("only root can unmount /proc")
        if self.run("unshare", "--mount", "umount", "-l", "/proc").returncode != 0:
            raise Skipped("this container does not allow unmounting")
        before = ["unshare", "--mount", "sh", "-c", 'umount -l /proc && exec "$@"', "sh"]
        wrong = self.starts(*before)
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder, "report.json")
            result = self.run(*before, self.root / "bin" / "halfmark", "run", "mlp", "--suite", "smoke", "-o", report, timeout=300)
            if result.returncode != 0 or not report.is_file():
                wrong.append(f"halfmark run ended with {result.returncode}: {result.stderr.strip()[:300]}")
        return wrong

    def draws_its_charts(self):
        """the program measures, and share/halfmark/charts.py draws the report"""
        with tempfile.TemporaryDirectory() as folder:
            report, charts = pathlib.Path(folder, "report.json"), pathlib.Path(folder, "charts")
            result = self.run(self.root / "bin" / "halfmark", "run", "mlp", "--suite", "smoke", "-o", report, timeout=300)
            if result.returncode != 0:
                return [f"halfmark run ended with {result.returncode}: {result.stderr.strip()[:300]}"]
            python = next((python for python in ("/usr/bin/python3", "python3") if shutil.which(python)
                           and self.run(python, "-c", "import matplotlib").returncode == 0), None)
            if not python:
                raise Skipped("no python3 can import matplotlib")
            result = self.run(python, "-B", self.root / "share" / "halfmark" / "charts.py", report, "-o", charts, timeout=300)
            if result.returncode != 0 or not list(charts.glob("*.png")):
                return [f"charts.py ended with {result.returncode}: {result.stderr.strip()[-300:]}"]
        return []

    CHECKS = (holds_what_it_should, finds_its_libraries, looks_for_libraries_in_itself, names_no_place_of_its_build,
              carries_the_licences, starts, starts_without_proc, draws_its_charts)


def unreadable_members(archive):
    """The members that only their owner could read if root unpacked the archive."""
    return [member.name for member in archive if not member.issym()
            and member.mode & (0o005 if member.isdir() else 0o004) != (0o005 if member.isdir() else 0o004)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=pathlib.Path)
    parser.add_argument("--path-of-the-build", nargs="+", default=[], metavar="PATH", help="folders whose names no file may contain")
    options = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        try:
            with tarfile.open(options.archive) as archive:
                unreadable = unreadable_members(archive)
                archive.extractall(folder)
        except (OSError, tarfile.TarError) as problem:
            print(f"check_archive.py: {options.archive} cannot be unpacked: {str(problem).splitlines()[0].rstrip(':')}", file=sys.stderr)
            return 2
        if unreadable:
            failed = True
            print(f"FAILED   only the owner may read {len(unreadable)} members, {unreadable[0]} is the first: pack it with umask 022")
        roots = os.listdir(folder)
        if len(roots) != 1:
            print(f"FAILED   expected one folder at the top, found {roots}")
            return 1
        root = pathlib.Path(folder, roots[0]).rename(pathlib.Path(folder, "un packed"))  # user folders have spaces
        archive = Archive(root.resolve(), options.path_of_the_build)
        for check in Archive.CHECKS:
            try:
                wrong = check(archive)
                print(f"{'FAILED' if wrong else 'passed':8} {check.__doc__}")
                print("".join(f"         {line}\n" for line in wrong), end="")
                failed |= bool(wrong)
            except Skipped as reason:
                print(f"SKIPPED  {check.__doc__}: {reason}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
