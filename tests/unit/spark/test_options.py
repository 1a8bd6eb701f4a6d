"""Options of the source: what they become, and which faults are told."""

import json
from typing import Any

import pytest

from tailrace.errors import ConfigError
from tailrace.model import IsolationLevel, TopicPartition
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
from tailrace.spark.options.values import RateLimits

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
    assert (options.directories, options.bootstrap) == (("data",), None)
    assert options.starting.point_or_none(A0) == EARLIEST
    assert options.ending.point_or_none(A0) == LATEST
    assert "headers" not in options.columns
    assert len(options.columns) == 7
    assert options.fails_on_data_loss
    assert options.task_count_min == 1
    assert options.isolation is IsolationLevel.READ_UNCOMMITTED
    assert options.corruption_report is None
    assert options.limits == RateLimits()


def test_names_are_found_in_any_case() -> None:
    """Spark hands options over in lower case, people write them in all ways."""
    options = parsed(INCLUDEHEADERS="True", failondataloss="FALSE", minPartitions=" 7 ")
    assert options.columns[-1] == "headers"
    assert not options.fails_on_data_loss
    assert options.task_count_min == 7


def test_topics_are_selected_in_three_ways() -> None:
    """Topics are selected by list, whose empty names are none; by expression; or by partition."""
    location = {"kafka.bootstrap.servers": "host:1"}
    assert parse_options(location | {"subscribe": "b, a"}).selection == Topics(("b", "a"))
    assert parse_options(location | {"subscribe": " b,,a ,b,"}).selection == Topics(("b", "a"))
    assert parse_options(location | {"subscribePattern": "a.*"}).selection == Pattern("a.*")
    assigned = parse_options(location | {"assign": '{"a": [1, 0, 1]}'})
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
    """One error has an unknown name, a missing place, a missing topic and a bad number."""
    faults = faults_of({"subscripe": "a", "minPartitions": "0"})
    assert "subscripe: no such option; did you mean subscribe?" in faults
    assert any(each.startswith("path, paths, kafka.bootstrap.servers: ") for each in faults)
    assert any(each.startswith("subscribe, subscribePattern, assign: ") for each in faults)
    assert any(each.startswith("minPartitions: 0 is out of range") for each in faults)
    assert len(faults) == 4


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("kafka.bootstrap.servers", "host:1", "give exactly one, data directories or a broker"),
        ("assign", '{"a": [0]}', "give exactly one, which topics to read; there are subscribe"),
        ("subscribe", " , ", "' , ' names no topic"),
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
        ("minPartitions", "9" * 30, "is out of range (1 to 100000)"),
        ("includeHeaders", "yes", "'yes' is not one of true, false"),
        ("kafka.isolation.level", "committed", "is not one of read_uncommitted, read_committed"),
        ("kafka.sasl.mechanisms", "PLAIN", "did you mean kafka.sasl.mechanism?"),
        ("kafka.auto.offset.reset", "earliest", "say startingOffsets instead"),
        ("kafka.enable.auto.commit", "true", "commits no offsets"),
        ("kafka.key.deserializer", "x", "say keyFormat, or convert"),
        ("kafka.value.deserializer", "x", "say valueFormat, or convert"),
        ("kafka.interceptor.classes", "x", "no Java consumer"),
        ("paths", '["a", "b"]', "there are path, paths"),
        ("columns", "offset,when", "no column 'when'; there are: key, value"),
        ("columns", "offset,", "is not a list like a,b"),
        ("maxRecordsPerPartition", "0", "0 is out of range (1 to "),
        ("maxBytesPerPartition", "64m", "'64m' is not a whole number"),
        ("maxOffsetsPerTrigger", "-1", "-1 is out of range (1 to "),
        ("maxTriggerDelay", "soon", "'soon' is not a time like 15m, 10s or 500ms"),
        ("onCorruption", "skip", "onCorruption=skip needs a directory"),
        ("corruptionReport", "x", "it is written only with onCorruption=skip"),
        ("kafka.fetch.message.max.bytes", "1", "no such option"),
    ],
)
def test_a_bad_value_is_refused_with_its_name(name: str, value: str, words: str) -> None:
    """One fault, which says what is wrong."""
    assert words in fault_of(**{name: value})


