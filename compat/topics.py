"""The topics of the proof, the same on both sides; those of `TOPICS` have one partition.

Segments are small, so that a few hundred records make several. Kafka has a lower limit for that
setting, and a name without one for its tests (`internal.segment.bytes`), as our broker has.
"""

from collections.abc import Mapping

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

SMALL: Mapping[str, str] = {
    "internal.segment.bytes": "16384",
    "segment.index.bytes": "65536",
    "index.interval.bytes": "512",
    # The records have timestamps of a year that has gone by.
    "retention.ms": "-1",
}
_COMPACTED = {
    **SMALL,
    "internal.segment.bytes": "4096",
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
}

TOPICS: Mapping[str, Mapping[str, str]] = {
    **{f"codec-{codec}": SMALL for codec in CODECS},
    "stamped": {**SMALL, "message.timestamp.type": "LogAppendTime"},
    "idempotent": SMALL,
    "transactions": {**SMALL, "internal.segment.bytes": "4096"},
    "compacted": {**_COMPACTED, "delete.retention.ms": "1"},
    "tombstones": {**_COMPACTED, "delete.retention.ms": "86400000"},
    "compacted-transactions": {**_COMPACTED, "delete.retention.ms": "1"},
    "dirty": {**_COMPACTED, "min.cleanable.dirty.ratio": "1.0"},
    "dirty-transactions": {**_COMPACTED, "min.cleanable.dirty.ratio": "1.0"},
    "deleted": SMALL,
    "torn": SMALL,
    "aged": SMALL,
}
"""Settings by topic, under Kafka's names."""


PLACED: Mapping[str, Mapping[str, str]] = dict.fromkeys(("placed-1", "placed-2"), SMALL)
"""With several partitions, over several directories."""

LATER: Mapping[str, Mapping[str, str]] = {"placed-later": SMALL}
"""Created when there is a directory more than at first."""


def create_topics(
    bootstrap_servers: str,
    topics: Mapping[str, Mapping[str, str]] = TOPICS,
    *,
    partition_count: int = 1,
) -> None:
    """Create all of them.

    Raises:
        KafkaException: it refused one.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    wanted = [
        # With as many replicas as the broker makes by default: a node alone one, a cluster three.
        NewTopic(name, num_partitions=partition_count, config=dict(settings))
        for name, settings in topics.items()
    ]
    for future in admin.create_topics(wanted).values():
        future.result()


def configure(bootstrap_servers: str, topics: Mapping[str, Mapping[str, str]]) -> None:
    """Set some settings of topics, under the names that the broker has for them.

    A compacted topic also loses the infinite `min.compaction.lag.ms` with which we adopt one.

    Raises:
        KafkaException: it refused one.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    resources = [
        ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in settings.items()
            ]
            + (_ADOPTED if settings.get("cleanup.policy") == "compact" else []),
        )
        for topic, settings in topics.items()
    ]
    for future in admin.incremental_alter_configs(resources).values():
        future.result()


_ADOPTED = [
    ConfigEntry("min.compaction.lag.ms", "", incremental_operation=AlterConfigOpType.DELETE)
]
