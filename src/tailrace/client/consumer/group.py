"""`ConsumerGroup`: a consumer's group: its membership, its commits, and the committed offsets.

It connects the state machines of `membership` with the consumer's nodes, metadata and positions.
The steps of a rebalance are carried out in `reading_calls`, on the caller's thread or task.

Invariant: partitions that are being revoked or lost return no records, and those that are being
assigned have no position before the hook of the caller has run, unless it sets one. A partition
gets its committed offset only if it still waits for it.
"""

import logging
import random
import re
from collections.abc import Callable, Collection, Mapping

from tailrace.client.cluster_metadata import NOBODY
from tailrace.client.consumer.config import ConsumerConfig
from tailrace.client.consumer.errors import WaitingErrors
from tailrace.client.consumer.handling import Handling, Offsets
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
from tailrace.client.consumer.membership.commits import FetchedOffsets
from tailrace.client.consumer.membership.interface import NEVER
from tailrace.client.consumer.metadata import ConsumerMetadata, describe_silence, replica_racks
from tailrace.client.consumer.subscription import (
    Assigned,
    Kind,
    Phase,
    Position,
    SubscriptionState,
)
from tailrace.client.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from tailrace.client.nodes import (
    ConnectionPool,
    Node,
    NodeError,
    RequestOutcome,
    UnsupportedVersionError,
)
from tailrace.client.pending import Pending
from tailrace.errors import RetriableError
from tailrace.model import INTERNAL_TOPICS, TopicPartition
from tailrace.protocol.apis import api_of
from tailrace.protocol.fields import NO_UUID

log = logging.getLogger(__name__)


