"""Tests of taking the answer to a fetch, without a socket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.client.errors import RemoteFatalError, RemoteRetriableError
from tailrace.client.tailer import checked_pieces, fetch_request_for, parts_of
from tailrace.config.settings import INT64_MAX
from tailrace.errors import CorruptionError, TailraceError
from tailrace.model import IsolationLevel, Offset, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tailrace.records.batch import Batch, stamp
from tailrace.records.builder import BatchBuilder, records_of
from tailrace.records.runs import batches_of
from tests.naive import LegacyMessage, write_all_legacy

FLIGHTS = TopicPartition("flights", 3)
PLACE = "host:9092, flights-3"


def built(base_offset: int, count: int) -> bytes:
    """A batch of `count` records from `base_offset` on."""
    builder = BatchBuilder()
    for number in range(count):
        builder.append(None, b"%d" % number)
    data = bytearray(builder.build())
    stamp(memoryview(data), base_offset=base_offset, leader_epoch=0)
    return bytes(data)


def checked(data: bytes, offset: int) -> list[Batch]:
    """The batches of an answer."""
    pieces = checked_pieces(memoryview(data), offset=offset, place=PLACE)
    return [
        batch
        for piece in pieces
        for _, batch in batches_of(piece, Offset(offset), Offset(INT64_MAX))
    ]


def test_batches_before_the_offset_and_behind_the_end_are_left_out() -> None:
    """A batch that holds the offset stays; one before it and a partial one behind do not."""
    data = built(0, 5) + built(5, 5) + built(10, 5) + built(15, 5)[:-1]
    assert [batch.base_offset for batch in checked(data, 7)] == [5, 10]


def test_no_whole_batch_gives_none() -> None:
    """An answer that is cut off in its first batch has nothing to give."""
    assert not checked(built(0, 5)[:-1], 0)


def test_damage_names_the_broker_and_the_partition() -> None:
    """A flipped bit is an error with the place, never a batch."""
    good, bad = built(0, 5), bytearray(built(5, 5))
    bad[-1] ^= 1
    with pytest.raises(CorruptionError, match=r"host:9092, flights-3, position \d+, offset 5") as e:
        checked(good + bad, 0)
    assert e.value.position == len(good)


def test_an_old_format_is_read() -> None:
    """Messages of formats v0 and v1, which a topic of long ago still holds, are batches too."""
    old = write_all_legacy(
        [LegacyMessage(0, 3, b"k", b"zero"), LegacyMessage(1, 4, None, b"one", timestamp=7)]
    )
    found = [record for batch in checked(old + built(5, 1), 3) for record in records_of(batch)]
    assert [(record.offset, record.value) for record in found] == [
        (3, b"zero"),
        (4, b"one"),
        (5, b"0"),
    ]


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 255))
def test_any_records_are_taken_or_refused(tail: bytes, position: int, value: int) -> None:
    """Whatever a broker sends for records ends in checked batches or in an error of ours."""
    data = bytearray(built(0, 3) + built(3, 3) + tail)
    data[position % len(data)] = value
    try:
        batches = checked(bytes(data), 0)
    except TailraceError:
        return
    assert all(batch.last_offset >= 0 for batch in batches)


def test_the_partition_asked_for_is_found_in_the_answer() -> None:
    """Other topics and partitions are passed over."""
    wanted = PartitionData(partition_index=3, high_watermark=17)
    answer = FetchResponse(
        responses=(
            FetchableTopicResponse(topic="planes", partitions=(PartitionData(partition_index=3),)),
            FetchableTopicResponse(
                topic="flights", partitions=(PartitionData(partition_index=2), wanted)
            ),
        )
    )
    assert parts_of(answer, [FLIGHTS])[FLIGHTS] is wanted


def test_an_answer_without_the_partition_may_be_asked_for_again() -> None:
    """A missing partition is retriable; a top-level error has its own class."""
    with pytest.raises(RemoteRetriableError):
        parts_of(FetchResponse(), [FLIGHTS])
    with pytest.raises(RemoteFatalError):
        parts_of(FetchResponse(error_code=ErrorCode.INVALID_REQUEST), [FLIGHTS])


def test_requests_say_what_they_should() -> None:
    """Fetch names offset and size, and the isolation."""
    level = IsolationLevel.READ_COMMITTED
    fetch = fetch_request_for({FLIGHTS: 7}, size_max=100, isolation=level)
    [topic] = fetch.topics
    assert (topic.topic, topic.partitions[0].partition) == FLIGHTS
    assert (topic.partitions[0].fetch_offset, fetch.max_bytes, fetch.min_bytes) == (7, 100, 1)
    assert fetch.isolation_level == 1


def test_a_client_asks_as_no_replica() -> None:
    """A replica is told the log end offset: a client has to say that it is none."""
    level = IsolationLevel.READ_UNCOMMITTED
    assert fetch_request_for({FLIGHTS: 0}, size_max=1, isolation=level).replica_id == -1
