"""`GroupWork`: the part of a consumer that is about its group: membership, commits, offsets.

It connects the state machines of `membership` with the consumer's nodes, metadata and positions.
The steps of a rebalance are carried out in `base_consumer`, on the caller's thread or task.

Invariant: partitions that are being revoked or lost return no records, and those that are being
assigned have no position before the hook of the caller has run, unless it sets one.
"""

import random
import re
from collections.abc import Callable

from tailrace.client.consumer.config import ConsumerConfig
from tailrace.client.consumer.explanations import describe_silence
from tailrace.client.consumer.group_offsets import GroupOffsets
from tailrace.client.consumer.handling import Handling
from tailrace.client.consumer.membership import (
    AutoCommit,
    ClassicMembership,
    Commits,
    ConsumerMembership,
    GroupCoordinator,
    GroupRequest,
    Membership,
    MetadataWish,
    NoMembership,
    RebalanceStep,
    RequestSource,
    StepKind,
    TopicShape,
)
from tailrace.client.consumer.metadata import ConsumerMetadata, replica_racks
from tailrace.client.consumer.subscription import (
    Kind,
    SubscriptionState,
)
from tailrace.client.group_offsets import ConsumerGroupMetadata
from tailrace.client.nodes import (
    ConnectionPool,
    Node,
    NodeError,
    RequestOutcome,
    UnsupportedVersionError,
)
from tailrace.model import INTERNAL_TOPICS
from tailrace.protocol.apis import api_of
from tailrace.protocol.fields import NO_UUID


