"""`ConsumerMembership`: a member under the consumer protocol (KIP-848).

One request does it all, ConsumerGroupHeartbeat: it joins, reports what the member owns, and leaves;
the coordinator assigns. The member makes its id itself, so it needs brokers of Kafka 3.7 or later.

    consumer_member        transitions of the member
    consumer_heartbeats    fields and times of heartbeats
    reconciliation         from the target assignment to what the consumer reads
"""

from collections.abc import Mapping
from random import Random

from tailrace.client.consumer.membership.consumer_heartbeats import Subscription
from tailrace.client.consumer.membership.consumer_member import ConsumerMember
from tailrace.client.consumer.membership.consumer_state import MemberState
from tailrace.client.consumer.membership.errors import CommitFailedError
from tailrace.client.consumer.membership.group_coordinator import GroupCoordinator
from tailrace.client.consumer.membership.interface import (
    NEVER,
    GroupIdentity,
    GroupRequest,
    MembershipSettings,
    MetadataWish,
    RebalanceStep,
    TopicShape,
)
from tailrace.client.errors import error_words
from tailrace.client.nodes import NodeError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse


class ConsumerMembership:
    """A member under the consumer protocol; see `Membership` for what the methods do."""

    names_member_in_fetch = True

    def __init__(
        self, settings: MembershipSettings, coordinator: GroupCoordinator, *, chance: Random
    ) -> None:
        self._settings = settings
        self._coordinator = coordinator
        self._member = ConsumerMember(settings, coordinator, chance=chance)

    @property
    def identity(self) -> GroupIdentity:
        """The member id and epoch."""
        member = self._member.identity
        group_id, instance_id = self._settings.group_id, self._settings.group_instance_id
        if member.epoch <= 0:
            return GroupIdentity(group_id, instance_id=instance_id)
        return GroupIdentity(group_id, member.id, member.epoch, instance_id)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the consumer reads."""
        return self._member.steps.assignment

    @property
    def grants(self) -> Mapping[TopicPartition, int]:
        """The assignment with its numbers."""
        return self._member.steps.grants

    @property
    def error(self) -> Exception | None:
        """Why the member cannot be in the group."""
        return self._member.error or self._coordinator.error

    @property
    def is_left(self) -> bool:
        """Whether the member has left."""
        member = self._member
        state = member.identity.state
        return member.leave_request is None and (
            state in {MemberState.UNSUBSCRIBED, MemberState.FATAL}
            or (state is MemberState.STALE and member.heartbeats.subscription is None)
        )

    @property
    def is_settled(self) -> bool:
        """Whether the member has its assignment and has said so."""
        member = self._member
        return member.identity.state is MemberState.STABLE and member.steps.is_empty

    @property
    def wish(self) -> MetadataWish:
        """Topics of the assignment whose name is not known."""
        ids = self._member.reconciliation.unnamed
        return MetadataWish(ids=ids, is_urgent=bool(ids))

    def subscribe(self, topics: frozenset[str] | None, pattern: str | None, now: float) -> None:
        """Subscribe to topics or to a pattern that the broker resolves; the next poll joins."""
        if topics is None and pattern is None:
            self.leave("the consumer unsubscribed from all topics", now)
            return
        self._member.heartbeats.subscription = Subscription(topics or frozenset(), pattern)

    def topics_changed(
        self, topics: Mapping[str, TopicShape], missing: frozenset[str], now: float
    ) -> None:
        """Note the names of topics, for which an assignment may wait."""
        del missing, now
        self._member.reconciliation.named(topics)
        self._member.advance()

    def polled(self, now: float) -> None:
        """Begin `max.poll.interval.ms` anew; join, if the member is out of the group."""
        self._member.polled(now)

    def request_rejoin(self, reason: str, now: float) -> None:
        """Nothing: under this protocol the coordinator alone rebalances."""

    def next_step(self) -> RebalanceStep | None:
        """The next step for the user's thread."""
        return self._member.steps.next()

    def step_done(self, step: RebalanceStep, now: float) -> None:
        """Go on after a step."""
        del now
        self._member.steps.done(step)
        self._member.advance()

    def leave(self, reason: str, now: float) -> None:
        """Revoke or lose the assignment, then leave; this protocol sends no reason."""
        del reason, now
        self._member.leave()

    def commit_fault(self) -> Exception | None:
        """Why nothing can be committed: not in the group."""
        if self._member.identity.epoch > 0:
            return None
        return CommitFailedError(
            f"group {self._settings.group_id!r}: this consumer is not a member, so nothing was "
            "committed; either it has not called poll for longer than max.poll.interval.ms, or the "
            "group has removed it"
        )

    def commit_refused(self, code: int, sent: GroupIdentity, now: float) -> Exception | None:
        """The commit has failed; heartbeats find out what it means for the member."""
        del sent, now
        if code not in {
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.STALE_MEMBER_EPOCH,
            ErrorCode.FENCED_MEMBER_EPOCH,
        }:
            return None
        return CommitFailedError(
            f"group {self._settings.group_id!r}: nothing was committed: {error_words(code)}; the "
            "group has given the partitions to others, or is about to: call poll, and commit again "
            "what this consumer still has"
        )

    def next_request(self, now: float) -> GroupRequest | None:
        """A heartbeat, or the look-up of the coordinator."""
        member, coordinator = self._member, self._coordinator
        if member.heartbeats.is_lost(coordinator.node):
            member.heartbeats.failed(now)
        if coordinator.node is None:
            member.coordinator_lost()
            if member.needs_coordinator and self.error is None:
                return coordinator.next_request(now)
            return None
        member.check_poll(now)
        request = member.heartbeats.next_request(coordinator.node, now)
        if request is not None:
            member.sent(request)
        return request

    def put_back(self, request: GroupRequest, now: float) -> None:
        """The request could not be sent yet."""
        member = self._member
        if request is member.leave_request:
            member.heartbeats.put_back(now)
            member.not_left()
        elif member.heartbeats.take(request):
            member.heartbeats.put_back(now)
        else:
            self._coordinator.put_back(request)

    def answered(self, request: GroupRequest, outcome: Message | NodeError, now: float) -> None:
        """Handle an answer, or the error that came instead."""
        member = self._member
        is_present = member.heartbeats.take(request)
        if request is member.leave_request:
            member.leave_request = None
        elif not is_present:
            self._coordinator.answered(request, outcome, now)
        elif isinstance(outcome, Exception):
            member.unanswered(outcome, request, now)
        else:
            assert isinstance(outcome, ConsumerGroupHeartbeatResponse)
            if outcome.error_code == ErrorCode.NONE:
                member.succeeded(outcome, now)
            else:
                member.refused(outcome, request, now)

    def next_deadline(self, now: float) -> float:
        """When `next_request` has to be called again."""
        member = self._member
        if self._coordinator.node is None:
            if member.identity.state is MemberState.LEAVING:
                return now
            is_needed = member.needs_coordinator and self.error is None
            return self._coordinator.next_deadline() if is_needed else NEVER
        return min(member.heartbeats.next_deadline(), member.poll_deadline)
