"""The loader's methods on a real mount: what is announced comes, and what is let go may go."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest

from conftest import MakeMount, eventually
from dataset_file_loader import (DatasetFile, DatasetFileLoaderClient, DatasetFileLoaderQuotaError,
                                 DatasetFileLoaderUnavailableError)
from local_mount import Emulator, Mount
from pailfs.control import Client

Clients = Callable[..., DatasetFileLoaderClient]

# Nothing here takes so long that works.
PATIENCE = 120


@pytest.fixture
def client_of() -> Iterator[Clients]:
    """Makes strict clients that are closed before the mounts end."""
    made: List[DatasetFileLoaderClient] = []

    def make(mount: "Mount | Path", **keywords: Any) -> DatasetFileLoaderClient:
        path = mount.path if isinstance(mount, Mount) else mount
        keywords = {"worker_id": 0, "cpfs_mount_path": path, "persistence_file_path": ".loader/task",
                    "strict": True, **keywords}
        made.append(DatasetFileLoaderClient(**keywords))
        return made[-1]

    yield make
    for client in made:
        client.close()


def content(name: str, size: int = 3000) -> bytes:
    return (name.encode() * (size // len(name) + 1))[:size]


def put(emulator: Emulator, folder: str, n: int) -> List[str]:
    names = [f"{folder}/{i:04}" for i in range(n)]
    emulator.put_all((name, content(name)) for name in names)
    return names


def files(*paths: str) -> List[DatasetFile]:
    return [DatasetFile(path, 0) for path in paths]


def gets(emulator: Emulator) -> int:
    operations: Dict[str, Any] = emulator.stats()["operations"]
    return int(operations.get("GetObject", {}).get("requests", 0))


def test_what_is_ready_is_read_without_a_request(emulator: Emulator, make_mount: MakeMount, client_of: Clients) -> None:
    names = put(emulator, "ready", 50)
    mount = make_mount()
    client = client_of(mount, preload_request_buffer_size=100)
    assert client.get_preload_dataset_files_quota(0) == 100
    assert client.preload_many(files(*names)) == 50
    assert client.wait_ready(files(*names), PATIENCE)
    assert {client.status(f)["state"] for f in files(*names)} == {"ready"}
    before = gets(emulator)
    for name in names:
        assert (mount.path / name).read_bytes() == content(name)
    assert gets(emulator) == before
    client.active_many(files(*names))
    assert client.status(DatasetFile(names[0]))["state"] == "active"
    assert client.release_many(files(*names)) == 50
    assert client.status(DatasetFile(names[0]))["state"] == "unknown"
    assert client.counters()["unsent"] == 0


def test_a_folder_is_one_announcement(emulator: Emulator, make_mount: MakeMount, client_of: Clients) -> None:
    names = put(emulator, "folder/inner", 20)
    mount = make_mount()
    client = client_of(mount)
    assert client.preload_dataset_file(DatasetFile("folder/"))
    assert client.wait_ready(DatasetFile("folder/"), PATIENCE)
    status = client.status(DatasetFile("folder"))
    assert (status["files"], status["bytes"]) == (20, 20 * 3000)
    before = gets(emulator)
    for name in names:
        assert (mount.path / name).read_bytes() == content(name)
    assert gets(emulator) == before


def test_missing_files_fail_and_nothing_else_does(emulator: Emulator, make_mount: MakeMount, client_of: Clients) -> None:
    names = put(emulator, "missing", 3)
    mount = make_mount()
    client = client_of(mount)
    client.preload_many(files("missing/none", *names, "missing/none/below"))
    assert not client.wait_ready(files("missing/none"), PATIENCE)
    status = client.status(DatasetFile("missing/none"))
    assert (status["state"], status["errno"]) == ("failed", "ENOENT")
    assert client.wait_ready(files(*names), PATIENCE)
    with pytest.raises(FileNotFoundError):
        (mount.path / "missing/none").read_bytes()


def test_objects_that_change_are_never_mixed(emulator: Emulator, make_mount: MakeMount, client_of: Clients) -> None:
    size = 200_000
    emulator.put("change/file", content("old", size))
    mount = make_mount("--metadata-ttl", "1s")
    client = client_of(mount)
    client.preload_many(files("change/file"))
    assert client.wait_ready(DatasetFile("change/file"), PATIENCE)
    emulator.put("change/file", content("new", size))

    def read() -> bytes:
        try:
            return (mount.path / "change/file").read_bytes()
        except OSError as e:
            # The version that was open is gone.
            assert e.errno == errno.ESTALE
            return b""

    def is_new() -> bool:
        got = read()
        assert got in (content("old", size), content("new", size), b"")
        return got == content("new", size)

    eventually(is_new)


def test_paths_that_lead_out_never_reach_the_daemon(make_mount: MakeMount, client_of: Clients) -> None:
    client = client_of(make_mount())
    for path in ("../x", "a/../../x", "/etc/passwd"):
        with pytest.raises(ValueError):
            client.preload_dataset_file(DatasetFile(path))
    assert client.counters()["unsent"] == 0


def test_who_ignores_the_quota_loses_hints_and_nothing_else(emulator: Emulator, make_mount: MakeMount,
                                                            client_of: Clients) -> None:
    names = put(emulator, "greedy", 40)
    mount = make_mount()
    client = client_of(mount, strict=False, preload_request_buffer_size=5)
    answers = [client.preload_dataset_file(f) for f in files(*names)]
    assert answers == [True] * 5 + [False] * 35
    counters = client.counters()
    assert (counters["preloaded"], counters["over"], counters["dropped"]) == (20, 15, 20)
    assert client.get_preload_dataset_files_quota(0) == 0
    # What was taken beyond the quota comes, what was dropped is read all the same.
    assert client.wait_ready(files(*names[:20]), PATIENCE)
    for name in names:
        assert (mount.path / name).read_bytes() == content(name)
    assert client.release_many(files(*names)) == 20
    assert client.get_preload_dataset_files_quota(0) == 5
    strict = client_of(mount, worker_id=1, preload_request_buffer_size=5)
    with pytest.raises(DatasetFileLoaderQuotaError) as caught:
        strict.preload_many(files(*names))
    assert caught.value.accepted == 20


def test_a_read_only_mount_keeps_the_state_on_the_node(emulator: Emulator, make_mount: MakeMount, client_of: Clients,
                                                       caplog: pytest.LogCaptureFixture) -> None:
    put(emulator, "ro", 1)
    client = client_of(make_mount("--read-only"))
    assert client.persistence["kind"] == "node"
    assert client.persistence["reason"]
    assert "stays on this node" in caplog.text
    assert client.preload_dataset_file(DatasetFile("ro/0000"))


def test_a_read_only_bind_of_a_subdirectory(emulator: Emulator, make_mount: MakeMount, client_of: Clients,
                                            tmp_path: Path) -> None:
    names = put(emulator, "bind/sub", 5)
    mount = make_mount()
    bind = tmp_path / "bind"
    bind.mkdir()
    subprocess.run(["mount", "--bind", str(mount.path / "bind"), str(bind)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(bind)], check=True)
        with client_of(bind) as client:
            client.preload_many(files(*(name[len("bind/"):] for name in names)))
            assert client.wait_ready(files("sub/0000", "sub/0004"), PATIENCE)
            client.preload_many(files(names[0]))
            assert not client.wait_ready(DatasetFile(names[0]), PATIENCE)
    finally:
        subprocess.run(["umount", str(bind)], check=True)


def test_a_child_lets_go_what_its_parent_announced(emulator: Emulator, make_mount: MakeMount, client_of: Clients) -> None:
    names = put(emulator, "child", 10)
    client = client_of(make_mount())
    client.preload_many(files(*names))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if client.release_many(files(*names)) == 10 and client.counters()["preloaded"] == 0 else 2
            client.close()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert client.release_many(files(*names)) == 0
    assert client.status()["worker"] == 0


def test_a_successor_takes_over_what_was_held(emulator: Emulator, make_mount: MakeMount, client_of: Clients) -> None:
    names = put(emulator, "successor", 10)
    mount = make_mount()
    program = ("import sys; from dataset_file_loader import *\n"
               "c = DatasetFileLoaderClient(0, sys.argv[1], '.loader/task', strict=True)\n"
               "c.preload_many(DatasetFile(p) for p in sys.argv[2:])\n"
               "c.active_dataset_file(DatasetFile(sys.argv[2]))\n"
               "import os; os.kill(os.getpid(), 9)\n")
    died = subprocess.run([sys.executable, "-c", program, str(mount.path), *names],
                          env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])})
    assert died.returncode == -9
    client = client_of(mount)
    opened = client._link.opened
    assert opened is not None and opened.adopted == 10
    assert client.wait_ready(files(*names), PATIENCE)
    assert client.status(DatasetFile(names[0]))["state"] == "ready"
    assert client.release_many(files(*names)) == 10


def test_a_daemon_that_dies_and_comes_back(emulator: Emulator, make_mount: MakeMount, client_of: Clients) -> None:
    names = put(emulator, "reborn", 20)
    mount = make_mount()
    client = client_of(mount, strict=False)
    client.preload_many(files(*names[:10]))
    client.release_many(files(*names[:5]))
    mount.kill()
    assert client.preload_dataset_file(DatasetFile(names[10]))
    assert not client.available and client.counters()["unsent"] == 1
    with pytest.raises(DatasetFileLoaderUnavailableError):
        client_of(mount)
    mount.start()
    eventually(lambda: client.preload_dataset_file(DatasetFile(names[11])) and client.available)
    assert client.wait_ready(files(*names[5:10]), PATIENCE)
    assert {client.status(f)["state"] for f in files(*names[:5])} == {"unknown"}
    assert client.release_many(files(*names[5:10])) == 5


def test_another_node_resumes_warm(emulator: Emulator, make_mount: MakeMount, client_of: Clients) -> None:
    names = put(emulator, "moved", 10)
    mount = make_mount()
    client = client_of(mount, persistence_file_path=".loader/moved")
    assert client.persistence["kind"] == "mount"
    client.preload_many(files(*names))
    assert client.wait_ready(files(*names), PATIENCE)
    client.release_many(files(*names[:4]))
    client.close(keep=True)
    mount.stop()
    other = make_mount()  # with a cache of its own
    client = client_of(other, persistence_file_path=".loader/moved")
    opened = client._link.opened
    assert opened is not None and opened.adopted == 6
    assert client.wait_ready(files(*names[4:]), PATIENCE)
    before = gets(emulator)
    for name in names[4:]:
        assert (other.path / name).read_bytes() == content(name)
    assert gets(emulator) == before
    assert client.release_many(files(*names)) == 6


def threads(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("Threads:"):
            return int(line.split()[1])
    raise AssertionError("no count of threads")


def test_a_thousand_clients_at_once(emulator: Emulator, make_mount: MakeMount, client_of: Clients) -> None:
    names = put(emulator, "thousand", 100)
    mount = make_mount()
    own = threading.active_count()
    clients = [client_of(mount, worker_id=i, preload_request_buffer_size=4) for i in range(1000)]
    assert threading.active_count() == own

    def work(i: int) -> bool:
        f = DatasetFile(names[i % 100], i % 3)
        c = clients[i]
        taken = c.preload_dataset_file(f)
        c.active_dataset_file(f)
        ok = (mount.path / names[i % 100]).read_bytes() == content(names[i % 100])
        return taken and ok and c.release_dataset_file(f)

    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(work, range(1000)))
    assert threads(mount.pid) < 300
    with Client(mount.path) as control:
        assert len(control.call("status")["loader"]["sessions"]) == 1000
    for c in clients:
        assert c.counters()["unsent"] == 0
        c.close()
    with Client(mount.path) as control:
        assert not control.call("status")["loader"]["sessions"]
