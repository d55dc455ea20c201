"""Makes the packages importable, and the mounts that tests read from."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Callable, Iterator, List

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "examples"), str(HERE)]

from fake_daemon import FakeDaemon  # noqa: E402
from local_mount import Emulator, Mount  # noqa: E402

MakeMount = Callable[..., Mount]


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """A bucket for all tests; each uses a folder of its own in it."""
    server = Emulator(tmp_path_factory.mktemp("oss"))
    yield server
    server.stop()


@pytest.fixture
def make_mount(emulator: Emulator, tmp_path: Path) -> Iterator[MakeMount]:
    """Mounts the bucket with further flags; every mount ends with the test."""
    mounts: List[Mount] = []

    def make(*flags: str) -> Mount:
        mount = Mount(emulator, tmp_path / f"mount{len(mounts)}", *flags)
        mounts.append(mount)
        return mount

    yield make
    for mount in mounts:
        mount.stop()


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> FakeDaemon:
    """A daemon without a mount, which every client of this test reaches."""
    fake = FakeDaemon()
    monkeypatch.setattr("dataset_file_loader.link.Client", fake.connect)
    return fake


def eventually(condition: Callable[[], bool], patience: float = 120) -> None:
    """Waits until the condition holds."""
    limit = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < limit, "it did not become true"
        time.sleep(0.05)
