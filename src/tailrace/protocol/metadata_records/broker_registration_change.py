"""Records of type 17 of `__cluster_metadata`: a part of a broker's registration changes.

v1   controlled shutdown    v2   log directories (KIP-858)
                            v3   cordoned log directories (KIP-1066)
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar
from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecord:
    """Changes of a registration."""

    record_type: ClassVar[int] = 17
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 3
    flexible_since: ClassVar[int] = 0

    broker_id: int = wire("int32")
    """The broker."""
    broker_epoch: int = wire("int64")
    """Epoch of the broker's registration."""
    fenced: int = wire("int8", tag=0)
    """1: it is fenced, -1: it is not fenced any more, 0: no change."""
    in_controlled_shutdown: int = wire("int8", since=1, tag=1)
    """1: it hands its partitions over, 0: no change."""
    log_dirs: tuple[UUID, ...] = wire_array("uuid", since=2, tag=2)
    """Ids of its log directories that are online; empty: no change."""
    cordoned_log_dirs: tuple[UUID, ...] | None = wire_array(
        "uuid", since=3, nullable_since=3, tag=3, default=None
    )
    """Ids of the directories that get no new partitions; None: no change."""
