"""The state of a member of a classic group, and its times.

    UNJOINED --JoinGroup--> PREPARING_REBALANCE --answer--> COMPLETING_REBALANCE --SyncGroup--.
        ^---- unknown member, illegal generation, left, not polled ----------- STABLE <-------'

A heartbeat is due in the last two states. A rebalance begins from any state with `needs_rejoin`.
"""

import logging
from enum import Enum
from random import Random
from typing import NamedTuple

from tailrace.client.consumer.membership.interface import NEVER, MembershipSettings
from tailrace.client.nodes import Backoff

logger = logging.getLogger(__name__)


class MemberState(Enum):
    """Kafka's states of a member."""

    UNJOINED = "unjoined"
    """No member."""
    PREPARING_REBALANCE = "preparing rebalance"
    """JoinGroup is sent, or about to be."""
    COMPLETING_REBALANCE = "completing rebalance"
    """JoinGroup is answered, SyncGroup is not."""
    STABLE = "stable"
    """SyncGroup is answered."""

    @property
    def has_joined(self) -> bool:
        """Whether heartbeats are due."""
        return self in {MemberState.COMPLETING_REBALANCE, MemberState.STABLE}

    @property
    def is_rebalancing(self) -> bool:
        """Whether it has no assignment of the newest generation yet."""
        return self in {MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE}


class Generation(NamedTuple):
    """A generation of the group, and this member in it."""

    id: int = -1
    member_id: str = ""
    protocol: str = ""
    """The assignor that the coordinator has chosen."""

    @property
    def is_valid(self) -> bool:
        """Whether the member is in a generation; if not, what it owned is lost."""
        return self.id >= 0 and bool(self.member_id)


class ClassicState:
    """The state of the member, and whether it has to join again."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self.member = MemberState.UNJOINED
        self.generation = Generation()
        self.needs_rejoin = True
        self.is_prepared = False
        """Whether partitions were revoked for the coming JoinGroup."""
        self.reason = ""
        """Why it joins again, for the broker's log."""

    def request_rejoin(self, reason: str) -> None:
        """Have the member join again."""
        logger.info("group_rejoin_needed group=%s reason=%s", self._group_id, reason)
        self.reason = reason
        self.needs_rejoin = True

    def reset(self, reason: str, *, forgets_member: bool) -> None:
        """Note that the generation is over for this member; what it owns is lost."""
        member_id = "" if forgets_member else self.generation.member_id
        self.generation = Generation(member_id=member_id)
        self.member = MemberState.UNJOINED
        self.is_prepared = False
        self.request_rejoin(reason)

    def joined(self, generation: Generation) -> None:
        """Note the generation of the answer to JoinGroup."""
        self.generation = generation
        self.member = MemberState.COMPLETING_REBALANCE

    def synced(self) -> None:
        """Note that the assignment has come."""
        logger.info(
            "group_joined group=%s generation=%d member=%s assignor=%s",
            self._group_id,
            self.generation.id,
            self.generation.member_id,
            self.generation.protocol,
        )
        self.member = MemberState.STABLE
        self.needs_rejoin = self.is_prepared = False
        self.reason = ""


class MemberTimes:
    """When the next heartbeat is due, and when the session and the time between polls end."""

    def __init__(self, settings: MembershipSettings, *, chance: Random) -> None:
        self._settings = settings
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, chance)
        self._failures = 0
        self.heartbeat_at = NEVER
        self.session_until = NEVER
        self.poll_until = NEVER

    def polled(self, now: float) -> None:
        """The user has called poll."""
        self.poll_until = now + self._settings.max_poll_interval_ms / 1000

    def joined(self, now: float) -> None:
        """Begin all times anew."""
        self.polled(now)
        self.session_renewed(now)
        self.sent(now)

    def session_renewed(self, now: float) -> None:
        """The coordinator was found, or has answered."""
        self.session_until = now + self._settings.session_timeout_ms / 1000

    def sent(self, now: float) -> None:
        """A heartbeat was sent."""
        self.heartbeat_at = now + self._settings.heartbeat_interval_ms / 1000

    def received(self, now: float) -> None:
        """A heartbeat was answered by a coordinator that knows the member."""
        self._failures = 0
        self.session_renewed(now)

    def failed(self, now: float) -> None:
        """A heartbeat was not answered, or refused."""
        self.heartbeat_at = now + self._backoff.pause_s(self._failures)
        self._failures += 1
