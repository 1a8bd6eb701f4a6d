"""A shard: requests become records and replies, and a restart replays the records."""

import asyncio
import gc
import logging
from collections.abc import Awaitable

import pytest

from tailrace.coordinator.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from tailrace.coordinator.machine import Decision, TransactionalProducer
from tailrace.coordinator.shard import Shard, ShardState
from tailrace.errors import RetriableError
from tailrace.model import LeaderEpoch, ProducerEpoch, ProducerId
from tailrace.records import layout
from tailrace.records.builder import BatchBuilder
from tailrace.testing.coordinator_log import MemoryPartitionLog
from tailrace.testing.outside import Outside, virtual_runtime
from tests.unit.coordinator.tally import PARTITION, Tally, TallyCodec, tally_on
from tests.unit.storage.plans import changed

PRODUCER = TransactionalProducer(ProducerId(7), ProducerEpoch(0))


async def loaded(outside: Outside, log: MemoryPartitionLog) -> Shard[Tally]:
    """A shard that takes requests."""
    shard = tally_on(outside, log)
    await shard.load()
    return shard


class UnusableLogError(RetriableError):
    """An error of a log."""


async def count(shard: Shard[Tally], name: str) -> int:
    """A committed count."""
    return await shard.run(lambda tally, _: tally.get(name))


def test_a_restart_finds_what_was_answered() -> None:
    """Every record whose reply has come is replayed by the next shard on the log."""
    log = MemoryPartitionLog(PARTITION)

    async def before(outside: Outside) -> None:
        shard = await loaded(outside, log)
        assert await shard.run(lambda tally, _: tally.add("a", 2)) == 2
        assert await shard.run(lambda tally, _: tally.add("a", 3)) == 5

    async def after(outside: Outside) -> None:
        assert await count(await loaded(outside, log), "a") == 5

    for scenario in (before, after):
        with virtual_runtime() as outside:
            outside.run(scenario(outside))


