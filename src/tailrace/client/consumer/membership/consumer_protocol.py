"""`ConsumerMembership`: a member under the consumer protocol (KIP-848).

One request does it all, ConsumerGroupHeartbeat: it joins, reports what the member owns, and leaves;
the coordinator assigns. The transitions are those of Kafka's ConsumerMembershipManager:

    UNSUBSCRIBED -> JOINING -> STABLE <-> RECONCILING -> ACKNOWLEDGING -> STABLE
    any -> FENCED (lose) -> JOINING                     removed by the coordinator
    any -> LEAVING -> STALE (lose) -> JOINING           not polled; joins at the next poll
    any -> PREPARE_LEAVING (revoke) -> LEAVING -> UNSUBSCRIBED
    any -> FATAL (lose)

A heartbeat with all fields joins, and follows every failure; others have only what has changed.

`Reconciliation` has the way from the coordinator's target to what the consumer reads:

    target (topic ids) -> names from metadata -> revoke (step) -> assign (step) -> acknowledged

What can be named is reconciled at once; the rest waits for metadata. A target that comes meanwhile
is reconciled afterwards.

Invariant: one heartbeat is in flight at a time, beside the one that leaves.
"""

import base64
import logging
from collections.abc import Mapping
from enum import Enum
from random import Random
from typing import Final, NamedTuple
from uuid import UUID

from tailrace.client.consumer.config import ConsumerConfig
from tailrace.client.consumer.membership.errors import (
    RELOCATED,
    CommitFailedError,
    MalformedGroupDataError,
    is_retriable,
    not_a_member,
    refusal,
)
from tailrace.client.consumer.membership.group_coordinator import GroupCoordinator
from tailrace.client.consumer.membership.interface import (
    NEVER,
    GroupIdentity,
    GroupRequest,
    MetadataWish,
    RebalanceStep,
    StepKind,
    Steps,
    TopicShape,
)
from tailrace.client.errors import error_words
from tailrace.client.nodes import Backoff, Node, NodeError, UnsupportedVersionError
from tailrace.errors import RetriableError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

logger = logging.getLogger(__name__)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""Epoch with which a static member leaves for a while: the group keeps its place."""

REGEX_SINCE: Final = 1
"""First version that takes a regular expression."""

INTERVAL_S_MIN: Final = 0.01
"""Shortest interval between heartbeats, whatever a broker asks for: 0 would be a busy loop."""

_FENCED: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


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


PartitionsById = Mapping[UUID, frozenset[int]]
"""Partition numbers by topic id."""


class LocalAssignment(NamedTuple):
    """An assignment and its number: the same partitions again are another one."""

    number: int
    partitions: PartitionsById


NO_ASSIGNMENT: Final = LocalAssignment(-1, {})
"""The assignment of a member that has got none."""


class Reconciliation:
    """The target, the acknowledged assignment, and the one between."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._target = NO_ASSIGNMENT
        self.current = NO_ASSIGNMENT
        """The assignment that the next heartbeat reports."""
        self._resolving: LocalAssignment | None = None
        """The assignment whose steps are not done yet."""
        self._names: dict[UUID, str] = {}
        """Names of topics, from the metadata and of what is assigned."""

    @property
    def is_done(self) -> bool:
        """Whether the target is what the consumer reads."""
        return self.current == self._target

    @property
    def unnamed(self) -> frozenset[UUID]:
        """Topics of the target whose name is not known."""
        return frozenset(self._target.partitions.keys() - self._names.keys())

    def named(self, topics: Mapping[str, TopicShape]) -> None:
        kept = self._target.partitions.keys() | self.current.partitions.keys()
        names = {each: name for each, name in self._names.items() if each in kept}
        self._names = names | {shape.topic_id: name for name, shape in topics.items()}

    def set_target(self, assignment: Assignment) -> None:
        """Note a new target.

        Raises:
            MalformedGroupDataError: a partition has a negative number.
        """
        partitions = {
            each.topic_id: frozenset(each.partitions)
            for each in assignment.topic_partitions
            if each.partitions
        }
        if any(min(numbers) < 0 for numbers in partitions.values()):
            raise MalformedGroupDataError(
                "the coordinator has assigned a partition with a negative number; this broker and "
                "this client do not understand each other"
            )
        # The coordinator repeats the assignment in each answer to a full heartbeat.
        if self._target is NO_ASSIGNMENT or partitions != self._target.partitions:
            self._target = LocalAssignment(self._target.number + 1, partitions)

    def begin(self) -> bool:
        """Add the steps to the target; return whether there is something to acknowledge already.

        Nothing happens while a step is left.
        """
        if not self._steps.is_empty or self._resolving is not None or self.is_done:
            return False
        unnamed = self.unnamed
        resolved = LocalAssignment(
            self._target.number,
            {each: numbers for each, numbers in self._target.partitions.items()
             if each not in unnamed},
        )  # fmt: skip
        # The same partitions under a newer target have to be acknowledged, too.
        if self.current is not NO_ASSIGNMENT and resolved.partitions == self.current.partitions:
            is_news = resolved != self.current
            self.current = resolved
            return is_news
        wanted = {
            TopicPartition(self._names[each], number)
            for each, numbers in resolved.partitions.items()
            for number in numbers
        }
        owned = self._steps.assignment
        # There is nothing to do before the metadata has the names of the other topics.
        if unnamed and owned == wanted:
            return False
        # Revoke first: the coordinator gives them to others only when this is acknowledged.
        if owned - wanted:
            self._steps.add(StepKind.REVOKE, owned - wanted)
        self._steps.add(StepKind.ASSIGN, wanted - owned)
        self._resolving = resolved
        return False

    def finish(self) -> bool:
        """Return whether the steps to an assignment are done, which is to be acknowledged now."""
        if self._resolving is None or not self._steps.is_empty:
            return False
        self.current, self._resolving = self._resolving, None
        return True

    def abort(self) -> None:
        """Forget the target and the steps to it; what is owned stays until it is given up."""
        self._steps.drop()
        self._resolving = None
        self._target = NO_ASSIGNMENT

    def clear(self) -> None:
        """Note that the member owns nothing any more."""
        self.abort()
        self.current = NO_ASSIGNMENT

    def report(self) -> tuple[TopicPartitions, ...]:
        """The owned partitions, as a heartbeat names them."""
        return tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(numbers)))
            for topic_id, numbers in self.current.partitions.items()
        )


