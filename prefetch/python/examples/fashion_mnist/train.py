"""Trains a small convolutional network on pictures that lie on a pailfs mount.

    python3 train.py --data /mnt/data/fashion-mnist --mount /mnt/data --checkpoints /mnt/data/checkpoints

Begun again after it was killed, it goes on at its newest checkpoint and ends with the
same weights, to the bit, that it would have had.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List

import torch
from torch import nn

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

import checkpoint  # noqa: E402
from images import CLASSES, Images  # noqa: E402
from pailfs.torch import PreloadingSampler, release_after  # noqa: E402


class ShuffledBatches:
    """Batches in an order that depends on seed and epoch only, from a step on."""

    def __init__(self, length: int, size: int, seed: int) -> None:
        self.length, self.size, self.seed = length, size, seed
        self.epoch = 0
        self.first = 0

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[List[int]]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(self.length, generator=generator).tolist()
        batches = [order[i:i + self.size] for i in range(0, self.length, self.size)]
        return iter(batches[self.first:])

    def __len__(self) -> int:
        return -(-self.length // self.size) - self.first


def network() -> nn.Module:
    """Two convolutions and two full layers: 114,000 weights."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 5 * 5, 128), nn.ReLU(), nn.Linear(128, len(CLASSES)),
    )


class Training:
    """The state of a training, and how it goes on."""

    def __init__(self, args: argparse.Namespace) -> None:
        torch.manual_seed(args.seed)
        self.args = args
        self.train_images = Images(args.data, "train")
        self.test_images = Images(args.data, "test")
        self.batches = ShuffledBatches(len(self.train_images), args.batch_size, args.seed)
        self.model = network()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, args.lr, total_steps=args.epochs * len(self.batches))
        self.lossfunction = nn.CrossEntropyLoss()
        self.epoch = 0
        self.step = 0
        self.history: Dict[str, List[Any]] = {"loss": [], "accuracy": []}

    def resume(self) -> None:
        """Goes on at the newest checkpoint, if there is one."""
        state = checkpoint.load_newest(self.args.checkpoints)
        if state is None:
            return
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.epoch, self.step, self.history = state["epoch"], state["step"], state["history"]
        report("resumed", epoch=self.epoch, step=self.step)

    def save(self) -> None:
        """Writes a checkpoint."""
        path = checkpoint.save(self.args.checkpoints, {
            "epoch": self.epoch, "step": self.step, "history": self.history, "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(), "schedule": self.schedule.state_dict()})
        report("saved", path=str(path), epoch=self.epoch, step=self.step)

    def run(self) -> None:
        """Trains until the last epoch is done."""
        a = self.args
        with PreloadingSampler(self.batches, self.train_images.paths, a.mount, task=a.task, strict=a.strict) as sampler:
            loader: Any = torch.utils.data.DataLoader(release_after(self.train_images, sampler), batch_sampler=sampler,
                                                 num_workers=a.workers, persistent_workers=a.workers > 0)
            while self.epoch < a.epochs:
                sampler.set_epoch(self.epoch)
                self.batches.first = self.step
                self.train(loader)
                self.epoch, self.step, self.batches.first = self.epoch + 1, 0, 0
                accuracy = self.test()
                self.history["accuracy"].append([self.epoch * len(self.batches), accuracy])
                report("epoch", epoch=self.epoch, accuracy=accuracy, loss=self.history["loss"][-1][1])
                self.save()
            report("hints", **sampler.client.counters(), available=sampler.client.available)

    def train(self, loader: Any) -> None:
        """What remains of one epoch."""
        self.model.train()
        steps = -(-len(self.train_images) // self.args.batch_size)
        recent: List[float] = []
        for pictures, labels in loader:
            self.optimizer.zero_grad()
            loss = self.lossfunction(self.model(pictures), labels)
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            self.step += 1
            recent.append(float(loss))
            if self.step % self.args.report_every == 0 or self.step == steps:
                mean = sum(recent) / len(recent)
                self.history["loss"].append([self.epoch * steps + self.step, mean])
                report("step", epoch=self.epoch, step=self.step, steps=steps, loss=mean)
                recent = []
                if self.step % (self.args.report_every * 2) == 0 and self.step < steps:
                    self.save()

    def test(self) -> float:
        """The share of test pictures that are recognised."""
        self.model.eval()
        right = 0
        with torch.no_grad():
            for pictures, labels in torch.utils.data.DataLoader(self.test_images, batch_size=500):
                right += int((self.model(pictures).argmax(1) == labels).sum())
        return right / len(self.test_images)


def report(event: str, **what: Any) -> None:
    """One line of JSON on standard output."""
    print(json.dumps({"event": event, **what}), flush=True)


def main() -> int:
    """Reads the arguments, trains, and writes the history."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds train/ and test/")
    parser.add_argument("--mount", type=Path, required=True, help="the mount that it lies in")
    parser.add_argument("--checkpoints", type=Path, required=True, help="folder for checkpoints")
    parser.add_argument("--task", default="fashion-mnist", help="name of the job, under which its state is kept")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.004, help="highest learning rate of the one-cycle schedule")
    parser.add_argument("--workers", type=int, default=1, help="processes that read pictures")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="threads that compute")
    parser.add_argument("--report-every", type=int, default=100, help="steps between reports; every second one saves")
    parser.add_argument("--strict", action="store_true", help="fail where the daemon does not take hints")
    parser.add_argument("--history", type=Path, help="file for the curves' figures")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    training = Training(args)
    training.resume()
    training.run()
    if args.history:
        args.history.write_text(json.dumps(training.history))
    return 0


if __name__ == "__main__":
    sys.exit(main())
