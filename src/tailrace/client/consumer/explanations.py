"""Texts for timeout errors: what was waited for, and the last failure of a connection."""

from tailrace.client.consumer.metadata import ConsumerMetadata
from tailrace.client.nodes import ConnectionPool


def describe_wait(
    metadata: ConsumerMetadata, nodes: ConnectionPool, topic: str, *, partition: int | None = None
) -> str:
    """Why a topic or a partition cannot be used yet."""
    known = metadata.topics.get(topic)
    if known is None:
        reason = f"no metadata of topic {topic} came from {_addresses(metadata)}"
    elif known.error:
        reason = f"topic {topic}: {known.reason}"
    elif partition is not None and partition >= len(known.leaders):
        reason = f"topic {topic} has {len(known.leaders)} partitions, numbered from 0"
    else:
        reason = f"topic {topic} has partitions without a leader"
    return reason + _last_failure(metadata, nodes)


def describe_silence(metadata: ConsumerMetadata, nodes: ConnectionPool) -> str:
    """Why no broker has answered, as far as that is known."""
    return f"no answer from {_addresses(metadata)}{_last_failure(metadata, nodes)}"


def _addresses(metadata: ConsumerMetadata) -> str:
    return ", ".join(f"{each.host}:{each.port}" for each in metadata.nodes)


def _last_failure(metadata: ConsumerMetadata, nodes: ConnectionPool) -> str:
    failure = nodes.failure_of_any(metadata.nodes) or metadata.failure
    return "" if failure is None else f"; the last failure: {failure}"
