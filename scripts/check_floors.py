#!/usr/bin/env python3
"""Checks the house: who may include whom, where CUDA lives, which flags are banned, what stands in the root.

    check_floors.py [ROOT]      one line per violation, "file:line: rule"; exit code 1 if there is any
"""

import os
import re
import subprocess
import sys

# The include table. First the folder (the longest that fits counts), then what its files may include of ours.
# An entry that ends in "/" is a folder, any other a file.
NUMBER = ("kernels/number/",)
TENSOR = NUMBER + ("kernels/tensor/",)
OPS = TENSOR + ("kernels/ops/",)
CPU = OPS + ("kernels/cpu/",)
CUDA = OPS + ("kernels/cuda/", "kernels/plugin.h")
SIM = CPU + ("kernels/sim/",)
DEVICES = SIM + ("kernels/plugin.h", "kernels/plugin_file.h", "kernels/devices.h")
KERNEL_DOORS = TENSOR + ("kernels/ops/ops.h", "kernels/ops/kernel.h", "kernels/devices.h")
MODELS = KERNEL_DOORS + ("models/",)
ACCURACY = MODELS + ("accuracy/", "reports/measurement.h")
BENCH = ("bench/", "accuracy/", "models/", "kernels/", "reports/")

MAY_INCLUDE = {
    "reports/": ("reports/",),
    "kernels/number/": NUMBER,
    "kernels/tensor/": TENSOR,
    "kernels/ops/": OPS,
    "kernels/cpu/": CPU,
    "kernels/cuda/": CUDA,
    "kernels/sim/": SIM,
    "kernels/": DEVICES,
    "models/": MODELS,
    "accuracy/": ACCURACY,
    "bench/": BENCH,
}
TESTS_ALSO = ("kernels/devices.h", "kernels/plugin_file.h")  # a test runs on devices, whatever floor it stands on

CUDA_FOLDER = "kernels/cuda/"
# Compares our conversions with those of CUDA's headers, which are plain C++ there.
CUDA_WITNESS = "kernels/number/cuda_headers_test.cpp"
CUDA_HEADER = re.compile(r"^(cuda|cublas|cudnn|curand|cusparse|cusolver|cufft|nvml|nvrtc|nvtx|nccl|vector_types|device_launch"
                         r"|cub/|thrust/|cooperative_groups|mma\.h|sm_\d)")
TOP_LEVEL = {"CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md",
             "accuracy", "bench", "kernels", "models", "reports", "scripts"}
BANNED_FOLDERS = {"core", "common", "utils", "util"}
BANNED_FLAG = re.compile(r"(?<![\w-])(-ffast-math|-Ofast|-funsafe-math-optimizations|--?use_fast_math|-march=native)\b")
LONG_FILE = 450

CODE = (".h", ".hpp", ".cpp", ".cc", ".cu", ".cuh", ".inc")
BUILD = (".cmake", ".sh", ".yml", ".yaml")
BUILD_NAMES = ("CMakeLists.txt", "CMakePresets.json")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')


def git_files(root, *what):
    """Paths as git knows them, or nothing outside a repository (an unpacked archive)."""
    # safe.directory: in a container the checkout often belongs to another user, and git would refuse to look.
    command = ["git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z", *what]
    try:
        answer = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return [path for path in answer.split("\0") if path and os.path.isfile(os.path.join(root, path))]


def walked_files(root):
    files = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in ("build", "__pycache__")]
        files += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return files


def room_of(path):
    rooms = [room for room in MAY_INCLUDE if path.startswith(room)]
    return max(rooms, key=len, default=None)


def is_test(path):
    return os.path.splitext(path)[0].endswith(("_test", "_testing"))


def allows(entries, header):
    return any(header.startswith(entry) if entry.endswith("/") else header == entry for entry in entries)


def check_include(root, path, quote, header):
    """The rule that this include breaks, or nothing."""
    if CUDA_HEADER.match(header):
        return None if path.startswith(CUDA_FOLDER) or path == CUDA_WITNESS else f"CUDA header {header}: {CUDA_FOLDER} only"
    if header.split("/")[0] in ("bench", "accuracy", "models", "kernels", "reports"):
        room = room_of(path)
        if room is None:
            return f'"{header}": code of ours stands on no floor here'
        allowed = MAY_INCLUDE[room] + (TESTS_ALSO if is_test(path) else ())
        return None if allows(allowed, header) else f'{room} may not include "{header}"'
    beside = os.path.join(root, os.path.dirname(path), header)
    if quote == '"' and (header.startswith(".") or os.path.isfile(beside)):
        return f'"{header}": write includes from the repository root'
    return None


def without_comment(path, line):
    return line if path.endswith(".json") else line.split("#", 1)[0]


def check(root):
    """-> violations, warnings, number of files looked at."""
    violations, warnings = [], []
    tracked = git_files(root)
    # New files count before `git add`, except in the root, where people leave reports and notes lying.
    files = walked_files(root) if tracked is None else git_files(root, "--cached", "--others", "--exclude-standard")
    files = sorted(set(files))

    for name in sorted({path.split("/")[0] for path in (files if tracked is None else tracked)}):
        if name not in TOP_LEVEL and not name.startswith("."):
            violations.append(f"{name}:1: not one of the names allowed in the root")

    for path in files:
        name = os.path.basename(path)
        banned = BANNED_FOLDERS.intersection(path.split("/")[:-1])
        if banned:
            violations.append(f"{path}:1: a folder called {sorted(banned)[0]} says nothing about what is in it")
        if path.endswith((".cu", ".cuh")) and not path.startswith(CUDA_FOLDER):
            violations.append(f"{path}:1: device code: {CUDA_FOLDER} only")
        code = path.endswith(CODE)
        build = path.endswith(BUILD) or name in BUILD_NAMES
        if not (code or build or path.endswith(".py")):
            continue
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
        if len(lines) > LONG_FILE:
            warnings.append(f"{path}:{len(lines)}: {len(lines)} lines, above {LONG_FILE} a file wants to be two")
        for number, line in enumerate(lines, 1):
            if code and (include := INCLUDE.match(line)):
                broken = check_include(root, path, *include.groups())
                if broken:
                    violations.append(f"{path}:{number}: {broken}")
            if build and (flag := BANNED_FLAG.search(without_comment(path, line))):
                violations.append(f"{path}:{number}: {flag[1]}: the numbers are the product, no such flag")
    return violations, warnings, len(files)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    violations, warnings, count = check(root)
    for line in violations:
        print(line)
    for line in warnings:
        print(f"warning: {line}")
    print(f"floors: {count} files, {len(violations)} violations, {len(warnings)} warnings")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
