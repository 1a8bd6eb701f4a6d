"""ApiVersions (18): the APIs and versions that a broker serves.

    v1   throttle time                      v3   flexible; client's name; features in tags
    v4   a feature may start at version 0 (KIP-584)

It is the first request on a connection, so it has special rules (KIP-511): the response header
never has tagged fields, and a request with an unknown version gets a v0 response with
UNSUPPORTED_VERSION and the list.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest:
    first_version, last_version, flexible_since = 0, 4, 3
    client_software_name: str = wire("string", since=3)
    client_software_version: str = wire("string", since=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersion:
    api_key: int = wire("int16")
    min_version: int = wire("int16")
    max_version: int = wire("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportedFeatureKey:
    """A feature that the broker could use."""

    name: str = wire("string", since=3)
    min_version: int = wire("int16", since=3)
    max_version: int = wire("int16", since=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalizedFeatureKey:
    """A feature that the cluster uses."""

    name: str = wire("string", since=3)
    max_version_level: int = wire("int16", since=3)
    min_version_level: int = wire("int16", since=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse:
    first_version, last_version, flexible_since = 0, 4, 3
    error_code: int = wire("int16")  # 0, or UNSUPPORTED_VERSION.
    api_keys: tuple[ApiVersion, ...] = wire_array(ApiVersion)
    throttle_time_ms: int = wire("int32", since=1)
    supported_features: tuple[SupportedFeatureKey, ...] = wire_array(
        SupportedFeatureKey, since=3, tag=0
    )
    # Epoch of the features in use; -1: not known.
    finalized_features_epoch: int = wire("int64", since=3, tag=1, default=-1)
    # Features that the cluster uses.
    finalized_features: tuple[FinalizedFeatureKey, ...] = wire_array(
        FinalizedFeatureKey, since=3, tag=2
    )
    # Whether a move away from ZooKeeper may start.
    zk_migration_ready: bool = wire("bool", since=3, tag=3)
