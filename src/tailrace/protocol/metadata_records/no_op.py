"""Records of type 20 of `__cluster_metadata`: no change, but a sign that the leader lives."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOpRecord:
    """Nothing."""

    record_type: ClassVar[int] = 20
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0
