"""An answer that comes in pieces, from a daemon that is not real."""

from __future__ import annotations

from typing import List

import pytest

from pailfs import control, frames
from pailfs.errors import ProtocolError


class Script:
    """A directory whose daemon gives these answers."""

    path = "/mnt"

    def __init__(self, *answers: frames.Frame) -> None:
        self.answers: List[frames.Frame] = list(answers)

    def exchange(self, request: frames.Frame) -> frames.Frame:
        return self.answers.pop(0)


def converse(*answers: frames.Frame) -> bytes:
    return control._converse(Script(*answers), frames.Frame(frames.CALL), None)  # type: ignore[arg-type]


FIRST = frames.Frame(frames.MORE, b"first, ", cursor=b"a cursor")


def test_pieces_are_put_together() -> None:
    assert converse(FIRST, frames.Frame(frames.LAST, b"last", offset=7)) == b"first, last"


def test_an_answer_that_was_given_up_says_why() -> None:
    assert converse(FIRST, frames.Frame(frames.LAST, b"stale")) == b"stale"


def test_a_piece_of_another_place_is_refused() -> None:
    with pytest.raises(ProtocolError, match="goes on at byte 9, asked for 7"):
        converse(FIRST, frames.Frame(frames.LAST, b"last", offset=9), frames.Frame(frames.LAST))
