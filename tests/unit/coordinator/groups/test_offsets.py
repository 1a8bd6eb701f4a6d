"""`Offsets`: what is committed, and what transactions that are open will commit."""

import random
from uuid import UUID

import pytest

from tailrace.coordinator.groups.offsets import CommittedOffset, Offsets, offset_record
from tailrace.coordinator.machine import Origin
from tailrace.model import NO_PRODUCER_ID, ProducerId, TopicPartition
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.records import OffsetCommitKey, OffsetCommitValue

GROUPS, PARTITIONS = ("g", "h"), [TopicPartition("t", number) for number in range(3)]
TOPIC = UUID(int=7)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_pending_follows_from_the_records(seed: int) -> None:
    """Whatever order commits, transactions, markers and deletions come in."""
    chance, offsets = random.Random(seed), Offsets()
    # The same by a plain list: producer, group, partition and topic id.
    pending: list[tuple[int, str, TopicPartition, UUID]] = []
    for number in range(200):
        group, partition = chance.choice(GROUPS), chance.choice(PARTITIONS)
        producer = chance.randrange(4)
        match chance.choice(("commit", "transaction", "transaction", "marker", "deletion")):
            case "deletion":
                gone = OffsetCommitKey(
                    group=group, topic=partition.topic, partition=partition.partition
                )
                offsets.replay(gone, None, Origin(number, NO_PRODUCER_ID))
                pending = [each for each in pending if each[1:3] != (group, partition)]
            case "marker":
                offsets.replay_marker(ProducerId(producer), is_commit=chance.random() < 0.5)
                pending = [each for each in pending if each[0] != producer]
            case kind:
                topic_id = chance.choice((NO_UUID, TOPIC, UUID(int=8)))
                committed = CommittedOffset(number, -1, "", 0, -1, topic_id, number)
                key, value = offset_record(group, partition, committed)
                assert isinstance(key, OffsetCommitKey)
                assert isinstance(value, OffsetCommitValue)
                in_transaction = kind == "transaction"
                origin = Origin(number, ProducerId(producer) if in_transaction else NO_PRODUCER_ID)
                offsets.replay(key, value, origin)
                if in_transaction:
                    place = (producer, group, partition)
                    pending = [each for each in pending if each[:3] != place]
                    pending.append((*place, topic_id))
        for group in GROUPS:
            here = {each[2] for each in pending if each[1] == group}
            known = offsets.of_group(group)
            assert offsets.has_pending(group) == bool(here)
            assert set(offsets.partitions(group)) == {*known, *here}
            assert (group in offsets.groups()) == bool(known or here)
            for each in PARTITIONS:
                ids = {found[3] for found in pending if found[1:3] == (group, each)}
                if each in known:
                    ids.add(known[each].topic_id)
                assert offsets.is_pending(group, each) == (each in here)
                assert offsets.is_of_topic(group, each, TOPIC) == bool(ids & {NO_UUID, TOPIC})
