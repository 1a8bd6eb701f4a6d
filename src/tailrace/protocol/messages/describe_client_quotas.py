"""DescribeClientQuotas (48): the quotas of users, clients and addresses (KIP-546).

v1   flexible
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentData:
    """A condition on one part of an entity."""

    entity_type: str = wire("string")
    """`user`, `client-id` or `ip`."""
    match_type: int = wire("int8")
    """0: the name, 1: the default, 2: any name."""
    match: str | None = wire("string", nullable_since=0)
    """The name; None: match type 1 or 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClientQuotasRequest:
    """Show the quotas of the entities that match."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 1
    flexible_since: ClassVar[int] = 1

    components: tuple[ComponentData, ...] = wire_array(ComponentData)
    """The conditions."""
    strict: bool = wire("bool")
    """Whether entities with further parts are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityData:
    """A part of an entity."""

    entity_type: str = wire("string")
    """`user`, `client-id` or `ip`."""
    entity_name: str | None = wire("string", nullable_since=0)
    """Its name; None: the default of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueData:
    """One quota."""

    key: str = wire("string")
    """Its name, as `producer_byte_rate`."""
    value: float = wire("float64")
    """Its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryData:
    """An entity and its quotas."""

    entity: tuple[EntityData, ...] = wire_array(EntityData)
    """The parts of the entity."""
    values: tuple[ValueData, ...] = wire_array(ValueData)
    """Its quotas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClientQuotasResponse:
    """The entities that match."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 1
    flexible_since: ClassVar[int] = 1

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16")
    """0, or the code of the error."""
    error_message: str | None = wire("string", nullable_since=0)
    """The error message, or None."""
    entries: tuple[EntryData, ...] | None = wire_array(EntryData, nullable_since=0)
    """The entities; None on an error."""
