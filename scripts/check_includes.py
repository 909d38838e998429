#!/usr/bin/env python3
"""Checks that every C++ file includes the standard headers of the names it uses, itself or in the header of its own name.

    check_includes.py [ROOT] [--fix]     "file:line: std::sort needs <algorithm>"; exit code 1 if there is any; --fix adds them

Transitive includes differ between standard libraries: <string> includes <algorithm> and <cstdint> with g++ 12 but not with
g++ 14. Names that are not in this table are reported as well, so that it stays complete.
"""

import argparse
import functools
import os
import re
import sys

import cpp_reader
from source_tree import tree_files

# header: names in namespace std; "name1|name2" where several headers define a name; the first is the one to add.
HEADERS = {
    "algorithm": "max min clamp find find_if find_if_not any_of all_of none_of sort stable_sort partial_sort nth_element reverse "
                 "count count_if fill fill_n copy copy_n copy_if replace replace_if max_element min_element minmax minmax_element "
                 "unique transform stable_partition partition remove remove_if equal lexicographical_compare is_sorted mismatch "
                 "search rotate shuffle sample generate generate_n for_each binary_search lower_bound upper_bound equal_range "
                 "merge includes set_difference set_intersection adjacent_find is_permutation next_permutation swap_ranges "
                 "ranges::count ranges::any_of ranges::all_of ranges::none_of ranges::reverse ranges::find ranges::find_if "
                 "ranges::sort ranges::stable_sort ranges::max ranges::min ranges::copy ranges::equal ranges::contains "
                 "ranges::transform ranges::for_each ranges::max_element ranges::min_element ranges::count_if ranges::fill "
                 "ranges::lower_bound ranges::upper_bound ranges::is_sorted ranges::unique",
    "array": "array to_array",
    "atomic": "atomic atomic_ref atomic_flag memory_order memory_order_relaxed memory_order_acquire memory_order_release "
              "memory_order_acq_rel memory_order_seq_cst atomic_thread_fence",
    "bit": "bit_cast countl_zero countr_zero countl_one popcount rotl rotr bit_width bit_ceil bit_floor has_single_bit endian",
    "cctype": "isalnum isalpha isdigit isspace isxdigit islower isupper isprint ispunct tolower toupper",
    "cerrno": "",
    "cfenv": "fesetround fegetround feclearexcept fetestexcept feraiseexcept fenv_t fegetenv fesetenv feholdexcept",
    "charconv": "from_chars to_chars from_chars_result chars_format",
    "chrono": "chrono::",
    "climits": "",
    "cmath": "fabs sqrt log log2 log10 log1p exp exp2 expm1 ldexp frexp isnan isfinite isinf isnormal signbit copysign nan nanf "
             "nextafter nexttoward ilogb logb lgamma tgamma floor ceil trunc round lround llround nearbyint rint lrint llrint fma "
             "fmaf fmod remainder pow sin cos tan tanh sinh cosh asin acos atan atan2 erf erfc asinh hypot fmax fmin modf scalbn "
             "fpclassify cbrt sqrtf expf powf fabsf",
    "compare": "strong_ordering weak_ordering partial_ordering",
    "complex": "complex",
    "concepts": "convertible_to same_as integral floating_point invocable derived_from constructible_from predicate regular "
                "signed_integral unsigned_integral",
    "condition_variable": "condition_variable condition_variable_any cv_status",
    "csetjmp": "jmp_buf longjmp setjmp",
    "csignal": "signal raise sig_atomic_t",
    "cstdint": "int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t intmax_t uintmax_t",
    "cstdio": "printf fprintf snprintf sscanf fopen fclose fread fwrite fflush ferror FILE fputs fputc fgetc puts perror rename fgets "
              "vsnprintf",
    "cstdlib": "getenv system abort exit _Exit strtod strtof strtol strtoul strtoull strtoll malloc free aligned_alloc atexit "
               "quick_exit atoi atof",
    "cstring": "memcpy memcmp memchr memset memmove strlen strcmp strncmp strerror strchr strstr strcpy",
    "ctime": "time tm time_t gmtime localtime mktime strftime clock",
    "deque": "deque",
    "exception": "exception exception_ptr current_exception rethrow_exception make_exception_ptr terminate uncaught_exceptions",
    "filesystem": "filesystem::",
    "fstream": "ifstream ofstream fstream",
    "functional": "function less greater less_equal greater_equal not_equal_to hash plus multiplies ref cref reference_wrapper bind_front equal_to not_fn invoke "
                  "ranges::less ranges::greater",
    "future": "future async promise packaged_task launch",
    "initializer_list": "initializer_list",
    "iomanip": "setprecision setw setfill put_time",
    "iostream": "cout cin cerr clog",
    "istream": "ws",
    "iterator": "back_inserter make_move_iterator distance next prev advance istreambuf_iterator ostreambuf_iterator inserter "
                "istream_iterator reverse_iterator make_reverse_iterator move_iterator",
    "latch": "latch",
    "barrier": "barrier",
    "semaphore": "counting_semaphore binary_semaphore",
    "stop_token": "stop_token stop_source stop_callback",
    "limits": "numeric_limits",
    "list": "list",
    "locale": "locale",
    "map": "map multimap",
    "memory": "shared_ptr unique_ptr weak_ptr make_shared make_unique make_unique_for_overwrite enable_shared_from_this addressof default_delete "
              "static_pointer_cast dynamic_pointer_cast align to_address destroy_at construct_at assume_aligned",
    "mutex": "mutex lock_guard unique_lock scoped_lock once_flag call_once recursive_mutex try_to_lock adopt_lock defer_lock",
    "shared_mutex": "shared_mutex shared_lock",
    "new": "align_val_t bad_alloc nothrow launder hardware_destructive_interference_size",
    "numbers": "numbers::",
    "numeric": "iota accumulate inner_product gcd lcm partial_sum reduce transform_reduce midpoint adjacent_difference "
               "exclusive_scan inclusive_scan",
    "optional": "optional nullopt nullopt_t make_optional bad_optional_access in_place",
    "queue": "queue priority_queue",
    "random": "mt19937 mt19937_64 normal_distribution uniform_real_distribution uniform_int_distribution bernoulli_distribution "
              "random_device minstd_rand lognormal_distribution exponential_distribution cauchy_distribution "
              "discrete_distribution student_t_distribution seed_seq",
    "ranges": "views:: ranges::subrange ranges::range ranges::size ranges::begin ranges::end ranges::views",
    "ratio": "ratio milli micro nano",
    "regex": "regex regex_search regex_match regex_replace smatch cmatch sregex_iterator regex_constants::",
    "set": "set multiset",
    "source_location": "source_location",
    "span": "span as_bytes as_writable_bytes dynamic_extent",
    "sstream": "istringstream ostringstream stringstream",
    "stack": "stack",
    "stdexcept": "runtime_error logic_error invalid_argument out_of_range domain_error length_error overflow_error range_error",
    "string": "string to_string stoi stol stoll stoul stoull stof stod getline wstring u8string u16string u32string char_traits",
    "string_view": "string_view",
    "system_error": "error_code generic_category system_category system_error error_condition",
    "thread": "thread jthread this_thread::",
    "tuple": "tuple tie apply make_tuple forward_as_tuple tuple_size tuple_element tuple_cat ignore tuple_size_v tuple_element_t",
    "type_traits": "is_same_v is_same conditional_t conditional is_integral_v is_enum_v is_floating_point_v is_signed_v "
                   "remove_reference_t remove_cv_t remove_cvref_t decay_t type_identity type_identity_t enable_if_t void_t "
                   "is_base_of_v is_trivially_copyable_v make_unsigned_t make_signed_t underlying_type_t invoke_result_t "
                   "true_type false_type integral_constant bool_constant is_unsigned_v is_convertible_v is_constructible_v "
                   "is_arithmetic_v common_type_t is_invocable_v is_pointer_v remove_pointer_t remove_const_t add_const_t "
                   "is_const_v is_void_v is_constant_evaluated is_class_v is_empty_v is_standard_layout_v is_aggregate_v "
                   "is_nothrow_move_constructible_v is_copy_constructible_v is_reference_v extent_v rank_v",
    "typeindex": "type_index",
    "unordered_map": "unordered_map unordered_multimap",
    "unordered_set": "unordered_set",
    "utility": "move forward pair make_pair exchange as_const index_sequence make_index_sequence index_sequence_for "
               "integer_sequence make_integer_sequence declval in_range cmp_less cmp_equal cmp_greater piecewise_construct "
               "to_underlying unreachable in_place_t cmp_less_equal cmp_greater_equal move_if_noexcept",
    "variant": "variant visit holds_alternative get_if monostate variant_size_v variant_alternative_t bad_variant_access",
    "vector": "vector",
    "version": "",
}
# Defined by several headers: any of them is accepted.
SEVERAL = {
    "swap": ("utility", "algorithm", "string", "string_view", "vector", "array", "map", "set", "memory", "optional", "tuple", "span"),
    "abs": ("cmath", "cstdlib"),
    "get": ("tuple", "utility", "array", "variant", "memory"),
    "size_t": (),
    "ptrdiff_t": (),
    "nullptr_t": ("cstddef",),
    "byte": ("cstddef",),
    "max_align_t": ("cstddef",),
    "errc": ("system_error", "charconv"),
    "make_error_code": ("system_error",),
    "tuple_size": ("tuple", "array", "utility"),
    "tuple_size_v": ("tuple", "array", "utility"),
    "bad_function_call": ("functional",),
    "FILE": ("cstdio",),
    "numeric_limits": ("limits",),
    "div": ("cstdlib",),
    "literals": (),
    "string_literals": ("string",),
    "string_view_literals": ("string_view",),
}
CONTAINERS = ("array", "deque", "initializer_list", "iterator", "list", "map", "set", "span", "string", "string_view", "unordered_map",
              "unordered_set", "vector", "regex")
