"""Records of type 12 of `__cluster_metadata`: the level of a feature."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevelRecord:
    """The level that all nodes use from now on."""

    record_type: ClassVar[int] = 12
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    name: str = wire("string")
    """The feature."""
    feature_level: int = wire("int16")
    """The level; 0: the feature is off."""
