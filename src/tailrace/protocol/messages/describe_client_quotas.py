"""DescribeClientQuotas (48): the quotas of users, clients and addresses (KIP-546).

v1   flexible
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentData:
    """A condition on one part of an entity."""

    entity_type: str = wire("string")  # `user`, `client-id` or `ip`.
    match_type: int = wire("int8")  # 0: the name, 1: the default, 2: any name.
    match: str | None = wire("string", nullable_since=0)  # The name; None: match type 1 or 2.


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClientQuotasRequest:
    first_version, last_version, flexible_since = 0, 1, 1
    components: tuple[ComponentData, ...] = wire_array(ComponentData)
    strict: bool = wire("bool")  # Whether entities with further parts are left out.


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityData:
    entity_type: str = wire("string")  # `user`, `client-id` or `ip`.
    # Its name; None: the default of all.
    entity_name: str | None = wire("string", nullable_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueData:
    key: str = wire("string")  # Its name, as `producer_byte_rate`.
    value: float = wire("float64")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryData:
    entity: tuple[EntityData, ...] = wire_array(EntityData)
    values: tuple[ValueData, ...] = wire_array(ValueData)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClientQuotasResponse:
    first_version, last_version, flexible_since = 0, 1, 1
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)
    # The entities; None on an error.
    entries: tuple[EntryData, ...] | None = wire_array(EntryData, nullable_since=0)
