"""`violations`: what a log breaks of the promises that its producers have made.

    acknowledged    at the offset that the receipt names, where it names one, and there once
    failed          once at most, since nobody may know
    never sent      not there
    transactions    all of their records or none; all if committed, none if aborted
    order           records of one producer in one partition, as they were sent

Not here: how records come to be sent (`load`), and how the log is read (`run`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class End(Enum):
    """Outcome of a record as its producer reported it."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    NEVER_SENT = "never sent"
    NOT_ENDED = "without an outcome"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A record and what became of it, as its producer tells."""

    producer: str
    number: int
    end: End
    partition: int = -1
    offset: int = -1
    """-1 where the producer does not know it."""
    transaction: int = -1
    """Number of the transaction of its producer, from 0; -1: none."""


class Found(NamedTuple):
    """A record in the log."""

    offset: int
    value: bytes


def value_of(producer: str, number: int, size: int) -> bytes:
    """The value of a record, which names it."""
    return f"{producer}:{number}:".encode().ljust(size, b".")


def name_of(value: bytes) -> tuple[str, int]:
    """Which record has this value."""
    producer, number, _ = value.split(b":", 2)
    return producer.decode(), int(number)


def violations(told: Sequence[Told], log: Mapping[int, Sequence[Found]]) -> list[str]:
    """A sentence for each promise that was broken; none if all is well."""
    copies = Counter(name_of(each.value) for part in log.values() for each in part)
    return [
        *_doubled(copies),
        *_lost(told, log, copies),
        *_torn(told, copies),
        *_disordered(log),
    ]


def _doubled(copies: Mapping[tuple[str, int], int]) -> Iterable[str]:
    for name, count in copies.items():
        if count > 1:
            yield f"{name} is there {count} times"


def _lost(
    told: Sequence[Told],
    log: Mapping[int, Sequence[Found]],
    copies: Mapping[tuple[str, int], int],
) -> Iterable[str]:
    at = {
        (partition, each.offset): name_of(each.value)
        for partition, part in log.items()
        for each in part
    }
    known = {(each.producer, each.number) for each in told}
    for name in copies.keys() - known:
        yield f"{name} is there, and nobody sent it"
    for each in told:
        name = each.producer, each.number
        if each.end is End.NOT_ENDED:
            yield f"{name} has no outcome"
        if each.end is End.NEVER_SENT and name in copies:
            yield f"{name} was said not to be sent, and is there"
        if each.end is not End.ACKNOWLEDGED:
            continue
        if name not in copies:
            yield f"{name} was acknowledged, and is not there"
        elif each.offset >= 0 and at.get((each.partition, each.offset)) != name:
            yield f"{name} is not at offset {each.offset} of partition {each.partition}"


def _torn(told: Sequence[Told], copies: Mapping[tuple[str, int], int]) -> Iterable[str]:
    """Transactions that are there in part."""
    seen: dict[tuple[str, int], set[bool]] = defaultdict(set)
    for each in told:
        if each.transaction >= 0:
            is_there = (each.producer, each.number) in copies
            seen[each.producer, each.transaction].add(is_there)
    for name, kinds in seen.items():
        if len(kinds) > 1:
            yield f"transaction {name} is there in part"


def _disordered(log: Mapping[int, Sequence[Found]]) -> Iterable[str]:
    for partition, part in log.items():
        last: dict[str, int] = {}
        for each in part:
            producer, number = name_of(each.value)
            if number < last.get(producer, -1):
                yield (
                    f"{producer, number} stands after {last[producer]} at offset {each.offset} of "
                    f"partition {partition}"
                )
            last[producer] = max(number, last.get(producer, -1))