@pytest.mark.parametrize("text", ["{}", '{"a": []}', '{"a": 0}', '{"a": [-1]}', "a", '{"a": [""]}'])
def test_a_bad_assignment_is_refused(text: str) -> None:
    """An assignment must name at least one partition, by number."""
    assert any(each.startswith("assign: ") for each in faults_of({"path": "x", "assign": text}))


def test_a_bad_pattern_is_refused() -> None:
    """The message has the expression and what is wrong with it."""
    [fault] = faults_of({"path": "x", "subscribePattern": "a("})
    assert "'a(' is not a regular expression of Java: there is a ( without its )" in fault


def test_what_cannot_change_the_rows_is_accepted() -> None:
    """Settings of a Java consumer and of streams have no effect here."""
    assert (
        parsed(
            **{
                "kafka.group.id": "g",
                "kafka.fetch.max.bytes": "1",
                "groupIdPrefix": "g",
                "kafkaConsumer.pollTimeoutMs": "5",
                "fetchOffset.numRetries": "3",
                "fetchOffset.retryIntervalMs": "10",
                "kafka.isolation.level": "read_uncommitted",
            }
        )
        == parsed()
    )


STREAM = {"path": "data", "subscribe": "a"}


CONSUMER = """
    auto.commit.interval.ms auto.include.jmx.reporter check.crcs client.dns.lookup client.rack
    connections.max.idle.ms default.api.timeout.ms enable.metrics.push exclude.internal.topics
    fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
    group.remote.assignor heartbeat.interval.ms max.partition.fetch.bytes max.poll.interval.ms
    max.poll.records metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
    metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms partition.assignment.strategy receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms
    retry.backoff.ms send.buffer.bytes session.timeout.ms socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms
""".split()  # noqa: SIM905 - forty quoted words are harder to read
"""Settings of a Java consumer that change neither its rows nor whom it trusts."""


def test_settings_of_a_java_consumer_are_accepted() -> None:
    """A query of Spark's source that tunes its consumer or names its metrics runs as it is."""
    given = {"kafka.bootstrap.servers": "host:9092", "subscribe": "a"}
    tuned = {f"kafka.{name}": "100" for name in CONSUMER}
    assert parse_options(given | tuned).bootstrap == "host:9092"


def test_a_stream_begins_at_the_end_by_default() -> None:
    """The default is Spark's; earliest or latest can be given for all or for some partitions."""
    assert parse_options(STREAM, is_stream=True).starting.everywhere == LATEST
    for text, point in (("latest", LATEST), ("earliest", EARLIEST)):
        given = STREAM | {"startingOffsets": text}
        assert parse_options(given, is_stream=True).starting.everywhere == point
    given = STREAM | {"startingOffsets": '{"a": {"0": -1, "1": -2}}'}
    starting = parse_options(given, is_stream=True).starting
    assert [starting.point_or_none(each) for each in (A0, A1)] == [LATEST, EARLIEST]


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    """The three options that name one are refused."""
    with pytest.raises(ConfigError) as caught:
        parse_options(STREAM | {name: "1"}, is_stream=True)
    assert caught.value.faults == [f"{name}: a stream has no end; read a batch instead"]


def test_limits_of_a_stream_are_read() -> None:
    """Offsets, bytes, and a delay in Spark's words."""
    given = {
        "maxOffsetsPerTrigger": "9223372036854775807",
        "minOffsetsPerTrigger": "5",
        "maxBytesPerTrigger": "1000",
        "maxTriggerDelay": "10s",
    }
    assert parse_options(STREAM | given, is_stream=True).limits == RateLimits(
        offsets_max=2**63 - 1, offsets_min=5, bytes_max=1000, trigger_delay_ms=10_000
    )
    for text, delay_ms in (("15m", 900_000), ("500ms", 500), ("7", 7), ("2 h", 7_200_000)):
        found = parse_options(STREAM | {"maxTriggerDelay": text}, is_stream=True)
        assert found.limits.trigger_delay_ms == delay_ms
    with pytest.raises(ConfigError, match="5 is more than maxOffsetsPerTrigger, 4"):
        parse_options(STREAM | given | {"maxOffsetsPerTrigger": "4"}, is_stream=True)


