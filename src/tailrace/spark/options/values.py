"""The options of the source, declared by the fields of the frozen value that has them."""

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from tailrace.config import Setting, setting, settings_of
from tailrace.config.settings import INT32_MAX, INT64_MAX, settings_together
from tailrace.model import IsolationLevel, TopicPartition
from tailrace.schemas.deserializers import ValueFormat
from tailrace.schemas.formats import FORMATS
from tailrace.spark.planning import TASKS_MAX
from tailrace.values import dataclass

# As Spark declares it, so that queries of Spark's source keep their pace.
DELAY_MS_DEFAULT = 900_000
"""`maxTriggerDelay` of Spark's Kafka source: fifteen minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Limits for the size of a micro-batch; None is no limit."""

    offsets_max: int | None = None
    """`maxOffsetsPerTrigger`: at most that many offsets, over all partitions."""
    offsets_min: int | None = None
    """`minOffsetsPerTrigger`: wait until there are that many, or the delay is over."""
    bytes_max: int | None = None
    """`maxBytesPerTrigger`: about that many bytes of log, over all partitions."""
    trigger_delay_ms: int = DELAY_MS_DEFAULT
    """`maxTriggerDelay`: longest wait for `offsets_min`."""

    @property
    def is_any(self) -> bool:
        """Whether there is a limit at all."""
        limits = (self.offsets_max, self.offsets_min, self.bytes_max)
        return any(limit is not None for limit in limits)


class PointKind(Enum):
    """Ways to name a point in a partition's log."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"


class Point(NamedTuple):
    """A position in a partition's log where a range begins or ends."""

    kind: PointKind
    value: int = 0
    """The offset, or the timestamp in milliseconds; 0 for the two ends."""


