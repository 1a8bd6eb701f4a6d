"""Options and columns of the sink: pure, no Spark session and no broker."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tailrace.errors import ConfigError
from tailrace.spark.sink.options import JobVersion, parse_sink
from tailrace.spark.sink.writers import TailraceStreamWriter, open_stream_writer, open_writer

BOOTSTRAP = {"kafka.bootstrap.servers": "localhost:9092"}
NO_TOPIC = (
    "topic option required when no 'topic' attribute is present. Use the topic option for "
    "setting a topic"
)
ALL_COLUMNS = (
    "topic STRING, key BINARY, value BINARY, partition INT, timestamp TIMESTAMP, headers HEADERS"
)


def headers_of(value: DataType) -> ArrayType:
    """Lists of headers with such values."""
    return ArrayType(StructType([StructField("key", StringType()), StructField("value", value)]))


TYPES = {
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "TIMESTAMP": TimestampType(),
    "DATE": DateType(),
    "MAP": MapType(StringType(), BinaryType()),
    "HEADERS": headers_of(BinaryType()),
    "HEADERS-OF-TEXT": headers_of(StringType()),
}


def schema(text: str) -> StructType:
    """The schema from words like those of SQL, which only a session could parse."""
    words = [column.split() for column in text.split(", ")]
    return StructType(
        [StructField(name, TYPES[kind], nullable=not rest) for name, kind, *rest in words]
    )


def faults(columns: str, options: dict[str, str], *, is_stream: bool = False) -> list[str]:
    """Return the faults of a write."""
    with pytest.raises(ConfigError) as caught:
        parse_sink(options, schema(columns), is_stream=is_stream)
    return caught.value.faults


VERSION = BOOTSTRAP | {
    "topic": "t",
    "delivery": "exactly-once",
    "txnAppId": "nightly",
    "txnVersion": "20261127",
    "checkpointLocation": "s3a://bucket/nightly",
}
"""Options of a batch write that is one version of a job."""


@pytest.mark.parametrize(
    "columns",
    [
        "value STRING, topic STRING",
        "value BINARY NOT NULL, topic STRING NOT NULL",
        "topic STRING, value STRING, key STRING, partition INT",
        ALL_COLUMNS,
        f"{ALL_COLUMNS}, offset BIGINT, timestampType INT",
    ],
)
def test_columns_of_spark_and_of_the_source_are_taken(columns: str) -> None:
    """Text or bytes, null or not, in any order, and all that the source gives."""
    assert parse_sink(BOOTSTRAP, schema(columns)).topic is None


def test_the_topic_option_wins_over_the_column() -> None:
    """The option wins whatever the column is."""
    options = BOOTSTRAP | {"topic": "chosen"}
    assert parse_sink(options, schema("value STRING, topic INT")).topic == "chosen"


def test_a_missing_topic_and_a_missing_value_are_told_in_sparks_words() -> None:
    """One error tells both."""
    assert faults("key STRING", BOOTSTRAP) == [
        NO_TOPIC,
        "Required attribute 'value' not found",
    ]


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ("topic INT, value STRING", "topic must be a(n) string"),
        ("topic STRING, value INT", "value must be a(n) string or binary"),
        ("topic STRING, value STRING, key INT", "key must be a(n) string or binary"),
        ("topic STRING, value STRING, partition STRING", "partition must be a(n) int"),
        ("topic STRING, value STRING, partition BIGINT", "partition must be a(n) int"),
        ("topic STRING, value STRING, timestamp DATE", "timestamp must be a(n) timestamp"),
        (
            "topic STRING, value STRING, headers MAP",
            "headers must be a(n) array<struct<key:string,value:binary>>",
        ),
        (
            "topic STRING, value STRING, headers HEADERS-OF-TEXT",
            "headers must be a(n) array<struct<key:string,value:binary>>",
        ),
    ],
)
def test_a_wrong_type_is_told_in_sparks_words(columns: str, fault: str) -> None:
    """The error has the column's type and the types that it may have."""
    [told] = faults(columns, BOOTSTRAP)
    assert "attribute unsupported type" in told
    assert told.endswith(fault)


