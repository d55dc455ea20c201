"""Announces to the daemon what a PyTorch sampler is about to yield.

    sampler = PreloadingSampler(BatchSampler(RandomSampler(ds), 24, drop_last=True),
                                paths=ds.paths, mount="/mnt/data")
    loader = DataLoader(release_after(ds, sampler), batch_sampler=sampler, num_workers=2)

The sampler runs ahead of itself: it takes indices from the sampler it wraps, announces
their files, and yields them unchanged and in the same order. Nothing here imports
torch; whatever yields indices can be wrapped.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from types import TracebackType
from typing import (Any, Callable, Deque, Generic, Iterable, Iterator, List, Optional, Sequence, Tuple, Type,
                    TypeVar, Union, cast)

from dataset_file_loader import DatasetFile, DatasetFileLoaderClient, DatasetFileLoaderQuotaError

__all__ = ["PreloadingSampler", "ReleasingDataset", "release_after"]

#: The file of an index, or the files. A sequence has one element for each index.
Paths = Union[Sequence[Any], Callable[[Any], Any]]

_T = TypeVar("_T")

# How many files one step of the sampler announces at most, or those of two items if
# that is more: the lookahead grows step by step, and no step takes long.
_FILES_A_STEP = 64

# Where that many steps' files were announced ahead, a step waits until it has enough.
_ENOUGH = 4

# An item that was yielded this recently is surely not read.
_LEAST_BEHIND = 2

# Streams of one process, so that training and validation are told apart.
_streams = itertools.count()


class PreloadingSampler(Generic[_T]):
    """Wraps a sampler, or a batch sampler, whose items are indices or lists of them.

    `paths[i]` (or `paths(i)`) is the file, or the files, that the dataset reads for
    index i: relative to `mount`, or absolute below it. Up to `lookahead` files are
    announced ahead of what is yielded, fewer where the daemon's budget of bytes is
    smaller.

    With `release_after` the dataset lets go of what it read. Without it, what was
    yielded `behind` items ago is taken as read and let go: 16 batches, or 1024 single
    indices, unless said otherwise. More than the DataLoader has under way (num_workers
    × prefetch_factor batches) is right; when space is short it is made fewer by itself.
    What is let go too early costs speed, never correctness.

    `client`, if given, is used instead of one made from `mount`, `worker_id`, `task`
    and `strict`; it is then not closed with the sampler. An item is never held back: where
    the daemon cannot be told, or does not keep up, it is read on demand.

    It draws its items ahead of time. If the sampler shares a random generator with
    something else, the two interleave otherwise than without it.
    """

    def __init__(
        self,
        sampler: Iterable[_T],
        paths: Paths,
        mount: "Union[str, os.PathLike[str], None]" = None,
        *,
        lookahead: int = 4096,
        behind: Optional[int] = None,
        worker_id: Optional[int] = None,
        task: str = "default",
        sampler_index: Optional[int] = None,
        strict: bool = False,
        client: Optional[DatasetFileLoaderClient] = None,
    ) -> None:
        if lookahead < 1:
            raise ValueError(f"lookahead is {lookahead}, it must be at least 1")
        if behind is not None and behind < 0:
            raise ValueError(f"behind is {behind}, it must not be negative")
        if client is None:
            if mount is None:
                raise TypeError("PreloadingSampler needs mount, the directory where the bucket is mounted, or a client")
            client = DatasetFileLoaderClient(worker_id, mount, f".dataset_file_persistence/{task}", lookahead,
                                             strict=strict)
            self._own_client = True
        else:
            self._own_client = False
        self.client = client
        self.sampler = sampler
        self.lookahead = lookahead
        self.behind = behind
        #: Whether the readers let go of files themselves.
        self.readers_release = False
        self.sampler_index = next(_streams) if sampler_index is None else sampler_index
        self.files = _Files(paths, self.sampler_index)
        self._left_behind: List[DatasetFile] = []

    def __iter__(self) -> Iterator[_T]:
        # The pass before this one is over, or given up: nobody reads its files now.
        self._let_go(self._left_behind)
        self._left_behind = []
        return self._run()

    def __len__(self) -> int:
        return len(self.sampler)  # type: ignore[arg-type]

    def set_epoch(self, epoch: int) -> None:
        """Passes the epoch on to the sampler, or to that of the batch sampler."""
        for sampler in (self.sampler, getattr(self.sampler, "sampler", None)):
            set_epoch = getattr(sampler, "set_epoch", None)
            if set_epoch is not None:
                set_epoch(epoch)
                return

    def close(self) -> None:
        """Lets go of everything, and ends the session unless the client is the caller's."""
        self._let_go(self._left_behind)
        self._left_behind = []
        if self._own_client:
            self.client.close()

    def __enter__(self) -> "PreloadingSampler[_T]":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if kind is None:
            self.close()
        elif self._own_client:
            self.client.close(keep=True)

    def __getattr__(self, name: str) -> Any:
        # batch_size, drop_last and the like. The wrapped sampler's own state is ahead
        # of what was yielded, so whoever saves it must not find it here.
        if name.startswith("_") or name in ("sampler", "state_dict", "load_state_dict"):
            raise AttributeError(name)
        return getattr(self.sampler, name)

    def _run(self) -> Iterator[_T]:
        ahead = _Ahead(iter(self.sampler), self.files, self.client, self.sampler_index, self.lookahead)
        behind = _Behind(self.behind)
        pid = os.getpid()
        try:
            while True:
                self._let_go(behind.done(ahead))
                ahead.announce()
                if not ahead.items:
                    return
                item, files = ahead.take()
                if not self.readers_release:
                    behind.add(item, files)
                yield item
        finally:
            # A process that was forked meanwhile has a copy of this; the files are the
            # parent's.
            if os.getpid() == pid:
                self._left_behind += behind.files() + ahead.announced()

    def _let_go(self, files: List[DatasetFile]) -> None:
        if files:
            self.client.release_many(files)


