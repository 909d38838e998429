#!/usr/bin/env python3
"""Checks the architecture: which folder may include which, that modules form no cycle and that no two types share a name
in one namespace; where CUDA is used, which compiler flags are banned, which names and kinds of files the repository holds.

    check_levels.py [ROOT]      one line per violation, "file:line: rule"; exit code 1 if there is any
"""

import argparse
import os
import re
import sys

import cpp_reader
from source_tree import tree_files

# The include table: a folder (the longest matching prefix counts), and our folders and single headers that its files may
# include. A folder stands for itself and for the folders in it that have no line of their own.
NUMBER = ("kernels/number/",)
TENSOR = NUMBER + ("kernels/tensor/",)
OPS = TENSOR + ("kernels/ops/",)
CPU = OPS + ("kernels/cpu/",)
CUDA = OPS + ("kernels/cuda/", "kernels/plugin.h")
SIM = CPU + ("kernels/sim/",)
SOFTWARE_GPU = OPS + ("kernels/cuda/software_gpu/", "kernels/sim/tensor_core.h", "kernels/cuda/hardware.h")
KERNEL_HEADERS = TENSOR + ("kernels/ops/ops.h", "kernels/ops/kernel.h", "kernels/ops/reorder_bytes.h", "kernels/devices.h")
MODELS = KERNEL_HEADERS + ("kernels/cpu/thread_pool.h", "models/")
ACCURACY = MODELS + ("accuracy/", "reports/record/measurement.h", "reports/statistics/statistics.h")
RECORD = ("reports/record/",)
STATISTICS = ("reports/record/error.h", "reports/statistics/")
TEXT = RECORD + ("reports/text/",)
GATE = TEXT + ("reports/statistics/", "reports/gate/")
OUTPUTS = GATE + ("reports/outputs/",)
HISTORY = OUTPUTS + ("reports/history/",)
CLAIMS = TEXT + ("reports/claims/",)
PREDICT = TEXT + ("reports/predict/",)
BELOW_BENCH = HISTORY + CLAIMS + PREDICT + SIM + ("kernels/", "models/", "accuracy/", "accuracy/probe/",
                                        "accuracy/experiments/", "bench/namespaces.h",
                               "bench/bench_build.h")
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
    "reports/claims/": CLAIMS,
    "reports/predict/": PREDICT,
    "reports/fuzz/": HISTORY,
    "kernels/number/": NUMBER,
    "kernels/tensor/": TENSOR,
    "kernels/ops/": OPS,
    "kernels/cpu/": CPU,
    "kernels/cuda/": CUDA,
    "kernels/cuda/dot_tests/": SIM + ("kernels/cuda/", "kernels/devices.h"),
    "kernels/cuda/software_gpu/": SOFTWARE_GPU,
    "kernels/cuda/software_gpu/planted/": SOFTWARE_GPU + ("kernels/cuda/", "kernels/cuda/software_gpu/planted/"),
    "kernels/cuda/software_gpu/libraries/": CPU + ("kernels/cuda/software_gpu/", "kernels/cuda/software_gpu/libraries/"),
    "kernels/sim/": SIM,
    "kernels/": SIM + ("kernels/",),
    "models/": MODELS,
    "accuracy/": ACCURACY,
    "accuracy/probe/": ACCURACY + ("accuracy/probe/",),
    "accuracy/experiments/": ACCURACY + ("accuracy/probe/", "accuracy/experiments/"),
    "bench/run/": RUN,
    "bench/vectors/": VECTORS,
    "bench/ab/": AB,
    "bench/commands/": COMMANDS,
    "bench/micro/": BELOW_BENCH + ("bench/micro/", "bench/run/"),
    "bench/planted/": BENCH,
    "bench/fuzz/": BENCH,
    "bench/": BENCH,
}
# A test of any level may use devices.
TESTS_ALSO = ("kernels/devices.h", "kernels/plugin_file.h", "kernels/repeating_device_testing.h", "kernels/chosen_rows_device_testing.h", "reports/record/folder_testing.h",
              "reports/record/paths_testing.h")

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
    # A block of threads, and the instructions that decide what it runs next.
    "kernels/cuda/software_gpu/block": ("kernels/cuda/software_gpu/control", "kernels/cuda/software_gpu/control_flow"),
    "kernels/cuda/cuda_device": tuple("kernels/cuda/" + part for part in (
        "rows", "blaslt", "blaslt_fused", "blaslt_plan", "blaslt_problem", "blaslt_scaled", "blaslt_scratch", "cublas", "cublas_library",
        "cublas_trial", "kept_plans", "fused", "launch_fused", "cudnn", "cudnn_notes", "cudnn_plan", "direct", "dot", "dot_device",
        "dot_tcgen05", "elementwise", "counted_cast", "images", "pooling", "reduce", "batch_norm", "trial", "copy", "in_order", "launch_in_order", "row_norm", "row_norm_sum", "resample", "resample_twice", "sequence", "attention",
        "attention_products", "cudnn_attention", "cudnn_attention_sample", "cudnn_trial", "cudnn_graph_plan", "cudnn_norm", "cudnn_norm_plan",
        "cudnn_pool", "cudnn_fused_convolution", "cudnn_statistics",
        "loss", "cross_entropy", "ctc", "optimizer", "embedding", "pixels", "pool_rows", "quantize")),
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
# In CMake files, every flag that decides how code is computed must be one of these. In shell scripts, -f and -m are other things.
NUMBER_FLAG = re.compile(r"(?<![\w-])--?(?:f|O|m(?!ax_))[\w-]*(?:=[\w,-]*)?")
KNOWN_FLAG = re.compile(r"-O[012]?|-ffp-contract=off(?:,.*)?|-ffile-prefix-map=|-fno-tree-(?:ter|reassoc)|-fsanitize=[\w,-]*|-fno-sanitize-recover=all"
                        r"|-fno-omit-frame-pointer|--fmad=false|--format=csv,noheader")  # the last one is of nvidia-smi
