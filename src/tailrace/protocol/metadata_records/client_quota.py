"""Records of type 14 of `__cluster_metadata`: quotas of users and clients."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityData:
    """A part of an entity."""

    entity_type: str = wire("string")
    """`user`, `client-id` or `ip`."""
    entity_name: str | None = wire("string", nullable_since=0)
    """Its name; None: the default for all that have no quota of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotaRecord:
    """One quota of one entity."""

    record_type: ClassVar[int] = 14
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    entity: tuple[EntityData, ...] = wire_array(EntityData)
    """The parts of the entity: a user, a client id, both, or an IP address."""
    key: str = wire("string")
    """The quota, such as `producer_byte_rate`."""
    value: float = wire("float64")
    """Its value."""
    remove: bool = wire("bool")
    """Whether it is removed."""
