"""Records of type 1 of `__cluster_metadata`: a broker is no part of the cluster any more."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRecord:
    """The end of a broker's registration."""

    record_type: ClassVar[int] = 1
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    broker_id: int = wire("int32")
    """The broker."""
    broker_epoch: int = wire("int64")
    """Epoch of the broker's registration."""
