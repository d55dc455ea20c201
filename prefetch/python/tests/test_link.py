"""How outages begin, are waited out, and end."""

from __future__ import annotations

import pytest

from dataset_file_loader.link import Link, Unavailable
from fake_daemon import FakeDaemon
from pailfs.errors import DaemonGoneError
from pailfs.session import SessionConfig

CONFIG = SessionConfig(task="t", worker=0, instance="i", buffer=10, persistence="p/t")


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def link(daemon: FakeDaemon, clock: Clock) -> Link:
    return Link("/mnt/data", CONFIG, clock)


def quota(link: Link) -> int:
    return link.run(lambda session: session.quota(0))


def test_a_daemon_that_is_away_is_asked_less_and_less(daemon: FakeDaemon, link: Link, clock: Clock) -> None:
    daemon.down = DaemonGoneError("gone")
    asked = []
    while clock.time < 200:
        before = len(daemon.requests)
        with pytest.raises(Unavailable, match="gone"):
            quota(link)
        if len(daemon.requests) > before:
            asked.append(clock.time)
        clock.time += 0.5
    assert asked[:7] == [0, 1, 3, 7, 15, 31, 61]
    assert link.outages == 1


def test_a_daemon_that_comes_back_is_found(daemon: FakeDaemon, link: Link, clock: Clock,
                                           caplog: pytest.LogCaptureFixture) -> None:
    assert quota(link) == 10
    for outage in range(2):
        daemon.down = DaemonGoneError("gone")
        with pytest.raises(Unavailable):
            quota(link)
        daemon.down = None
        with pytest.raises(Unavailable):
            quota(link)
        clock.time += 1.0
        assert quota(link) == 10
        assert link.outages == outage + 1
    assert [("again" in r.getMessage()) for r in caplog.records] == [False, True, False, True]


def test_a_session_lost_twice_in_one_call_gives_up_that_call(daemon: FakeDaemon, link: Link) -> None:
    def lose(session: object) -> int:
        daemon.sessions.clear()
        return session.quota(0)  # type: ignore[attr-defined, no-any-return]

    with pytest.raises(Unavailable, match="no such session"):
        link.run(lose)
    assert daemon.methods().count("loader.open") == 2


def test_answers_that_are_no_answers_are_an_outage(daemon: FakeDaemon, link: Link,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "_loader_quota", lambda who, p: {"quota": "many"})
    with pytest.raises(Unavailable, match="no quota"):
        quota(link)
