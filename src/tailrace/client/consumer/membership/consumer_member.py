"""`ConsumerMember`: the transitions of a member under the consumer protocol.

They are those of Kafka's ConsumerMembershipManager.

Not here: sending (`consumer_protocol`), and the fields of heartbeats (`consumer_heartbeats`).
"""

import logging
from random import Random
from typing import Final

from tailrace.client.consumer.membership.consumer_heartbeats import ConsumerHeartbeats
from tailrace.client.consumer.membership.consumer_state import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    MemberIdentityState,
    MemberState,
)
from tailrace.client.consumer.membership.errors import (
    MalformedGroupDataError,
    is_retriable,
    refusal,
)
from tailrace.client.consumer.membership.group_coordinator import GroupCoordinator
from tailrace.client.consumer.membership.interface import (
    NEVER,
    GroupRequest,
    MembershipSettings,
    StepKind,
)
from tailrace.client.consumer.membership.reconciliation import Reconciliation
from tailrace.client.consumer.membership.steps import Steps
from tailrace.client.errors import error_words
from tailrace.client.nodes import UnsupportedVersionError
from tailrace.errors import RetriableError
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

logger = logging.getLogger(__name__)

_RELOCATED: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
_FENCED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class ConsumerMember:
    """One member, its assignment and its heartbeats."""

    def __init__(
        self, settings: MembershipSettings, coordinator: GroupCoordinator, *, chance: Random
    ) -> None:
        self._settings = settings
        self._coordinator = coordinator
        self.identity = MemberIdentityState(settings.group_id, chance=chance)
        self.steps = Steps()
        self.reconciliation = Reconciliation(self.steps)
        self.heartbeats = ConsumerHeartbeats(
            settings, self.identity, self.reconciliation, chance=chance
        )
        self.error: Exception | None = None
        """Why the member cannot be in the group."""
        self._poll_until = NEVER
        self._has_missed_poll = False
        """Whether it leaves, or has left, because the user did not poll."""
        self._may_join = False
        """Whether the user has polled since it subscribed or was out of the group."""
        self.leave_request: GroupRequest | None = None
        """The heartbeat that leaves, until it is answered."""

    @property
    def needs_coordinator(self) -> bool:
        """Whether there is something to send."""
        return self.identity.state.is_in_group

    @property
    def poll_deadline(self) -> float:
        """When a member that is not polled leaves."""
        return self._poll_until if self.identity.state.is_in_group else NEVER

    def polled(self, now: float) -> None:
        """Begin `max.poll.interval.ms` anew; join, if the member is out of the group."""
        self._poll_until = now + self._settings.max_poll_interval_ms / 1000
        self._may_join = True
        self.advance()

    def advance(self) -> None:
        """Go on as far as is possible without an answer, a step or a poll."""
        identity, steps = self.identity, self.steps
        if identity.state.has_to_release and steps.is_empty:
            if steps.assignment:
                is_revoked = identity.state is MemberState.PREPARE_LEAVING and identity.epoch > 0
                steps.add(StepKind.REVOKE if is_revoked else StepKind.LOSE, steps.assignment)
                return
            self.reconciliation.clear()
            self._released()
        match identity.state:
            case MemberState.UNSUBSCRIBED if self._may_join and self.heartbeats.subscription:
                identity.join()
            case MemberState.RECONCILING:
                if self.reconciliation.finish() or self.reconciliation.begin():
                    identity.move(MemberState.ACKNOWLEDGING)
            case _:
                pass

    def leave(self) -> None:
        """Give up the assignment, then leave; at once, if the member is not in the group."""
        state = self.identity.state
        self.heartbeats.subscription = None
        if state.is_in_group and state is not MemberState.PREPARE_LEAVING:
            self.reconciliation.abort()
            self.identity.move(MemberState.PREPARE_LEAVING)
        self.advance()

    def check_poll(self, now: float) -> None:
        """Leave if the user has not polled for `max.poll.interval.ms`."""
        state = self.identity.state
        if now < self.poll_deadline or state is MemberState.PREPARE_LEAVING:
            return
        logger.warning(
            "poll_missed group=%s member=%s effect=the consumer leaves the group until the next "
            "poll advice=raise max.poll.interval.ms (%d) or lower max.poll.records",
            self._settings.group_id,
            self.identity.id,
            self._settings.max_poll_interval_ms,
        )
        self._has_missed_poll = True
        self._send_leave()

    def sent(self, request: GroupRequest) -> None:
        """A heartbeat goes out: what it acknowledges is acknowledged, or the member has left."""
        identity = self.identity
        if identity.state is MemberState.ACKNOWLEDGING:
            is_done = self.reconciliation.is_done
            identity.move(MemberState.STABLE if is_done else MemberState.RECONCILING)
        elif identity.state is MemberState.LEAVING:
            self.leave_request = request
            self._left()
        self.advance()

    def not_left(self) -> None:
        """The heartbeat that leaves could not be sent yet."""
        self.leave_request = None
        self._has_missed_poll = self.identity.state is MemberState.STALE
        self.identity.move(MemberState.LEAVING)

    def coordinator_lost(self) -> None:
        """Nobody can be told that the member leaves."""
        self.leave_request = None
        if self.identity.state is MemberState.LEAVING:
            self._left()
            self.advance()

    def succeeded(self, answer: ConsumerGroupHeartbeatResponse, now: float) -> None:
        """Take the epoch and the assignment of an answer without an error."""
        identity = self.identity
        self.heartbeats.succeeded(answer.heartbeat_interval_ms, now)
        if not identity.state.is_in_group or answer.member_epoch < 0:
            return
        identity.id = answer.member_id or identity.id
        identity.epoch = answer.member_epoch
        if identity.state.takes_assignments:
            if answer.assignment is not None:
                try:
                    self.reconciliation.take(answer.assignment)
                except MalformedGroupDataError as error:
                    self.fail(error)
                    return
            if not self.reconciliation.is_done:
                identity.move(MemberState.RECONCILING)
            elif identity.state in {MemberState.RECONCILING, MemberState.JOINING}:
                identity.move(MemberState.STABLE)
        self.advance()

    def refused(
        self, answer: ConsumerGroupHeartbeatResponse, request: GroupRequest, now: float
    ) -> None:
        """Act upon the error code of an answer."""
        code = answer.error_code
        if code in _FENCED:
            self.heartbeats.restart(now)
            self._fence()
        elif code in _RELOCATED:
            self._coordinator.mark_unknown(request.node, now, why=error_words(code))
            self.heartbeats.restart(now)
        elif is_retriable(code) or code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # The metadata of the topic tells the user that it may not be read.
            logger.info(
                "heartbeat_failed group=%s reason=%s", self._settings.group_id, error_words(code)
            )
            self.heartbeats.failed(now)
        else:
            self.fail(
                refusal(
                    code,
                    group_id=self._settings.group_id,
                    during="ConsumerGroupHeartbeat",
                    said=answer.error_message,
                )
            )

    def unanswered(self, error: Exception, request: GroupRequest, now: float) -> None:
        """Act upon an error that came in place of an answer."""
        self.heartbeats.failed(now)
        if isinstance(error, RetriableError):
            self._coordinator.mark_unknown(request.node, now, why=str(error))
        elif isinstance(error, UnsupportedVersionError):
            self.fail(
                refusal(
                    ErrorCode.UNSUPPORTED_VERSION,
                    group_id=self._settings.group_id,
                    during="ConsumerGroupHeartbeat",
                )
            )
        else:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """End the membership for good; what is owned is lost."""
        self.error = error
        self.reconciliation.abort()
        self.identity.epoch = LEAVE_EPOCH
        self.identity.move(MemberState.FATAL)
        self.advance()

    def _fence(self) -> None:
        """Lose what is owned and join again, unless the member leaves anyway."""
        identity = self.identity
        if not identity.state.is_in_group:
            return
        is_leaving = identity.state is MemberState.PREPARE_LEAVING
        identity.epoch = LEAVE_EPOCH if is_leaving else 0
        self.reconciliation.abort()
        if not is_leaving:
            identity.move(MemberState.FENCED)
        self.advance()

    def _released(self) -> None:
        """Go on after the assignment was given up."""
        match self.identity.state:
            case MemberState.PREPARE_LEAVING if self.identity.epoch < 0:
                self._left()  # It was fenced meanwhile, so nobody has to be told.
            case MemberState.PREPARE_LEAVING:
                self._send_leave()
            case MemberState.STALE if not self._may_join:
                pass
            case MemberState.FENCED | MemberState.STALE:
                if self.heartbeats.subscription is None:
                    self.identity.move(MemberState.UNSUBSCRIBED)
                else:
                    self.identity.join()
            case _:
                pass

    def _send_leave(self) -> None:
        is_static = self._settings.group_instance_id is not None
        self.identity.epoch = STATIC_LEAVE_EPOCH if is_static else LEAVE_EPOCH
        self.reconciliation.abort()
        self.identity.move(MemberState.LEAVING)

    def _left(self) -> None:
        self._may_join = False
        is_stale, self._has_missed_poll = self._has_missed_poll, False
        self.identity.move(MemberState.STALE if is_stale else MemberState.UNSUBSCRIBED)
