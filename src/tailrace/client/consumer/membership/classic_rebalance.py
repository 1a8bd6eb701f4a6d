"""`ClassicRebalance`: JoinGroup and SyncGroup, from the need of a rebalance to the assignment.

    needs to join -> revoke or lose (step) -> JoinGroup -> leader: metadata, assign -> SyncGroup
        -> revoke (step, cooperative) and join again -> assign (step)

Not here: heartbeats (`classic_heartbeats`), and when the member leaves (`classic`).

Invariant: of JoinGroup and SyncGroup one is in flight at a time.
"""

import logging
from collections.abc import Mapping
from typing import Final

from tailrace.client.consumer.membership.assignors import (
    Assignor,
    RebalanceProtocol,
)
from tailrace.client.consumer.membership.classic_requests import PROTOCOL_TYPE, ClassicRequests
from tailrace.client.consumer.membership.classic_state import (
    ClassicState,
    Generation,
    MemberState,
)
from tailrace.client.consumer.membership.errors import (
    GroupRefusedError,
    MalformedGroupDataError,
    is_retriable,
    refusal,
)
from tailrace.client.consumer.membership.group_coordinator import GroupCoordinator
from tailrace.client.consumer.membership.interface import (
    NEVER,
    GroupRequest,
    MembershipSettings,
    MetadataWish,
    StepKind,
    TopicShape,
)
from tailrace.client.consumer.membership.leading import (
    Leading,
    common_protocol,
    make_assignors,
)
from tailrace.client.consumer.membership.steps import Steps
from tailrace.client.consumer.membership.subscriptions import decode_assignment
from tailrace.client.errors import error_words
from tailrace.client.nodes import NodeError
from tailrace.errors import RetriableError
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.join_group import JoinGroupResponse
from tailrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

logger = logging.getLogger(__name__)

_RELOCATED: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
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


