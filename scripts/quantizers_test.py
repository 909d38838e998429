#!/usr/bin/env python3
"""The quantisers of training recipes (halfmark quantize) against an implementation in fractions, written from the owners' rules:
60 random tensors (HALFMARK_LONG=1: 200) with zeros, subnormals, outliers, infinities and NaN under every rule."""

import bisect
import fractions
import math
import os
import pathlib
import random
import struct
import subprocess
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent
PROGRAM = os.environ.get("HALFMARK", str(SCRIPTS.parent / "build" / "release" / "halfmark"))
F = fractions.Fraction
LARGEST = F(2) ** 128 - F(2) ** 104  # of fp32
LARGEST_BF16 = F(2) ** 128 - F(2) ** 120
NAN = math.nan


# Numbers are fractions, or the floats inf, -inf and nan.

def is_finite(x):
    return isinstance(x, F)


def power_below(x):
    """The largest power of two that is not larger than x > 0."""
    k = x.numerator.bit_length() - x.denominator.bit_length()
    while F(2) ** k > x:
        k -= 1
    while F(2) ** (k + 1) <= x:
        k += 1
    return F(2) ** k


def fl(x):
    """Rounded to fp32, to nearest even."""
    if not is_finite(x) or x == 0:
        return x
    size = abs(x)
    unit = max(power_below(size) / 2 ** 23, F(2) ** -149)
    whole, rest = divmod(size, unit)
    if rest * 2 > unit or (rest * 2 == unit and whole % 2):
        whole += 1
    rounded = whole * unit
    if rounded > LARGEST:
        return math.copysign(math.inf, x)
    return rounded if x > 0 else -rounded


def product(a, b):
    if is_finite(a) and is_finite(b):
        return fl(a * b)
    if a == 0 or b == 0:
        return NAN
    return float(a if not is_finite(a) else (1 if a > 0 else -1)) * float(b if not is_finite(b) else (1 if b > 0 else -1))


def quotient(a, b):
    if not is_finite(a):
        return NAN if not is_finite(b) else float(a) * (-1 if b < 0 else 1)
    if not is_finite(b):
        return NAN if math.isnan(b) else F(0)
    if b == 0:
        return NAN if a == 0 else math.copysign(math.inf, a)
    return fl(a / b)


def smaller(a, largest):
    return largest if not is_finite(a) and a > 0 or is_finite(a) and a > largest else a


def number_of(code):
    x = struct.unpack("<f", struct.pack("<I", code))[0]
    return F(x) if math.isfinite(x) else x


def code_of_fp32(x):
    return struct.unpack("<I", struct.pack("<f", float(x)))[0]


class Element:
    """A narrow format: its numbers without sign, in the order of their codes."""

    def __init__(self, exponent_bits, fraction_bits, codes, nan, sign):
        bias = 2 ** (exponent_bits - 1) - 1
        self.nan, self.sign, self.numbers = nan, sign, []
        for code in range(codes):
            field, fraction = code >> fraction_bits, F(code & (2 ** fraction_bits - 1), 2 ** fraction_bits)
            self.numbers.append((1 + fraction) * F(2) ** (field - bias) if field else fraction * F(2) ** (1 - bias))
        self.largest = self.numbers[-1]

    def code(self, x, negative):
        """To nearest even, saturating."""
        if not is_finite(x) and math.isnan(x):
            return self.nan
        size = abs(x) if is_finite(x) else self.largest
        upper = bisect.bisect_left(self.numbers, size)
        if upper >= len(self.numbers):
            found = len(self.numbers) - 1
        elif upper == 0 or self.numbers[upper] == size:
            found = upper
        else:
            below, above = size - self.numbers[upper - 1], self.numbers[upper] - size
            found = upper - 1 if below < above or (below == above and upper % 2) else upper
        return found | (self.sign if negative else 0)


E4M3 = Element(4, 3, 127, 0x7F, 0x80)
E5M2 = Element(5, 2, 124, 0x7E, 0x80)
E2M1 = Element(2, 1, 8, 7, 8)


# Each rule: (largest magnitude of the tile, of the tensor) -> (factor, decode, code of the scale)

def te(element, powers, largest):
    def rule(amax, _):
        scale = F(1)
        if amax != 0 and is_finite(amax):
            scale = quotient(element.largest, amax)
            if not is_finite(scale):
                scale = largest
            if powers:
                scale = power_below(scale)
        return scale, quotient(F(1), scale), 0
    return rule


