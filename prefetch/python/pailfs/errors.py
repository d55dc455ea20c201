"""What can go wrong between a program and the daemon behind a mount."""

from __future__ import annotations

__all__ = ["ControlError", "DaemonGoneError", "NotPailfsError", "PailfsError", "ProtocolError"]


class PailfsError(Exception):
    """The parent of every error of this package."""


class NotPailfsError(PailfsError):
    """The path is not in a pailfs mount."""


class DaemonGoneError(PailfsError):
    """The daemon that served the mount has ended.

    If it ended during a call, what the call did is unknown. The mount has to be
    unmounted before it can be mounted again.
    """


class ProtocolError(PailfsError):
    """The daemon answered something that no sound daemon answers."""


class ControlError(PailfsError):
    """The daemon refused a call, or the call failed.

    `code` is for programs (PROTOCOL.md lists the codes), `message` for people.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"