class ConsumerGroup:
    """The group of one consumer; times are monotonic seconds."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        subscription: SubscriptionState,
        metadata: ConsumerMetadata,
        nodes: ConnectionPool,
        errors: WaitingErrors,
        chance: random.Random,
        clock: Callable[[], float],
        handling: Handling,
        any_node: Callable[[float], Node | None],
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._nodes = nodes
        self._errors = errors
        self._clock = clock
        self._any_node = any_node
        self._coordinator = coordinator = GroupCoordinator(config, chance=chance)
        self.member: Membership = (
            ConsumerMembership(config, coordinator, chance=chance)
            if config.group_protocol == "consumer"
            else ClassicMembership(config, coordinator, chance=chance)
        )
        # For `assign` with a group.id, which commits and is no member.
        self._outsider = NoMembership(config.group)
        self._commits = Commits(config, coordinator, self._outsider, chance=chance)
        self._auto_commit = AutoCommit(config, clock())
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
        self._look_at = 0.0
        """When to look again whether an iteration progresses, while a commit is due."""
        self._asked: dict[TopicPartition, int] = {}
        """Partitions whose committed offsets are fetched, with the versions of their states."""
        self._ask_at = NEVER
        """When to ask again about the partitions of which committed offsets were refused."""
        self._without: dict[TopicPartition, int] = {}
        """Partitions that turned out to have no committed offset, with the versions of their
        states: one that comes back later may have got one."""

    # -- what the caller sees ------------------------------------------------------------------

    @property
    def error(self) -> Exception | None:
        return self.member.error if self._subscription.is_by_group else None

    @property
    def is_idle(self) -> bool:
        """Whether neither a commit nor leaving waits for the coordinator."""
        return self.member.is_left and self._commits.is_idle

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
        """Join, or change what the member subscribes to; `assign` needs no membership."""
        subscription = self._subscription
        is_by_group = subscription.is_by_group
        # A consumer that assigns partitions itself commits without a member id.
        self._commits.membership = self.member if is_by_group else self._outsider
        self._matched = None
        match subscription.kind:
            case Kind.TOPICS:
                self.member.subscribe(subscription.topics, None, now)
            case Kind.PATTERN if self._is_pattern_of_broker:
                self.member.subscribe(None, str(subscription.pattern), now)
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
        self.member.topics_changed(shapes, missing, now)
        self._want()

    def polled(self, now: float) -> None:
        """The caller polls: it is alive, and has handled what was returned."""
        if self._subscription.is_by_group:
            self.member.polled(now)
        if self._auto_commit.is_due(now):
            self._commit_by_itself(self._handling.handled(), now)

    def reads_on(self, now: float) -> None:
        """The caller is alive, and has not been given anything new to handle."""
        if self._subscription.is_by_group:
            self.member.polled(now)

    def check_progress(self, now: float) -> None:
        """Note what an iteration has done since the last poll: the caller is alive.

        So it is while it waits for records, however long: as each turn of Kafka's poll does.
        """
        if self._handling.is_waiting:
            self.reads_on(now)
        taken_at = self._handling.taken_at
        if taken_at > self._taken_at:
            self._taken_at = taken_at
            if self._subscription.is_by_group:
                self.member.polled(taken_at)
        # The caller need not poll for a commit: a loop over many records would commit too late.
        if self._auto_commit.is_due(now) and now >= self._look_at:
            offsets = self._handling.progress()
            if offsets is not None:
                self._commit_by_itself(offsets, now)
            else:
                # The next poll is to commit. An iteration continues without being heard of here.
                self._look_at = now + self._config.auto_commit_interval_ms / 1000

    # -- steps of a rebalance ------------------------------------------------------------------

    def begin_step(self, step: RebalanceStep) -> None:
        """Have partitions return no records any more, or be there for the hook."""
        subscription = self._subscription
        if step.kind is StepKind.ASSIGN:
            self.is_assigning = True
            self._ask_at = NEVER  # Nothing is asked before the hook has run.
            # Before the hook, which may seek in them or pause them.
            subscription.take_over([*subscription.assigned, *step.partitions])
        else:
            for each in step.partitions:
                if each in subscription.assigned:
                    # No more records before the hook commits, or others would read them twice.
                    subscription.assigned[each].is_revoking = True

    def step_done(self, step: RebalanceStep, now: float) -> None:
        """The hook has run: drop positions, or fetch the committed offsets."""
        subscription = self._subscription
        if step.kind is StepKind.ASSIGN:
            self.is_assigning = False
            # There is nothing to commit of new partitions yet.
            self._auto_commit.restart(now)
        else:
            gone = set(step.partitions)
            subscription.take_over([each for each in subscription.assigned if each not in gone])
        self.member.step_done(step, now)
        self._want()

    # -- committed offsets ---------------------------------------------------------------------

    def without_offsets(self, states: Collection[Assigned]) -> list[Assigned]:
        """Fetch the committed offsets of partitions; returns those that turned out to have none.

        They are asked for until there is an answer, however long the coordinator is away: a `poll`
        waits for them as it does for records.
        """
        found = [each for each in states if self._without.get(each.partition) == each.version]
        self._without.clear()
        now = self._clock()
        self._ask_at = min((each.retry_at for each in states if each.retry_at > now), default=NEVER)
        missing = {
            each.partition: each.version
            for each in states
            if each not in found and each.partition not in self._asked and each.retry_at <= now
        }
        if missing:
            self._asked |= missing
            self._commits.fetch(
                missing,
                done=lambda outcome: self._begin_at_committed(missing, outcome),
                deadline=NEVER,
            )
        return found

    def commit(self, offsets: Offsets, *, deadline: float, is_last: bool = False) -> Pending[None]:
        """Store offsets; with `is_last`, before partitions go to others."""
        pending: Pending[None] = Pending()

        def settle(error: Exception | None) -> None:
            if error is None:
                self._note_stored(offsets)
                pending.settle(None)
            else:
                pending.fail(error)

        self._commits.commit(offsets, done=settle, deadline=deadline, is_before_revocation=is_last)
        return pending

    def commit_handled(self, *, deadline: float) -> Pending[None]:
        """Store the offsets after handled records, before partitions go away.

        Those that were stored last are left out, so that a consumer with nothing to commit need
        not wait for a coordinator that is away.
        """
        assigned = self._subscription.assigned
        handled = self._handling.handled()
        # The coordinator may be away, and the rebalance would wait for it.
        offsets = {each: at for each, at in handled.items() if assigned[each].stored != at}
        if offsets:
            return self.commit(offsets, deadline=deadline, is_last=True)
        pending: Pending[None] = Pending()
        pending.settle(None)
        return pending

    def commit_given_up(self, offsets: Offsets, now: float) -> None:
        """Store the positions of partitions that `assign` gives up; a failure is logged."""
        deadline = now + self._config.default_api_timeout_ms / 1000

        def done(error: Exception | None) -> None:
            if error is not None:
                log.warning(
                    "commit_failed group=%s partitions=%s reason=%s",
                    self._config.group_id,
                    ",".join(map(str, offsets)),
                    error,
                )

        self._commits.commit(offsets, done=done, deadline=deadline)

    def committed(
        self, partitions: Collection[TopicPartition], *, deadline: float
    ) -> Pending[Mapping[TopicPartition, OffsetAndMetadata | None]]:
        pending: Pending[Mapping[TopicPartition, OffsetAndMetadata | None]] = Pending()

        def settle(outcome: FetchedOffsets | Exception) -> None:
            if isinstance(outcome, Exception):
                pending.fail(outcome)
            else:
                pending.settle(
                    {
                        each: None if found is None else OffsetAndMetadata(*found)
                        for each, found in outcome.items()
                    }
                )

        self._commits.fetch(partitions, done=settle, deadline=deadline)
        return pending

    def _note_stored(self, offsets: Offsets) -> None:
        for each, at in offsets.items():
            if each in self._subscription.assigned:
                self._subscription.assigned[each].stored = at

    def _begin_at_committed(
        self, asked: Mapping[TopicPartition, int], outcome: FetchedOffsets | Exception
    ) -> None:
        """Give partitions the positions that the group has stored."""
        for each in asked:
            self._asked.pop(each, None)
        if isinstance(outcome, Exception):
            self._errors.add(outcome, is_true=lambda: any(map(self._waits, asked, asked.values())))
            # Whatever the refusal was, it would be the same at once.
            for each in asked:
                if self._waits(each, asked[each]):
                    pause_s = self._config.retry_backoff_ms / 1000
                    self._subscription.assigned[each].retry_at = self._clock() + pause_s
            return
        for each, offset in outcome.items():
            state = self._subscription.current(each, asked[each])
            if state is None or not self._waits(each, state.version):
                continue
            if offset is None:
                self._without[each] = state.version
            else:
                leader = self._metadata.leader(each) or NOBODY
                state.seek_unvalidated(Position(offset.offset, offset.leader_epoch, leader))
                state.stored = OffsetAndMetadata(offset.offset, offset.leader_epoch)

    def _waits(self, partition: TopicPartition, version: int) -> bool:
        """Whether a partition still waits for its committed offset, as it did when it was asked."""
        state = self._subscription.current(partition, version)
        return state is not None and state.phase is Phase.INITIALIZING

    def _commit_by_itself(self, offsets: Offsets, now: float) -> None:
        def done(error: Exception | None) -> None:
            if error is None:
                self._note_stored(offsets)
            elif not isinstance(error, RetriableError):
                # No call of the program gets it, and the next commit would fail as this one.
                log.warning("commit_failed group=%s reason=%s", self._config.group_id, error)
            self._auto_commit.finished(error, self._clock())

        self._auto_commit.started(now)
        self._commits.commit(offsets, done=done, deadline=None)

    def close(self, error: Exception) -> None:
        """Fail commits that have no outcome."""
        self._commits.close(error)

    # -- requests ------------------------------------------------------------------------------

    def send(self, now: float) -> None:
        if self.member.wish != self._last_wish:
            self._want()
        self._is_waiting = False
        for source in (self.member, self._commits):
            while (request := source.next_request(now)) is not None:
                if not self._send_one(source, request, now):
                    self._is_waiting = True
                    break

    def next_deadline(self, now: float) -> float:
        """When `send` has to be called again."""
        due = min(
            self.member.next_deadline(now),
            self._commits.next_deadline(now),
            max(self._auto_commit.next_deadline(), self._look_at),
            self._ask_at,
        )
        if self._is_waiting:
            # `nodes` tells of the connection. Without a pause this would be a busy loop.
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

        def done(outcome: RequestOutcome) -> None:
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
        self._nodes.send(node.id, request.body, now=now, done=done, timeout_ms=request.timeout_ms)
        return True

    # -- internal ------------------------------------------------------------------------------

    @property
    def _is_pattern_of_broker(self) -> bool:
        # A compiled pattern is in Python's syntax, which the broker's RE2 does not have.
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
        # Each refresh comes by here, and a rebalance is dear.
        if topics != self._matched:
            self._matched = self._subscription.topics = topics
            self.member.subscribe(topics, None, now)

    def _want(self) -> None:
        """Have the metadata that the membership needs."""
        wish = self.member.wish
        pattern = None
        if self._subscription.kind is Kind.PATTERN and not self._is_pattern_of_broker:
            pattern = re.compile(self._subscription.pattern or "")
        self._metadata.want(
            self._subscription.topics_in_use() | wish.names, ids=wish.ids, pattern=pattern
        )
        if wish.is_urgent:
            self._metadata.request_update(is_urgent=wish != self._last_wish)
        self._last_wish = wish
