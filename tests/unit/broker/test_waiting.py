"""A waiter of a partition is told everything that happens from then on."""

import asyncio

from tailrace.model import Offset, TopicPartition
from tailrace.replication.partition import Partition
from tailrace.replication.waiting import Signal, Watched
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import MemoryFiles, Outside, virtual_runtime
from tests.unit.broker.brokers import connect, create_topic, fetch, fetch_request, running
from tests.unit.storage.builders import NOW, batch, open_at


def partition() -> Partition:
    """A partition with an empty log, on a disk that does not fail."""

    def fail(error: OSError) -> None:
        raise error

    return Partition(open_at(MemoryFiles()), on_failure=fail)


def send(to: Partition) -> None:
    """Append three records, which are readable at once."""
    to.append(memoryview(batch(b"a", b"b", b"c")), now_ms=NOW)


async def was_fired(signal: Signal) -> bool:
    """Whether a signal has fired since it was asked last; waits for nothing."""
    return await signal.wait_until(asyncio.get_running_loop().time())


async def test_records_that_come_at_the_deadline_are_in_the_answer(outside: Outside) -> None:
    """A fetch whose time is over in the turn of the loop in which they are appended has them."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        served = broker.replicas.find(TopicPartition("t", 0))
        deadline = outside.loop.time() + 1
        outside.loop.call_at(deadline, send, served)
        answer = await fetch(peer, fetch_request("t", 0, max_wait_ms=1000))
        assert outside.loop.time() == deadline
        assert answer.records
        assert answer.high_watermark == 3


def test_a_signal_fires_at_each_change() -> None:
    """Each append moves the high watermark, and it has moved when the signal fires."""

    async def watch() -> list[tuple[bool, Offset]]:
        watched, signal, seen = partition(), Signal(), []
        watched.appended.add(signal)
        for _ in range(3):
            seen.append((await was_fired(signal), watched.log.positions.high_watermark))
            send(watched)
            seen.append((await was_fired(signal), watched.log.positions.high_watermark))
        return seen

    with virtual_runtime() as outside:
        seen = outside.run(watch())
    assert seen == [(False, 0), (True, 3), (False, 3), (True, 6), (False, 6), (True, 9)]


def test_a_signal_that_comes_later_is_not_fired_before_the_next_change() -> None:
    """A new signal fires for later changes only, not for earlier ones or when it is added."""

    async def watch() -> list[bool]:
        watched, signal, seen = partition(), Signal(), []
        send(watched)
        raise_log_start(watched.log, 1)
        seen.append(await was_fired(signal))
        watched.appended.add(signal)
        seen.append(await was_fired(signal))
        send(watched)
        seen.append(await was_fired(signal))
        assert watched.log.positions.high_watermark == 6
        return seen

    with virtual_runtime() as outside:
        assert outside.run(watch()) == [False, False, True]


def test_a_signal_that_was_removed_is_not_fired() -> None:
    """A removed signal does not fire, and the others still do."""

    async def watch() -> list[bool]:
        watched, gone, stays = Watched(), Signal(), Signal()
        for signal in (gone, stays):
            watched.add(signal)
        watched.remove(gone)
        watched.changed()
        return [await was_fired(gone), await was_fired(stays)]

    with virtual_runtime() as outside:
        assert outside.run(watch()) == [False, True]
