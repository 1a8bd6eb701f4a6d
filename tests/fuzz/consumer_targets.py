"""Answers to Fetch of any bytes, read by a consumer as rows and as columns.

What comes out was written, in the order of its offsets and from the position on; both ways of
reading agree, and what is left out is told by an error.
"""

from itertools import pairwise
from typing import Final

import crc32c

from tailrace.client.consumer.columns import Collector
from tailrace.client.consumer.errors import DamagedRecordsError
from tailrace.client.consumer.fetched import FetchedPart, cut_records, take_rows
from tailrace.model import Codec, TopicPartition
from tailrace.protocol import codec
from tailrace.protocol.errors import MalformedMessageError
from tailrace.protocol.fields import received_records
from tailrace.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from tailrace.records import layout
from tailrace.records.batch import stamp
from tailrace.records.control import build_end_marker
from tests.fuzz.engine import FuzzTarget
from tests.unit.storage.builders import NOW, batch

_VERSION: Final = 12
"""The last version of Fetch that names topics."""

_START: Final = 3
"""Position of the reader: in the middle of the first batch."""

_PLACE: Final = TopicPartition("t", 0)

Found = tuple[list[tuple[int, bytes | None]], DamagedRecordsError | None]


def _in_transaction(producer_id: int, *values: bytes) -> bytearray:
    return batch(
        *values, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
    )


def _marker(producer_id: int, *, is_commit: bool) -> bytearray:
    return build_end_marker(producer_id, 0, is_commit=is_commit, coordinator_epoch=0, timestamp=NOW)


def _stamped(*batches: bytearray) -> bytes:
    """The batches one after the other, as a leader has them."""
    offset = 0
    for each in batches:
        stamp(memoryview(each), base_offset=offset, leader_epoch=5)
        [delta] = layout.LENGTH.unpack_from(each, layout.LAST_OFFSET_DELTA_POSITION)
        offset += delta + 1
    return b"".join(batches)


PLAIN = _stamped(batch(b"a0", b"a1", b"a2", b"a3"), batch(b"b0"), batch(b"c0", b"c1"))
PACKED = _stamped(
    batch(b"a0", b"a1", b"a2", b"a3"),
    *(batch(each.name.encode() * 9, codec=each) for each in Codec if each),
)
TRANSACTIONS = _stamped(
    batch(b"a0", b"a1", b"a2", b"a3"),
    _in_transaction(1, b"kept"),
    _in_transaction(2, b"gone", b"gone"),
    _marker(1, is_commit=True),
    _marker(2, is_commit=False),
    _in_transaction(2, b"next"),
    _marker(2, is_commit=True),
)
ABORTED = (AbortedTransaction(producer_id=2, first_offset=5),)
WRITTEN = {
    *(b"a0", b"a1", b"a2", b"a3", b"b0", b"c0", b"c1", b"kept", b"gone", b"next"),
    *(each.name.encode() * 9 for each in Codec),
}


def answer(records: bytes, aborted: tuple[AbortedTransaction, ...] | None) -> bytes:
    """An answer to Fetch with records of one partition."""
    data = PartitionData(
        partition_index=0,
        high_watermark=20,
        last_stable_offset=20,
        log_start_offset=0,
        aborted_transactions=aborted,
        records=records,
    )
    topic = FetchableTopicResponse(topic="t", partitions=(data,))
    out = bytearray()
    codec.encode(FetchResponse(session_id=1, responses=(topic,)), _VERSION, out)
    return bytes(out)


def part_of(records: memoryview, aborted: tuple[AbortedTransaction, ...] | None) -> FetchedPart:
    """The records as a consumer takes them."""
    part = FetchedPart(_PLACE, offset=_START)
    cut_records(part, records, place="here", aborted=aborted)
    assert part.error is None or isinstance(part.error, DamagedRecordsError)
    assert part.end_offset >= _START
    return part


def rows_of(part: FetchedPart) -> Found:
    """Offsets and values as `poll` returns them, and the error that ends them."""
    found: list[tuple[int, bytes | None]] = []
    try:
        while (rows := take_rows(part, _START, 3)) is not None:
            found += [(each.offset, each.value) for each in rows.records]
    except DamagedRecordsError as error:
        return found, error
    assert part.error is None or isinstance(part.error, DamagedRecordsError)
    return found, part.error


def columns_of(part: FetchedPart) -> Found:
    """The same as `poll_columns` returns them."""
    collector = Collector(["offset", "value"])
    told, position = part.error, _START
    try:
        while (passed := collector.append(part, position)) is not None:
            assert passed[0] > position
            position = passed[0]
    except DamagedRecordsError as error:
        told = error
    table = collector.finish().to_pydict()
    assert told is None or isinstance(told, DamagedRecordsError)
    return list(zip(table["offset"], table["value"], strict=True)), told


def check(records: memoryview, aborted: tuple[AbortedTransaction, ...] | None) -> Found:
    """Read records in both ways, which agree; none is before the position."""
    found, error = rows_of(part_of(records, aborted))
    same, other = columns_of(part_of(records, aborted))
    assert found == same
    assert str(error) == str(other)
    assert all(offset >= _START for offset, _ in found)
    if error is not None:
        assert error.partition == _PLACE
        assert error.next_offset is None or error.next_offset > _START
    return found, error


def read_answer(data: bytes) -> None:
    """Take an answer of any bytes: its records were written."""
    told, _ = codec.decode(FetchResponse, _VERSION, memoryview(data))
    for topic in told.responses:
        for each in topic.partitions:
            found, _ = check(received_records(each.records), each.aborted_transactions)
            assert {value for _, value in found} <= WRITTEN
            offsets = [offset for offset, _ in found]
            assert all(before < after for before, after in pairwise(offsets))


def read_sealed(data: bytes) -> None:
    """Take records of any bytes whose checksums hold, as from a broker that lies.

    Offsets within a batch are what the batch says, as with Kafka's consumer.
    """
    sealed = bytearray(data)
    position = 0
    while position + layout.HEADER_SIZE <= len(sealed):
        [length] = layout.LENGTH.unpack_from(sealed, position + layout.LENGTH_POSITION)
        end = position + layout.LOG_OVERHEAD + length
        if not position + layout.HEADER_SIZE <= end <= len(sealed):
            break
        crc = crc32c.crc32c(memoryview(sealed)[position + layout.ATTRIBUTES_POSITION : end])
        layout.CRC.pack_into(sealed, position + layout.CRC_POSITION, crc)
        position = end
    for aborted in (None, ABORTED):
        check(memoryview(bytes(sealed)), aborted)


TARGETS: tuple[FuzzTarget, ...] = (
    FuzzTarget(
        name="answer to Fetch",
        seeds=(
            answer(PLAIN, None),
            answer(PACKED, None),
            answer(TRANSACTIONS, ABORTED),
            answer(TRANSACTIONS[:-40], ABORTED),
        ),
        run=read_answer,
        refusals=(MalformedMessageError,),
        share=0.5,
    ),
    FuzzTarget(
        name="fetched records with right checksums",
        seeds=(PLAIN, PACKED, TRANSACTIONS),
        run=read_sealed,
        refusals=(),
        share=0.5,
    ),
)