def test_a_transaction_counts_when_its_marker_commits() -> None:
    """Live and after a restart alike; an aborted one never counts."""
    log = MemoryPartitionLog(PARTITION)

    async def scenario(outside: Outside) -> None:
        shard = await loaded(outside, log)
        for is_commit, expected in ((True, 4), (False, 4)):
            await shard.run(lambda tally, _: tally.add("a", 4, producer=PRODUCER))
            await shard.end_transaction(
                PRODUCER, is_commit=is_commit, coordinator_epoch=LeaderEpoch(0)
            )
            assert await count(shard, "a") == expected
        await shard.run(lambda tally, _: tally.add("a", 1, producer=PRODUCER))
        again = await loaded(outside, log)
        assert await count(again, "a") == 4
        await again.end_transaction(PRODUCER, is_commit=True, coordinator_epoch=LeaderEpoch(0))
        assert await count(again, "a") == 5

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_an_append_that_fails_changes_nothing() -> None:
    """The client is told to ask again, the machine undoes its change, and the next one works."""
    log = MemoryPartitionLog(PARTITION)

    async def scenario(outside: Outside) -> None:
        shard = await loaded(outside, log)
        log.refusal = OSError(28, "no space left on device")
        with pytest.raises(CoordinatorNotAvailableError, match="no space left"):
            await shard.run(lambda tally, _: tally.add("a", 2))
        assert [type(each) for each in shard.machine.undone] == [OSError]
        log.refusal = None
        assert await count(shard, "a") == 0
        assert await shard.run(lambda tally, _: tally.add("a", 1)) == 1

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_decision_that_fails_changes_nothing() -> None:
    """Its client gets the error itself, and the next request is answered."""

    def fail(tally: Tally) -> Decision[int]:
        raise ValueError(f"cannot decide on {tally.counts}")

    async def scenario(outside: Outside) -> None:
        log = MemoryPartitionLog(PARTITION)
        shard = await loaded(outside, log)
        with pytest.raises(ValueError, match="cannot decide"):
            await shard.run(lambda tally, _: fail(tally))
        assert log.content == []
        assert await shard.run(lambda tally, _: tally.add("a", 1)) == 1

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_marker_that_fails_leaves_the_transaction_open() -> None:
    """Its coordinator sends it again, and then the transaction counts."""
    log = MemoryPartitionLog(PARTITION)

    async def scenario(outside: Outside) -> None:
        shard = await loaded(outside, log)
        await shard.run(lambda tally, _: tally.add("a", 4, producer=PRODUCER))
        log.refusal = OSError(28, "no space left on device")
        with pytest.raises(OSError, match="no space left"):
            await shard.end_transaction(PRODUCER, is_commit=True, coordinator_epoch=LeaderEpoch(0))
        log.refusal = None
        assert await count(shard, "a") == 0
        await shard.end_transaction(PRODUCER, is_commit=True, coordinator_epoch=LeaderEpoch(0))
        assert await count(shard, "a") == 4

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_marker_does_not_wait_for_ever() -> None:
    """After the timeout its coordinator is told to ask again; it is committed all the same."""
    log = MemoryPartitionLog(PARTITION)

    async def scenario(outside: Outside) -> None:
        shard = tally_on(outside, log, commit_timeout_ms=5_000)
        await shard.load()
        await shard.run(lambda tally, _: tally.add("a", 4, producer=PRODUCER))
        log.hold_commits()
        ending = asyncio.ensure_future(
            shard.end_transaction(PRODUCER, is_commit=True, coordinator_epoch=LeaderEpoch(0))
        )
        await outside.pass_time(4.9)
        assert not ending.done()
        await outside.pass_time(0.2)
        with pytest.raises(CoordinatorNotAvailableError, match="not committed within 5000 ms"):
            await ending
        log.commit()
        assert await count(shard, "a") == 4

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_marker_that_cannot_be_replayed_stops_the_shard() -> None:
    """It is in the log, and the state does not follow it: no request is answered from that."""

    class Broken(Tally):
        def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
            raise RuntimeError(f"a bug in the machine: {producer_id=} {is_commit=}")

    async def scenario(outside: Outside) -> None:
        log = MemoryPartitionLog(PARTITION)
        shard = Shard[Tally](log, Broken, TallyCodec, clock=outside.runtime.clock)
        await shard.load()
        await shard.run(lambda tally, _: tally.add("a", 4, producer=PRODUCER))
        with pytest.raises(RuntimeError, match="a bug"):
            await shard.end_transaction(PRODUCER, is_commit=True, coordinator_epoch=LeaderEpoch(0))
        assert shard.state is ShardState.FAILED
        with pytest.raises(NotCoordinatorError):
            await count(shard, "a")

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_no_reply_comes_before_its_records_are_committed() -> None:
    """Nor does one of a request that only read them."""
    log = MemoryPartitionLog(PARTITION)

    async def scenario(outside: Outside) -> None:
        shard = await loaded(outside, log)
        log.hold_commits()
        requests = [
            asyncio.ensure_future(shard.run(lambda tally, _: tally.add("a", 2))),
            asyncio.ensure_future(count(shard, "a")),
        ]
        await outside.pass_time(60)
        assert [each.done() for each in requests] == [False, False]
        log.commit()
        assert await asyncio.gather(*requests) == [2, 2]
        log.hold_commits()
        lost = asyncio.ensure_future(shard.run(lambda tally, _: tally.add("a", 2)))
        await outside.pass_time(1)
        log.lose(OSError(5, "input/output error"))
        with pytest.raises(CoordinatorNotAvailableError):
            await lost

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_requests_wait_while_the_partition_moves() -> None:
    """They are decided on the state that they find after it."""
    log = MemoryPartitionLog(PARTITION)

    async def scenario(outside: Outside) -> None:
        shard = await loaded(outside, log)
        log.is_free.clear()
        adding = asyncio.ensure_future(shard.run(lambda tally, _: tally.add("a", 2)))
        await outside.pass_time(1)
        assert log.content == []
        log.is_free.set()
        assert await adding == 2

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_requests_are_refused_while_a_shard_loads_and_after_it_has_stopped() -> None:
    """With the two errors that make a client ask again, here or elsewhere; parked replies too."""

    async def scenario(outside: Outside) -> None:
        shard = tally_on(outside, MemoryPartitionLog(PARTITION))
        with pytest.raises(CoordinatorLoadInProgressError):
            await count(shard, "a")
        await shard.load()
        parked = asyncio.ensure_future(shard.run(lambda tally, _: tally.park()))
        await outside.pass_time(1)
        shard.stop()
        with pytest.raises(NotCoordinatorError):
            await parked
        with pytest.raises(NotCoordinatorError):
            await count(shard, "a")
        with pytest.raises(NotCoordinatorError):
            await shard.run(lambda tally, _: tally.add("a", 1, producer=PRODUCER))
        with pytest.raises(NotCoordinatorError):
            await shard.end_transaction(PRODUCER, is_commit=True, coordinator_epoch=LeaderEpoch(0))

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


