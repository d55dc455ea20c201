"""What a client does where too many wait in the daemon already."""

from __future__ import annotations

from typing import List

import pytest

from pailfs import control, frames


class Busy:
    """A daemon that has a call asked after again, with pauses."""

    path = "/mnt/data"

    def __init__(self, *pauses: int) -> None:
        self.pauses = list(pauses)
        self.asked: List[frames.Frame] = []

    def exchange(self, request: frames.Frame) -> frames.Frame:
        self.asked.append(request)
        if self.pauses:
            return frames.Frame(frames.WAIT, offset=self.pauses.pop(0), cursor=b"c" * 16)
        return frames.Frame(frames.LAST, b'{"result":1}')


def test_a_client_waits_outside_as_long_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: List[float] = []
    monkeypatch.setattr("pailfs.control.time.sleep", slept.append)
    daemon = Busy(0, 10, 250, 4_000_000_000)
    answer = control._converse(daemon, frames.Frame(frames.CALL), None)  # type: ignore[arg-type]
    assert answer == b'{"result":1}' and slept == [0.01, 0.25, 1.0]
    assert [f.offset for f in daemon.asked] == [0] * 5
