"""Fuzz targets: records, subscriptions, expressions and commits that coordinators read.

A log of a coordinator with any bytes in its records is loaded or refused, and never a bug of the
machine that replays it.
"""

import random
from dataclasses import replace
from struct import Struct

from tailrace.coordinator.errors import RefusedError
from tailrace.coordinator.groups.commits import Commit, Committer, OffsetToCommit
from tailrace.coordinator.groups.embedded_protocol import (
    read_assignment,
    read_subscribed_topics,
    read_subscription,
    write_assignment,
)
from tailrace.coordinator.groups.machine import GroupMachine
from tailrace.coordinator.groups.record_codec import GroupRecordCodec
from tailrace.coordinator.groups.settings import ConsumerSettings, GroupSettings
from tailrace.coordinator.groups.topics import matching
from tailrace.coordinator.machine import Machine, Origin, RecordCodec, TransactionalProducer
from tailrace.coordinator.transactions.machine import TransactionMachine
from tailrace.coordinator.transactions.records import TransactionCodec, transaction_record
from tailrace.coordinator.transactions.settings import TransactionSettings
from tailrace.coordinator.transactions.state import TransactionStatus
from tailrace.errors import CorruptionError
from tailrace.model import LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol import codec
from tailrace.protocol.coordinator_records import (
    GroupRecordType,
    encode_key,
    encode_value,
    key_class,
    value_class,
)
from tailrace.protocol.errors import ErrorCode, MalformedMessageError
from tailrace.protocol.fields import NO_UUID, Message, Record
from tailrace.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from tailrace.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from tailrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tailrace.protocol.records import TransactionLogValue
from tailrace.records.builder import BatchBuilder
from tailrace.testing.outside import InlineThreads
from tests.fuzz.engine import FuzzTarget
from tests.unit.coordinator.groups.both_ways import Loaded, check_both_ways, in_a_log
from tests.unit.coordinator.groups_consumer.group_shard import MemoryTopics
from tests.unit.coordinator.transactions.stage import NOW, A, C, Partitions, stored
from tests.unit.protocol.strategies import full_message, versions_of

PRODUCER = 7
_SIZE = Struct(">H")
_TOPICS = tuple(f"topic-{number}" for number in range(20))


def _groups() -> GroupMachine:
    return GroupMachine(
        GroupSettings(),
        MemoryTopics(a=4),
        consumer_settings=lambda _: ConsumerSettings(),
        threads=InlineThreads(),
        chance=random.Random(1),
    )


def _transactions() -> TransactionMachine:
    async def new_producer_id() -> ProducerId:
        return ProducerId(1000)

    return TransactionMachine(
        TransactionSettings(),
        Partitions(),
        coordinator_epoch=LeaderEpoch(0),
        new_producer_id=new_producer_id,
    )


def _join(records: list[tuple[bytes, bytes | None]]) -> bytes:
    """Keys and values, each behind its size; a size of 0 is a tombstone."""
    return b"".join(
        _SIZE.pack(len(each)) + each for record in records for each in (record[0], record[1] or b"")
    )


def _split(data: bytes) -> list[tuple[bytes, bytes | None]]:
    parts = []
    while data:
        size = int.from_bytes(data[: _SIZE.size], "big")
        parts.append(data[_SIZE.size : _SIZE.size + size])
        data = data[_SIZE.size + size :]
    return [(key, value or None) for key, value in zip(parts[::2], parts[1::2], strict=False)]


def load(data: bytes, *, machine: Machine, records: RecordCodec) -> Machine:
    """Replay records as a shard does, the last of them in a transaction, which then ends."""
    found = _split(data)
    for offset, (key, value) in enumerate(found):
        record = records.decode(key, value)
        if record is not None:
            is_last = offset == len(found) - 1
            machine.replay(record, Origin(offset, ProducerId(PRODUCER if is_last else -1)))
    machine.replay_marker(ProducerId(PRODUCER), is_commit=True)
    return machine


def load_in_bulk(data: bytes) -> Loaded:
    """Load batches of two records in bulk, and hold the result against a replay."""
    found = _split(data)
    content = []
    for start in range(0, len(found), 2):
        builder = BatchBuilder()
        for key, value in found[start : start + 2]:
            builder.append(key, value, timestamp=NOW)
        content.append(builder.build())
    return check_both_ways(in_a_log(content))


def _group_seeds() -> tuple[bytes, ...]:
    """For each type of record: all its versions, a tombstone, and the newest again; then all."""
    seeds, every = [], []
    for kind in GroupRecordType:
        key = encode_key(full_message(key_class(kind), 0))  # type: ignore[arg-type]
        value = value_class(kind)
        values: list[bytes | None] = [
            encode_value(full_message(value, version), version)  # type: ignore[arg-type]
            for version in versions_of(value)
        ]
        records = [(key, each) for each in (*values, None, values[-1])]
        seeds.append(_join(records))
        every += records
    return (*seeds, _join(every))


def _transaction_seeds() -> tuple[bytes, ...]:
    """Each status in each version, and a tombstone."""
    seeds = []
    for status in TransactionStatus:
        if status is TransactionStatus.DEAD:
            break
        key, value = transaction_record(stored(status, partitions=(A, C)))
        assert value is not None
        values = [
            encode_value(_in_version_0(value) if version == 0 else value, version)
            for version in versions_of(TransactionLogValue)
        ]
        seeds.append(_join([(encode_key(key), each) for each in (*values, None, values[0])]))
    return tuple(seeds)


