"""What the operator sets for groups, by Kafka's settings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Limits and times of groups; times are in milliseconds."""

    size_max: int = 2**31 - 1
    """`group.max.size`: most members of a classic group."""
    session_timeout_ms_min: int = 6_000
    """`group.min.session.timeout.ms`."""
    session_timeout_ms_max: int = 1_800_000
    """`group.max.session.timeout.ms`."""
    initial_delay_ms: int = 3_000
    """`group.initial.rebalance.delay.ms`: how long the first member of a group waits for others."""
    first_join_timeout_ms: int = 300_000
    """How long a new member may wait in its first join; Kafka has no setting for it."""
    metadata_characters_max: int = 4_096
    """`offset.metadata.max.bytes`: most characters of the metadata of an offset, as in Kafka."""
    retention_ms: int = 10_080 * 60_000
    """`offsets.retention.minutes`: how long an offset stays after its group has left it."""
    expiry_interval_ms: int = 600_000
    """`offsets.retention.check.interval.ms`."""
