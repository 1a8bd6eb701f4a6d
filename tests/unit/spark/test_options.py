"""Options of the source: what they become, and which faults are told."""

import json
from typing import Any

import pytest

from tailrace.errors import ConfigError
from tailrace.model import TopicPartition
from tailrace.spark.options import (
    EARLIEST,
    LATEST,
    Partitions,
    Pattern,
    Point,
    PointKind,
    SourceOptions,
    Topics,
    parse_options,
)

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def parsed(**given: str) -> SourceOptions:
    """Options of a directory with a topic, and those given."""
    return parse_options({"path": "data", "subscribe": "a"} | given)


def faults_of(given: dict[str, str]) -> list[str]:
    """The sentences that these options are refused with."""
    with pytest.raises(ConfigError) as caught:
        parse_options(given)
    return caught.value.faults


def fault_of(**given: str) -> str:
    """The one sentence that an otherwise good set of options is refused with."""
    [fault] = faults_of({"path": "data", "subscribe": "a"} | given)
    return fault


def test_defaults_are_those_of_spark() -> None:
    """A batch goes from earliest to latest, without headers, and fails on data loss."""
    options = parsed()
    assert (options.directory, options.bootstrap) == ("data", None)
    assert options.starting.point_or_none(A0) == EARLIEST
    assert options.ending.point_or_none(A0) == LATEST
    assert not options.has_headers
    assert options.fails_on_data_loss
    assert options.task_count_min == 1


def test_names_are_found_in_any_case() -> None:
    """Spark hands options over in lower case, people write them in all ways."""
    options = parsed(INCLUDEHEADERS="True", failondataloss="FALSE", minPartitions=" 7 ")
    assert options.has_headers
    assert not options.fails_on_data_loss
    assert options.task_count_min == 7


def test_topics_are_selected_in_three_ways() -> None:
    """By list, by expression, and by partition."""
    place = {"kafka.bootstrap.servers": "host:1"}
    assert parse_options(place | {"subscribe": "b, a"}).selection == Topics(("b", "a"))
    assert parse_options(place | {"subscribePattern": "a.*"}).selection == Pattern("a.*")
    assigned = parse_options(place | {"assign": '{"a": [1, 0, 1]}'})
    assert assigned.selection == Partitions((A0, A1))
    assert assigned.bootstrap == "host:1"


def test_offsets_by_partition_have_names_for_the_ends() -> None:
    """-2 is the start of the log and -1 its end, each on its own side; a topic may have one too."""
    starting = parsed(startingOffsets='{"a": {"0": 23, "1": -2}, "b": "earliest"}').starting
    assert starting.point_or_none(A0) == Point(PointKind.OFFSET, 23)
    assert starting.point_or_none(A1) == EARLIEST
    assert starting.point_or_none(TopicPartition("b", 9)) == EARLIEST
    assert starting.point_or_none(TopicPartition("c", 0)) is None
    assert parsed(endingOffsets='{"a": {"0": -1}}').ending.point_or_none(A0) == LATEST


def test_a_timestamp_goes_before_timestamps_by_partition_and_those_before_offsets() -> None:
    """Spark's order, whatever else is given."""
    offsets = {"startingOffsets": '{"a": {"0": 1}}'}
    by_partition = offsets | {"startingOffsetsByTimestamp": '{"a": {"0": 2}}'}
    for_all = by_partition | {"startingTimestamp": "3"}
    found = [parsed(**each).starting.point_or_none(A0) for each in (offsets, by_partition, for_all)]
    assert found == [
        Point(PointKind.OFFSET, 1),
        Point(PointKind.TIMESTAMP, 2),
        Point(PointKind.TIMESTAMP, 3),
    ]