def mx(element):
    def rule(amax, _):
        wanted = product(amax, quotient(F(1), element.largest))
        byte = 254
        if is_finite(wanted):
            byte = next((b for b in range(255) if F(2) ** (b - 127) >= wanted), 254)
        return F(2) ** (127 - byte), F(2) ** (byte - 127), byte
    return rule


def nvfp4(amax, tensor_amax):
    scale = smaller(quotient(F(2688), tensor_amax), LARGEST) if tensor_amax != 0 else F(1)
    if scale == 0:
        scale = F(1)
    wanted = smaller(product(amax, product(scale, fl(F(1, 6)))), LARGEST)
    code = E4M3.code(wanted, False)
    decode = E4M3.numbers[code]
    return smaller(quotient(F(1), product(decode, quotient(F(1), scale))), LARGEST), decode, code


def torchao(element, powers):
    def rule(amax, _):
        if not is_finite(amax):
            scale = NAN if math.isnan(amax) else F(0)
        else:
            scale = fl(F(float(element.largest / max(amax, F(1e-12)))))  # in fp64 first
        if powers and is_finite(scale) and scale > 0:
            scale = power_below(scale)
        return scale, quotient(F(1), scale), 0
    return rule


def deepseek(amax, _):
    if not is_finite(amax):
        decode = amax
    else:
        decode = quotient(max(amax, fl(F(1e-4))), E4M3.largest)
    return quotient(F(1), decode), decode, 0


def rules_for(largest_of_input):
    """name: (element, rule, rows and depth of a tile (None: all), whether NaN spreads, whether it divides)"""
    return {
        "te-current-e4m3": (E4M3, te(E4M3, False, LARGEST), (None, None), False, False),
        "te-current-e5m2": (E5M2, te(E5M2, False, LARGEST), (None, None), False, False),
        "te-current-pow2-e4m3": (E4M3, te(E4M3, True, LARGEST), (None, None), False, False),
        "te-current-pow2-e5m2": (E5M2, te(E5M2, True, LARGEST), (None, None), False, False),
        "te-block-1x128": (E4M3, te(E4M3, True, largest_of_input), (1, 128), False, False),
        "te-block-128x128": (E4M3, te(E4M3, True, largest_of_input), (128, 128), False, False),
        "te-block-1x128-fp32": (E4M3, te(E4M3, False, largest_of_input), (1, 128), False, False),
        "te-block-128x128-fp32": (E4M3, te(E4M3, False, largest_of_input), (128, 128), False, False),
        "te-mxfp8-e4m3": (E4M3, mx(E4M3), (1, 32), False, False),
        "te-mxfp8-e5m2": (E5M2, mx(E5M2), (1, 32), False, False),
        "te-mxfp8-32x32": (E4M3, mx(E4M3), (32, 32), False, False),
        "te-nvfp4": (E2M1, nvfp4, (1, 16), False, False),
        "te-nvfp4-16x16": (E2M1, nvfp4, (16, 16), False, False),
        "torchao-tensorwise-e4m3": (E4M3, torchao(E4M3, False), (None, None), True, False),
        "torchao-tensorwise-e5m2": (E5M2, torchao(E5M2, False), (None, None), True, False),
        "torchao-rowwise": (E4M3, torchao(E4M3, True), (1, None), True, False),
        "deepseek-1x128": (E4M3, deepseek, (1, 128), True, True),
        "deepseek-128x128": (E4M3, deepseek, (128, 128), True, True),
        "deepgemm-1x128": (E4M3, deepseek, (1, 128), True, False),
        "deepgemm-128x128": (E4M3, deepseek, (128, 128), True, False),
    }


# By the dtype of the tensor before.
RULES = {"f32": rules_for(LARGEST), "bf16": rules_for(LARGEST_BF16)}


def amax_of(numbers, spreads):
    if spreads and any(not is_finite(x) and math.isnan(x) for x in numbers):
        return NAN
    return max((abs(x) for x in numbers if is_finite(x) or not math.isnan(x)), default=F(0))


def quantized(codes, rows, depth, name, dtype):
    """[(code, decode, scale)] of the matrix of fp32 codes."""
    element, rule, (tile_rows, tile_depth), spreads, divides = RULES[dtype][name]
    tile_rows, tile_depth = tile_rows or rows, tile_depth or depth
    numbers = [number_of(code) for code in codes]
    tensor_amax = amax_of(numbers, spreads)
    found = [None] * len(codes)
    for row in range(0, rows, tile_rows):
        for k in range(0, depth, tile_depth):
            places = [i * depth + j for i in range(row, min(rows, row + tile_rows)) for j in range(k, min(depth, k + tile_depth))]
            factor, decode, scale = rule(amax_of([numbers[place] for place in places], spreads), tensor_amax)
            for place in places:
                scaled = quotient(numbers[place], decode) if divides else product(numbers[place], factor)
                found[place] = element.code(scaled, codes[place] >> 31 == 1), decode, scale
    return found


