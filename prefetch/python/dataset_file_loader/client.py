"""The client that training programs use."""

from __future__ import annotations

import atexit
import logging
import operator
import os
import secrets
import threading
import time
import weakref
from types import TracebackType
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar, Union

from dataset_file_loader.backlog import Backlog
from dataset_file_loader.buffer import Buffer
from dataset_file_loader.errors import DatasetFileLoaderQuotaError, DatasetFileLoaderUnavailableError
from dataset_file_loader.link import Link, Unavailable
from dataset_file_loader.model import DatasetFile
from dataset_file_loader.paths import MountPaths
from dataset_file_loader.record import Record
from pailfs.errors import ControlError
from pailfs.session import Preloaded, Session, SessionConfig

__all__ = ["DatasetFileLoaderClient"]

_T = TypeVar("_T")

log = logging.getLogger("dataset_file_loader")

# Names the mount where a program's own cpfs_mount_path cannot be changed.
_MOUNT_VARIABLE = "PAILFS_LOADER_MOUNT"

# The number of this node in a job of several, as torchrun sets it: local ranks are
# unique on a node only, so every node has a directory of its own.
_NODE_VARIABLE = "GROUP_RANK"

# The processes that descend from this one by fork share sessions.
_INSTANCE = secrets.token_hex(8)

_MAX_BUFFER = 1_000_000


