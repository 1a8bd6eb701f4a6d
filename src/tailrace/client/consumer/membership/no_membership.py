"""`NoMembership`: stands for a consumer that assigns its partitions itself, when it commits."""

from collections.abc import Mapping

from tailrace.client.consumer.membership.errors import CommitFailedError
from tailrace.client.consumer.membership.interface import GroupIdentity
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode


class NoMembership:
    """A `Committer` that is no member: it may commit to a group that has no members."""

    names_member_in_fetch = False
    grants: Mapping[TopicPartition, int] = {}

    def __init__(self, group_id: str) -> None:
        self.identity = GroupIdentity(group_id)

    def commit_fault(self) -> Exception | None:
        """Always None: nothing keeps it from committing."""
        return None

    def commit_refused(self, code: int, sent: GroupIdentity, now: float) -> Exception | None:
        """The error of a commit to a group that has members; None for other codes."""
        del now
        if code not in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}:
            return None
        return CommitFailedError(
            f"group {sent.group_id!r}: nothing was committed, because the group has members; a "
            "consumer that assigns its partitions itself needs a group.id of its own"
        )