for name in ("size", "ssize", "begin", "end", "cbegin", "cend", "rbegin", "rend", "data", "empty"):
    SEVERAL[name] = CONTAINERS
for name in ("erase", "erase_if"):
    SEVERAL[name] = ("vector", "string", "map", "set", "list", "deque", "unordered_map", "unordered_set")
STREAMS = ("ostream", "istream", "iostream", "fstream", "sstream", "iomanip", "ios")
for name in ("hex", "dec", "oct", "hexfloat", "fixed", "scientific", "defaultfloat", "ios", "ios_base", "streamsize", "streambuf",
             "boolalpha", "left", "right", "showbase", "noskipws", "skipws", "streamoff", "streampos"):
    SEVERAL[name] = STREAMS
for name in ("ostream", "endl", "flush"):
    SEVERAL[name] = ("ostream", "iostream", "fstream", "sstream")
for name in ("istream", "ws"):
    SEVERAL[name] = ("istream", "iostream", "fstream", "sstream")
SEVERAL["iostream"] = ("istream", "iostream", "fstream", "sstream")

NEEDS = {name: (header,) for header, names in HEADERS.items() for name in names.split()}
NEEDS.update(SEVERAL)
# The exact-width types are written without std:: as well.
PLAIN = {name: ("cstdint", "stdint.h") for name in HEADERS["cstdint"].split()}
# Macros, and C functions, which the global namespace has as well where a header brings them.
MACROS = {
    "cassert": "assert", "cerrno": "errno EINTR EAGAIN ENOENT EEXIST ENOSPC EPIPE EINVAL ENOMEM",
    "cfloat": "FLT_MAX FLT_MIN FLT_EPSILON FLT_DIG DBL_MAX DBL_MIN DBL_EPSILON DBL_DIG DBL_MANT_DIG FLT_MANT_DIG FLT_EVAL_METHOD",
    "cinttypes": "PRId64 PRIu64 PRIx64 PRId32 PRIu32 PRIx32 SCNd64 SCNu64",
    "climits": "CHAR_BIT INT_MAX INT_MIN UINT_MAX LONG_MAX LONG_MIN ULONG_MAX LLONG_MAX LLONG_MIN ULLONG_MAX SHRT_MAX USHRT_MAX",
    "cmath": "HUGE_VAL HUGE_VALF INFINITY NAN M_PI M_E M_SQRT2 FP_NAN FP_INFINITE FP_ZERO FP_SUBNORMAL FP_NORMAL",
    "cstddef": "offsetof",
    "cstdint": "INT8_MAX INT16_MAX INT32_MAX INT64_MAX INT8_MIN INT16_MIN INT32_MIN INT64_MIN UINT8_MAX UINT16_MAX UINT32_MAX "
               "UINT64_MAX SIZE_MAX UINT64_C INT64_C UINT32_C INTPTR_MAX UINTPTR_MAX",
    "cstdio": "stdin stdout stderr EOF SEEK_SET SEEK_CUR SEEK_END BUFSIZ",
    "cstdlib": "EXIT_SUCCESS EXIT_FAILURE RAND_MAX",
    "cfenv": "FE_TONEAREST FE_UPWARD FE_DOWNWARD FE_TOWARDZERO FE_ALL_EXCEPT FE_INVALID FE_OVERFLOW FE_UNDERFLOW FE_DIVBYZERO FE_INEXACT",
    "cstdarg": "va_list va_start va_end va_arg",
}
for header in ("cstring", "cstdio", "cstdlib", "ctime"):
    # Without those that members of classes are called as well.
    names = set(HEADERS[header].split()) - {"FILE", "time", "tm", "clock", "system", "free", "remove", "rename", "abort", "exit"}
    MACROS[header] = " ".join(sorted(names | set(MACROS.get(header, "").split())))