class DatasetFileLoaderClient:
    """Tells the daemon of a mount which files come next, are read, and were read.

    `worker_id` is the local rank, unique on the node; without it LOCAL_RANK is taken.
    `cpfs_mount_path` (or `mount_path`) is any directory of the mount, to which paths
    are relative. `persistence_file_path`, relative to it too, is where the state of the
    task is kept, for this node's daemon and, where the mount can be written, for a node
    that takes its place; its last element is the task's name. `preload_request_buffer_size` is
    how many files may be announced and not yet read, for each sampler index.

    No call ever stops the training: where the daemon cannot be told, a warning is
    logged once, `counters()["unsent"]` counts, and the call returns as if all were
    well. With `strict` it raises `DatasetFileLoaderUnavailableError` instead. Arguments
    that can only be mistakes, such as paths outside the mount, are always a ValueError
    or TypeError.

    Calls do not wait for data. They may be made by many threads and in forked
    processes, so by DataLoader workers; a pickled client works in spawned ones. A
    client keeps a directory of the mount open until `close`. Left by `with`, it lets go
    of what it holds; after an exception it keeps it for the next run, as does a process
    that ends without `close`.
    """

    def __init__(
        self,
        worker_id: Optional[int] = None,
        cpfs_mount_path: "Union[str, os.PathLike[str], None]" = None,
        persistence_file_path: "Union[str, os.PathLike[str]]" = ".dataset_file_persistence/default/",
        preload_request_buffer_size: int = 20,
        *,
        mount_path: "Union[str, os.PathLike[str], None]" = None,
        strict: bool = False,
        lease_seconds: Optional[int] = None,
        drop_on_release: bool = False,
        **unknown: Any,
    ) -> None:
        if unknown:
            log.warning("DatasetFileLoaderClient ignores the arguments %s, which it does not know",
                        ", ".join(sorted(unknown)))
        named = cpfs_mount_path if cpfs_mount_path is not None else mount_path
        if named is None:
            raise TypeError("DatasetFileLoaderClient needs cpfs_mount_path, a directory of the mount")
        if worker_id is None:
            worker_id = int(os.environ.get("LOCAL_RANK", "0"))
        mount = os.environ.get(_MOUNT_VARIABLE) or os.fspath(named)
        paths = MountPaths(mount, [os.fspath(named)])
        persistence = paths.relative(persistence_file_path)
        task = persistence.rsplit("/", 1)[-1]
        node = os.environ.get(_NODE_VARIABLE, "")
        if node.isdigit():
            persistence += f"/node-{int(node)}"
        try:
            persistence.encode()
        except UnicodeEncodeError:
            raise ValueError(f"persistence_file_path {persistence!r} is not UTF-8: choose another") from None
        self._setup(paths, strict, SessionConfig(
            task=task,
            worker=_whole(worker_id, "worker_id", 0),
            instance=_INSTANCE,
            buffer=_whole(preload_request_buffer_size, "preload_request_buffer_size", 1, _MAX_BUFFER),
            persistence=persistence,
            lease_seconds=None if lease_seconds is None else _whole(lease_seconds, "lease_seconds", 1),
            drop_on_release=bool(drop_on_release),
        ))
        self._owner = os.getpid()
        # Opening the session early says early what is wrong.
        self._send(lambda session: None, None, files=0)

    def _setup(self, paths: MountPaths, strict: bool, config: SessionConfig) -> None:
        self.strict = strict
        self._paths = paths
        self._config = config
        self._owner = 0
        self._link = Link(paths.mount, config)
        self._link.renewed = self._announce_again
        self._buffer = Buffer(self._tell_announced)
        self._backlog = Backlog(self._offer_again)
        self._record: Optional[Record] = Record()
        self._lock = threading.Lock()
        self._counters = dict.fromkeys(
            ("preloaded", "over", "dropped", "active", "released", "not_held", "unsent"), 0)
        _clients.add(self)

    # The calls of PAI's client.

    def get_preload_dataset_files_quota(self, sampler_index: int = 0) -> int:
        """How many files of this sampler index may be announced now; 0 means later.

        Without a daemon it is the buffer's size.
        """
        index = _whole(sampler_index, "sampler_index", 0)
        self._backlog.offer()
        if self._backlog.waits(index):
            # What was announced before comes first.
            self._buffer.grant(index, 0)
            return 0
        quota = self._send(lambda session: session.quota(index), self._config.buffer, files=0)
        if not self.strict:
            self._buffer.grant(index, quota)
        return quota

    def preload_dataset_file(self, dataset_file: DatasetFile) -> bool:
        """Announces a file or folder that will be read.

        Within the quota that was asked for last it does not wait for the daemon, unless
        the client is `strict`: the daemon learns of it a moment later, and before
        anything else that this client asks in this process or in one forked from it.

        False means that it went beyond the quota, so wait with the next: it is
        remembered up to four times the buffer and dropped beyond. What the daemon has no
        room for in this user's budget of names is never dropped: the client announces
        it later.
        """
        (index, seq), paths = self._batch([dataset_file])[0]
        if self._kept_behind(index, seq, paths):
            return False
        if self._buffer.put(index, seq, paths[0]):
            return True
        result = self._send(lambda session: session.preload(index, paths, seq), None, files=1)
        if result is None:
            return True
        self._note_preloaded(index, seq, paths, result)
        if self.strict and (result.over or result.dropped > result.no_room):
            raise _over_quota(index, result, result.accepted)
        return result.over == 0 and result.dropped == 0

    def active_dataset_file(self, dataset_file: DatasetFile) -> None:
        """Says that the file is being read now. One that was not announced is fetched first."""
        self.active_many([dataset_file])

    def release_dataset_file(self, dataset_file: DatasetFile) -> bool:
        """Says that the file was read, so that its space may be used; True if it was held."""
        return self.release_many([dataset_file]) == 1

    # What PAI's client does not have.

    def preload_many(self, dataset_files: Iterable[DatasetFile]) -> int:
        """Announces many files in a few calls, and returns how many of them need not be again.

        The files are taken in their order, up to four times the buffer beyond the quota.
        Those of them for which there is no room in this user's budget of names are kept,
        and announced when there is. Without a daemon that is all of them.
        """
        taken = 0
        for (index, seq), paths in self._batch(dataset_files):
            if self._kept_behind(index, seq, paths):
                taken += len(paths)
                continue
            result = self._send(lambda session: session.preload(index, paths, seq), None, files=len(paths))
            if result is None:
                taken += len(paths)
                continue
            kept = self._note_preloaded(index, seq, paths, result)
            taken += result.accepted + kept
            if self.strict and (result.over or result.dropped > result.no_room):
                raise _over_quota(index, result, taken)
            if result.dropped > kept:
                break
        return taken

    def active_many(self, dataset_files: Iterable[DatasetFile]) -> None:
        """Says of many files that they are being read."""
        for (index, seq), paths in self._batch(dataset_files):
            self._backlog.remove(index, seq, paths)
            if self._send(lambda session: session.active(index, paths, seq), None, files=len(paths)) is None:
                continue
            self._note(index, seq, paths)
            self._count(active=len(paths))

    def release_many(self, dataset_files: Iterable[DatasetFile]) -> int:
        """Lets many files go, and returns how many of them were held."""
        total = 0
        for (index, seq), paths in self._batch(dataset_files):
            # What is released here need not be announced to a new daemon; what is in the
            # buffer is written down when it was told.
            self._buffer.flush()
            self._backlog.remove(index, seq, paths)
            record = self._record
            if record is not None:
                record.remove(index, seq, paths)
            released, unknown = self._send(lambda session: session.release(index, paths, seq), (0, 0), files=len(paths))
            self._count(released=released, not_held=unknown)
            total += released
        self._backlog.offer()
        return total

    def wait_ready(self, dataset_files: Union[DatasetFile, Iterable[DatasetFile]],
                   timeout: Optional[float] = None) -> bool:
        """Waits until the files can be read without waiting, at most `timeout` seconds.

        False means that they cannot: the time was too short, a file failed (`status`
        says why), there is no daemon, or, without `timeout`, no room yet to announce them.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        ready = True
        for (index, seq), paths in self._batch(_several(dataset_files)):
            if not self._await_room(index, seq, paths, deadline):
                return False
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            answer = self._send(lambda session: session.wait(index, paths, left, seq), None, files=0)
            if answer is None:
                return False
            done, files = answer
            ready = ready and done and all(f.get("state") != "failed" for f in files)
        return ready

    def status(self, dataset_file: Optional[DatasetFile] = None) -> Dict[str, Any]:
        """What the daemon knows of a file, or of this task and worker as a whole.

        A file has `state` (unknown, requested, fetching, ready, active, streamed or
        failed; waiting, if this client keeps it until there is room), `bytes`, and `error` where it failed. Without a daemon `state` is
        unavailable, and `error` says why.
        """
        def ask(session: Session) -> Dict[str, Any]:
            if dataset_file is None:
                return session.status()
            (index, seq), paths = self._batch([dataset_file])[0]
            if self._backlog.has(index, seq, paths):
                return {"path": paths[0], "state": "waiting"}
            return session.files(index, paths, seq)[0]

        answer = self._send(ask, None, files=0)
        return answer if answer is not None else {"state": "unavailable", "error": self._link.reason or ""}

    @property
    def available(self) -> bool:
        """Whether the daemon was reached by the last call that tried."""
        return self._link.opened is not None

    @property
    def persistence(self) -> Mapping[str, str]:
        """Where the state is kept: kind is mount, node or none, reason says why not mount."""
        opened = self._link.opened
        if opened is None:
            return {"kind": "none", "reason": self._link.reason or "no session is open"}
        return opened.persistence

    def counters(self) -> Dict[str, int]:
        """What this process announced: files preloaded (accepted), of these over the
        quota, dropped, active, released, not_held when released, unsent for want of a
        daemon; waiting for room now; and how often a session was reopened and the daemon not reached."""
        self._buffer.flush()
        with self._lock:
            return {**self._counters, "waiting": len(self._backlog), "reopened": self._link.reopened, "outages": self._link.outages}

    def close(self, keep: bool = False) -> None:
        """Ends the session: what is held is let go, or kept for the next run.

        In a forked or spawned process it leaves the session to the process that made
        the client.
        """
        self._buffer.stop()
        self._buffer.flush()
        if os.getpid() == self._owner:
            self._backlog.stop()
        self._link.close(end_session=os.getpid() == self._owner, keep=keep)

    def __enter__(self) -> "DatasetFileLoaderClient":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close(keep=kind is not None)

    def __repr__(self) -> str:
        return (f"{type(self).__name__}(worker_id={self._config.worker}, cpfs_mount_path={self._paths.mount!r}, "
                f"persistence_file_path={self._config.persistence!r})")

    def __getstate__(self) -> Dict[str, Any]:
        self._share()
        # A process that unpickles it does not see what is in the buffer, nor does this one
        # see what that lets go.
        self._buffer.stop()
        self._buffer.flush()
        self._backlog.stop()
        return {"paths": self._paths, "strict": self.strict, "config": self._config}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self._setup(**state)
        self._share()
        self._buffer.stop()
        self._backlog.stop()

    def _send(self, operation: Callable[[Session], _T], otherwise: _T, *, files: int) -> _T:
        """The operation's result, or `otherwise` if the daemon cannot be told."""
        self._buffer.flush()
        return self._ask(operation, otherwise, files=files)

    def _ask(self, operation: Callable[[Session], _T], otherwise: _T, *, files: int) -> _T:
        """The same past the buffer."""
        try:
            return self._link.run(operation)
        except Unavailable as e:
            self._count(unsent=files)
            if self.strict:
                raise DatasetFileLoaderUnavailableError(str(e)) from e
            return otherwise

    def _batch(self, dataset_files: Iterable[DatasetFile]) -> List[Tuple[Tuple[int, int], List[str]]]:
        """The relative paths, in runs of one sampler index and seq."""
        relative = self._paths.relative
        runs: List[Tuple[Tuple[int, int], List[str]]] = []
        index: Any = None
        seq: Any = None
        for f in dataset_files:
            # Most have the very numbers of the one before.
            if f.sampler_index is not index or f.seq is not seq or not runs:
                index, seq = f.sampler_index, f.seq
                key = (_whole(index, "sampler_index", 0), _whole(seq, "seq", 0))
                if not runs or key != runs[-1][0]:
                    runs.append((key, []))
            runs[-1][1].append(relative(f.dataset_file_path))
        return runs

    def _tell_announced(self, index: int, seq: int, paths: List[str]) -> None:
        """Announces what was in the buffer."""
        if self._backlog.waits(index) and self._backlog.add(index, seq, paths):
            return
        result = self._ask(lambda session: session.preload(index, paths, seq), None, files=len(paths))
        if result is not None:
            self._note_preloaded(index, seq, paths, result)

    def _offer_again(self, index: int, seq: int, paths: List[str]) -> int:
        """Announces what found no room before, and returns how much of it need not be again."""
        try:
            result = self._link.run(lambda session: session.preload(index, paths, seq))
        except Unavailable as e:
            if isinstance(e.__cause__, ControlError) and e.__cause__.code == "bad-request":
                self._count(unsent=1)
                return 1  # the first will never be taken
            return 0  # when there is a daemon again
        self._note(index, seq, paths[:result.accepted])
        self._count(preloaded=result.accepted, over=result.over)
        return result.accepted

    def _kept_behind(self, index: int, seq: int, paths: Sequence[str]) -> bool:
        """Keeps announcements behind others of their sampler index, if any are kept."""
        if not self._backlog.waits(index):
            return False
        self._backlog.offer()
        return self._backlog.waits(index) and self._backlog.add(index, seq, paths)

    def _await_room(self, index: int, seq: int, paths: Sequence[str], deadline: Optional[float]) -> bool:
        """Whether nothing of the paths waits for room any more, by the deadline."""
        self._backlog.offer()
        while self._backlog.has(index, seq, paths):
            if deadline is None or time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
            self._backlog.offer()
        return True

    def _note_preloaded(self, index: int, seq: int, paths: Sequence[str], result: Preloaded) -> int:
        """Notes what became of announcements, and returns how many are kept for later."""
        self._note(index, seq, paths[:result.accepted])
        kept = 0
        if result.no_room and self._backlog.add(index, seq, paths[result.accepted:]):
            kept = result.dropped
        self._count(preloaded=result.accepted, over=result.over, dropped=result.dropped - kept)
        return kept

    def _note(self, index: int, seq: int, paths: Sequence[str]) -> None:
        record = self._record
        if record is not None:
            record.add(index, seq, paths)

    def _count(self, **more: int) -> None:
        with self._lock:
            for name, n in more.items():
                self._counters[name] += n

    def _announce_again(self, session: Session) -> None:
        """Tells a daemon that began anew what this process holds."""
        record = self._record
        if record is None:
            return
        for (index, seq), paths in record.files():
            session.preload(index, paths, seq)

    def _share(self) -> None:
        """Another process may release what this one announced, so the record is void.

        A new daemon then goes by what the old one wrote down.
        """
        self._record = None

    def _after_fork(self, child: bool) -> None:
        self._share()
        if child:
            self._lock = threading.Lock()
            self._backlog.after_fork()
            self._link.after_fork()
            self._counters = dict.fromkeys(self._counters, 0)


