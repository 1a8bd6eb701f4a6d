"""Requests of groups and the log of their shard: refusals, and batches that have to fit."""

import asyncio
import logging
import random
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.cluster.image import ClusterImage, Topic
from tailrace.coordinator.groups.classic_group import group_tombstone
from tailrace.coordinator.groups.commits import Commit, Committer, MemberAtEpoch, OffsetToCommit
from tailrace.coordinator.groups.machine import GroupMachine
from tailrace.coordinator.groups.record_codec import GroupRecordCodec
from tailrace.coordinator.groups.settings import ConsumerSettings, GroupSettings
from tailrace.coordinator.machine import Decision
from tailrace.coordinator.shard import PartitionLog, Shard
from tailrace.coordinator.shards import Shards, partition_of
from tailrace.errors import RecordTooLargeError, StorageError
from tailrace.handlers.group_admin import handle_list_groups
from tailrace.handlers.groups import commit_offsets, decide, forget_topic
from tailrace.handlers.membership import handle_heartbeat
from tailrace.handlers.offset_fetch import handle_offset_fetch
from tailrace.handlers.txn_offset_commit import handle_txn_offset_commit
from tailrace.model import OFFSETS_TOPIC, LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.heartbeat import HeartbeatRequest
from tailrace.protocol.messages.list_groups import ListGroupsRequest
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tailrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tailrace.records.batch import Batch
from tailrace.replication.partition import UnknownPartitionError
from tailrace.storage.producers import InvalidProducerEpochError
from tailrace.testing import Outside
from tailrace.testing.coordinator_log import MemoryPartitionLog
from tests.unit.coordinator.groups_consumer.group_shard import MemoryTopics

DELETED = Topic(name="t", topic_id=NO_UUID, partitions=(0,), configs={})
HEADER = RequestHeader(api_key=0, api_version=0, correlation_id=0, client_id="c")


async def loaded(outside: Outside, *logs: MemoryPartitionLog) -> Any:
    """The part of a broker's services that such requests need."""

    def shard(log: PartitionLog) -> Shard[Any]:
        return Shard(
            log,
            lambda: GroupMachine(
                GroupSettings(),
                MemoryTopics(),
                consumer_settings=lambda _: ConsumerSettings(),
                threads=outside.runtime.threads,
                chance=random.Random(0),
            ),
            GroupRecordCodec,
            clock=outside.runtime.clock,
            commit_timeout_ms=5_000,
        )

    shards = Shards(shard, partition_count=lambda: len(logs))
    for log in logs:
        shards.lead(log, leader_epoch=LeaderEpoch(0))
    await outside.pass_time(1)
    return SimpleNamespace(groups=shards, authorizer=None)


def committing(group_id: str, count: int, *, metadata: str = "") -> Commit:
    """A commit of an operator for this number of partitions."""
    offsets = [
        OffsetToCommit(TopicPartition("t", each), NO_UUID, each, -1, metadata)
        for each in range(count)
    ]
    return Commit(group_id=group_id, committer=Committer(-1, "", None), offsets=offsets, version=9)


