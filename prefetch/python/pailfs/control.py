"""Calls the daemon behind a mount, through one ioctl on a directory of the mount.

    with Client("/mnt/data") as client:
        print(client.call("status")["uptime_seconds"])

A call occupies its thread while it waits, and releases the interpreter meanwhile. No
other thread is used, so a client costs one descriptor and works after a fork.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
import weakref
from types import TracebackType
from typing import Any, Dict, List, Optional, Type

from pailfs import frames
from pailfs.errors import ControlError, DaemonGoneError, NotPailfsError, ProtocolError

__all__ = ["Client", "ControlError", "DaemonGoneError", "NotPailfsError", "ProtocolError"]

_GONE = (errno.ENOTCONN, errno.ECONNABORTED)
_FOREIGN = (errno.ENOTTY, errno.ENOSYS, errno.EOPNOTSUPP)

# How many milliseconds a daemon may have its client wait.
_LONGEST_PAUSE = 1000


class Client:
    """Calls the daemon of the mount that `path`, any directory in it, belongs to.

    It may be used by many threads, and by forked children of the process that made
    it. The directory is opened with the first call, and again after a failure: a mount
    that came back is found. While it is open the mount is in use, so it cannot be
    unmounted before `close`.
    """

    def __init__(self, path: "os.PathLike[str] | str") -> None:
        self.path = os.fspath(path)
        self._lock = threading.Lock()
        self._directory: Optional[_Directory] = None
        self._closed = False
        _clients.add(self)

    def call(self, method: str, params: Optional[Any] = None, *, timeout: Optional[float] = None) -> Any:
        """Calls a method and returns its result.

        It waits as long as the method takes; after `timeout` seconds the call is
        cancelled and `TimeoutError` raised, at most a second late. Failures that the
        daemon told are `ControlError`, a daemon that ended `DaemonGoneError`, another
        kind of mount `NotPailfsError`, and a path that cannot be opened an `OSError`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        request = frames.Frame(frames.CALL, frames.encode_request(method, params))
        directory = self._acquire()
        try:
            return frames.read_answer(_converse(directory, request, deadline))
        except (DaemonGoneError, NotPailfsError, OSError):
            # A mount may come, or come back, at this path.
            self._forget(directory)
            raise
        finally:
            directory.release()

    def hello(self) -> Dict[str, Any]:
        """What the daemon says of itself: server, protocol, version, methods."""
        hello = self.call("hello")
        if not isinstance(hello, dict) or hello.get("server") != "pailfs":
            raise NotPailfsError(f"{self.path}: the daemon of this mount is not pailfs")
        return hello

    def close(self) -> None:
        """Closes the directory, when the calls that use it are done. May be repeated."""
        with self._lock:
            self._closed = True
            directory, self._directory = self._directory, None
        if directory is not None:
            directory.release()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    def _acquire(self) -> "_Directory":
        with self._lock:
            if self._closed:
                raise ValueError(f"the control client of {self.path} is closed")
            if self._directory is None:
                self._directory = _Directory(self.path)
            self._directory.hold()
            return self._directory

    def _forget(self, directory: "_Directory") -> None:
        """Opens the path anew with the next call."""
        with self._lock:
            if self._directory is not directory:
                return
            self._directory = None
        directory.release()

    def _after_fork(self) -> None:
        # Another thread of the parent may have held the lock, or have been in a
        # call; it does not exist here.
        self._lock = threading.Lock()
        if self._directory is not None:
            self._directory.after_fork()


class _Directory:
    """An open directory, closed when its last user lets it go."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            # O_NONBLOCK keeps the open of anything but a directory from waiting.
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as e:
            if e.errno in _GONE:
                raise DaemonGoneError(_gone_message(path, e)) from None
            raise
        self._users = 1
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, os.close, self._fd)

    def hold(self) -> None:
        with self._lock:
            self._users += 1

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users > 0:
                return
        self._finalizer()

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._users = 1

    def exchange(self, request: frames.Frame) -> frames.Frame:
        """One ioctl."""
        buffer = bytearray(frames.BUFFER_SIZE)
        frames.pack(request, buffer)
        while True:
            try:
                size = fcntl.ioctl(self._fd, frames.COMMAND, buffer, True)
                break
            except InterruptedError:
                continue  # The daemon has not seen the request.
            except OSError as e:
                if e.errno in _GONE:
                    raise DaemonGoneError(_gone_message(self.path, e)) from None
                if e.errno in _FOREIGN:
                    raise NotPailfsError(
                        f"{self.path} is not in a pailfs mount ({os.strerror(e.errno or 0)})") from None
                raise OSError(e.errno, os.strerror(e.errno or 0), self.path) from None
        return frames.unpack(buffer, size)


def _gone_message(path: str, e: OSError) -> str:
    return f"the daemon that served {path} has ended ({os.strerror(e.errno or 0)}): unmount it and mount it again"


def _converse(directory: _Directory, request: frames.Frame, deadline: Optional[float]) -> bytes:
    """Sends the request and collects its answer, asking again as long as it takes."""
    pieces: List[bytes] = []
    received = 0
    cursor = frames.NO_CURSOR
    try:
        while True:
            answer = directory.exchange(request)
            cursor = answer.cursor
            if answer.kind == frames.LAST and answer.offset == 0:
                # It takes the place of what came: the call was given up meanwhile, and this says why.
                pieces, received = [], 0
            if answer.kind != frames.WAIT and answer.offset != received:
                raise ProtocolError(f"the answer goes on at byte {answer.offset}, asked for {received}")
            pieces.append(answer.payload)
            received += len(answer.payload)
            if answer.kind == frames.LAST:
                return b"".join(pieces)
            if answer.kind == frames.MORE and not answer.payload:
                raise ProtocolError("a piece of the answer is empty")
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"the daemon of {directory.path} did not finish the call in time")
            if answer.kind == frames.WAIT and answer.offset:
                # So many wait in the daemon that this call cannot.
                time.sleep(min(answer.offset, _LONGEST_PAUSE) / 1000)
            request = frames.Frame(frames.NEXT, offset=received, cursor=cursor)
    except DaemonGoneError:
        raise
    except BaseException:
        if cursor != frames.NO_CURSOR:
            _drop(directory, cursor)
        raise


def _drop(directory: _Directory, cursor: bytes) -> None:
    """Cancels a call. If that fails the daemon gives it up by itself."""
    try:
        directory.exchange(frames.Frame(frames.DROP, cursor=cursor))
    except (OSError, ControlError, DaemonGoneError, NotPailfsError, ProtocolError):
        pass


_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for client in list(_clients):
        client._after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
