"""Announcements on their way to the daemon."""

from __future__ import annotations

import logging
import mmap
import os
import threading
import time
import weakref
from collections import deque
from queue import SimpleQueue
from typing import Callable, Deque, Dict, List, Optional, Tuple

__all__ = ["Buffer"]

# Places in what the processes share: how many announcements were put, and how many of
# them the daemon was told of.
_PUT, _TOLD = 0, 1

# How long another process waits for what this one has not told, and how often it looks.
_PATIENCE = 1.0
_LOOK_EVERY = 0.0005

_Tell = Callable[[int, int, List[str]], None]

log = logging.getLogger("dataset_file_loader")

# So long a path fits into a request whatever its characters.
_LONGEST = 1024


class Buffer:
    """Takes announcements at once, and tells the daemon of them from a thread.

    It takes what a quota allows that was asked for before, so that the answer is known:
    the daemon will take it. `tell` is called with the sampler index, seq and the paths of
    each run, in order, never by two threads at a time; it must be a bound method, and
    does not keep its object alive.

    Whoever asks the daemon for anything else calls `flush` before, so that nothing
    overtakes an announcement. That holds for forked processes as well: they wait until
    the process that made the buffer has told of what it had taken. Only that process
    puts anything into it.
    """

    def __init__(self, tell: _Tell) -> None:
        self._tell = weakref.WeakMethod(tell)
        self._owner = os.getpid()
        self._counts = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("Q")
        self._queue: Deque[Tuple[int, int, str]] = deque()
        self._room: Dict[int, int] = {}
        # They may be taken again by a signal handler of the thread that has them.
        self._putting = threading.RLock()
        self._telling = threading.RLock()
        self._wake: "SimpleQueue[Optional[_Tell]]" = SimpleQueue()
        self._woken = False
        self._thread: Optional[threading.Thread] = None
        self._stopped = False
        self._orphaned = False

    def grant(self, index: int, quota: int) -> None:
        """Allows `quota` announcements of a sampler index, instead of what was left."""
        if not self._stopped and os.getpid() == self._owner:
            self._room[index] = quota

    def stop(self) -> None:
        """Takes no more."""
        self._stopped = True
        self._room = {}

    def put(self, index: int, seq: int, path: str) -> bool:
        """Takes an announcement; False means that it was not allowed and is the caller's to make."""
        if self._room.get(index, 0) <= 0 or os.getpid() != self._owner or not _is_easy(path):
            return False
        with self._putting:
            room = self._room.get(index, 0)
            if room <= 0 or not self._start():
                return False
            self._room[index] = room - 1
            self._queue.append((index, seq, path))
            self._counts[_PUT] += 1
            if not self._woken:
                self._woken = True
                self._wake.put(self._tell())
        return True

    def flush(self) -> None:
        """Returns when the daemon was told of all that was put before, or cannot be."""
        if self._counts[_TOLD] >= self._counts[_PUT]:
            return
        if os.getpid() != self._owner:
            self._await_owner()
            return
        with self._telling:
            while self._queue:
                self._tell_run()

    def _tell_run(self) -> None:
        index, seq, path = self._queue.popleft()
        paths = [path]
        while self._queue and self._queue[0][:2] == (index, seq):
            paths.append(self._queue.popleft()[2])
        interrupted = True
        try:
            tell = self._tell()
            if tell is not None:
                tell(index, seq, paths)
            interrupted = False
        except Exception:
            interrupted = False  # It would fail again, and hold up what comes after.
            raise
        finally:
            if interrupted:
                # To announce a file again changes nothing.
                self._queue.extendleft((index, seq, path) for path in reversed(paths))
            else:
                self._counts[_TOLD] += len(paths)

    def _await_owner(self) -> None:
        """Waits for the other process, not for long and not again if it has died."""
        put = self._counts[_PUT]
        deadline = time.monotonic() + _PATIENCE
        while self._counts[_TOLD] < put and not self._orphaned:
            if time.monotonic() >= deadline:
                self._orphaned = True
            time.sleep(_LOOK_EVERY)

    def _start(self) -> bool:
        if self._thread is None:
            thread = threading.Thread(target=_run, args=(weakref.ref(self), self._wake), daemon=True,
                                      name="dataset_file_loader")
            try:
                thread.start()
            except RuntimeError:
                return False  # The process may have no more, or is about to end.
            self._thread = thread
            weakref.finalize(self, self._wake.put, None)
        return True


def _run(reference: "weakref.ref[Buffer]", wake: "SimpleQueue[Optional[_Tell]]") -> None:
    while True:
        tell = wake.get()  # it keeps its object alive until all was told
        buffer = reference()
        if tell is None or buffer is None:
            return
        # What is put from here on wakes this thread again.
        buffer._woken = False
        try:
            buffer.flush()
        except Exception:
            log.exception("announcing files failed")
        del buffer, tell


def _is_easy(path: str) -> bool:
    """Whether the path can be sent together with others, which it cannot spoil."""
    if len(path) > _LONGEST:
        return False
    if path.isascii():
        return True
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
