"""Fetches of followers: what the leader answers, what it notes, and what it refuses."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from tailrace.model import Offset, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchResponse, PartitionData
from tailrace.runtime.clock import elapsed_ms
from tailrace.testing import Outside
from tailrace.values import replace
from tests.unit.handlers.replica_broker import (
    CONSUMER,
    FIRST,
    FOURTH,
    ME,
    NEWEST,
    SECOND,
    THIRD,
    TOPIC_ID,
    Broker,
    broker_epoch,
    fetch_request,
    on_virtual_time,
)
from tests.unit.storage.builders import batch

SIZE = len(batch(b"x"))
FOLLOWER_VERSIONS = (4, 8, 9, 11, 12, 13, 14, 15, 17, 18)


@pytest.mark.parametrize("version", FOLLOWER_VERSIONS)
async def test_a_follower_reads_up_to_the_log_end(outside: Outside, version: int) -> None:
    """A consumer gets nothing of it until all in sync have it; then the watermark is at the end."""
    broker = Broker(outside)
    await broker.assign()
    broker.append(b"x")
    assert not (await broker.fetch(0, version=version)).records
    first = await broker.fetch(0, replica=SECOND, version=version)
    assert (len(first.records or b""), first.high_watermark) == (SIZE, 0)
    assert first.aborted_transactions is None
    # Its answer already has the watermark that follows from its own offset.
    await broker.fetch(1, replica=SECOND, version=version)
    last = await broker.fetch(1, replica=THIRD, version=version)
    assert (last.error_code, last.high_watermark) == (0, 1)
    assert len((await broker.fetch(0, version=version)).records or b"") == SIZE


async def test_a_follower_out_of_sync_does_not_hold_up_the_watermark(outside: Outside) -> None:
    """Nor one that is restarted: only the ISR counts."""
    broker = Broker(outside)
    await broker.assign(isr=(ME, SECOND))
    broker.append(b"x")
    assert (await broker.fetch(1, replica=SECOND)).high_watermark == 1
    assert (await broker.fetch(0, replica=THIRD)).high_watermark == 1


@pytest.mark.parametrize("version", [8, 9, 12, 15, 18])
async def test_a_broker_that_is_no_replica_is_refused(outside: Outside, version: int) -> None:
    """With a leader epoch it asks again until the leader has seen the reassignment."""
    broker = Broker(outside)
    for replicas in ((ME, SECOND, THIRD), (ME,)):
        await broker.assign(replicas=replicas, isr=(ME,))
        epoch = broker.replicas.find(FIRST).leader_epoch
        for offset in (0, 77):
            found = await broker.fetch(offset, replica=FOURTH, version=version)
            assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            if version >= 9:
                found = await broker.fetch(
                    offset, replica=FOURTH, version=version, current_leader_epoch=epoch
                )
                assert found.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_follower_from_before_its_restart_is_refused(outside: Outside) -> None:
    """It may have lost what it had, so its offset does not count (KIP-903)."""
    broker = Broker(outside)
    await broker.assign(isr=(ME, SECOND))
    broker.append(b"x")
    broker.register(SECOND, epoch=broker_epoch(SECOND) + 1)
    found = await broker.fetch(1, replica=SECOND)
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not found.records
    assert broker.replicas.find(FIRST).log.positions.high_watermark == 0
    found = await broker.fetch(1, replica=SECOND, replica_epoch=broker_epoch(SECOND) + 1)
    assert (found.error_code, found.high_watermark) == (ErrorCode.NONE, 1)


@pytest.mark.parametrize("offset", [-1, -(2**62), 3, 2**62])
async def test_an_offset_that_the_log_does_not_have_is_not_noted(
    outside: Outside, offset: int
) -> None:
    """A follower that lies, or has another log, moves no watermark and joins nothing."""
    broker = Broker(outside)
    partition = await broker.assign(isr=(ME, SECOND))
    broker.append(b"a", b"b")
    found = await broker.fetch(offset, replica=SECOND)
    assert (found.error_code, found.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0)
    assert partition.log.positions.high_watermark == 0
    assert partition.leadership is not None
    assert partition.leadership.followers[SECOND].log_end == -1


async def test_an_offset_below_the_watermark_does_not_lower_it(outside: Outside) -> None:
    """Consumers can read again all that they have read, whatever a member of the ISR says later."""
    broker = Broker(outside)
    await broker.assign(isr=(ME, SECOND))
    broker.append(b"a", b"b")
    assert (await broker.fetch(2, replica=SECOND)).high_watermark == 2
    assert (await broker.fetch(0, replica=SECOND)).high_watermark == 2


@pytest.mark.parametrize(
    ("last_epoch", "offset", "expected"),
    [
        (1, 2, None),  # Both logs are equal.
        (2, 2, (1, 2)),  # Records of an epoch that the leader has nothing of.
        (1, 3, (1, 2)),  # More records of its epoch than the leader has.
        (3, 4, None),
    ],
)
async def test_a_follower_with_another_log_learns_where_it_diverges(
    outside: Outside, last_epoch: int, offset: int, expected: tuple[int, int] | None
) -> None:
    """Without records, at once, and its offset does not count before it has cut its log."""
    broker = Broker(outside)
    partition = await broker.assign(epoch=1, isr=(ME, SECOND))
    broker.append(b"a", b"b")
    await broker.assign(epoch=3, isr=(ME, SECOND))
    broker.append(b"c", b"d")
    found = await broker.fetch(
        offset, replica=SECOND, last_fetched_epoch=last_epoch, max_wait_ms=60_000
    )
    assert found.error_code == ErrorCode.NONE
    assert partition.leadership is not None
    noted = partition.leadership.followers[SECOND].log_end
    if expected is None:
        assert found.diverging_epoch.epoch == -1
        assert noted == offset
    else:
        assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == expected
        assert not found.records
        assert noted == -1


@pytest.mark.parametrize("last_epoch", [7, 2**31 - 1])
async def test_a_follower_with_an_epoch_of_the_future_is_out_of_range(
    outside: Outside, last_epoch: int
) -> None:
    """The leader knows no such epoch, so it cannot say where the logs are equal."""
    broker = Broker(outside)
    await broker.assign(isr=(ME, SECOND))
    found = await broker.fetch(0, replica=SECOND, last_fetched_epoch=last_epoch)
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("difference", "code"),
    [(-1, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (0, ErrorCode.NONE)],
)
@pytest.mark.parametrize("replica", [CONSUMER, SECOND, FOURTH])
@pytest.mark.parametrize("offset", [0, 99])
async def test_the_epoch_is_checked_before_all_else(
    outside: Outside, *, difference: int, code: ErrorCode, replica: int, offset: int
) -> None:
    """Before the offset and the set of replicas, for all who ask."""
    broker = Broker(outside)
    await broker.assign(epoch=4)
    found = await broker.fetch(offset, replica=replica, current_leader_epoch=4 + difference)
    if code is ErrorCode.NONE and offset:
        code = ErrorCode.OFFSET_OUT_OF_RANGE
    if not difference and replica == FOURTH:
        code = ErrorCode.UNKNOWN_LEADER_EPOCH
    assert found.error_code == code


async def test_a_follower_answers_no_followers(outside: Outside) -> None:
    """They have to ask the leader; with an old epoch they learn that first."""
    broker = Broker(outside)
    await broker.assign(SECOND)
    await broker.assign(SECOND)
    for replica, epoch, code in (
        (THIRD, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (THIRD, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (THIRD, 1, ErrorCode.FENCED_LEADER_EPOCH),
        (THIRD, 3, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        found = await broker.fetch(0, replica=replica, current_leader_epoch=epoch)
        assert found.error_code == code


async def test_partitions_that_are_elsewhere_or_nowhere(outside: Outside) -> None:
    """Another broker has the one, nobody the other, and a deleted topic's id is unknown."""
    broker = Broker(outside)
    await broker.assign()
    broker.replicas.close(FIRST, unique_id="0" * 32)()
    assert (await broker.fetch(0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    found = await broker.fetch(0, topic_id=UUID(int=99))
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_ID


# -- waiting ----------------------------------------------------------------------------------


def test_a_waiting_follower_gets_what_is_appended() -> None:
    """At once, although no consumer may see it yet."""

    async def scenario(outside: Outside) -> None:
        broker = Broker(outside)
        await broker.assign()
        waiting = asyncio.ensure_future(broker.fetch(0, replica=SECOND, max_wait_ms=60_000))
        reading = asyncio.ensure_future(broker.fetch(0, max_wait_ms=60_000))
        await outside.pass_time(0.1)
        broker.append(b"x")
        assert len((await waiting).records or b"") == SIZE
        await outside.pass_time(0.1)
        assert not reading.done()
        for follower in (SECOND, THIRD):
            await broker.fetch(1, replica=follower)
        assert len((await reading).records or b"") == SIZE

    assert on_virtual_time(scenario) < 1


def test_a_watermark_alone_ends_no_wait() -> None:
    """A follower of a session learns it when its time is over, or with the next records."""

    async def scenario(outside: Outside) -> None:
        broker = Broker(outside)
        await broker.assign()
        session = Session(broker, SECOND)
        await session.ask(offset=0)
        broker.append(b"x")
        assert await session.ask() == (SIZE, 0)
        waiting = asyncio.ensure_future(session.ask(offset=1, max_wait_ms=500))
        await outside.pass_time(0.1)
        await broker.fetch(1, replica=THIRD)
        await outside.pass_time(0.3)
        assert not waiting.done()
        assert await waiting == (0, 1)
        # Nothing is news now.
        assert await session.ask(max_wait_ms=500) is None
        waiting = asyncio.ensure_future(session.ask(max_wait_ms=60_000))
        await outside.pass_time(0.1)
        broker.append(b"x")
        assert await waiting == (SIZE, 1)

    assert on_virtual_time(scenario) < 2


async def test_the_request_that_moves_the_watermark_is_answered_with_it(outside: Outside) -> None:
    """The follower was the last of the ISR that had to have the record."""
    broker = Broker(outside)
    await broker.assign(isr=(ME, SECOND))
    session = Session(broker, SECOND)
    await session.ask(offset=0)
    broker.append(b"x")
    assert await session.ask() == (SIZE, 0)
    assert await session.ask(offset=1) == (0, 1)


def test_a_fetch_that_waits_counts_once() -> None:
    """A follower that waits has not got the record that comes, and does not look in sync."""

    async def scenario(outside: Outside) -> None:
        broker = Broker(outside)
        partition = await broker.assign(isr=(ME, SECOND))
        waiting = asyncio.ensure_future(
            broker.fetch(0, replica=THIRD, max_wait_ms=10_000, min_bytes=1000)
        )
        await outside.pass_time(1)
        assert partition.leadership is not None
        follower = partition.leadership.followers[THIRD]
        fetched_at_ms = follower.fetched_at_ms
        broker.append(b"x")
        await outside.pass_time(1)
        assert (follower.fetched_at_ms, follower.leader_end) == (fetched_at_ms, 0)
        await waiting
        assert (follower.fetched_at_ms, follower.leader_end) == (fetched_at_ms, 0)

    on_virtual_time(scenario)


@pytest.mark.parametrize("leader", [SECOND, -1])
def test_a_waiting_fetch_ends_with_the_leadership(leader: int) -> None:
    """A follower's, an old consumer's, and a new one's with the epoch that has ended."""

    async def scenario(outside: Outside) -> None:
        broker = Broker(outside)
        await broker.assign(epoch=1)
        waiting = [
            asyncio.ensure_future(each)
            for each in (
                broker.fetch(0, replica=SECOND, max_wait_ms=60_000),
                broker.fetch(0, replica=SECOND, max_wait_ms=60_000, current_leader_epoch=1),
                broker.fetch(0, version=10, max_wait_ms=60_000),
                broker.fetch(0, max_wait_ms=60_000, current_leader_epoch=1),
            )
        ]
        await outside.pass_time(0.1)
        await broker.assign(leader)
        codes = [(await each).error_code for each in waiting]
        assert codes == [
            ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH,
        ]  # fmt: skip

    assert on_virtual_time(scenario) < 1


def test_a_new_consumer_without_an_epoch_waits_on_at_a_follower() -> None:
    """It may read from any replica, so the end of the leadership is no error for it."""

    async def scenario(outside: Outside) -> None:
        broker = Broker(outside)
        await broker.assign()
        waiting = asyncio.ensure_future(broker.fetch(0, max_wait_ms=60_000))
        await outside.pass_time(0.1)
        await broker.assign(SECOND)
        await outside.pass_time(0.1)
        assert not waiting.done()
        broker.follow_records(b"x", epoch=2, watermark=1)
        assert len((await waiting).records or b"") == SIZE

    assert on_virtual_time(scenario) < 1


def test_a_waiting_fetch_with_the_old_epoch_ends_in_a_new_one() -> None:
    """Also where the same broker leads on."""

    async def scenario(outside: Outside) -> None:
        broker = Broker(outside)
        await broker.assign(epoch=1)
        waiting = asyncio.ensure_future(
            broker.fetch(0, replica=SECOND, max_wait_ms=60_000, current_leader_epoch=1)
        )
        await outside.pass_time(0.1)
        await broker.assign(epoch=2)
        assert (await waiting).error_code == ErrorCode.FENCED_LEADER_EPOCH

    assert on_virtual_time(scenario) < 1


def test_a_waiting_fetch_ends_with_the_topic() -> None:
    """The partition is unknown then, also when a topic of that name comes again."""

    async def scenario(outside: Outside) -> None:
        broker = Broker(outside)
        await broker.assign()
        waiting = asyncio.ensure_future(broker.fetch(0, replica=SECOND, max_wait_ms=60_000))
        await outside.pass_time(0.1)
        broker.delete()
        await broker.assign(topic_id=UUID(int=11))
        broker.append(b"of another topic")
        found = await waiting
        assert (found.error_code, found.records) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b"")

    assert on_virtual_time(scenario) < 1


# -- limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("replica", [CONSUMER, SECOND])
@pytest.mark.parametrize("min_bytes", [1, SIZE + SIZE // 2])
def test_no_answer_has_a_part_of_a_first_batch(*, replica: int, min_bytes: int) -> None:
    """A batch for which another partition has left no room comes with the next fetch, as in Kafka.

    What is left out counts for fetch.min.bytes, so that the answer does not wait.
    """

    async def scenario(outside: Outside) -> None:
        broker = Broker(outside)
        other = TopicPartition(FIRST.topic, 1)
        for name in (FIRST, other):
            partition = await broker.assign(name=name, isr=(ME,), replicas=(ME, SECOND))
            partition.append(memoryview(batch(b"x")), now_ms=broker.now_ms)
        request = fetch_request(
            0,
            replica=replica,
            max_bytes=2 * SIZE - 1,
            min_bytes=min_bytes,
            max_wait_ms=60_000,
        )
        (topic,) = request.topics
        (wanted,) = topic.partitions
        second = replace(wanted, partition=1)
        both = replace(request, topics=(replace(topic, partitions=(wanted, second)),))
        answer = await broker.ask(ApiKey.FETCH, both, FetchResponse, version=NEWEST)
        sizes = [len(each.records or b"") for each in answer.responses[0].partitions]
        assert sizes == [SIZE, 0]
        turned = replace(request, topics=(replace(topic, partitions=(second, wanted)),))
        answer = await broker.ask(ApiKey.FETCH, turned, FetchResponse, version=NEWEST)
        sizes = [len(each.records or b"") for each in answer.responses[0].partitions]
        assert sizes == [SIZE, 0]

    assert on_virtual_time(scenario) < 1


# -- partitions without news ----------------------------------------------------------------


def test_a_follower_that_has_all_is_noted_at_each_fetch() -> None:
    """Its answers have nothing of the partition, take their time, and keep it in the ISR."""

    async def scenario(outside: Outside) -> None:
        broker = Broker(outside)
        partition = await broker.assign(isr=(ME, SECOND))
        session = await _caught_up(broker)
        assert partition.leadership is not None
        follower = partition.leadership.followers[SECOND]
        for _ in range(3):
            asked_at_ms = elapsed_ms(outside.clock)
            assert await session.ask(max_wait_ms=500) is None
            assert follower.caught_up_at_ms == follower.fetched_at_ms == asked_at_ms

    assert 1.5 <= on_virtual_time(scenario) < 2


async def test_a_log_start_that_was_raised_is_news(outside: Outside) -> None:
    """DeleteRecords reaches a follower that has all records with its next fetch."""
    broker = Broker(outside)
    partition = await broker.assign(isr=(ME, SECOND))
    session = await _caught_up(broker)
    partition.delete_records(Offset(1))
    assert await session.ask() == (0, 1)
    assert await session.ask() is None


@pytest.mark.parametrize("is_waiting", [False, True])
def test_a_record_ends_the_wait_of_a_follower_that_had_all(*, is_waiting: bool) -> None:
    """It comes at once, and the record after it too."""

    async def scenario(outside: Outside) -> None:
        broker = Broker(outside)
        await broker.assign(isr=(ME, SECOND))
        session = await _caught_up(broker)
        for number in (1, 2):
            if is_waiting:
                waiting = asyncio.ensure_future(session.ask(max_wait_ms=60_000))
                await outside.pass_time(0.1)
                broker.append(b"x")
                assert await waiting == (SIZE, number)
            else:
                broker.append(b"x")
                assert await session.ask(max_wait_ms=60_000) == (SIZE, number)
            assert await session.ask(offset=number + 1) == (0, number + 1)

    assert on_virtual_time(scenario) < 1


def _register_again(broker: Broker) -> None:
    broker.register(SECOND, epoch=broker_epoch(SECOND) + 1)


async def _begin_epoch(broker: Broker) -> None:
    await broker.assign(isr=(ME, SECOND))


def _set_offline(broker: Broker) -> None:
    broker.replicas.set_offline(FIRST, "broken")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_register_again, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (_begin_epoch, ErrorCode.FENCED_LEADER_EPOCH),
        (Broker.delete, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (_set_offline, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
async def test_a_follower_that_has_all_is_refused_as_any_other(
    outside: Outside, change: Callable[[Broker], Awaitable[None] | None], code: ErrorCode
) -> None:
    """It has registered anew, or the epoch, the topic or the disk has gone."""
    broker = Broker(outside)
    await broker.assign(isr=(ME, SECOND))
    session = await _caught_up(broker)
    changing = change(broker)
    if changing is not None:
        await changing
    assert await session.refusal() == code


async def _caught_up(broker: Broker) -> "Session":
    """The session of a follower that has the one record there is, and knows the watermark."""
    broker.append(b"x")
    session = Session(broker, SECOND, current_leader_epoch=1, last_fetched_epoch=1)
    await session.ask(offset=1)
    assert await session.ask() is None
    return session


# -- reads from a device ----------------------------------------------------------------------


def test_a_follower_does_not_count_in_an_epoch_in_which_it_has_not_fetched() -> None:
    """A read from the device ends after this broker has followed, and led again."""

    async def scenario(outside: Outside) -> None:
        broker = Broker(outside)
        partition = await broker.assign(isr=(ME, SECOND))
        broker.append(b"x")
        await broker.fetch(1, replica=SECOND)
        outside.files.make_cold()
        outside.threads.seconds_per_run = 5
        reading = asyncio.ensure_future(broker.fetch(0, replica=SECOND))
        await outside.pass_time(1)
        outside.threads.seconds_per_run = 0
        await broker.assign(SECOND)
        await broker.assign(ME, isr=(ME, SECOND))
        found = await reading
        assert (found.error_code, found.records) == (ErrorCode.FENCED_LEADER_EPOCH, b"")
        assert partition.leadership is not None
        assert partition.leadership.followers[SECOND].log_end == -1

    on_virtual_time(scenario)


async def test_a_read_that_fails_is_not_noted(outside: Outside) -> None:
    """The follower has got an error, and nothing is known of what it has."""
    broker = Broker(outside)
    partition = await broker.assign(isr=(ME, SECOND))
    broker.append(b"x")
    broker.replicas.set_offline(FIRST, "broken")
    found = await broker.fetch(1, replica=SECOND)
    assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.log.positions.high_watermark == 0


class Session:
    """The fetch session of a follower for the first partition."""

    def __init__(self, broker: Broker, replica: int, **of_partition: Any) -> None:
        self._broker, self._replica, self._of_partition = broker, replica, of_partition
        self._id, self._epoch = 0, 0

    async def ask(
        self, *, offset: int | None = None, max_wait_ms: int = 0
    ) -> tuple[int, int] | None:
        """Bytes of records and high watermark of the partition; None: nothing is news."""
        partition = await self._answer(offset, max_wait_ms)
        if partition is None:
            return None
        assert partition.error_code == 0
        return len(partition.records or b""), partition.high_watermark

    async def refusal(self) -> int:
        """The error code of the partition, without a change of what is asked."""
        partition = await self._answer(None, 0)
        assert partition is not None
        return partition.error_code

    async def _answer(self, offset: int | None, max_wait_ms: int) -> PartitionData | None:
        request = fetch_request(
            offset or 0,
            replica=self._replica,
            max_wait_ms=max_wait_ms,
            session_id=self._id,
            session_epoch=self._epoch,
            **self._of_partition,
        )
        if offset is None:
            request = replace(request, topics=())
        found = await self._broker.ask(ApiKey.FETCH, request, FetchResponse, version=NEWEST)
        assert found.error_code == 0
        self._id, self._epoch = found.session_id, self._epoch + 1
        if not found.responses:
            return None
        assert found.responses[0].topic_id == TOPIC_ID
        (partition,) = found.responses[0].partitions
        return partition
