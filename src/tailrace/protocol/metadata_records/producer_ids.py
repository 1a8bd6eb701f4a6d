"""Records of type 15 of `__cluster_metadata`: blocks of producer ids."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord:
    """A block of ids for a broker; it ends before the next id."""

    record_type: ClassVar[int] = 15
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    broker_id: int = wire("int32")
    """The broker."""
    broker_epoch: int = wire("int64", default=-1)
    """Epoch of the broker's registration."""
    next_producer_id: int = wire("int64")
    """The first id that no broker has yet."""
