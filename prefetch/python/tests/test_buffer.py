"""Announcements that the sampler does not wait for."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest

import dataset_file_loader.buffer as module
from conftest import eventually
from dataset_file_loader import DatasetFile, DatasetFileLoaderClient, DatasetFileLoaderUnavailableError
from dataset_file_loader.buffer import Buffer
from fake_daemon import FakeDaemon
from pailfs.errors import DaemonGoneError

Told = List[Tuple[int, int, List[str]]]


class Daemon:
    """Is told of announcements; before it takes them it does what it is asked to."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self.told: Told = []
        self.before = before

    def tell(self, index: int, seq: int, paths: List[str]) -> None:
        self.before()
        self.told.append((index, seq, paths))


@pytest.fixture
def no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in a buffer stays there until somebody flushes it."""
    monkeypatch.setattr(Buffer, "_start", lambda self: True)


def make(**keywords: Any) -> DatasetFileLoaderClient:
    return DatasetFileLoaderClient(0, "/mnt/data", **keywords)


def preload(client: DatasetFileLoaderClient, names: str, index: int = 0) -> List[bool]:
    return [client.preload_dataset_file(DatasetFile(name, index)) for name in names]


def test_within_the_quota_nobody_waits_for_the_daemon(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    client = make()
    assert client.get_preload_dataset_files_quota(0) == 20
    took: List[threading.Thread] = []
    goes_on = threading.Event()
    call = daemon.call

    def slowly(method: str, params: Any) -> Any:
        took.append(threading.current_thread())
        assert goes_on.wait(120)
        return call(method, params)

    monkeypatch.setattr(daemon, "call", slowly)
    assert preload(client, "abcdef") == [True] * 6
    goes_on.set()
    eventually(lambda: daemon.paths() == list("abcdef"))
    assert threading.main_thread() not in took
    assert len(took) < 6, "what comes while the daemon is told goes in one call"
    assert client.counters()["preloaded"] == 6


def test_what_the_quota_does_not_allow_is_answered_by_the_daemon(daemon: FakeDaemon, no_thread: None) -> None:
    client = make(preload_request_buffer_size=2)
    assert client.get_preload_dataset_files_quota(0) == 2
    assert preload(client, "abcd") == [True, True, False, False]
    assert daemon.paths() == list("abcd")
    assert preload(client, "e", index=1) == [True]
    assert daemon.paths() == list("abcde")


@pytest.mark.parametrize("call, want", [
    (lambda c: c.active_dataset_file(DatasetFile("a")), {"a": "active", "b": "ready"}),
    (lambda c: c.release_dataset_file(DatasetFile("a")), {"b": "ready"}),
    (lambda c: c.get_preload_dataset_files_quota(0), {"a": "ready", "b": "ready"}),
    (lambda c: c.preload_many([DatasetFile("c")]), {"a": "ready", "b": "ready", "c": "ready"}),
    (lambda c: c.wait_ready(DatasetFile("a")), {"a": "ready", "b": "ready"}),
    (lambda c: c.status(), {"a": "ready", "b": "ready"}),
    (lambda c: c.counters(), {"a": "ready", "b": "ready"}),
    (lambda c: c.close(keep=True), {"a": "ready", "b": "ready"}),
    (pickle.dumps, {"a": "ready", "b": "ready"}),
])
def test_nothing_overtakes_what_was_announced(daemon: FakeDaemon, no_thread: None,
                                              call: Callable[[DatasetFileLoaderClient], Any],
                                              want: Dict[str, str]) -> None:
    client = make()
    client.get_preload_dataset_files_quota(0)
    preload(client, "ab")
    assert daemon.paths() == []
    call(client)
    assert {path: state for (_, _, path), state in daemon.held[("default", 0)].items()} == want


def test_runs_keep_their_order(no_thread: None) -> None:
    daemon = Daemon()
    buffer = Buffer(daemon.tell)
    for index in (0, 1):
        buffer.grant(index, 10)
    for index, seq, path in [(0, 0, "a"), (0, 0, "b"), (1, 0, "c"), (0, 1, "d"), (0, 1, "e")]:
        assert buffer.put(index, seq, path)
    buffer.flush()
    assert daemon.told == [(0, 0, ["a", "b"]), (1, 0, ["c"]), (0, 1, ["d", "e"])]


def test_an_interrupt_loses_nothing(no_thread: None) -> None:
    def interrupt() -> None:
        daemon.before = lambda: None
        raise KeyboardInterrupt

    daemon = Daemon(interrupt)
    buffer = Buffer(daemon.tell)
    buffer.grant(0, 10)
    assert buffer.put(0, 0, "a") and buffer.put(0, 0, "b")
    with pytest.raises(KeyboardInterrupt):
        buffer.flush()
    buffer.flush()
    assert daemon.told == [(0, 0, ["a", "b"])]


def test_an_outage_is_counted(daemon: FakeDaemon) -> None:
    client = make()
    client.get_preload_dataset_files_quota(0)
    daemon.down = DaemonGoneError("gone")
    assert preload(client, "abc") == [True] * 3
    assert client.counters()["unsent"] == 3 and not client.available


def test_strict_is_told_at_once(daemon: FakeDaemon) -> None:
    client = make(strict=True)
    assert client.get_preload_dataset_files_quota(0) == 20
    daemon.down = DaemonGoneError("gone")
    with pytest.raises(DatasetFileLoaderUnavailableError):
        client.preload_dataset_file(DatasetFile("a"))


def test_a_path_that_cannot_be_sent_spoils_no_other(daemon: FakeDaemon, no_thread: None) -> None:
    client = make()
    client.get_preload_dataset_files_quota(0)
    for path in ("a", b"caf\xe9", "ä", "\1" * 1100, "b"):
        assert client.preload_dataset_file(DatasetFile(path))
    counters = client.counters()
    assert daemon.paths() == ["a", "ä", "\1" * 1100, "b"] and counters["unsent"] == 1


def test_spawned_processes_are_not_overtaken(daemon: FakeDaemon, no_thread: None) -> None:
    """They do not see the buffer, so from then on there is none."""
    client = make()
    client.get_preload_dataset_files_quota(0)
    preload(client, "a")
    copy: DatasetFileLoaderClient = pickle.loads(pickle.dumps(client))
    assert copy.release_dataset_file(DatasetFile("a"))
    for each in (client, copy):
        each.get_preload_dataset_files_quota(0)
        preload(each, "b")
        assert daemon.paths() == ["b"]
        assert copy.release_dataset_file(DatasetFile("b"))


def in_child(act: Callable[[], str]) -> Tuple[int, int]:
    """Forks a child that writes what `act` returns; gives its process id and where to read it."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(into, act().encode())
        finally:
            os._exit(0)
    os.close(into)
    return child, out


