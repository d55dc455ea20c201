"""Shows the whole of it on one machine: make example.

It starts an emulated bucket, loads Fashion-MNIST into it as single files, mounts it,
trains, kills the training in the middle of its second epoch, lets it go on, and draws
the curves. It fails if the accuracy is below what was promised.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

import curves  # noqa: E402
from images import objects  # noqa: E402
from local_mount import Emulator, Mount  # noqa: E402

PREFIX = "fashion-mnist"


def say(text: str) -> None:
    """A line for whoever watches."""
    print(f"example: {text}", file=sys.stderr, flush=True)


def load(emulator: Emulator, train: Optional[int], test: Optional[int]) -> int:
    """Uploads the pictures and returns how many there are."""
    files = [(f"{PREFIX}/{name}", content) for split, limit in (("train", train), ("test", test))
             for name, content in objects(split, limit)]
    emulator.put_all(files)
    return len(files)


def writable(mount: Path) -> bool:
    """Whether files can be made below the mount."""
    probe = mount / "checkpoints"
    try:
        probe.mkdir(exist_ok=True)
    except OSError as e:
        if e.errno in (errno.EROFS, errno.ENOTSUP, errno.ENOSYS):
            return False
        raise
    return True


def train(arguments: List[str], kill: bool) -> List[Dict[str, Any]]:
    """Runs the training and returns what it reported; kills it, if asked to, at its
    first checkpoint inside the second epoch."""
    # Readers whose training was killed may complain, which would only alarm.
    process = subprocess.Popen([sys.executable, str(HERE / "train.py"), *arguments], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.DEVNULL if kill else None)
    assert process.stdout is not None
    events: List[Dict[str, Any]] = []
    with process.stdout:
        for line in process.stdout:
            event = json.loads(line)
            events.append(event)
            if event["event"] == "epoch":
                say(f"epoch {event['epoch']}: loss {event['loss']:.3f}, test accuracy {event['accuracy']:.2%}")
            if kill and event["event"] == "saved" and event["epoch"] == 1 and event["step"] > 0:
                say(f"kill -9 in epoch 2, after step {event['step']}")
                process.kill()
                break
    status = process.wait()
    if kill:
        if status != -9:
            raise SystemExit("example: the training ended before it could be killed")
    elif status != 0:
        raise SystemExit(f"example: the training failed with status {status}")
    return events


def main() -> int:
    """Runs the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=int, help="how many pictures to train with (default 60,000)")
    parser.add_argument("--test", type=int, help="how many to test with (default 10,000)")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--least-accuracy", type=float, default=0.88, help="fail below this (default 0.88)")
    parser.add_argument("--report-every", type=int, default=100, help="steps between reports; every second one saves")
    parser.add_argument("--profile", default="seed", help="how slow the bucket is, as ossemu --profile says")
    parser.add_argument("--no-kill", action="store_true", help="train in one go")
    parser.add_argument("--out", type=Path, default=HERE / "curves.svg", help="file for the curves")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="pailfs-example-") as name:
        work = Path(name)
        began = time.monotonic()
        emulator = Emulator(work / "oss")
        try:
            count = load(emulator, args.train, args.test)
            say(f"{count:,} pictures in the bucket after {time.monotonic() - began:.0f} s")
        finally:
            emulator.stop()
        emulator = Emulator(work / "oss", "--profile", args.profile)
        try:
            mount = Mount(emulator, work)
            try:
                events = run(args, work, mount.path)
            finally:
                mount.stop()
        finally:
            emulator.stop()
    hints = [e for e in events if e["event"] == "hints"][-1]
    accuracy = [e["accuracy"] for e in events if e["event"] == "epoch"][-1]
    say(f"hints: {hints['preloaded']:,} files announced, {hints['unsent']:,} unsent")
    say(f"test accuracy {accuracy:.2%}; the curves are in {os.path.relpath(args.out)}")
    if accuracy < args.least_accuracy:
        say(f"that is less than {args.least_accuracy:.2%}")
        return 1
    return 0


def run(args: argparse.Namespace, work: Path, mount: Path) -> List[Dict[str, Any]]:
    """Trains on the mount, and draws the curves."""
    checkpoints = mount / "checkpoints" if writable(mount) else work / "checkpoints"
    say(f"checkpoints go to the {'mount' if checkpoints.parent == mount else 'local disk, for the mount is read-only'}")
    arguments = ["--data", str(mount / PREFIX), "--mount", str(mount), "--checkpoints", str(checkpoints),
                 "--epochs", str(args.epochs), "--history", str(work / "history.json"),
                 "--report-every", str(args.report_every)]
    began = time.monotonic()
    events: List[Dict[str, Any]] = []
    if args.epochs > 1 and not args.no_kill:
        events += train(arguments, kill=True)
    events += train(arguments, kill=False)
    say(f"trained for {time.monotonic() - began:.0f} s")
    history = json.loads((work / "history.json").read_text())
    final = history["accuracy"][-1][1]
    killed = [e for e in events if e["event"] == "resumed"]
    note = f"{args.epochs} epochs over single files on a pailfs mount, emulated bucket, profile {args.profile}"
    if killed:
        note += f"; killed and resumed in epoch {killed[0]['epoch'] + 1} after step {killed[0]['step']}"
    args.out.write_text(curves.draw(history["loss"], history["accuracy"],
                                    f"Fashion-MNIST: {final:.1%} of the test pictures after {args.epochs} epochs", note))
    return events


if __name__ == "__main__":
    sys.exit(main())
