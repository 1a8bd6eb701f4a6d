"""ApiVersions (18): the APIs and versions that a broker serves.

    v1   throttle time                      v3   flexible; client's name; features in tags
    v4   a feature may start at version 0 (KIP-584)

It is the first request on a connection, so it has special rules (KIP-511): the response header
never has tagged fields, and a request with an unknown version gets a v0 response with
UNSUPPORTED_VERSION and the list.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest:
    """Ask for the APIs and versions that the broker serves."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 4
    flexible_since: ClassVar[int] = 3

    client_software_name: str = wire("string", since=3)
    """Name of the client library."""
    client_software_version: str = wire("string", since=3)
    """Its version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersion:
    """The versions of one request."""

    api_key: int = wire("int16")
    """The request."""
    min_version: int = wire("int16")
    """The lowest version."""
    max_version: int = wire("int16")
    """The highest version, included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportedFeatureKey:
    """A feature that the broker could use."""

    name: str = wire("string", since=3)
    """The feature."""
    min_version: int = wire("int16", since=3)
    """The lowest level."""
    max_version: int = wire("int16", since=3)
    """The highest level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalizedFeatureKey:
    """A feature that the cluster uses."""

    name: str = wire("string", since=3)
    """The feature."""
    max_version_level: int = wire("int16", since=3)
    """The highest level in use."""
    min_version_level: int = wire("int16", since=3)
    """The lowest level in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse:
    """The APIs and versions that the broker serves."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 4
    flexible_since: ClassVar[int] = 3

    error_code: int = wire("int16")
    """0, or UNSUPPORTED_VERSION."""
    api_keys: tuple[ApiVersion, ...] = wire_array(ApiVersion)
    """The requests."""
    throttle_time_ms: int = wire("int32", since=1)
    """Time for which a quota throttles the client, in milliseconds."""
    supported_features: tuple[SupportedFeatureKey, ...] = wire_array(
        SupportedFeatureKey, since=3, tag=0
    )
    """Features that the broker could use."""
    finalized_features_epoch: int = wire("int64", since=3, tag=1, default=-1)
    """Epoch of the features in use; -1: not known."""
    finalized_features: tuple[FinalizedFeatureKey, ...] = wire_array(
        FinalizedFeatureKey, since=3, tag=2
    )
    """Features that the cluster uses."""
    zk_migration_ready: bool = wire("bool", since=3, tag=3)
    """Whether a move away from ZooKeeper may start."""
