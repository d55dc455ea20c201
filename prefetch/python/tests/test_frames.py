"""The bytes of the protocol."""

from __future__ import annotations

import struct

import pytest

from pailfs import frames
from pailfs.errors import ControlError, ProtocolError


def answer(kind: int = frames.LAST, payload: bytes = b"{}", version: int = 1, magic: bytes = b"PAIL",
           length: int = -1) -> bytearray:
    length = len(payload) if length < 0 else length
    head = struct.pack("<4sBBHII16s", magic, version, kind, 0, length, 0, bytes(16))
    return bytearray(head + payload).ljust(frames.BUFFER_SIZE, b"\0")


def test_a_request_fills_a_buffer_that_held_another() -> None:
    buffer = bytearray(b"\xff" * frames.BUFFER_SIZE)
    frames.pack(frames.Frame(frames.CALL, b"abc"), buffer)
    assert len(buffer) == frames.BUFFER_SIZE
    assert buffer[32:35] == b"abc" and not any(buffer[35:])


def test_a_request_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="the limit is 16344"):
        frames.pack(frames.Frame(frames.CALL, bytes(frames.MAX_PAYLOAD + 1)), bytearray(frames.BUFFER_SIZE))


@pytest.mark.parametrize("buffer, size", [
    (answer(), 31), (answer(), frames.BUFFER_SIZE + 1), (answer(magic=b"LIAP"), 34), (answer(kind=0x84), 34),
    (answer(length=3), 34), (answer(length=1 << 31), 34),
])
def test_what_is_no_answer_is_refused(buffer: bytearray, size: int) -> None:
    with pytest.raises(ProtocolError):
        frames.unpack(buffer, size)


def test_another_version_is_named_whatever_the_rest_of_its_header_says() -> None:
    with pytest.raises(ControlError, match="version 2 .* version 1") as caught:
        frames.unpack(answer(version=2, length=1 << 31), 34)
    assert caught.value.code == "version"


@pytest.mark.parametrize("document", [b"", b"{", b"[]", b"1", b'{"error":"text"}'])
def test_documents_that_are_no_answer_are_refused(document: bytes) -> None:
    with pytest.raises(ProtocolError):
        frames.read_answer(document)


def test_fields_that_are_not_known_are_ignored() -> None:
    assert frames.read_answer(b'{"result":{"a":1},"later":2}') == {"a": 1}


def test_text_that_is_not_utf8_cannot_travel() -> None:
    with pytest.raises(UnicodeEncodeError):
        frames.encode_request("m", {"path": "\udcff"})