def _is_batch(item: Any) -> bool:
    return isinstance(item, (list, tuple))


class _Behind:
    """The items that were yielded and whose files were not let go."""

    def __init__(self, most: Optional[int]) -> None:
        self._most = most
        self._items: Deque[List[DatasetFile]] = deque()
        self._count = 0

    def add(self, item: Any, files: List[DatasetFile]) -> None:
        """Notes that an item was yielded."""
        if self._most is None:
            self._most = 16 if _is_batch(item) else 1024
        self._items.append(files)
        self._count += len(files)

    def done(self, ahead: "_Ahead[Any]") -> List[DatasetFile]:
        """Takes out the files of the items that must have been read.

        Where the daemon has no room for more, fewer files are kept than are announced
        ahead: else those that were read would keep out those that come.
        """
        done: List[DatasetFile] = []
        while self._items and self._most is not None and (
                len(self._items) > self._most
                or (ahead.starved and len(self._items) > _LEAST_BEHIND and self._count > ahead.told)):
            files = self._items.popleft()
            self._count -= len(files)
            done += files
        return done

    def files(self) -> List[DatasetFile]:
        """The files that are left."""
        return [f for files in self._items for f in files]


class _Ahead(Generic[_T]):
    """The items between the wrapped sampler and the one who asks for them."""

    def __init__(self, items: Iterator[_T], files: "_Files", client: DatasetFileLoaderClient, index: int,
                 lookahead: int) -> None:
        #: What was drawn and not taken, with its files.
        self.items: Deque[Tuple[_T, List[DatasetFile]]] = deque()
        self._source = items
        self._files = files
        self._client = client
        self._index = index
        self._lookahead = lookahead
        #: Of all files in items, the first `told` were announced; _pending are the others.
        self.told = 0
        #: Whether the daemon had no room for more.
        self.starved = False
        self._pending: Deque[DatasetFile] = deque()
        self._quota = 0
        self._step = _FILES_A_STEP

    def announce(self) -> None:
        """Draws items, and announces as many of their files as a step may and the daemon takes."""
        self._draw()
        if not self._pending:
            return
        if len(self._pending) < self._step and self.told >= _ENOUGH * self._step:
            return  # A call costs as much as many files: one for several items will do.
        if self._quota <= 0:
            self._quota = self._client.get_preload_dataset_files_quota(self._index)
        n = min(self._quota, len(self._pending), self._step)
        self.starved = n <= 0
        if self.starved:
            return
        try:
            taken = self._client.preload_many(list(itertools.islice(self._pending, n)))
        except DatasetFileLoaderQuotaError as e:
            # Somebody else took the room meanwhile.
            taken = e.accepted
        for _ in range(taken):
            self._pending.popleft()
        self.told += taken
        self._quota = self._quota - taken if taken == n else 0

    def take(self) -> Tuple[_T, List[DatasetFile]]:
        """The next item. Its files that were not announced will be read on demand."""
        item, files = self.items.popleft()
        late = max(0, len(files) - self.told)
        for _ in range(late):
            self._pending.popleft()
        self.told -= len(files) - late
        return item, files

    def announced(self) -> List[DatasetFile]:
        """The files that were announced for items that nobody took."""
        files = (f for _, files in self.items for f in files)
        return list(itertools.islice(files, self.told))

    def _draw(self) -> None:
        # One item is always drawn, however many files it has.
        while not self.items or (len(self._pending) < self._step
                                 and self.told + len(self._pending) < self._lookahead):
            try:
                item = next(self._source)
            except StopIteration:
                return
            files = self._files.of(item)
            self.items.append((item, files))
            self._pending.extend(files)
            self._step = max(self._step, 2 * len(files))


