"""The names of options and columns: which do something, which cannot, and which are refused."""

from tailrace.records.schema import names_added_by
from tailrace.spark.options.values import OPTIONS

COLUMNS = names_added_by(None)
"""The columns of Spark's Kafka source."""

HEADERS, METADATA = names_added_by("includeHeaders"), names_added_by("includeMetadata")
"""The columns that these options add."""

ERRORS = {"key": "keyError", "value": "valueError"}
"""The columns that say why a key or value could not be decoded, where they are decoded."""

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

KNOWN = tuple(each.name for each in OPTIONS)

# In lower case: Spark takes the names of options in any case.
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
    kafka.auto.commit.interval.ms kafka.auto.include.jmx.reporter kafka.enable.metrics.push
    kafka.exclude.internal.topics kafka.group.protocol kafka.group.remote.assignor
    kafka.metadata.recovery.rebootstrap.trigger.ms kafka.metadata.recovery.strategy
    kafka.metric.reporters kafka.metrics.num.samples kafka.metrics.recording.level
    kafka.metrics.sample.window.ms
    """.split()  # noqa: SIM905 - forty quoted words are harder to read
)
"""Options that Spark's Kafka source has and that cannot change which rows come out here: there is
no consumer group, the client has its own patience, and its numbers are not Java's."""

REFUSED = {
    "kafka.auto.offset.reset": "say startingOffsets instead",
    "kafka.key.deserializer": "say keyFormat, or convert the binary column in a select",
    "kafka.value.deserializer": "say valueFormat, or convert the binary column in a select",
    "kafka.enable.auto.commit": "the source commits no offsets",
    "kafka.interceptor.classes": "there is no Java consumer that could run them",
}
"""Options that would change something, and what to do instead; all in lower case."""
