"""`OffsetLookups`: what a consumer asks the leaders of partitions about their offsets.

    resets         ListOffsets for partitions that have no position
    validations    OffsetForLeaderEpoch for positions that an older leader gave (KIP-320)
    queries        ListOffsets for a caller: the ends of logs, offsets for times

Not here: committed offsets, which the group's coordinator has.

Invariant: an answer changes a position only if the partition still waits for it (`version`).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from tailrace.client.cluster_metadata import NO_NODE, Leader
from tailrace.client.consumer.config import ConsumerConfig
from tailrace.client.consumer.errors import (
    LogTruncationError,
    TopicAuthorizationError,
    WaitingErrors,
    consumer_error,
)
from tailrace.client.consumer.metadata import ConsumerMetadata, describe_wait, topics_with
from tailrace.client.consumer.records import OffsetAndTimestamp
from tailrace.client.consumer.subscription import (
    LATEST,
    NO_RESET,
    Assigned,
    Phase,
    Position,
    SubscriptionState,
)
from tailrace.client.errors import error_words
from tailrace.client.nodes import (
    ConnectionPool,
    DisconnectedError,
    Node,
    NodeError,
    RequestOutcome,
    UnsupportedVersionError,
)
from tailrace.client.pending import Pending
from tailrace.model import NO_LEADER_EPOCH, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tailrace.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_SECOND_CONNECTION: Final = 1 << 30
"""Added to a node's id: a connection beside the one on which a Fetch waits at the broker."""

_EPOCHS_SINCE: Final = 3
"""First version of OffsetForLeaderEpoch that needs no right to administer the cluster."""

_CONSUMER: Final = -1
"""The replica id of a consumer."""

Answers = Mapping[TopicPartition, OffsetAndTimestamp | None]


class OffsetQuery(Pending[dict[TopicPartition, OffsetAndTimestamp | None]]):
    """A caller's ListOffsets: a timestamp for each partition."""

    __slots__ = ("asked", "found", "retry_at", "timestamps")

    def __init__(self, timestamps: Mapping[TopicPartition, int]) -> None:
        super().__init__()
        self.timestamps = dict(timestamps)
        """Offsets that are not known yet."""
        self.asked: set[TopicPartition] = set()
        self.found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        self.retry_at = 0.0


