"""What the client's calls are about."""

from __future__ import annotations

import os
from typing import Any, Union

__all__ = ["DatasetFile"]


class DatasetFile:
    """A file or a folder of the dataset, as one sampler announces it.

    `dataset_file_path` is relative to the mount; an absolute path below the mount does
    as well. `sampler_index` names the stream that the file belongs to: files of one
    stream are fetched in the order in which they were announced. `seq` tells apart
    announcements of the same file that are to be released one by one.
    """

    __slots__ = ("dataset_file_path", "sampler_index", "seq")

    def __init__(self, dataset_file_path: "Union[str, bytes, os.PathLike[Any]]", sampler_index: int = 0,
                 seq: int = 0) -> None:
        self.dataset_file_path = dataset_file_path
        self.sampler_index = sampler_index
        self.seq = seq

    def __repr__(self) -> str:
        seq = f", seq={self.seq}" if self.seq else ""
        return f"DatasetFile({self.dataset_file_path!r}, sampler_index={self.sampler_index}{seq})"
