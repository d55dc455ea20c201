"""Calls through the kernel, to the daemon of a real mount."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import List

import pytest

from conftest import MakeMount
from local_mount import Emulator, Mount
from pailfs.control import Client
from pailfs.errors import ControlError, DaemonGoneError, NotPailfsError


@pytest.fixture
def mount(make_mount: MakeMount) -> Mount:
    return make_mount()


def test_status_tells_of_the_mount(mount: Mount) -> None:
    with Client(mount.path) as client:
        hello = client.hello()
        assert hello["protocol"] == 1 and "status" in hello["methods"]
        status = client.call("status")
        assert status["pid"] == mount.pid
        assert status["mountpoint"] == str(mount.path)


def test_any_directory_of_the_mount_and_a_read_only_bind_do(emulator: Emulator, mount: Mount, tmp_path: Path) -> None:
    emulator.put("bind/below/file", b"x")
    bind = tmp_path / "bind"
    bind.mkdir()
    subprocess.run(["mount", "--bind", str(mount.path / "bind"), str(bind)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(bind)], check=True)
        for place in (mount.path / "bind", bind, bind / "below"):
            with Client(place) as client:
                assert client.call("status")["pid"] == mount.pid
    finally:
        subprocess.run(["umount", str(bind)], check=True)


def test_errors_of_the_daemon_carry_their_code(mount: Mount) -> None:
    with Client(mount.path) as client:
        for method, params, code in (("no.such", None, "unknown-method"), ("status", {"no": 1}, "bad-request")):
            with pytest.raises(ControlError) as caught:
                client.call(method, params)
            assert caught.value.code == code and caught.value.message
        # The client goes on.
        assert client.hello()["server"] == "pailfs"


def test_a_request_that_is_too_long_is_refused_here(mount: Mount) -> None:
    with Client(mount.path) as client, pytest.raises(ValueError, match="the limit is 16344"):
        client.call("status", {"x": "y" * 20000})


def test_other_places_are_named(tmp_path: Path) -> None:
    with Client(tmp_path) as client, pytest.raises(NotPailfsError, match=str(tmp_path)):
        client.call("hello")
    with Client(tmp_path / "absent") as client, pytest.raises(FileNotFoundError):
        client.call("hello")
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "fifo")
    for name in ("file", "fifo"):
        with Client(tmp_path / name) as client, pytest.raises(NotADirectoryError):
            client.call("hello")


def test_a_closed_client_says_so(mount: Mount) -> None:
    client = Client(mount.path)
    client.hello()
    client.close()
    client.close()
    with pytest.raises(ValueError, match="is closed"):
        client.hello()
    # Nothing keeps the mount in use.
    subprocess.run(["umount", str(mount.path)], check=True)


def test_a_client_survives_its_daemon(mount: Mount) -> None:
    with Client(mount.path) as client:
        before = client.call("status")["pid"]
        mount.kill()
        # The directory that was open belongs to the dead mount, the path to nobody.
        with pytest.raises(DaemonGoneError, match="mount it again"):
            client.call("status")
        with pytest.raises(NotPailfsError):
            client.call("status")
        mount.start()
        after = client.call("status")["pid"]
        assert after == mount.pid != before


def test_many_threads_share_a_client(mount: Mount) -> None:
    wrong: List[BaseException] = []
    with Client(mount.path) as client:
        def ask() -> None:
            try:
                for _ in range(50):
                    assert client.call("status")["pid"] == mount.pid
            except BaseException as e:
                wrong.append(e)

        threads = [threading.Thread(target=ask) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_signals_do_not_disturb_calls(mount: Mount) -> None:
    arrived = []
    before = signal.signal(signal.SIGALRM, lambda *_: arrived.append(1))
    try:
        with Client(mount.path) as client:
            signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
            while len(arrived) < 200:
                assert client.call("status")["pid"] == mount.pid
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_client_works_in_a_forked_child(mount: Mount) -> None:
    with Client(mount.path) as client:
        client.hello()
        # A thread that holds the client's lock for good in the child's view.
        with client._lock:
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    status = 0 if client.call("status")["pid"] == mount.pid else 2
                    client.close()
                finally:
                    os._exit(status)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        # The child's close was its own.
        assert client.call("status")["pid"] == mount.pid
