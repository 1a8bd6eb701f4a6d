"""`NoMembership`: the place of a membership in a consumer that assigns partitions itself.

It may commit to a group that has no members; nothing is sent but commits.
"""

from collections.abc import Mapping

from tailrace.client.consumer.membership.errors import CommitFailedError
from tailrace.client.consumer.membership.interface import (
    NEVER,
    GroupIdentity,
    GroupRequest,
    MetadataWish,
    RebalanceStep,
    TopicShape,
)
from tailrace.client.nodes import NodeError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message


class NoMembership:
    """No member of a group; see `Membership` for what the methods would do."""

    names_member_in_fetch = False
    assignment: frozenset[TopicPartition] = frozenset()
    grants: Mapping[TopicPartition, int] = {}
    error: Exception | None = None
    is_left = True
    is_settled = True
    wish = MetadataWish()

    def __init__(self, group_id: str) -> None:
        self.identity = GroupIdentity(group_id)

    def subscribe(self, topics: frozenset[str] | None, pattern: str | None, now: float) -> None:
        """Only nothing can be subscribed to."""
        del now
        assert topics is None, "a consumer that assigns partitions itself subscribes to nothing"
        assert pattern is None, "a consumer that assigns partitions itself subscribes to nothing"

    def topics_changed(
        self, topics: Mapping[str, TopicShape], missing: frozenset[str], now: float
    ) -> None:
        """Nothing follows."""

    def polled(self, now: float) -> None:
        """Nothing follows."""

    def request_rejoin(self, reason: str, now: float) -> None:
        """Nothing follows."""

    def next_step(self) -> RebalanceStep | None:
        """There is none."""
        return None

    def step_done(self, step: RebalanceStep, now: float) -> None:
        """There is none."""

    def leave(self, reason: str, now: float) -> None:
        """There is nothing to leave."""

    def commit_fault(self) -> Exception | None:
        """Everything can be committed."""
        return None

    def commit_refused(self, code: int, sent: GroupIdentity, now: float) -> Exception | None:
        """Say that the group has members."""
        del now
        if code not in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}:
            return None
        return CommitFailedError(
            f"group {sent.group_id!r}: nothing was committed, because the group has members; a "
            "consumer that assigns its partitions itself needs a group.id of its own"
        )

    def next_request(self, now: float) -> GroupRequest | None:
        """There is none."""
        del now
        return None

    def put_back(self, request: GroupRequest, now: float) -> None:
        """There is none."""

    def answered(self, request: GroupRequest, outcome: Message | NodeError, now: float) -> None:
        """There is none."""

    def next_deadline(self, now: float) -> float:
        """Nothing is ever due."""
        del now
        return NEVER
