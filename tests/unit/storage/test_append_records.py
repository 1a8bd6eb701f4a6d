"""Which records of a batch are refused, and that each of them is named."""

import pytest

from tailrace.errors import InvalidRecordError, InvalidTimestampError
from tailrace.model import Codec, TimestampType
from tailrace.records.checks import REFUSED_LISTED_MAX
from tailrace.runtime.clock import iso_time
from tests.naive import varint
from tests.unit.records.batches import GOOD, batch_with
from tests.unit.storage.builders import NOW, batch, settings
from tests.unit.storage.plans import (
    APPEND_TIME,
    BOUNDED,
    COMPACTED,
    PLAIN,
    changed,
    mixed,
    plan,
    with_offsets,
)

DAY_MS = 24 * 60 * 60 * 1000
BOUNDED_COMPACTED = settings(
    segment_bytes=10**6, cleanup_policy="compact", message_timestamp_before_max_ms=1000
)
every_codec = pytest.mark.parametrize("codec", Codec)


def indexes(error: InvalidRecordError | InvalidTimestampError) -> list[int]:
    """Which records it names."""
    return [each.index for each in error.record_errors]


@every_codec
def test_a_compacted_topic_wants_keys(codec: Codec) -> None:
    """Every record without one is named; other topics take it."""
    data = mixed((None, NOW), (b"k", NOW), (None, NOW), codec=codec)
    with pytest.raises(InvalidRecordError, match="2 of 3 records are refused; record 0") as caught:
        plan(data, COMPACTED)
    assert indexes(caught.value) == [0, 2]
    assert {each.message for each in caught.value.record_errors} == {
        "no key, and the topic is compacted"
    }
    plan(data, PLAIN)
    plan(batch(b"a", codec=codec), COMPACTED)


def test_twenty_invalid_records_are_twenty_errors() -> None:
    """No bad record hides another."""
    with pytest.raises(InvalidRecordError) as caught:
        plan(mixed(*[(None, NOW)] * 20, codec=Codec.GZIP), COMPACTED)
    assert indexes(caught.value) == list(range(20))


@every_codec
def test_offsets_are_consecutive(codec: Codec) -> None:
    """The first of twenty equal offsets is right, and the others are named."""
    with pytest.raises(InvalidRecordError, match="record 1: offset delta 0 instead of 1") as caught:
        plan(with_offsets(*[0] * 20, codec=codec))
    assert indexes(caught.value) == list(range(1, 20))
    plan(with_offsets(*range(20), codec=codec))


def test_offsets_with_a_gap_are_refused() -> None:
    """Offsets with a gap are refused in the header and behind a header that fits."""
    with pytest.raises(InvalidRecordError, match="offset delta 3"):
        plan(changed(with_offsets(0, 2, 3), 23, (3).to_bytes(4, "big")))
    with pytest.raises(InvalidRecordError) as caught:
        plan(with_offsets(0, 2, 3))
    assert indexes(caught.value) == [1, 2]


@every_codec
def test_an_offset_before_the_batch_is_refused(codec: Codec) -> None:
    """A negative offset delta breaks a rule of the format, and its record is named."""
    with pytest.raises(
        InvalidRecordError, match="record 1 of 2: its offset delta is negative"
    ) as e:
        plan(with_offsets(0, -1, codec=codec))
    assert indexes(e.value) == [1]


@pytest.mark.parametrize(
    ("timestamp", "is_taken"),
    [(-1, True), (NOW - 1000, True), (NOW - 1001, False), (NOW + 1000, True), (NOW + 1001, False)],
)
def test_timestamps_have_bounds(timestamp: int, is_taken: bool) -> None:  # noqa: FBT001
    """Timestamps are bounded on both sides of the broker's clock; a missing one is accepted."""
    data = batch(b"a", b"b", timestamps=[NOW, timestamp])
    if is_taken:
        assert plan(data, BOUNDED).max_timestamp == max(NOW, timestamp)
    else:
        with pytest.raises(InvalidTimestampError, match=str(timestamp)) as caught:
            plan(data, BOUNDED)
        assert indexes(caught.value) == [1]
        # The sentence does not say which of the two clocks is wrong: nobody knows.
        side = "after" if timestamp > NOW else "before"
        words = f"{side} {iso_time(timestamp + (-1 if timestamp > NOW else 1))}, the limit of "
        assert f"{words}message.timestamp.{side}.max.ms by the clock of this broker" in str(
            caught.value
        )


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("timestamp", [NOW - 1001, NOW + 1001])
def test_every_bad_timestamp_is_named(timestamp: int, codec: Codec) -> None:
    """Three records too old or too young are three errors."""
    with pytest.raises(InvalidTimestampError) as caught:
        plan(mixed(*[(b"k", timestamp)] * 3, codec=codec), BOUNDED)
    assert indexes(caught.value) == [0, 1, 2]