OPTIMIZE = re.compile(r"\b(?:__)?optimize(?:__)?\s*\(")
# Includes that no source file shows.
HIDDEN_INCLUDE = re.compile(r"(?<![\w-])(-include|-imacros|-iquote|target_precompile_headers|PRECOMPILE_HEADERS)\b")
WRITTEN_INCLUDE = re.compile(r"#\s*include\W+(?:bench|accuracy|models|kernels|reports)/")
LONG_FILE = 450

HEADER = (".h", ".cuh", ".h.in")  # .h.in: CMake writes the header, which is included by its name alone
CODE = HEADER + (".cpp", ".cu")
BUILD = (".cmake", ".cmake.in", ".sh", ".yml", ".yaml")
BUILD_NAMES = ("CMakeLists.txt", "CMakePresets.json")
# Every file has one of these endings or names, or is a seed of a fuzzer, so that no code is in a file that is not checked.
ENDINGS = CODE + BUILD + (".py", ".md", ".json", ".csv", ".png")
NAMES = {"CMakeLists.txt", "LICENSE", ".ci/run", ".clang-format", ".clang-tidy", ".editorconfig", ".gitattributes", ".gitignore",
         "scripts/cmake/archived_revision.txt", "scripts/cmake/launcher.c"}
SEEDS = re.compile(r"(?:reports|bench)/fuzz/seeds/")

OURS = ("bench", "accuracy", "models", "kernels", "reports")
PLAIN_PATH = re.compile(r"[A-Za-z0-9_]+(?:[.-][A-Za-z0-9_]+)*(?:/[A-Za-z0-9_]+(?:[.-][A-Za-z0-9_]+)*)*")
STANDARD = re.compile(r"[a-z_]+")
# Headers of other projects and of the system; CUDA's are above.
LIBRARIES = re.compile(r"(?:fmt|gtest|gmock|nlohmann|benchmark|CLI|boost/math|linux|sanitizer|sys)/.+|(?:pugixml|dnnl)\.hpp|dnnl_debug\.h|(?:png|jpeglib|jerror)\.h"
                       r"|(?:cblas|cpuid|dlfcn|fcntl|fnmatch|immintrin|xmmintrin|link|poll|sched|unistd|wordexp)\.h")
EXAMPLE = "bench/package_example/"  # a project that uses the installed headers: <halfmark/...>


def folder_of(path):
    """The folder of the include table that this file belongs to."""
    return max((folder for folder in MAY_INCLUDE if path.startswith(folder)), key=len, default=None)


def is_test(path):
    """CMake leaves *_test.cpp out of the libraries, and nothing else."""
    stem, ending = os.path.splitext(path)
    return stem.endswith("_test") or (stem.endswith("_testing") and ending in HEADER)


def module_of(path):
    """A header and its source file are one module, named by their path without the ending."""
    return os.path.splitext(path.removesuffix(".in"))[0]


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


