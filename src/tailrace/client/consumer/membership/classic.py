"""`ClassicMembership`: a member of a classic group, as Kafka's ConsumerCoordinator.

Three parts act on one state: rebalances (`classic_rebalance`), heartbeats (`classic_heartbeats`),
and leaving, here. The member leaves when the user unsubscribes or closes, and when the user has not
called poll for `max.poll.interval.ms`; the next poll joins again then. A static member (KIP-345)
sends no LeaveGroup, so that it may come back before its session ends.

Unlike in Kafka, JoinGroup and SyncGroup are sent as soon as the steps on the user's thread are
done, and need no call of poll.
"""

from collections.abc import Mapping
from random import Random

from tailrace.client.consumer.membership.classic_heartbeats import ClassicHeartbeats
from tailrace.client.consumer.membership.classic_leaving import ClassicLeaving
from tailrace.client.consumer.membership.classic_rebalance import ClassicRebalance
from tailrace.client.consumer.membership.classic_state import ClassicState, MemberState
from tailrace.client.consumer.membership.errors import (
    CommitFailedError,
    RebalanceInProgressError,
    refusal,
)
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
from tailrace.client.consumer.membership.steps import Steps
from tailrace.client.nodes import NodeError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message


class ClassicMembership:
    """A member of a classic group; see `Membership` for what the methods do."""

    names_member_in_fetch = False

    def __init__(
        self, settings: MembershipSettings, coordinator: GroupCoordinator, *, chance: Random
    ) -> None:
        self._settings = settings
        self._coordinator = coordinator
        self._state = ClassicState(settings.group_id)
        self._steps = Steps()
        self._rebalance = ClassicRebalance(
            settings, self._state, self._steps, coordinator=coordinator
        )
        self._heartbeats = ClassicHeartbeats(
            settings, self._state, self._rebalance, coordinator=coordinator, chance=chance
        )
        self._leaving = ClassicLeaving(
            settings, self._state, self._steps, rebalance=self._rebalance
        )

    @property
    def identity(self) -> GroupIdentity:
        """The member id and generation."""
        generation = self._state.generation
        return GroupIdentity(
            self._settings.group_id,
            generation.member_id if generation.is_valid else "",
            generation.id,
            self._settings.group_instance_id,
        )

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the consumer reads."""
        return self._steps.assignment

    @property
    def grants(self) -> Mapping[TopicPartition, int]:
        """The assignment with its numbers."""
        return self._steps.grants

    @property
    def error(self) -> Exception | None:
        """Why the member cannot be in the group."""
        return self._rebalance.error or self._coordinator.error

    @property
    def is_left(self) -> bool:
        """Whether the member has left."""
        return self._rebalance.subscription is None and self._leaving.is_over

    @property
    def is_settled(self) -> bool:
        """Whether the member has its assignment and no rebalance is under way."""
        return (
            self._state.member is MemberState.STABLE
            and not self._state.needs_rejoin
            and self._steps.is_empty
        )

    @property
    def wish(self) -> MetadataWish:
        """Topics of the group, if this member leads it."""
        return self._rebalance.wish

    def subscribe(self, topics: frozenset[str] | None, pattern: str | None, now: float) -> None:
        """Subscribe to topics; the client resolves patterns itself under this protocol."""
        assert pattern is None, "the classic protocol has no patterns for the broker"
        if topics is None:
            self.leave("the consumer unsubscribed from all topics", now)
            return
        self._rebalance.subscribe(topics)
        self._rebalance.prepare()

    def topics_changed(
        self, topics: Mapping[str, TopicShape], missing: frozenset[str], now: float
    ) -> None:
        """Assign with them, or join again because they have changed, if this member leads."""
        del now
        self._rebalance.topics_changed(topics, missing)
        self._rebalance.prepare()

    def polled(self, now: float) -> None:
        """Begin `max.poll.interval.ms` anew; join, if the member is out of the group."""
        self._heartbeats.times.polled(now)
        self._rebalance.may_join = True

    def request_rejoin(self, reason: str, now: float) -> None:
        """Rebalance although nothing has changed."""
        del now
        self._state.request_rejoin(reason)
        self._rebalance.prepare()

    def next_step(self) -> RebalanceStep | None:
        """The next step for the user's thread."""
        return self._steps.next()

    def step_done(self, step: RebalanceStep, now: float) -> None:
        """Go on after a step."""
        del now
        self._steps.done(step)
        self._leaving.go_on(self._coordinator.node)
        self._rebalance.prepare()

    def leave(self, reason: str, now: float) -> None:
        """Revoke or lose the assignment, then leave."""
        del now
        if self._rebalance.subscription is not None:
            self._rebalance.subscribe(None)
            self._leaving.begin(reason, self._coordinator.node)

    def commit_fault(self) -> Exception | None:
        """Why nothing can be committed: not in the group, or between two generations."""
        member = self._state.member
        if member is MemberState.STABLE:
            return None
        group = f"group {self._settings.group_id!r}"
        if member.is_rebalancing:
            return RebalanceInProgressError(
                f"{group} rebalances, so nothing was committed: call poll, then commit again"
            )
        return CommitFailedError(
            f"{group}: this consumer is not a member, so nothing was committed; either it has not "
            "called poll for longer than max.poll.interval.ms, or the group has removed it"
        )

    def commit_refused(self, code: int, sent: GroupIdentity, now: float) -> Exception | None:
        """Join again, if the commit came from the present generation."""
        del now
        state = self._state
        group = f"group {self._settings.group_id!r}"
        rebalances = RebalanceInProgressError(
            f"{group} rebalances, so nothing was committed: call poll, then commit again"
        )
        is_present = sent == self.identity
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            state.request_rejoin("offset commit failed since group is already rebalancing")
            self._rebalance.prepare()
            return rebalances
        if code not in {
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.FENCED_INSTANCE_ID,
        }:
            return None
        if not is_present and state.member is MemberState.PREPARING_REBALANCE:
            return rebalances
        if code == ErrorCode.FENCED_INSTANCE_ID and is_present:
            return refusal(code, group_id=self._settings.group_id, during="OffsetCommit")
        if code != ErrorCode.FENCED_INSTANCE_ID and is_present:
            forgets = code == ErrorCode.UNKNOWN_MEMBER_ID
            self._rebalance.stop("an offset commit was refused", forgets_member=forgets)
            self._rebalance.prepare()
        return CommitFailedError(
            f"{group} has given the partitions to other members, so nothing was committed; either "
            "this consumer has not called poll for longer than max.poll.interval.ms: raise that or "
            "lower max.poll.records; or the group has removed it"
        )

    def next_request(self, now: float) -> GroupRequest | None:
        """LeaveGroup, JoinGroup, SyncGroup, a heartbeat, or the look-up of the coordinator."""
        coordinator, rebalance, leaving = self._coordinator, self._rebalance, self._leaving
        self._heartbeats.check(now)
        rebalance.coordinator_lost(now)
        if coordinator.node is None:
            leaving.request = None
            rebalance.prepare()
            needs_it = self.error is None and rebalance.needs_coordinator
            return coordinator.next_request(now) if needs_it else None
        if self._heartbeats.has_missed_poll(now):
            leaving.leave("consumer poll timeout has expired.", coordinator.node)
            rebalance.prepare()
        request = leaving.take()
        if request is not None or self.error is not None:
            return request
        return rebalance.next_request(now) or self._heartbeats.next_request(now)

    def put_back(self, request: GroupRequest, now: float) -> None:
        """The request could not be sent yet."""
        if request is self._leaving.request:
            self._leaving.put_back()
        elif not (self._rebalance.put_back(request) or self._heartbeats.put_back(request, now)):
            self._coordinator.put_back(request)

    def answered(self, request: GroupRequest, outcome: Message | NodeError, now: float) -> None:
        """Handle an answer, or the error that came instead."""
        if request is self._leaving.request:
            self._leaving.request = None
        elif not (
            self._rebalance.answered(request, outcome, now)
            or self._heartbeats.answered(request, outcome, now)
        ):
            self._coordinator.answered(request, outcome, now)
        self._heartbeats.check(now)
        self._rebalance.prepare()

    def next_deadline(self, now: float) -> float:
        """When `next_request` has to be called again."""
        if self._coordinator.node is None:
            needs_it = self.error is None and self._rebalance.needs_coordinator
            return self._coordinator.next_deadline() if needs_it else NEVER
        if self._leaving.is_due:
            return now
        if self.error is not None:
            return NEVER
        return min(self._rebalance.next_deadline(), self._heartbeats.next_deadline())