async def failing_with(reply: Awaitable[int]) -> None:
    """A client that fails as soon as its reply comes, or comes to an end."""
    try:
        await reply
    finally:
        raise RuntimeError("a bug in a client")


def test_a_reply_whose_client_fails_keeps_no_commit_from_the_others() -> None:
    """Requests before and behind it, and the end of a transaction, are answered all the same."""
    log = MemoryPartitionLog(PARTITION)

    async def scenario(outside: Outside) -> None:
        shard = await loaded(outside, log)
        await shard.run(lambda tally, _: tally.add("b", 4, producer=PRODUCER))
        log.hold_commits()
        first = asyncio.ensure_future(shard.run(lambda tally, _: tally.add("a", 1)))
        failing = asyncio.ensure_future(failing_with(count(shard, "a")))
        ending = asyncio.ensure_future(
            shard.end_transaction(PRODUCER, is_commit=True, coordinator_epoch=LeaderEpoch(0))
        )
        last = asyncio.ensure_future(shard.run(lambda tally, _: tally.add("b", 1)))
        await outside.pass_time(1)
        assert not any(each.done() for each in (first, failing, ending, last))
        log.commit()
        await outside.pass_time(1)
        await ending
        assert (await first, await last) == (1, 5)
        with pytest.raises(RuntimeError, match="a bug in a client"):
            await failing
        assert await count(shard, "b") == 5

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_reply_whose_client_fails_keeps_no_shard_from_stopping() -> None:
    """Requests before and behind it are told to look for another coordinator."""

    async def scenario(outside: Outside) -> None:
        shard = await loaded(outside, MemoryPartitionLog(PARTITION))
        first = asyncio.ensure_future(shard.run(lambda tally, _: tally.park()))
        failing = asyncio.ensure_future(failing_with(shard.run(lambda tally, _: tally.park())))
        last = asyncio.ensure_future(shard.run(lambda tally, _: tally.park()))
        await outside.pass_time(1)
        shard.stop()
        await outside.pass_time(1)
        assert shard.state is ShardState.STOPPED
        with pytest.raises(RuntimeError, match="a bug in a client"):
            await failing
        for each in (first, last):
            with pytest.raises(NotCoordinatorError):
                await each

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_client_that_leaves_does_not_take_its_parked_reply_along() -> None:
    """The machine can still complete it, and the others that wait for it get it."""

    async def scenario(outside: Outside) -> None:
        shard = await loaded(outside, MemoryPartitionLog(PARTITION))
        asking = asyncio.ensure_future(shard.run(lambda tally, _: tally.park()))
        await outside.pass_time(1)
        asking.cancel()
        await outside.pass_time(1)
        [parked] = shard.machine.parked
        assert not parked.cancelled()
        parked.set_result(1)

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


