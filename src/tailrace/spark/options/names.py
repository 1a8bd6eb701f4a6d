"""The names of options and columns: which do something, which cannot, and which are refused."""

from typing import Final

from tailrace.config import Setting
from tailrace.config.settings import INT64_MAX
from tailrace.records.schema import names_added_by
from tailrace.spark.planning import TASKS_MAX

COLUMNS = names_added_by(None)
"""The columns of Spark's Kafka source."""

HEADERS, METADATA = names_added_by("includeHeaders"), names_added_by("includeMetadata")
"""The columns that these options add."""

SELECTIONS = ("subscribe", "subscribePattern", "assign")
"""Which topics to read."""

LIMITS = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "maxTriggerDelay",
)
"""Options for the size of a stream's micro-batches."""

ENDINGS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
"""Options for the end of a batch query; a stream has no end."""

OPTIONS: Final = (
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
    Setting(
        name="kafka.bootstrap.servers",
        default="",
        text="Or brokers. Every setting of a client may be given with the prefix `kafka.`: "
        "`kafka.security.protocol`, `kafka.sasl.*`, `kafka.ssl.*`, "
        "`kafka.request.timeout.ms`, …",
    ),
    Setting(
        name="subscribe",
        default="",
        text="Topics: `a,b`.",
    ),
    Setting(
        name="subscribePattern",
        default="",
        text="A regular expression for the whole name, which Kafka's internal topics and "
        "metadata log never match.",
    ),
    Setting(
        name="assign",
        default="",
        text='Partitions: `{"a": [0, 1]}`.',
    ),
    Setting(
        name="startingOffsets",
        default="",
        text="`earliest`, the default of a batch; `latest`, the default of a stream; or "
        '`{"a": {"0": 23, "1": -2}, "b": "earliest"}`, where -2 is the earliest and -1 '
        "the latest.",
    ),
    Setting(
        name="startingTimestamp",
        default=0,
        low=0,
        high=INT64_MAX,
        text="ms since 1970, for all partitions. If given, it overrides the option by partition, "
        "and that overrides offsets.",
    ),
    Setting(
        name="startingOffsetsByTimestamp",
        default="",
        text='ms by partition: `{"a": {"0": 1700000000000}}`.',
    ),
    Setting(
        name="startingOffsetsByTimestampStrategy",
        default="error",
        choices=("error", "latest"),
        text="If no record is that new: an error, or the end of the log.",
    ),
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
    Setting(
        name="failOnDataLoss",
        default=True,
        text="`true`: deleted offsets fail the query. `false`: they are skipped, and no "
        "record comes twice.",
    ),
    Setting(
        name="onCorruption",
        default="fail",
        choices=("fail", "skip"),
        text="`fail` with file, position and offset; or `skip` to the next sound batch of a file.",
    ),
    Setting(
        name="corruptionReport",
        default="",
        text="The directory for what is skipped: a line of JSON for each piece.",
    ),
    Setting(
        name="minPartitions",
        default=1,
        low=1,
        high=TASKS_MAX,
        text="At least so many tasks.",
    ),
    Setting(
        name="maxRecordsPerPartition",
        default=INT64_MAX,
        low=1,
        high=INT64_MAX,
        text="Most records of a task.",
    ),
    Setting(
        name="maxBytesPerPartition",
        default=INT64_MAX,
        low=1,
        high=INT64_MAX,
        text="Most bytes of a task.",
    ),
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
        text="How long a micro-batch waits for `minOffsetsPerTrigger`: `15m`, `10s` or `500ms`.",
    ),
    Setting(
        name="kafka.isolation.level",
        default="read_uncommitted",
        choices=("read_uncommitted", "read_committed"),
        text="`read_committed` also from files, by their transaction indexes.",
    ),
)
"""Options that do something; those of the client of brokers come in addition."""

KNOWN = tuple(each.name for each in OPTIONS)

HARMLESS = frozenset(
    """
    groupidprefix kafka.group.id kafka.group.instance.id kafkaconsumer.polltimeoutms
    fetchoffset.numretries fetchoffset.retryintervalms
    kafka.max.poll.records kafka.max.poll.interval.ms kafka.session.timeout.ms
    kafka.heartbeat.interval.ms kafka.fetch.min.bytes kafka.fetch.max.bytes
    kafka.fetch.max.wait.ms kafka.max.partition.fetch.bytes kafka.receive.buffer.bytes
    kafka.send.buffer.bytes kafka.check.crcs kafka.client.dns.lookup kafka.client.rack
    kafka.default.api.timeout.ms kafka.metadata.max.age.ms
    kafka.allow.auto.create.topics kafka.partition.assignment.strategy
    """.split()  # noqa: SIM905 - forty quoted words are harder to read
)
"""Options that Spark's Kafka source has and that cannot change which rows come out here: there is
no consumer group, and the client has its own patience."""

REFUSED = {
    "kafka.auto.offset.reset": "say startingOffsets instead",
    "kafka.key.deserializer": "keys are binary columns; convert them in a select",
    "kafka.value.deserializer": "values are binary columns; convert them in a select",
    "kafka.enable.auto.commit": "the source commits no offsets",
    "kafka.interceptor.classes": "there is no Java consumer that could run them",
    "kafka.sasl.jaas.config": "say kafka.sasl.username and kafka.sasl.password instead",
    "kafka.ssl.truststore.password": "kafka.ssl.truststore.location is a PEM file, which has none",
    "kafka.ssl.keystore.password": "kafka.ssl.keystore.location is a PEM file, which has none",
}
"""Options that would change something, and what to do instead; all in lower case."""
