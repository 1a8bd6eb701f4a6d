"""UpdateFeatures (57): changes levels of features of the cluster (KIP-584).

v1   dry runs, kinds of changes (KIP-778)        v2   no results by feature
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdateKey:
    feature: str = wire("string")
    max_version_level: int = wire("int16")  # Its new level; below 1: it is removed.
    allow_downgrade: bool = wire("bool", until=0)  # Whether the level may become lower.
    # 1: only higher, 2: lower if nothing is lost, 3: lower in any case.
    upgrade_type: int = wire("int8", since=1, default=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeaturesRequest:
    """Change these features; all of them, or none."""

    first_version, last_version, flexible_since = 0, 2, 0
    timeout_ms: int = wire("int32", default=60_000)
    feature_updates: tuple[FeatureUpdateKey, ...] = wire_array(FeatureUpdateKey)
    validate_only: bool = wire("bool", since=1)  # Whether to check the request and change nothing.


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatableFeatureResult:
    feature: str = wire("string")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeaturesResponse:
    first_version, last_version, flexible_since = 0, 2, 0
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0)
    results: tuple[UpdatableFeatureResult, ...] = wire_array(UpdatableFeatureResult, until=1)
