"""Trains on files of a mount, and times the calls that announce them.

Reads a job from standard input and writes what it found, both JSON; see trainhold.go.
"""

import json
import os
import subprocess
import sys
import time

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from dataset_file_loader import DatasetFileLoaderClient
from dataset_file_loader.model import DatasetFile
from pailfs.torch import PreloadingSampler, release_after


class Echo:
    """Another process that returns a byte: what two switches of processes take just then.

    No call of a daemon can take less beside the same readers.
    """

    def __init__(self):
        self._process = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        self.times = []

    def take(self):
        began = time.perf_counter()
        os.write(self._in, b"x")
        os.read(self._out, 1)
        self.times.append(time.perf_counter() - began)

    def end(self):
        self._process.kill()
        self._process.communicate()
        return self.times


class Timed:
    """A client whose calls are timed, each with an echo after it."""

    def __init__(self, client):
        self._client = client
        self.many = []
        self.echo = Echo()

    def __getattr__(self, name):
        return getattr(self._client, name)

    def preload_many(self, files):
        began = time.perf_counter()
        taken = self._client.preload_many(files)
        self.many.append((time.perf_counter() - began, taken))
        self.echo.take()
        return taken


class Files:
    """The size of each file, which is read to its end."""

    def __init__(self, mount, names):
        self.paths = [f"{mount}/{name}" for name in names]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with open(self.paths[i], "rb", buffering=0) as f:
            return len(f.read())


class Single(Files):
    """The same as a program for PAI's service reads it."""

    def __init__(self, mount, names, client):
        super().__init__(mount, names)
        self.client = client

    def __getitem__(self, i):
        file = DatasetFile(dataset_file_path=self.paths[i], sampler_index=0)
        times = [time.perf_counter()]
        self.client.active_dataset_file(file)
        times.append(time.perf_counter())
        super().__getitem__(i)
        times.append(time.perf_counter())
        self.client.release_dataset_file(file)
        times.append(time.perf_counter())
        return times[1] - times[0], times[3] - times[2]


def epoch(loader, compute):
    """Goes through an epoch; the part of the time that was computed, without the first step, and all items."""
    steps, items, second = 0, [], 0.0
    for batch in loader:
        items += batch
        time.sleep(compute)
        steps += 1
        if steps == 1:
            second = time.perf_counter()
    return (steps - 1) * compute / (time.perf_counter() - second), items


def batched(job):
    """An epoch with PreloadingSampler."""
    data = Files(job["mount"], job["names"])
    client = Timed(DatasetFileLoaderClient(0, job["mount"], ".bench/batched", 4096, strict=True))
    batches = BatchSampler(RandomSampler(data), job["batch"], drop_last=True)
    sampler = PreloadingSampler(batches, data.paths, client=client)
    loader = DataLoader(release_after(data, sampler), batch_sampler=sampler, num_workers=job["workers"], collate_fn=list)
    utilisation, _ = epoch(loader, job["compute"])
    unsent = client.counters()["unsent"]
    client.close()
    return utilisation, client.many, client.echo.end(), unsent


def single(job):
    """An epoch whose sampler announces file by file, as seeds/003 shows."""
    client = DatasetFileLoaderClient(worker_id=0, cpfs_mount_path=job["mount"],
                                     persistence_file_path=".bench/single/", preload_request_buffer_size=512)
    data = Single(job["mount"], job["names"][:job["calls"]], client)
    order = list(RandomSampler(data))
    calls, echo = [], Echo()

    def sample():
        told = 0
        for i in range(0, len(order) - job["batch"] + 1, job["batch"]):
            for _ in range(client.get_preload_dataset_files_quota(0)):
                if told == len(order):
                    break
                file = DatasetFile(dataset_file_path=data.paths[order[told]], sampler_index=0)
                began = time.perf_counter()
                client.preload_dataset_file(file)
                calls.append(time.perf_counter() - began)
                echo.take()
                told += 1
            yield order[i:i + job["batch"]]

    class Sampler:
        def __iter__(self):
            return sample()

        def __len__(self):
            return len(order) // job["batch"]

    loader = DataLoader(data, batch_sampler=Sampler(), num_workers=job["workers"], collate_fn=list)
    _, items = epoch(loader, job["compute"])
    unsent = client.counters()["unsent"]
    client.close()
    return calls, echo.end(), [i[0] for i in items], [i[1] for i in items], unsent


def main():
    torch.set_num_threads(1)
    job = json.load(sys.stdin)
    utilisation, many, many_echo, unsent = batched(job)
    one, one_echo, active, release, more = single(job)
    json.dump({"utilisation": utilisation, "many": many, "many_echo": many_echo, "one": one, "one_echo": one_echo,
               "active": active, "release": release, "unsent": unsent + more}, sys.stdout)


if __name__ == "__main__":
    main()
