"""AlterClientQuotas (49): sets and removes quotas of users, clients and addresses (KIP-546).

v1   flexible
"""

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
    """Its name; None: the default of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpData:
    """A change to one quota."""

    key: str = wire("string")
    """The quota, as `producer_byte_rate`."""
    value: float = wire("float64")
    """Its new value, unless it is removed."""
    remove: bool = wire("bool")
    """Whether it is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryData:
    """An entity and the changes to its quotas."""

    entity: tuple[EntityData, ...] = wire_array(EntityData)
    """The parts of the entity."""
    ops: tuple[OpData, ...] = wire_array(OpData)
    """The changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotasRequest:
    """Change the quotas of these entities."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 1
    flexible_since: ClassVar[int] = 1

    entries: tuple[EntryData, ...] = wire_array(EntryData)
    """The entities."""
    validate_only: bool = wire("bool")
    """Whether to check the request and change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotasResponseEntryData:
    """The result for one entity."""

    error_code: int = wire("int16")
    """0, or the code of the error."""
    error_message: str | None = wire("string", nullable_since=0)
    """The error message, or None."""
    entity: tuple[EntityData, ...] = wire_array(EntityData)
    """The parts of the entity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotasResponse:
    """The results."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 1
    flexible_since: ClassVar[int] = 1

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    entries: tuple[AlterClientQuotasResponseEntryData, ...] = wire_array(
        AlterClientQuotasResponseEntryData
    )
    """The results, by entity."""
