"""Batches, logs and snapshots of metadata: written by Kafka, by hand, and damaged."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailrace.cluster.metadata.batches import (
    BatchPlace,
    control_batch,
    data_batch,
    decoded_records,
)
from tailrace.cluster.metadata.delta import MetadataFaultError
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.replay import MetadataReplay
from tailrace.cluster.metadata.snapshot import (
    RECORDS_MAX,
    Snapshot,
    read_snapshot,
    write_snapshot,
)
from tailrace.errors import CorruptionError
from tailrace.model import NO_PRODUCER_ID
from tailrace.protocol.errors import UnknownRecordError
from tailrace.protocol.fields import Message, Record
from tailrace.protocol.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    KRaftVersionRecord,
    LeaderChangeMessage,
    NoOpRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VotersRecord,
    VotersRecordVoter,
)
from tailrace.records.batch import Batch, read_batches
from tailrace.records.control import ControlType

GOLDEN = Path(__file__).parents[2] / "golden" / "kraft" / "logs" / "__cluster_metadata-0"
TIME = 1_700_000_000_000
LEVEL = FeatureLevelRecord(name="metadata.version", feature_level=30)
GROUPS = FeatureLevelRecord(name="group.version", feature_level=1)
CHANGE = LeaderChangeMessage(
    leader_id=1,
    voters=(Voter(voter_id=1),),
    granting_voters=(Voter(voter_id=1),),
)
HEADER = (ControlType.SNAPSHOT_HEADER, SnapshotHeaderRecord())
FOOTER = (ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord())


def batch(*records: Record, offset: int = 0, epoch: int = 1) -> Batch:
    """A batch of records of version 0."""
    return Batch(memoryview(data_batch([(e, 0) for e in records], BatchPlace(offset, epoch, TIME))))


def golden_snapshots() -> dict[int, bytes]:
    """The snapshots that Kafka 4.3.1 wrote, by the offset that they end at."""
    return {int(each.name[:20]): each.read_bytes() for each in GOLDEN.glob("*.checkpoint")}


def without_order(image: MetadataImage) -> MetadataImage:
    """The image with the features of nodes in one order; Kafka writes them in that of a hash."""
    found: dict[str, dict[int, Any]] = {}
    for part in ("brokers", "controllers"):
        nodes: dict[int, Any] = getattr(image, part)
        found[part] = {
            number: replace(node, features=tuple(sorted(node.features, key=lambda e: e.name)))
            for number, node in nodes.items()
        }
    return replace(image, **found)  # type: ignore[arg-type]


def test_a_leader_change_is_a_batch_of_its_own() -> None:
    """Control, of no producer, in no transaction, at the leader's offset and epoch."""
    written = control_batch([(ControlType.LEADER_CHANGE, CHANGE)], BatchPlace(983, 20, 9000))
    [(_, found)] = read_batches(memoryview(written))
    assert found.is_control
    assert not found.is_transactional
    assert found.producer_id == NO_PRODUCER_ID
    assert (found.base_offset, found.leader_epoch, found.max_timestamp) == (983, 20, 9000)
    assert [(offset, each.record) for offset, each in decoded_records(found)] == [(983, CHANGE)]


def test_a_batch_of_the_quorum_needs_an_epoch() -> None:
    """-1 is the epoch of a batch that no leader has stamped."""
    with pytest.raises(AssertionError, match="epoch"):
        control_batch([(ControlType.LEADER_CHANGE, CHANGE)], BatchPlace(0, -1, 0))


def test_kafkas_log_and_its_snapshots_say_the_same() -> None:
    """At the offset of each snapshot that Kafka wrote, the replay of its log is at that image."""
    replay, snapshots = MetadataReplay(), golden_snapshots()
    seen = 0
    for _, each in read_batches(memoryview((GOLDEN / f"{0:020}.log").read_bytes())):
        replay.see(each)
        if replay.next_offset in snapshots:
            snapshot = read_snapshot(memoryview(snapshots[replay.next_offset]))
            assert without_order(replay.image) == without_order(snapshot.image)
            assert replay.timestamp == snapshot.log_timestamp
            seen += 1
    assert seen == len(snapshots) > 0
    assert not replay.is_in_transaction


