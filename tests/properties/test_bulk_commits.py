"""Random logs of groups are loaded in bulk and record by record, with the same result."""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.coordinator.groups.record_codec import GroupRecordCodec
from tailrace.coordinator.machine import CoordinatorRecord
from tailrace.model import Codec, LeaderEpoch, ProducerEpoch, ProducerId
from tailrace.protocol.coordinator_records import encode_key, encode_value
from tailrace.protocol.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tailrace.records.builder import BatchBuilder
from tailrace.records.control import build_end_marker
from tests.unit.coordinator.groups.both_ways import check_both_ways, in_a_log
from tests.unit.protocol.strategies import full_message

if TYPE_CHECKING:
    from tailrace.protocol.fields import Record

Pair = tuple[bytes, bytes | None]
GROUPS = ("g", "h", "gruppe-\N{LATIN SMALL LETTER U WITH DIAERESIS}", "")
CODEC = GroupRecordCodec()

groups = st.sampled_from(GROUPS)
commit_keys = st.builds(
    OffsetCommitKey,
    group=groups,
    topic=st.sampled_from(["a", "b", "g"]),
    partition=st.integers(0, 2),
)
numbers = st.sampled_from([0, 1, -1, 2**31 - 1])


@st.composite
def commits(draw: st.DrawFn) -> Pair:
    """A commit in any version."""
    version = draw(st.integers(0, 4))
    value = OffsetCommitValue(
        offset=draw(st.integers(-1, 2**63 - 1)),
        leader_epoch=draw(numbers) if version >= 3 else -1,
        metadata=draw(st.sampled_from(["", "m", "\N{EURO SIGN}", "m" * 200])),
        commit_timestamp=draw(st.integers(-1, 2**62)),
        expire_timestamp=draw(numbers) if version == 1 else -1,
        topic_id=UUID(int=draw(st.integers(0, 2))) if version == 4 else UUID(int=0),
    )
    return encode_key(draw(commit_keys)), encode_value(value, version)


commit_tombstones: st.SearchStrategy[Pair] = commit_keys.map(lambda key: (encode_key(key), None))


@st.composite
def group_records(draw: st.DrawFn) -> Pair:
    """A record of a group of either protocol, or its tombstone."""
    group, member = draw(groups), draw(st.sampled_from("mn"))
    records: tuple[tuple[Record, type[Record]], ...] = (
        (GroupMetadataKey(group=group), GroupMetadataValue),
        (ConsumerGroupMetadataKey(group_id=group), ConsumerGroupMetadataValue),
        (
            ConsumerGroupMemberMetadataKey(group_id=group, member_id=member),
            ConsumerGroupMemberMetadataValue,
        ),
        (
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member),
            ConsumerGroupCurrentMemberAssignmentValue,
        ),
    )
    key, kind = draw(st.sampled_from(records))
    if draw(st.booleans()):
        return encode_key(key), None
    if isinstance(key, GroupMetadataKey):
        value = GroupMetadataValue(
            protocol_type=draw(st.sampled_from(["consumer", ""])),
            generation=draw(st.integers(0, 3)),
            protocol=None,
            leader=None,
            current_state_timestamp=5,
            members=(),
        )
        return CODEC.encode(CoordinatorRecord(key, value))
    return encode_key(key), encode_value(full_message(kind, 0), 0)  # type: ignore[arg-type]


@st.composite
def damaged(draw: st.DrawFn) -> Pair:
    """A commit or a tombstone with a byte that is changed, missing or added."""
    key, value = draw(st.one_of(commits(), commit_tombstones))
    parts = [key, value or b""]
    part = draw(st.integers(0, 0 if value is None else 1))
    data = bytearray(parts[part])
    at = draw(st.integers(0, len(data) - 1))
    match draw(st.sampled_from(["change", "cut", "add"])):
        case "change":
            data[at] = draw(st.integers(0, 255))
        case "cut":
            del data[at:]
        case _:
            data += b"\0"
    parts[part] = bytes(data)
    return parts[0], None if value is None else parts[1]


def batch_of(records: Sequence[Pair], gaps: Sequence[int], builder: BatchBuilder) -> bytes:
    """A batch of these records, with gaps between their offsets as compaction leaves them."""
    delta = -1
    for (key, value), gap in zip(records, gaps, strict=True):
        delta += 1 + gap
        builder.append(key, value, timestamp=1, offset_delta=delta)
    return builder.build()


@st.composite
def batches(draw: st.DrawFn, *, may_be_damaged: bool = False) -> bytes:
    """A batch of commits; rarely of other records, of a transaction, or compressed; or a marker."""
    producer_id = ProducerId(draw(st.integers(7, 8)))
    kind = draw(st.sampled_from(["plain"] * 5 + ["mixed", "transaction", "marker", "compressed"]))
    if kind == "marker":
        return bytes(
            build_end_marker(
                producer_id,
                ProducerEpoch(0),
                is_commit=draw(st.booleans()),
                coordinator_epoch=LeaderEpoch(0),
                timestamp=1,
            )
        )
    choices = [commits(), commits(), commit_tombstones]
    if kind == "mixed":
        choices.append(group_records())
    if may_be_damaged:
        choices.append(damaged())
    records = draw(st.lists(st.one_of(choices), min_size=0 if kind == "plain" else 1, max_size=6))
    gaps = [draw(st.sampled_from([0, 0, 0, 3])) for _ in records]
    match kind:
        case "transaction":
            builder = BatchBuilder(
                producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
            )
        case "compressed":
            builder = BatchBuilder(codec=Codec.GZIP)
        case _:
            builder = BatchBuilder()
    return batch_of(records, gaps, builder)


@given(st.lists(batches(), max_size=12))
def test_a_bulk_load_makes_the_state_of_a_replay(content: list[bytes]) -> None:
    """Whatever commits, tombstones, transactions and groups of both protocols a log has."""
    loaded = check_both_ways(in_a_log(content))
    assert loaded.error is None


@given(st.lists(batches(may_be_damaged=True), max_size=6))
@example([])
def test_a_bulk_load_fails_where_a_replay_does(content: list[bytes]) -> None:
    """A record that cannot be read is the same error at the same offset, overwritten or not."""
    check_both_ways(in_a_log(content))


@given(st.lists(batches(), min_size=1, max_size=4), st.data())
def test_a_bulk_load_finds_a_changed_byte(content: list[bytes], data: st.DataObject) -> None:
    """A batch that its checksum does not fit, or whose frame is damaged, is the same error."""
    log = in_a_log(content)
    number = data.draw(st.integers(0, len(log) - 1))
    batch = bytearray(log[number])
    batch[data.draw(st.integers(8, len(batch) - 1))] ^= data.draw(st.integers(1, 255))
    log[number] = bytes(batch)
    check_both_ways(log)
