"""PyTorch's DataLoader, with real worker processes, over a real mount."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler

from conftest import MakeMount, eventually
from dataset_file_loader import DatasetFile, DatasetFileLoaderClient
from local_mount import Emulator, Mount
from pailfs.control import Client
from pailfs.torch import PreloadingSampler, release_after

FILES = 400
PATIENCE = 120


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def content(i: int) -> bytes:
    return (f"{i:06}".encode() * 200)[:1000 + i]


@pytest.fixture
def mount(emulator: Emulator, make_mount: MakeMount) -> Mount:
    emulator.put_all((f"torch/{i:04}", content(i)) for i in range(FILES))
    return make_mount()


class Numbers:
    """Each item is its number, if its file holds what it should."""

    def __init__(self, mount: Path) -> None:
        self.paths = [str(mount / f"torch/{i:04}") for i in range(FILES)]

    def __len__(self) -> int:
        return FILES

    def __getitem__(self, i: int) -> int:
        limit = time.monotonic() + PATIENCE
        while True:
            try:
                got = Path(self.paths[i]).read_bytes()
                break
            except OSError:
                # A program that is to survive its daemon tries again.
                if time.monotonic() > limit:
                    raise
                time.sleep(0.05)
        assert got == content(i)
        return i


def sessions(mount: Mount) -> List[Dict[str, Any]]:
    with Client(mount.path) as client:
        found: List[Dict[str, Any]] = client.call("status")["loader"]["sessions"]
        return found


@pytest.mark.parametrize("workers, persistent, release", [(0, False, True), (2, False, True), (2, True, True),
                                                          (2, True, False), (0, False, False)])
def test_batches_across_epochs(mount: Mount, workers: int, persistent: bool, release: bool) -> None:
    data: Any = Numbers(mount.path)
    with PreloadingSampler(BatchSampler(RandomSampler(data), 16, drop_last=False), data.paths, mount.path,
                           lookahead=100, strict=True) as sampler:
        loader: Any = DataLoader(release_after(data, sampler) if release else data, batch_sampler=sampler,
                                 num_workers=workers, persistent_workers=persistent)
        for _ in range(3):
            assert sorted(int(i) for batch in loader for i in batch) == list(range(FILES))
        counters = sampler.client.counters()
        assert counters["preloaded"] >= 2 * FILES
        assert counters["unsent"] == counters["dropped"] == counters["outages"] == 0
        del loader
    assert sessions(mount) == []


def test_single_indices_and_a_batch_size(mount: Mount) -> None:
    data: Any = Numbers(mount.path)
    with PreloadingSampler(RandomSampler(data), data.paths, mount.path, lookahead=100, strict=True) as sampler:
        loader = DataLoader(release_after(data, sampler), batch_size=8, sampler=sampler, num_workers=2)
        assert sorted(int(i) for batch in loader for i in batch) == list(range(FILES))


class Told(Numbers):
    """The same as a program for PAI's service reads it."""

    def __init__(self, mount: Path, client: DatasetFileLoaderClient) -> None:
        super().__init__(mount)
        self.client = client

    def __getitem__(self, i: int) -> int:
        file = DatasetFile(self.paths[i])
        self.client.active_dataset_file(file)
        got = super().__getitem__(i)
        assert self.client.release_dataset_file(file)
        return got


def test_a_sampler_that_announces_file_by_file(mount: Mount) -> None:
    """Each batch is announced just before it is yielded: no worker lets go of a file too early."""
    client = DatasetFileLoaderClient(0, mount.path, ".state/single/", 64)
    data: Any = Told(mount.path, client)

    def batches() -> Iterator[List[int]]:
        for i in range(0, FILES, 10):
            for n in range(i, i + 10):
                if client.get_preload_dataset_files_quota(0) > 0:
                    client.preload_dataset_file(DatasetFile(data.paths[n]))
            yield list(range(i, i + 10))

    loader: Any = DataLoader(data, batch_sampler=batches(), num_workers=2)  # type: ignore[arg-type]
    assert [int(i) for batch in loader for i in batch] == list(range(FILES))
    state = client.status()
    assert (state["ready"]["files"], state["active"]["files"]) == (0, 0)
    assert client.counters()["preloaded"] > 0 and client.counters()["unsent"] == 0
    client.close()


