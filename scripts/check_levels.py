#!/usr/bin/env python3
"""Checks the architecture: which folder may include which, that modules form no cycle and that no two types share a name
in one namespace; where CUDA is used, which compiler flags are banned, which names the root may hold.

    check_levels.py [ROOT]      one line per violation, "file:line: rule"; exit code 1 if there is any
"""

import os
import re
import subprocess
import sys

# The include table: a folder (the longest matching prefix counts), and our folders and single headers that its files may
# include. A folder stands for itself and for the folders in it that have no line of their own.
NUMBER = ("kernels/number/",)
TENSOR = NUMBER + ("kernels/tensor/",)
OPS = TENSOR + ("kernels/ops/",)
CPU = OPS + ("kernels/cpu/",)
CUDA = OPS + ("kernels/cuda/", "kernels/plugin.h")
SIM = CPU + ("kernels/sim/",)
KERNEL_HEADERS = TENSOR + ("kernels/ops/ops.h", "kernels/ops/kernel.h", "kernels/devices.h")
MODELS = KERNEL_HEADERS + ("models/",)
ACCURACY = MODELS + ("accuracy/", "reports/record/measurement.h")
RECORD = ("reports/record/",)
STATISTICS = ("reports/record/error.h", "reports/statistics/")
TEXT = RECORD + ("reports/text/",)
GATE = TEXT + ("reports/statistics/", "reports/gate/")
OUTPUTS = GATE + ("reports/outputs/",)
HISTORY = OUTPUTS + ("reports/history/",)
BELOW_BENCH = HISTORY + SIM + ("kernels/", "models/", "accuracy/", "accuracy/probe/", "bench/namespaces.h")
RUN = BELOW_BENCH + ("bench/run/",)
VECTORS = BELOW_BENCH + ("bench/vectors/",)
AB = RUN + ("bench/ab/",)
COMMANDS = AB + VECTORS + ("bench/commands/",)
BENCH = COMMANDS + ("bench/",)

MAY_INCLUDE = {
    "reports/record/": RECORD,
    "reports/statistics/": STATISTICS,
    "reports/text/": TEXT,
    "reports/gate/": GATE,
    "reports/outputs/": OUTPUTS,
    "reports/history/": HISTORY,
    "reports/fuzz/": HISTORY,
    "kernels/number/": NUMBER,
    "kernels/tensor/": TENSOR,
    "kernels/ops/": OPS,
    "kernels/cpu/": CPU,
    "kernels/cuda/": CUDA,
    "kernels/sim/": SIM,
    "kernels/": SIM + ("kernels/",),
    "models/": MODELS,
    "accuracy/": ACCURACY,
    "accuracy/probe/": ACCURACY + ("accuracy/probe/",),
    "bench/run/": RUN,
    "bench/vectors/": VECTORS,
    "bench/ab/": AB,
    "bench/commands/": COMMANDS,
    "bench/micro/": BELOW_BENCH + ("bench/micro/",),
    "bench/planted/": BENCH,
    "bench/fuzz/": BENCH,
    "bench/": BENCH,
}
# A test of any level may use devices.
TESTS_ALSO = ("kernels/devices.h", "kernels/plugin_file.h", "reports/record/folder_testing.h")

# A header and the private parts of its implementation, which may include each other. Nothing else includes the parts.
UNITS = {
    "kernels/number/convert": ("kernels/number/convert_noise", "kernels/number/convert_paths", "kernels/number/convert_avx2",
                               "kernels/number/convert_avx512", "kernels/number/convert_driver"),
    "kernels/ops/ops": ("kernels/ops/dispatch",),
    "kernels/sim/tensor_core": ("kernels/sim/block_sum",),
    "kernels/sim/dot_matrix": ("kernels/sim/dot_engine", "kernels/sim/dot_kernel", "kernels/sim/dot_pack", "kernels/sim/dot_avx2",
                               "kernels/sim/dot_avx512"),
    # A device and its rows.
    "kernels/sim/sim_device": ("kernels/sim/dot_rows", "kernels/sim/tensor_core_rows",
                                 "kernels/sim/scaled_rows", "kernels/sim/fp64_rows"),
    "kernels/cuda/cuda_device": tuple("kernels/cuda/" + part for part in (
        "rows", "blaslt", "cudnn", "direct", "dot", "elementwise", "images", "reduce")),
}

CUDA_FOLDER = "kernels/cuda/"
# Compares our conversions with those of CUDA's headers, which are plain C++ in a host compiler.
CUDA_HEADERS_TEST = "kernels/number/cuda_headers_test.cpp"
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
NAMESPACE = re.compile(r"(?:inline )?namespace(?: ([\w:]+))? \{$")
TYPE = re.compile(r"(?:template <.*> )?(?:struct|class|enum class|enum|union) (?:\[\[\w+\]\] )?(\w+)(?: final)?(?: :[^:;]*)? \{")
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


def folder_of(path):
    """The folder of the include table that this file belongs to."""
    return max((folder for folder in MAY_INCLUDE if path.startswith(folder)), key=len, default=None)


def is_test(path):
    return os.path.splitext(path)[0].endswith(("_test", "_testing"))


