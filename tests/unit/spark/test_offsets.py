"""Which partitions are chosen, and which ranges of offsets they get."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import ConfigError
from tailrace.model import TopicPartition
from tailrace.spark.offsets import (
    Extent,
    choose_partitions,
    find_late_starts,
    resolve_ranges,
)
from tailrace.spark.options import Partitions, Pattern, Topics, parse_options

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
INTERNAL = TopicPartition("__consumer_offsets", 7)
EXTENTS = {A0: Extent(10, 20), A1: Extent(0, 5)}


def never(partition: TopicPartition, timestamp: int) -> None:
    """No record is that new."""
    del partition, timestamp


def resolved(**given: str) -> dict[TopicPartition, tuple[int, int]]:
    """The ranges of the two partitions of `a`."""
    options = parse_options({"path": "data", "subscribe": "a"} | given)
    return resolve_ranges(options, EXTENTS, offset_at=never)


def faults_of(**given: str) -> list[str]:
    """Return the faults for which the ranges are refused."""
    with pytest.raises(ConfigError) as caught:
        resolved(**given)
    return caught.value.faults


def test_partitions_are_chosen_in_order() -> None:
    """Partitions are chosen by topic, by an expression in the name, and by number."""
    known = {B0, A1, A0, INTERNAL}
    assert choose_partitions(Topics(("b", "a")), known) == [A0, A1, B0]
    assert choose_partitions(Pattern("[ab]"), known) == [A0, A1, B0]
    assert choose_partitions(Partitions((A1,)), known) == [A1]
    assert choose_partitions(Pattern("nothing"), known) == []


def test_a_list_of_many_topics_is_not_searched_for_each_partition() -> None:
    """A stream chooses before each batch, so the work must not grow with the square of topics."""
    compared = []

    class Name(str):
        """A topic's name that notes whenever it is compared."""

        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return str.__eq__(self, other)

    names = tuple(Name(f"topic-{number}") for number in range(500))
    known = {TopicPartition(str(name), number) for name in names for number in range(2)}
    compared.clear()
    assert choose_partitions(Topics(names), known) == sorted(known)
    assert len(compared) < 10 * len(known)


def test_internal_topics_are_read_by_name_only() -> None:
    """No expression matches Kafka's own state."""
    known = {A0, INTERNAL}
    assert choose_partitions(Pattern(".*"), known) == [A0]
    assert choose_partitions(Topics((INTERNAL.topic,)), known) == [INTERNAL]


def test_what_does_not_exist_is_refused_with_what_does() -> None:
    """Every missing name has its sentence."""
    with pytest.raises(ConfigError) as caught:
        choose_partitions(Topics(("x", "a", "y")), {A0, B0})
    assert caught.value.faults == [
        "topic 'x' does not exist; there are: a, b",
        "topic 'y' does not exist; there are: a, b",
    ]
    with pytest.raises(ConfigError, match="partition a-1 does not exist"):
        choose_partitions(Partitions((A1,)), {A0})


def test_everything_is_read_by_default() -> None:
    """By default the range is from the first offset of each log to its end."""
    assert resolved() == {A0: (10, 20), A1: (0, 5)}


def test_offsets_and_ends_can_be_mixed() -> None:
    """Numbers are taken as they are; -2 and -1 are the ends of that partition's log."""
    ranges = resolved(
        startingOffsets='{"a": {"0": 12, "1": -2}}', endingOffsets='{"a": {"0": -1, "1": 3}}'
    )
    assert ranges == {A0: (12, 20), A1: (0, 3)}


def test_every_partition_needs_an_offset_and_every_offset_a_partition() -> None:
    """Both kinds of mismatch are reported, for both ends at once."""
    faults = faults_of(
        startingOffsets='{"a": {"0": 12}, "b": {"0": 1}}', endingOffsets='{"c": "latest"}'
    )
    assert faults == [
        f"[KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED] {fault}"
        for fault in (
            "startingOffsets: every partition needs one; missing: a-1",
            "startingOffsets: not selected: b-0",
            "endingOffsets: every partition needs one; missing: a-0, a-1",
            "endingOffsets: not selected: c",
        )
    ]


@pytest.mark.parametrize("numbers", [[0], [0, 1, 2], [2, 3]])
@pytest.mark.parametrize("side", ["starting", "ending"])
@pytest.mark.parametrize("kind", ["Offsets", "OffsetsByTimestamp"])
def test_fewer_more_and_other_partitions_are_refused(
    numbers: list[int], side: str, kind: str
) -> None:
    """Offsets or timestamps for one of two, three of two, or two others; with Spark's name."""
    value = json.dumps({"a": dict.fromkeys(map(str, numbers), 5)})
    name = "TIMESTAMP" if kind.endswith("Timestamp") else "START"
    for fault in faults_of(**{f"{side}{kind}": value}):
        assert fault.startswith(f"[KAFKA_{name}_OFFSET_DOES_NOT_MATCH_ASSIGNED] {side}{kind}: ")


def test_ranges_come_from_ends_numbers_and_both() -> None:
    """A range's ends may be words or numbers, for one partition or several."""
    by_name = resolved(startingOffsets="earliest", endingOffsets="latest")
    by_topic = resolved(startingOffsets='{"a": "earliest"}', endingOffsets='{"a": "latest"}')
    assert by_name == by_topic == {A0: (10, 20), A1: (0, 5)}
    mixed = resolved(startingOffsets='{"a": {"0": 11, "1": -2}}', endingOffsets="latest")
    assert mixed == {A0: (11, 20), A1: (0, 5)}
    assert resolved(endingOffsets='{"a": {"0": 13, "1": -1}}') == {A0: (10, 13), A1: (0, 5)}