EARLIEST = Point(PointKind.EARLIEST)
LATEST = Point(PointKind.LATEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One end of what is read, for every partition."""

    option: str
    """The option that says so, for messages."""
    everywhere: Point | None = None
    """The same for all partitions; None: `of_partition` and `of_topic` name each."""
    of_partition: Mapping[TopicPartition, Point] = field(default_factory=dict)
    of_topic: Mapping[str, Point] = field(default_factory=dict)

    def point_or_none(self, partition: TopicPartition) -> Point | None:
        """The point of a partition, or None if the option forgot it."""
        # A point is a tuple with two fields, so it is true for offset 0 too.
        # An option may have both, and then a partition's own point goes before its topic's.
        return (
            self.everywhere
            or self.of_partition.get(partition)
            or self.of_topic.get(partition.topic)
        )


class Topics(NamedTuple):
    """Option `subscribe`: all partitions of these topics."""

    names: tuple[str, ...]


class Pattern(NamedTuple):
    """Option `subscribePattern`: all partitions of the topics with a match in their names."""

    expression: str


class Partitions(NamedTuple):
    """Option `assign`: these partitions."""

    partitions: tuple[TopicPartition, ...]


Selection: TypeAlias = Topics | Pattern | Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFormat:
    """The format of `key` or `value`."""

    form: ValueFormat
    schema_file: str | None
    subject: str | None
    """The subject with the schema; None: that of the one topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingOptions:
    """The formats of keys and values that become typed columns."""

    formats: Mapping[str, ColumnFormat]
    """By the name of the column; one that is missing is binary."""
    # Sent to the tasks, where values name schemas that nobody knew of at the plan.
    registry: Mapping[str, str] | None = field(repr=False)
    """Settings of the registry; there may be a password among them."""
    is_strict: bool
    """Whether a value that cannot be decoded fails the query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The logs to read and the range to read of them."""

    directories: tuple[str, ...] = settings_together(
        Setting(
            name="path",
            default="",
            text="A data directory of Kafka or Tailrace: a local path, or any URI that pyarrow's "
            "file systems open: `s3://…`, `gs://…`, `hdfs://…`.",
        ),
        Setting(
            name="paths",
            default="",
            text='Several of them, as a JSON list; `load(["a", "b"])` gives it too.',
        ),
    )
    """Paths or URIs of data directories; none: there is a broker."""
    bootstrap: str | None = setting(
        "kafka.bootstrap.servers",
        default="",
        convert=lambda text: text or None,
        text="Or brokers. Every setting of a client may be given with the prefix `kafka.`: "
        "`kafka.security.protocol`, `kafka.sasl.*`, `kafka.ssl.*`, "
        "`kafka.request.timeout.ms`, …",
    )
    selection: Selection = settings_together(
        Setting(
            name="subscribe",
            default="",
            text="Topics: `a,b`.",
        ),
        # By Java's rules, for which users of Spark's source have written it; see `topic_pattern`.
        Setting(
            name="subscribePattern",
            default="",
            text="A regular expression of Java that is found in the name, as Spark's connector "
            "searches it: `tx` takes `txx` too, and `^tx$` does not. Kafka's internal topics and "
            "metadata log are never taken.",
        ),
        Setting(
            name="assign",
            default="",
            text='Partitions: `{"a": [0, 1]}`.',
        ),
    )
    starting: Bound = settings_together(
        Setting(
            name="startingOffsets",
            default="",
            text="`earliest`, the default of a batch; `latest`, the default of a stream; or "
            '`{"a": {"0": 23, "1": -2}, "b": "earliest"}`, where -2 is the earliest and -1 '
            "the latest.",
        ),
        # Its default is never used: `parse_bound` asks which of the three are given.
        Setting(
            name="startingTimestamp",
            default=0,
            low=0,
            high=INT64_MAX,
            text="ms since 1970, for all partitions. If given, it overrides the option by "
            "partition, and that overrides offsets.",
        ),
        Setting(
            name="startingOffsetsByTimestamp",
            default="",
            text='ms by partition: `{"a": {"0": 1700000000000}}`.',
        ),
    )
    starts_at_latest: bool = setting(
        "startingOffsetsByTimestampStrategy",
        default="error",
        choices=("error", "latest"),
        convert=lambda text: text == "latest",
        text="If no record is that new: an error, or the end of the log.",
    )
    ending: Bound = settings_together(
        Setting(
            name="endingOffsets",
            default="",
            text="As `startingOffsets`; `latest` by default. A stream has no end.",
        ),
        Setting(
            name="endingTimestamp",
            default=0,
            low=0,
            high=INT64_MAX,
            text="As `startingTimestamp`.",
        ),
        Setting(
            name="endingOffsetsByTimestamp",
            default="",
            text="As `startingOffsetsByTimestamp`.",
        ),
    )
    columns: tuple[str, ...] = settings_together(
        Setting(
            name="columns",
            default="",
            text="`offset,value`: only these, in this order; other columns are not decoded.",
        ),
        Setting(
            name="includeHeaders",
            default=False,
            text="Adds the column `headers`.",
        ),
        Setting(
            name="includeMetadata",
            default=False,
            text="Adds the columns of metadata; see below.",
        ),
    )
    """The declared schema, in its order."""
    fails_on_data_loss: bool = setting(
        "failOnDataLoss",
        default=True,
        text="`true`: deleted offsets fail the query. `false`: they are skipped, and no "
        "record comes twice.",
    )
    # Not `kafka.group.id`, which Spark's source has too: that one names the group of its consumers,
    # and nothing is ever committed to it.
    group_id: str | None = setting(
        "groupId",
        default="",
        convert=lambda text: text or None,
        text="A stream commits the offsets of each batch to this consumer group, where tools see "
        "its lag; with `delivery` `exactly-once` in the sink, in the transaction of the rows. The "
        "checkpoint alone says where the stream continues. A batch commits none.",
    )
    corruption_report: str | None = settings_together(
        Setting(
            name="onCorruption",
            default="fail",
            choices=("fail", "skip"),
            text="`fail` with file, position and offset; or `skip` to the next sound batch of a "
            "file.",
        ),
        Setting(
            name="corruptionReport",
            default="",
            text="The directory for what is skipped: a line of JSON for each piece.",
        ),
    )
    """The directory that gets a list of what is damaged and left out; None: damage is an error."""
    # Spark's name. There it is a wish; here it is a floor, and by their bytes there may be more.
    task_count_min: int = setting(
        "minPartitions",
        default=1,
        low=1,
        high=TASKS_MAX,
        text="At least that many tasks.",
    )
    task_records_max: int = setting(
        "maxRecordsPerPartition",
        default=INT64_MAX,
        low=1,
        high=INT64_MAX,
        text="Most records of a task.",
    )
    task_bytes_max: int = setting(
        "maxBytesPerPartition",
        default=INT64_MAX,
        low=1,
        high=INT64_MAX,
        text="Most bytes of a task.",
    )
    # 0 and not 128 MiB: the variable is that of each executor, which the driver does not know.
    decompressed_bytes_max: int | None = setting(
        "maxDecompressedBatchBytes",
        default=0,
        low=0,
        high=INT32_MAX,
        convert=lambda number: number or None,
        text="Most bytes that a batch may decompress to, which a task then has in memory; a larger "
        "one fails the query. 0: what the variable `TAILRACE_DECOMPRESSED_BATCH_BYTES_MAX` of the "
        "executors says, or 128 MiB.",
    )
    decoding: DecodingOptions = settings_together(
        Setting(
            name="keyFormat",
            default="",
            choices=tuple(FORMATS),
            text="Decodes keys: the column `key` has the types of a schema; see "
            "[schemas.md](schemas.md).",
        ),
        Setting(
            name="valueFormat", default="", choices=tuple(FORMATS), text="Decodes values, likewise."
        ),
        Setting(
            name="schemaRegistry",
            default="",
            text="URLs of a schema registry. Its other settings may be given with the prefix "
            "`schemaRegistry.`: `schemaRegistry.basic.auth.user.info`, …",
        ),
        Setting(
            name="keySchemaFile",
            default="",
            text="The schema that keys are read with, a file on the driver: `.avsc`, `.json`, "
            "`.proto`, or `FILE.proto:MESSAGE`.",
        ),
        Setting(name="schemaFile", default="", text="The schema of values, likewise."),
        Setting(
            name="keySubject",
            default="",
            text="The subject whose latest schema gives the types of keys; `TOPIC-key` if one "
            "topic is read.",
        ),
        Setting(name="valueSubject", default="", text="That of values, likewise; `TOPIC-value`."),
        # Named as in Spark's `from_json`; so are its values.
        Setting(
            name="mode",
            default="permissive",
            choices=("permissive", "failfast"),
            text="What cannot be decoded is null, and `keyError` or `valueError` says why; or "
            "fails the query.",
        ),
    )
    """The formats of keys and values that become typed columns."""
    limits: RateLimits = settings_together(
        # Defaults of numbers are for the table; `RateLimits` has None where an option is not given.
        Setting(
            name="maxOffsetsPerTrigger",
            default=INT64_MAX,
            low=1,
            high=INT64_MAX,
            text="Most offsets in a micro-batch; see below.",
        ),
        Setting(
            name="minOffsetsPerTrigger",
            default=1,
            low=1,
            high=INT64_MAX,
            text="Offsets that a micro-batch waits for.",
        ),
        Setting(
            name="maxBytesPerTrigger",
            default=INT64_MAX,
            low=1,
            high=INT64_MAX,
            text="Most bytes in a micro-batch.",
        ),
        Setting(
            name="maxTriggerDelay",
            default="15m",
            text="How long a micro-batch waits for `minOffsetsPerTrigger`: `15m`, `10s` or "
            "`500ms`.",
        ),
    )
    """Limits of a stream's micro-batches; a batch has none."""
    isolation: IsolationLevel = setting(
        "kafka.isolation.level",
        default="read_uncommitted",
        choices=("read_uncommitted", "read_committed"),
        convert=lambda text: IsolationLevel[text.upper()],
        text="`read_committed` also from files, by their transaction indexes.",
    )
    client_settings: Mapping[str, str] = field(repr=False)
    """Settings of the client of brokers by Kafka's names; there may be a password among them."""


OPTIONS: Final = settings_of(SourceOptions)
"""Options that do something; those of the client of brokers come in addition."""