def test_unknown_columns_are_refused_with_what_may_have_been_meant() -> None:
    """A column that is not written would be lost without a word."""
    near, far = faults("value STRING, Topic STRING, colour STRING", BOOTSTRAP | {"topic": "t"})
    assert near == "Topic: records have no such column; did you mean topic?"
    assert far.startswith("colour: records have no such column; there are: value, key, headers")
    assert faults("value STRING, value STRING", BOOTSTRAP | {"topic": "t"}) == [
        "value: 2 columns have this name"
    ]


def test_options_come_in_any_case_and_reach_the_producer() -> None:
    """`kafka.` stands before settings of the producer; Spark's own options are let through."""
    parsed = parse_sink(
        {
            "Kafka.Bootstrap.Servers": "a:1,b:2",
            "kafka.ACKS": "1",
            "kafka.compression.type": "zstd",
            "kafka.linger.ms": "20",
            "TOPIC": "t",
            "includeHeaders": "true",
            "checkpointLocation": "somewhere",
        },
        schema("value STRING"),
        is_stream=True,
    )
    assert parsed.topic == "t"
    assert parsed.producer == {
        "bootstrap.servers": "a:1,b:2",
        "acks": "1",
        "compression.type": "zstd",
        "linger.ms": "20",
        "client.id": "tailrace-spark",
    }


@pytest.mark.parametrize("name", ["key", "value"])
def test_serializers_are_refused_in_sparks_words(name: str) -> None:
    """The sink writes the columns themselves, so serializers are refused."""
    [fault] = faults(
        "value STRING", BOOTSTRAP | {"topic": "t", f"kafka.{name}.serializer": "com.example.S"}
    )
    assert f"Kafka option '{name}.serializer' is not supported" in fault


def test_all_faults_of_options_and_columns_come_together() -> None:
    """Misspelt, refused and bad options, and a wrong column."""
    told = faults(
        "value INT, topic STRING",
        {
            "topics": "t",
            "path": "data",
            "includeHeaders": "perhaps",
            "kafka.transactional.id": "mine",
            "kafka.partitioner.class": "com.example.P",
        },
    )
    assert [fault.split(":")[0] for fault in told] == [
        "Option 'kafka.bootstrap.servers' must be specified",
        "topics",
        "path",
        "kafka.transactional.id",
        "kafka.partitioner.class",
        "includeHeaders",
        "value attribute unsupported type int. value must be a(n) string or binary",
    ]
    assert "topics: no such option; did you mean topic?" in told


def test_settings_of_the_producer_are_checked_by_the_producer() -> None:
    """Unknown names with a suggestion, and bad values."""
    told = faults(
        "value STRING",
        BOOTSTRAP | {"topic": "", "kafka.compresion.type": "zstd", "kafka.linger.ms": "soon"},
    )
    assert told == [
        "kafka.compresion.type: no such setting; did you mean compression.type?",
        "kafka.linger.ms: 'soon' is not a number",
        "topic: the name is empty",
    ]
    assert faults("value STRING", {"kafka.bootstrap.servers": "nowhere", "topic": "t"}) == [
        "kafka.bootstrap.servers: 'nowhere' is not HOST:PORT"
    ]
    # The timeout by which the sink knows who was fenced.
    is_mark = {"topic": "t", "kafka.transaction.timeout.ms": "30001", "delivery": "exactly-once"}
    due = (
        "kafka.transaction.timeout.ms must not be 30001, by which the sink knows producers that "
        "were fenced; give another"
    )
    assert faults("value STRING", BOOTSTRAP | is_mark) == [due]


def test_overwrite_is_refused_together_with_the_other_faults() -> None:
    """A log takes records at its end only."""
    with pytest.raises(ConfigError) as caught:
        open_writer(BOOTSTRAP, schema("value INT"), overwrite=True)
    assert [fault.split(" ")[0] for fault in caught.value.faults] == ["mode:", "topic", "value"]
    with pytest.raises(ConfigError, match="can only be appended"):
        open_writer(BOOTSTRAP | {"topic": "t"}, schema("value STRING"), overwrite=True)