def test_one_offset_for_a_topic_goes_for_all_its_partitions() -> None:
    """The short form of Spark's newer releases; both forms may stand side by side."""
    options = parse_options(
        {
            "path": "x",
            "subscribe": "a,b",
            "startingOffsets": '{"a": "earliest", "b": {"0": 3}}',
        }
    )
    extents = EXTENTS | {B0: Extent(0, 7)}
    ranges = resolve_ranges(options, extents, offset_at=never)
    assert ranges == {A0: (10, 20), A1: (0, 5), B0: (3, 7)}


def test_lost_offsets_fail_or_are_left_out() -> None:
    """By default they are an error; with failOnDataLoss=false the range is what is there."""
    outside = {
        "startingOffsets": '{"a": {"0": 3, "1": 0}}',
        "endingOffsets": '{"a": {"0": 15, "1": 9}}',
    }
    first, second = faults_of(**outside)
    lost = "[KAFKA_DATA_LOSS."
    assert first.startswith(
        f"{lost}START_OFFSET_RESET] startingOffsets: a-0 has offsets 10 to 20, not 3;"
    )
    assert second.startswith(
        f"{lost}COULD_NOT_READ_OFFSET_RANGE] endingOffsets: a-1 has offsets 0 to 5, not 9;"
    )
    assert resolved(**outside, failOnDataLoss="false") == {A0: (10, 15), A1: (0, 5)}


def test_a_start_behind_its_end_is_refused() -> None:
    """A start behind its end is refused whatever failOnDataLoss says."""
    for value in ("true", "false"):
        [fault] = faults_of(
            startingOffsets='{"a": {"0": 15, "1": 0}}',
            endingOffsets='{"a": {"0": 12, "1": 5}}',
            failOnDataLoss=value,
        )
        assert fault == (
            "[UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] a-0: "
            "the starting offset 15 is after the ending 12"
        )


def test_a_start_found_by_time_behind_its_end_is_refused_too() -> None:
    """A bound that is found in the log has the other of Spark's two error names."""
    options = parse_options(
        {
            "path": "x",
            "subscribe": "a",
            "startingTimestamp": "100",
            "endingOffsets": '{"a":{"0":1}}',
        }
    )
    with pytest.raises(ConfigError) as caught:
        resolve_ranges(options, {A0: Extent(0, 9)}, offset_at=lambda _, __: 4)
    [fault] = caught.value.faults
    assert fault.startswith("[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] a-0: ")


def test_timestamps_become_offsets() -> None:
    """The start is the first record at that time, and so is the end, which is not read."""
    options = parse_options(
        {"path": "x", "subscribe": "a", "startingTimestamp": "100", "endingTimestamp": "300"}
    )
    at = {100: 11, 300: 17}
    ranges = resolve_ranges(options, {A0: Extent(10, 20)}, offset_at=lambda _, time: at[time])
    assert ranges == {A0: (11, 17)}


def test_a_record_that_came_after_the_look_is_none_of_a_batch() -> None:
    """Its time is found behind the end: all that the batch has is older, so no offset is lost."""
    for bound, expected in (("starting", (20, 20)), ("ending", (10, 20))):
        given = {"path": "x", "subscribe": "a", f"{bound}Timestamp": "100"}
        ranges = resolve_ranges(
            parse_options(given), {A0: Extent(10, 20)}, offset_at=lambda _, __: 25
        )
        assert ranges == {A0: expected}


def test_a_timestamp_newer_than_all_records_is_an_error_at_the_start_only() -> None:
    """A strategy makes it an empty range; at the end it means everything."""
    faults = faults_of(startingTimestamp="100")
    assert len(faults) == 2
    assert "a-0 has no record from 100 ms on" in faults[0]
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert resolved(startingTimestamp="100", **latest) == {A0: (20, 20), A1: (5, 5)}
    assert resolved(endingTimestamp="100") == {A0: (10, 20), A1: (0, 5)}


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_a_range_never_leaves_its_log(first: int, length: int, start: int, limit: int) -> None:
    """It stays inside for any request with failOnDataLoss=false."""
    options = parse_options(
        {
            "path": "x",
            "subscribe": "a",
            "startingOffsets": f'{{"a": {{"0": {start}}}}}',
            "endingOffsets": f'{{"a": {{"0": {max(start, limit)}}}}}',
            "failOnDataLoss": "false",
        }
    )
    extent = Extent(first, first + length)
    ranges = resolve_ranges(options, {A0: extent}, offset_at=never)
    assert extent.start <= ranges[A0][0] <= ranges[A0][1] <= extent.end


def test_a_log_that_begins_above_what_was_asked_is_told() -> None:
    """With what was asked, what is there and how many are missing; for jobs the earliest is 0."""
    starting = parse_options(
        {
            "path": "x",
            "subscribe": "a,b",
            "startingOffsets": '{"a": {"0": 4, "1": 3}, "b": {"0": -2}}',
        }
    ).starting
    extents = EXTENTS | {B0: Extent(7, 7)}
    [late] = find_late_starts(starting, extents)
    assert str(late) == (
        "startingOffsets: a-0 was to be read from offset 4 on, and its log begins at 10: "
        "6 offsets are gone"
    )
    found = find_late_starts(starting, extents, earliest=0)
    assert [(each.partition, each.asked, each.missing) for each in found] == [
        (A0, 4, 6),
        (B0, 0, 7),
    ]
