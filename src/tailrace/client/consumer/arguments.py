"""Arguments of a consumer's methods, in the forms that people write them.

Each function checks one argument before anything has changed, and raises an error that names it and
says what to give.

Invariant: a tuple of a topic and a number is one partition, never two.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import chain
from math import isnan
from typing import TypeGuard

from tailrace.client.consumer.errors import SubscriptionError
from tailrace.client.consumer.records import ConsumerRecord
from tailrace.client.consumer.subscription import Hook
from tailrace.client.group_offsets import OffsetAndMetadata
from tailrace.errors import kind_of
from tailrace.model import TopicPartition

Partitions = TopicPartition | tuple[str, int] | Iterable[TopicPartition | tuple[str, int]]
"""One partition or several; a tuple of a topic and a number is one."""

_FORM = "give TopicPartition(topic, number)"


def offsets_of(given: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets to commit: after a record, after each of several, or as they are given.

    Raises:
        TypeError: something else was given.
        ValueError: a number or a name is out of range.
    """
    if isinstance(given, Mapping):
        return {
            partition_of(place, "the partition of an offset"): offset_of(
                offset, what=f"the offset of {place!r}"
            )
            for place, offset in given.items()
        }
    if isinstance(given, ConsumerRecord):
        given = (given,)
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    is_several = isinstance(given, Iterable) and not isinstance(given, (str, bytes, TopicPartition))
    for each in given if is_several else (given,):  # type: ignore[attr-defined]
        if not isinstance(each, ConsumerRecord):
            raise TypeError(
                f"offsets is {kind_of(each)}, or has one; give a record, records, a mapping of "
                "partitions to offsets, or nothing for the positions"
            )
        before = found.get(each.topic_partition)
        # The order of the records does not matter: the offset after the last covers the others.
        if before is None or before.offset <= each.offset:
            found[each.topic_partition] = OffsetAndMetadata(each.offset + 1, each.leader_epoch)
    return found


def offset_of(offset: object, *, what: str) -> OffsetAndMetadata:
    """A number, or an `OffsetAndMetadata`.

    Raises:
        TypeError: something else was given.
    """
    if _is_int(offset):
        return OffsetAndMetadata(offset)
    # A plain tuple with the fields of an OffsetAndMetadata is one.
    if isinstance(offset, tuple) and 1 <= len(offset) <= 3 and all(map(_is_int, offset[:2])):
        found = OffsetAndMetadata(*offset)
        if found.metadata is None or isinstance(found.metadata, str):
            return found
    raise TypeError(
        f"{what} is {kind_of(offset)} ({offset!r}); give an int or OffsetAndMetadata(offset, "
        "leader_epoch, metadata)"
    )


def names_of(topics: object) -> frozenset[str]:
    """One topic or several.

    Raises:
        TypeError: something else was given.
        SubscriptionError: there is none, or one has no name.
    """
    # Bytes are an iterable of numbers, which nobody means.
    if isinstance(topics, (bytes, bytearray)) or not isinstance(topics, Iterable):
        raise TypeError(f"topics is {kind_of(topics)}; give the name of a topic, or several names")
    names = frozenset(
        topic_of(each, what="a topic")
        for each in ((topics,) if isinstance(topics, str) else topics)
    )
    if not names:
        raise SubscriptionError("subscribe needs a topic; unsubscribe reads nothing")
    return names


def topic_of(topic: object, *, what: str = "topic") -> str:
    """The name of a topic.

    Raises:
        TypeError: it is no text.
        SubscriptionError: it is empty.
    """
    if not isinstance(topic, str):
        raise TypeError(f"{what} is {kind_of(topic)} ({topic!r}); give its name as a str")
    if not topic:
        raise SubscriptionError(f"{what} is an empty str; give its name")
    return str(topic)


def pattern_of(pattern: object, *, is_of_broker: bool) -> "re.Pattern[str] | str":
    """A regular expression; the text of one for the broker, which matches it, is not compiled.

    Raises:
        TypeError: something else was given.
        SubscriptionError: it is empty, or no regular expression.
    """
    text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    if not isinstance(text, str):
        raise TypeError(
            f"pattern is {kind_of(pattern)} of {kind_of(text)}; give a regular expression as a str"
            if isinstance(pattern, re.Pattern)
            else f"pattern is {kind_of(pattern)}; give a regular expression as a str"
        )
    if not text:
        raise SubscriptionError("pattern is empty and matches no topic; give a regular expression")
    # The broker has RE2, which is not the syntax of `re`; it refuses what it does not understand
    # (INVALID_REGULAR_EXPRESSION).
    if isinstance(pattern, re.Pattern) or is_of_broker:
        return pattern  # type: ignore[return-value]
    try:
        re.compile(text)
    except re.error as error:
        raise SubscriptionError(
            f"pattern {text!r} is no regular expression of Python's re: {error}"
        ) from error
    return text


def hook_of(hook: Hook | None, name: str) -> Hook | None:
    """A hook of `subscribe`.

    Raises:
        TypeError: it cannot be called.
    """
    if hook is not None and not callable(hook):
        raise TypeError(f"{name} is {kind_of(hook)}; give a function of a list of partitions")
    return hook


def timeout_of(timeout: float) -> float:
    """Seconds.

    Raises:
        TypeError: it is no number.
        ValueError: it is not a number by its value.
    """
    if not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout is {kind_of(timeout)} ({timeout!r}); give seconds as a number")
    # Each comparison with nan is false, so a wait for this deadline would never end.
    if isnan(timeout):
        raise ValueError("timeout is not a number (nan); give seconds, or None")
    return timeout


def partitions_of(given: object, what: str = "partitions") -> tuple[TopicPartition, ...]:
    """One partition or several, each once.

    Raises:
        TypeError: something else was given.
        ValueError: a number is negative, or a topic has no name.
    """
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise TypeError(f"{what} is {kind_of(given)} ({given!r}); {_FORM}, or several")
    if _is_partition(given):
        # Else ("orders", 0) would be taken for two partitions.
        return (partition_of(given, what),)
    return tuple(dict.fromkeys(partition_of(each, f"one of {what}") for each in given))


def partition_of(given: object, what: str = "partition") -> TopicPartition:
    """One partition.

    Raises:
        TypeError: something else was given.
        ValueError: its number is negative, or the topic has no name.
    """
    if not _is_partition(given):
        raise TypeError(f"{what} is {kind_of(given)} ({given!r}); {_FORM}")
    found = TopicPartition(*given)
    if found.partition < 0 or not found.topic:
        raise ValueError(
            f"{what} is {given!r}; a topic has a name, and partitions are counted from 0"
        )
    return found


def all_partitions(given: tuple[Partitions, ...]) -> tuple[TopicPartition, ...]:
    """The partitions of several arguments, each once."""
    return tuple(dict.fromkeys(chain.from_iterable(map(partitions_of, given))))


def _is_int(given: object) -> TypeGuard[int]:
    # True is an int for Python, and a mistake as an offset.
    return isinstance(given, int) and not isinstance(given, bool)


def _is_partition(given: object) -> TypeGuard[tuple[str, int]]:
    return (
        isinstance(given, tuple)
        and len(given) == 2
        and isinstance(given[0], str)
        and _is_int(given[1])
    )
