"""Remembers what one process announced and has not released."""

from __future__ import annotations

import threading
from itertools import groupby
from typing import Dict, List, Sequence, Tuple

__all__ = ["Record"]

_MOST = 1 << 16


class Record:
    """The files held, in the order of their announcement; of very many the newest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: Dict[Tuple[int, int, str], None] = {}

    def add(self, index: int, seq: int, paths: Sequence[str]) -> None:
        """Notes that the files are held."""
        with self._lock:
            for path in paths:
                self._files[index, seq, path] = None
            while len(self._files) > _MOST:
                del self._files[next(iter(self._files))]

    def remove(self, index: int, seq: int, paths: Sequence[str]) -> None:
        """Notes that the files are not held any more."""
        with self._lock:
            for path in paths:
                self._files.pop((index, seq, path), None)

    def files(self) -> List[Tuple[Tuple[int, int], List[str]]]:
        """Everything held, in runs of one sampler index and seq."""
        with self._lock:
            files = list(self._files)
        return [(key, [f[2] for f in run]) for key, run in groupby(files, key=lambda f: (f[0], f[1]))]