class _Files:
    """The files of an index or of a list of indices."""

    def __init__(self, paths: Paths, index: int) -> None:
        self._paths = paths
        self._index = index

    def of(self, item: Any) -> List[DatasetFile]:
        """The files of what a sampler yielded."""
        if _is_batch(item):
            return [f for i in item for f in self.of_one(i)]
        return self.of_one(item)

    def of_one(self, index: Any) -> List[DatasetFile]:
        """The files of one index."""
        named = self._paths(index) if callable(self._paths) else self._paths[index]
        several = named if isinstance(named, (list, tuple)) else [named]
        return [DatasetFile(path, self._index) for path in several]


class ReleasingDataset:
    """A map-style dataset that lets its files go when they were read."""

    def __init__(self, dataset: Any, files: _Files, client: DatasetFileLoaderClient) -> None:
        self.dataset = dataset
        self._files = files
        self._client = client

    def __getitem__(self, index: Any) -> Any:
        try:
            return self.dataset[index]
        finally:
            self._client.release_many(self._files.of_one(index))

    def __getitems__(self, indices: List[Any]) -> List[Any]:
        # Newer DataLoaders fetch a batch so; the daemon is then called once for it.
        several = getattr(self.dataset, "__getitems__", None)
        try:
            if several is not None:
                items: List[Any] = several(indices)
                return items
            return [self.dataset[index] for index in indices]
        finally:
            self._client.release_many(self._files.of(indices))

    def __len__(self) -> int:
        return len(self.dataset)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)


def release_after(dataset: _T, sampler: "PreloadingSampler[Any]") -> _T:
    """The dataset, letting go of the files of each index as soon as it was read.

    That is exact whatever the number of workers, so the sampler stops doing it itself.
    It costs one call of the daemon for each index (with newer versions of PyTorch, for
    each batch), in the process that reads it.
    """
    sampler.readers_release = True
    # It has whatever the dataset has.
    return cast(_T, ReleasingDataset(dataset, sampler.files, sampler.client))
