"""The operator's settings for consumer groups, under Kafka's names."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """Limits and times of one consumer group; times are in milliseconds."""

    size_max: int = 2**31 - 1
    """`group.consumer.max.size`: most members."""
    session_timeout_ms: int = 45_000
    """`group.consumer.session.timeout.ms`, or the group's own `consumer.session.timeout.ms`."""
    heartbeat_interval_ms: int = 5_000
    """`group.consumer.heartbeat.interval.ms`, or the group's `consumer.heartbeat.interval.ms`."""
    assignment_interval_ms: int = 1_000
    """`group.consumer.assignment.interval.ms`: the least time between two targets of a group."""
    assignors: tuple[str, ...] = ("uniform", "range")
    """`group.consumer.assignors`: the assignors that members can ask for, the default first."""
