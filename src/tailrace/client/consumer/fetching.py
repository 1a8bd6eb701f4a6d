"""`Fetches`: one Fetch request under way at each broker, for all partitions that need records.

    fetch_offset of each partition -> request to its leader (or a close follower, KIP-392)
    answer -> `FetchedPart`s of the partitions -> `records` or `columns` for the caller

A partition is fetched ahead while it has fewer than `PARTS_MAX` answers that were not returned yet,
so that a broker works while the caller does. No request goes to a broker while a partition of it is
full: it would wait up to `fetch.max.wait.ms` at the broker without that partition (KAFKA-17182).

A large answer costs less for each of its bytes. The partitions of a broker share one that has
`max.partition.fetch.bytes`, as long as each gets a mebibyte (decision 50).

Invariant: what was received from a broker and not returned, with what is asked for, has at most
`fetch.max.bytes` for each broker, and one batch more; a batch that is larger is fetched alone. A
position moves only past records that are returned, or that are left out for good: markers, aborted
transactions, gaps. An error is raised only if nothing is returned with it.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.client.cluster_metadata import NO_NODE, Leader
from tailrace.client.consumer.config import ConsumerConfig
from tailrace.client.consumer.errors import (
    BrokerRefusedError,
    PositionOutOfRangeError,
    TopicAuthorizationError,
    WaitingErrors,
    consumer_error,
    refusal,
)
from tailrace.client.consumer.fetched import FetchedPart, cut_records, take_rows
from tailrace.client.consumer.metadata import ConsumerMetadata, is_online
from tailrace.client.consumer.metrics import ConsumerMetrics
from tailrace.client.consumer.records import ConsumerRecord
from tailrace.client.consumer.subscription import Assigned, SubscriptionState
from tailrace.client.errors import error_words
from tailrace.client.fetch_session import FetchSession, SessionRequest, Wanted
from tailrace.client.nodes import ConnectionPool, DisconnectedError, Node, NodeError, RequestOutcome
from tailrace.model import IsolationLevel, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID, received_records
from tailrace.protocol.frames import FRAME_BYTES_MAX
from tailrace.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData

if TYPE_CHECKING:
    from tailrace.client.consumer.columns import Collector

log = logging.getLogger(__name__)

PARTS_MAX: Final = 2
"""Answers of one partition that wait for the caller; one more may be under way."""

PARTITION_BYTES_MIN: Final = 1 << 20
"""Bytes that each partition of a broker is asked for at least, when they share an answer."""

_NAMES_UNTIL = 12
"""Last version of Fetch that names topics; later ones have ids alone (KIP-516)."""

_LEADER_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors that newer metadata may end."""

# Metadata does not help: the broker knows less than this client, or says nothing.
_PASSING_ERRORS = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR})


class _Flight(NamedTuple):
    """A request that is under way."""

    node: Node
    session: SessionRequest
    asked: dict[TopicPartition, tuple[int, int]]
    """The version of each partition's state, and the offset."""