LOG_REFUSALS = [
    (UnknownPartitionError("no such partition"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (StorageError("the directory has failed"), ErrorCode.NOT_COORDINATOR),
    (OSError(5, "input/output error"), ErrorCode.NOT_COORDINATOR),
    (
        RecordTooLargeError(2_000_000, limit=1_048_588, setting="max.message.bytes"),
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
]
"""Errors of the log of a partition of groups, and the code that a client gets."""
FENCED = InvalidProducerEpochError(
    ProducerId(1), epoch=ProducerEpoch(0), known_epoch=ProducerEpoch(1)
)


@pytest.mark.parametrize(("refusal", "code"), LOG_REFUSALS)
async def test_the_code_says_whether_to_ask_again_or_elsewhere(
    outside: Outside, refusal: Exception, code: ErrorCode
) -> None:
    """A request that can never succeed is not sent again; a broken coordinator is looked up."""
    log = MemoryPartitionLog(TopicPartition(OFFSETS_TOPIC, 0))
    services = await loaded(outside, log)
    log.refusal = refusal

    def write(_machine: Any, _now_ms: int) -> Decision[None]:
        return Decision(reply=None, records=(group_tombstone("g"),))

    assert await decide(services, "g", write) is code
    await services.groups.stop()


@pytest.mark.parametrize("topics", [None, (OffsetFetchRequestTopics(name="t"),)])
@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_fetch_of_what_cannot_be_committed_looks_for_another_coordinator(
    outside: Outside,
    is_lost: bool,  # noqa: FBT001 - a case
    topics: tuple[OffsetFetchRequestTopics, ...] | None,
) -> None:
    """The commit before it is lost with its log, or takes too long."""
    log = MemoryPartitionLog(TopicPartition(OFFSETS_TOPIC, 0))
    services = await loaded(outside, log)
    log.hold_commits()
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=topics),))
    fetching = asyncio.ensure_future(
        handle_offset_fetch(services, HEADER._replace(api_version=9), request)
    )
    await outside.pass_time(1)
    if is_lost:
        log.lose(UnknownPartitionError("no such partition"))
    else:
        await outside.pass_time(5)
    assert (await fetching).groups[0].error_code == ErrorCode.NOT_COORDINATOR
    await services.groups.stop()


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        *LOG_REFUSALS,
        (FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
async def test_the_code_of_a_transactions_commit_says_what_to_do(
    outside: Outside, refusal: Exception, code: ErrorCode
) -> None:
    """It is that of other requests; and a producer hears what the log has against it."""
    log = MemoryPartitionLog(TopicPartition(OFFSETS_TOPIC, 0))
    services = await loaded(outside, log)
    services.find_topic = lambda _name, _topic_id: DELETED
    log.refusal = refusal
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        topics=(TxnOffsetCommitRequestTopic(name="t", partitions=(partition,)),),
    )
    answer = await handle_txn_offset_commit(services, HEADER._replace(api_version=4), request)
    assert answer.topics[0].partitions[0].error_code == code
    await services.groups.stop()


async def test_groups_of_a_shard_that_loads_are_not_known_yet(outside: Outside) -> None:
    """The client is told to ask again here, and is answered once the log has been read."""
    log = MemoryPartitionLog(TopicPartition(OFFSETS_TOPIC, 0))
    log.seconds_per_read = 30
    services = await loaded(outside, log)

    def read(_machine: Any, _now_ms: int) -> Decision[str]:
        return Decision(reply="known")

    assert await decide(services, "g", read) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await outside.pass_time(30)
    assert await decide(services, "g", read) == "known"
    await services.groups.stop()


async def test_metadata_makes_batches_smaller(outside: Outside) -> None:
    """A commit whose metadata fits into no single batch is committed all the same."""
    log = MemoryPartitionLog(TopicPartition(OFFSETS_TOPIC, 0))
    services = await loaded(outside, log)
    commit = committing("g", 200, metadata="\u20ac" * 4096)
    assert await commit_offsets(services, commit) == [ErrorCode.NONE] * 200
    assert max(map(len, log.content)) < 1_000_000
    assert sum(Batch(memoryview(each)).record_count for each in log.content) == 200
    assert await commit_offsets(services, commit._replace(offsets=[])) == []
    await services.groups.stop()


async def test_offsets_behind_a_batch_that_fails_are_refused(outside: Outside) -> None:
    """The batches before it are committed; each offset has the code of its own batch."""

    class Log(MemoryPartitionLog):
        def append(self, batch: bytearray, **options: Any) -> int:
            offset = super().append(batch, **options)
            self.refusal = OSError(28, "no space left on device")
            return offset

    log = Log(TopicPartition(OFFSETS_TOPIC, 0))
    services = await loaded(outside, log)
    codes = await commit_offsets(services, committing("g", 250))
    assert codes == [ErrorCode.NONE] * 100 + [ErrorCode.NOT_COORDINATOR] * 150
    assert sum(Batch(memoryview(each)).record_count for each in log.content) == 100
    await services.groups.stop()


async def test_a_heartbeat_to_a_group_that_loads_succeeds(outside: Outside) -> None:
    """Its member would otherwise join again, and a rebalance would follow each restart."""
    log = MemoryPartitionLog(TopicPartition(OFFSETS_TOPIC, 0))
    log.seconds_per_read = 30
    services = await loaded(outside, log)
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    answering = handle_heartbeat(services, HEADER, request)
    answer = await answering if isinstance(answering, Awaitable) else answering
    assert answer.error_code == ErrorCode.NONE
    await services.groups.stop()


