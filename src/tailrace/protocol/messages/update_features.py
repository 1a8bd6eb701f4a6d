"""UpdateFeatures (57): changes levels of features of the cluster (KIP-584).

v1   dry runs, kinds of changes (KIP-778)        v2   no results by feature
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdateKey:
    """A change of one feature."""

    feature: str = wire("string")
    """The feature."""
    max_version_level: int = wire("int16")
    """Its new level; below 1: it is removed."""
    allow_downgrade: bool = wire("bool", until=0)
    """Whether the level may become lower."""
    upgrade_type: int = wire("int8", since=1, default=1)
    """1: only higher, 2: lower if nothing is lost, 3: lower in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeaturesRequest:
    """Change these features; all of them, or none."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 0

    timeout_ms: int = wire("int32", default=60_000)
    """Longest time to wait for the result, in milliseconds."""
    feature_updates: tuple[FeatureUpdateKey, ...] = wire_array(FeatureUpdateKey)
    """The changes."""
    validate_only: bool = wire("bool", since=1)
    """Whether to check the request and change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatableFeatureResult:
    """The result for one feature."""

    feature: str = wire("string")
    """The feature."""
    error_code: int = wire("int16")
    """0, or the code of the error."""
    error_message: str | None = wire("string", nullable_since=0)
    """The error message, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFeaturesResponse:
    """The result."""

    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 2
    flexible_since: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    """Time for which a quota throttles the client, in milliseconds."""
    error_code: int = wire("int16")
    """0, or the code of the error."""
    error_message: str | None = wire("string", nullable_since=0)
    """The error message, or None."""
    results: tuple[UpdatableFeatureResult, ...] = wire_array(UpdatableFeatureResult, until=1)
    """The results."""