def _in_version_0(value: Record) -> Record:
    assert isinstance(value, TransactionLogValue)
    return replace(
        value, previous_producer_id=-1, next_producer_id=-1, client_transaction_version=0
    )


def read_member(data: bytes) -> object:
    """Read the subscription of a classic member, and write the assignment that it would get."""
    subscribed = read_subscribed_topics([data])
    subscription = read_subscription(data)
    assert subscribed == frozenset(subscription.topics)
    assignment = write_assignment({"a": [1, 0]}, for_metadata=data)
    assert read_assignment(assignment).assigned_partitions[0].partitions == (0, 1)
    return subscription


def match(data: bytes) -> frozenset[str]:
    """The topics that a regular expression of a member matches."""
    return matching(data.decode(errors="replace"), _TOPICS)


def commit(data: bytes) -> object:
    """Commit an offset in a transaction; metadata that is taken is what the log gives back."""
    request, _ = codec.decode(TxnOffsetCommitRequest, 5, memoryview(data))
    offsets = [
        OffsetToCommit(
            TopicPartition(topic.name, each.partition_index),
            NO_UUID,
            each.committed_offset,
            each.committed_leader_epoch,
            each.committed_metadata or "",
        )
        for topic in request.topics
        for each in topic.partitions
    ]
    groups = _groups()
    asked = Commit(
        group_id=request.group_id,
        committer=Committer(-1, "", None),
        offsets=offsets,
        version=5,
        producer=TransactionalProducer(ProducerId(PRODUCER), ProducerEpoch(0)),
    )
    decision = groups.commit(asked, NOW)
    assert isinstance(decision.reply, list)
    if not request.group_id:
        return decision
    are_taken = [len(each.metadata) <= GroupSettings().metadata_characters_max for each in offsets]
    assert decision.reply == [
        ErrorCode.NONE if is_taken else ErrorCode.OFFSET_METADATA_TOO_LARGE
        for is_taken in are_taken
    ]
    for record in decision.records:
        again = GroupRecordCodec().decode(*GroupRecordCodec().encode(record))
        assert again == record
        groups.replay(again, Origin(0, ProducerId(PRODUCER)))
    assert groups.groups.offsets.of_group(request.group_id) == {}
    groups.replay_marker(ProducerId(PRODUCER), is_commit=True)
    found = groups.groups.offsets.of_group(request.group_id)
    assert {each: found[each].metadata for each in found} == {
        each.partition: each.metadata
        for each, is_taken in zip(offsets, are_taken, strict=True)
        if is_taken
    }
    return found


def _commit_seed(metadata: str) -> bytes:
    partition = TxnOffsetCommitRequestPartition(
        partition_index=1, committed_offset=5, committed_metadata=metadata
    )
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=PRODUCER,
        producer_epoch=0,
        generation_id=-1,
        topics=(TxnOffsetCommitRequestTopic(name="a", partitions=(partition,)),),
    )
    out = bytearray()
    codec.encode(request, 5, out)
    return bytes(out)


def _message(message: Message, version: int) -> bytes:
    out = bytearray(version.to_bytes(2, "big"))
    codec.encode(message, version, out)
    return bytes(out)


def _messages(kind: type[Message]) -> tuple[bytes, ...]:
    return tuple(
        _message(full_message(kind, version), version)  # type: ignore[arg-type]
        for version in versions_of(kind)
    )


_METADATA_MAX = GroupSettings().metadata_characters_max

TARGETS: tuple[FuzzTarget, ...] = (
    FuzzTarget(
        name="load of groups",
        seeds=_group_seeds(),
        run=lambda data: load(data, machine=_groups(), records=GroupRecordCodec()),
        refusals=(CorruptionError,),
    ),
    FuzzTarget(
        name="load of groups in bulk",
        seeds=_group_seeds(),
        run=load_in_bulk,
        refusals=(),
        share=0.2,
    ),
    FuzzTarget(
        name="load of transactions",
        seeds=_transaction_seeds(),
        run=lambda data: load(data, machine=_transactions(), records=TransactionCodec()),
        refusals=(CorruptionError,),
    ),
    FuzzTarget(
        name="subscription of a member",
        seeds=_messages(ConsumerProtocolSubscription),
        run=read_member,
        refusals=(MalformedMessageError,),
    ),
    FuzzTarget(
        name="assignment of a member",
        seeds=_messages(ConsumerProtocolAssignment),
        run=read_assignment,
        refusals=(MalformedMessageError,),
    ),
    FuzzTarget(
        name="regular expression of a member",
        seeds=(b"topic-(1|2)[0-9]*", rb"^(?i:TOPIC)-\d{1,2}$", b"(t?o*p+i.c)+?-[^5-9]", b".*"),
        run=match,
        refusals=(RefusedError,),
    ),
    FuzzTarget(
        name="commit in a transaction",
        seeds=tuple(
            _commit_seed(metadata)
            for size in (0, 1, _METADATA_MAX - 1, _METADATA_MAX, _METADATA_MAX + 1)
            for metadata in ("m" * size, "\N{EURO SIGN}" * size)
        ),
        run=commit,
        refusals=(MalformedMessageError,),
    ),
)
