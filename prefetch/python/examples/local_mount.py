"""An emulated bucket on this machine, and a pailfs mount of it.

For the examples and the tests, which need both without an account: it starts the
programs `ossemu` and `pailfs` that `make build` leaves in bin/.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import os
import secrets
import signal
import subprocess
import threading
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Tuple

__all__ = ["Emulator", "Mount", "programs"]

# Longer than anything that works takes, on a machine with much else to do.
PATIENCE = 120.0

BUCKET = "data"

# For how long a connection may rest, in seconds: the server ends one that rests for three minutes.
REST = 60.0


def programs() -> Path:
    """The directory of the built programs."""
    return Path(__file__).resolve().parents[3] / "bin"


class Emulator:
    """A running ossemu with one bucket, `data`, whose objects lie below `directory`."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.key_id = "example"
        self.secret = secrets.token_hex(16)
        self._local = threading.local()
        self._connections: List[http.client.HTTPConnection] = []
        directory.mkdir(parents=True, exist_ok=True)
        log = open(directory / "ossemu.log", "ab")
        self._process = subprocess.Popen(
            [str(programs() / "ossemu"), "serve", "--dir", str(directory / "objects"), "--bucket", BUCKET,
             "--addr", "127.0.0.1:0", "--admin", "127.0.0.1:0", *flags],
            env={**os.environ, **self.environment()}, stdout=subprocess.PIPE, stderr=log, text=True)
        log.close()
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("ossemu ready "):
                fields = dict(field.split("=", 1) for field in line.split()[2:])
                self.endpoint, self._admin = fields["endpoint"], fields["admin"]
                return
        raise RuntimeError(f"ossemu did not start, {directory / 'ossemu.log'} says why")

    def environment(self) -> Dict[str, str]:
        """The keys, as pailfs takes them."""
        return {"OSS_ACCESS_KEY_ID": self.key_id, "OSS_ACCESS_KEY_SECRET": self.secret}

    def put(self, key: str, content: bytes) -> None:
        """Uploads one object."""
        self._request("PUT", key, content)

    def put_all(self, objects: Iterable[Tuple[str, bytes]], uploads: int = 4) -> None:
        """Uploads many objects, some at once."""
        with ThreadPoolExecutor(uploads) as pool:
            for _ in pool.map(lambda o: self.put(*o), objects):
                pass

    def delete(self, key: str) -> None:
        """Deletes one object."""
        self._request("DELETE", key)

    def get(self, key: str) -> bytes:
        """The content of an object."""
        return self._request("GET", key)

    def stats(self) -> Dict[str, Any]:
        """What the emulator counted."""
        stats: Dict[str, Any] = json.loads(self._steer("GET", "/stats"))
        return stats

    def faults(self, faults: List[Dict[str, Any]]) -> None:
        """Makes requests fail, until the next call."""
        self._steer("PUT", "/faults", json.dumps(faults).encode())

    def stop(self) -> None:
        """Ends the server; its objects stay."""
        for connection in self._connections:
            connection.close()
        _end(self._process)

    def _request(self, verb: str, key: str, body: bytes = b"") -> bytes:
        date = formatdate(usegmt=True)
        text = f"{verb}\n\napplication/octet-stream\n{date}\n/{BUCKET}/{key}"
        mac = base64.b64encode(hmac.new(self.secret.encode(), text.encode(), hashlib.sha1).digest()).decode()
        headers = {"Date": date, "Content-Type": "application/octet-stream",
                   "Authorization": f"OSS {self.key_id}:{mac}"}
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = http.client.HTTPConnection(_netloc(self.endpoint), timeout=PATIENCE)
            self._connections.append(connection)
        elif time.monotonic() - self._local.used > REST:
            connection.close()  # the request opens it anew
        self._local.used = time.monotonic()
        connection.request(verb, f"/{BUCKET}/{urllib.parse.quote(key)}", body, headers)
        response = connection.getresponse()
        answer: bytes = response.read()
        if response.status // 100 != 2:
            raise RuntimeError(f"{verb} {key}: {response.status} {answer!r}")
        return answer

    def _steer(self, verb: str, path: str, body: Optional[bytes] = None) -> bytes:
        connection = http.client.HTTPConnection(_netloc(self._admin), timeout=PATIENCE)
        try:
            connection.request(verb, path, body)
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if response.status // 100 != 2:
            raise RuntimeError(f"{verb} {path}: {response.status} {answer!r}")
        return answer


class Mount:
    """A mount of the emulated bucket at `directory`/mnt, with its cache beside it."""

    def __init__(self, emulator: Emulator, directory: Path, *flags: str) -> None:
        self.path = directory / "mnt"
        self.log = directory / "pailfs.log"
        self._emulator = emulator
        self._directory = directory
        self._flags = flags
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self.path.mkdir(parents=True, exist_ok=True)
        (directory / "cache").mkdir(mode=0o700, exist_ok=True)
        self.start()

    def start(self) -> None:
        """Mounts, and returns when the mount answers."""
        outside = os.stat(self.path).st_dev
        log = open(self.log, "ab")
        self._process = subprocess.Popen(
            [str(programs() / "pailfs"), "mount", f"oss://{BUCKET}", str(self.path), "--endpoint",
             self._emulator.endpoint, "--cache-dir", str(self._directory / "cache"), *self._flags],
            env={**os.environ, **self._emulator.environment()}, stdout=log, stderr=log)
        log.close()
        limit = time.monotonic() + PATIENCE
        while os.stat(self.path).st_dev == outside:
            if self._process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f"pailfs did not mount: {self.log.read_text()}")
            time.sleep(0.01)

    @property
    def pid(self) -> int:
        """The daemon's process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Ends the daemon as a crash would, and takes the dead mount away."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        subprocess.run(["umount", "-l", str(self.path)], check=True)

    def stop(self) -> None:
        """Unmounts and ends the daemon."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                pass  # The mount is in use. A second signal unmounts it nevertheless.
            _end(self._process)
            subprocess.run(["umount", "-l", str(self.path)], check=False, stderr=subprocess.DEVNULL)


def _netloc(url: str) -> str:
    return urllib.parse.urlsplit(url).netloc


def _end(process: "subprocess.Popen[Any]") -> None:
    process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