def test_all_faults_come_together() -> None:
    """An unknown name with a suggestion, a missing place, a missing topic, a bad number."""
    faults = faults_of({"subscripe": "a", "minPartitions": "0", "kafka.security.protocol": "SSL"})
    assert "subscripe: no such option; did you mean subscribe?" in faults
    assert any(each.startswith("path, kafka.bootstrap.servers: ") for each in faults)
    assert any(each.startswith("subscribe, subscribePattern, assign: ") for each in faults)
    assert any(each.startswith("minPartitions: '0'") for each in faults)
    assert any(each.startswith("kafka.security.protocol: only PLAINTEXT") for each in faults)
    assert len(faults) == 5


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("kafka.bootstrap.servers", "host:1", "give exactly one, a data directory or a broker"),
        ("assign", '{"a": [0]}', "give exactly one, which topics to read; there are subscribe"),
        ("subscribe", "a,,b", "is not a list of topics"),
        ("startingOffsets", "latest", "'latest' is not possible when reading a batch"),
        ("endingOffsets", "earliest", "'earliest' is not possible when reading a batch"),
        ("startingOffsets", '{"a": {"0": -1}}', "a-0: -1 (latest) is not possible here"),
        ("endingOffsets", '{"a": {"0": -2}}', "a-0: -2 (earliest) is not possible here"),
        ("startingOffsets", '{"a": {"0": -3}}', "a-0: -3 is not an offset"),
        ("startingOffsets", '{"a": {"0": 1.5}}', "a-0: 1.5 is not an offset"),
        ("startingOffsets", '{"a": {"0": true}}', "a-0: True is not an offset"),
        ("startingOffsets", '{"a": {"x": 1}}', "in place of a partition number"),
        ("startingOffsets", '{"a": 5}', "'a' has no offsets by partition"),
        ("startingOffsets", "[1]", "is not JSON like"),
        ("startingOffsets", "[" * 100_000, "is not JSON like"),
        ("startingOffsetsByTimestamp", '{"a": {"0": "noon"}}', "is not a time in milliseconds"),
        ("endingTimestamp", "yesterday", "is not a whole number"),
        ("minPartitions", "9" * 30, "is not a whole number from 1 to 100000"),
        ("includeHeaders", "yes", "'yes' is not one of false, true"),
        ("kafka.isolation.level", "read_committed", "read_committed is not available yet"),
        ("kafka.sasl.mechanism", "PLAIN", "authentication are not available yet"),
        ("kafka.auto.offset.reset", "earliest", "say startingOffsets instead"),
        ("paths", '["a", "b"]', "one directory is read at a time"),
        ("kafka.fetch.message.max.bytes", "1", "no such option"),
    ],
)
def test_a_bad_value_is_refused_with_its_name(name: str, value: str, words: str) -> None:
    """One fault, which says what is wrong."""
    assert words in fault_of(**{name: value})


@pytest.mark.parametrize("text", ["{}", '{"a": []}', '{"a": 0}', '{"a": [-1]}', "a", '{"a": [""]}'])
def test_a_bad_assignment_is_refused(text: str) -> None:
    """It must name at least one partition, by number."""
    assert any(each.startswith("assign: ") for each in faults_of({"path": "x", "assign": text}))


def test_a_bad_pattern_is_refused() -> None:
    """The message is the one of the expression compiler."""
    [fault] = faults_of({"path": "x", "subscribePattern": "a("})
    assert "is not a regular expression" in fault


def test_what_cannot_change_the_rows_is_accepted() -> None:
    """Settings of a Java consumer and of streams have no effect here."""
    assert (
        parsed(
            **{
                "kafka.group.id": "g",
                "kafka.fetch.max.bytes": "1",
                "maxOffsetsPerTrigger": "5",
                "kafka.isolation.level": "read_uncommitted",
                "kafka.security.protocol": "plaintext",
                "kafka.request.timeout.ms": "1500",
            }
        ).request_timeout_ms
        == 1500
    )


SHAPES: list[Any] = [None, 0, -1, "x", "latest", [], [0], {}, {"0": 0}, {"": 1}, {"0": None}]


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets", "endingOffsetsByTimestamp"])
def test_any_json_ends_in_a_bound_or_in_a_fault(name: str) -> None:
    """Every shape in every place is taken or refused, never an accident."""
    refused = 0
    for shape in [*SHAPES, *({"a": each} for each in SHAPES)]:
        try:
            parsed(**{name: json.dumps(shape)})
        except ConfigError as error:
            refused += bool(error.faults)
    assert refused > len(SHAPES)
