"""The loader's side of a daemon, as simple as its rules allow."""

from __future__ import annotations

import threading
from typing import Any, Dict, List, Optional, Tuple

from pailfs import frames
from pailfs.errors import ControlError

Key = Tuple[int, int, str]


class FakeDaemon:
    """Keeps sessions and what they hold. Every file is ready at once, unless it is in
    `missing`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.room = 1 << 40
        # names is for how many files a user's budget of names has room, in all sessions.
        self.names = 1 << 40
        self.persistence: Dict[str, str] = {"kind": "mount", "path": "p"}
        self.missing: set[str] = set()
        # down is raised by every call while it is set.
        self.down: Optional[Exception] = None
        self.requests: List[Tuple[str, Dict[str, Any]]] = []
        self.sessions: Dict[str, Tuple[str, int]] = {}
        self.buffers: Dict[Tuple[str, int], int] = {}
        self.held: Dict[Tuple[str, int], Dict[Key, str]] = {}
        self.most_held = 0
        # taken are the paths that were announced, in their order.
        self.taken: List[str] = []
        self.clients: List["FakeClient"] = []

    def connect(self, path: str) -> "FakeClient":
        client = FakeClient(self, path)
        self.clients.append(client)
        return client

    def restart(self) -> None:
        """Begins anew, without any memory."""
        self.sessions.clear()
        self.held.clear()
        self.buffers.clear()

    def paths(self, task: str = "default", worker: int = 0) -> List[str]:
        """What a worker holds, in the order of its announcement."""
        return [path for _, _, path in self.held.get((task, worker), {})]

    def methods(self) -> List[str]:
        return [method for method, _ in self.requests]

    def call(self, method: str, params: Any) -> Any:
        with self.lock:
            assert len(frames.encode_request(method, params)) <= frames.MAX_PAYLOAD
            self.requests.append((method, params))
            if self.down is not None:
                raise self.down
            if method == "loader.open":
                return self._open(params)
            who = self.sessions.get(params["session"])
            if who is None:
                raise ControlError("no-session", "no such session")
            answer = getattr(self, "_" + method.replace(".", "_"))(who, params)
            self.most_held = max(self.most_held, sum(map(len, self.held.values())))
            return answer

    def _open(self, p: Dict[str, Any]) -> Dict[str, Any]:
        who = (p["task"], p["worker"])
        self.buffers[who] = p["buffer"]
        adopted = len(self.held.setdefault(who, {}))
        session = f"{len(self.requests):x}"
        self.sessions[session] = who
        return {"session": session, "adopted": adopted, "quota": self._quota(who, 0), "budget_bytes": self.room,
                "lease_seconds": 1800, "persistence": self.persistence, "something_new": True}

    def _quota(self, who: Tuple[str, int], index: int) -> int:
        outstanding = sum(1 for key, state in self.held[who].items() if key[0] == index and state != "active")
        room = self.room - sum(map(len, self.held.values()))
        return max(0, min(self.buffers[who] - outstanding, room, self._names_left()))

    def _names_left(self) -> int:
        return self.names - sum(map(len, self.held.values()))

    def _keys(self, p: Dict[str, Any]) -> List[Key]:
        return [(p.get("index", 0), p.get("seq", 0), p.get("base", "") + path) for path in p["paths"]]

    def _loader_quota(self, who: Tuple[str, int], p: Dict[str, Any]) -> Dict[str, Any]:
        return {"quota": self._quota(who, p["index"])}

    def _loader_preload(self, who: Tuple[str, int], p: Dict[str, Any]) -> Dict[str, Any]:
        accepted = over = already = no_room = 0
        for key in self._keys(p):
            if key in self.held[who]:
                already += 1
            elif self._names_left() <= 0:
                no_room = len(p["paths"]) - accepted
                break
            elif self._quota(who, key[0]) == 0:
                outstanding = sum(1 for k in self.held[who] if k[0] == key[0])
                if outstanding >= 5 * self.buffers[who]:
                    break
                over += 1
            if key not in self.held[who]:
                self.taken.append(key[2])
            self.held[who].setdefault(key, "ready")
            accepted += 1
        return {"accepted": accepted, "over": over, "dropped": len(p["paths"]) - accepted,
                "quota": self._quota(who, p["index"]), "held": already, **({"no_room": no_room} if no_room else {})}

    def _loader_active(self, who: Tuple[str, int], p: Dict[str, Any]) -> Dict[str, Any]:
        implicit = sum(1 for key in self._keys(p) if key not in self.held[who])
        for key in self._keys(p):
            self.held[who][key] = "active"
        return {"implicit": implicit}

    def _loader_release(self, who: Tuple[str, int], p: Dict[str, Any]) -> Dict[str, Any]:
        released = sum(1 for key in self._keys(p) if self.held[who].pop(key, None) is not None)
        return {"released": released, "unknown": len(p["paths"]) - released}

    def _loader_wait(self, who: Tuple[str, int], p: Dict[str, Any]) -> Dict[str, Any]:
        return {"done": True, "files": self._files(who, p)}

    def _loader_status(self, who: Tuple[str, int], p: Dict[str, Any]) -> Dict[str, Any]:
        if "paths" in p:
            return {"files": self._files(who, p)}
        return {"session": {"task": who[0], "worker": who[1], "buffer": self.buffers[who]}}

    def _files(self, who: Tuple[str, int], p: Dict[str, Any]) -> List[Dict[str, Any]]:
        return [{"path": key[2], "state": "failed", "errno": "ENOENT", "error": "no such object"}
                if key[2] in self.missing else {"path": key[2], "state": self.held[who].get(key, "unknown")}
                for key in self._keys(p)]

    def _loader_renew(self, who: Tuple[str, int], p: Dict[str, Any]) -> Dict[str, Any]:
        return {"lease_seconds": 1800}

    def _loader_close(self, who: Tuple[str, int], p: Dict[str, Any]) -> Dict[str, Any]:
        del self.sessions[p["session"]]
        released = 0 if p["keep"] else len(self.held.pop(who, {}))
        return {"released": released}


class FakeClient:
    """Stands for `pailfs.control.Client`."""

    def __init__(self, daemon: FakeDaemon, path: str) -> None:
        self.daemon = daemon
        self.path = path
        self.closed = False

    def call(self, method: str, params: Optional[Any] = None, *, timeout: Optional[float] = None) -> Any:
        return self.daemon.call(method, params)

    def close(self) -> None:
        self.closed = True
