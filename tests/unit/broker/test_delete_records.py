"""DeleteRecords: who may, up to where, and what readers and the disk see of it."""

import logging

import pytest

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tailrace.testing import MemoryFiles, Outside, Peer, virtual_runtime
from tests.unit.broker.brokers import (
    batch,
    connect,
    create_topic,
    fetch,
    fetch_request,
    produce,
    running,
)

START_NOW = {"log.initial.task.delay.ms": "0"}


async def delete_records(peer: Peer, topic: str, offset: int) -> DeleteRecordsPartitionResult:
    """The broker's answer for partition 0 of a topic."""
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(name=topic, partitions=(partition,)),), timeout_ms=1000
    )
    response = await peer.ask(ApiKey.DELETE_RECORDS, request, DeleteRecordsResponse)
    assert response.topics[0].name == topic
    return response.topics[0].partitions[0]


async def filled(peer: Peer, topic: str = "t", **configs: str) -> None:
    """A topic with ten records, two or three to a segment."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    await create_topic(peer, topic, configs={"internal.segment.bytes": "250", **named})
    for number in range(10):
        await produce(peer, topic, batch(b"%d" % number))


@pytest.mark.parametrize(
    ("offset", "code", "low_watermark"),
    [
        (4, ErrorCode.NONE, 4),
        (0, ErrorCode.NONE, 0),
        (10, ErrorCode.NONE, 10),
        (-1, ErrorCode.NONE, 10),
        (11, ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        (-2, ErrorCode.OFFSET_OUT_OF_RANGE, -1),
    ],
)
async def test_a_log_starts_where_it_was_asked_to(
    outside: Outside, offset: int, code: ErrorCode, low_watermark: int
) -> None:
    """The high watermark, for which -1 stands, is the limit; readers below are out of range."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await filled(peer)
        answer = await delete_records(peer, "t", offset)
        assert (answer.error_code, answer.low_watermark) == (code, low_watermark)
        start = max(low_watermark, 0)
        at_start = await fetch(peer, fetch_request("t", start))
        assert (at_start.error_code, at_start.log_start_offset) == (0, start)
        if start:
            below = await fetch(peer, fetch_request("t", start - 1))
            assert below.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_start_never_goes_back(outside: Outside, caplog: pytest.LogCaptureFixture) -> None:
    """An offset below it is answered with the start there is; the log has a line for the other."""
    caplog.set_level(logging.INFO)
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await filled(peer)
        await delete_records(peer, "t", 6)
        assert (await delete_records(peer, "t", 3)).low_watermark == 6
    raised = [line for line in caplog.messages if line.startswith("records_deleted")]
    assert len(raised) == 1
    assert raised[0].endswith("api=DeleteRecords topic=t partition=0 log_start_offset=6")


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("compact", ErrorCode.POLICY_VIOLATION),
        ("", ErrorCode.NONE),
        ("compact,delete", ErrorCode.NONE),
        ("delete", ErrorCode.NONE),
    ],
)
async def test_a_compacted_topic_keeps_its_records(
    outside: Outside, policy: str, code: ErrorCode
) -> None:
    """Unless its policy is delete too; without any policy they can be deleted."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await filled(peer, cleanup_policy=policy)
        assert (await delete_records(peer, "t", 5)).error_code == code


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("__consumer_offsets", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
async def test_delete_records_is_refused_for_missing_and_internal_topics(
    outside: Outside, topic: str, code: ErrorCode
) -> None:
    """A missing topic and Kafka's internal topics are refused."""
    async with running(outside) as broker:
        answer = await delete_records(connect(outside, broker), topic, 0)
        assert (answer.error_code, answer.low_watermark) == (code, -1)


def test_segments_below_the_start_go_with_retention() -> None:
    """They are renamed then, deleted after file.delete.delay.ms, and the start survives."""

    async def scenario(outside: Outside) -> None:
        async with running(outside, START_NOW) as broker:
            peer = connect(outside, broker)
            await filled(peer, retention_ms="-1")
            await outside.pass_time(10)
            before = len(broker.replicas.find(next(iter(broker.logs)).partition).log.segments)
            await delete_records(peer, "t", 9)
            await outside.pass_time(301)
            log = next(iter(broker.logs))
            assert before > 3
            assert len(log.segments) == 1
            names = outside.files.list("data/t-0")
            assert any(name.endswith(".log.deleted") for name in names)
            await outside.pass_time(65)
            names = outside.files.list("data/t-0")
            assert not any(name.endswith(".deleted") for name in names)
            disks.append(outside.files.crash())

    async def look(outside: Outside) -> None:
        async with running(outside) as broker:
            assert next(iter(broker.logs)).start_offset == 9

    disks: list[MemoryFiles] = []
    with virtual_runtime() as outside:
        outside.run(scenario(outside))
    with virtual_runtime(files=disks[0]) as outside:
        outside.run(look(outside))
