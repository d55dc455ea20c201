"""Announces which dataset files a training job is going to read.

    client = DatasetFileLoaderClient(worker_id=rank, cpfs_mount_path="/mnt/data/",
                                     persistence_file_path=".dataset_file_persistence/task_1/")

Names and keywords are those of PAI's dataset loading service. The daemon of a pailfs
mount brings the files in before they are read and lets them go after.
"""

from dataset_file_loader.client import DatasetFileLoaderClient
from dataset_file_loader.errors import (
    DatasetFileLoaderError,
    DatasetFileLoaderQuotaError,
    DatasetFileLoaderUnavailableError,
)
from dataset_file_loader.model import DatasetFile

__all__ = [
    "DatasetFile",
    "DatasetFileLoaderClient",
    "DatasetFileLoaderError",
    "DatasetFileLoaderQuotaError",
    "DatasetFileLoaderUnavailableError",
]
