"""The training example at reduced size: one epoch, then death and resumption."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List
from xml.etree import ElementTree

import pytest

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "fashion_mnist"
sys.path[:0] = [str(EXAMPLE)]

import curves  # noqa: E402
import images  # noqa: E402
from local_mount import Emulator, Mount  # noqa: E402

TRAIN, TEST = 3000, 500


@pytest.fixture(scope="module")
def data(emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Any:
    emulator.put_all((f"fashion/{name}", content) for split, limit in (("train", TRAIN), ("test", TEST))
                     for name, content in images.objects(split, limit))
    mount = Mount(emulator, tmp_path_factory.mktemp("example"))
    yield mount.path / "fashion"
    mount.stop()


class Run:
    """A training process."""

    def __init__(self, data: Path, work: Path, *flags: str) -> None:
        self.history = work / "history.json"
        self.process = subprocess.Popen(
            [sys.executable, "-B", str(EXAMPLE / "train.py"), "--data", str(data), "--mount", str(data.parent),
             "--checkpoints", str(work / "checkpoints"), "--history", str(self.history), "--report-every", "5", *flags],
            stdout=subprocess.PIPE, text=True)

    def events(self) -> List[Dict[str, Any]]:
        """Everything reported, when the training is done."""
        out, _ = self.process.communicate()
        assert self.process.returncode == 0
        return [json.loads(line) for line in out.splitlines()]

    def kill_after_save(self, epoch: int) -> None:
        """Kills the training after its first checkpoint inside this epoch."""
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                event = json.loads(line)
                if event["event"] == "saved" and event["epoch"] == epoch and event["step"]:
                    self.process.kill()  # while what it says can still be read
                    break
            else:
                raise AssertionError("there was no such checkpoint")
            assert self.process.wait() == -signal.SIGKILL


def test_every_picture_is_read_as_it_was_written(data: Path) -> None:
    written = {f"fashion/{name}": content for name, content in images.objects("train", TRAIN)}
    pictures = images.Images(data, "train")
    assert len(pictures) == TRAIN
    names = [str(Path(path).relative_to(data.parent)) for path in pictures.paths]
    assert sorted(names) == sorted(written)
    for i in range(0, TRAIN, 97):
        pixels, label = pictures[i]
        assert names[i].split("/")[2] == images.CLASSES[label]
        assert bytes((pixels * 255).round().byte().flatten().tolist()) == written[names[i]][-784:]


def test_one_epoch_learns(data: Path, tmp_path: Path) -> None:
    events = Run(data, tmp_path, "--epochs", "1").events()
    epoch = [e for e in events if e["event"] == "epoch"]
    # Guessing gives 0.1. The generator is seeded and one thread computes.
    assert len(epoch) == 1 and epoch[0]["accuracy"] > 0.6
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def test_a_killed_training_ends_as_it_would_have(data: Path, tmp_path: Path) -> None:
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    flags = ("--epochs", "2")
    whole = Run(data, tmp_path / "whole", *flags)
    expected = whole.events()
    Run(data, tmp_path / "killed", *flags).kill_after_save(epoch=1)
    second = Run(data, tmp_path / "killed", *flags)
    events = second.events()
    assert events[0]["event"] == "resumed" and events[0]["epoch"] == 1 and events[0]["step"] > 0
    assert [e for e in events if e["event"] == "epoch"] == [e for e in expected if e["event"] == "epoch"][1:]
    assert json.loads(second.history.read_text())["accuracy"] == json.loads(whole.history.read_text())["accuracy"]
    assert json.loads(second.history.read_text())["loss"] == json.loads(whole.history.read_text())["loss"]


def test_the_curves_are_a_picture_with_every_point() -> None:
    picture = ElementTree.fromstring(curves.draw([(10, 2.0), (20, 1.0), (30, 0.5)], [(15, 0.6), (30, 0.885)], "T < 1", "n & m"))
    lines = [e.get("points", "").split() for e in picture.iter("{http://www.w3.org/2000/svg}polyline")]
    assert [len(line) for line in lines] == [3, 2]
    texts = [e.text for e in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "T < 1" in texts and "n & m" in texts and "88.5" in texts