class GroupWork:
    """The group of one consumer; times are monotonic seconds."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        subscription: SubscriptionState,
        metadata: ConsumerMetadata,
        nodes: ConnectionPool,
        chance: random.Random,
        clock: Callable[[], float],
        handling: Handling,
        any_node: Callable[[float], Node | None],
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._nodes = nodes
        self._clock = clock
        self._any_node = any_node
        self._coordinator = coordinator = GroupCoordinator(config, chance=chance)
        self._member: Membership = (
            ConsumerMembership(config, coordinator, chance=chance)
            if config.group_protocol == "consumer"
            else ClassicMembership(config, coordinator, chance=chance)
        )
        self._outsider = NoMembership(config.group)
        self._commits = Commits(config, coordinator, self._outsider, chance=chance)
        self._auto_commit = AutoCommit(config, clock())
        self.offsets = GroupOffsets(
            self._commits,
            self._auto_commit,
            config=config,
            subscription=subscription,
            metadata=metadata,
            clock=clock,
            handling=handling,
        )
        self._handling = handling
        self.is_assigning = False
        """Whether the hook for new partitions is running, which may set their positions."""
        self._matched: frozenset[str] | None = None
        """The topics that the present pattern matched last."""
        self._last_wish = MetadataWish()
        self._taken_at = 0.0
        """When an iteration took the record that the membership knows of."""
        self._is_waiting = False
        """Whether a request was due and had no connection at the last `send`."""

    # -- what the caller sees -----------------------------------------------------------------

    @property
    def error(self) -> Exception | None:
        """Why the consumer cannot be a member; None if it can."""
        return self._member.error if self._subscription.is_by_group else None

    @property
    def has_news(self) -> bool:
        """Whether the caller's thread has a step to do."""
        return self._member.next_step() is not None

    @property
    def has_left(self) -> bool:
        """Whether the consumer is no member, and the coordinator knows."""
        return self._member.is_left

    @property
    def is_idle(self) -> bool:
        """Whether neither a commit nor leaving waits for the coordinator."""
        return self._member.is_left and self._commits.is_idle

    @property
    def commits_by_itself(self) -> bool:
        """Whether offsets are committed without a call of `commit`."""
        return self._config.enable_auto_commit

    @property
    def producer_metadata(self) -> ConsumerGroupMetadata:
        """The group and the member, for offsets in a transaction."""
        group_id, member_id, generation, instance_id = self._commits.membership.identity
        return ConsumerGroupMetadata(group_id, generation, member_id, instance_id)

    def subscription_changed(self, now: float) -> None:
        """Join, or subscribe anew; assigning partitions needs no membership."""
        subscription = self._subscription
        is_by_group = subscription.is_by_group
        self._commits.membership = self._member if is_by_group else self._outsider
        self._matched = None
        match subscription.kind:
            case Kind.TOPICS:
                self._member.subscribe(subscription.topics, None, now)
            case Kind.PATTERN if self._is_pattern_of_broker:
                self._member.subscribe(None, str(subscription.pattern), now)
            case Kind.PATTERN:
                self._match(now)
        self._want()

    def metadata_changed(self, now: float) -> None:
        """Match the pattern, and tell the membership which topics there are."""
        if not self._subscription.is_by_group:
            return
        if self._subscription.kind is Kind.PATTERN and not self._is_pattern_of_broker:
            self._match(now)
        shapes = {
            name: TopicShape(each.topic_id or NO_UUID, replica_racks(self._metadata, each))
            for name, each in self._metadata.topics.items()
            if not each.error
        }
        missing = frozenset(name for name, each in self._metadata.topics.items() if each.error)
        self._member.topics_changed(shapes, missing, now)
        self._want()

    def polled(self, now: float) -> None:
        """The caller polls: it is alive, and has handled what was returned."""
        if self._subscription.is_by_group:
            self._member.polled(now)
        self.offsets.polled(now)

    def check_progress(self, now: float) -> None:
        """Note what an iteration has done since the last poll: the caller is alive."""
        taken_at = self._handling.taken_at
        if taken_at > self._taken_at:
            self._taken_at = taken_at
            if self._subscription.is_by_group:
                self._member.polled(taken_at)
        self.offsets.commit_progress(now)

    def request_rejoin(self, reason: str, now: float) -> None:
        """Have the group rebalance."""
        self._member.request_rejoin(reason, now)

    def leave(self, reason: str, now: float) -> None:
        """Leave the group; steps to revoke what is assigned come first."""
        self._member.leave(reason, now)

    # -- steps of a rebalance -----------------------------------------------------------------

    def next_step(self) -> RebalanceStep | None:
        """The step that the caller's thread has to do now."""
        return self._member.next_step()

    def begin_step(self, step: RebalanceStep) -> None:
        """Have partitions return no records any more, or be there for the hook."""
        subscription = self._subscription
        if step.kind is StepKind.ASSIGN:
            self.is_assigning = True
            subscription.take_over([*subscription.assigned, *step.partitions])
        else:
            for each in step.partitions:
                if each in subscription.assigned:
                    subscription.assigned[each].is_revoking = True

    def step_done(self, step: RebalanceStep, now: float) -> None:
        """The hook has run: drop positions, or fetch the committed offsets."""
        subscription = self._subscription
        if step.kind is StepKind.ASSIGN:
            self.is_assigning = False
            self._auto_commit.restart(now)
        else:
            gone = set(step.partitions)
            subscription.take_over([each for each in subscription.assigned if each not in gone])
        self._member.step_done(step, now)
        self._want()

    # -- requests -----------------------------------------------------------------------------

    def send(self, now: float) -> None:
        """Send what the membership and the commits have to send."""
        if self._member.wish != self._last_wish:
            self._want()
        self._is_waiting = False
        for source in (self._member, self._commits):
            while (request := source.next_request(now)) is not None:
                if not self._send_one(source, request, now):
                    self._is_waiting = True
                    break

    def next_deadline(self, now: float) -> float:
        """When `send` has to be called again."""
        due = min(
            self._member.next_deadline(now),
            self._commits.next_deadline(now),
            self.offsets.next_deadline(),
        )
        if self._is_waiting:
            # `nodes` tells of the connection. To look at once again would be a loop without end.
            return max(due, now + self._config.retry_backoff_ms / 1000)
        return due

    def _send_one(self, source: RequestSource, request: GroupRequest, now: float) -> bool:
        """Whether the request was sent, or has failed; else it was put back."""
        node = request.node or self._any_node(now)
        if node is None:
            if self._nodes.failure_of_any(self._metadata.nodes) is not None:
                self._coordinator.unreachable(describe_silence(self._metadata, self._nodes))
            source.put_back(request, now)
            return False
        if not self._nodes.connect(node, now):
            failure = self._nodes.failure(node.id)
            # It is in the pause after a failure, and not connecting again.
            if failure is not None and self._nodes.least_loaded((node,), now) is None:
                source.answered(request, failure, now)
                return True
            source.put_back(request, now)
            return False

        def take(outcome: RequestOutcome) -> None:
            assert outcome is not None, "every request of a group has an answer"
            source.answered(request, outcome, self._clock())

        try:
            version = self._nodes.version_of(node.id, api_of(type(request.body)).key)
            if version < request.first_version:
                raise UnsupportedVersionError(
                    f"{node} takes {api_of(type(request.body)).key.title} up to version {version}; "
                    f"{request.first_version} is needed"
                )
        except NodeError as error:
            source.answered(request, error, now)
            return True
        self._nodes.send(node.id, request.body, now=now, done=take, timeout_ms=request.timeout_ms)
        return True

    # -- internal -----------------------------------------------------------------------------

    @property
    def _is_pattern_of_broker(self) -> bool:
        is_text = isinstance(self._subscription.pattern, str)
        return is_text and self._config.group_protocol == "consumer"

    def _match(self, now: float) -> None:
        """Subscribe to the topics that the pattern matches."""
        pattern = re.compile(self._subscription.pattern or "")
        topics = frozenset(
            name
            for name, each in self._metadata.topics.items()
            if pattern.fullmatch(name)
            and not each.error
            and not (
                self._config.exclude_internal_topics
                and (each.is_internal or name in INTERNAL_TOPICS)
            )
        )
        if topics != self._matched:
            self._matched = self._subscription.topics = topics
            self._member.subscribe(topics, None, now)

    def _want(self) -> None:
        """Have the metadata that the membership needs."""
        wish = self._member.wish
        pattern = None
        if self._subscription.kind is Kind.PATTERN and not self._is_pattern_of_broker:
            pattern = re.compile(self._subscription.pattern or "")
        self._metadata.want(
            self._subscription.topics_in_use() | wish.names, ids=wish.ids, pattern=pattern
        )
        if wish.is_urgent:
            self._metadata.request_update(is_urgent=wish != self._last_wish)
        self._last_wish = wish
