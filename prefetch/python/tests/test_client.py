"""What the drop-in client makes of its calls, with a daemon that is not real."""

from __future__ import annotations

import logging
import os
import pickle
import threading
from pathlib import Path
from typing import List

import pytest

from dataset_file_loader import (DatasetFile, DatasetFileLoaderClient, DatasetFileLoaderQuotaError,
                                 DatasetFileLoaderUnavailableError)
from fake_daemon import FakeDaemon
from pailfs.errors import ControlError, DaemonGoneError, NotPailfsError
from pailfs.frames import MAX_PAYLOAD, encode_json


def make(**keywords: object) -> DatasetFileLoaderClient:
    keywords.setdefault("worker_id", 0)
    keywords.setdefault("cpfs_mount_path", "/mnt/data/")
    return DatasetFileLoaderClient(**keywords)  # type: ignore[arg-type]


def files(*paths: str, index: int = 0) -> List[DatasetFile]:
    return [DatasetFile(dataset_file_path=path, sampler_index=index) for path in paths]


def test_a_program_written_for_pai(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call and keyword that the vendor's page shows, in its order."""
    monkeypatch.setenv("LOCAL_RANK", "3")
    worker_id = int(os.environ.get("LOCAL_RANK", 0))
    client = DatasetFileLoaderClient(
        worker_id=worker_id,
        cpfs_mount_path="/mnt/data/",
        persistence_file_path=".dataset_file_persistence/task_1/",
        preload_request_buffer_size=20,
    )
    index, file_path = 5, "videos/clip-7/"
    quota = client.get_preload_dataset_files_quota(index)
    assert quota == 20
    for _ in range(quota):
        client.preload_dataset_file(DatasetFile(dataset_file_path=file_path, sampler_index=index))
    assert client.counters()["preloaded"] == 20
    assert daemon.held[("task_1", 3)] == {(5, 0, "videos/clip-7"): "ready"}
    client.active_dataset_file(DatasetFile(dataset_file_path=file_path, sampler_index=index))
    assert daemon.held[("task_1", 3)] == {(5, 0, "videos/clip-7"): "active"}
    client.release_dataset_file(DatasetFile(dataset_file_path=file_path, sampler_index=index))
    assert daemon.held[("task_1", 3)] == {}
    assert daemon.requests[0] == ("loader.open", {
        "task": "task_1", "worker": 3, "persistence": ".dataset_file_persistence/task_1", "buffer": 20,
        "instance": daemon.requests[0][1]["instance"]})


def test_every_node_of_a_job_keeps_a_state_of_its_own(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUP_RANK", "2")
    client = make(persistence_file_path=".state/task_1/")
    assert daemon.requests[0][1]["persistence"] == ".state/task_1/node-2"
    assert daemon.requests[0][1]["task"] == "task_1"
    client.close()


def test_positions_aliases_and_defaults(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "2")
    DatasetFileLoaderClient(1, "/mnt/data", "p/task_2", 7)
    DatasetFileLoaderClient(mount_path="/mnt/other")
    first, second = (params for _, params in daemon.requests)
    assert (first["task"], first["worker"], first["buffer"]) == ("task_2", 1, 7)
    assert (second["task"], second["worker"], second["buffer"]) == ("default", 2, 20)
    assert [client.path for client in daemon.clients] == ["/mnt/data", "/mnt/other"]


def test_the_mount_can_be_named_outside_the_program(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAILFS_LOADER_MOUNT", "/elsewhere")
    client = make()
    client.preload_many(files("a", "/mnt/data/b", "/elsewhere/c"))
    assert [c.path for c in daemon.clients] == ["/elsewhere"]
    assert daemon.paths() == ["a", "b", "c"]


def test_arguments_of_later_versions_are_ignored_aloud(daemon: FakeDaemon, caplog: pytest.LogCaptureFixture) -> None:
    make(compression="zstd", another=1)
    assert "another, compression" in caplog.text


@pytest.mark.parametrize("keywords, error", [
    ({"worker_id": -1}, "worker_id is -1"),
    ({"worker_id": "one"}, "worker_id is 'one'"),
    ({"preload_request_buffer_size": 0}, "preload_request_buffer_size is 0"),
    ({"preload_request_buffer_size": 1_000_001}, "between 1 and 1000000"),
    ({"persistence_file_path": "../outside"}, r"contains '\.\.'"),
    ({"persistence_file_path": "/"}, "not below the mount"),
    ({"persistence_file_path": "."}, "is the mount itself"),
    ({"lease_seconds": 0}, "lease_seconds is 0"),
    ({"cpfs_mount_path": None}, "needs cpfs_mount_path"),
])
def test_arguments_that_are_mistakes(daemon: FakeDaemon, keywords: dict[str, object], error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        make(**keywords)
    assert not daemon.requests


@pytest.mark.parametrize("given, sent", [
    ("a/b", "a/b"), ("./a//b/", "a/b"), ("/mnt/data/a/b", "a/b"), (Path("a/b"), "a/b"), (b"a/b", "a/b"),
    ("ä/…", "ä/…"), ("a\nb", "a\nb"), ("..a/b..", "..a/b.."),
])
def test_paths_are_relative_to_the_mount(daemon: FakeDaemon, given: object, sent: str) -> None:
    make().preload_dataset_file(DatasetFile(given))  # type: ignore[arg-type]
    assert daemon.paths() == [sent]


@pytest.mark.parametrize("path", ["../a", "a/../b", "a/..", "/mnt/data/../x", "/mnt/database/a", "/etc/passwd", "", ".",
                                  "/mnt/data", "a\0b", pytest.param("x/" * 2500, id="long")])
@pytest.mark.parametrize("call", ["preload_dataset_file", "active_dataset_file", "release_dataset_file", "wait_ready"])
def test_paths_that_lead_out_are_errors(daemon: FakeDaemon, path: str, call: str) -> None:
    client = make()
    with pytest.raises(ValueError, match="dataset_file_path"):
        getattr(client, call)(DatasetFile(path))
    assert daemon.methods() == ["loader.open"]


def test_a_mount_behind_a_symbolic_link(daemon: FakeDaemon, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    client = make(cpfs_mount_path=tmp_path / "link")
    client.preload_many(files(f"{tmp_path}/link/a", f"{tmp_path}/real/b"))
    assert daemon.paths() == ["a", "b"]


@pytest.mark.parametrize("index", [-1, 1.5, "0", None])
def test_sampler_indices_are_whole_numbers(daemon: FakeDaemon, index: object) -> None:
    client = make()
    for call in (lambda: client.get_preload_dataset_files_quota(index),  # type: ignore[arg-type]
                 lambda: client.preload_dataset_file(DatasetFile("a", index))):  # type: ignore[arg-type]
        with pytest.raises((ValueError, TypeError), match="sampler_index"):
            call()


def test_quota_ignored(daemon: FakeDaemon) -> None:
    client = make(preload_request_buffer_size=2)
    answers = [client.preload_dataset_file(f) for f in files(*(str(i) for i in range(12)))]
    assert answers == [True, True] + [False] * 10
    assert client.get_preload_dataset_files_quota(0) == 0
    assert daemon.paths() == [str(i) for i in range(10)]
    counters = client.counters()
    assert (counters["preloaded"], counters["over"], counters["dropped"]) == (10, 8, 2)


def test_quota_ignored_under_strict(daemon: FakeDaemon) -> None:
    client = make(preload_request_buffer_size=2, strict=True)
    assert client.preload_many(files("a", "b")) == 2
    with pytest.raises(DatasetFileLoaderQuotaError, match="sampler index 0") as caught:
        client.preload_dataset_file(DatasetFile("c"))
    assert caught.value.accepted == 1
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.accepted == 1 and str(again) == str(caught.value)


def test_many_files_go_in_few_requests(daemon: FakeDaemon) -> None:
    client = make(preload_request_buffer_size=10_000)
    names = [f"train/class-{i % 10}/image-{i:06}.jpg" for i in range(5000)]
    assert client.preload_many(files(*names)) == 5000
    assert daemon.paths() == names
    sent = [params for method, params in daemon.requests if method == "loader.preload"]
    assert len(sent) < 14
    assert client.release_many(files(*names)) == 5000
    assert daemon.paths() == []


def test_requests_are_as_full_as_they_may_be(daemon: FakeDaemon) -> None:
    """Any mixture of lengths, folders and characters; the fake daemon measures each request."""
    client = make(preload_request_buffer_size=100_000)
    names = [f"{'d' * (1 + i % 90)}/{'ü…🐟' * (i % 40)}/{chr(1 + i % 31) * (i % 70)}{i}" for i in range(2000)]
    names += ["x" * 4000 + str(i) for i in range(20)] + ["top"] + [f"a/b/c/{i}" for i in range(3000)] + ["a/x"]
    assert client.preload_many(files(*names)) == len(names)
    joined = [p["base"] + name for m, p in daemon.requests if m == "loader.preload" for name in p["paths"]]
    assert joined == ["/".join(part for part in name.split("/") if part) for name in names]
    full = [len(encode_json(p)) for m, p in daemon.requests if m == "loader.preload"]
    assert max(full) > MAX_PAYLOAD * 0.9


def test_streams_and_sequence_numbers_stay_apart(daemon: FakeDaemon) -> None:
    client = make()
    mixed = [DatasetFile("a", 0), DatasetFile("b", 0), DatasetFile("a", 1), DatasetFile("a", 0, seq=1)]
    assert client.preload_many(mixed) == 4
    assert list(daemon.held[("default", 0)]) == [(0, 0, "a"), (0, 0, "b"), (1, 0, "a"), (0, 1, "a")]
    assert client.release_dataset_file(DatasetFile("a", 0, seq=1)) is True
    assert client.release_dataset_file(DatasetFile("a", 0, seq=1)) is False
    assert len(daemon.held[("default", 0)]) == 3
    assert client.counters()["not_held"] == 1


def test_preload_many_stops_where_there_is_no_room(daemon: FakeDaemon) -> None:
    client = make(preload_request_buffer_size=1)
    assert client.preload_many(files(*"abcdefgh")) == 5
    assert client.counters()["dropped"] == 3


def test_status_and_waiting(daemon: FakeDaemon) -> None:
    client = make()
    daemon.missing.add("gone")
    client.preload_many(files("here", "gone"))
    assert client.wait_ready(DatasetFile("here"), timeout=30)
    assert not client.wait_ready(files("here", "gone"), timeout=30)
    assert client.status(DatasetFile("here"))["state"] == "ready"
    assert client.status(DatasetFile("gone"))["errno"] == "ENOENT"
    assert client.status(DatasetFile("other"))["state"] == "unknown"
    assert client.status()["task"] == "default"


def test_without_a_daemon_nothing_stops(daemon: FakeDaemon, caplog: pytest.LogCaptureFixture) -> None:
    daemon.down = NotPailfsError("/mnt/data is not in a pailfs mount")
    client = make(preload_request_buffer_size=20)
    for _ in range(3):
        assert client.get_preload_dataset_files_quota(0) == 20
        assert client.preload_dataset_file(DatasetFile("a")) is True
        client.active_dataset_file(DatasetFile("a"))
        assert client.release_dataset_file(DatasetFile("a")) is False
        assert client.preload_many(files("a", "b")) == 2
    assert client.wait_ready(DatasetFile("a"), timeout=30) is False
    assert client.status() == {"state": "unavailable", "error": "/mnt/data is not in a pailfs mount"}
    assert client.persistence == {"kind": "none", "reason": "/mnt/data is not in a pailfs mount"}
    assert not client.available
    assert client.counters()["unsent"] == 15 and client.counters()["outages"] == 1
    assert [r.getMessage() for r in caplog.records] == [
        "dataset file hints do not reach a pailfs daemon, training goes on without them: "
        "/mnt/data is not in a pailfs mount"]
    # Mistakes are mistakes without a daemon too.
    with pytest.raises(ValueError):
        client.preload_dataset_file(DatasetFile("../a"))
    client.close()


def test_without_a_daemon_under_strict(daemon: FakeDaemon) -> None:
    client = make(strict=True)
    daemon.down = DaemonGoneError("the daemon has ended")
    with pytest.raises(DatasetFileLoaderUnavailableError, match="the daemon has ended"):
        client.preload_dataset_file(DatasetFile("a"))
    with pytest.raises(DatasetFileLoaderUnavailableError, match="the daemon has ended"):
        make(strict=True)


def test_a_daemon_without_loader_is_an_outage(daemon: FakeDaemon, caplog: pytest.LogCaptureFixture) -> None:
    daemon.down = ControlError("unknown-method", 'the daemon has no method "loader.open"')
    client = make()
    assert client.get_preload_dataset_files_quota(0) == 20
    assert "no method" in caplog.text


@pytest.mark.parametrize("code", ["busy", "failed", "internal"])
def test_a_call_that_fails_does_not_end_the_session(daemon: FakeDaemon, caplog: pytest.LogCaptureFixture,
                                                    code: str) -> None:
    client = make()
    daemon.down = ControlError(code, "not now")
    for _ in range(5):
        client.preload_dataset_file(DatasetFile("a"))
    daemon.down = None
    client.preload_dataset_file(DatasetFile("b"))
    assert daemon.paths() == ["b"] and daemon.methods().count("loader.open") == 1
    assert client.counters()["unsent"] == 5
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


def test_a_path_that_is_not_utf8_is_not_announced(daemon: FakeDaemon, caplog: pytest.LogCaptureFixture) -> None:
    client = make()
    assert client.preload_dataset_file(DatasetFile(b"caf\xe9")) is True
    assert client.counters()["unsent"] == 1 and client.available
    assert len(caplog.records) == 1
    with pytest.raises(DatasetFileLoaderUnavailableError):
        make(strict=True).preload_dataset_file(DatasetFile(b"caf\xe9"))


def test_a_forgotten_session_is_opened_again_and_told_what_is_held(daemon: FakeDaemon) -> None:
    client = make()
    client.preload_many(files("a", "b", "c"))
    client.active_dataset_file(DatasetFile("a"))
    client.release_dataset_file(DatasetFile("b"))
    daemon.restart()
    client.preload_dataset_file(DatasetFile("d"))
    assert daemon.paths() == ["a", "c", "d"]
    assert client.counters()["reopened"] == 1 and client.counters()["unsent"] == 0


def test_after_a_fork_only_the_daemon_knows_what_is_held(daemon: FakeDaemon) -> None:
    """A child may have released what the parent announced."""
    client = make()
    client.preload_many(files("a", "b"))
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    daemon.restart()
    client.preload_dataset_file(DatasetFile("c"))
    assert daemon.paths() == ["c"]


def test_two_who_want_one_session_are_told(daemon: FakeDaemon, caplog: pytest.LogCaptureFixture) -> None:
    client = make()
    for _ in range(5):
        daemon.sessions.clear()
        client.preload_dataset_file(DatasetFile("a"))
    assert caplog.text.count("another process uses the same worker_id") == 1


def test_a_state_that_stays_on_the_node_is_told(daemon: FakeDaemon, caplog: pytest.LogCaptureFixture) -> None:
    daemon.persistence = {"kind": "node", "path": "x", "reason": "the mount is read-only"}
    client = make()
    assert client.persistence["kind"] == "node"
    assert "stays on this node" in caplog.text and "the mount is read-only" in caplog.text


def test_leaving_with_releases_and_an_exception_keeps(daemon: FakeDaemon) -> None:
    with make() as client:
        client.preload_dataset_file(DatasetFile("a"))
    assert daemon.requests[-1][1]["keep"] is False and daemon.paths() == []
    with pytest.raises(RuntimeError), make() as client:
        client.preload_dataset_file(DatasetFile("a"))
        raise RuntimeError
    assert daemon.requests[-1][1]["keep"] is True and daemon.paths() == ["a"]
    assert all(c.closed for c in daemon.clients)


def test_a_closed_client_does_nothing(daemon: FakeDaemon) -> None:
    client = make()
    client.close()
    client.close()
    sent = len(daemon.requests)
    assert client.preload_dataset_file(DatasetFile("a")) is True
    assert client.status()["error"] == "the client is closed"
    assert len(daemon.requests) == sent


def test_a_daemon_that_fails_while_closing_is_no_error(daemon: FakeDaemon) -> None:
    client = make(strict=True)
    daemon.down = DaemonGoneError("gone")
    client.close()
    assert daemon.clients[0].closed


def test_a_pickled_client_joins_and_leaves_the_session_alone(daemon: FakeDaemon) -> None:
    client = make()
    copy: DatasetFileLoaderClient = pickle.loads(pickle.dumps(client))
    copy.preload_dataset_file(DatasetFile("a"))
    copy.close()
    assert "loader.close" not in daemon.methods()
    assert daemon.requests[0][1] == [p for m, p in daemon.requests if m == "loader.open"][1]
    assert client.release_dataset_file(DatasetFile("a")) is True


def test_many_threads(daemon: FakeDaemon) -> None:
    client = make(preload_request_buffer_size=1000)
    wrong: List[BaseException] = []

    def work(n: int) -> None:
        try:
            for i in range(50):
                f = DatasetFile(f"{n}/{i}", n)
                client.preload_dataset_file(f)
                client.active_dataset_file(f)
                assert client.release_dataset_file(f)
        except BaseException as e:
            wrong.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and daemon.paths() == []
    assert client.counters()["released"] == 400
