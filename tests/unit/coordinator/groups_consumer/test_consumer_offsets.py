"""Commits, fetches and deletions of offsets of a consumer group, and their expiry."""

import random
from dataclasses import replace
from uuid import UUID

import pytest

from tailrace.coordinator.groups.commits import (
    Commit,
    Committer,
    MemberAtEpoch,
    OffsetToCommit,
    consumer_commit_codes,
    consumer_fetch_code,
    delete_group,
    delete_offsets,
)
from tailrace.coordinator.groups.consumer_group import (
    ConsumerGroup,
    ConsumerMember,
    CurrentAssignment,
)
from tailrace.coordinator.groups.expiry import Walk
from tailrace.coordinator.groups.offsets import CommittedOffset, Offsets, offset_record
from tailrace.coordinator.groups.settings import ConsumerSettings, GroupSettings
from tailrace.coordinator.groups.state import Groups
from tailrace.coordinator.machine import CoordinatorRecord, Origin, TransactionalProducer
from tailrace.coordinator.statistics import GroupCounts
from tailrace.model import ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.records import ClassicMemberMetadata, OffsetCommitKey, OffsetCommitValue
from tests.unit.coordinator.groups_consumer.codec import type_of
from tests.unit.coordinator.groups_consumer.group_shard import MemoryTopics
from tests.unit.coordinator.groups_consumer.test_consumer_records import METADATA, A, B

PARTITIONS = [(A, 0), (A, 1), (B, 4), (B, 5)]
NONE, STALE, UNKNOWN = (
    ErrorCode.NONE,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
)
ZERO = UUID(int=0)


def group(*, is_classic: bool = False) -> ConsumerGroup:
    """A member at epoch 5: it has a0 since 3 and a1 since 5, and gives up b4, had since 2."""
    metadata = METADATA
    if is_classic:
        metadata = replace(metadata, classic_member_metadata=ClassicMemberMetadata())
    current = CurrentAssignment(
        epoch=5, previous_epoch=4, assigned={A: {0: 3, 1: 5}}, revoking={B: {4: 2}}
    )
    found = ConsumerGroup("g", epoch=5, target_epoch=5)
    found.put(ConsumerMember("m1", metadata, current))
    return found


def codes(
    epoch: int,
    *,
    member_id: str = "m1",
    version: int = 9,
    is_transactional: bool = False,
    is_classic: bool = False,
) -> list[ErrorCode]:
    """Codes of a commit for `PARTITIONS`."""
    commit = commit_of(
        member_id, epoch, PARTITIONS, version=version, is_transactional=is_transactional
    )
    return consumer_commit_codes(group(is_classic=is_classic), commit)


def commit_of(
    member_id: str,
    epoch: int,
    partitions: list[tuple[UUID, int]],
    *,
    version: int = 9,
    is_transactional: bool = False,
) -> Commit:
    """A commit for partitions, each given by its topic id and its number."""
    offsets = [
        OffsetToCommit(TopicPartition("t", number), topic_id, 5, 0, "")
        for topic_id, number in partitions
    ]
    producer = TransactionalProducer(ProducerId(7), ProducerEpoch(0)) if is_transactional else None
    return Commit("g", Committer(epoch, member_id, None), offsets, version, producer=producer)


def test_a_member_commits_at_its_epoch() -> None:
    """Any partition, also in a transaction."""
    assert codes(5) == [NONE] * 4
    assert codes(5, is_transactional=True) == [NONE] * 4


def test_a_commit_of_an_older_epoch_counts_for_partitions_that_the_member_has_had_since() -> None:
    """Also for those that it is giving up (KIP-1251)."""
    assert codes(4) == [NONE, STALE, NONE, STALE]
    assert codes(2) == [STALE, STALE, NONE, STALE]


def test_a_transaction_without_a_member_commits() -> None:
    """TxnOffsetCommit has no member before v3, and a producer that was given a group alone."""
    assert codes(-1, member_id="", version=2, is_transactional=True) == [NONE] * 4
    assert codes(-1, member_id="m9", is_transactional=True) == [UNKNOWN] * 4


def test_a_transaction_at_an_older_epoch_commits_all_of_its_offsets_or_none() -> None:
    """ILLEGAL_GENERATION is the code that producers know: they abort the transaction for it."""
    commit = commit_of("m1", 4, PARTITIONS[::2], version=5, is_transactional=True)
    found = consumer_commit_codes(group(), commit)
    assert found == [NONE] * 2
    assert codes(4, is_transactional=True) == [ErrorCode.ILLEGAL_GENERATION] * 4
    assert codes(6, is_transactional=True) == [ErrorCode.ILLEGAL_GENERATION] * 4


def test_a_commit_of_a_newer_epoch_is_stale() -> None:
    """The member is not that of this coordinator."""
    assert codes(6) == [STALE] * 4


def test_members_of_the_classic_protocol_get_an_illegal_generation() -> None:
    """They do not know the other code; and their old requests are fine."""
    assert codes(6, is_classic=True) == [ErrorCode.ILLEGAL_GENERATION] * 4
    assert codes(5, is_classic=True, version=2) == [NONE] * 4


