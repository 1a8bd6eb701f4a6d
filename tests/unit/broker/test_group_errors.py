"""Requests of groups and the log of their shard: refusals, and batches that have to fit."""

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.coordinator.groups.commits import Commit, Committer, OffsetToCommit
from tailrace.coordinator.groups.machine import GroupMachine
from tailrace.coordinator.groups.record_codec import GroupRecordCodec
from tailrace.coordinator.groups.records import group_tombstone
from tailrace.coordinator.groups.settings import GroupSettings
from tailrace.coordinator.machine import Decision
from tailrace.coordinator.shard import Shard
from tailrace.coordinator.shards import Shards
from tailrace.errors import RecordTooLargeError, StorageError
from tailrace.handlers.groups import commit_offsets, decide
from tailrace.model import OFFSETS_TOPIC, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.records.batch import Batch
from tailrace.replication.partition import UnknownPartitionError
from tailrace.testing import Outside
from tailrace.testing.coordinator_log import MemoryPartitionLog


async def loaded(outside: Outside, log: MemoryPartitionLog) -> Any:
    """The part of a broker's services that such requests need."""
    shards = Shards(lambda _: shard, partition_count=lambda: 1)
    shard: Shard[Any] = Shard(
        log,
        lambda: GroupMachine(GroupSettings(), chance=random.Random(0)),
        GroupRecordCodec(),
        clock=outside.runtime.clock,
    )
    shards.lead(log)
    await outside.pass_time(1)
    return SimpleNamespace(groups=shards)


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (UnknownPartitionError("no such partition"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (StorageError("the directory has failed"), ErrorCode.NOT_COORDINATOR),
        (OSError(5, "input/output error"), ErrorCode.NOT_COORDINATOR),
        (
            RecordTooLargeError(2_000_000, limit=1_048_588, setting="max.message.bytes"),
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
    ],
)
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
    offsets = [
        OffsetToCommit(TopicPartition("t", each), NO_UUID, each, -1, "\u20ac" * 4096)
        for each in range(200)
    ]
    commit = Commit(group_id="g", committer=Committer(-1, "", None), offsets=offsets, version=9)
    assert await commit_offsets(services, commit) == [ErrorCode.NONE] * 200
    assert max(map(len, log.content)) < 1_000_000
    assert sum(Batch(memoryview(each)).record_count for each in log.content) == 200
    assert await commit_offsets(services, replace(commit, offsets=[])) == []
    await services.groups.stop()
