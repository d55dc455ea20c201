"""Announcements for which the daemon has no room yet."""

from __future__ import annotations

import logging
import mmap
import os
import threading
import weakref
from typing import Callable, Dict, Iterable, List, Sequence, Tuple

__all__ = ["Backlog"]

_Key = Tuple[int, int, str]
_Tell = Callable[[int, int, List[str]], int]

# Seconds between two attempts of the thread, the first and the longest.
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0

# How many of one stream are offered at once.
_MOST = 1024

# Places for what forked processes let go; two paths may have one.
_PLACES = 1 << 16

log = logging.getLogger("dataset_file_loader")


class Backlog:
    """Keeps what found no room in the budget of this user, and offers it again in its order.

    `tell` announces some paths of a sampler index and seq and returns how many of them,
    from the first on, need not be offered again; it must be a bound method, and does not
    keep its object alive. It is called after something was let go, and by a thread while
    anything is kept.

    Only the process that made the backlog keeps anything. What a forked process lets go
    was read without an announcement, and is not announced any more.
    """

    def __init__(self, tell: _Tell) -> None:
        self._tell = weakref.WeakMethod(tell)
        self._owner = os.getpid()
        self._files: Dict[_Key, None] = {}
        # They may be taken again by a signal handler of the thread that has them.
        self._lock = threading.RLock()
        self._offering = threading.RLock()
        self._read = mmap.mmap(-1, _PLACES)
        self._stop = threading.Event()
        self._running = False

    def __len__(self) -> int:
        return len(self._files) if os.getpid() == self._owner else 0

    def add(self, index: int, seq: int, paths: Sequence[str]) -> bool:
        """Keeps announcements; False if this process cannot."""
        if self._stop.is_set() or os.getpid() != self._owner:
            return False
        with self._lock:
            for path in paths:
                key = (index, seq, path)
                self._read[hash(key) % _PLACES] = 0
                self._files[key] = None
            if self._files and not self._running:
                thread = threading.Thread(target=_run, args=(weakref.ref(self), self._stop), daemon=True,
                                          name="dataset_file_loader backlog")
                try:
                    thread.start()
                    self._running = True
                except RuntimeError:
                    pass  # What is let go makes it go on.
        return True

    def remove(self, index: int, seq: int, paths: Iterable[str]) -> None:
        """Notes that files are read, or were: they need no announcement any more."""
        if os.getpid() != self._owner:
            for path in paths:
                self._read[hash((index, seq, path)) % _PLACES] = 1
            return
        if self._files:
            # What is being offered is told before it is let go.
            with self._offering, self._lock:
                for path in paths:
                    self._files.pop((index, seq, path), None)

    def waits(self, index: int) -> bool:
        """Whether something of a sampler index is kept, which what comes must not overtake."""
        if not len(self):
            return False
        with self._lock:
            return any(key[0] == index for key in self._files)

    def has(self, index: int, seq: int, paths: Iterable[str]) -> bool:
        """Whether one of the files is kept."""
        if not len(self):
            return False
        with self._lock:
            return any((index, seq, path) in self._files for path in paths)

    def offer(self) -> None:
        """Offers what is kept, unless somebody does already."""
        if len(self) and self._offering.acquire(blocking=False):
            try:
                self._offer()
            finally:
                self._offering.release()

    def stop(self) -> None:
        """Keeps nothing any more."""
        self._stop.set()
        with self._lock:
            self._files.clear()

    def after_fork(self) -> None:
        """Makes a copy in a child usable: the locks may have been held, the thread is not here."""
        self._lock = threading.RLock()
        self._offering = threading.RLock()

    def _offer(self) -> None:
        tell = self._tell()
        full: Dict[int, bool] = {}
        while tell is not None:
            index, seq, paths = self._next(full)
            if not paths:
                return
            told = tell(index, seq, paths)
            with self._lock:
                for path in paths[:told]:
                    self._files.pop((index, seq, path), None)
            if told < len(paths):
                full[index] = True

    def _next(self, full: Dict[int, bool]) -> Tuple[int, int, List[str]]:
        """The first of what is kept that may be offered, in one run."""
        with self._lock:
            for key in [key for key in self._files if self._read[hash(key) % _PLACES]]:
                del self._files[key]
            index, seq, paths = 0, 0, []  # type: int, int, List[str]
            for key in self._files:
                if key[0] in full:
                    continue
                if paths and (key[:2] != (index, seq) or len(paths) >= _MOST):
                    break
                index, seq = key[:2]
                paths.append(key[2])
            return index, seq, paths


def _run(reference: "weakref.ref[Backlog]", stop: threading.Event) -> None:
    pause = _FIRST_PAUSE
    while not stop.wait(pause):
        backlog = reference()
        if backlog is None:
            return
        before = len(backlog)
        try:
            backlog.offer()
        except Exception as e:
            log.info("files are not announced yet: %s", e)
        with backlog._lock:
            left = len(backlog)
            if not left:
                backlog._running = False
                return
        pause = _FIRST_PAUSE if left < before else min(2 * pause, _LONGEST_PAUSE)
        del backlog
