"""Batches of the metadata log and of snapshots: made of records, and read back.

    control   the records of a leader or of a snapshot's ends; no producer, no codec
    data      metadata records; keys are null

Both are stamped with offset and quorum epoch. All records of a batch have one timestamp. What is
written by one flush is joined to one batch (`joined_batches`).

Invariant: a batch that was read has passed its checksum and every rule of its records.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from tailrace.protocol.fields import Message, Record
from tailrace.protocol.metadata_log import (
    VersionedRecord,
    decode_control,
    decode_data,
    encode_control,
    encode_data,
)
from tailrace.records.batch import Batch, read_batches, stamp
from tailrace.records.builder import BatchBuilder, build_batch, records_of
from tailrace.records.control import ControlType


class BatchPlace(NamedTuple):
    """Offset, epoch and time of a batch."""

    offset: int
    """Offset of its first record."""
    epoch: int
    """Epoch of the quorum's leader."""
    timestamp: int
    """Milliseconds since 1970."""


class RecordToWrite(NamedTuple):
    """A record and the version to write it in."""

    record: Record
    version: int


def control_batch(records: Iterable[tuple[ControlType, Message]], place: BatchPlace) -> bytes:
    """A batch of control records, each of version 0."""
    builder = BatchBuilder(is_control=True)
    for kind, record in records:
        builder.append(*encode_control(kind, record, 0), timestamp=place.timestamp)
    return _stamped(bytearray(builder.build()), place)


def data_batch(records: Iterable[tuple[Record, int]], place: BatchPlace) -> bytes:
    """A batch of metadata records, each with the version to write it in."""
    # Without a codec, as Kafka's controller writes them.
    encoded = [(None, encode_data(record, version)) for record, version in records]
    return _stamped(build_batch(encoded, timestamp=place.timestamp), place)


def joined_batches(batches: Sequence[bytes]) -> Iterator[bytes]:
    """Batches that follow each other, those of data with one epoch joined to one.

    A batch has one checksum, so that a crash leaves all of it or nothing.
    """
    read = [batch for each in batches for _, batch in read_batches(memoryview(each))]
    for (is_control, epoch), found in groupby(
        read, key=lambda each: (each.is_control, each.leader_epoch)
    ):
        group = list(found)
        if is_control or len(group) == 1:
            yield from (bytes(each.view) for each in group)
            continue
        # With their bytes as they are: encoding them again would take as long as the decision did.
        records = [(each.key, each.value) for batch in group for each in records_of(batch)]
        timestamp = group[-1].max_timestamp
        place = BatchPlace(group[0].base_offset, epoch, timestamp)
        yield _stamped(build_batch(records, timestamp=timestamp), place)


def decoded_records(batch: Batch) -> Iterator[tuple[int, VersionedRecord]]:
    """The offset of each record of a batch, and what it says.

    Raises:
        CorruptionError: the checksum does not hold, or a record breaks a rule of its format.
        UnknownRecordError: a record of a type or version that is not known here.
        UnsupportedCodecError, UnsupportedMagicError: a batch that no metadata log has.
    """
    # Metadata is read once, at a start: a wrong byte in it would be served as the truth.
    batch.check()
    for each in records_of(batch):
        if batch.is_control:
            yield each.offset, decode_control(each.key, each.value)
        else:
            yield each.offset, decode_data(each.value)


def _stamped(batch: bytearray, place: BatchPlace) -> bytes:
    assert place.epoch >= 0, "a batch of the quorum has an epoch"
    stamp(memoryview(batch), base_offset=place.offset, leader_epoch=place.epoch)
    return bytes(batch)
