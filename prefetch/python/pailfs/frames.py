"""The bytes of the control protocol, as prefetch/control/PROTOCOL.md describes them."""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple, Optional

from pailfs.errors import ControlError, ProtocolError

__all__ = [
    "BUFFER_SIZE", "COMMAND", "MAX_PAYLOAD", "VERSION", "Frame",
    "CALL", "NEXT", "DROP", "LAST", "MORE", "WAIT",
    "encode_json", "encode_request", "pack", "read_answer", "unpack",
]

VERSION = 1
COMMAND = 0xFFF870F5
BUFFER_SIZE = 16376

CALL, NEXT, DROP = 0x01, 0x02, 0x03
LAST, MORE, WAIT = 0x81, 0x82, 0x83

NO_CURSOR = bytes(16)

_MAGIC = b"PAIL"
_HEADER = struct.Struct("<4sBBHII16s")

MAX_PAYLOAD = BUFFER_SIZE - _HEADER.size

_ZEROS = memoryview(bytes(BUFFER_SIZE))


class Frame(NamedTuple):
    """What one ioctl carries in one direction."""

    kind: int
    payload: bytes = b""
    offset: int = 0
    cursor: bytes = NO_CURSOR


def pack(frame: Frame, buffer: bytearray) -> None:
    """Puts a request into a buffer of `BUFFER_SIZE` bytes."""
    end = _HEADER.size + len(frame.payload)
    if end > BUFFER_SIZE:
        raise ValueError(f"the request has {len(frame.payload)} bytes, the limit is {MAX_PAYLOAD}")
    _HEADER.pack_into(buffer, 0, _MAGIC, VERSION, frame.kind, 0, len(frame.payload), frame.offset, frame.cursor)
    buffer[_HEADER.size:end] = frame.payload
    # What an earlier answer left there means nothing, and need not travel again.
    buffer[end:] = _ZEROS[end:]


def unpack(buffer: bytearray, size: int) -> Frame:
    """Reads the answer in the first `size` bytes of a buffer."""
    if not _HEADER.size <= size <= len(buffer):
        raise ProtocolError(f"the answer has {size} bytes, less than a header or more than a buffer")
    magic, version, kind, _, length, offset, cursor = _HEADER.unpack_from(buffer)
    if magic != _MAGIC:
        raise ProtocolError("the answer is not a frame of the control protocol")
    if version != VERSION:
        # The rest of the header may mean anything there.
        raise ControlError("version", f"the daemon speaks version {version} of the control protocol, "
                                      f"this client version {VERSION}: update the older of the two")
    if length > size - _HEADER.size:
        raise ProtocolError(f"the answer says that {length} bytes follow its header, and {size - _HEADER.size} do")
    payload = bytes(buffer[_HEADER.size:_HEADER.size + length])
    if kind not in (LAST, MORE, WAIT):
        raise ProtocolError(f"the answer is of kind {kind:#x}, which this client does not know")
    return Frame(kind, payload, offset, cursor)


# json.dumps makes an encoder for every call that asks for anything but its defaults.
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def encode_json(value: Any) -> bytes:
    """Compact JSON in UTF-8. Text that is not UTF-8 gives UnicodeEncodeError."""
    return _encode(value).encode("utf-8")


def encode_request(method: str, params: Optional[Any] = None) -> bytes:
    """The document that starts a call."""
    if params is None:
        return encode_json({"method": method})
    return encode_json({"method": method, "params": params})


def read_answer(document: bytes) -> Any:
    """The result in an answer document, or its error, raised."""
    try:
        answer = json.loads(document)
    except ValueError as e:
        raise ProtocolError(f"the answer is not JSON: {e}") from None
    if not isinstance(answer, dict):
        raise ProtocolError("the answer is not a JSON object")
    error = answer.get("error")
    if error is not None:
        if not isinstance(error, dict):
            raise ProtocolError("the error in the answer is not a JSON object")
        raise ControlError(str(error.get("code", "")), str(error.get("message", "")))
    return answer.get("result")
