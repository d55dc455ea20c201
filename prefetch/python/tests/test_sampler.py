"""What PreloadingSampler announces, yields and lets go, with a daemon that is not real."""

from __future__ import annotations

import os
import random
from typing import Any, Iterator, List, Sequence

import pytest

from dataset_file_loader import DatasetFileLoaderClient
from fake_daemon import FakeDaemon
from pailfs.errors import NotPailfsError
from pailfs.torch import PreloadingSampler, release_after

NAMES = [f"train/{i:05}.bin" for i in range(10_000)]


def make(sampler: Any, paths: Any = NAMES, **keywords: Any) -> PreloadingSampler[Any]:
    keywords.setdefault("sampler_index", 0)
    return PreloadingSampler(sampler, paths, "/mnt/data", **keywords)


def batches(n: int, size: int, seed: int = 1) -> List[List[int]]:
    order = random.Random(seed).sample(range(n), n)
    return [order[i:i + size] for i in range(0, n, size)]


class Fresh:
    """A sampler with a new order each time, as a shuffling one is."""

    def __init__(self, n: int, size: int) -> None:
        self.n, self.size, self.epoch = n, size, 0
        self.batch_size = size

    def __iter__(self) -> Iterator[List[int]]:
        self.epoch += 1
        return iter(batches(self.n, self.size, self.epoch))

    def __len__(self) -> int:
        return -(-self.n // self.size)


def test_items_are_yielded_as_they_are(daemon: FakeDaemon) -> None:
    order = batches(1000, 24)
    sampler = make(order)
    assert list(sampler) == order
    assert list(sampler) == order
    assert len(sampler) == len(order)


def test_files_are_announced_in_order_before_they_are_yielded(daemon: FakeDaemon) -> None:
    order = batches(3000, 10)
    sampler = make(order, lookahead=200)
    for batch in sampler:
        held = daemon.paths()
        assert set(held).issuperset(NAMES[i] for i in batch)
    told = [p["base"] + name for m, p in daemon.requests if m == "loader.preload" for name in p["paths"]]
    assert told == [NAMES[i] for batch in order for i in batch]
    assert sampler.client.counters()["over"] == sampler.client.counters()["dropped"] == 0


def test_the_lookahead_is_kept_full_and_bounded(daemon: FakeDaemon) -> None:
    sampler = make(batches(5000, 10), lookahead=300, behind=4)
    for n, _ in enumerate(sampler):
        if 40 < n < 400:
            # Up to behind + the one just yielded are held beside those ahead.
            assert 300 - 64 <= len(daemon.paths()) <= 300 + 6 * 10
    assert daemon.most_held <= 300 + 6 * 10


def test_one_step_announces_a_bounded_number(daemon: FakeDaemon) -> None:
    iterator = iter(make(batches(10_000, 10), lookahead=8000))
    for _ in range(5):
        before = sum(len(p["paths"]) for m, p in daemon.requests if m == "loader.preload")
        next(iterator)
        after = sum(len(p["paths"]) for m, p in daemon.requests if m == "loader.preload")
        assert after - before <= 64


def test_a_full_lookahead_is_topped_up_in_few_calls(daemon: FakeDaemon) -> None:
    for _ in make(batches(5000, 10), lookahead=1000, behind=0):
        pass
    calls = [len(p["paths"]) for m, p in daemon.requests if m == "loader.preload"]
    assert sum(calls) == 5000
    assert len(calls) < 5000 / 10 / 2


def test_a_step_announces_whole_batches_however_large(daemon: FakeDaemon) -> None:
    sampler = make(batches(4000, 500), lookahead=2000)
    for batch in sampler:
        assert set(daemon.paths()).issuperset(NAMES[i] for i in batch)


def test_what_was_yielded_is_let_go(daemon: FakeDaemon) -> None:
    with make(batches(1000, 10), behind=3, lookahead=50) as sampler:
        for _ in sampler:
            pass
        # The last ones may still be read by workers.
        assert len(daemon.paths()) == 3 * 10
        for n, _ in enumerate(sampler):
            if n == 0:
                assert len(daemon.paths()) <= 50 + 10
    assert daemon.paths() == []


def test_single_indices_and_several_files_each(daemon: FakeDaemon) -> None:
    def paths(i: int) -> Sequence[str]:
        return [f"image/{i}.jpg", f"label/{i}.json"]

    sampler = make(range(100), paths, lookahead=20)
    iterator = iter(sampler)
    assert next(iterator) == 0
    assert daemon.paths()[:4] == ["image/0.jpg", "label/0.json", "image/1.jpg", "label/1.json"]
    assert list(iterator) == list(range(1, 100))


def test_an_item_with_more_files_than_the_lookahead(daemon: FakeDaemon) -> None:
    order = batches(1000, 100)
    assert list(make(order, lookahead=7)) == order


def test_a_small_budget_goes_to_what_comes(daemon: FakeDaemon) -> None:
    """What was read must not keep out what is next."""
    daemon.room = 100
    ahead = []
    for n, batch in enumerate(make(batches(4000, 10), behind=50)):
        if n > 20 and n < 380:
            ahead.append(set(daemon.paths()).issuperset(NAMES[i] for i in batch))
    assert all(ahead)
    assert daemon.most_held <= 100


def test_no_room_at_all_holds_nothing_back(daemon: FakeDaemon) -> None:
    daemon.room = 0
    order = batches(2000, 10)
    assert list(make(order)) == order
    assert daemon.most_held == 0


def test_without_a_daemon(daemon: FakeDaemon) -> None:
    daemon.down = NotPailfsError("not a pailfs mount")
    order = batches(5000, 10)
    sampler = make(order)
    assert list(sampler) == order
    assert len(daemon.requests) < 100
    assert sampler.client.counters()["unsent"] >= 5000


def test_a_pass_that_is_given_up_leaves_nothing_behind(daemon: FakeDaemon) -> None:
    sampler = make(Fresh(1000, 10), lookahead=100)
    for _ in range(5):
        iterator = iter(sampler)
        next(iterator)
        next(iterator)
        del iterator
    assert len(daemon.paths()) <= 100 + 2 * 10
    order = list(sampler)
    assert sorted(i for batch in order for i in batch) == list(range(1000))
    sampler.close()
    assert daemon.paths() == []


def test_a_daemon_that_comes_back_in_mid_epoch(daemon: FakeDaemon) -> None:
    order = batches(4000, 10)
    sampler = make(order, lookahead=100)
    seen = []
    for n, batch in enumerate(sampler):
        seen.append(batch)
        if n == 100:
            daemon.restart()
        if n > 150:
            assert set(daemon.paths()).issuperset(NAMES[i] for i in batch)
    assert seen == order
    assert sampler.client.counters()["reopened"] == 1


def test_the_epoch_reaches_the_sampler(daemon: FakeDaemon) -> None:
    class Distributed(Fresh):
        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    class Batches:
        def __init__(self, sampler: Any) -> None:
            self.sampler = sampler

        def __iter__(self) -> Iterator[Any]:
            return iter(self.sampler)

    plain, nested = Distributed(10, 2), Distributed(10, 2)
    make(plain).set_epoch(7)
    make(Batches(nested)).set_epoch(8)
    make(range(3)).set_epoch(9)
    assert (plain.epoch, nested.epoch) == (7, 8)


def test_attributes_of_the_sampler_are_seen_but_not_its_state(daemon: FakeDaemon) -> None:
    class Stateful(Fresh):
        def state_dict(self) -> None:
            raise AssertionError("the position of the wrapped sampler is ahead")

    sampler = make(Stateful(10, 2))
    assert sampler.batch_size == 2
    assert not hasattr(sampler, "state_dict") and not hasattr(sampler, "nothing")


@pytest.mark.parametrize("keywords, error", [
    ({"lookahead": 0}, "lookahead is 0"), ({"behind": -1}, "behind is -1"), ({"mount": None}, "needs mount"),
])
def test_arguments_that_are_mistakes(daemon: FakeDaemon, keywords: Any, error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        PreloadingSampler(**{"sampler": [1], "paths": NAMES, "mount": "/mnt/data", **keywords})


def test_readers_let_go_exactly(daemon: FakeDaemon) -> None:
    class Data:
        classes = ["a"]

        def __getitem__(self, i: int) -> int:
            assert NAMES[i] in daemon.paths()
            if i == 13:
                raise OSError("unreadable")
            return i

        def __len__(self) -> int:
            return 100

    sampler = make(batches(100, 10), lookahead=30)
    data = release_after(Data(), sampler)
    assert len(data) == 100 and data.classes == ["a"]
    for batch in sampler:
        if 13 in batch:
            batch.remove(13)
            with pytest.raises(OSError):
                data[13]
        if batch[0] % 2:
            assert data.__getitems__(batch) == batch
        else:
            assert [data[i] for i in batch] == batch
        assert not set(daemon.paths()) & {NAMES[i] for i in batch}
    assert daemon.paths() == []
    assert sampler.client.counters()["not_held"] == 0


def test_a_client_can_be_shared(daemon: FakeDaemon) -> None:
    client = DatasetFileLoaderClient(0, "/mnt/data", preload_request_buffer_size=100)
    first, second = (PreloadingSampler(batches(100, 10), NAMES, client=client) for _ in range(2))
    assert first.sampler_index != second.sampler_index
    next(iter(first)), next(iter(second))
    with first:
        pass
    assert "loader.close" not in daemon.methods()
    assert daemon.methods().count("loader.open") == 1


def test_a_forked_copy_lets_nothing_go(daemon: FakeDaemon) -> None:
    sampler = make(batches(1000, 10), lookahead=50)
    iterator = iter(sampler)
    next(iterator)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            before = len(sampler._left_behind)
            iterator.close()  # type: ignore[attr-defined]
            status = 0 if len(sampler._left_behind) == before else 3
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