PLAIN.update({name: (header, f"{header[1:]}.h") for header, names in MACROS.items() for name in names.split()})
# Includes that the standard guarantees.
BRINGS = {"map": ("initializer_list",), "vector": ("initializer_list", "compare"), "string": ("initializer_list", "compare", "string_view"),
          "set": ("initializer_list",), "sstream": (), "iostream": ("istream", "ostream", "ios"), "optional": ("compare",),
          "array": ("initializer_list", "compare"), "utility": ("initializer_list", "compare"), "algorithm": ("initializer_list",),
          "unordered_map": ("initializer_list",), "chrono": ("compare",), "list": ("initializer_list",), "tuple": ("compare",),
          "thread": ("compare",), "filesystem": ("compare",), "memory": ("compare",), "random": ("initializer_list",),
          "functional": (), "span": (), "unordered_set": ("initializer_list",), "valarray": ("initializer_list",)}

CODE = (".h", ".cpp", ".cu", ".cuh", ".h.in")
QUALIFIED = re.compile(r"\bstd\s*::\s*((?:\w+\s*::\s*)*)(\w+)")
# `using namespace std` and other names for std would hide what is used.
ALONE = re.compile(r"\bstd\b(?!\s*::\s*\w)")
UNQUALIFIED = re.compile(r"(?<![\w.:>])(?:::)?(" + "|".join(sorted(PLAIN)) + r")\b")
ANY_SUFFIX = re.compile(r"_(?:slow_)?test$")


