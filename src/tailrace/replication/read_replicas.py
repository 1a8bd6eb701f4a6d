"""The replica that a consumer is sent to: one in its rack, if the leader has it in sync (KIP-392).

    consumer in rack b          leader in rack a, follower 2 in rack b
    Fetch, rack b       ─►      no records, preferred replica 2
    Fetch, rack b       ─────────────────────────────────────►  records up to its high watermark

Kafka's `ReplicaManager.findPreferredReadReplica` with its `RackAwareReplicaSelector`, without I/O.
Each fetch is decided alone: nothing is remembered of a consumer.
"""

from collections.abc import Callable

from tailrace.model import Offset
from tailrace.replication.leadership import Leadership


def nearest_replica(
    leadership: Leadership,
    *,
    leader_id: int,
    offset: Offset,
    rack: str,
    rack_of: Callable[[int], str | None],
) -> int | None:
    """The follower that a consumer in `rack` should read from, from an offset on.

    None: the leader itself. `rack_of` gives the rack of a broker; None if it has none, or if
    consumers cannot reach it.
    """
    # A consumer without `client.rack`, and one beside the leader, are not sent away.
    if not rack or rack_of(leader_id) == rack:
        return None
    near = [
        # Kafka's order: the most records; then who had all of them last; then the highest id, so
        # that a consumer is not sent back and forth between equals.
        (follower.log_end, follower.caught_up_at_ms, broker_id)
        for broker_id, follower in leadership.followers.items()
        # One out of sync may never catch up: a consumer would lag with it, ask the leader every
        # `metadata.max.age.ms`, and be sent back each time.
        if broker_id in leadership.isr
        and follower.log_start <= offset <= follower.log_end
        and rack_of(broker_id) == rack
    ]
    return max(near)[2] if near else None