def test_an_old_version_cannot_carry_an_epoch() -> None:
    """A member of the consumer protocol has to commit with version 9 or newer."""
    assert codes(5, version=8) == [ErrorCode.UNSUPPORTED_VERSION] * 4
    assert codes(5, version=3, is_transactional=True) == [NONE] * 4


def test_who_is_no_member_commits_only_to_an_empty_group() -> None:
    """An operator, or a consumer without a group."""
    assert codes(-1, member_id="") == [UNKNOWN] * 4
    assert codes(5, member_id="m2") == [UNKNOWN] * 4
    empty = ConsumerGroup("g", epoch=5)
    found = consumer_commit_codes(empty, commit_of("", -1, PARTITIONS, version=2))
    assert found == [NONE] * 4


def test_offsets_are_fetched_by_members_at_their_epoch_and_by_no_member() -> None:
    """A classic member gets its own code; an epoch without a member is unknown."""
    for fetcher, expected in (
        (MemberAtEpoch(None, -1), NONE),
        (MemberAtEpoch("m1", 5), NONE),
        (MemberAtEpoch("m1", 4), STALE),
        (MemberAtEpoch("m2", 5), UNKNOWN),
        (MemberAtEpoch(None, 5), UNKNOWN),
    ):
        assert consumer_fetch_code(group(), fetcher) is expected
    illegal = ErrorCode.ILLEGAL_GENERATION
    assert consumer_fetch_code(group(is_classic=True), MemberAtEpoch("m1", 4)) is illegal


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
    """By name or by expression."""
    partitions = [TopicPartition("a", 0), TopicPartition("c", 0)]
    decision = delete_offsets(stored(a=(0, -1), c=(0, -1)), group(), partitions)
    assert decision.reply == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE]
    assert [each.key.topic for each in decision.records] == ["c"]  # type: ignore[attr-defined]


def stored(**commits: tuple[int, int]) -> Offsets:
    """Offsets of partition 0 of topics: when committed, and when they expire."""
    offsets = Offsets()
    for topic, (commit_ms, expire_ms) in commits.items():
        committed = CommittedOffset(
            offset=1, leader_epoch=0, metadata="", commit_ms=commit_ms, expire_ms=expire_ms,
            topic_id=ZERO, record_offset=0,
        )  # fmt: skip
        key, value = offset_record("g", TopicPartition(topic, 0), committed)
        assert isinstance(key, OffsetCommitKey)
        assert isinstance(value, OffsetCommitValue)
        offsets.replay(key, value, Origin(0))
    return offsets


def expired(offsets: Offsets, found: ConsumerGroup) -> tuple[CoordinatorRecord, ...]:
    """The tombstones of a walk at 1,000 ms that keeps offsets for 500 ms."""
    groups = Groups(
        settings=GroupSettings(retention_ms=500),
        topics=MemoryTopics(),
        consumer_settings=lambda _: ConsumerSettings(),
        chance=random.Random(0),
        counts=GroupCounts(),
        by_id={found.group_id: found},
        offsets=offsets,
    )
    return Walk(groups).look(1_000)


def test_a_group_with_members_is_not_deleted() -> None:
    """An empty one is, with its offsets."""
    offsets = stored(a=(0, -1))
    refused = delete_group(offsets, group())
    assert (refused.reply, refused.records) == (ErrorCode.NON_EMPTY_GROUP, ())
    deleted = delete_group(offsets, ConsumerGroup("g"))
    assert deleted.reply is NONE
    assert [type_of(each) for each in deleted.records] == [-1, -6, -3]


@pytest.mark.parametrize("has_members", [True, False])
def test_offsets_expire_when_nobody_subscribes_to_their_topic(*, has_members: bool) -> None:
    """After the retention, or at the time that an old client has given."""
    offsets = stored(a=(0, -1), c=(0, -1), d=(900, -1), e=(0, 2_000), f=(0, 900))
    found = group() if has_members else ConsumerGroup("g")
    records = expired(offsets, found)
    gone = [each.key.topic for each in records if isinstance(each.key, OffsetCommitKey)]
    assert gone == (["c", "f"] if has_members else ["a", "c", "f"])
    assert len(gone) == len(records)


def test_a_group_without_members_and_offsets_goes() -> None:
    """Together with its last offsets; not while a transaction has one for it."""
    empty = ConsumerGroup("g")
    records = expired(stored(c=(0, -1)), empty)
    assert [type_of(each) for each in records] == [-1, -6, -3]
    assert expired(Offsets(), group()) == ()
    pending = Offsets()
    key, value = offset_record(
        "g", TopicPartition("c", 0), stored(c=(0, -1)).of_group("g").popitem()[1]
    )
    assert isinstance(key, OffsetCommitKey)
    assert isinstance(value, OffsetCommitValue)
    pending.replay(key, value, Origin(0, producer_id=ProducerId(7)))
    assert expired(pending, empty) == ()
