"""A repeated OffsetCommit is known by its bytes, and answered without being decoded."""

import random
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from tailrace.cluster.image import Topic
from tailrace.coordinator.groups.machine import GroupMachine
from tailrace.coordinator.groups.record_codec import GroupRecordCodec
from tailrace.coordinator.groups.settings import ConsumerSettings, GroupSettings
from tailrace.coordinator.shard import Shard
from tailrace.coordinator.shards import Shards
from tailrace.handlers.offset_commit import handle_offset_commit
from tailrace.handlers.repeated_commit import RepeatedCommit
from tailrace.model import OFFSETS_TOPIC, LeaderEpoch, TopicPartition
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.frames import (
    decode_request,
    encode_request,
    encode_response,
    read_request_header,
)
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tailrace.testing import Outside
from tailrace.testing.coordinator_log import MemoryPartitionLog
from tailrace.testing.outside import InlineThreads
from tests.unit.coordinator.groups_consumer.group_shard import MemoryTopics

API = APIS[ApiKey.OFFSET_COMMIT]
TOPIC = Topic(name="t", topic_id=UUID(int=5), partitions=(0, 1, 2), configs={})
LIMIT = 10_000_000


class Broker:
    """A shard, and what a connection to it has learned."""

    def __init__(self, services: Any, log: MemoryPartitionLog) -> None:
        self.services = services
        self.log = log
        self.repeated = RepeatedCommit(services)

    async def ask(self, frame: bytes) -> bytes:
        """The answer of the general path, from which the connection learns."""
        body = memoryview(frame)[4:]
        header, position = read_request_header(body)
        request = decode_request(header, body, position)
        assert isinstance(request, OffsetCommitRequest)
        answer = handle_offset_commit(self.services, header, request)
        if isinstance(answer, Awaitable):
            answer = await answer
        self.repeated.learn(header, request, answer=answer, frame=body)
        return encode_response(
            API, answer, version=header.api_version, correlation_id=header.correlation_id
        )

    def take(self, frame: bytes) -> bytes | None:
        """The answer to a repetition, or None."""
        received = bytearray(b"before" + frame + b"behind")
        limit = len(received) - len(b"behind")
        taken = self.repeated.take(received, len(b"before"), limit, frame_bytes_max=LIMIT)
        if taken is None:
            return None
        assert taken[0] == limit
        return taken[1]


async def started(outside: Outside) -> Broker:
    """A broker that has loaded its only shard."""
    log = MemoryPartitionLog(TopicPartition(OFFSETS_TOPIC, 0))
    shards = Shards(lambda _: shard, partition_count=lambda: 1)
    shard: Shard[Any] = Shard(
        log,
        lambda: GroupMachine(
            GroupSettings(),
            MemoryTopics(),
            consumer_settings=lambda _: ConsumerSettings(),
            threads=InlineThreads(),
            chance=random.Random(0),
        ),
        GroupRecordCodec,
        clock=outside.runtime.clock,
    )
    shards.lead(log, leader_epoch=LeaderEpoch(0))
    await outside.pass_time(1)
    return Broker(SimpleNamespace(groups=shards, find_topic=lambda *_: TOPIC), log)


def commit(offset: int, *, version: int = 9, partitions: int = 2, number: int = 0) -> bytes:
    """A commit of the same offset for some partitions."""
    wanted = tuple(
        OffsetCommitRequestPartition(
            partition_index=each,
            committed_offset=offset,
            committed_leader_epoch=3,
            committed_metadata="m",
        )
        for each in range(partitions)
    )
    topic = OffsetCommitRequestTopic(name="t", topic_id=TOPIC.topic_id, partitions=wanted)
    request = OffsetCommitRequest(group_id="g", topics=(topic,))
    return encode_request(API, request, version=version, correlation_id=number, client_id="c")


@pytest.mark.parametrize("version", range(2, 11))
async def test_the_third_commit_of_a_kind_is_answered_by_its_bytes(
    outside: Outside, version: int
) -> None:
    """Its offsets are in the log, and the answer is that of the general path."""
    broker = await started(outside)
    for offset in (1, 2):
        assert broker.take(commit(offset, version=version)) is None
        await broker.ask(commit(offset, version=version))
    repeated = commit(3, version=version, number=7)
    answer = broker.take(repeated)
    assert answer == await broker.ask(repeated)
    assert broker.log.content[-2][16:] == broker.log.content[-1][16:]


@pytest.mark.parametrize(
    "other",
    [commit(3, partitions=1), commit(3, partitions=3), commit(3, version=8), commit(3)[:-1]],
    ids=["fewer partitions", "more partitions", "another version", "not whole"],
)
async def test_another_request_is_decoded(outside: Outside, other: bytes) -> None:
    """It is left to the general path, and nothing is committed."""
    broker = await started(outside)
    for offset in (1, 2):
        await broker.ask(commit(offset))
    count = len(broker.log.content)
    assert broker.take(other) is None
    assert len(broker.log.content) == count


async def test_a_repetition_that_has_to_wait_is_decoded(outside: Outside) -> None:
    """While records are not committed, or the partition moves, the general path answers."""
    broker = await started(outside)
    for offset in (1, 2):
        await broker.ask(commit(offset))
    broker.log.hold_commits()
    assert broker.take(commit(3)) is None
    broker.log.commit()
    broker.log.is_free.clear()
    assert broker.take(commit(3)) is None
    broker.log.is_free.set()
    assert broker.take(commit(3)) is not None
