"""AlterClientQuotas (49): sets and removes quotas of users, clients and addresses (KIP-546).

v1   flexible
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityData:
    entity_type: str = wire("string")  # `user`, `client-id` or `ip`.
    # Its name; None: the default of all.
    entity_name: str | None = wire("string", nullable_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpData:
    key: str = wire("string")  # The quota, as `producer_byte_rate`.
    value: float = wire("float64")  # Its new value, unless it is removed.
    remove: bool = wire("bool")  # Whether it is removed.


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryData:
    entity: tuple[EntityData, ...] = wire_array(EntityData)
    ops: tuple[OpData, ...] = wire_array(OpData)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotasRequest:
    first_version, last_version, flexible_since = 0, 1, 1
    entries: tuple[EntryData, ...] = wire_array(EntryData)
    validate_only: bool = wire("bool")  # Whether to check the request and change nothing.


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotasResponseEntryData:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)
    entity: tuple[EntityData, ...] = wire_array(EntityData)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterClientQuotasResponse:
    first_version, last_version, flexible_since = 0, 1, 1
    throttle_time_ms: int = wire("int32")
    entries: tuple[AlterClientQuotasResponseEntryData, ...] = wire_array(
        AlterClientQuotasResponseEntryData
    )
