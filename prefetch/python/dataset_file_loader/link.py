"""Keeps a session with the daemon, or knows why there is none."""

from __future__ import annotations

import logging
import threading
import time
from typing import Callable, Optional, TypeVar

from pailfs.control import Client
from pailfs.errors import ControlError, PailfsError
from pailfs.session import Opened, Session, SessionConfig

__all__ = ["Link", "Unavailable"]

_T = TypeVar("_T")

log = logging.getLogger("dataset_file_loader")

# Seconds between attempts to reach a daemon that was not reached.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0

# A session that is lost so often is probably wanted by two.
_SUSPICIOUS_REOPENS = 3

# Codes of failures that say nothing of the next call.
_PASSING = ("over-quota", "busy", "canceled", "too-large", "failed", "bad-request", "internal")


class Unavailable(Exception):
    """The daemon could not be told."""


class Link:
    """Opens the session when it is needed, again when the daemon lost it.

    An attempt that failed is repeated after a second, then less and less often, so that
    a daemon that is not there costs next to nothing. Each outage is logged once.
    """

    def __init__(self, mount: str, config: SessionConfig, now: Callable[[], float] = time.monotonic) -> None:
        self.mount = mount
        self.config = config
        self.reopened = 0
        self.outages = 0
        # reason says why there is no session at present.
        self.reason: Optional[str] = None
        # renewed is called with a session that took the place of another.
        self.renewed: Callable[[Session], None] = lambda session: None
        self._now = now
        self._lock = threading.RLock()
        self._caller: Optional[Client] = None
        self._session: Optional[Session] = None
        self._had_session = False
        self._retry_at = 0.0
        self._pause = _FIRST_PAUSE
        self._closed = False
        self._told_persistence = False
        self._told_rival = False
        self._told_passing = False

    @property
    def opened(self) -> Optional[Opened]:
        """What the daemon said when the session was opened, if there is one."""
        session = self._session
        return None if session is None else session.opened

    def run(self, operation: Callable[[Session], _T]) -> _T:
        """Calls `operation` with the session. Raises Unavailable where that fails."""
        session = self._current()
        try:
            return operation(session)
        except ControlError as e:
            if e.code != "no-session":
                raise self._failed(session, e) from e
        except (PailfsError, OSError, UnicodeEncodeError) as e:
            raise self._failed(session, e) from e
        # The daemon has forgotten the session: once more with a new one.
        session = self._reopen(session)
        try:
            return operation(session)
        except (PailfsError, OSError, UnicodeEncodeError) as e:
            raise self._failed(session, e) from e

    def close(self, end_session: bool, keep: bool) -> None:
        """Lets go of the daemon, and of the session if it is to end."""
        with self._lock:
            self._closed = True
            session, self._session = self._session, None
            caller, self._caller = self._caller, None
            self.reason = "the client is closed"
        try:
            if end_session and session is not None:
                session.close(keep)
        except (PailfsError, OSError) as e:
            log.info("session of %s not closed, its lease ends by itself: %s", self.mount, e)
        finally:
            if caller is not None:
                caller.close()

    def after_fork(self) -> None:
        """Makes the link usable in a child: the parent's other threads are not here."""
        self._lock = threading.RLock()

    def _current(self) -> Session:
        session = self._session
        if session is not None:
            return session
        with self._lock:
            if self._session is not None:
                return self._session
            if self._closed:
                raise Unavailable(self.reason)
            if self._now() < self._retry_at:
                raise Unavailable(self.reason)
            return self._open()

    def _reopen(self, lost: Session) -> Session:
        with self._lock:
            if self._session is lost:
                self._session = None
            self.reopened += 1
            if self.reopened >= _SUSPICIOUS_REOPENS and not self._told_rival:
                self._told_rival = True
                log.warning("the session of worker %d of task %r at %s was lost %d times: perhaps another process uses "
                            "the same worker_id; give each its LOCAL_RANK",
                            self.config.worker, self.config.task, self.mount, self.reopened)
            return self._session or self._current()

    def _open(self) -> Session:
        """Opens a session. The lock is held."""
        try:
            if self._caller is None:
                self._caller = Client(self.mount)
            session = Session.open(self._caller, self.config)
        except (PailfsError, OSError) as e:
            raise self._down(e) from e
        again, self._had_session = self._had_session, True
        if self.reason is not None:
            log.warning("dataset file hints reach the daemon of %s again", self.mount)
        self.reason = None
        self._pause = _FIRST_PAUSE
        self._session = session
        self._tell_persistence(session)
        if again:
            try:
                self.renewed(session)
            except (PailfsError, OSError) as e:
                raise self._down(e) from e
        return session

    def _failed(self, session: Session, e: Exception) -> Unavailable:
        """What a call's failure means for the session."""
        if isinstance(e, UnicodeEncodeError) or (isinstance(e, ControlError) and e.code in _PASSING):
            with self._lock:
                told, self._told_passing = self._told_passing, True
            log.log(logging.DEBUG if told else logging.WARNING,
                    "the daemon of %s did not take a dataset file hint, training goes on: %s", self.mount, e)
            return Unavailable(str(e))
        with self._lock:
            if self._closed:
                return Unavailable("the client is closed")
            if self._session is not session:
                # Somebody else noticed before, and may even have opened another.
                return Unavailable(str(e))
            return self._down(e)

    def _down(self, e: Exception) -> Unavailable:
        """Notes that there is no daemon to talk to. The lock is held."""
        self._session = None
        self._retry_at = self._now() + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        if self.reason is None:
            self.outages += 1
            log.warning("dataset file hints do not reach a pailfs daemon, training goes on without them: %s", e)
        self.reason = str(e)
        return Unavailable(self.reason)

    def _tell_persistence(self, session: Session) -> None:
        where = session.opened.persistence
        if where.get("kind", "mount") == "mount" or self._told_persistence:
            return
        self._told_persistence = True
        place = "stays on this node" if where["kind"] == "node" else "is not kept"
        log.warning("the state of task %r %s, another node cannot resume warm: %s",
                    self.config.task, place, where.get("reason", "the mount does not take it"))