def resolved(files, quote, header):
    """The path of an included file of ours; a header that CMake writes is named alone."""
    if quote == '"' and "/" not in header:
        return next((path[:-3] for path in sorted(files) if path.endswith(f"/{header}.in")), header)
    return header


def check_include(files, endings, path, quote, header):
    """The rule that this include breaks, or nothing. endings: of the paths of all headers, at each slash."""
    written = f'"{header}"' if quote == '"' else f"<{header}>"
    if not PLAIN_PATH.fullmatch(header):
        return f"{written}: {cpp_reader.INCLUDE_FORM}"
    if quote == "<":
        if header.split("/")[0] in OURS:
            return f"{written}: {cpp_reader.INCLUDE_FORM}"
        if header in endings:
            return f"{written}: a file of ours has this name"
        if CUDA_HEADER.match(header):
            return None if path.startswith(CUDA_FOLDER) or path == CUDA_HEADERS_TEST else f"CUDA header {header}: {CUDA_FOLDER} only"
        known = STANDARD.fullmatch(header) or LIBRARIES.fullmatch(header) or (path.startswith(EXAMPLE) and header.startswith("halfmark/"))
        return None if known else f"{written}: not one of the libraries that scripts/check_levels.py names"
    target = resolved(files, quote, header)
    if target.split("/")[0] not in OURS:
        return f"{written}: {cpp_reader.INCLUDE_FORM}; headers of others are written <in angle brackets>"
    folder = folder_of(path)
    if folder is None:
        return f"{written}: the include table of this script has no line for this folder"
    allowed = MAY_INCLUDE[folder] + (TESTS_ALSO if is_test(path) else ())
    if target not in allowed and folder_of(target) not in allowed:
        return f"{folder} may not include {written}"
    if is_test(target) and not is_test(path):
        return f"{written} is for tests"
    unit = unit_of(module_of(target))
    if unit != module_of(target) and unit_of(module_of(path)) != unit and not is_test(path):
        return f"{written} is a private part of {unit}"
    if not target.endswith((".h", ".cuh")) or (target not in files and target == header):
        return f"{written}: no header of this repository"
    return None


def check_namespace(path, name):
    """The rule that opening this namespace breaks, or nothing: to declare what a higher level defines is to depend on it."""
    top, _, rest = name.partition("::")
    level = rest.split("::")[0] + "/"
    if top != "halfmark" or level[:-1] not in OURS or path.startswith(level):
        return None
    if any(row.startswith(level) for row in MAY_INCLUDE.get(folder_of(path), ())):
        return None
    return f"{os.path.dirname(path)}/ may not open halfmark::{level[:-1]}"


def check_kind(root, path):
    """The rule that the name or the kind of this file breaks, or nothing."""
    banned = BANNED_FOLDERS.intersection(path.split("/")[:-1])
    if banned:
        return f"a folder called {sorted(banned)[0]} does not say what is in it"
    if path.endswith((".cu", ".cuh")) and not path.startswith(CUDA_FOLDER):
        return f"device code: {CUDA_FOLDER} only"
    if SEEDS.match(path):
        return "code among the seeds of a fuzzer" if path.endswith(CODE) else None
    if os.path.islink(os.path.join(root, path)) or os.path.isdir(os.path.join(root, path)):
        return "a link or a repository of its own: put the file here"
    if not (path.endswith(ENDINGS) or path in NAMES or os.path.basename(path) in NAMES):
        return ("not one of the kinds of files that scripts/check_levels.py names; C++ is in "
                + " ".join(f"*{ending}" for ending in CODE))
    return None


def without_comment(path, line):
    # A "#" in quotes begins no comment; where a line has both, all of it counts.
    return line if path.endswith(".json") or '"' in line else line.split("#", 1)[0]


class Types:
    """The types of all files; no two may have the same name. Types of tests count too: tests are linked with what they test."""

    def __init__(self):
        self.first = {}  # name: (path, line, branches, target)

    def add(self, path, name, line, branches, target):
        """-> the rule that is broken, or nothing. target: of `using a::B;`, which may be repeated."""
        other_path, other_line, other_branches, other_target = self.first.setdefault(name, (path, line, branches, target))
        if target and target == other_target:
            return None
        if (other_path, other_line) == (path, line):
            return None
        if other_path == path and any(a[0] == b[0] and a[1] != b[1] for a in branches for b in other_branches):
            return None  # in two branches of one #if
        place = f"{name} is also defined at {other_path}:{other_line}"
        return place + (": put the type of a test into an unnamed namespace" if is_test(path) else "")


