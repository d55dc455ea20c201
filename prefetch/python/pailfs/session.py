"""Tells the daemon which files a job is going to read, reads, and has read.

A `Session` is the loader's methods of PROTOCOL.md, one Python call each; batches that
do not fit into one request become several. It neither hides failures nor repeats
calls: that is what `dataset_file_loader` and `pailfs.torch` add.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Protocol, Sequence, Tuple

from pailfs import frames
from pailfs.errors import ControlError, ProtocolError

__all__ = ["Caller", "Opened", "Preloaded", "Session", "SessionConfig", "batches"]


class Caller(Protocol):
    """What a session needs of `pailfs.control.Client`."""

    def call(self, method: str, params: Optional[Any] = None, *, timeout: Optional[float] = None) -> Any:
        """Calls a method and returns its result."""


@dataclass(frozen=True)
class SessionConfig:
    """Who the session belongs to.

    The daemon knows it by `task` and `worker`. The processes of one `instance` share
    it; another instance takes it over, with the files that are held.
    """

    task: str
    worker: int
    instance: str
    buffer: int
    persistence: Optional[str] = None
    lease_seconds: Optional[int] = None
    drop_on_release: bool = False

    def parameters(self) -> Dict[str, Any]:
        """The parameters of loader.open."""
        params: Dict[str, Any] = {"task": self.task, "worker": self.worker}
        if self.persistence is not None:
            params["persistence"] = self.persistence
        params["buffer"] = self.buffer
        params["instance"] = self.instance
        if self.lease_seconds is not None:
            params["lease_seconds"] = self.lease_seconds
        if self.drop_on_release:
            params["drop_on_release"] = True
        return params


@dataclass(frozen=True)
class Opened:
    """What the daemon said when the session was opened.

    `adopted` files are held from before, `quota` more are welcome. `persistence` is
    where the state is kept: kind is mount, node or none, and reason says why not on
    the mount.
    """

    session: str
    adopted: int
    quota: int
    budget_bytes: int
    lease_seconds: int
    persistence: Mapping[str, str]


@dataclass(frozen=True)
class Preloaded:
    """What became of announced files.

    The first `accepted` of them are going to be fetched; `over` of these are more than
    the quota; `dropped` are not remembered, `no_room` of these because the budget of
    names of this user has no room, which may be otherwise soon; `held` were announced
    before. `quota` is how many are welcome now.
    """

    accepted: int
    over: int
    dropped: int
    quota: int
    held: int
    no_room: int = 0


class Session:
    """An open session. It may be used by many threads and by forked processes."""

    def __init__(self, caller: Caller, opened: Opened) -> None:
        self._caller = caller
        self.opened = opened

    @classmethod
    def open(cls, caller: Caller, config: SessionConfig) -> "Session":
        """Opens the session, or joins it, or takes it over."""
        result = _object(caller.call("loader.open", config.parameters()))
        persistence = result.get("persistence") or {}
        return cls(caller, Opened(
            session=str(result["session"]) if "session" in result else _missing("session"),
            adopted=_integer(result, "adopted"),
            quota=_integer(result, "quota"),
            budget_bytes=_integer(result, "budget_bytes"),
            lease_seconds=_integer(result, "lease_seconds"),
            persistence={str(k): str(v) for k, v in _object(persistence).items()},
        ))

    def quota(self, index: int) -> int:
        """How many files may be announced now for this sampler index. Never waits."""
        try:
            return _integer(self._call("loader.quota", {"index": index}), "quota")
        except ControlError as e:
            if e.code != _OVER_QUOTA:
                raise
            return 0

    def preload(self, index: int, paths: Sequence[str], seq: int = 0) -> Preloaded:
        """Announces files that will be read, in their order. Never waits."""
        accepted = over = dropped = held = quota = no_room = 0
        for base, names in batches(paths):
            if dropped:
                # What follows a file that found no room would only be dropped too.
                dropped += len(names)
                no_room += len(names) if no_room else 0
                continue
            try:
                r = self._call("loader.preload", {"index": index, "base": base, "paths": names, **_seq(seq)})
            except ControlError as e:
                if e.code != _OVER_QUOTA:
                    raise
                # Older daemons say so of names; others if this user makes too many calls.
                dropped, no_room, quota = len(names), len(names), 0
                continue
            accepted += _integer(r, "accepted")
            over += _integer(r, "over")
            dropped += _integer(r, "dropped")
            held += _integer(r, "held")
            no_room += _integer(r, "no_room") if "no_room" in r else 0
            quota = _integer(r, "quota")
        return Preloaded(accepted, over, dropped, quota, held, no_room)

    def active(self, index: int, paths: Sequence[str], seq: int = 0) -> int:
        """Says that the files are being read; returns how many were not announced."""
        return sum(_integer(self._call("loader.active", {"index": index, "base": base, "paths": names, **_seq(seq)}),
                            "implicit") for base, names in batches(paths))

    def release(self, index: int, paths: Sequence[str], seq: int = 0) -> Tuple[int, int]:
        """Lets the files go; returns how many were held, and how many were not."""
        released = unknown = 0
        for base, names in batches(paths):
            r = self._insist("loader.release", {"index": index, "base": base, "paths": names, **_seq(seq)})
            released += _integer(r, "released")
            unknown += _integer(r, "unknown")
        return released, unknown

    def wait(self, index: int, paths: Sequence[str], timeout: Optional[float] = None,
             seq: int = 0) -> Tuple[bool, List[Dict[str, Any]]]:
        """Waits until each file is ready, streamed or failed, at most `timeout` seconds.

        Returns whether that was reached, and what is known of each file.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        done, files = True, []
        for base, names in batches(paths):
            params = {"index": index, "base": base, "paths": names, **_seq(seq)}
            while True:
                left = _LONGEST_WAIT if deadline is None else deadline - time.monotonic()
                params["timeout_ms"] = max(0, min(int(left * 1000), int(_LONGEST_WAIT * 1000)))
                r = self._call("loader.wait", params)
                if r.get("done") or (deadline is not None and time.monotonic() >= deadline):
                    break
            done = done and bool(r.get("done"))
            files += _files(r)
        return done, files

    def files(self, index: int, paths: Sequence[str], seq: int = 0) -> List[Dict[str, Any]]:
        """What is known of each file."""
        files: List[Dict[str, Any]] = []
        for base, names in batches(paths):
            files += _files(self._call("loader.status", {"index": index, "base": base, "paths": names, **_seq(seq)}))
        return files

    def status(self) -> Dict[str, Any]:
        """What is known of the session."""
        return _object(self._call("loader.status", {}).get("session"))

    def renew(self) -> None:
        """Says that the job is alive, as every other call does."""
        self._call("loader.renew", {})

    def close(self, keep: bool = False) -> int:
        """Ends the session and lets its files go, or keeps them for a successor."""
        return _integer(self._call("loader.close", {"keep": keep}), "released")

    def _insist(self, method: str, params: Dict[str, Any]) -> Dict[str, Any]:
        """A call of which much depends, again for a while if this user makes too many."""
        for pause in _PAUSES:
            try:
                return self._call(method, params)
            except ControlError as e:
                if e.code != _OVER_QUOTA:
                    raise
            time.sleep(pause)
        return self._call(method, params)

    def _call(self, method: str, params: Dict[str, Any]) -> Dict[str, Any]:
        return _object(self._caller.call(method, {"session": self.opened.session, **params}))