def test_a_stream_in_the_mode_complete_is_taken() -> None:
    """Spark's own sink takes this mode too, and appends the whole result each time."""
    columns, options = schema("value STRING"), BOOTSTRAP | {"topic": "t"}
    writer = open_stream_writer(options, columns, overwrite=True)
    assert isinstance(writer, TailraceStreamWriter)


def test_three_options_make_a_batch_write_a_version_of_a_job() -> None:
    """The version may have leading zeros; a stream has its checkpoint in another field."""
    parsed = parse_sink(VERSION, schema("value STRING"))
    assert parsed.job == JobVersion(
        app_id="nightly", number=20261127, location="s3a://bucket/nightly"
    )
    assert parsed.checkpoint is None
    padded = parse_sink(VERSION | {"txnVersion": "007"}, schema("value STRING"))
    assert padded.job is not None
    assert padded.job.number == 7


@pytest.mark.parametrize("left_out", ["txnAppId", "txnVersion", "checkpointLocation"])
def test_options_of_a_version_go_together(left_out: str) -> None:
    """One that is missing is named, and so are the ones that are there."""
    given = {name: value for name, value in VERSION.items() if name != left_out}
    [fault] = faults("value STRING", given)
    about, _, rest = fault.partition(": ")
    assert set(about.split(", ")) == {"txnAppId", "txnVersion", "checkpointLocation"} - {left_out}
    assert f"give {left_out} too, or none of them" in rest


def test_a_version_needs_exactly_once_delivery() -> None:
    """With another delivery the options would promise what is not kept."""
    [fault] = faults("value STRING", VERSION | {"delivery": "at-least-once"})
    assert fault.endswith("only with option('delivery', 'exactly-once')")


@pytest.mark.parametrize("version", ["", "-1", "1.5", "2026-11-27", "\u0661", "9" * 19, "9" * 5000])
def test_a_version_is_a_whole_number(version: str) -> None:
    """It has to fit into 63 bits, and its order has to be clear."""
    [fault] = faults("value STRING", VERSION | {"txnVersion": version})
    assert fault.startswith(f"txnVersion: {version!r} is not a whole number")


def test_a_version_has_a_name_and_a_place_that_stays() -> None:
    """A relative path would be another directory for the next driver."""
    told = faults("value STRING", VERSION | {"txnAppId": "", "checkpointLocation": "notes"})
    assert [fault.split(":")[0] for fault in told] == ["txnAppId", "checkpointLocation"]


def test_a_stream_refuses_the_options_of_a_version() -> None:
    """Its id and its batches are Spark's; exactly once needs the checkpoint to be given."""
    told = faults("value STRING", VERSION, is_stream=True)
    assert [fault.split(":")[0] for fault in told] == ["txnAppId", "txnVersion"]
    options = BOOTSTRAP | {"topic": "t", "delivery": "exactly-once"}
    [fault] = faults("value STRING", options, is_stream=True)
    assert "option('checkpointLocation', …)" in fault


def test_older_notes_are_taken_with_a_count_that_an_error_has_named() -> None:
    """Anything else is refused, and so is a write without notes."""
    name = "acceptOlderCheckpoint"
    parsed = parse_sink(VERSION | {name: "1000:7"}, schema("value STRING"))
    assert parsed.accepted == (1000, 7)
    for given in ("", "true", "1000", "1000:-1", "1000:7:0"):
        [fault] = faults("value STRING", VERSION | {name: given})
        assert fault.startswith(f"{name}: {given!r} is not a count such as 1000:7")
    [fault] = faults("value STRING", BOOTSTRAP | {"topic": "t", name: "1000:7"})
    assert fault.startswith(f"{name}: only with option('checkpointLocation', …)")


def test_no_job_finds_the_transactions_of_another_one() -> None:
    """Ids have one length and no hyphen, so that none begins another one and a hyphen."""
    names = ["a", "a-", "a-0", "", "ü", "a" * 500]
    ids = [JobVersion(app_id=name, number=1, location="/").work_id for name in names]
    assert len(set(ids)) == len(names)
    assert {len(each) for each in ids} == {32}
    assert not any("-" in each for each in ids)
