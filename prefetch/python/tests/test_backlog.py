"""What becomes of announcements for which a user's budget of names has no room."""

from __future__ import annotations

import os
from typing import List

import pytest

from conftest import eventually
from dataset_file_loader import DatasetFile, DatasetFileLoaderClient, DatasetFileLoaderQuotaError
from fake_daemon import FakeDaemon
from pailfs.errors import ControlError

EPOCH = [f"train/{i:04d}" for i in range(500)]


def make(strict: bool = False, worker: int = 0, buffer: int = 1000) -> DatasetFileLoaderClient:
    return DatasetFileLoaderClient(worker, "/mnt/data/", preload_request_buffer_size=buffer, strict=strict)


def files(paths: List[str]) -> List[DatasetFile]:
    return [DatasetFile(path) for path in paths]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("one_by_one", [False, True])
def test_an_epoch_larger_than_the_budget_is_announced_in_the_end(daemon: FakeDaemon, strict: bool, one_by_one: bool) -> None:
    daemon.names = 50
    client = make(strict)
    if one_by_one:
        taken = sum(client.preload_dataset_file(f) for f in files(EPOCH))
        assert taken == 50, "what has to wait is said to"
    else:
        assert client.preload_many(files(EPOCH)) == len(EPOCH)
    assert client.get_preload_dataset_files_quota() == 0
    assert client.counters()["waiting"] == len(EPOCH) - 50
    for f in files(EPOCH):
        assert f.dataset_file_path in daemon.paths(), "it is read before it was announced"
        client.active_dataset_file(f)
        assert client.release_dataset_file(f)
    assert daemon.taken == EPOCH
    counters = client.counters()
    assert (counters["preloaded"], counters["dropped"], counters["unsent"], counters["waiting"]) == (500, 0, 0, 0)
    assert counters["outages"] == 0 and daemon.most_held <= 50


def test_what_others_let_go_is_used_without_a_call(daemon: FakeDaemon) -> None:
    daemon.names = 10
    other, client = make(worker=1), make()
    assert other.preload_many(files(EPOCH[100:110])) == 10
    assert client.preload_many(files(EPOCH[:5])) == 5
    assert daemon.paths() == [] and client.status(DatasetFile(EPOCH[0]))["state"] == "waiting"
    assert not client.wait_ready(files(EPOCH[:5])), "it waits for room that may never come"
    other.release_many(files(EPOCH[100:110]))
    assert client.wait_ready(files(EPOCH[:5]), timeout=60)
    eventually(lambda: client.counters()["waiting"] == 0)
    assert daemon.paths() == EPOCH[:5]


def test_what_was_read_meanwhile_is_not_announced(daemon: FakeDaemon) -> None:
    daemon.names = 2
    client = make()
    client.preload_many(files(EPOCH[:6]))
    client.release_many(files(EPOCH[2:3]))
    pid = os.fork()
    if pid == 0:
        try:
            client.release_many(files(EPOCH[3:4]))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    daemon.names = 100
    eventually(lambda: client.counters()["waiting"] == 0)
    assert daemon.paths() == [EPOCH[i] for i in (0, 1, 4, 5)]
    client.close()


def test_beyond_the_buffer_is_still_dropped(daemon: FakeDaemon) -> None:
    client = make(buffer=10)
    assert client.preload_many(files(EPOCH)) == 50
    assert client.counters()["dropped"] == 450 and client.counters()["waiting"] == 0
    with pytest.raises(DatasetFileLoaderQuotaError):
        make(strict=True, worker=1, buffer=10).preload_many(files(EPOCH))


def test_over_quota_of_an_older_daemon_is_no_outage(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    client = make(strict=True)
    preload = FakeDaemon._loader_preload

    def full(*_: object) -> None:
        raise ControlError("over-quota", "announced names: no room")

    monkeypatch.setattr(FakeDaemon, "_loader_preload", full)
    assert client.preload_many(files(EPOCH[:3])) == 3
    assert client.get_preload_dataset_files_quota() == 0 and client.available
    monkeypatch.setattr(FakeDaemon, "_loader_preload", preload)
    eventually(lambda: daemon.paths() == EPOCH[:3])
    assert client.counters()["unsent"] == 0


def test_a_name_that_is_never_taken_does_not_hold_up_the_others(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.names = 0
    client = make()
    client.preload_many(files(EPOCH[:3]))
    preload = FakeDaemon._loader_preload

    def choosy(self: FakeDaemon, who: tuple[str, int], p: dict[str, object]) -> object:
        if self._keys(p)[0][2] == EPOCH[0]:
            raise ControlError("bad-request", "the name never fits")
        return preload(self, who, p)

    monkeypatch.setattr(FakeDaemon, "_loader_preload", choosy)
    daemon.names = 100
    eventually(lambda: daemon.paths() == EPOCH[1:3])
    assert client.counters()["unsent"] == 1


def test_a_closed_client_announces_nothing_more(daemon: FakeDaemon) -> None:
    daemon.names = 1
    client = make()
    client.preload_many(files(EPOCH[:5]))
    client.close(keep=True)
    daemon.names = 100
    assert client.counters()["waiting"] == 0 and daemon.paths() == EPOCH[:1]
