"""OffsetForLeaderEpoch: where an epoch ends, told to a consumer that checks for truncation."""

import pytest

from tailrace.model import LeaderEpoch, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tailrace.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tailrace.storage.shrink import raise_log_start
from tailrace.testing import Outside, Peer
from tests.unit.broker.brokers import batch, connect, create_topic, fetch, produce, running

NOW = 1_700_000_000_000
CURRENT = 4
"""The leader epoch of the partition in most of these tests."""


async def ask(
    peer: Peer, epoch: int, *, current: int = -1, topic: str = "t", version: int | None = None
) -> EpochEndOffset:
    """The broker's answer for partition 0 of a topic."""
    partition = OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        topics=(OffsetForLeaderTopic(topic=topic, partitions=(partition,)),)
    )
    key = ApiKey.OFFSET_FOR_LEADER_EPOCH
    response = await peer.ask(key, request, OffsetForLeaderEpochResponse, version=version)
    (found,) = response.topics
    assert (found.topic, found.partitions[0].partition) == (topic, 0)
    return found.partitions[0]


async def write_epochs(outside: Outside) -> None:
    """Leave a log with offsets 0 and 1 of epoch 0, 2 of epoch 2, and 3 of epoch 4."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        await produce(peer, "t", batch(b"a", b"b"))
        log = broker.replicas.find(TopicPartition("t", 0)).log
        for epoch in (2, CURRENT):
            data = memoryview(bytearray(batch(b"c")))
            log.append(data, leader_epoch=LeaderEpoch(epoch), now_ms=NOW)


@pytest.mark.parametrize(
    ("asked", "epoch", "end"),
    [(0, 0, 2), (1, 0, 2), (2, 2, 3), (3, 2, 3), (4, 4, 4), (5, -1, -1), (-1, -1, -1), (-7, -7, 0)],
)
async def test_an_epoch_ends_where_the_next_begins(
    outside: Outside, asked: int, epoch: int, end: int
) -> None:
    """The answer is the largest epoch that is not newer, and the offset behind its last record."""
    await write_epochs(outside)
    async with running(outside) as broker:
        found = await ask(connect(outside, broker), asked)
        assert (found.error_code, found.leader_epoch, found.end_offset) == (0, epoch, end)


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_the_current_epoch_ends_at_the_log_end(outside: Outside, version: int) -> None:
    """The end of the current epoch moves with each record; it is 0 before the first."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        for count in range(3):
            found = await ask(peer, 0, current=0, version=version)
            assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, count)
            await produce(peer, "t", batch(b"x"))


epochs_of_clients = pytest.mark.parametrize(
    ("current", "code"),
    [
        (CURRENT - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (CURRENT, ErrorCode.NONE),
        (CURRENT + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-1, ErrorCode.NONE),
    ],
)
"""Leader epochs that a client names, and the code of the answer."""


@epochs_of_clients
async def test_the_clients_epoch_must_be_the_brokers(
    outside: Outside, current: int, code: ErrorCode
) -> None:
    """A client with older or newer metadata than the broker is told so; -1 is not checked."""
    await write_epochs(outside)
    async with running(outside) as broker:
        found = await ask(connect(outside, broker), CURRENT, current=current)
        assert found.error_code == code
        assert (found.end_offset == CURRENT) is (code is ErrorCode.NONE)


async def test_an_unknown_topic_has_no_epochs(outside: Outside) -> None:
    """A topic that does not exist gets its error, and no offset."""
    async with running(outside) as broker:
        found = await ask(connect(outside, broker), 0, topic="nope")
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (found.leader_epoch, found.end_offset) == (-1, -1)


async def test_an_offline_partition_has_no_epochs(outside: Outside) -> None:
    """A partition whose log directory has failed answers with the storage's error."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        broker.replicas.set_offline(TopicPartition("t", 0), "broken")
        found = await ask(peer, 0)
        assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def fetching(offset: int, *, current: int = -1, last: int = -1) -> FetchRequest:
    """A Fetch of partition 0 that is answered at its deadline if there is nothing to tell."""
    wanted = FetchPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=2**20,
        current_leader_epoch=current,
        last_fetched_epoch=last,
    )
    topics = (FetchTopic(topic="t", partitions=(wanted,)),)
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics)


@epochs_of_clients
async def test_a_fetch_needs_the_leader_epoch_of_the_broker(
    outside: Outside, current: int, code: ErrorCode
) -> None:
    """It gets no records under another one, since the logs may differ; -1 is not checked."""
    await write_epochs(outside)
    async with running(outside) as broker:
        found = await fetch(connect(outside, broker), fetching(0, current=current))
        assert found.error_code == code
        assert bool(found.records) is (code is ErrorCode.NONE)
        assert found.high_watermark == (CURRENT if code is ErrorCode.NONE else -1)


@pytest.mark.parametrize(
    ("last", "offset", "diverging"),
    [
        (0, 2, None),
        (2, 3, None),
        (4, 4, None),
        (-1, 3, None),
        (-7, 3, None),
        (0, 3, (0, 2)),
        (1, 2, (0, 2)),
        (3, 3, (2, 3)),
        (4, 5, (4, 4)),
    ],
)
async def test_a_fetch_is_told_where_its_log_has_left_that_of_the_leader(
    outside: Outside, last: int, offset: int, diverging: tuple[int, int] | None
) -> None:
    """The epoch of its last record ends before its offset, or is not known: it gets no records."""
    await write_epochs(outside)
    async with running(outside) as broker:
        before = outside.loop.time()
        request = fetching(offset, last=last, current=CURRENT)
        found = await fetch(connect(outside, broker), request)
        end = found.diverging_epoch
        assert (found.error_code, found.high_watermark) == (ErrorCode.NONE, 4)
        assert (end.epoch, end.end_offset) == ((-1, -1) if diverging is None else diverging)
        assert bool(found.records) is (diverging is None and offset < 4)
        has_waited = outside.loop.time() - before >= 0.5
        assert has_waited is (diverging is None and offset == 4)


@pytest.mark.parametrize(("last", "offset"), [(5, 4), (2, 1), (4, 1)])
async def test_a_fetch_of_what_the_leader_cannot_compare_is_out_of_range(
    outside: Outside, last: int, offset: int
) -> None:
    """An epoch that it has not seen, or an offset below its log start."""
    await write_epochs(outside)
    async with running(outside) as broker:
        raise_log_start(broker.replicas.find(TopicPartition("t", 0)).log, 2)
        found = await fetch(connect(outside, broker), fetching(offset, last=last))
        assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert found.log_start_offset == 2
