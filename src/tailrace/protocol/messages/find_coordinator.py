"""FindCoordinator (10): the broker that coordinates a group or a transaction.

    v1   kinds of keys, messages            v4   many keys at once (KIP-699)
    v3   flexible                           v6   share groups (KIP-932)

v2 and v5 change no field.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinatorRequest:
    first_version, last_version, flexible_since = 0, 6, 3
    key: str = wire("string", until=3)
    key_type: int = wire("int8", since=1)  # The kind of the keys: a `CoordinatorKeyType`.
    coordinator_keys: tuple[str, ...] = wire_array("string", since=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    key: str = wire("string", since=4)
    node_id: int = wire("int32", since=4)
    host: str = wire("string", since=4)
    port: int = wire("int32", since=4)
    error_code: int = wire("int16", since=4)
    error_message: str | None = wire("string", since=4, nullable_since=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinatorResponse:
    """The coordinators: one broker up to v3, one for each key from v4."""

    first_version, last_version, flexible_since = 0, 6, 3
    throttle_time_ms: int = wire("int32", since=1)
    error_code: int = wire("int16", until=3)
    error_message: str | None = wire("string", since=1, until=3, nullable_since=1)
    node_id: int = wire("int32", until=3)
    host: str = wire("string", until=3)
    port: int = wire("int32", until=3)
    coordinators: tuple[Coordinator, ...] = wire_array(Coordinator, since=4)
