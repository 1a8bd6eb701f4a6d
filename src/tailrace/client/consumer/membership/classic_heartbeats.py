"""`ClassicHeartbeats`: the heartbeats of a member of a classic group.

Not here: what happens when the user does not poll (`classic`).
"""

import logging
from random import Random
from typing import Final

from tailrace.client.consumer.membership.classic_rebalance import ClassicRebalance
from tailrace.client.consumer.membership.classic_requests import ClassicRequests
from tailrace.client.consumer.membership.classic_state import (
    ClassicState,
    Generation,
    MemberState,
    MemberTimes,
)
from tailrace.client.consumer.membership.errors import refusal
from tailrace.client.consumer.membership.group_coordinator import GroupCoordinator
from tailrace.client.consumer.membership.interface import (
    NEVER,
    GroupRequest,
    MembershipSettings,
)
from tailrace.client.errors import error_words
from tailrace.client.nodes import NodeError
from tailrace.errors import RetriableError
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.heartbeat import HeartbeatResponse

logger = logging.getLogger(__name__)

_OUTDATED: Final = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
)


class ClassicHeartbeats:
    """The heartbeats of one member; one is in flight at a time."""

    def __init__(
        self,
        settings: MembershipSettings,
        state: ClassicState,
        rebalance: ClassicRebalance,
        *,
        coordinator: GroupCoordinator,
        chance: Random,
    ) -> None:
        self._group_id = settings.group_id
        self._state = state
        self._rebalance = rebalance
        self._coordinator = coordinator
        self._requests = ClassicRequests(settings)
        self.times = MemberTimes(settings, chance=chance)
        self._joined = Generation()
        """The generation for which the times were begun."""
        self._found = 0
        """Number of times that the coordinator had been found at the last look at the session."""
        self._in_flight: GroupRequest | None = None
        self._sent = Generation()
        """The generation of the heartbeat in flight."""

    def check(self, now: float) -> None:
        """Begin the times of a new generation, and look for a coordinator that is silent."""
        state, times, coordinator = self._state, self.times, self._coordinator
        if coordinator.find_count != self._found:
            self._found = coordinator.find_count
            times.session_renewed(now)
        if state.member.has_joined and state.generation != self._joined:
            self._joined = state.generation
            times.joined(now)
        if state.member.has_joined and now >= times.session_until:
            coordinator.mark_unknown(
                coordinator.node, now, why="no heartbeat was answered for session.timeout.ms"
            )
        if self._in_flight is not None and self._in_flight.node != coordinator.node:
            self._in_flight = None
            times.failed(now)

    def has_missed_poll(self, now: float) -> bool:
        """Whether a member has not called poll for `max.poll.interval.ms`."""
        if not self._state.member.has_joined or now < self.times.poll_until:
            return False
        logger.warning(
            "poll_missed group=%s member=%s effect=the consumer leaves the group until the next "
            "poll advice=raise max.poll.interval.ms or lower max.poll.records",
            self._group_id,
            self._state.generation.member_id,
        )
        return True

    def next_request(self, now: float) -> GroupRequest | None:
        """A heartbeat, if one is due."""
        state, node = self._state, self._coordinator.node
        if node is None or self._in_flight is not None or not state.member.has_joined:
            return None
        if now < self.times.heartbeat_at:
            return None
        self.times.sent(now)
        self._in_flight = self._requests.to_coordinator(
            self._requests.heartbeat(state.generation), node
        )
        self._sent = state.generation
        return self._in_flight

    def next_deadline(self) -> float:
        """When the next heartbeat is due, the session ends, or the next poll is missed."""
        if not self._state.member.has_joined:
            return NEVER
        times = self.times
        heartbeat_at = times.heartbeat_at if self._in_flight is None else NEVER
        return min(heartbeat_at, times.session_until, times.poll_until)

    def put_back(self, request: GroupRequest, now: float) -> bool:
        """The heartbeat could not be sent; return whether it is one."""
        if request is not self._in_flight:
            return False
        self._in_flight = None
        self.times.heartbeat_at = now
        return True

    def answered(self, request: GroupRequest, outcome: Message | NodeError, now: float) -> bool:
        """Handle an answer or an error; return whether the request is a heartbeat."""
        if request is not self._in_flight:
            return False
        self._in_flight = None
        if isinstance(outcome, HeartbeatResponse):
            self._judge(outcome.error_code, request, now)
        elif isinstance(outcome, RetriableError):
            self._coordinator.mark_unknown(request.node, now, why=str(outcome))
            self.times.failed(now)
        elif isinstance(outcome, Exception):
            self._rebalance.error = outcome
        return True

    def _judge(self, code: int, request: GroupRequest, now: float) -> None:
        state, times = self._state, self.times
        if code == ErrorCode.NONE:
            times.received(now)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            times.received(now)
            if state.member is MemberState.STABLE and not state.needs_rejoin:
                state.request_rejoin("group is already rebalancing")
        elif code in _OUTDATED:
            if self._sent != state.generation:
                times.received(now)
                return
            self._rebalance.stop(
                f"a heartbeat was refused: {error_words(code)}",
                forgets_member=code != ErrorCode.ILLEGAL_GENERATION,
            )
            if code == ErrorCode.FENCED_INSTANCE_ID:
                self._rebalance.error = refusal(code, group_id=self._group_id, during="Heartbeat")
        else:
            if code in {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}:
                self._coordinator.mark_unknown(request.node, now, why=error_words(code))
            logger.info("heartbeat_failed group=%s reason=%s", self._group_id, error_words(code))
            times.failed(now)
