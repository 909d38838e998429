"""Folders that `halfmark dump` writes: their tensors, and what dropout drew."""

import json
import pathlib

import numpy


class DumpError(Exception):
    """One line about a folder that is no dump."""


def decode(array, dtype):
    """The numbers of a stored array in fp64; bf16 is stored as its codes."""
    if dtype == "bf16":
        return (array.astype(numpy.uint32) << 16).view(numpy.float32).astype(numpy.float64)
    if array.dtype.kind == "u" and dtype != "u8":
        raise DumpError(f"cannot decode {dtype}")
    return array.astype(numpy.float64)


class Dump:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        try:
            self.index = json.loads((self.folder / "dump.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DumpError(f"{folder}: no dump of halfmark: {error}") from error
        if self.index.get("halfmark_dump") != 1:
            raise DumpError(f"{folder}: a dump of version {self.index.get('halfmark_dump')}, this program reads version 1")
        self._files = {(one["role"], one["name"], one.get("step", -1)): one for one in self.index["tensors"]}

    def has(self, role, name="", step=-1):
        return (role, name, step) in self._files

    def get(self, role, name="", step=-1):
        one = self._files[role, name, step]
        array = numpy.load(self.folder / one["file"], allow_pickle=False)
        if list(array.shape) != one["shape"]:
            raise DumpError(f"{self.folder / one['file']}: shape {list(array.shape)}, the index says {one['shape']}")
        return decode(array, one["dtype"])

    def names(self, role, step=-1):
        return [name for (found, name, at) in self._files if found == role and at == step]

    def dtype(self, role, name="", step=-1):
        return self._files[role, name, step]["dtype"]

    def shape(self, role, name="", step=-1):
        return tuple(self._files[role, name, step]["shape"])


def philox(counter, key):
    """Philox4x32-10 (Salmon et al., SC 2011) of arrays of 32-bit words."""
    c = [numpy.asarray(word, dtype=numpy.uint64) for word in counter]
    k = [numpy.uint64(word) for word in key]
    low = numpy.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = c[0] * numpy.uint64(0xD2511F53), c[2] * numpy.uint64(0xCD9E8D57)
        c = [(b >> numpy.uint64(32)) ^ c[1] ^ k[0], b & low, (a >> numpy.uint64(32)) ^ c[3] ^ k[1], a & low]
        k = [(k[0] + numpy.uint64(0x9E3779B9)) & low, (k[1] + numpy.uint64(0xBB67AE85)) & low]
    return c


def kept_by_dropout(shape, p, seed):
    """The mask of halfmark's dropout: word i mod 4 of block i / 4 is at least p 2^32."""
    count = int(numpy.prod(shape))
    block = numpy.arange((count + 3) // 4, dtype=numpy.uint64)
    shift, low = numpy.uint64(32), numpy.uint64(0xFFFFFFFF)
    words = philox([block & low, block >> shift, numpy.full_like(block, 0x64726F70), numpy.zeros_like(block)],
                   [seed & 0xFFFFFFFF, seed >> 32])
    return (numpy.stack(words, axis=1).reshape(-1)[:count] >= p * 2.0**32).reshape(shape)