def test_columns_are_chosen_or_added() -> None:
    """`columns` says all, in its order; the two includes add to the seven."""
    assert parsed(columns="offset, value").columns == ("offset", "value")
    assert parsed(columns="position", includeHeaders="true").columns == ("position",)
    added = parsed(includeHeaders="true", includeMetadata="true").columns
    assert added[7:9] == ("headers", "codec")
    assert added[-1] == "position"
    assert len(added) == 16


def test_several_directories_are_a_json_list() -> None:
    """Spark makes the list for `load(["a", "b"])`; a directory named twice counts once."""
    given = {"subscribe": "a", "paths": '["a", "s3://b/c", "a"]'}
    assert parse_options(given).directories == ("a", "s3://b/c")
    for text in ("[]", "a,b", '{"a": 1}', "[1]", '[""]'):
        [fault] = faults_of({"subscribe": "a", "paths": text})
        assert "is not a JSON list of directories" in fault


def test_the_isolation_level_is_kafkas() -> None:
    """Uncommitted by default, in any case of letters; for directories and for brokers."""
    assert parsed(**{"kafka.isolation.level": "read_uncommitted"}).isolation == 0
    level = {"kafka.isolation.level": "READ_COMMITTED"}
    assert parsed(**level).isolation is IsolationLevel.READ_COMMITTED
    broker = {"subscribe": "a", "kafka.bootstrap.servers": "h:1"}
    assert parse_options(broker | level).isolation is IsolationLevel.READ_COMMITTED


def test_damage_is_skipped_in_files_only_and_never_in_silence() -> None:
    """It needs a directory for the report, and data directories to look into."""
    skip = {"onCorruption": "skip", "corruptionReport": "report"}
    assert parsed(**skip).corruption_report == "report"
    [fault] = faults_of(skip | {"subscribe": "a", "kafka.bootstrap.servers": "h:1"})
    assert "only files can be searched" in fault


BROKER = {"subscribe": "a", "kafka.bootstrap.servers": "h:1"}


def test_an_empty_list_of_brokers_beside_directories_is_no_broker() -> None:
    """The option counts as not given, so the options for directories are accepted."""
    options = parsed(
        **{"kafka.bootstrap.servers": "", "onCorruption": "skip", "corruptionReport": "report"}
    )
    assert (options.bootstrap, options.corruption_report) == (None, "report")


def test_settings_of_the_client_are_kept_under_kafkas_names() -> None:
    """Without the prefix; none of them shows where the options are printed."""
    secret = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.username": "ann",
        "kafka.sasl.password": "hush",
        "kafka.request.timeout.ms": "1500",
    }
    options = parse_options(BROKER | secret)
    assert options.client_settings == {"client.id": "tailrace-spark"} | {
        name.removeprefix("kafka."): value for name, value in secret.items()
    }
    assert "hush" not in repr(options)


def test_faults_of_the_client_come_with_the_others() -> None:
    """Under the names of the options."""
    bad = {"kafka.security.protocol": "TLS", "kafka.request.timeout.ms": "-1"}
    faults = faults_of(BROKER | bad | {"minPartitions": "0"})
    assert sorted(fault.split(":")[0] for fault in faults) == sorted([*bad, "minPartitions"])
    [fault] = faults_of(BROKER | {"kafka.bootstrap.servers": "h"})
    assert fault.startswith("kafka.bootstrap.servers")


@pytest.mark.parametrize("text", ['{"a": {"0": 1, "0": 2}}', '{"a": {"0": 1}, "a": {"1": 1}}'])
def test_json_that_names_a_thing_twice_is_refused(text: str) -> None:
    """One of the two would be lost."""
    assert "is not JSON like" in fault_of(startingOffsets=text)


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


def test_the_login_of_a_java_client_is_taken() -> None:
    """Options of Spark's own source for SASL are read, and a text that cannot be is refused."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    given = {
        "kafka.bootstrap.servers": "b:1",
        "subscribe": "a",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{module} required username="ann" password="hush";',
    }
    found = parse_options(given)
    assert found.client_settings["sasl.jaas.config"] == given["kafka.sasl.jaas.config"]
    assert "hush" not in repr(found)
    [fault] = faults_of(given | {"kafka.sasl.jaas.config": f"{module} required username=ann"})
    assert fault == "kafka.sasl.jaas.config: the entry has to end with ';'"