def test_a_start_from_a_snapshot_ends_where_the_log_ends() -> None:
    """A snapshot and the batches behind it lead to the image of the whole log."""
    data = memoryview((GOLDEN / f"{0:020}.log").read_bytes())
    whole = MetadataReplay()
    for _, each in read_batches(data):
        whole.see(each)
    for offset, stored in golden_snapshots().items():
        part = MetadataReplay(read_snapshot(memoryview(stored)).image, next_offset=offset)
        for _, each in read_batches(data):
            if each.base_offset >= offset:
                part.see(each)
        assert without_order(part.image) == without_order(whole.image)
        assert (part.next_offset, part.epoch) == (whole.next_offset, whole.epoch)


def test_kafkas_snapshots_are_written_again_byte_for_byte() -> None:
    """Header, records, batches and footer are those of Kafka."""
    for stored in golden_snapshots().values():
        batches = [each for _, each in read_batches(memoryview(stored))]
        times = {each.max_timestamp for each in batches}
        snapshot = read_snapshot(memoryview(stored))
        again = write_snapshot(snapshot, epoch=batches[0].leader_epoch, timestamp=times.pop())
        if not times:
            assert again == stored
        assert read_snapshot(memoryview(again)) == snapshot
        assert len(again) == len(stored)


def test_records_of_a_transaction_count_together() -> None:
    """They count when it ends, across batches; an aborted one leaves nothing."""
    replay = MetadataReplay()
    replay.see(batch(LEVEL, BeginTransactionRecord(), GROUPS))
    assert replay.image.features == {"metadata.version": 30}
    assert replay.is_in_transaction
    replay.see(batch(NoOpRecord(), offset=3))
    replay.see(batch(EndTransactionRecord(), offset=4))
    assert replay.image.features == {"metadata.version": 30, "group.version": 1}
    gone = FeatureLevelRecord(name="group.version", feature_level=0)
    replay.see(batch(BeginTransactionRecord(), gone, offset=5))
    replay.see(batch(AbortTransactionRecord(), offset=7))
    assert replay.image.features == {"metadata.version": 30, "group.version": 1}
    assert (replay.next_offset, replay.epoch, replay.timestamp) == (8, 1, TIME)


def test_transactions_may_share_a_batch_or_end_where_one_does() -> None:
    """One after another, with records between them and before them, and one that goes on."""
    replay = MetadataReplay()
    gone = FeatureLevelRecord(name="group.version", feature_level=0)
    begin, end, abort = BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord()
    replay.see(batch(begin, LEVEL, end, NoOpRecord(), begin, GROUPS, end, begin, gone))
    assert replay.image.features == {"metadata.version": 30, "group.version": 1}
    replay.see(batch(end, NoOpRecord(), begin, LEVEL, abort, begin, GROUPS, end, offset=9))
    assert replay.image.features == {"metadata.version": 30, "group.version": 1}
    assert not replay.is_in_transaction
    replay.see(batch(begin, offset=17))
    replay.see(batch(gone, end, offset=18))
    assert replay.image.features == {"metadata.version": 30}


def test_the_log_may_name_the_voters() -> None:
    """KRaftVersion and Voters come in the batch of the leader change, and go into snapshots."""
    voters = VotersRecord(voters=(VotersRecordVoter(voter_id=1),))
    records: list[tuple[ControlType, Message]] = [
        (ControlType.LEADER_CHANGE, CHANGE),
        (ControlType.KRAFT_VERSION, KRaftVersionRecord(kraft_version=1)),
        (ControlType.VOTERS, voters),
    ]
    replay = MetadataReplay()
    assert (replay.kraft_version, replay.voters) == (0, None)
    replay.see(Batch(memoryview(control_batch(records, BatchPlace(0, 1, TIME)))))
    assert (replay.kraft_version, replay.voters, replay.next_offset) == (1, voters, 3)
    snapshot = Snapshot(image=MetadataImage(), log_timestamp=TIME, voters=replay.voters)
    assert read_snapshot(memoryview(write_snapshot(snapshot, epoch=1, timestamp=1))) == snapshot


