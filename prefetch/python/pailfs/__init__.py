"""Talks to the pailfs daemon behind a mount.

`pailfs.control` carries calls to the daemon, `pailfs.session` announces which files
a training job will read, and `pailfs.torch` does so around a PyTorch sampler. All of
it is pure standard library; PyTorch is used only where a program has it.

The package `dataset_file_loader` beside this one is the client that programs written
for PAI's dataset loading service import.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
