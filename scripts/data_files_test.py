#!/usr/bin/env python3
"""What `--data` makes of pictures, against Pillow: decoded, resized, cropped and normalised as torchvision does it."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent
PROGRAM = os.environ.get("HALFMARK", str(SCRIPTS.parent / "build" / "release" / "halfmark"))

try:
    import numpy
    from PIL import Image
except ImportError as error:
    print(f"skipped: {error}; the readers of pictures are compared with Pillow (python3-pil, python3-numpy)", file=sys.stderr)
    numpy = Image = None

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)


def picture(height, width, seed):
    """Smooth colours with some noise, so that JPEG and resizing have something to do."""
    random = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:height, 0:width]
    planes = [128 + 100 * numpy.sin(x / 7 + c + seed) * numpy.cos(y / 11) + random.normal(0, 8, (height, width)) for c in range(3)]
    return Image.fromarray(numpy.clip(numpy.stack(planes, -1), 0, 255).astype(numpy.uint8))


def expected(path, size):
    """torchvision's Resize(size) and CenterCrop(size), as they call Pillow; then the normalisation of ImageNet."""
    image = Image.open(path).convert("RGB")
    width, height = image.size
    shape = (size, int(size * height / width)) if width <= height else (int(size * width / height), size)
    image = image.resize(shape, Image.BILINEAR)
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    pixels = numpy.asarray(image.crop((left, top, left + size, top + size)), numpy.float64) / 255
    return ((pixels - MEAN) / DEVIATION).transpose(2, 0, 1)


@unittest.skipUnless(Image, "Pillow or NumPy is not installed")
@unittest.skipUnless(os.access(PROGRAM, os.X_OK), "halfmark is not built in build/release")
class Pictures(unittest.TestCase):
    def dump(self, root, subject):
        subprocess.run([PROGRAM, "dump", "--data", str(root / "data"), f"{subject}/cpu/fp64", "-o", str(root / "dump")],
                       check=True, capture_output=True)
        return numpy.load(root / "dump/step0.input.npy"), numpy.load(root / "dump/step0.target.npy")

    def test_images_are_those_of_pillow(self):
        # Each picture is the only one of its class, so that the label tells which it is.
        kinds = [("jpg", {}, (60, 90)), ("jpeg", {"quality": 60}, (91, 40)), ("jpg", {"progressive": True}, (33, 32)),
                 ("png", {}, (20, 31)), ("png", {}, (200, 120)), ("palette", {}, (50, 50)), ("grey", {}, (45, 80)),
                 ("alpha", {}, (64, 48))]
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            paths = []
            for number, (kind, options, size) in enumerate(kinds):
                image = picture(*size, number)
                if kind == "palette":
                    image = image.quantize(64)
                elif kind == "grey":
                    image = image.convert("L")
                elif kind == "alpha":
                    image.putalpha(image.convert("L"))
                ending = kind if kind in ("jpg", "jpeg") else "png"
                for split in ("train", "val"):
                    path = root / f"data/{split}/class{number}/a.{ending}"
                    path.parent.mkdir(parents=True)
                    image.save(path, **options)
                paths.append(path)
            x, labels = self.dump(root, f"lenet5/b{len(kinds)}_c3_s32")
            self.assertEqual(sorted(labels.tolist()), list(range(len(kinds))))
            for found, label in zip(x, labels):
                # One level of 255 for each of the two roundings: Pillow's weights have 22 bits.
                worst = numpy.abs(found - expected(paths[label], 32)).max()
                self.assertLessEqual(worst, 2.01 / 255 / 0.224, paths[label])

    def test_labels_of_streets_take_the_nearest_pixel(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            random = numpy.random.default_rng(1)
            ids = random.choice([0, 7, 8, 11, 26, 33], (48, 96)).astype(numpy.uint8)
            train_ids = {0: 255, 7: 0, 8: 1, 11: 2, 26: 13, 33: 18}
            for split in ("train", "val"):
                image, labels = (root / f"data/{part}/{split}/ulm" for part in ("leftImg8bit", "gtFine"))
                image.mkdir(parents=True), labels.mkdir(parents=True)
                picture(48, 96, 3).save(image / "ulm_000000_000019_leftImg8bit.png")
                Image.fromarray(ids).save(labels / "ulm_000000_000019_gtFine_labelIds.png")
            x, labels = self.dump(root, "erfnet/b1_s16x32_n1")
            nearest = numpy.asarray(Image.fromarray(ids).resize((32, 16), Image.NEAREST))
            self.assertTrue((labels[0] == numpy.vectorize(train_ids.get)(nearest)).all())
            small = numpy.asarray(picture(48, 96, 3).resize((32, 16), Image.BILINEAR)).transpose(2, 0, 1) / 255
            self.assertLessEqual(numpy.abs(x[0] - small).max(), 2.01 / 255)


if __name__ == "__main__":
    unittest.main()