@pytest.mark.parametrize("damage", ["a value of three bytes", "a flipped bit", "no key"])
def test_a_record_that_cannot_be_read_stops_the_shard(
    damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No request is answered from half a state, and the log names partition and offset."""
    builder = BatchBuilder()
    builder.append(b"a", bytes(8), timestamp=1)
    builder.append(
        None if damage == "no key" else b"a", bytes(3 if "three" in damage else 8), timestamp=1
    )
    batch = bytearray(builder.build())
    if "bit" in damage:
        batch[-1] ^= 1

    async def scenario(outside: Outside) -> None:
        shard = await loaded(outside, MemoryPartitionLog(PARTITION, (bytes(batch),)))
        assert shard.state is ShardState.FAILED
        with pytest.raises(NotCoordinatorError):
            await count(shard, "a")

    with virtual_runtime() as outside, caplog.at_level(logging.ERROR):
        outside.run(scenario(outside))
    assert "coordinator_load_failed partition=__tally-0" in caplog.text
    assert "bit" in damage or "offset 1" in caplog.text


def test_a_replay_that_fails_stops_the_shard(caplog: pytest.LogCaptureFixture) -> None:
    """A bug in a machine is logged, and clients are not told for ever to wait for the load."""
    builder = BatchBuilder()
    builder.append(b"bug", bytes(8), timestamp=1)

    async def scenario(outside: Outside) -> None:
        shard = await loaded(outside, MemoryPartitionLog(PARTITION, (builder.build(),)))
        with pytest.raises(NotCoordinatorError):
            await count(shard, "a")

    with virtual_runtime() as outside, caplog.at_level(logging.ERROR):
        outside.run(scenario(outside))
    assert "coordinator_load_failed partition=__tally-0" in caplog.text


def test_records_of_an_unknown_type_are_skipped() -> None:
    """A newer Kafka may have written them; the others are replayed."""
    builder = BatchBuilder()
    for key in (b"?new", b"a"):
        builder.append(key, (5).to_bytes(8, "big"), timestamp=1)

    async def scenario(outside: Outside) -> None:
        shard = await loaded(outside, MemoryPartitionLog(PARTITION, (builder.build(),)))
        assert await count(shard, "a") == 5

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_batch_that_compaction_has_emptied_changes_nothing() -> None:
    """The last batch of a segment keeps its header, though its records are gone."""
    builder = BatchBuilder()
    builder.append(b"a", (5).to_bytes(8, "big"), timestamp=1)
    whole = builder.build()
    empty = changed(bytearray(whole), layout.RECORD_COUNT_POSITION, bytes(4))[: layout.HEADER_SIZE]
    layout.LENGTH.pack_into(empty, layout.LENGTH_POSITION, len(empty) - layout.LOG_OVERHEAD)
    changed(empty, layout.MAGIC_POSITION, bytes([layout.MAGIC]))

    async def scenario(outside: Outside) -> None:
        shard = await loaded(outside, MemoryPartitionLog(PARTITION, (whole, bytes(empty))))
        assert await count(shard, "a") == 5

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_machine_decides_without_a_client(caplog: pytest.LogCaptureFixture) -> None:
    """A deadline writes records as a request does; a refusal is logged, and the shard goes on."""
    log = MemoryPartitionLog(PARTITION)

    def decide(tally: Tally) -> Decision[None]:
        return Decision(reply=None, records=tally.add("a", 3).records)

    async def scenario(outside: Outside) -> None:
        shard = await loaded(outside, log)
        tally = shard.machine
        assert tally.propose is not None
        tally.propose(lambda _: decide(tally))
        await outside.pass_time(1)
        assert await count(shard, "a") == 3
        log.refusal = OSError(28, "no space left on device")
        tally.propose(lambda _: decide(tally))
        await outside.pass_time(1)
        assert await count(shard, "a") == 3

    with virtual_runtime() as outside, caplog.at_level(logging.WARNING):
        outside.run(scenario(outside))
    assert "no space left" in caplog.text


def test_a_machine_can_await_what_it_decides() -> None:
    """It learns when all is committed, and otherwise gets the error that a client would get."""
    log = MemoryPartitionLog(PARTITION)

    async def scenario(outside: Outside) -> None:
        shard = await loaded(outside, log)
        propose = shard.machine.propose
        assert propose is not None
        await propose(lambda _: Decision(reply=None, records=shard.machine.add("a", 3).records))
        assert await count(shard, "a") == 3
        log.hold_commits()
        waiting = asyncio.ensure_future(propose(lambda _: Decision(reply=None)))
        await outside.pass_time(1)
        assert not waiting.done()
        log.lose(OSError(5, "input/output error"))
        with pytest.raises(CoordinatorNotAvailableError):
            await waiting

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_state_that_falls_behind_its_log_answers_no_more() -> None:
    """A bug in a machine must not turn into wrong replies; requests that wait are answered."""

    async def scenario(outside: Outside) -> None:
        shard = await loaded(outside, MemoryPartitionLog(PARTITION))
        parked = asyncio.ensure_future(shard.run(lambda tally, _: tally.park()))
        await outside.pass_time(1)
        with pytest.raises(RuntimeError):
            await shard.run(lambda tally, _: tally.add("bug", 1))
        with pytest.raises(NotCoordinatorError):
            await count(shard, "a")
        with pytest.raises(NotCoordinatorError, match="has failed"):
            await parked

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_reply_does_not_wait_for_ever() -> None:
    """After the timeout the client is told to ask again; the records are committed all the same."""
    log = MemoryPartitionLog(PARTITION)

    async def scenario(outside: Outside) -> None:
        shard = tally_on(outside, log, commit_timeout_ms=5_000)
        await shard.load()
        log.hold_commits()
        request = asyncio.ensure_future(shard.run(lambda tally, _: tally.add("a", 2)))
        await outside.pass_time(4.9)
        assert not request.done()
        await outside.pass_time(0.2)
        with pytest.raises(CoordinatorNotAvailableError, match="not committed within 5000 ms"):
            await request
        log.commit()
        assert await count(shard, "a") == 2

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_request_that_is_cancelled_leaves_no_wait_that_fails_later() -> None:
    """Its client has gone before the wait for the commit began, and then the leadership ends."""

    class Log(MemoryPartitionLog):
        waiting: asyncio.Future[None] | None = None

        def committed(self) -> Awaitable[None] | None:  # type: ignore[override]
            return None if self.waiting is None else until(self.waiting)

    async def until(waiting: asyncio.Future[None]) -> None:
        await waiting

    async def scenario(outside: Outside) -> None:
        unretrieved: list[object] = []
        outside.loop.set_exception_handler(lambda _, context: unretrieved.append(context))
        log = Log(PARTITION)
        shard = await loaded(outside, log)
        waiting = log.waiting = outside.loop.create_future()
        request = asyncio.ensure_future(shard.run(lambda tally, _: tally.add("a", 2)))
        # After its first step, which appends and begins to wait.
        outside.loop.call_soon(request.cancel)
        with pytest.raises(asyncio.CancelledError):
            await request
        await outside.pass_time(1)
        if not waiting.done():
            waiting.set_exception(NotCoordinatorError("another broker leads the partition"))
        await outside.pass_time(1)
        gc.collect()
        assert unretrieved == []

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_log_that_cannot_say_what_is_committed_is_not_available() -> None:
    """Its directory may have failed, or the partition may be gone, between append and reply."""
    error = UnusableLogError("the partition is gone")

    class Log(MemoryPartitionLog):
        def committed(self) -> None:
            raise error

    async def scenario(outside: Outside) -> None:
        shard = await loaded(outside, Log(PARTITION))
        with pytest.raises(CoordinatorNotAvailableError, match="is gone") as refused:
            await shard.run(lambda tally, _: tally.add("a", 2))
        assert refused.value.__cause__ is error

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_no_reply_rests_on_what_a_load_has_found_uncommitted() -> None:
    """The log's end was not committed when it was loaded; a reply comes when it is."""
    before = MemoryPartitionLog(PARTITION)

    async def scenario(outside: Outside) -> None:
        await (await loaded(outside, before)).run(lambda tally, _: tally.add("a", 2))
        log = MemoryPartitionLog(PARTITION, tuple(before.content))
        log.hold_commits()
        shard = await loaded(outside, log)
        reading = asyncio.ensure_future(count(shard, "a"))
        await outside.pass_time(60)
        assert not reading.done()
        log.commit()
        assert await reading == 2

    with virtual_runtime() as outside:
        outside.run(scenario(outside))


def test_a_reply_leaves_no_timer_behind() -> None:
    """Nor does a marker; otherwise each request would cost memory until its timeout."""
    log = MemoryPartitionLog(PARTITION)

    def timers(outside: Outside) -> int:
        scheduled = outside.loop._scheduled  # type: ignore[attr-defined]
        return sum(not each.cancelled() for each in scheduled)

    async def scenario(outside: Outside) -> None:
        shard = tally_on(outside, log, commit_timeout_ms=5_000)
        await shard.load()
        before = timers(outside)
        log.hold_commits()
        waiting = [
            asyncio.ensure_future(shard.run(lambda tally, _: tally.add("a", 2))),
            asyncio.ensure_future(
                shard.end_transaction(PRODUCER, is_commit=True, coordinator_epoch=LeaderEpoch(0))
            ),
        ]
        await outside.pass_time(1)
        assert timers(outside) == before + 2
        log.commit()
        await asyncio.gather(*waiting)
        assert timers(outside) == before

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
