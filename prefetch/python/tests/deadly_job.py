"""A job one of whose workers is killed: python3 deadly_job.py MOUNT FILES."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, List

from torch.utils.data import BatchSampler, DataLoader

from pailfs.torch import PreloadingSampler, release_after


class Deadly:
    """Files whose 200th kills its reader."""

    def __init__(self, paths: List[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> int:
        if i == 200:
            os.kill(os.getpid(), signal.SIGKILL)
        return len(Path(self.paths[i]).read_bytes())


def main() -> None:
    mount, files = sys.argv[1], int(sys.argv[2])
    data: Any = Deadly([f"{mount}/torch/{i:04}" for i in range(files)])
    with PreloadingSampler(BatchSampler(range(files), 10, drop_last=False), data.paths, mount, lookahead=80,
                           strict=True) as sampler:
        for _ in DataLoader(release_after(data, sampler), batch_sampler=sampler, num_workers=2):
            pass


if __name__ == "__main__":
    main()