class ClassicRebalance:
    """The rebalances of one member."""

    def __init__(
        self,
        settings: MembershipSettings,
        state: ClassicState,
        steps: Steps,
        *,
        coordinator: GroupCoordinator,
    ) -> None:
        self._settings = settings
        self._state = state
        self._steps = steps
        self._coordinator = coordinator
        self._requests = ClassicRequests(settings)
        self._assignors: dict[str, Assignor] = {
            each.name: each for each in make_assignors(settings.assignors)
        }
        self._protocol = common_protocol(tuple(self._assignors.values()))
        self.subscription: frozenset[str] | None = None
        """The topics that the user wants; None for none, without being a member."""
        self.error: Exception | None = None
        """Why the member cannot be in the group."""
        self._joined_subscription: frozenset[str] | None = None
        """The topics in the last JoinGroup."""
        self._topics: Mapping[str, TopicShape] = {}
        self._missing: frozenset[str] = frozenset()
        self._leading: Leading | None = None
        self._in_flight: GroupRequest | None = None
        self._sent = Generation()
        """The generation of the request in flight."""
        self._sync: SyncGroupRequest | None = None
        """The next SyncGroup."""
        self._retry_at = -NEVER
        self.may_join = False
        """Whether the user has polled since the member was last out of the group by its own will;
        one that does not poll does not join."""

    @property
    def wish(self) -> MetadataWish:
        """The topics of the group, if this member leads it."""
        leading = self._leading
        if leading is None:
            return MetadataWish()
        return MetadataWish(names=leading.topics, is_urgent=not leading.has_assigned)

    @property
    def needs_coordinator(self) -> bool:
        """Whether there is something to send to the coordinator, apart from LeaveGroup."""
        return self.subscription is not None and (self.may_join or self._state.member.has_joined)

    def subscribe(self, topics: frozenset[str] | None) -> None:
        """Note what the user wants; see `prepare` for what follows."""
        self.subscription = topics
        self._check_changes()

    def topics_changed(self, topics: Mapping[str, TopicShape], missing: frozenset[str]) -> None:
        """Assign if the metadata was missing, or join again if it has changed."""
        self._topics, self._missing = topics, missing
        leading = self._leading
        if leading is None:
            return
        if leading.has_assigned:
            self._check_changes()
        else:
            self._assign(leading)

    def prepare(self) -> None:
        """Add the step that comes before JoinGroup, if the member has to join."""
        state, steps = self._state, self._steps
        if (
            not state.needs_rejoin
            or state.is_prepared
            or self.subscription is None
            or not steps.is_empty
        ):
            return
        state.is_prepared = True
        self._leading = None
        owned = steps.assignment
        if not state.generation.is_valid:
            if owned:
                steps.add(StepKind.LOSE, owned)
        elif self._protocol is RebalanceProtocol.EAGER:
            steps.add(StepKind.REVOKE, owned)
        else:
            unwanted = {each for each in owned if each.topic not in self.subscription}
            if unwanted:
                steps.add(StepKind.REVOKE, unwanted)

    def next_request(self, now: float) -> GroupRequest | None:
        """SyncGroup or JoinGroup, if one is due."""
        node = self._coordinator.node
        if node is None or self._in_flight is not None or now < self._retry_at or self.error:
            return None
        state = self._state
        if self._sync is not None:
            request = self._requests.to_coordinator(self._sync, node)
        elif self._wants_to_join():
            assert self.subscription is not None, "without a subscription it does not join"
            state.member = MemberState.PREPARING_REBALANCE
            self._joined_subscription = self.subscription
            body = self._requests.join(
                state.generation,
                self.subscription,
                self._steps.assignment,
                assignors=tuple(self._assignors.values()),
                reason=state.reason,
            )
            request = self._requests.to_join(body, node)
        else:
            return None
        self._in_flight, self._sent = request, state.generation
        return request

    def next_deadline(self) -> float:
        """When `next_request` has one, if the coordinator is known."""
        if self._in_flight is not None or self.error is not None:
            return NEVER
        return self._retry_at if self._sync is not None or self._wants_to_join() else NEVER

    def put_back(self, request: GroupRequest) -> bool:
        """The request could not be sent; return whether it is one of these."""
        if request is not self._in_flight:
            return False
        self._in_flight = None
        return True

    def stop(self, reason: str, *, forgets_member: bool) -> None:
        """End the rebalance and the generation; an answer that comes later counts for nothing."""
        self._state.reset(reason, forgets_member=forgets_member)
        self._in_flight = self._sync = self._leading = None
        self._steps.drop()

    def coordinator_lost(self, now: float) -> None:
        """Begin the rebalance anew at the next coordinator, if one is under way."""
        if self._in_flight is not None and self._in_flight.node != self._coordinator.node:
            self._in_flight = None
            self._again("the coordinator was lost", now)

    def answered(self, request: GroupRequest, outcome: Message | NodeError, now: float) -> bool:
        """Handle an answer or an error; return whether the request is one of these."""
        if request is not self._in_flight:
            return False
        self._in_flight = None
        match outcome:
            case JoinGroupResponse():
                self._join_answered(outcome, request, now)
            case SyncGroupResponse():
                self._sync_answered(outcome, request, now)
            case RetriableError():
                self._coordinator.mark_unknown(request.node, now, why=str(outcome))
                self._again("the coordinator did not answer", now)
            case Exception():
                self.error = outcome
            case _:
                raise AssertionError(f"{type(outcome).__name__} answers no JoinGroup or SyncGroup")
        return True

    def _wants_to_join(self) -> bool:
        state = self._state
        return (
            state.needs_rejoin
            and state.is_prepared
            and self.may_join
            and self.subscription is not None
            and self._steps.is_empty
            and (self._leading is None or self._leading.has_assigned)
        )

    def _check_changes(self) -> None:
        """Have the member join again if what it joined with is no longer true."""
        state = self._state
        if (
            state.member is not MemberState.STABLE
            or state.needs_rejoin
            or self.subscription is None
        ):
            return
        if self.subscription != self._joined_subscription:
            state.request_rejoin("subscription has changed")
        elif self._leading is not None and self._leading.is_outdated(self._topics):
            state.request_rejoin("cached metadata has changed")

    def _again(self, reason: str, now: float) -> None:
        """Join again after a pause."""
        self._sync = self._leading = None
        self._retry_at = now + self._settings.retry_backoff_ms / 1000
        self._state.request_rejoin(reason)

    def _join_answered(self, answer: JoinGroupResponse, request: GroupRequest, now: float) -> None:
        state, code = self._state, answer.error_code
        if code == ErrorCode.NONE:
            self._joined(answer, now)
        elif code == ErrorCode.MEMBER_ID_REQUIRED and answer.member_id:
            state.generation = Generation(member_id=answer.member_id)
            state.request_rejoin("need to re-join with the given member-id")
        else:
            self._refused(code, request, now, during="JoinGroup")

    def _joined(self, answer: JoinGroupResponse, now: float) -> None:
        state = self._state
        if state.member is not MemberState.PREPARING_REBALANCE:
            self._again("rebalance failed because the member was reset meanwhile", now)
            return
        if answer.protocol_type not in {None, PROTOCOL_TYPE}:
            self._fail_inconsistent("JoinGroup")
            return
        assignor = self._assignors.get(answer.protocol_name or "")
        if assignor is None:
            self.error = GroupRefusedError(
                f"group {self._settings.group_id!r}: the coordinator has chosen the assignor "
                f"{answer.protocol_name!r}, which is not among partition.assignment.strategy of "
                f"this consumer: {', '.join(self._assignors)}",
                code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            )
            return
        state.joined(Generation(answer.generation_id, answer.member_id, assignor.name))
        if answer.leader != answer.member_id:
            self._leading = None
            self._sync = self._requests.sync(state.generation, ())
            return
        try:
            self._leading = Leading(answer, assignor, rack=self._settings.client_rack)
        except MalformedGroupDataError as error:
            self.error = error
            return
        self._assign(self._leading)

    def _assign(self, leading: Leading) -> None:
        """Assign the partitions if the metadata of all topics is there."""
        if leading.is_covered(self._topics, self._missing):
            assignments = leading.assign(self._topics)
            self._sync = self._requests.sync(self._state.generation, assignments)

    def _sync_answered(self, answer: SyncGroupResponse, request: GroupRequest, now: float) -> None:
        self._sync = None
        state = self._state
        if answer.error_code != ErrorCode.NONE:
            self._refused(answer.error_code, request, now, during="SyncGroup")
            return
        if answer.protocol_type not in {None, PROTOCOL_TYPE} or answer.protocol_name not in {
            None,
            state.generation.protocol,
        }:
            self._fail_inconsistent("SyncGroup")
            return
        try:
            assigned = decode_assignment(answer.assignment)
        except MalformedGroupDataError as error:
            self.error = error
            return
        state.synced()
        assert self.subscription is not None, "leaving ends a rebalance"
        if any(each.topic not in self.subscription for each in assigned):
            state.request_rejoin("received assignment does not match the current subscription")
            return
        owned = self._steps.assignment
        if self._protocol is RebalanceProtocol.COOPERATIVE and owned - assigned:
            self._steps.add(StepKind.REVOKE, owned - assigned)
            state.request_rejoin("need to revoke partitions and re-join")
        self._assignors[state.generation.protocol].assigned(sorted(assigned), state.generation.id)
        self._steps.add(StepKind.ASSIGN, assigned - owned)
        self._check_changes()

    def _refused(self, code: int, request: GroupRequest, now: float, *, during: str) -> None:
        """Act upon an error code: join again, with or without the member id, or fail."""
        reason = f"rebalance failed due to {error_words(code)}"
        if code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}:
            if self._sent == self._state.generation:
                self.stop(reason, forgets_member=code == ErrorCode.UNKNOWN_MEMBER_ID)
            else:
                self._state.request_rejoin(reason)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._leading = None
            self._state.request_rejoin(reason)
        elif code in _RELOCATED:
            self._coordinator.mark_unknown(request.node, now, why=error_words(code))
            self._again(reason, now)
        elif code not in _FATAL and is_retriable(code):
            self._again(reason, now)
        else:
            self.error = refusal(code, group_id=self._settings.group_id, during=during)

    def _fail_inconsistent(self, during: str) -> None:
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        self.error = refusal(code, group_id=self._settings.group_id, during=during)
