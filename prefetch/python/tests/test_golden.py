"""The golden exchanges of the protocol, replayed against this client.

A patched ioctl compares what the client sends and answers what is written.
"""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any, Dict, List

import pytest

from pailfs import control, frames
from pailfs.errors import ControlError

GOLDEN = Path(__file__).resolve().parents[2] / "control" / "testdata" / "golden"


def scripts() -> List[Any]:
    found = []
    for path in sorted(GOLDEN.glob("*.json")):
        script = json.loads(path.read_text())
        if "call" in script:
            found.append(pytest.param(script, id=path.stem))
    return found


def wire(frame: Dict[str, str]) -> bytes:
    return bytes.fromhex(frame.get("header", "")) + frame.get("payload", "").encode()


class Replay:
    """Stands for the kernel."""

    def __init__(self, steps: List[Dict[str, Any]]) -> None:
        self.steps = steps
        self.at = 0

    def __call__(self, fd: int, command: int, buffer: bytearray, mutate: bool) -> int:
        assert command == 0xFFF870F5 and len(buffer) == 16376 and mutate
        assert self.at < len(self.steps), "the client goes on after the last answer"
        step = self.steps[self.at]
        self.at += 1
        end = 32 + int.from_bytes(buffer[8:12], "little")
        assert not any(buffer[end:]), f"step {self.at}: something follows the payload"
        want = wire(step["send"])
        if bytes(buffer[32:end]) != want[32:]:
            # One text has several spellings in JSON.
            assert json.loads(buffer[32:end]) == json.loads(want[32:]), f"step {self.at}"
            want = want[:8] + bytes(buffer[8:12]) + want[12:]
        assert bytes(buffer[:32]) == want[:32], f"step {self.at}"
        if "errno" in step:
            raise OSError(getattr(errno, step["errno"]), "as written")
        answer = wire(step["receive"])
        buffer[:] = answer + bytes(len(buffer) - len(answer))
        return len(answer)


@pytest.mark.parametrize("script", scripts())
def test_golden_exchange(script: Dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replay = Replay(script["steps"])
    monkeypatch.setattr(control.fcntl, "ioctl", replay)
    with control.Client(tmp_path) as client:
        if "error" in script:
            with pytest.raises(ControlError) as caught:
                client.call(script["call"], script.get("params"))
            assert caught.value.code == script["error"]["code"]
            if caught.value.code != "version":
                assert caught.value.message == script["error"]["message"]
        else:
            assert client.call(script["call"], script.get("params")) == script.get("result")
    assert replay.at == len(script["steps"]), "the client stopped early"


def test_golden_files_are_there() -> None:
    assert len(scripts()) >= 5


def test_requests_of_every_golden_file_are_what_this_client_packs() -> None:
    """Also those that no client sends are frames, where their header is sound."""
    for path in GOLDEN.glob("*.json"):
        for step in json.loads(path.read_text())["steps"]:
            header = bytes.fromhex(step["send"].get("header", ""))
            if header[:8] != b"PAIL\x01\x01\x00\x00":
                continue
            buffer = bytearray(frames.BUFFER_SIZE)
            payload = step["send"].get("payload", "").encode()
            frames.pack(frames.Frame(frames.CALL, payload), buffer)
            if header[8:12] == len(payload).to_bytes(4, "little") and not any(header[12:]):
                assert bytes(buffer[:32]) == header, path.name