def _whole(value: Any, name: str, least: int, most: Optional[int] = None) -> int:
    if type(value) is int and value >= least and most is None:
        return value
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, it must be a whole number") from None
    if number < least or (most is not None and number > most):
        limit = f"at least {least}" if most is None else f"between {least} and {most}"
        raise ValueError(f"{name} is {number}, it must be {limit}")
    return number


def _over_quota(index: int, result: Preloaded, accepted: int) -> DatasetFileLoaderQuotaError:
    return DatasetFileLoaderQuotaError(
        f"{result.over + result.dropped} files more than the quota of sampler index {index} were announced, "
        f"{result.dropped} of them were dropped: ask get_preload_dataset_files_quota first", accepted)


def _several(files: Union[DatasetFile, Iterable[DatasetFile]]) -> Iterable[DatasetFile]:
    return [files] if isinstance(files, DatasetFile) else files


_clients: "weakref.WeakSet[DatasetFileLoaderClient]" = weakref.WeakSet()


def _after_fork(child: bool) -> None:
    for client in list(_clients):
        client._after_fork(child)


os.register_at_fork(after_in_child=lambda: _after_fork(True), after_in_parent=lambda: _after_fork(False))


@atexit.register
def _flush_all() -> None:
    # What a short program announced is for those that read after it.
    for client in list(_clients):
        client._buffer.flush()