def module_of(path):
    """A header and its source file are one module, named by their path without the ending."""
    return os.path.splitext(path)[0]


def unit_of(module):
    return next((front for front, parts in UNITS.items() if module == front or module in parts), module)


def cycles(edges):
    """The strongly connected components with more than one module (Tarjan 1972), each sorted."""
    index, lowest, stack, found = {}, {}, [], []

    def visit(module):
        index[module] = lowest[module] = len(index)
        stack.append(module)
        for other in sorted(edges.get(module, ())):
            if other not in index:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], index[other])
        if lowest[module] == index[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for module in sorted(edges):
        if module not in index:
            visit(module)
    return found


def types_of(lines):
    """(namespace, name, line number) of each type that is defined at the outer level of a named namespace."""
    namespaces, found = [], []
    for number, line in enumerate(lines, 1):
        if opened := NAMESPACE.match(line):
            namespaces.append(opened[1])  # None: an unnamed namespace, which no other file sees
        elif re.match(r"\}\s*// namespace", line) and namespaces:
            namespaces.pop()
        elif (defined := TYPE.match(line)) and namespaces and None not in namespaces:
            found.append(("::".join(namespaces), defined[1], number))
    return found


def check_include(root, path, quote, header):
    """The rule that this include breaks, or nothing."""
    if CUDA_HEADER.match(header):
        return None if path.startswith(CUDA_FOLDER) or path == CUDA_HEADERS_TEST else f"CUDA header {header}: {CUDA_FOLDER} only"
    if header.split("/")[0] in ("bench", "accuracy", "models", "kernels", "reports"):
        folder = folder_of(path)
        if folder is None:
            return f'"{header}": the include table of this script has no line for this folder'
        allowed = MAY_INCLUDE[folder] + (TESTS_ALSO if is_test(path) else ())
        if header not in allowed and folder_of(header) not in allowed:
            return f'{folder} may not include "{header}"'
        unit = unit_of(module_of(header))
        if unit != module_of(header) and unit_of(module_of(path)) != unit and not is_test(path):
            return f'"{header}" is a private part of {unit}'
        return None
    beside = os.path.join(root, os.path.dirname(path), header)
    if quote == '"' and (header.startswith(".") or os.path.isfile(beside)):
        return f'"{header}": write includes from the repository root'
    return None


def without_comment(path, line):
    return line if path.endswith(".json") else line.split("#", 1)[0]


def check(root):
    """-> violations, warnings, number of files looked at."""
    violations, warnings = [], []
    edges, first_line, types = {}, {}, {}  # of the module graph; of each of its edges; of each type
    tracked = git_files(root)
    # New files count before `git add`, except in the root, where people leave reports and notes.
    files = walked_files(root) if tracked is None else git_files(root, "--cached", "--others", "--exclude-standard")
    files = sorted(set(files))

    for name in sorted({path.split("/")[0] for path in (files if tracked is None else tracked)}):
        if name not in TOP_LEVEL and not name.startswith("."):
            violations.append(f"{name}:1: not one of the names allowed in the root")

    for path in files:
        name = os.path.basename(path)
        banned = BANNED_FOLDERS.intersection(path.split("/")[:-1])
        if banned:
            violations.append(f"{path}:1: a folder called {sorted(banned)[0]} does not say what is in it")
        if path.endswith((".cu", ".cuh")) and not path.startswith(CUDA_FOLDER):
            violations.append(f"{path}:1: device code: {CUDA_FOLDER} only")
        code = path.endswith(CODE)
        build = path.endswith(BUILD) or name in BUILD_NAMES
        if not (code or build or path.endswith(".py")):
            continue
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
        if len(lines) > LONG_FILE:
            warnings.append(f"{path}:{len(lines)}: {len(lines)} lines, more than {LONG_FILE}: split the file")
        for number, line in enumerate(lines, 1):
            if code and (include := INCLUDE.match(line)):
                broken = check_include(root, path, *include.groups())
                if broken:
                    violations.append(f"{path}:{number}: {broken}")
                edge = unit_of(module_of(path)), unit_of(module_of(include[2]))
                if folder_of(include[2]) and edge[0] != edge[1] and not is_test(path):
                    edges.setdefault(edge[0], set()).add(edge[1])
                    first_line.setdefault(edge, f"{path}:{number}")
            if build and (flag := BANNED_FLAG.search(without_comment(path, line))):
                violations.append(f"{path}:{number}: {flag[1]}: changes computed numbers and is banned")
        if code and not is_test(path):
            for namespace, name, number in types_of(lines):
                other = types.setdefault((namespace, name), f"{path}:{number}")
                if other != f"{path}:{number}":
                    violations.append(f"{path}:{number}: {namespace}::{name} is also defined at {other}")
    for cycle in cycles(edges):
        steps = [first_line[edge] for edge in sorted(first_line) if edge[0] in cycle and edge[1] in cycle]
        violations.append(f"{steps[0]}: modules include each other: {', '.join(cycle)} ({', '.join(steps)})")
    return violations, warnings, len(files)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    violations, warnings, count = check(root)
    for line in violations:
        print(line)
    for line in warnings:
        print(f"warning: {line}")
    print(f"levels: {count} files, {len(violations)} violations, {len(warnings)} warnings")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
