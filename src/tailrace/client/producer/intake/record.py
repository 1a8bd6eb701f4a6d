"""`ProducerRecord` and `Prepared`: a record before and after it is serialized."""

from typing import NamedTuple

from tailrace.values import dataclass

Header = tuple[str, bytes | None]


class ProducerRecord(NamedTuple):
    """A record before it is serialized, as interceptors get it."""

    topic: str
    value: object = None
    key: object = None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None
    """Milliseconds since 1970-01-01 UTC; None for the time of sending, -1 for no time."""
    partition: int | None = None
    """Number of the partition; with None the partitioner chooses it."""


@dataclass(slots=True)
class Prepared:
    """A serialized record that is not in a batch yet."""

    record: ProducerRecord
    key: bytes | None
    value: bytes | None
    headers: bytes
    """Encoded with their count; empty if there are none."""
    size: int
    """Bytes it takes in a batch, at most."""
