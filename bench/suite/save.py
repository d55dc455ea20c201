"""Calls torch.save again and again, as a training loop does, and says how long each call took.

A job comes as one line of JSON; the answer goes out as one. The same tensors under the same
file names make the same bytes, which is how what arrives elsewhere is checked: with "reference"
set, what is left at the end is saved there once more, off the clock.
"""

import json
import mmap
import os
import sys
import time

job = json.loads(sys.stdin.readline())
try:
    import torch
except ImportError:
    sys.exit("there is no torch for /usr/bin/python3: install python3-torch")

torch.manual_seed(7)
layers = 16
state = {
    "model": {f"layers.{i}.weight": torch.empty(job["bytes"] // layers // 4, dtype=torch.int32).random_() for i in range(layers)},
    "step": 0,
}
for tensor in state["model"].values():
    tensor[: job["rounds"]] = 0


def save(directory, step):
    state["step"] = step
    for tensor in state["model"].values():
        tensor[step] = step
    torch.save(state, os.path.join(directory, f"step-{step}.pt"))


def prepare():
    """Uses once the memory that the next save will want: what was given back since the last may
    have gone to the machine's host, and to get it again takes longer than all else."""
    size = job["bytes"] + job["bytes"] // 8
    mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


stalls = []
due, ready = time.monotonic(), 0
began = time.time_ns()
for step in range(job["rounds"]):
    if step > job["keep"]:
        os.remove(os.path.join(job["root"], f"step-{step - job['keep'] - 1}.pt"))
    time.sleep(max(0, due - ready - time.monotonic()))
    start = time.monotonic()
    prepare()
    ready = time.monotonic() - start
    start = time.monotonic()
    save(job["root"], step)
    stalls.append(time.monotonic() - start)
    due = start + job["every"]
seconds = time.time_ns() - began

left = sorted(os.listdir(job["root"]))
if job.get("reference"):
    # Backwards: an earlier file has nothing of what a later step has set.
    for step in range(job["rounds"] - 1, max(-1, job["rounds"] - job["keep"] - 2), -1):
        save(job["reference"], step)
        for tensor in state["model"].values():
            tensor[step] = 0
print(json.dumps({"began": began, "seconds": seconds / 1e9, "stalls": stalls, "left": left}))
