"""Fashion-MNIST as single files: split/class/number.pgm.

PGM is the plainest format of grey pictures: a header of text, then one byte a pixel.
Viewers show it, and no library is needed to read it.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Iterator, List, Optional, Tuple

import torch

__all__ = ["CLASSES", "Images", "SOURCE", "objects"]

# Where Debian's package dataset-fashion-mnist keeps it.
SOURCE = Path("/usr/share/datasets/fashion-mnist")

# The names that its authors gave to the labels 0 to 9.
CLASSES = ["t-shirt-top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle-boot"]

_SIDE = 28
_HEADER = b"P5 28 28 255\n"


def objects(split: str, limit: Optional[int] = None, source: Path = SOURCE) -> Iterator[Tuple[str, bytes]]:
    """The names and contents of the files of a split, train or test; at most `limit`."""
    stem = {"train": "train", "test": "t10k"}[split]
    with gzip.open(source / f"{stem}-images-idx3-ubyte.gz") as f:
        pixels = f.read()[16:]
    with gzip.open(source / f"{stem}-labels-idx1-ubyte.gz") as f:
        labels = f.read()[8:]
    size = _SIDE * _SIDE
    for i, label in enumerate(labels[:limit]):
        yield f"{split}/{CLASSES[label]}/{i:05}.pgm", _HEADER + pixels[i * size:(i + 1) * size]


class Images(torch.utils.data.Dataset[Tuple[torch.Tensor, int]]):
    """The pictures of a split, below a folder of the mount."""

    def __init__(self, folder: Path, split: str) -> None:
        self.paths: List[str] = []
        self.labels: List[int] = []
        for label, name in enumerate(CLASSES):
            directory = folder / split / name
            if not directory.is_dir():
                continue
            for file in sorted(os.listdir(directory)):
                self.paths.append(str(directory / file))
                self.labels.append(label)
        if not self.paths:
            raise FileNotFoundError(f"no pictures below {folder / split}: give the folder that holds train/ and test/")

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Tuple[torch.Tensor, int]:
        with open(self.paths[index], "rb", buffering=0) as f:
            content = f.read()
        if not content.startswith(_HEADER) or len(content) != len(_HEADER) + _SIDE * _SIDE:
            raise ValueError(f"{self.paths[index]} is not a picture of {_SIDE} by {_SIDE} pixels ({len(content)} bytes)")
        pixels = torch.frombuffer(bytearray(content[len(_HEADER):]), dtype=torch.uint8)
        return pixels.view(1, _SIDE, _SIDE).float().div_(255), self.labels[index]