class Fetches:
    """The fetches of one consumer; times are monotonic seconds."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        subscription: SubscriptionState,
        metadata: ConsumerMetadata,
        nodes: ConnectionPool,
        metrics: ConsumerMetrics,
        errors: WaitingErrors,
        clock: Callable[[], float],
    ) -> None:
        """`errors` gets those of brokers as a whole."""
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._nodes = nodes
        self._metrics = metrics
        self._errors = errors
        self._clock = clock
        """The time of the engine's present poll."""
        self._sessions: dict[int, FetchSession] = {}
        self._in_flight: dict[int, _Flight] = {}
        self._retry_at: dict[int, float] = {}
        self._sizes: dict[TopicPartition, int] = {}
        """Bytes to ask for, where a batch did not fit in `max.partition.fetch.bytes`."""
        self.ready: dict[TopicPartition, None] = {}
        """The partitions that have parts, the one whose turn it is first."""
        self._targets: set[int] = set()
        self.needs_scan = True
        """Whether the next `send` looks at all partitions."""
        self._wake_at = math.inf

    def rescan(self) -> None:
        """Have the next `send` look at all partitions: something of them has changed."""
        self.needs_scan = True

    def has_flight(self, node_id: int) -> bool:
        """Whether a request is under way, which the broker may hold for `fetch.max.wait.ms`."""
        return node_id in self._in_flight

    def next_deadline(self) -> float:
        """When `send` has to be called again; it may be too early."""
        return 0.0 if self.needs_scan else self._wake_at

    def send(self, now: float) -> None:
        """Send a request to each broker that has none, if there is something to fetch there."""
        # Each turn of the driver comes by here, mostly without news.
        if not self.needs_scan and now < self._wake_at and self._targets <= self._in_flight.keys():
            return
        self.needs_scan = False
        self._wake_at = math.inf
        self._targets = set()
        wanted, held, full = self._gather(now)
        for node_id, states in wanted.items():
            node = self._metadata.node(node_id)
            if node_id in self._in_flight or node is None:
                continue
            self._targets.add(node_id)
            room = self._config.fetch_max_bytes - held.get(node_id, 0)
            retry_at = self._retry_at.get(node_id, 0.0)
            if now < retry_at:
                self._wake_at = min(self._wake_at, retry_at)
            elif node_id not in full and room > 0 and self._nodes.connect(node, now):
                self._send_to(node, states, room=room, now=now)
        if self._subscription.assigned:
            self._forget_idle(wanted.keys() | full, now)

    def close_sessions(self, now: float) -> None:
        """Tell the brokers that the sessions end, where that can be sent at once."""
        for node_id, session in self._sessions.items():
            closing = session.closing()
            if closing is not None and self._nodes.is_ready(node_id, now):
                self._transmit(node_id, closing, room=0, now=now, done=_nothing)
        self._sessions.clear()

    # -- requests ------------------------------------------------------------------------------

    def _gather(self, now: float) -> tuple[dict[int, list[Assigned]], dict[int, int], set[int]]:
        """The partitions to fetch by broker, bytes that are kept of it, and brokers to wait for."""
        wanted: dict[int, list[Assigned]] = {}
        held: dict[int, int] = {}
        full: set[int] = set()
        idle: list[Assigned] = []
        for state in self._subscription.assigned.values():
            for part in state.parts:
                # Everything that is kept counts, also of paused partitions.
                held[part.node_id] = held.get(part.node_id, 0) + part.size
            if not state.is_fetchable:
                if state.parts:
                    idle.append(state)
                continue
            # After an error nothing can be fetched before the caller has seen it.
            if state.parts and state.parts[-1].error is not None:
                continue
            if now < state.retry_at:
                self._wake_at = min(self._wake_at, state.retry_at)
                continue
            node_id = self._node_of(state, now)
            # One that has moved from a broker that hangs is not waited for: its answer comes late.
            if node_id is None or node_id == state.fetching_at:
                continue
            if len(state.parts) >= PARTS_MAX:
                full.add(node_id)
            else:
                wanted.setdefault(node_id, []).append(state)
        for state in idle:
            # What a paused partition keeps must not stop the others; it is fetched again later.
            if held.get(state.parts[0].node_id, 0) >= self._config.fetch_max_bytes // 2:
                state.drop_parts()
        return wanted, held, full

    def _node_of(self, state: Assigned, now: float) -> int | None:
        if state.preferred_replica != NO_NODE:
            if now < state.preferred_until:
                if is_online(self._metadata, state.partition, state.preferred_replica):
                    return state.preferred_replica
                self._metadata.request_update()
            state.preferred_replica = NO_NODE
        leader_id = self._leader_id(state.partition)
        if leader_id is None:
            self._metadata.request_update()
        return leader_id

    def _leader_id(self, partition: TopicPartition) -> int | None:
        leader = self._metadata.leader(partition)
        return None if leader is None else leader.node_id

    def _send_to(self, node: Node, states: list[Assigned], *, room: int, now: float) -> None:
        session = self._sessions.setdefault(node.id, FetchSession())
        size_max = self._config.max_partition_fetch_bytes
        # One answer of 4 MiB for one partition, or 1 MiB for each of four (decision 50).
        size = max(size_max // len(states), min(size_max, PARTITION_BYTES_MIN))
        wanted: dict[TopicPartition, Wanted] = {}
        # A request lists partitions below their topics, so that neighbours belong together.
        for state in sorted(states, key=lambda each: each.partition.topic):
            each = state.partition
            assert state.position is not None, "a fetchable partition has a position"
            state.topic_id = self._metadata.topic_id(each.topic)
            wanted[each] = Wanted(
                state.topic_id or NO_UUID,
                state.fetch_offset,
                state.position.leader.epoch,
                self._sizes.get(each, size),
            )
        plan = session.plan(wanted)
        by_partition = {each.partition: each for each in states}
        asked = {
            each: (by_partition[each].version, by_partition[each].fetch_offset)
            for each in plan.partitions
        }
        flight = _Flight(node, plan, asked)
        self._in_flight[node.id] = flight
        for state in states:
            state.fetching_at = node.id
        # A batch that did not fit is asked for with its whole size, or it would never come.
        room = max([room, *(self._sizes.get(each, 0) for each in wanted)])
        self._transmit(node.id, plan, room=room, now=now, done=partial(self._answered, flight))

    def _transmit(
        self,
        node_id: int,
        plan: SessionRequest,
        *,
        room: int,
        now: float,
        done: Callable[[RequestOutcome], None],
    ) -> None:
        config = self._config
        # The end of a session waits for no records.
        is_last = plan.session_epoch < 0
        body = FetchRequest(
            max_wait_ms=0 if is_last else config.fetch_max_wait_ms,
            min_bytes=0 if is_last else config.fetch_min_bytes,
            max_bytes=room or config.fetch_max_bytes,
            isolation_level=config.isolation_level,
            session_id=plan.session_id,
            session_epoch=plan.session_epoch,
            topics=plan.topics,
            forgotten_topics_data=plan.forgotten,
            rack_id=config.client_rack,
        )
        self._metrics.fetch_count += 1
        self._nodes.send(
            node_id,
            body,
            now=now,
            done=done,
            timeout_ms=config.request_timeout_ms,
            # One topic without an id is enough: a request has names or ids, not both (KIP-516).
            version_max=None if plan.has_ids else _NAMES_UNTIL,
        )

    def _forget_idle(self, needed: set[int], now: float) -> None:
        """Have brokers that have nothing to fetch forget the partitions, so that they free them."""
        for node_id in [each for each in self._sessions if each not in needed]:
            if node_id in self._in_flight or any(
                node_id in {state.preferred_replica, self._leader_id(each)}
                for each, state in self._subscription.assigned.items()
            ):
                continue
            closing = self._sessions.pop(node_id).closing()
            if closing is not None and self._nodes.is_ready(node_id, now):
                self._transmit(node_id, closing, room=0, now=now, done=_nothing)

    # -- the caller ----------------------------------------------------------------------------

    @property
    def has_some(self) -> bool:
        """Whether a partition that may be read has something to return or to raise."""
        assigned = self._subscription.assigned
        return any(
            assigned[each].is_fetchable and assigned[each].parts
            for each in self.ready
            if each in assigned
        )

    def records(self, count_max: int) -> list[list[ConsumerRecord]]:
        """The next records, `count_max` or fewer, by partitions; the positions move past them.

        Raises the error of the next records, if it is the first thing to tell.
        """
        found: list[list[ConsumerRecord]] = []
        left = count_max

        def take_part(state: Assigned, part: FetchedPart) -> bool:
            nonlocal left
            assert state.position is not None, "a fetchable partition has a position"
            rows = take_rows(part, state.position.offset, left)
            if rows is None:
                return False
            records, next_offset = rows
            state.read_to(next_offset, records[-1].leader_epoch)
            found.append(records)
            left -= len(records)
            return True

        self._take_parts(take_part, lambda: left > 0, lambda: bool(found))
        self._metrics.record_count += count_max - left
        return found

    def columns(self, collector: "Collector") -> None:
        """Put the next records into columns, until these are full; the positions move."""
        before = collector.row_count

        def take_part(state: Assigned, part: FetchedPart) -> bool:
            assert state.position is not None, "a fetchable partition has a position"
            passed = collector.append(part, state.position.offset)
            if passed is None:
                return False
            state.read_to(*passed)
            return True

        self._take_parts(take_part, lambda: collector.has_room, lambda: collector.row_count > 0)
        self._metrics.record_count += collector.row_count - before

    def _take_parts(
        self,
        take_part: Callable[[Assigned, FetchedPart], bool],
        has_room: Callable[[], bool],
        has_some: Callable[[], bool],
    ) -> None:
        ready = self.ready
        turns = deque(ready)
        while turns:
            partition = turns.popleft()
            state = self._subscription.assigned.get(partition)
            if state is None or not state.parts:
                del ready[partition]
                continue
            if not state.is_fetchable:
                continue
            is_over = False
            try:
                while has_room() and not is_over:
                    part = state.parts[0]
                    if not take_part(state, part):
                        # The error is raised by the next poll, which finds it first: nothing is
                        # returned with it.
                        if part.error is not None and has_some():
                            return
                        self._end_part(state, part)
                        is_over = True
            except Exception:
                if has_some():
                    return
                # Fetch it again: the damage may be of the wire, and the next answer whole.
                state.drop_parts()
                self.rescan()
                self._metrics.error_count += 1
                raise
            if not is_over:
                # It stays in front, so that the next poll continues where this one has ended.
                return
            del ready[partition]
            if state.parts:
                # After one answer it is the turn of the others: these come faster than a program
                # may be.
                ready[partition] = None
                turns.append(partition)

    def _end_part(self, state: Assigned, part: FetchedPart) -> None:
        """Continue after a part that was returned, or raise its error."""
        assert state.position is not None, "a fetchable partition has a position"
        if part.end_offset > state.position.offset:
            state.read_to(part.end_offset, part.end_epoch)
        # One answer fewer waits, so the next fetch may go out while the program works.
        self.rescan()
        error = part.error
        if error is None:
            state.parts.popleft().release()
            return
        if isinstance(error, PositionOutOfRangeError):
            # Kafka's client resets, too, when retention has deleted the position.
            policy = self._config.auto_offset_reset
            # The position has moved since that fetch, so the error says nothing about it.
            if error.offsets.get(state.partition) != state.position.offset:
                state.drop_parts()
                return
            if policy.name != "none":
                log.info(
                    "position_out_of_range partition=%s offset=%d reset=%s",
                    state.partition,
                    state.position.offset,
                    policy.name,
                )
                state.await_reset(policy)
                return
        raise error

    # -- answers -------------------------------------------------------------------------------

    def _answered(self, flight: _Flight, outcome: RequestOutcome) -> None:
        node_id = flight.node.id
        if self._in_flight.get(node_id) is flight:
            del self._in_flight[node_id]
        self.needs_scan = True
        for each in _states(self._subscription, flight):
            if each.fetching_at == node_id:
                each.fetching_at = NO_NODE
        session = self._sessions.get(node_id)
        # The consumer was closed meanwhile, which ends the sessions.
        if session is None:
            return
        if not isinstance(outcome, FetchResponse):
            assert isinstance(outcome, NodeError), "a Fetch is answered by FetchResponse"
            self._failed(flight, session, outcome)
            return
        found = list(self._parts_of(outcome))
        if not session.is_answer(outcome, (each for each, _ in found)):
            self._not_of_session(flight, outcome)
            return
        self._retry_at.pop(node_id, None)
        endpoints = {each.node_id: each for each in outcome.node_endpoints}
        with_records = sum(1 for _, data in found if data.records)
        for partition, data in found:
            if partition is None:
                continue
            version, offset = flight.asked[partition]
            state = self._subscription.current(partition, version)
            # A seek or a rebalance has come since the request: the answer is about another
            # position.
            if state is None or state.fetch_offset != offset or not state.has_position:
                continue
            if data.error_code:
                endpoint = endpoints.get(data.current_leader.leader_id)
                self._add_error(
                    state,
                    data,
                    flight.node,
                    endpoint=None
                    if endpoint is None
                    else Node(endpoint.node_id, endpoint.host, endpoint.port),
                )
            else:
                self._add_records(state, data, flight.node, is_alone=with_records == 1)

    def _parts_of(
        self, answer: FetchResponse
    ) -> Iterator[tuple[TopicPartition | None, PartitionData]]:
        """The partitions of an answer; None for one of a topic id that nobody asked about."""
        for topic in answer.responses:
            name: str | None = topic.topic
            if topic.topic_id != NO_UUID:
                name = self._metadata.name_of(topic.topic_id)
            for data in topic.partitions:
                yield (None if not name else TopicPartition(name, data.partition_index)), data

    def _failed(self, flight: _Flight, session: FetchSession, error: NodeError) -> None:
        # Nobody knows whether the broker has taken the request into the session.
        session.failed()
        for state in _states(self._subscription, flight):
            state.preferred_replica = NO_NODE
        self._pause(flight.node.id)
        if isinstance(error, DisconnectedError):
            self._metadata.request_update()
        else:
            self._errors.add(consumer_error(error))

    def _not_of_session(self, flight: _Flight, answer: FetchResponse) -> None:
        """Handle an error of the whole answer, or partitions that nobody asked for."""
        code = answer.error_code
        log.info(
            "fetch_session_reset node=%s reason=%s",
            flight.node,
            error_words(code) if code else "the answer has other partitions than the request",
        )
        match code:
            # The broker has evicted the session, or has missed a request: the next one is full.
            case ErrorCode.FETCH_SESSION_ID_NOT_FOUND | ErrorCode.INVALID_FETCH_SESSION_EPOCH:
                return
            case ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR | ErrorCode.INCONSISTENT_TOPIC_ID:
                self._metadata.request_update()
            case 0:
                pass
            case _ if code not in set(ErrorCode) or not ErrorCode(code).is_retriable:
                self._errors.add(refusal(code, about=f"Fetch at {flight.node}"))
        self._pause(flight.node.id)

    def _pause(self, node_id: int) -> None:
        self._retry_at[node_id] = self._clock() + self._config.retry_backoff_ms / 1000

    def _add_records(
        self, state: Assigned, data: PartitionData, node: Node, *, is_alone: bool
    ) -> None:
        state.high_watermark = data.high_watermark if data.high_watermark >= 0 else None
        state.last_stable_offset = data.last_stable_offset if data.last_stable_offset >= 0 else None
        state.log_start_offset = data.log_start_offset if data.log_start_offset >= 0 else None
        if data.preferred_read_replica >= 0:
            state.preferred_replica = data.preferred_read_replica
            # As in Kafka's client: then the leader is asked again which replica is near (KIP-392).
            age_s = self._config.metadata_max_age_ms / 1000
            state.preferred_until = self._clock() + age_s
        records = received_records(data.records)
        if not records:
            return
        self._metrics.fetched_bytes += len(records)
        if not is_alone:
            # A view would keep the records of all other partitions in memory too.
            records = memoryview(bytes(records))
        partition, offset = state.partition, state.fetch_offset
        part = FetchedPart(partition, offset=offset, node_id=node.id, size=len(records))
        is_committed = self._config.isolation_level is IsolationLevel.READ_COMMITTED
        cut_records(
            part,
            records,
            place=f"{node}, {partition}",
            aborted=(data.aborted_transactions or ()) if is_committed else None,
        )
        if part.end_offset == offset and part.error is None:
            part.error = self._without_batch(partition, offset, len(records))
            if part.error is None:
                return
        elif part.error is None:
            self._sizes.pop(partition, None)
        self._append(state, part)

    def _without_batch(self, partition: TopicPartition, offset: int, size: int) -> Exception | None:
        """Ask for more if an answer has no whole batch, up to the largest frame."""
        asked = self._sizes.get(partition, self._config.max_partition_fetch_bytes)
        if asked < FRAME_BYTES_MAX:
            self._sizes[partition] = min(FRAME_BYTES_MAX, 2 * max(asked, size))
            return None
        return BrokerRefusedError(
            f"{partition}: the broker sent {size} bytes from offset {offset} on, and no whole "
            f"batch in them; a batch may have at most {FRAME_BYTES_MAX} bytes"
        )

    def _add_error(
        self, state: Assigned, data: PartitionData, node: Node, *, endpoint: Node | None
    ) -> None:
        partition, code = state.partition, data.error_code
        # Also one that the consumer has left before it answered: for a new leader, or by its time.
        is_follower = state.preferred_replica == node.id or node.id != self._leader_id(partition)
        error: Exception
        if code in _LEADER_ERRORS:
            state.preferred_replica = NO_NODE
            leader = Leader(data.current_leader.leader_id, data.current_leader.leader_epoch)
            # Since Kafka 3.7 an answer names the new leader, which saves a refresh (KIP-951).
            is_named = leader.node_id >= 0
            if not (is_named and self._metadata.update_leader(partition, leader, endpoint)):
                self._metadata.request_update()
                self._postpone(state)
            return
        if code in _PASSING_ERRORS:
            log.warning("fetch_refused partition=%s reason=%s", partition, error_words(code))
            self._postpone(state)
            return
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if is_follower:
                # A follower may lag; the leader decides.
                state.preferred_replica = NO_NODE
                return
            error = PositionOutOfRangeError({partition: state.fetch_offset})
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            error = TopicAuthorizationError(frozenset({partition.topic}))
        else:
            error = refusal(
                code, about=f"records of {partition} from offset {state.fetch_offset} on"
            )
        self._postpone(state)
        self._append(
            # As a part, so that the records before it are returned before the error.
            state,
            FetchedPart(partition, offset=state.fetch_offset, node_id=node.id, error=error),
        )

    def _append(self, state: Assigned, part: FetchedPart) -> None:
        state.parts.append(part)
        state.fetch_offset = part.end_offset
        self.ready[state.partition] = None

    def _postpone(self, state: Assigned) -> None:
        state.retry_at = self._clock() + self._config.retry_backoff_ms / 1000


def _states(subscription: SubscriptionState, flight: _Flight) -> Iterator[Assigned]:
    """The partitions of a request that are still assigned."""
    for each, (version, _) in flight.asked.items():
        state = subscription.assigned.get(each)
        if state is not None and state.version >= version:
            yield state


def _nothing(_outcome: RequestOutcome) -> None:
    """Ignore the answer to the end of a session."""
