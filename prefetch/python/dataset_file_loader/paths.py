"""Names of files relative to the mount."""

from __future__ import annotations

import os
import re
from typing import Any, Iterable, List, Union

__all__ = ["MountPaths"]

# Linux opens no longer path.
_PATH_MAX = 4096

# Nearly all paths are like these, and need no more than a look: no part of them is
# empty or begins with a dot, and so few characters have fewer than _PATH_MAX bytes.
_is_plain = re.compile(r"(?:[^/.\0][^/\0]*/)*[^/.\0][^/\0]*").fullmatch
_SHORT = _PATH_MAX // 4


class MountPaths:
    """Turns the paths that programs use into those that the daemon knows.

    `mount` is the directory that the program calls the mount, and `others` are further
    names of it.
    """

    def __init__(self, mount: str, others: Iterable[str] = ()) -> None:
        self.mount = os.path.abspath(mount)
        roots: List[str] = []
        for root in (self.mount, *(os.path.abspath(other) for other in others)):
            # The mount may be named through a symbolic link, and its files without.
            for name in (root, os.path.realpath(root)):
                if name not in roots:
                    roots.append(name)
        self._roots = [root.rstrip("/") + "/" for root in roots]

    def relative(self, path: "Union[str, bytes, os.PathLike[Any]]") -> str:
        """The path relative to the mount, without needless parts.

        Raises ValueError for what lies outside, for `..`, and for the mount itself.
        """
        text = path if isinstance(path, str) else os.fsdecode(path)
        if text.startswith("/"):
            text = self._below(text)
        if len(text) < _SHORT and _is_plain(text):
            return text
        parts = [part for part in text.split("/") if part and part != "."]
        if ".." in parts:
            raise ValueError(f"dataset_file_path {os.fsdecode(path)!r} contains '..': give a path below {self.mount}")
        if "\0" in text:
            raise ValueError(f"dataset_file_path {text!r} contains a NUL byte, as no file's name can")
        if not parts:
            raise ValueError(f"dataset_file_path {os.fsdecode(path)!r} is the mount itself: name a file or folder in it")
        relative = "/".join(parts)
        if len(os.fsencode(relative)) >= _PATH_MAX:
            raise ValueError(f"dataset_file_path {text[:80]!r}... is longer than {_PATH_MAX} bytes, as no file's path can be")
        return relative

    def _below(self, text: str) -> str:
        for root in self._roots:
            if text.startswith(root):
                return text[len(root):]
            if text + "/" == root:
                return ""
        raise ValueError(f"dataset_file_path {text!r} is not below the mount {self.mount}")
