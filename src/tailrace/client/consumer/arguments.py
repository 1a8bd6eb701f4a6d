"""Arguments of a consumer's methods, in the forms that people write them.

Invariant: a tuple of a topic and a number is one partition, never two.
"""

from collections.abc import Iterable, Mapping
from itertools import chain

from tailrace.client.consumer.records import ConsumerRecord
from tailrace.client.producer.transactions.requests import OffsetAndMetadata
from tailrace.errors import kind_of
from tailrace.model import TopicPartition

Partitions = TopicPartition | tuple[str, int] | Iterable[TopicPartition | tuple[str, int]]
"""One partition or several; a tuple of a topic and a number is one."""


def offsets_of(given: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets to commit: after a record, after each of several, or as they are given.

    Raises:
        TypeError: something else was given.
    """
    if isinstance(given, ConsumerRecord):
        given = (given,)
    if isinstance(given, Mapping):
        found = {}
        for place, offset in given.items():
            [partition] = partitions_of(place)
            if isinstance(offset, int):
                found[partition] = OffsetAndMetadata(offset)
            else:
                found[partition] = OffsetAndMetadata(*offset)
        return found
    found = {}
    for each in given if isinstance(given, Iterable) else (given,):
        if not isinstance(each, ConsumerRecord):
            raise TypeError(
                f"commit got {kind_of(each)}; give a record, records, a mapping of partitions to "
                "offsets, or nothing for the positions"
            )
        before = found.get(each.topic_partition)
        if before is None or before.offset <= each.offset:
            found[each.topic_partition] = OffsetAndMetadata(each.offset + 1, each.leader_epoch)
    return found


def names_of(topics: str | Iterable[str]) -> frozenset[str]:
    """One topic or several.

    Raises:
        TypeError: something else was given.
    """
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    for each in names:
        if not isinstance(each, str):
            raise TypeError(f"a topic is {kind_of(each)}; it must be a str")
    return frozenset(map(str, names))


def partitions_of(given: Partitions) -> tuple[TopicPartition, ...]:
    """One partition or several, each once.

    Raises:
        TypeError: something else was given.
    """
    if isinstance(given, str):
        raise TypeError(f"{given!r} is a str; give TopicPartition(topic, number)")
    if _is_partition(given):
        return (TopicPartition(*given),)
    found: dict[TopicPartition, None] = {}
    for each in given:
        if not _is_partition(each):
            raise TypeError(f"{each!r} is no partition; give TopicPartition(topic, number)")
        found[TopicPartition(*each)] = None  # type: ignore[misc]
    return tuple(found)


def partition_of(given: object) -> TopicPartition:
    """One partition.

    Raises:
        TypeError: something else was given.
    """
    if not _is_partition(given):
        raise TypeError(f"{given!r} is no partition; give TopicPartition(topic, number)")
    return TopicPartition(*given)  # type: ignore[misc]


def all_partitions(given: tuple[Partitions, ...]) -> tuple[TopicPartition, ...]:
    """The partitions of several arguments, each once."""
    return tuple(dict.fromkeys(chain.from_iterable(map(partitions_of, given))))


def _is_partition(given: object) -> bool:
    return (
        isinstance(given, tuple)
        and len(given) == 2
        and isinstance(given[0], str)
        and isinstance(given[1], int)
    )