def test_spawned_workers(mount: Mount) -> None:
    data: Any = Numbers(mount.path)
    with PreloadingSampler(BatchSampler(range(64), 16, drop_last=False), data.paths, mount.path, strict=True) as sampler:
        loader = DataLoader(release_after(data, sampler), batch_sampler=sampler, num_workers=1,
                            multiprocessing_context="spawn")
        assert [int(i) for batch in loader for i in batch] == list(range(64))
        # The workers let go of everything.
        assert sampler.client.status()["ready"]["files"] == 0


def ranks(mount: Mount, world: int, epoch: int) -> Iterator[Tuple[int, List[int]]]:
    data: Any = Numbers(mount.path)
    for rank in range(world):
        order = DistributedSampler(data, num_replicas=world, rank=rank, seed=3)
        with PreloadingSampler(BatchSampler(order, 10, drop_last=False), data.paths, mount.path, worker_id=rank,
                               lookahead=60, task="job", strict=True) as sampler:
            sampler.set_epoch(epoch)
            loader = DataLoader(release_after(data, sampler), batch_sampler=sampler, num_workers=1)
            yield rank, [int(i) for batch in loader for i in batch]


def test_ranks_and_another_world_size_on_resume(mount: Mount) -> None:
    orders = []
    for epoch, world in enumerate((2, 4, 1)):
        parts = dict(ranks(mount, world, epoch))
        everything = [i for part in parts.values() for i in part]
        assert sorted(everything) == list(range(FILES))
        orders.append(everything)
    assert orders[0] != orders[1] != orders[2]


def test_a_daemon_that_dies_in_mid_epoch(mount: Mount) -> None:
    data: Any = Numbers(mount.path)
    with PreloadingSampler(BatchSampler(RandomSampler(data), 5, drop_last=False), data.paths, mount.path,
                           lookahead=50) as sampler:
        loader = DataLoader(release_after(data, sampler), batch_sampler=sampler, num_workers=2)
        seen: List[int] = []
        for n, batch in enumerate(loader):
            seen += [int(i) for i in batch]
            if n == 10:
                mount.kill()
                mount.start()
        assert sorted(seen) == list(range(FILES))
        # The next epoch has its hints again.
        eventually(lambda: sampler.client.get_preload_dataset_files_quota(0) > 0 and sampler.client.available)
        before = sampler.client.counters()
        assert before["outages"] >= 1
        assert sorted(int(i) for batch in loader for i in batch) == list(range(FILES))
        after = sampler.client.counters()
        assert after["unsent"] == before["unsent"] and after["preloaded"] > before["preloaded"]


def test_a_worker_that_is_killed(mount: Mount) -> None:
    """PyTorch then ends the job; its successor finds what it held, and all goes on."""
    here = Path(__file__).resolve().parent
    job = subprocess.run([sys.executable, "-B", str(here / "deadly_job.py"), str(mount.path), str(FILES)],
                         env={**os.environ, "PYTHONPATH": str(here.parent)}, capture_output=True)
    assert job.returncode != 0
    eventually(lambda: sum(s["ready"]["files"] for s in sessions(mount)) > 0)
    data: Any = Numbers(mount.path)
    with PreloadingSampler(BatchSampler(range(FILES), 10, drop_last=False), data.paths, mount.path, lookahead=80,
                           strict=True) as sampler:
        assert sampler.client.status()["ready"]["files"] > 0
        loader = DataLoader(release_after(data, sampler), batch_sampler=sampler, num_workers=2)
        assert [int(i) for batch in loader for i in batch] == list(range(FILES))
    assert sessions(mount) == []


def test_a_mount_that_is_none_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "torch").mkdir()
    for i in range(FILES):
        (tmp_path / f"torch/{i:04}").write_bytes(content(i))
    data: Any = Numbers(tmp_path)
    with PreloadingSampler(BatchSampler(RandomSampler(data), 16, drop_last=False), data.paths, tmp_path) as sampler:
        loader = DataLoader(release_after(data, sampler), batch_sampler=sampler, num_workers=2)
        for _ in range(2):
            assert sorted(int(i) for batch in loader for i in batch) == list(range(FILES))
        assert sampler.client.counters()["unsent"] >= 2 * FILES
    assert len([r for r in caplog.records if r.name == "dataset_file_loader"]) == 1
