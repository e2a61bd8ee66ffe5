"""Inputs that are pictures, or parts of pictures, or files seen as pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from benchmarks.wild.archives import Package
from benchmarks.wild.materials import Materials
from benchmarks.wild.recipes import Arrays, recipe
from benchmarks.wild.sound import Array

if TYPE_CHECKING:
    from PIL.Image import Image

Size: TypeAlias = tuple[int, int]
Channels: TypeAlias = tuple[float, float, float]
Scale: TypeAlias = tuple[Channels, Channels]
"""Two numbers for each channel. The first is subtracted from the values 0 to 255, and the second divides the difference."""
Order: TypeAlias = Literal["RGB", "BGR"]
Layout: TypeAlias = Literal["NCHW", "NHWC"]

RAW: Scale = ((0, 0, 0), (1, 1, 1))
UNIT: Scale = ((0, 0, 0), (255, 255, 255))
HALF: Scale = ((127.5, 127.5, 127.5), (127.5, 127.5, 127.5))
IMAGENET: Scale = ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
CAFFE: Scale = ((104, 117, 123), (1, 1, 1))

HEADING = (2, 8, 272, 40)
WORD = (2, 8, 80, 40)
FIRST_LINE = (2, 46, 380, 70)
SECOND_LINE = (2, 62, 382, 86)
LAST_LINE = (14, 164, 250, 190)
"""Boxes around lines of text in the picture of a page: left, top, right, bottom."""


def stretched(image: Image, size: Size) -> Image:
    """Return the picture in another size. The proportions may change."""
    return image.resize((size[1], size[0]))


def cropped(image: Image, size: Size) -> Image:
    """Resize the picture so that its shorter side is 8/7 of the larger size, and return its middle in the given size."""
    factor = max(size) * 8 / 7 / min(image.size)
    image = image.resize((round(image.width * factor), round(image.height * factor)))
    left, top = (image.width - size[1]) // 2, (image.height - size[0]) // 2
    return image.crop((left, top, left + size[1], top + size[0]))


def in_corner(image: Image, size: Size, grey: int) -> Image:
    """Return a grey picture with the resized picture in its upper left corner. The proportions do not change."""
    from PIL import Image as Images

    factor = min(size[0] / image.height, size[1] / image.width)
    result = Images.new("RGB", (size[1], size[0]), (grey, grey, grey))
    result.paste(image.resize((int(image.width * factor), int(image.height * factor))))
    return result


FITS: Mapping[str, Callable[[Image, Size], Image]] = {
    "stretched": stretched,
    "cropped": cropped,
    "on black": lambda image, size: in_corner(image, size, 0),
    "on grey": lambda image, size: in_corner(image, size, 114),
}


def as_array(image: Image, scale: Scale, order: Order = "RGB") -> Array:
    """Return a picture as an array of height, width and channels, with scaled values."""
    values = np.asarray(image, np.float32)
    values = values[..., None] if values.ndim == 2 else values[..., :: 1 if order == "RGB" else -1]
    offset, divisor = np.array(scale, np.float32)[:, : values.shape[-1]]
    return np.asarray((values - offset) / divisor)


def batch(pictures: list[Array], layout: Layout) -> Array:
    """Return pictures of the same size as one array in a layout."""
    stacked = np.stack(pictures)
    return np.ascontiguousarray(stacked.transpose(0, 3, 1, 2) if layout == "NCHW" else stacked)


@recipe
def pictures(
    materials: Materials,
    *names: str,
    to: str,
    size: Size,
    fit: str = "stretched",
    scale: Scale = UNIT,
    order: Order = "RGB",
    layout: Layout = "NCHW",
) -> Arrays:
    """Photographs that scikit-image and scikit-learn ship, in the size and scale of the model."""
    made = [as_array(FITS[fit](materials.picture(name), size), scale, order) for name in names]
    return {to: batch(made, layout)}


@recipe
def line(
    materials: Materials,
    box: tuple[int, int, int, int],
    *,
    to: str,
    height: int,
    width: int = 0,
    grey: bool = False,
    scale: Scale = HALF,
    order: Order = "RGB",
) -> Arrays:
    """A line of text, cut from the photograph of a page that scikit-image ships."""
    image = materials.picture("page").crop(box)
    image = image.resize((width or round(image.width * height / image.height), height))
    return {to: batch([as_array(image.convert("L") if grey else image, scale, order)], "NCHW")}


@recipe
def program(materials: Materials, package: Package, file: str, *, to: str, side: int) -> Arrays:
    """The bytes of a Windows program that a package ships, as a grey picture whose width is a power of two."""
    from PIL import Image

    data = np.frombuffer(materials.file(package, file), np.uint8)
    width = 2 ** int(np.sqrt(len(data))).bit_length()
    image = Image.fromarray(data[: len(data) // width * width].reshape(-1, width)).convert("RGB")
    return {to: batch([as_array(stretched(image, (side, side)), IMAGENET)], "NCHW")}
