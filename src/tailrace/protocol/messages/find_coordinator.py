"""FindCoordinator (10): the broker that coordinates a group or a transaction.

    v1   kinds of keys, messages            v4   many keys at once (KIP-699)
    v3   flexible                           v6   share groups (KIP-932)

v2 and v5 change no field.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinatorRequest:
    """Ask for the coordinators of these keys."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 6
    flexible_since: ClassVar[int] = 3

    key: str = wire("string", until=3)
    """The key, up to v3."""
    key_type: int = wire("int8", since=1)
    """The kind of the keys: a `CoordinatorKeyType`."""
    coordinator_keys: tuple[str, ...] = wire_array("string", since=4)
    """The keys, from v4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    """The coordinator of one key."""

    key: str = wire("string", since=4)
    """The key."""
    node_id: int = wire("int32", since=4)
    """The broker."""
    host: str = wire("string", since=4)
    """Host name to connect to."""
    port: int = wire("int32", since=4)
    """Port to connect to."""
    error_code: int = wire("int16", since=4)
    """0, or why there is none."""
    error_message: str | None = wire("string", since=4, nullable_since=4)
    """The error message, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinatorResponse:
    """The coordinators: one broker up to v3, one for each key from v4."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 6
    flexible_since: ClassVar[int] = 3

    throttle_time_ms: int = wire("int32", since=1)
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16", until=3)
    """0, or why there is none."""
    error_message: str | None = wire("string", since=1, until=3, nullable_since=1)
    """The error message, or None."""
    node_id: int = wire("int32", until=3)
    """The broker."""
    host: str = wire("string", until=3)
    """Host name to connect to."""
    port: int = wire("int32", until=3)
    """Port to connect to."""
    coordinators: tuple[Coordinator, ...] = wire_array(Coordinator, since=4)
    """The brokers, by key."""