@functools.lru_cache(maxsize=None)
def parts(text):
    """[(line, '"' or '<', header)] of the includes, and the code without comments and literals"""
    code = cpp_reader.code_of(text)
    return cpp_reader.includes_of(text, code), code


def included(text):
    headers = {name for _, kind, name in parts(text)[0] if kind == "<"}
    for header in list(headers):
        headers.update(BRINGS.get(header, ()))
    return headers


def uses(code):
    """{name: (first line, acceptable headers, or None if the table does not have the name)}"""
    found = {}
    for match in QUALIFIED.finditer(code):
        spaces, name = re.sub(r"\s", "", match[1]), match[2]
        whole = spaces + name
        first = spaces.split("::")[0]
        if first and f"{first}::" in NEEDS:
            whole = "::".join(whole.split("::")[:2])
            headers = NEEDS[f"{first}::"]
        elif not spaces and f"{name}::" in NEEDS:
            headers = NEEDS[f"{name}::"]  # namespace fs = std::filesystem
        elif spaces and first != "ranges":
            whole, headers = first, NEEDS.get(first)  # std::vector<...> is not nested, std::string::npos is
        else:
            headers = NEEDS.get(whole)
        found.setdefault(f"std::{whole}", (code.count("\n", 0, match.start()) + 1, headers))
    for match in UNQUALIFIED.finditer(code):
        found.setdefault(match.group(1), (code.count("\n", 0, match.start()) + 1, PLAIN[match.group(1)]))
    if match := ALONE.search(code):
        found["std"] = (code.count("\n", 0, match.start()) + 1, None)
    return found


def own_headers(root, path):
    """The header of the same name, and for x_test.cpp that of x; what they include need not be included again."""
    stem = os.path.splitext(path)[0]
    stems = {stem, ANY_SUFFIX.sub("", stem)}
    return [f"{name}{end}" for name in sorted(stems) for end in (".h", ".cuh")
            if f"{name}{end}" != path and os.path.isfile(os.path.join(root, f"{name}{end}"))]


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace", newline="") as file:
        return file.read()