class Subscription(NamedTuple):
    """The topics that the user wants: names, or a pattern for the broker."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None


class _SentFields(NamedTuple):
    """The fields that the coordinator knows."""

    subscription: Subscription | None = None
    owned: LocalAssignment | None = None
    has_constants: bool = False
    """Whether it knows the rebalance timeout and the assignor."""


class ConsumerMembership:
    """A member under the consumer protocol; see `Membership` for what the methods do."""

    # OffsetFetch since version 9 is refused if the member's epoch is an old one (KIP-848).
    names_member_in_fetch = True

    def __init__(
        self, config: ConsumerConfig, coordinator: GroupCoordinator, *, chance: Random
    ) -> None:
        self._config = config
        self._coordinator = coordinator
        self._member_id = _random_id(chance)
        self._epoch = JOIN_EPOCH
        self._state = MemberState.UNSUBSCRIBED
        self._steps = Steps()
        self._reconciliation = Reconciliation(self._steps)
        self._subscription: Subscription | None = None
        """The topics that the user wants; None: to be no member."""
        self._error: Exception | None = None
        """Why the member cannot be in the group."""
        self._poll_until = NEVER
        self._has_missed_poll = False
        """Whether it leaves, or has left, because the user did not poll."""
        self._may_join = False
        """Whether the user has polled since it subscribed or was out of the group."""
        self._leave_request: GroupRequest | None = None
        """The heartbeat that leaves, until it is answered."""

        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, chance)
        self._in_flight: GroupRequest | None = None
        self._sent = _SentFields()
        self._interval_s = 0.0
        """The interval that the coordinator asks for."""
        self._failures = 0
        self._next_at = -NEVER
        """When the next heartbeat is due by the interval."""
        self._retry_at = -NEVER
        self._has_used_pattern = False

    # -- what the engine sees and calls --------------------------------------------------------

    @property
    def identity(self) -> GroupIdentity:
        group_id, instance_id = self._config.group, self._config.group_instance_id
        # Before the first answer and after the last heartbeat there is no member to name.
        if self._epoch <= 0:
            return GroupIdentity(group_id, instance_id=instance_id)
        return GroupIdentity(group_id, self._member_id, self._epoch, instance_id)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._steps.assignment

    @property
    def grants(self) -> Mapping[TopicPartition, int]:
        return self._steps.grants

    @property
    def error(self) -> Exception | None:
        return self._error or self._coordinator.error

    @property
    def is_left(self) -> bool:
        return self._leave_request is None and (
            self._state in {MemberState.UNSUBSCRIBED, MemberState.FATAL}
            or (self._state is MemberState.STALE and self._subscription is None)
        )

    @property
    def is_settled(self) -> bool:
        return self._state is MemberState.STABLE and self._steps.is_empty

    @property
    def wish(self) -> MetadataWish:
        """Topics of the assignment whose name is not known."""
        ids = self._reconciliation.unnamed
        return MetadataWish(ids=ids, is_urgent=bool(ids))

    def subscribe(self, topics: frozenset[str] | None, pattern: str | None, now: float) -> None:
        """Subscribe to topics or to a pattern that the broker resolves; the next poll joins."""
        if topics is None and pattern is None:
            self.leave("the consumer unsubscribed from all topics", now)
            return
        self._subscription = Subscription(topics or frozenset(), pattern)

    def topics_changed(
        self, topics: Mapping[str, TopicShape], missing: frozenset[str], now: float
    ) -> None:
        """Note the names of topics, for which an assignment may wait."""
        del missing, now
        self._reconciliation.named(topics)
        self._advance()

    def polled(self, now: float) -> None:
        self._poll_until = now + self._config.max_poll_interval_ms / 1000
        self._may_join = True
        self._advance()

    def request_rejoin(self, reason: str, now: float) -> None:
        """Nothing: under this protocol the coordinator alone rebalances."""

    def next_step(self) -> RebalanceStep | None:
        return self._steps.next()

    def step_done(self, step: RebalanceStep, now: float) -> None:
        del now
        self._steps.done(step)
        self._advance()

    def leave(self, reason: str, now: float) -> None:
        """Revoke or lose the assignment, then leave; this protocol sends no reason."""
        del reason, now
        self._subscription = None
        if self._state.is_in_group and self._state is not MemberState.PREPARE_LEAVING:
            self._reconciliation.abort()
            self._move(MemberState.PREPARE_LEAVING)
        self._advance()

    def commit_fault(self) -> Exception | None:
        if self._epoch > 0:
            return None
        return not_a_member(self._config.group)

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
            f"group {self._config.group_id!r}: nothing was committed: {error_words(code)}; the "
            "group has given the partitions to others, or is about to: call poll, and commit again "
            "what this consumer still has"
        )

    def next_request(self, now: float) -> GroupRequest | None:
        """A heartbeat, or the look-up of the coordinator."""
        node = self._coordinator.node
        if self._in_flight is not None and self._in_flight.node != node:
            self._heartbeat_failed(now)
        if node is None:
            # There is nobody to leave from: the session ends by itself there.
            self._leave_request = None
            if self._state is MemberState.LEAVING:
                self._left()
                self._advance()
            return self._coordinator.next_request(now) if self._needs_coordinator else None
        if (
            now >= self._poll_until
            and self._state.is_in_group
            and self._state is not MemberState.PREPARE_LEAVING
        ):
            logger.warning(
                "poll_missed group=%s member=%s effect=the consumer leaves the group until the "
                "next poll advice=raise max.poll.interval.ms (%d) or lower max.poll.records",
                self._config.group_id,
                self._member_id,
                self._config.max_poll_interval_ms,
            )
            self._has_missed_poll = True
            self._send_leave()
        if now < self._next_heartbeat_at():
            return None
        request = self._heartbeat(node, now)
        if self._state is MemberState.ACKNOWLEDGING:
            # This heartbeat acknowledges. If it is lost, the next one has all fields, so the
            # member need not wait for the answer.
            is_done = self._reconciliation.is_done
            self._move(MemberState.STABLE if is_done else MemberState.RECONCILING)
        elif self._state is MemberState.LEAVING:
            self._leave_request = request
            self._left()
        self._advance()
        return request

    def next_deadline(self, now: float) -> float:
        if self._coordinator.node is None:
            if self._state is MemberState.LEAVING:
                return now
            return self._coordinator.next_deadline() if self._needs_coordinator else NEVER
        poll_until = self._poll_until if self._state.is_in_group else NEVER
        return min(self._next_heartbeat_at(), poll_until)

    def put_back(self, request: GroupRequest, now: float) -> None:
        is_leave = request is self._leave_request
        if not is_leave and request is not self._in_flight:
            self._coordinator.put_back(request)
            return
        self._in_flight = None
        self._sent = _SentFields()
        self._next_at = now
        if is_leave:
            self._leave_request = None
            self._has_missed_poll = self._state is MemberState.STALE
            self._move(MemberState.LEAVING)

    def answered(self, request: GroupRequest, outcome: Message | NodeError, now: float) -> None:
        is_present = request is self._in_flight
        if is_present:
            self._in_flight = None
        if request is self._leave_request:
            self._leave_request = None
        elif not is_present:
            self._coordinator.answered(request, outcome, now)
        elif isinstance(outcome, Exception):
            self._unanswered(outcome, request, now)
        else:
            assert isinstance(outcome, ConsumerGroupHeartbeatResponse)
            if outcome.error_code == ErrorCode.NONE:
                self._succeeded(outcome, now)
            else:
                self._refused(outcome, request, now)

    # -- transitions ---------------------------------------------------------------------------

    @property
    def _needs_coordinator(self) -> bool:
        return self._state.is_in_group and self.error is None

    def _move(self, state: MemberState) -> None:
        if state is not self._state:
            logger.info(
                "group_member_state group=%s member=%s epoch=%d from=%s to=%s",
                self._config.group_id,
                self._member_id,
                self._epoch,
                self._state.value,
                state.value,
            )
        self._state = state

    def _join(self) -> None:
        """Join with the same id, which a member keeps as long as it lives (KIP-1082)."""
        self._epoch = JOIN_EPOCH
        self._move(MemberState.JOINING)

    def _advance(self) -> None:
        """Move as far as is possible without an answer, a step or a poll."""
        if self._state.has_to_release and self._steps.is_empty:
            owned = self._steps.assignment
            if owned:
                # The member may still commit what it revokes; what is lost is others' already.
                is_revoked = self._state is MemberState.PREPARE_LEAVING and self._epoch > 0
                self._steps.add(StepKind.REVOKE if is_revoked else StepKind.LOSE, owned)
                return
            self._reconciliation.clear()
            self._released()
        if self._state is MemberState.UNSUBSCRIBED:
            if self._may_join and self._subscription:
                self._join()
        elif self._state is MemberState.RECONCILING and (
            self._reconciliation.finish() or self._reconciliation.begin()
        ):
            self._move(MemberState.ACKNOWLEDGING)

    def _released(self) -> None:
        """Continue after the assignment was given up."""
        match self._state:
            case MemberState.PREPARE_LEAVING if self._epoch < 0:
                self._left()  # It was fenced meanwhile, so there is nothing to send.
            case MemberState.PREPARE_LEAVING:
                self._send_leave()
            case MemberState.STALE if not self._may_join:
                pass  # Until the next poll.
            case MemberState.FENCED | MemberState.STALE:
                if self._subscription is None:
                    self._move(MemberState.UNSUBSCRIBED)
                else:
                    self._join()
            case _:
                pass

    def _send_leave(self) -> None:
        is_static = self._config.group_instance_id is not None
        self._epoch = STATIC_LEAVE_EPOCH if is_static else LEAVE_EPOCH
        self._reconciliation.abort()
        self._move(MemberState.LEAVING)

    def _left(self) -> None:
        self._may_join = False
        is_stale, self._has_missed_poll = self._has_missed_poll, False
        self._move(MemberState.STALE if is_stale else MemberState.UNSUBSCRIBED)

    def _fail(self, error: Exception) -> None:
        """End the membership for good; what is owned is lost."""
        self._error = error
        self._reconciliation.abort()
        self._epoch = LEAVE_EPOCH
        self._move(MemberState.FATAL)
        self._advance()

    # -- answers -------------------------------------------------------------------------------

    def _succeeded(self, answer: ConsumerGroupHeartbeatResponse, now: float) -> None:
        """Take the epoch and the assignment of an answer without an error."""
        self._failures = 0
        self._retry_at = -NEVER
        interval_s = max(answer.heartbeat_interval_ms / 1000, INTERVAL_S_MIN)
        # Operators may change it for a group while it lives.
        if interval_s != self._interval_s:
            self._interval_s = interval_s
            self._next_at = now + interval_s
        # The answer to a heartbeat from before the member left, or from the one that left.
        if not self._state.is_in_group or answer.member_epoch < 0:
            return
        self._member_id = answer.member_id or self._member_id
        self._epoch = answer.member_epoch
        if self._state is not MemberState.PREPARE_LEAVING:
            if answer.assignment is not None:
                try:
                    self._reconciliation.set_target(answer.assignment)
                except MalformedGroupDataError as error:
                    self._fail(error)
                    return
            if not self._reconciliation.is_done:
                self._move(MemberState.RECONCILING)
            elif self._state in {MemberState.RECONCILING, MemberState.JOINING}:
                self._move(MemberState.STABLE)
        self._advance()

    def _refused(
        self, answer: ConsumerGroupHeartbeatResponse, request: GroupRequest, now: float
    ) -> None:
        code = answer.error_code
        if code in _FENCED:
            self._restart_heartbeats(now)
            if not self._state.is_in_group:
                return
            # Lose what is owned and join again, unless the member leaves anyway.
            is_leaving = self._state is MemberState.PREPARE_LEAVING
            self._epoch = LEAVE_EPOCH if is_leaving else JOIN_EPOCH
            self._reconciliation.abort()
            if not is_leaving:
                self._move(MemberState.FENCED)
            self._advance()
        elif code in RELOCATED:
            # No pause for heartbeats: the look-up has its own.
            self._coordinator.mark_unknown(request.node, now, why=error_words(code))
            self._restart_heartbeats(now)
        elif is_retriable(code) or code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            # The metadata of the topic tells the user that it may not be read.
            logger.info(
                "heartbeat_failed group=%s reason=%s", self._config.group_id, error_words(code)
            )
            self._heartbeat_failed(now)
        else:
            self._fail(self._refusal(code, said=answer.error_message))

    def _unanswered(self, error: Exception, request: GroupRequest, now: float) -> None:
        """Act upon an error that came in place of an answer."""
        self._heartbeat_failed(now)
        if isinstance(error, RetriableError):
            self._coordinator.mark_unknown(request.node, now, why=str(error))
        elif isinstance(error, UnsupportedVersionError):
            self._fail(self._refusal(ErrorCode.UNSUPPORTED_VERSION))
        else:
            self._fail(error)

    def _refusal(self, code: int, *, said: str | None = None) -> Exception:
        during = "ConsumerGroupHeartbeat"
        return refusal(code, group_id=self._config.group, during=during, said=said)

    # -- heartbeats ----------------------------------------------------------------------------

    def _next_heartbeat_at(self) -> float:
        """When the next heartbeat is due, if the coordinator is known."""
        if self._state is MemberState.LEAVING:
            return -NEVER
        if not self._state.is_in_group or self._in_flight is not None:
            return NEVER
        is_news = self._subscription != self._sent.subscription and self._subscription is not None
        # After a failure even urgent heartbeats wait for the pause (decision 42).
        if (self._state.is_urgent or is_news) and not self._failures:
            return -NEVER
        return max(self._retry_at, self._next_at)

    def _heartbeat(self, node: Node, now: float) -> GroupRequest:
        """A heartbeat with the fields that the coordinator does not know."""
        config, sent = self._config, self._sent
        subscription = self._subscription or Subscription()
        self._next_at = now + self._interval_s
        is_joining = self._state is MemberState.JOINING
        has_all = is_joining or not sent.has_constants
        topics = regex = owned = None
        known = sent.subscription or Subscription()
        if is_joining or sent.subscription is None or subscription.topics != known.topics:
            # In order, so that equal subscriptions are equal on the wire.
            topics = tuple(sorted(subscription.topics))
        self._has_used_pattern |= subscription.pattern is not None
        is_known = sent.subscription is not None and subscription.pattern == known.pattern
        # A broker without patterns does not get the field, as long as none was ever used.
        if self._has_used_pattern and not is_known:
            # An empty one removes a pattern that the coordinator may still have.
            regex = subscription.pattern or ""
        current = self._reconciliation.current
        if is_joining or current != sent.owned:
            owned = self._reconciliation.report()
        self._sent = _SentFields(subscription, current, has_constants=True)
        body = ConsumerGroupHeartbeatRequest(
            group_id=config.group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=config.group_instance_id,
            rack_id=(config.client_rack or None) if is_joining else None,
            rebalance_timeout_ms=config.max_poll_interval_ms if has_all else -1,
            subscribed_topic_names=topics,
            subscribed_topic_regex=regex,
            server_assignor=config.group_remote_assignor if has_all else None,
            topic_partitions=owned,
        )
        self._in_flight = GroupRequest(
            body,
            timeout_ms=config.request_timeout_ms,
            node=node,
            first_version=0 if subscription.pattern is None else REGEX_SINCE,
        )
        return self._in_flight

    def _heartbeat_failed(self, now: float) -> None:
        """Send all fields after a pause: nobody knows which of them the coordinator has got."""
        self._in_flight = None
        self._sent = _SentFields()
        self._next_at = now
        self._retry_at = now + self._backoff.pause_s(self._failures)
        self._failures += 1

    def _restart_heartbeats(self, now: float) -> None:
        """Send all fields, without a pause."""
        self._in_flight = None
        self._sent = _SentFields()
        self._failures = 0
        self._next_at = self._retry_at = now


def _random_id(chance: Random) -> str:
    """A random UUID in 22 characters, as Kafka writes it; the member makes it itself (KIP-1082)."""
    while True:
        data = chance.getrandbits(128).to_bytes(16, "big")
        text = base64.urlsafe_b64encode(data).decode().rstrip("=")
        # Kafka's Uuid leaves these out, too: command-line tools would take them for options.
        if not text.startswith("-"):
            return text
