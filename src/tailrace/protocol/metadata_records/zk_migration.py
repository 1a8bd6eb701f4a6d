"""Records of type 21 of `__cluster_metadata`: a migration from ZooKeeper; Kafka 4 ignores it."""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from typing import ClassVar

from tailrace.protocol.fields import wire
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ZkMigrationStateRecord:
    """The state of the migration."""

    record_type: ClassVar[int] = 21
    first_version: ClassVar[int] = 0
    last_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = 0

    zk_migration_state: int = wire("int8")
    """0: none, 1: to come, 2: under way, 3: ended."""