@pytest.mark.parametrize(
    ("batches", "error", "reason"),
    [
        ([batch(LEVEL), batch(GROUPS)], MetadataFaultError, "begins at offset 0, but .* ends at 1"),
        ([batch(EndTransactionRecord())], MetadataFaultError, "ends that did not begin"),
        ([batch(AbortTransactionRecord())], MetadataFaultError, "ends that did not begin"),
        ([batch(*[BeginTransactionRecord()] * 2)], MetadataFaultError, "inside of another"),
    ],
)
def test_a_batch_that_contradicts_the_log_changes_nothing(
    batches: list[Batch], error: type[Exception], reason: str
) -> None:
    """The state stays that of the batches before."""
    replay = MetadataReplay()
    for each in batches[:-1]:
        replay.see(each)
    before = replay.image, replay.next_offset
    with pytest.raises(error, match=reason):
        replay.see(batches[-1])
    assert (replay.image, replay.next_offset) == before


def test_every_flipped_byte_of_a_log_is_found() -> None:
    """A batch with one changed byte is refused, or tells the same in another place of the log."""
    stored = data_batch([(LEVEL, 0), (GROUPS, 0)], BatchPlace(0, 1, TIME))
    good = MetadataReplay()
    good.see(Batch(memoryview(stored)))
    for position in range(len(stored)):
        damaged = bytearray(stored)
        damaged[position] ^= 0x10
        replay = MetadataReplay()
        try:
            for _, each in read_batches(memoryview(damaged)):
                replay.see(each)
        except (CorruptionError, UnknownRecordError):
            continue
        # Offset and leader epoch are not in the checksum, and a longer length is a torn batch.
        assert replay.image in (good.image, MetadataImage())
        assert replay.image == MetadataImage() or position < 17


def test_every_flipped_byte_and_every_cut_of_a_snapshot_is_found() -> None:
    """A damaged snapshot gives the image that was written, or an error."""
    [stored, *_] = golden_snapshots().values()
    good = read_snapshot(memoryview(stored))
    for position in range(len(stored)):
        damaged = bytearray(stored)
        damaged[position] ^= 0x10
        try:
            found = read_snapshot(memoryview(damaged))
        except (CorruptionError, UnknownRecordError):
            continue
        assert found == good
    for size in range(len(stored)):
        with pytest.raises(CorruptionError):
            read_snapshot(memoryview(stored)[:size])


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([], "ends without its footer"),
        ([[FOOTER]], "begins without a header"),
        ([[HEADER]], "ends without its footer"),
        ([[HEADER], [FOOTER], [FOOTER]], "continues after its footer"),
    ],
)
def test_a_snapshot_that_is_not_whole_is_refused(
    parts: list[list[tuple[ControlType, SnapshotHeaderRecord | SnapshotFooterRecord]]], reason: str
) -> None:
    """Header and footer are where they belong; Kafka itself does not look at the footer."""
    data = b"".join(control_batch(each, BatchPlace(0, 1, TIME)) for each in parts)
    with pytest.raises(CorruptionError, match=reason):
        read_snapshot(memoryview(data))


def test_a_large_snapshot_has_batches_of_a_bounded_size() -> None:
    """Offsets go on from batch to batch, and nothing is lost between them."""
    features = {f"f{number}": 1 for number in range(2 * RECORDS_MAX + 5)}
    snapshot = Snapshot(image=MetadataImage(features=features), log_timestamp=TIME)
    stored = write_snapshot(snapshot, epoch=3, timestamp=TIME)
    found = [each for _, each in read_batches(memoryview(stored))]
    assert [each.record_count for each in found] == [1, RECORDS_MAX, RECORDS_MAX, 5, 1]
    assert [each.base_offset for each in found[1:]] == [each.next_offset for each in found[:-1]]
    assert read_snapshot(memoryview(stored)) == snapshot
