"""`ClassicMembership`: a member of a classic group, as Kafka's ConsumerCoordinator.

    UNJOINED --JoinGroup--> PREPARING_REBALANCE --answer--> COMPLETING_REBALANCE --SyncGroup--.
        ^---- unknown member, illegal generation, left, not polled ----------- STABLE <-------'

    rebalance   revoke or lose (step) -> JoinGroup -> leader: metadata, assign -> SyncGroup
                -> revoke (step, cooperative) and join again -> assign (step)
    leaving     revoke or lose (step) -> LeaveGroup

The member leaves when the user unsubscribes or closes, and when the user has not called poll for
`max.poll.interval.ms`; the next poll joins again then.

Unlike in Kafka, JoinGroup and SyncGroup are sent as soon as the steps on the user's thread are
done, and need no call of poll.

Not here: what a leader assigns (`leading`, `assignors`).

Invariant: of JoinGroup and SyncGroup one is in flight at a time, and of heartbeats one.
"""

import logging
from collections.abc import Mapping
from enum import Enum
from random import Random
from typing import Final, NamedTuple

from tailrace.client.consumer.config import ConsumerConfig
from tailrace.client.consumer.membership.assignors import Assignor, RebalanceProtocol
from tailrace.client.consumer.membership.errors import (
    RELOCATED,
    CommitFailedError,
    GroupRefusedError,
    MalformedGroupDataError,
    RebalanceInProgressError,
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
from tailrace.client.consumer.membership.leading import Leading, common_protocol, make_assignors
from tailrace.client.consumer.membership.subscriptions import (
    MemberSubscription,
    decode_assignment,
    encode_subscription,
)
from tailrace.client.errors import error_words
from tailrace.client.nodes import Backoff, Node, NodeError
from tailrace.errors import RetriableError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tailrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tailrace.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

logger = logging.getLogger(__name__)

PROTOCOL_TYPE: Final = "consumer"

JOIN_LAPSE_MS: Final = 5_000
"""JoinGroup is answered after the rebalance timeout at the latest; this is the time on top, as in
Kafka's client."""

REASON_CHARACTERS_MAX: Final = 255
"""Kafka's client cuts reasons (KIP-800) here, since they end up in the broker's log."""

# A broker that takes an older version would ignore group.instance.id, and two consumers with the
# same one would both be members (KIP-345).
STATIC_JOIN_SINCE: Final = 5
"""First version of JoinGroup with instance ids."""
STATIC_MEMBER_SINCE: Final = 3
"""First version of SyncGroup and Heartbeat with instance ids."""

_FATAL: Final = frozenset(
    {
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
_OUTDATED: Final = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
)


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


class ClassicMembership:
    """A member of a classic group; see `Membership` for what the methods do."""

    names_member_in_fetch = False

    def __init__(
        self, config: ConsumerConfig, coordinator: GroupCoordinator, *, chance: Random
    ) -> None:
        self._config = config
        self._coordinator = coordinator
        self._steps = Steps()
        self._assignors: dict[str, Assignor] = {
            each.name: each for each in make_assignors(config.partition_assignment_strategy)
        }
        self._protocol = common_protocol(tuple(self._assignors.values()))
        self._error: Exception | None = None
        self._state = MemberState.UNJOINED
        self._generation = Generation()

        self._subscription: frozenset[str] | None = None
        """The topics that the user wants; None for none, without being a member."""
        self._joined_subscription: frozenset[str] | None = None
        """The topics in the last JoinGroup."""
        self._topics: Mapping[str, TopicShape] = {}
        self._missing: frozenset[str] = frozenset()
        self._leading: Leading | None = None
        self._may_join = False
        """Whether the user has polled since the member was last out of the group by its own will;
        one that does not poll does not join."""
        self._needs_rejoin = True
        self._is_prepared = False
        """Whether partitions were revoked for the coming JoinGroup."""
        self._rejoin_reason = ""
        """For the broker's log (KIP-800)."""
        self._rejoin_at = -NEVER
        self._sync: SyncGroupRequest | None = None
        """The next SyncGroup."""
        self._rebalance_request: GroupRequest | None = None
        """JoinGroup or SyncGroup in flight."""
        self._sent_generation = Generation()
        """The generation of that request."""

        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, chance)
        self._heartbeat: GroupRequest | None = None
        """The heartbeat in flight."""
        self._heartbeat_generation = Generation()
        """The generation of that heartbeat."""
        self._heartbeat_failures = 0
        self._heartbeat_at = NEVER
        self._session_until = NEVER
        self._poll_until = NEVER
        self._timed_generation = Generation()
        """The generation for which these times were begun."""
        self._find_count = 0
        """Number of times that the coordinator had been found at the last look at the session."""

        self._leave_reason: str | None = None
        """Why the member leaves, while a step before it is not done."""
        self._leave_request: GroupRequest | None = None
        """LeaveGroup, until it is answered."""
        self._is_leave_sent = False

    # -- what the engine sees and calls --------------------------------------------------------

    @property
    def identity(self) -> GroupIdentity:
        generation = self._generation
        return GroupIdentity(
            self._config.group,
            generation.member_id if generation.is_valid else "",
            generation.id,
            self._config.group_instance_id,
        )

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
        return (
            self._subscription is None
            and self._leave_reason is None
            and self._leave_request is None
        )

    @property
    def is_settled(self) -> bool:
        is_stable = self._state is MemberState.STABLE
        return is_stable and not self._needs_rejoin and self._steps.is_empty

    @property
    def wish(self) -> MetadataWish:
        """The topics of the group, if this member leads it."""
        leading = self._leading
        if leading is None:
            return MetadataWish()
        return MetadataWish(names=leading.topics, is_urgent=not leading.has_assigned)

    def subscribe(self, topics: frozenset[str] | None, pattern: str | None, now: float) -> None:
        """Subscribe to topics; the client resolves patterns itself under this protocol."""
        assert pattern is None, "the classic protocol has no patterns for the broker"
        if topics is None:
            self.leave("the consumer unsubscribed from all topics", now)
            return
        self._subscription = topics
        self._check_changes()
        self._prepare()

    def topics_changed(
        self, topics: Mapping[str, TopicShape], missing: frozenset[str], now: float
    ) -> None:
        """Assign with them, or join again because they have changed, if this member leads."""
        del now
        self._topics, self._missing = topics, missing
        if self._leading is not None:
            if self._leading.has_assigned:
                self._check_changes()
            else:
                self._assign(self._leading)
        self._prepare()

    def polled(self, now: float) -> None:
        """Restart `max.poll.interval.ms`; join, if the member is out of the group."""
        self._poll_until = now + self._config.max_poll_interval_ms / 1000
        self._may_join = True

    def request_rejoin(self, reason: str, now: float) -> None:
        del now
        self._rejoin(reason)
        self._prepare()

    def next_step(self) -> RebalanceStep | None:
        return self._steps.next()

    def step_done(self, step: RebalanceStep, now: float) -> None:
        del now
        self._steps.done(step)
        self._continue_leaving()
        self._prepare()

    def leave(self, reason: str, now: float) -> None:
        del now
        if self._subscription is not None:
            self._subscription = None
            self._steps.drop()
            self._leave_reason = reason
            self._continue_leaving()

    def commit_fault(self) -> Exception | None:
        """Why nothing can be committed: not in the group, or between two generations."""
        if self._state is MemberState.STABLE:
            return None
        # The coordinator would refuse it until SyncGroup is answered (REBALANCE_IN_PROGRESS).
        if self._state.is_rebalancing:
            return self._rebalance_in_progress()
        return not_a_member(self._config.group)

    def commit_refused(self, code: int, sent: GroupIdentity, now: float) -> Exception | None:
        """Join again, if the commit came from the present generation."""
        del now
        is_present = sent == self.identity
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._rejoin("offset commit failed since group is already rebalancing")
            self._prepare()
            return self._rebalance_in_progress()
        if code not in _OUTDATED:
            return None
        # The member may have joined again since it sent the commit: then the code is about its
        # earlier self, and must not end the new generation.
        if not is_present and self._state is MemberState.PREPARING_REBALANCE:
            return self._rebalance_in_progress()
        if code == ErrorCode.FENCED_INSTANCE_ID and is_present:
            return refusal(code, group_id=self._config.group, during="OffsetCommit")
        if code != ErrorCode.FENCED_INSTANCE_ID and is_present:
            forgets = code == ErrorCode.UNKNOWN_MEMBER_ID
            self._stop("an offset commit was refused", forgets_member=forgets)
            self._prepare()
        return CommitFailedError(
            f"group {self._config.group_id!r} has given the partitions to other members, so "
            "nothing was committed; either this consumer has not called poll for longer than "
            "max.poll.interval.ms: raise that or lower max.poll.records; or the group has removed "
            "it"
        )

    def next_request(self, now: float) -> GroupRequest | None:
        """LeaveGroup, JoinGroup, SyncGroup, a heartbeat, or the look-up of the coordinator."""
        coordinator = self._coordinator
        self._check_session(now)
        if self._rebalance_request is not None and self._rebalance_request.node != coordinator.node:
            self._rebalance_request = None
            self._rejoin_later("the coordinator was lost", now)
        node = coordinator.node
        if node is None:
            # A lost coordinator gets no LeaveGroup: the session ends by itself there.
            self._leave_request = None
            self._prepare()
            return coordinator.next_request(now) if self._needs_coordinator else None
        if self._state.has_joined and now >= self._poll_until:
            logger.warning(
                "poll_missed group=%s member=%s effect=the consumer leaves the group until the "
                "next poll advice=raise max.poll.interval.ms or lower max.poll.records",
                self._config.group_id,
                self._generation.member_id,
            )
            self._leave("consumer poll timeout has expired.")
            self._prepare()
        # Before anything else, and after an error, too: else the group waits until the session
        # ends.
        if self._leave_request is not None and not self._is_leave_sent:
            self._is_leave_sent = True
            return self._leave_request
        if self.error is not None:
            return None
        return self._next_rebalance_request(node, now) or self._next_heartbeat(node, now)

    def next_deadline(self, now: float) -> float:
        if self._coordinator.node is None:
            return self._coordinator.next_deadline() if self._needs_coordinator else NEVER
        if self._leave_request is not None and not self._is_leave_sent:
            return now
        if self.error is not None:
            return NEVER
        due = NEVER
        if self._rebalance_request is None and (self._sync is not None or self._wants_to_join()):
            due = self._rejoin_at
        if self._state.has_joined:
            heartbeat_at = self._heartbeat_at if self._heartbeat is None else NEVER
            due = min(due, heartbeat_at, self._session_until, self._poll_until)
        return due

    def put_back(self, request: GroupRequest, now: float) -> None:
        if request is self._leave_request:
            self._is_leave_sent = False
        elif request is self._rebalance_request:
            self._rebalance_request = None
        elif request is self._heartbeat:
            self._heartbeat = None
            self._heartbeat_at = now
        else:
            self._coordinator.put_back(request)

    def answered(self, request: GroupRequest, outcome: Message | NodeError, now: float) -> None:
        if request is self._leave_request:
            self._leave_request = None
        elif request is self._rebalance_request:
            self._rebalance_request = None
            self._rebalance_answered(request, outcome, now)
        elif request is self._heartbeat:
            self._heartbeat = None
            self._heartbeat_answered(request, outcome, now)
        else:
            self._coordinator.answered(request, outcome, now)
        self._check_session(now)
        self._prepare()

    # -- rebalances ----------------------------------------------------------------------------

    @property
    def _needs_coordinator(self) -> bool:
        """Whether there is something to send to the coordinator, apart from LeaveGroup."""
        is_wanted = self._subscription is not None and (self._may_join or self._state.has_joined)
        return self.error is None and is_wanted

    def _rejoin(self, reason: str) -> None:
        logger.info("group_rejoin_needed group=%s reason=%s", self._config.group_id, reason)
        self._rejoin_reason = reason
        self._needs_rejoin = True

    def _rejoin_later(self, reason: str, now: float) -> None:
        self._sync = self._leading = None
        self._rejoin_at = now + self._config.retry_backoff_ms / 1000
        self._rejoin(reason)

    def _stop(self, reason: str, *, forgets_member: bool) -> None:
        """End the generation: what the member owns is lost, and late answers are ignored."""
        member_id = "" if forgets_member else self._generation.member_id
        self._generation = Generation(member_id=member_id)
        self._state = MemberState.UNJOINED
        self._is_prepared = False
        self._rejoin(reason)
        self._rebalance_request = self._sync = self._leading = None
        self._steps.drop()

    def _check_changes(self) -> None:
        """Have the member join again if what it joined with is no longer true."""
        if (
            self._state is not MemberState.STABLE
            or self._needs_rejoin
            or self._subscription is None
        ):
            return
        # Only a stable member: the next JoinGroup of a rebalance has the newest subscription.
        if self._subscription != self._joined_subscription:
            self._rejoin("subscription has changed")
        elif self._leading is not None and self._leading.is_outdated(self._topics):
            self._rejoin("cached metadata has changed")

    def _prepare(self) -> None:
        """Add the step that comes before JoinGroup, if the member has to join."""
        if (
            not self._needs_rejoin
            or self._is_prepared
            or self._subscription is None
            or not self._steps.is_empty
        ):
            return
        self._is_prepared = True
        self._leading = None
        owned = self._steps.assignment
        if not self._generation.is_valid:
            # Others may read the partitions already, so a commit now could undo theirs (KIP-429).
            if owned:
                self._steps.add(StepKind.LOSE, owned)
        elif self._protocol is RebalanceProtocol.EAGER:
            self._steps.add(StepKind.REVOKE, owned)
        else:
            # A cooperative member keeps reading during the rebalance, except for topics that it
            # does not want any more: the leader would not know that it still has these.
            unwanted = {each for each in owned if each.topic not in self._subscription}
            if unwanted:
                self._steps.add(StepKind.REVOKE, unwanted)

    def _wants_to_join(self) -> bool:
        return (
            self._needs_rejoin
            and self._is_prepared
            and self._may_join
            and self._subscription is not None
            and self._steps.is_empty
            # A leader that waits for metadata owes the others its SyncGroup.
            and (self._leading is None or self._leading.has_assigned)
        )

    def _next_rebalance_request(self, node: Node, now: float) -> GroupRequest | None:
        if self._rebalance_request is not None or now < self._rejoin_at:
            return None
        if self._sync is not None:
            request = self._to_coordinator(self._sync, node)
        elif self._wants_to_join():
            request = self._join(node)
        else:
            return None
        self._rebalance_request, self._sent_generation = request, self._generation
        return request

    def _join(self, node: Node) -> GroupRequest:
        """A JoinGroup with the subscription for each assignor, the preferred one first."""
        config, subscription = self._config, self._subscription
        assert subscription is not None, "without a subscription it does not join"
        self._state = MemberState.PREPARING_REBALANCE
        self._joined_subscription = subscription
        body = JoinGroupRequest(
            group_id=config.group,
            session_timeout_ms=config.session_timeout_ms,
            # The others wait for this member as long as it may take to come back to poll.
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=self._generation.member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=tuple(
                JoinGroupRequestProtocol(
                    name=each.name,
                    metadata=encode_subscription(
                        MemberSubscription(
                            topics=tuple(subscription),
                            user_data=each.user_data(),
                            owned=tuple(self._steps.assignment),
                            generation=self._generation.id,
                            rack=config.client_rack or None,
                        )
                    ),
                )
                for each in self._assignors.values()
            ),
            reason=self._rejoin_reason[:REASON_CHARACTERS_MAX],
        )
        return GroupRequest(
            body,
            timeout_ms=max(config.request_timeout_ms, config.max_poll_interval_ms + JOIN_LAPSE_MS),
            node=node,
            first_version=0 if config.group_instance_id is None else STATIC_JOIN_SINCE,
        )

    def _sync_with(self, assignments: tuple[SyncGroupRequestAssignment, ...]) -> None:
        """Have a SyncGroup sent; followers have no assignments."""
        self._sync = SyncGroupRequest(
            group_id=self._config.group,
            generation_id=self._generation.id,
            member_id=self._generation.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._generation.protocol,
            assignments=assignments,
        )

    def _to_coordinator(
        self, body: SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest, node: Node
    ) -> GroupRequest:
        return GroupRequest(
            body,
            timeout_ms=self._config.request_timeout_ms,
            node=node,
            first_version=0 if self._config.group_instance_id is None else STATIC_MEMBER_SINCE,
        )

    def _rebalance_answered(
        self, request: GroupRequest, outcome: Message | NodeError, now: float
    ) -> None:
        match outcome:
            case JoinGroupResponse(error_code=ErrorCode.NONE):
                self._joined(outcome, now)
            case JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED) if outcome.member_id:
                # The coordinator remembers only members that come back with the id that it gave
                # them, so that clients that join and vanish do not fill the group (KIP-394).
                self._generation = Generation(member_id=outcome.member_id)
                self._rejoin("need to re-join with the given member-id")
            case JoinGroupResponse():
                self._refused(outcome.error_code, request, now, during="JoinGroup")
            case SyncGroupResponse():
                self._synced(outcome, request, now)
            case RetriableError():
                self._coordinator.mark_unknown(request.node, now, why=str(outcome))
                self._rejoin_later("the coordinator did not answer", now)
            case Exception():
                self._error = outcome
            case _:
                raise AssertionError(f"{type(outcome).__name__} answers no JoinGroup or SyncGroup")

    def _joined(self, answer: JoinGroupResponse, now: float) -> None:
        """Take the generation; as its leader, assign."""
        if self._state is not MemberState.PREPARING_REBALANCE:
            # A heartbeat or a commit was refused while JoinGroup was parked at the coordinator.
            self._rejoin_later("rebalance failed because the member was reset meanwhile", now)
            return
        if answer.protocol_type not in {None, PROTOCOL_TYPE}:
            self._fail_inconsistent("JoinGroup")
            return
        assignor = self._assignors.get(answer.protocol_name or "")
        if assignor is None:
            self._error = GroupRefusedError(
                f"group {self._config.group_id!r}: the coordinator has chosen the assignor "
                f"{answer.protocol_name!r}, which is not among partition.assignment.strategy of "
                f"this consumer: {', '.join(self._assignors)}",
                code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            )
            return
        self._generation = Generation(answer.generation_id, answer.member_id, assignor.name)
        self._state = MemberState.COMPLETING_REBALANCE
        # Only the leader gets the members and their subscriptions.
        if answer.leader != answer.member_id:
            self._leading = None
            self._sync_with(())
            return
        try:
            self._leading = Leading(answer, assignor, rack=self._config.client_rack or None)
        except MalformedGroupDataError as error:
            self._error = error
            return
        self._assign(self._leading)

    def _assign(self, leading: Leading) -> None:
        """Assign the partitions if the metadata of all topics is there."""
        if leading.is_covered(self._topics, self._missing):
            self._sync_with(leading.assign(self._topics))

    def _synced(self, answer: SyncGroupResponse, request: GroupRequest, now: float) -> None:
        self._sync = None
        generation = self._generation
        if answer.error_code != ErrorCode.NONE:
            self._refused(answer.error_code, request, now, during="SyncGroup")
            return
        if answer.protocol_type not in {None, PROTOCOL_TYPE} or answer.protocol_name not in {
            None,
            generation.protocol,
        }:
            self._fail_inconsistent("SyncGroup")
            return
        try:
            assigned = decode_assignment(answer.assignment)
        except MalformedGroupDataError as error:
            self._error = error
            return
        logger.info(
            "group_joined group=%s generation=%d member=%s assignor=%s",
            self._config.group_id,
            generation.id,
            generation.member_id,
            generation.protocol,
        )
        self._state = MemberState.STABLE
        self._needs_rejoin = self._is_prepared = False
        self._rejoin_reason = ""
        assert self._subscription is not None, "leaving ends a rebalance"
        if any(each.topic not in self._subscription for each in assigned):
            # The user has subscribed to others since JoinGroup, by which the leader assigned.
            self._rejoin("received assignment does not match the current subscription")
            return
        owned = self._steps.assignment
        if self._protocol is RebalanceProtocol.COOPERATIVE and owned - assigned:
            # The leader has given these to nobody yet. They are free in the next generation, for
            # which this member has to join again (KIP-429).
            self._steps.add(StepKind.REVOKE, owned - assigned)
            self._rejoin("need to revoke partitions and re-join")
        self._assignors[generation.protocol].assigned(sorted(assigned), generation.id)
        self._steps.add(StepKind.ASSIGN, assigned - owned)
        self._check_changes()

    def _refused(self, code: int, request: GroupRequest, now: float, *, during: str) -> None:
        """Act upon an error code: join again, with or without the member id, or fail."""
        reason = f"rebalance failed due to {error_words(code)}"
        if code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}:
            # The code is about the member as it was when the request was sent.
            if self._sent_generation == self._generation:
                self._stop(reason, forgets_member=code == ErrorCode.UNKNOWN_MEMBER_ID)
            else:
                self._rejoin(reason)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            # The coordinator waits for this member's JoinGroup, so there is no pause.
            self._leading = None
            self._rejoin(reason)
        elif code in RELOCATED:
            self._coordinator.mark_unknown(request.node, now, why=error_words(code))
            self._rejoin_later(reason, now)
        elif code not in _FATAL and is_retriable(code):
            self._rejoin_later(reason, now)
        else:
            self._error = refusal(code, group_id=self._config.group, during=during)

    def _fail_inconsistent(self, during: str) -> None:
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        self._error = refusal(code, group_id=self._config.group, during=during)

    def _rebalance_in_progress(self) -> RebalanceInProgressError:
        return RebalanceInProgressError(
            f"group {self._config.group_id!r} rebalances, so nothing was committed: call poll, "
            "then commit again"
        )

    # -- heartbeats ----------------------------------------------------------------------------

    def _check_session(self, now: float) -> None:
        """Start the times of a new generation, and give up a coordinator that is silent."""
        config, coordinator = self._config, self._coordinator
        if coordinator.find_count != self._find_count:
            # The session's time that has passed was that of another broker.
            self._find_count = coordinator.find_count
            self._renew_session(now)
        if self._state.has_joined and self._generation != self._timed_generation:
            self._timed_generation = self._generation
            self._poll_until = now + config.max_poll_interval_ms / 1000
            self._renew_session(now)
            self._heartbeat_at = now + config.heartbeat_interval_ms / 1000
        if self._state.has_joined and now >= self._session_until:
            coordinator.mark_unknown(
                coordinator.node, now, why="no heartbeat was answered for session.timeout.ms"
            )
        if self._heartbeat is not None and self._heartbeat.node != coordinator.node:
            self._heartbeat = None
            self._heartbeat_failed(now)

    def _renew_session(self, now: float) -> None:
        self._session_until = now + self._config.session_timeout_ms / 1000

    def _next_heartbeat(self, node: Node, now: float) -> GroupRequest | None:
        if not self._state.has_joined or self._heartbeat is not None or now < self._heartbeat_at:
            return None
        self._heartbeat_at = now + self._config.heartbeat_interval_ms / 1000
        self._heartbeat_generation = self._generation
        self._heartbeat = self._to_coordinator(
            HeartbeatRequest(
                group_id=self._config.group,
                generation_id=self._generation.id,
                member_id=self._generation.member_id,
                group_instance_id=self._config.group_instance_id,
            ),
            node,
        )
        return self._heartbeat

    def _heartbeat_answered(
        self, request: GroupRequest, outcome: Message | NodeError, now: float
    ) -> None:
        if isinstance(outcome, RetriableError):
            self._coordinator.mark_unknown(request.node, now, why=str(outcome))
            self._heartbeat_failed(now)
            return
        if isinstance(outcome, Exception):
            self._error = outcome
            return
        assert isinstance(outcome, HeartbeatResponse)
        code = outcome.error_code
        is_known = code in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}
        if is_known or (code in _OUTDATED and self._heartbeat_generation != self._generation):
            # An answer about an earlier generation says that the coordinator lives, and no more.
            self._heartbeat_failures = 0
            self._renew_session(now)
            # A heartbeat that was sent during a rebalance is answered so, too: only a member that
            # believes the group to be stable has something to learn.
            is_news = self._state is MemberState.STABLE and not self._needs_rejoin
            if code == ErrorCode.REBALANCE_IN_PROGRESS and is_news:
                self._rejoin("group is already rebalancing")
        elif code in _OUTDATED:
            self._stop(
                f"a heartbeat was refused: {error_words(code)}",
                forgets_member=code != ErrorCode.ILLEGAL_GENERATION,
            )
            # To join again would fence the other consumer with this id, which would fence this one.
            if code == ErrorCode.FENCED_INSTANCE_ID:
                self._error = refusal(code, group_id=self._config.group, during="Heartbeat")
        else:
            words = error_words(code)
            if code in RELOCATED:
                self._coordinator.mark_unknown(request.node, now, why=words)
            logger.info("heartbeat_failed group=%s reason=%s", self._config.group_id, words)
            self._heartbeat_failed(now)

    def _heartbeat_failed(self, now: float) -> None:
        self._heartbeat_at = now + self._backoff.pause_s(self._heartbeat_failures)
        self._heartbeat_failures += 1

    # -- leaving -------------------------------------------------------------------------------

    def _continue_leaving(self) -> None:
        """Give up the assignment, or leave, if the steps before are done."""
        if self._leave_reason is None or not self._steps.is_empty:
            return
        owned = self._steps.assignment
        if owned:
            is_lost = not self._generation.is_valid or self._state.is_rebalancing
            self._steps.add(StepKind.LOSE if is_lost else StepKind.REVOKE, owned)
        else:
            self._leave(self._leave_reason)

    def _leave(self, reason: str) -> None:
        """Be no member from now on, and tell the coordinator."""
        self._leave_reason = None
        node, member_id = self._coordinator.node, self._generation.member_id
        if (
            # A static member says nothing, so that it may come back before its session ends and
            # find its partitions, without a rebalance (KIP-345).
            self._config.group_instance_id is None
            and node is not None
            and self._state is not MemberState.UNJOINED
            and member_id
        ):
            member = MemberIdentity(member_id=member_id, reason=reason[:REASON_CHARACTERS_MAX])
            body = LeaveGroupRequest(
                group_id=self._config.group, member_id=member_id, members=(member,)
            )
            self._leave_request = self._to_coordinator(body, node)
            self._is_leave_sent = False
        self._stop(reason, forgets_member=True)
        self._may_join = False
