"""The topics of the proof, the same on both sides, each of one partition.

Segments are small, so that a few hundred records make several. Kafka has a lower limit for that
setting, and a name of its own without one for its tests (`internal.segment.bytes`).
"""

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient, NewTopic

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_SMALL = {
    "segment.bytes": "16384",
    "segment.index.bytes": "65536",
    "index.interval.bytes": "512",
    # The records have timestamps of a year that has gone by.
    "retention.ms": "-1",
}
_COMPACTED = {
    **_SMALL,
    "segment.bytes": "4096",
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
}

TOPICS: Mapping[str, Mapping[str, str]] = {
    **{f"codec-{codec}": _SMALL for codec in CODECS},
    "stamped": {**_SMALL, "message.timestamp.type": "LogAppendTime"},
    "idempotent": _SMALL,
    "transactions": {**_SMALL, "segment.bytes": "4096"},
    "compacted": {**_COMPACTED, "delete.retention.ms": "1"},
    "tombstones": {**_COMPACTED, "delete.retention.ms": "86400000"},
    "compacted-transactions": {**_COMPACTED, "delete.retention.ms": "1"},
    "dirty": {**_COMPACTED, "min.cleanable.dirty.ratio": "1.0"},
    "dirty-transactions": {**_COMPACTED, "min.cleanable.dirty.ratio": "1.0"},
    "deleted": _SMALL,
    "torn": _SMALL,
}
"""Settings by topic, under Kafka's names."""


def create_topics(bootstrap_servers: str) -> None:
    """Create all of them in a Kafka.

    Raises:
        KafkaException: it refused one.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    wanted = [
        NewTopic(name, num_partitions=1, replication_factor=1, config=_for_kafka(settings))
        for name, settings in TOPICS.items()
    ]
    for future in admin.create_topics(wanted).values():
        future.result()


def _for_kafka(settings: Mapping[str, str]) -> dict[str, str]:
    return {
        "internal.segment.bytes" if name == "segment.bytes" else name: value
        for name, value in settings.items()
    }