def random_tensor(source, count):
    """fp32 codes: usual numbers of one size, with zeros and outliers; some tensors subnormal, huge, infinite or with NaN."""
    scale = source.choice([1, 1, 1, 2.0 ** -20, 2.0 ** 20, 2.0 ** -120, 2.0 ** -135, 2.0 ** 120])
    strange = source.choice([0, 0, 0, 0.02, 0.1])
    codes = []
    for _ in range(count):
        x = source.gauss(0, 1) * scale
        kind = source.random()
        if kind < 0.05:
            x = math.copysign(0.0, x)
        elif kind < 0.08:
            x *= 2.0 ** source.randint(1, 12)
        elif kind < 0.12:
            x = math.copysign(2.0 ** source.randint(-12, 12) * source.choice([1, 1.5, 1.25, 1.75, 1.125]) * scale, x)
        code = struct.unpack("<I", struct.pack("<f", max(-3e38, min(3e38, x))))[0]
        if source.random() < strange:
            code = source.choice([0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 1, 0x80000001, 0x7F7FFFFF, 0x00400000])
        codes.append(code)
    return codes


def program_quantized(codes, depth, name, dtype):
    text = "x\n" + "".join(f"{code:08x}\n" for code in codes)
    answer = subprocess.run([PROGRAM, "quantize", "--rule", name, "--depth", str(depth), "--input", dtype], input=text, text=True,
                            capture_output=True, check=True)
    return [tuple(int(field, 16) for field in line.split(",")) for line in answer.stdout.splitlines()[1:]]


def is_nan_code(element, code):
    return element is not E2M1 and (code & 0x7F) > len(element.numbers) - (1 if element is E4M3 else 0)


@unittest.skipUnless(os.access(PROGRAM, os.X_OK), f"the program is not built: {PROGRAM}")
class Quantizers(unittest.TestCase):
    def compare(self, name, codes, rows, depth, dtype):
        element = RULES[dtype][name][0]
        if dtype == "bf16":  # the upper half of an fp32 code
            codes = [code & 0xFFFF0000 for code in codes]
        expected, found = quantized(codes, rows, depth, name, dtype), program_quantized(codes, depth, name, dtype)
        self.assertEqual(len(expected), len(found))
        for place, ((code, decode, scale), (own, own_decode, own_scale)) in enumerate(zip(expected, found)):
            where = f"{name} of {dtype}: element {place} of {rows} x {depth}, {codes[place]:08x}"
            if is_nan_code(element, code):  # the sign of a NaN says nothing
                self.assertTrue(is_nan_code(element, own), where)
            elif element is E2M1 and not is_finite(number_of(codes[place])) and math.isnan(number_of(codes[place])):
                self.assertEqual(own & 7, 7, where)
            else:
                self.assertEqual(own, code, where)
            self.assertEqual(own_scale, scale, where)
            if not is_finite(decode) and math.isnan(decode):
                self.assertTrue(math.isnan(number_of(own_decode)), where)
            else:
                self.assertEqual(own_decode, code_of_fp32(decode), where)

    def test_every_rule_gives_random_tensors_the_codes_and_scales_of_exact_arithmetic(self):
        source = random.Random(16)
        sizes = [(1, 40), (3, 17), (2, 64), (5, 130), (33, 3)]
        tensors = []
        for number in range(200 if os.environ.get("HALFMARK_LONG") else 60):
            rows, depth = sizes[number % len(sizes)]
            if number % 4:  # most are small: the larger ones are for the edges of tiles
                rows, depth = min(rows, 3), min(depth, 40)
            tensors.append((random_tensor(source, rows * depth), rows, depth))
        for name in RULES["f32"]:
            for number, (codes, rows, depth) in enumerate(tensors):
                self.compare(name, codes, rows, depth, "bf16" if number % 2 else "f32")

    def test_every_rule_of_the_program_is_compared(self):
        listed = subprocess.run([PROGRAM, "list", "quantizers", "--json"], text=True, capture_output=True, check=True).stdout
        for name in RULES["f32"]:
            self.assertIn(f'"{name}"', listed)
        self.assertEqual(listed.count('"element"'), len(RULES["f32"]))


if __name__ == "__main__":
    unittest.main()