def logs_of(count: int) -> list[MemoryPartitionLog]:
    """The partitions of the topic of groups."""
    return [MemoryPartitionLog(TopicPartition(OFFSETS_TOPIC, each)) for each in range(count)]


async def one_group_in_each(outside: Outside, logs: list[MemoryPartitionLog]) -> list[str]:
    """Commit for one group of each partition; returns their ids, by partition."""
    groups = {partition_of(f"g{each}", len(logs)): f"g{each}" for each in range(20)}
    services = await loaded(outside, *logs)
    for each in groups.values():
        await commit_offsets(services, committing(each, 1))
    await services.groups.stop()
    return [groups[each] for each in range(len(logs))]


async def test_groups_of_a_partition_that_is_not_coordinated_here_are_not_listed(
    outside: Outside,
) -> None:
    """It is no error: another broker lists them, or nobody if the partition is damaged."""
    logs = logs_of(3)
    groups = await one_group_in_each(outside, logs)
    logs[1].content.append(b"damage")
    services = await loaded(outside, *logs)
    answer = await handle_list_groups(services, HEADER, ListGroupsRequest())
    assert answer.error_code == ErrorCode.NONE
    assert [each.group_id for each in answer.groups] == [groups[0], groups[2]]
    await services.groups.stop()


async def test_groups_are_not_listed_while_one_of_their_partitions_loads(outside: Outside) -> None:
    """A part of the groups would look like all of them: the client is told to ask again."""
    logs = logs_of(3)
    groups = await one_group_in_each(outside, logs)
    logs[2].seconds_per_read = 30
    services = await loaded(outside, *logs)
    answer = await handle_list_groups(services, HEADER, ListGroupsRequest())
    assert (answer.error_code, answer.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ())
    await outside.pass_time(30)
    answer = await handle_list_groups(services, HEADER, ListGroupsRequest())
    assert [each.group_id for each in answer.groups] == groups
    await services.groups.stop()


async def test_a_topic_is_forgotten_by_groups_of_all_partitions(outside: Outside) -> None:
    """Their offsets of the topic are deleted in the logs of all of them."""
    logs = logs_of(3)
    groups = await one_group_in_each(outside, logs)
    services = await loaded(outside, *logs)
    await forget_topic(services, DELETED)
    assert [len(log.content) for log in logs] == [2, 2, 2]
    for group_id in groups:
        assert await committed_partitions(services, group_id) == []
    await services.groups.stop()


async def test_a_topic_is_forgotten_where_its_groups_can_be_written(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """The others keep what they have committed until it expires, and the operator is told."""
    logs = logs_of(3)
    groups = await one_group_in_each(outside, logs)
    logs[0].refusal = OSError(28, "no space left on device")
    services = await loaded(outside, *logs)
    with caplog.at_level(logging.WARNING):
        await forget_topic(services, DELETED)
    kept = [await committed_partitions(services, each) for each in groups]
    assert kept == [[TopicPartition("t", 0)], [], []]
    assert f"offsets_not_deleted group={groups[0]} topic=t" in caplog.text
    await services.groups.stop()


@pytest.mark.parametrize(("version", "names"), [(9, ["t"]), (10, [])])
async def test_a_topic_that_is_gone_has_no_id_to_be_named_by(
    outside: Outside, version: int, names: list[str]
) -> None:
    """Versions that name topics by id leave its offsets out of those of the whole group."""
    services = await loaded(outside, *logs_of(1))
    services.cluster = SimpleNamespace(image=ClusterImage())
    assert await commit_offsets(services, committing("g", 1)) == [ErrorCode.NONE]
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=None),))
    header = HEADER._replace(api_version=version)
    [group] = (await handle_offset_fetch(services, header, request)).groups
    assert group.error_code == ErrorCode.NONE
    assert [each.name for each in group.topics] == names
    await services.groups.stop()


async def committed_partitions(services: Any, group_id: str) -> list[TopicPartition] | ErrorCode:
    """The partitions for which a group has committed."""
    nobody = MemberAtEpoch(member_id=None, epoch=-1)
    return await decide(
        services, group_id, lambda groups, _: groups.committed_partitions(group_id, fetcher=nobody)
    )