_OVER_QUOTA = "over-quota"

# Seconds before a call that was one too many is made again.
_PAUSES = (0.01, 0.05, 0.2, 0.5)

# A wait without end is asked for again now and then.
_LONGEST_WAIT = 60.0

# Room for what stands around the paths of a request: method, session, numbers.
_MAX_PATHS = frames.MAX_PAYLOAD - 1024

# Bytes of a character in JSON at most, as \u0000 has, and of what stands around a path.
_LONGEST_CHARACTER = 6
_AROUND = 3


def batches(paths: Sequence[str]) -> Iterator[Tuple[str, List[str]]]:
    """Splits paths into parts that fit into requests, each with its common folder.

    A path that is not UTF-8 gives `UnicodeEncodeError`, one longer than a request
    `ValueError`.
    """
    if not paths:
        return
    # min and max have the prefix in common that all have.
    base = _folder(os.path.commonprefix((min(paths), max(paths))))
    cut = len(base)
    names = [path[cut:] for path in paths] if cut else list(paths)
    if _LONGEST_CHARACTER * (cut + sum(map(len, names))) + _AROUND * len(names) <= _MAX_PATHS:
        yield base, names
        return
    start = 0
    while start < len(paths):
        end, base = _part(paths, start)
        if end == start:
            raise ValueError(f"the path {paths[start][:80]!r}... is too long for a request")
        yield base, [path[len(base):] for path in paths[start:end]]
        start = end


def _part(paths: Sequence[str], start: int) -> Tuple[int, str]:
    """Where the part that begins at `start` ends, and the folder of all its paths."""
    base = _folder(paths[start])
    size = len(frames.encode_json(base))
    for end in range(start, len(paths)):
        path = paths[end]
        common = base if path.startswith(base) else _folder(os.path.commonprefix((base, path)))
        if common != base:
            # The paths before this one become longer.
            size = len(frames.encode_json(common)) + sum(_size(p, common) for p in paths[start:end])
        size += _size(path, common)
        if size > _MAX_PATHS:
            return end, base
        base = common
    return len(paths), base


def _size(path: str, base: str) -> int:
    """Bytes of a path in a request, with the comma."""
    return len(frames.encode_json(path[len(base):])) + 1


def _folder(path: str) -> str:
    """What comes before the last component, with its slash."""
    return path[:path.rfind("/") + 1]


def _seq(seq: int) -> Dict[str, int]:
    return {"seq": seq} if seq else {}


def _object(value: Any) -> Dict[str, Any]:
    if not isinstance(value, dict):
        raise ProtocolError(f"the daemon answered {value!r} where an object was expected")
    return value


def _integer(result: Mapping[str, Any], name: str) -> int:
    value = result.get(name)
    if not isinstance(value, int):
        _missing(name)
    return value  # type: ignore[return-value]


def _missing(name: str) -> Any:
    raise ProtocolError(f"the daemon's answer has no {name}")


def _files(result: Mapping[str, Any]) -> List[Dict[str, Any]]:
    files = result.get("files")
    if not isinstance(files, list):
        raise ProtocolError("the daemon's answer has no files")
    return [_object(f) for f in files]
