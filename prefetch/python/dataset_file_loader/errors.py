"""What a client under `strict` raises. Without `strict` none of it is ever raised."""

from __future__ import annotations

__all__ = ["DatasetFileLoaderError", "DatasetFileLoaderQuotaError", "DatasetFileLoaderUnavailableError"]


class DatasetFileLoaderError(Exception):
    """The parent of the others."""


class DatasetFileLoaderQuotaError(DatasetFileLoaderError):
    """More files were announced than the quota allowed.

    The first `accepted` of them are remembered nevertheless.
    """

    def __init__(self, message: str, accepted: int) -> None:
        super().__init__(message, accepted)
        self.accepted = accepted

    def __str__(self) -> str:
        return str(self.args[0])


class DatasetFileLoaderUnavailableError(DatasetFileLoaderError):
    """The daemon could not be told, for the reason that the message gives."""