def test_a_forked_process_waits_for_what_was_announced(no_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = Daemon()
    buffer = Buffer(daemon.tell)
    buffer.grant(0, 10)
    assert buffer.put(0, 0, "a") and buffer.put(0, 0, "b")
    waits, told_so = os.pipe()
    monkeypatch.setattr(module, "_PATIENCE", 120.0)

    def release() -> str:
        buffer.grant(0, 10)
        assert not buffer.put(0, 0, "c")
        pause = module.time.sleep
        monkeypatch.setattr(module.time, "sleep", lambda s: (os.write(told_so, b"w"), pause(s)))
        buffer.flush()
        return str(buffer._counts[1])

    child, out = in_child(release)
    os.close(told_so)
    assert os.read(waits, 1) == b"w", "the child did not wait"
    buffer.flush()
    assert os.read(out, 10) == b"2"
    os.waitpid(child, 0)
    os.close(waits)
    os.close(out)


def test_nobody_waits_long_for_a_process_that_died(no_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = Buffer(Daemon().tell)
    buffer.grant(0, 10)
    assert buffer.put(0, 0, "a")
    monkeypatch.setattr(module, "_PATIENCE", 0.0)
    sleeps: List[float] = []
    monkeypatch.setattr(module.time, "sleep", sleeps.append)

    def read_on() -> str:
        buffer.flush()
        first = len(sleeps)
        buffer.flush()
        return f"{first} {len(sleeps)}"

    child, out = in_child(read_on)
    assert os.read(out, 10) == b"1 1"
    os.waitpid(child, 0)
    os.close(out)


def test_the_thread_ends_with_the_client(daemon: FakeDaemon) -> None:
    client = make()
    client.get_preload_dataset_files_quota(0)
    preload(client, "a")
    eventually(lambda: daemon.paths() == ["a"])
    thread = client._buffer._thread
    assert thread is not None and thread.is_alive() and thread.daemon
    del client

    def ended() -> bool:
        gc.collect()
        return not thread.is_alive()

    eventually(ended)


def test_a_client_that_goes_out_of_scope_has_told(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    call = daemon.call
    gone = threading.Event()

    def late(method: str, params: Any) -> Any:
        if method == "loader.preload":
            assert gone.wait(60)
        return call(method, params)

    monkeypatch.setattr(daemon, "call", late)
    client = make()
    client.get_preload_dataset_files_quota(0)
    preload(client, "abc")
    del client
    gone.set()
    eventually(lambda: daemon.paths() == ["a", "b", "c"])


@pytest.mark.usefixtures("no_thread")
def test_what_is_released_before_it_was_told_is_not_remembered(daemon: FakeDaemon) -> None:
    client = make()
    client.get_preload_dataset_files_quota(0)
    preload(client, "ab")
    assert client.release_dataset_file(DatasetFile("a"))
    assert client._record is not None
    assert client._record.files() == [((0, 0), ["b"])]


def test_the_thread_outlives_an_error(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    call = daemon.call
    failing = ["once"]

    def fails(method: str, params: Any) -> Any:
        if method == "loader.preload" and failing:
            failing.clear()
            raise MemoryError
        return call(method, params)

    monkeypatch.setattr(daemon, "call", fails)
    client = make()
    client.get_preload_dataset_files_quota(0)
    preload(client, "a")
    eventually(lambda: not failing)
    preload(client, "b")
    eventually(lambda: daemon.paths() == ["b"])


def test_a_program_that_ends_tells_before(tmp_path: Path) -> None:
    program = tmp_path / "announce.py"
    program.write_text("""
import atexit
from fake_daemon import FakeDaemon
fake = FakeDaemon()
atexit.register(lambda: print(fake.paths()))
import dataset_file_loader.link
from dataset_file_loader.buffer import Buffer
dataset_file_loader.link.Client = fake.connect
Buffer._start = lambda self: True
from dataset_file_loader import DatasetFile, DatasetFileLoaderClient
client = DatasetFileLoaderClient(0, "/mnt/data")
client.get_preload_dataset_files_quota(0)
client.preload_dataset_file(DatasetFile("a"))
assert fake.paths() == []
""")
    here = Path(__file__).resolve().parent
    ran = subprocess.run([sys.executable, "-B", str(program)], capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": f"{here}:{here.parent}"})
    assert ran.stdout == "['a']\n", ran.stderr
