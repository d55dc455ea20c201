"""The commands and programs of README.md, run as they are written."""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from conftest import MakeMount
from local_mount import Emulator

HERE = Path(__file__).resolve().parents[1]
FILES = 96


def blocks(language: str) -> List[str]:
    """What README.md has between ``` lines."""
    fenced = (HERE / "README.md").read_text().split("```")[1::2]
    return [body for first, _, body in (block.partition("\n") for block in fenced) if first == language]


class Dataset:
    """Files of the mount, named as the README names them."""

    def __init__(self, names: List[str], mount: Path) -> None:
        self.paths = names
        self.mount = mount

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> int:
        return len((self.mount / self.paths[i]).read_bytes())


def test_the_commands(emulator: Emulator, make_mount: MakeMount) -> None:
    emulator.put("readme/file", b"x")
    mount = make_mount()
    (commands,) = blocks("")
    commands = commands.replace("/path/to/pailfs/prefetch/python", str(HERE)).replace("/mnt/data", str(mount.path))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    said = subprocess.run(["bash", "-euc", commands], env=environment, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert said.stdout.strip()


def test_the_programs(emulator: Emulator, make_mount: MakeMount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    torch.set_num_threads(1)
    names = [f"readme/{i:03}" for i in range(FILES)]
    emulator.put_all((name, b"x" * (100 + i)) for i, name in enumerate(names))
    mount = make_mount()
    for program in blocks("python"):
        said: Dict[str, Any] = {
            "BatchSampler": BatchSampler, "DataLoader": DataLoader, "RandomSampler": RandomSampler, "os": os,
            "ds": Dataset(names, mount.path), "paths": itertools.cycle(names), "path": names[0], "index": 0,
        }
        exec(program.replace("/mnt/data", str(mount.path)), said)
        if "loader" in said:
            assert sorted(int(size) for batch in said["loader"] for size in batch) == [100 + i for i in range(FILES)]
            counters = said["sampler"].client.counters()
            assert counters["preloaded"] == FILES and counters["unsent"] == 0
            said["sampler"].close()
        else:
            counters = said["client"].counters()
            assert counters["preloaded"] == 20 and counters["released"] == 1 and counters["unsent"] == 0
            said["client"].close()