class OffsetLookups:
    """The requests about offsets of one consumer; times are monotonic seconds."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        subscription: SubscriptionState,
        metadata: ConsumerMetadata,
        nodes: ConnectionPool,
        errors: WaitingErrors,
        clock: Callable[[], float],
        wall_ms: Callable[[], int],
        is_busy: Callable[[int], bool],
    ) -> None:
        """`is_busy` says whether a Fetch is under way at a node."""
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._nodes = nodes
        self._clock = clock
        self._wall_ms = wall_ms
        self._is_busy = is_busy
        self._errors = errors
        self._queries: list[OffsetQuery] = []
        self._wake_at = math.inf

    def ask(self, timestamps: Mapping[TopicPartition, int]) -> OffsetQuery:
        """Ask for offsets; the result has None where no record is as late as the time."""
        query = OffsetQuery(timestamps)
        if not timestamps:
            query.settle({})
            return query
        self._queries.append(query)
        for topic in {each.topic for each in timestamps}:
            self._metadata.add_guest(topic)
        return query

    def next_deadline(self) -> float:
        """When `send` has to be called again; it may be too early."""
        return self._wake_at

    def send(self, now: float) -> None:
        """Send what can be sent now."""
        self._wake_at = math.inf
        self._send_resets(now)
        self._send_validations(now)
        for query in list(self._queries):
            self._send_query(query, now)

    # -- resets --------------------------------------------------------------------------------

    def _send_resets(self, now: float) -> None:
        for node, states in self._by_leader(self._due(Phase.AWAIT_RESET, now), now):
            now_ms = self._wall_ms()
            timestamps = {
                each.partition: each.reset.timestamp(now_ms)
                for each in states
                if each.reset is not None
            }
            versions = {each.partition: each.version for each in states}
            for each in states:
                each.is_asked = True
            self._list_offsets(node, timestamps, now=now, done=partial(self._reset, versions))

    def _reset(self, asked: Mapping[TopicPartition, int], outcome: RequestOutcome) -> None:
        states = self._still(asked, Phase.AWAIT_RESET)
        if not isinstance(outcome, ListOffsetsResponse):
            self._failed(states.values(), outcome)
            return
        found, denied, _ = self._read_offsets(outcome, states.keys())
        for each, state in states.items():
            state.is_asked = False
            answer = found.get(each, _RETRY)
            if answer is None and state.reset is not None and state.reset.is_time:
                # No record is that young.
                state.await_reset(LATEST)
            elif answer is _RETRY or answer is None:
                self._postpone(state)
            else:
                self._metadata.update_leader(each, Leader(NO_NODE, answer.leader_epoch), None)
                leader = self._metadata.leader(each) or Leader(-1, -1)
                # No epoch: there is no record before it whose fate the leader could be asked about.
                state.seek(Position(answer.offset, NO_LEADER_EPOCH, leader))
        if denied:
            refused = {each: at for each, at in asked.items() if each.topic in denied}
            self._raise_soon(TopicAuthorizationError(denied), Phase.AWAIT_RESET, refused)

    # -- validations ---------------------------------------------------------------------------

    def _send_validations(self, now: float) -> None:
        due = []
        for state in self._due(Phase.AWAIT_VALIDATION, now):
            leader = self._metadata.leader(state.partition)
            assert state.position is not None, "a position is validated"
            topic_id = self._metadata.topic_id(state.partition.topic)
            # One that was made again begins with epoch 0, and its leader says where its log ends.
            is_same = None in {state.topic_id, topic_id} or state.topic_id == topic_id
            if is_same and leader is not None and leader.epoch < state.position.epoch:
                # The metadata is older than the record: this leader may have been deposed.
                self._metadata.request_update()
                self._postpone(state)
            else:
                due.append(state)
        for node, states in self._by_leader(due, now):
            try:
                version = self._nodes.version_of(node.id, ApiKey.OFFSET_FOR_LEADER_EPOCH)
            except UnsupportedVersionError:
                version = -1
            if version < _EPOCHS_SINCE:
                # An old broker, or one that asks for the right to administer the cluster: Kafka's
                # consumer takes the position for valid, too.
                for state in states:
                    state.validated()
                continue
            topics: dict[str, list[OffsetForLeaderPartition]] = {}
            for state in states:
                position = state.position
                assert position is not None, "a position is validated"
                state.is_asked = True
                topics.setdefault(state.partition.topic, []).append(
                    OffsetForLeaderPartition(
                        partition=state.partition.partition,
                        current_leader_epoch=position.leader.epoch,
                        leader_epoch=position.epoch,
                    )
                )
            body = OffsetForLeaderEpochRequest(
                replica_id=_CONSUMER,
                topics=tuple(
                    OffsetForLeaderTopic(topic=topic, partitions=tuple(parts))
                    for topic, parts in topics.items()
                ),
            )
            versions = {each.partition: each.version for each in states}
            self._nodes.send(
                node.id,
                body,
                now=now,
                done=partial(self._validated, versions),
                timeout_ms=self._config.request_timeout_ms,
            )

    def _validated(self, asked: Mapping[TopicPartition, int], outcome: RequestOutcome) -> None:
        states = self._still(asked, Phase.AWAIT_VALIDATION)
        if not isinstance(outcome, OffsetForLeaderEpochResponse):
            self._failed(states.values(), outcome)
            return
        answers = {
            TopicPartition(topic.topic, each.partition): each
            for topic in outcome.topics
            for each in topic.partitions
        }
        denied: set[str] = set()
        cut: dict[TopicPartition, int] = {}
        divergent: dict[TopicPartition, tuple[int, int] | None] = {}
        policy = self._subscription.default_reset
        for partition, state in states.items():
            state.is_asked = False
            answer, position = answers.get(partition), state.position
            assert position is not None, "a position was validated"
            if answer is None or answer.error_code:
                if answer is not None and answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    denied.add(partition.topic)
                else:
                    self._metadata.request_update()
                self._postpone(state)
                continue
            # The leader may know nothing of this epoch or of one before.
            is_known = answer.end_offset >= 0 and answer.leader_epoch >= 0
            if is_known and answer.end_offset >= position.offset:
                state.validated()
            elif policy.name == NO_RESET.name:
                # Without a policy the program decides, as it has seen records that are gone.
                cut[partition] = position.offset
                divergent[partition] = (
                    (answer.end_offset, answer.leader_epoch) if is_known else None
                )
                self._postpone(state)
            elif is_known:
                # Records from here on were replaced by others, which this consumer has not read.
                state.seek(Position(answer.end_offset, answer.leader_epoch, position.leader))
            else:
                state.await_reset(policy)
        if denied:
            error = TopicAuthorizationError(frozenset(denied))
            refused = {each: at for each, at in asked.items() if each.topic in denied}
            self._raise_soon(error, Phase.AWAIT_VALIDATION, refused)
        if cut:
            lost = {each: asked[each] for each in cut}
            self._raise_soon(LogTruncationError(cut, divergent), Phase.AWAIT_VALIDATION, lost)

    # -- queries -------------------------------------------------------------------------------

    def _send_query(self, query: OffsetQuery, now: float) -> None:
        if query.is_abandoned or query.is_done:
            self._end(query)
            return
        if now < query.retry_at:
            self._wake_at = min(self._wake_at, query.retry_at)
            return
        by_node: dict[int, dict[TopicPartition, int]] = {}
        for each, timestamp in query.timestamps.items():
            if each in query.asked:
                continue
            leader = self._leader_of(each)
            if leader is None:
                query.reason = describe_wait(
                    self._metadata, self._nodes, each.topic, partition=each.partition
                )
                denied = topics_with(self._metadata, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if each.topic in denied:
                    query.fail(TopicAuthorizationError(frozenset({each.topic})))
                    self._end(query)
                    return
            else:
                by_node.setdefault(leader.node_id, {})[each] = timestamp
        for node_id, timestamps in by_node.items():
            node = self._ready(node_id, now)
            if node is None:
                continue
            # Leaders are asked at the same time, each about its partitions.
            query.asked |= timestamps.keys()
            self._list_offsets(
                node, timestamps, now=now, done=partial(self._answered, query, timestamps)
            )

    def _answered(
        self, query: OffsetQuery, asked: Mapping[TopicPartition, int], outcome: RequestOutcome
    ) -> None:
        query.asked -= asked.keys()
        pause_s = self._config.retry_backoff_ms / 1000
        if not isinstance(outcome, ListOffsetsResponse):
            query.retry_at = self._clock() + pause_s
            query.reason = str(outcome)
            if isinstance(outcome, DisconnectedError):
                self._metadata.request_update()
            elif isinstance(outcome, NodeError):
                query.fail(consumer_error(outcome))
            return
        found, denied, refused = self._read_offsets(outcome, asked.keys())
        if denied:
            query.fail(TopicAuthorizationError(denied))
            return
        for each, answer in found.items():
            if each in query.timestamps:
                del query.timestamps[each]
                query.found[each] = answer
        # The other leaders' answers are kept; only what is missing is asked for again.
        if asked.keys() - found.keys():
            query.reason = "a leader refused: " + ", ".join(
                f"{each}: {why}" for each, why in refused.items()
            )
            query.retry_at = self._clock() + pause_s
        if not query.timestamps:
            query.settle(query.found)

    def _end(self, query: OffsetQuery) -> None:
        self._queries.remove(query)
        for topic in {each.topic for each in (*query.timestamps, *query.found)}:
            self._metadata.remove_guest(topic)

    # -- shared --------------------------------------------------------------------------------

    def _due(self, phase: Phase, now: float) -> Iterable[Assigned]:
        for state in self._subscription.in_phase(phase):
            if state.is_asked:
                continue
            if now < state.retry_at:
                self._wake_at = min(self._wake_at, state.retry_at)
            else:
                yield state

    def _by_leader(
        self, states: Iterable[Assigned], now: float
    ) -> Iterator[tuple[Node, list[Assigned]]]:
        """The leaders that can be asked now, with their partitions; followers would refuse."""
        by_node: dict[int, list[Assigned]] = {}
        for state in states:
            leader = self._leader_of(state.partition)
            if leader is not None:
                by_node.setdefault(leader.node_id, []).append(state)
        for node_id, found in by_node.items():
            node = self._ready(node_id, now)
            if node is not None:
                yield node, found

    def _leader_of(self, partition: TopicPartition) -> Leader | None:
        leader = self._metadata.leader(partition)
        if leader is None:
            self._metadata.request_update()
        return leader

    def _ready(self, node_id: int, now: float) -> Node | None:
        """The node if a request can be sent now, on a connection that no Fetch occupies."""
        node = self._metadata.node(node_id)
        if node is None:
            return None
        # A broker answers the requests of a connection in their order, and holds a Fetch for up to
        # `fetch.max.wait.ms`.
        if self._is_busy(node_id):
            node = node._replace(id=node_id + _SECOND_CONNECTION)
        return node if self._nodes.connect(node, now) else None

    def _list_offsets(
        self,
        node: Node,
        timestamps: Mapping[TopicPartition, int],
        *,
        now: float,
        done: Callable[[RequestOutcome], None],
    ) -> None:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for each, timestamp in timestamps.items():
            leader = self._metadata.leader(each)
            topics.setdefault(each.topic, []).append(
                ListOffsetsPartition(
                    partition_index=each.partition,
                    current_leader_epoch=NO_LEADER_EPOCH if leader is None else leader.epoch,
                    timestamp=timestamp,
                )
            )
        body = ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=self._config.isolation_level,
            topics=tuple(
                ListOffsetsTopic(name=topic, partitions=tuple(parts))
                for topic, parts in topics.items()
            ),
            timeout_ms=self._config.request_timeout_ms,
        )
        self._nodes.send(
            node.id, body, now=now, done=done, timeout_ms=self._config.request_timeout_ms
        )

    def _read_offsets(
        self, answer: ListOffsetsResponse, asked: Iterable[TopicPartition]
    ) -> tuple[
        dict[TopicPartition, OffsetAndTimestamp | None], frozenset[str], dict[TopicPartition, str]
    ]:
        """Offsets by partition, None for no record; topics that may not be read; other refusals.

        A partition that is missing has to be asked for again.
        """
        # An answer may have other partitions than the request; these are ignored.
        wanted = set(asked)
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        denied: set[str] = set()
        refused: dict[TopicPartition, str] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                if partition not in wanted:
                    continue
                match each.error_code:
                    case 0:
                        found[partition] = (
                            OffsetAndTimestamp(each.offset, each.timestamp, each.leader_epoch)
                            if each.offset >= 0
                            else None
                        )
                    # A log of Kafka 0.9, without times: Kafka's client says that there is no
                    # record, too.
                    case ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                        found[partition] = None
                    case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                        denied.add(topic.name)
                    case code:
                        refused[partition] = error_words(code)
                        self._metadata.request_update()
        return found, frozenset(denied), refused

    def _still(
        self, asked: Mapping[TopicPartition, int], phase: Phase
    ) -> dict[TopicPartition, Assigned]:
        """The partitions that still wait for this answer."""
        found = {}
        for each, version in asked.items():
            state = self._subscription.current(each, version)
            if state is not None and state.phase is phase:
                found[each] = state
        return found

    def _failed(self, states: Iterable[Assigned], outcome: RequestOutcome) -> None:
        """Ask again later, after a failure of the connection."""
        for state in states:
            state.is_asked = False
            self._postpone(state)
        if isinstance(outcome, DisconnectedError):
            self._metadata.request_update()
        elif isinstance(outcome, NodeError):
            self._errors.add(consumer_error(outcome))

    def _raise_soon(
        self, error: Exception, phase: Phase, asked: Mapping[TopicPartition, int]
    ) -> None:
        """Have a call raise an error, unless the program has moved on from all partitions."""
        self._errors.add(error, is_true=lambda: bool(self._still(asked, phase)))

    def _postpone(self, state: Assigned) -> None:
        state.retry_at = self._clock() + self._config.retry_backoff_ms / 1000


_RETRY: Final = OffsetAndTimestamp(-1, -1)
"""Marks a partition without an answer."""