def check_file(root, path):
    """[(line, name, accepted headers)]"""
    text = read(root, path)
    there = included(text)
    for header in own_headers(root, path):
        there |= included(read(root, header))
    return [(line, name, headers) for name, (line, headers) in uses(parts(text)[1]).items()
            if headers is None or (headers and not there & set(headers))]


def closure(root, path, seen):
    """Our own headers that the file includes, directly or not."""
    for _, kind, name in parts(read(root, path))[0]:
        if kind == '"' and name not in seen and os.path.isfile(os.path.join(root, name)):
            seen.add(name)
            closure(root, name, seen)
    return seen


def lacks_namespaces(root, path):
    """The header whose using-directives the file needs and does not include, or None. A level with a namespaces.h names what is
    below it without qualification; in a group of files, another file may have included that header before."""
    level = path.split("/")[0]
    header = f"{level}/namespaces.h"
    if path == header or not os.path.isfile(os.path.join(root, header)) or f"namespace halfmark::{level} {{" not in parts(read(root, path))[1]:
        return None
    included_headers = closure(root, path, set())
    below = any(not name.startswith(f"{level}/") and "/" in name for name in included_headers)
    return header if below and header not in included_headers else None


def add_includes(text, headers):
    """The text with the headers added to its last block of standard includes, or as a new block after the other includes in <>."""
    lines = text.split("\n")
    blocks = []  # of includes in consecutive lines: [(index of the line, '"' or '<', header)]
    for number, kind, name in parts(text)[0]:
        if not blocks or blocks[-1][-1][0] + 1 != number - 1:
            blocks.append([])
        blocks[-1].append((number - 1, kind, name))
    depth, conditional = 0, set()
    for number, line in enumerate(lines):
        if re.match(r"#\s*if", line):
            depth += 1
        if depth:
            conditional.add(number)
        if re.match(r"#\s*endif", line):
            depth -= 1
    blocks = [block for block in blocks if not any(number in conditional for number, _, _ in block)]
    standard = [block for block in blocks if all(kind == "<" and "." not in name and "/" not in name for _, kind, name in block)]
    if standard:
        block = standard[-1]
        names = sorted({name for _, _, name in block} | set(headers))
        lines[block[0][0]:block[-1][0] + 1] = [f"#include <{name}>" for name in names]
        return "\n".join(lines)
    new = [f"#include <{name}>" for name in sorted(headers)]
    angled = [block for block in blocks if all(kind == "<" for _, kind, _ in block)]
    if angled:
        at = angled[-1][-1][0] + 1
        lines[at:at] = [""] + new
    elif blocks:
        own = blocks[0]
        # After the file's own header if that is a block of its own, otherwise before our headers.
        alone = len(own) == 1 and len(blocks) > 1
        at = own[-1][0] + 1 if alone else own[0][0]
        lines[at:at] = [""] + new if alone else new + [""]
    else:
        at = next((number + 1 for number, line in enumerate(lines) if line.startswith("#pragma once")), None)
        if at is None:
            at = next(number for number, line in enumerate(lines) if not line.startswith("//"))
        lines[at:at] = [""] + new
    return "\n".join(lines)


def sources(root):
    return [path for path in tree_files(root)[0] if path.endswith(CODE) and os.path.isfile(os.path.join(root, path))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    parser.add_argument("--fix", action="store_true", help="add what is missing")
    options = parser.parse_args()
    files = sources(options.root)
    if not files:
        print(f"check_includes.py: no C++ files in {options.root}: give the root of the sources", file=sys.stderr)
        return 2
    count = 0
    for path in files:
        missing = check_file(options.root, path)
        for line, name, headers in sorted(missing, key=lambda row: row[0]):
            count += 1
            print(f"{path}:{line}: {name} " + (f"needs <{headers[0]}>" if headers else
                  "without a name after it: write std::name" if name == "std" else "is not in the table of scripts/check_includes.py"))
        if header := lacks_namespaces(options.root, path):
            count += 1
            print(f"{path}:1: names of lower levels need \"{header}\"")
        wanted = {headers[0] for _, _, headers in missing if headers}
        if options.fix and wanted:
            text = read(options.root, path)
            with open(os.path.join(options.root, path), "w", encoding="utf-8") as file:
                file.write(add_includes(text, wanted))
    if not count:
        print(f"{len(files)} files include what they use")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