def check(root):
    """-> violations, warnings, number of files looked at."""
    violations, warnings = [], []
    edges, first_line, types = {}, {}, Types()  # of the module graph; of each of its edges
    listed, ours = tree_files(root)
    files = set(listed)
    endings = {path[at + 1:] for path in files if path.endswith(HEADER) for at, sign in enumerate(path) if sign == "/"}

    # Names in the root and kinds of files are checked for tracked files only: people keep reports and notes in the folder.
    for name in sorted({path.split("/")[0] for path in ours}):
        if name not in TOP_LEVEL and not name.startswith("."):
            violations.append(f"{name}:1: not one of the names allowed in the root")
    for path in ours:
        if broken := check_kind(root, path):
            violations.append(f"{path}:1: {broken}")

    # Tests last: if a test defines a type of the same name as other code, the error is reported for the test.
    for path in sorted(listed, key=lambda path: (is_test(path), path)):
        name = os.path.basename(path)
        code = path.endswith(CODE)
        build = path.endswith(BUILD) or name in BUILD_NAMES
        if not (code or build or path.endswith(".py")) or SEEDS.match(path) or not os.path.isfile(os.path.join(root, path)):
            continue
        with open(os.path.join(root, path), encoding="utf-8", errors="replace", newline="") as file:
            text = file.read()
        lines = text.split("\n")[:-1]
        if len(lines) > LONG_FILE:
            warnings.append(f"{path}:{len(lines)}: {len(lines)} lines, more than {LONG_FILE}: split the file")
        found = []
        if build:
            for number, line in enumerate(text.split("\n"), 1):
                if written := WRITTEN_INCLUDE.search(line):
                    found.append((number, f"{written[0]}...: includes that no source file shows"))
                line = without_comment(path, line)
                if flag := BANNED_FLAG.search(line):
                    found.append((number, f"{flag[1]}: changes computed numbers and is banned"))
                if name == "CMakeLists.txt" or path.endswith((".cmake", ".cmake.in", ".json")):
                    if flag := HIDDEN_INCLUDE.search(line):
                        found.append((number, f"{flag[1]}: includes that no source file shows"))
                    found += [(number, f"{flag}: not one of the flags that scripts/check_levels.py names")
                              for flag in NUMBER_FLAG.findall(line) if not KNOWN_FLAG.fullmatch(flag) and not BANNED_FLAG.search(flag)]
        if code:
            source = cpp_reader.read(text)
            defined = cpp_reader.Types(source.tokens)
            found += source.faults + defined.faults
            if path.endswith(HEADER):
                found += [(line, "an unnamed namespace in a header: every file that includes it gets types of its own") for line in defined.unnamed]
            words = cpp_reader.code_of(text) if "optimize" in text else ""
            found += [(words.count("\n", 0, hit.start()) + 1, "optimize(): flags of one function are banned") for hit in OPTIMIZE.finditer(words)]
            found += [(entry[1], broken) for entry in defined.found if (broken := types.add(path, *entry))]
            found += [(line, broken) for opened, line in defined.opened if (broken := check_namespace(path, opened))]
            for line, quote, header in source.includes:
                if broken := check_include(files, endings, path, quote, header):
                    found.append((line, broken))
                    if not PLAIN_PATH.fullmatch(header):
                        continue
                target = resolved(files, quote, header)
                edge = unit_of(module_of(path)), unit_of(module_of(target))
                if folder_of(target) and edge[0] != edge[1] and not is_test(path):
                    edges.setdefault(edge[0], set()).add(edge[1])
                    first_line.setdefault(edge, f"{path}:{line}")
        violations += [f"{path}:{line}: {broken}" for line, broken in sorted(found)]
    for cycle in cycles(edges):
        steps = [first_line[edge] for edge in sorted(first_line) if edge[0] in cycle and edge[1] in cycle]
        violations.append(f"{steps[0]}: modules include each other: {', '.join(cycle)} ({', '.join(steps)})")
    return violations, warnings, len(files)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", metavar="ROOT", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    root = parser.parse_args().root
    violations, warnings, count = check(root)
    if not count:
        print(f"check_levels.py: no files in {root}: give the root of the sources", file=sys.stderr)
        return 2
    for line in violations:
        print(line)
    for line in warnings:
        print(f"warning: {line}")
    print(f"levels: {count} files, {len(violations)} violations, {len(warnings)} warnings")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
