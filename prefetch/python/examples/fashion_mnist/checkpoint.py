"""Saves the state of a training, and finds the newest one."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import torch

__all__ = ["load_newest", "save"]

_NAME = re.compile(r"epoch(\d+)-step(\d+)\.pt")


def save(directory: Path, state: Dict[str, Any]) -> Path:
    """Writes a checkpoint. It has its name only when it is whole and safe."""
    directory.mkdir(parents=True, exist_ok=True)
    final = directory / f"epoch{state['epoch']:03}-step{state['step']:06}.pt"
    unfinished = final.with_suffix(".pt.tmp")
    with open(unfinished, "wb") as f:
        torch.save(state, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(unfinished, final)
    for older in _found(directory)[:-2]:
        (directory / older[1]).unlink()
    return final


def load_newest(directory: Path) -> Optional[Dict[str, Any]]:
    """The state of the newest checkpoint, None if there is none."""
    found = _found(directory)
    if not found:
        return None
    state: Dict[str, Any] = torch.load(directory / found[-1][1])
    return state


def _found(directory: Path) -> "list[Tuple[Tuple[int, int], str]]":
    if not directory.is_dir():
        return []
    names = ((_NAME.fullmatch(name), name) for name in os.listdir(directory))
    return sorted(((int(m[1]), int(m[2])), name) for m, name in names if m)