def test_a_day_before_and_an_hour_after() -> None:
    """Five minutes beyond either limit is too far, five minutes within is not."""
    config = settings(
        message_timestamp_before_max_ms=DAY_MS, message_timestamp_after_max_ms=DAY_MS // 24
    )
    for far, near in (
        (NOW - DAY_MS - 300_000, NOW - DAY_MS + 300_000),
        (NOW + DAY_MS // 24 + 300_000, NOW + DAY_MS // 24 - 300_000),
    ):
        with pytest.raises(InvalidTimestampError) as caught:
            plan(mixed(*[(b"k", far)] * 3, codec=Codec.GZIP), config)
        assert indexes(caught.value) == [0, 1, 2]
        plan(mixed(*[(b"k", near)] * 3, codec=Codec.GZIP), config)


def test_a_record_without_timestamp_hides_no_old_one() -> None:
    """-1 is the smallest of the batch, and yet the record after it is looked at."""
    with pytest.raises(InvalidTimestampError) as caught:
        plan(batch(b"a", b"b", b"c", timestamps=[-1, 5, NOW]), BOUNDED)
    assert indexes(caught.value) == [1]
    plan(batch(b"a", b"b", timestamps=[-1, NOW]), BOUNDED)


def test_a_bad_timestamp_names_the_error_of_the_request() -> None:
    """Among other faults; all records at fault are listed, each with its first fault."""
    data = mixed((b"k", 1200), (None, NOW), (b"k", NOW), (None, 1200))
    with pytest.raises(InvalidTimestampError) as caught:
        plan(data, BOUNDED_COMPACTED)
    assert [(each.index, each.message[:6]) for each in caught.value.record_errors] == [
        (0, "timest"), (1, "no key"), (3, "no key"),
    ]  # fmt: skip
    with pytest.raises(InvalidRecordError) as without:
        plan(mixed((b"k", NOW), (None, 1200)), BOUNDED_COMPACTED)
    assert indexes(without.value) == [1]


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    """A base and a delta that are fine each can add up to one that no header holds."""
    config = settings(message_timestamp_after_max_ms=2**63 - 1)
    data = changed(batch(b"a", b"b", timestamps=[NOW, NOW + 5]), 27, (2**63 - 2).to_bytes(8, "big"))
    with pytest.raises(InvalidTimestampError) as caught:
        plan(data, config)
    assert indexes(caught.value) == [1]


def test_a_broker_that_sets_timestamps_looks_at_none() -> None:
    """The producer's clock does not matter, unless the batch claims the broker's time."""
    config = settings(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=0)
    assert plan(batch(b"a", timestamps=[5]), config).max_timestamp == NOW
    data = batch(b"a", b"b", timestamp_type=TimestampType.LOG_APPEND_TIME)
    with pytest.raises(InvalidTimestampError, match="may not set LogAppendTime") as caught:
        plan(data, APPEND_TIME)
    assert indexes(caught.value) == [0, 1]


def test_the_list_of_records_is_bounded() -> None:
    """The error of the request is that of all records, also of those not listed."""
    count = REFUSED_LISTED_MAX + 5
    records: list[tuple[bytes | None, int]] = [(None, NOW)] * (count - 1) + [(b"k", 5)]
    with pytest.raises(InvalidTimestampError, match=f"{count} of {count} records") as caught:
        plan(mixed(*records), BOUNDED_COMPACTED)
    assert indexes(caught.value) == list(range(REFUSED_LISTED_MAX))


def test_a_malformed_record_is_named() -> None:
    """It breaks a rule of the format under a right checksum."""
    data = bytearray(batch_with(GOOD + varint(5) + bytes(7), 2).view)
    data[0:8] = bytes(8)
    with pytest.raises(InvalidRecordError, match="record 1 of 2: its length") as caught:
        plan(data)
    assert indexes(caught.value) == [1]
