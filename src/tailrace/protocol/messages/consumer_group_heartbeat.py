"""ConsumerGroupHeartbeat (68): the one request of the consumer protocol's members (KIP-848).

v1   subscription by regular expression, ids that consumers make (KIP-1082)

A member joins, reports and leaves with it, and receives its assignment in the answer.
"""

# Written by `make messages` from Apache Kafka's definitions and from definitions/words.toml.

from uuid import UUID

from tailrace.protocol.fields import wire, wire_array
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    topic_id: UUID = wire("uuid")
    partitions: tuple[int, ...] = wire_array("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeatRequest:
    """Keep the member in its group; None and -1: not changed since the last request."""

    first_version, last_version, flexible_since = 0, 1, 0
    group_id: str = wire("string")
    member_id: str = wire("string")  # The member; from v1 on the consumer makes the id.
    # Epoch of the member; 0: join, -1: leave, -2: leave and come back as a static member.
    member_epoch: int = wire("int32")
    # The member's instance id, if it is static (KIP-345).
    instance_id: str | None = wire("string", nullable_since=0, default=None)
    rack_id: str | None = wire("string", nullable_since=0, default=None)
    # Time in which the member has to give up partitions.
    rebalance_timeout_ms: int = wire("int32", default=-1)
    subscribed_topic_names: tuple[str, ...] | None = wire_array(
        "string", nullable_since=0, default=None
    )
    subscribed_topic_regex: str | None = wire("string", since=1, nullable_since=1, default=None)
    # The assignor that the broker is to use; None: the group's own choice.
    server_assignor: str | None = wire("string", nullable_since=0, default=None)
    # The partitions that the member owns, by topic; None: they have not changed.
    topic_partitions: tuple[TopicPartitions, ...] | None = wire_array(
        TopicPartitions, nullable_since=0, default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...] = wire_array(TopicPartitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeatResponse:
    """The member's epoch, and its assignment when that has changed."""

    first_version, last_version, flexible_since = 0, 1, 0
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable_since=0, default=None)
    # The member; in v0 the broker may have made the id.
    member_id: str | None = wire("string", nullable_since=0, default=None)
    member_epoch: int = wire("int32")
    heartbeat_interval_ms: int = wire("int32")  # Time until the next heartbeat is due.
    # The assignment; None: it has not changed.
    assignment: Assignment | None = wire(Assignment, nullable_since=0, default=None)
