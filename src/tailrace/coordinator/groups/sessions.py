"""The deadlines of the members of consumer groups; a member that misses one is fenced.

session      of every member, begins anew whenever it is heard of
revocation   of a member that has to give up partitions: its rebalance timeout
join, sync   of a classic member that has to join again, or to ask for its assignment: likewise
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from tailrace.coordinator.groups.consumer_group import ConsumerMember, MemberState
from tailrace.coordinator.groups.consumer_settings import ConsumerSettings
from tailrace.coordinator.groups.deadlines import Deadlines
from tailrace.coordinator.machine import Decision


class Fence(Protocol):
    """Removes a member that has missed a deadline."""

    def __call__(self, group_id: str, member_id: str, now_ms: int, *, why: str) -> Decision[None]:
        """Remove it, at a time of day in milliseconds."""
        ...


_SESSION: Final = "consumer-session"
_REVOCATION: Final = "consumer-revocation"
_JOIN: Final = "consumer-join"
_SYNC: Final = "consumer-sync"


class Sessions:
    """The deadlines of the members of one shard."""

    def __init__(
        self,
        deadlines: Deadlines,
        *,
        settings: Callable[[str], ConsumerSettings],
        fence: Fence,
    ) -> None:
        self._deadlines = deadlines
        self._settings = settings
        self._fence = fence

    def renew(self, group_id: str, member: ConsumerMember) -> None:
        """Begin the session of a member anew, because it was heard of."""
        classic = member.metadata.classic_member_metadata
        if classic is None:
            timeout_ms = self._settings(group_id).session_timeout_ms
            for kind in (_JOIN, _SYNC):
                self._deadlines.cancel((kind, group_id, member.member_id))
        else:
            timeout_ms = classic.session_timeout_ms
        self._set(_SESSION, group_id, member, timeout_ms=timeout_ms, why="it was not heard of")

    def expect_revocation(self, group_id: str, member: ConsumerMember) -> None:
        """Give a member its rebalance timeout while it has to give up partitions."""
        if member.current.state is MemberState.UNREVOKED_PARTITIONS:
            timeout_ms = member.metadata.rebalance_timeout_ms
            why = "it did not give up its partitions"
            self._set(_REVOCATION, group_id, member, timeout_ms=timeout_ms, why=why)
        else:
            self._deadlines.cancel((_REVOCATION, group_id, member.member_id))

    def expect_join(self, group_id: str, member: ConsumerMember) -> None:
        """A classic member has been told to join again; the first time counts."""
        if (_JOIN, group_id, member.member_id) not in self._deadlines:
            timeout_ms = member.metadata.rebalance_timeout_ms
            self._set(_JOIN, group_id, member, timeout_ms=timeout_ms, why="it did not join again")

    def has_joined(self, group_id: str, member: ConsumerMember) -> None:
        """A classic member has joined, and has to ask for its assignment."""
        self._deadlines.cancel((_JOIN, group_id, member.member_id))
        self.renew(group_id, member)
        timeout_ms = member.metadata.rebalance_timeout_ms
        why = "it did not ask for its assignment"
        self._set(_SYNC, group_id, member, timeout_ms=timeout_ms, why=why)

    def has_synced(self, group_id: str, member: ConsumerMember) -> None:
        """A classic member has asked for its assignment."""
        self._deadlines.cancel((_SYNC, group_id, member.member_id))
        self.renew(group_id, member)

    def forget(self, group_id: str, member_id: str) -> None:
        """Cancel all deadlines of a member."""
        for kind in (_SESSION, _REVOCATION, _JOIN, _SYNC):
            self._deadlines.cancel((kind, group_id, member_id))

    def resume(self, group_id: str, member: ConsumerMember) -> None:
        """Begin the session of a member, and the revocation that it owes."""
        self.renew(group_id, member)
        self.expect_revocation(group_id, member)

    def _set(
        self, kind: str, group_id: str, member: ConsumerMember, *, timeout_ms: int, why: str
    ) -> None:
        self._deadlines.set(
            (kind, group_id, member.member_id),
            timeout_ms,
            partial(self._fence, group_id, member.member_id, why=why),
        )
