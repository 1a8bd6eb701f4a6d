"""The state of a member under the consumer protocol (KIP-848).

UNSUBSCRIBED -> JOINING -> STABLE <-> RECONCILING -> ACKNOWLEDGING -> STABLE
any -> FENCED (lose) -> JOINING                     removed by the coordinator
any -> LEAVING -> STALE (lose) -> JOINING           not polled; joins at the next poll
any -> PREPARE_LEAVING (revoke) -> LEAVING -> UNSUBSCRIBED
any -> FATAL (lose)
"""

import base64
import logging
from enum import Enum
from random import Random
from typing import Final

logger = logging.getLogger(__name__)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""Epoch with which a static member leaves for a while: the group keeps its place."""


class MemberState(Enum):
    """Kafka's states of a member."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    FENCED = "fenced"
    PREPARE_LEAVING = "prepare leaving"
    LEAVING = "leaving"
    STALE = "stale"
    FATAL = "fatal"

    @property
    def is_in_group(self) -> bool:
        """Whether heartbeats are due."""
        return self in {
            MemberState.JOINING,
            MemberState.RECONCILING,
            MemberState.ACKNOWLEDGING,
            MemberState.STABLE,
            MemberState.PREPARE_LEAVING,
        }

    @property
    def takes_assignments(self) -> bool:
        """Whether a new target assignment is taken."""
        return self.is_in_group and self is not MemberState.PREPARE_LEAVING

    @property
    def is_urgent(self) -> bool:
        """Whether the next heartbeat is not to wait for the interval."""
        return self in {MemberState.JOINING, MemberState.ACKNOWLEDGING, MemberState.LEAVING}

    @property
    def has_to_release(self) -> bool:
        """Whether the assignment is to be given up before anything else."""
        return self in {
            MemberState.FENCED,
            MemberState.STALE,
            MemberState.PREPARE_LEAVING,
            MemberState.FATAL,
        }


class MemberIdentityState:
    """The member's id, which it makes itself (KIP-1082), its epoch and its state."""

    def __init__(self, group_id: str, *, chance: Random) -> None:
        self._group_id = group_id
        self.id = _random_id(chance)
        self.epoch = JOIN_EPOCH
        self.state = MemberState.UNSUBSCRIBED

    def move(self, state: MemberState) -> None:
        """Go to another state."""
        if state is not self.state:
            logger.info(
                "group_member_state group=%s member=%s epoch=%d from=%s to=%s",
                self._group_id,
                self.id,
                self.epoch,
                self.state.value,
                state.value,
            )
        self.state = state

    def join(self) -> None:
        """Begin anew, with the same id."""
        self.epoch = JOIN_EPOCH
        self.move(MemberState.JOINING)


def _random_id(chance: Random) -> str:
    """A random UUID in 22 characters, as Kafka writes it; never with "-" in front."""
    while True:
        data = chance.getrandbits(128).to_bytes(16, "big")
        text = base64.urlsafe_b64encode(data).decode().rstrip("=")
        if not text.startswith("-"):
            return text
