"""`Sender`: sends ready batches to the leaders of their partitions, and the other requests.

One `poll` fails overdue batches, requests metadata, sends the next request of a transaction, and
sends a Produce request to each node that can take one. Answers come from `nodes`; each batch of an
answered request is then acknowledged, retried, split or failed.

Not here: when a batch is ready (`accumulator`), sequence numbers (`identity`), sockets.

Invariant: a batch is acknowledged only by the answer to a request it was in, and it ends once: an
answer that comes after it has expired only releases its memory.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Final, NamedTuple

from tailrace.client.cluster_metadata import Leader
from tailrace.client.cluster_requests import ClusterRequests
from tailrace.client.interval_call import IntervalCall
from tailrace.client.nodes import (
    ConnectionPool,
    DisconnectedError,
    MalformedAnswerError,
    Node,
    NodeError,
    UnsupportedVersionError,
)
from tailrace.client.nodes.versions import BEFORE_KIP_890
from tailrace.client.producer.config import ProducerConfig
from tailrace.client.producer.errors import (
    DeliveryTimeoutError,
    RejectedRecordError,
    error_for,
    producer_error,
)
from tailrace.client.producer.identity import TransactionManager
from tailrace.client.producer.identity.flow import State
from tailrace.client.producer.metadata import ProducerMetadata
from tailrace.client.producer.metrics import Metrics
from tailrace.client.producer.plugins import BatchHooks, BatchInfo
from tailrace.client.producer.queue.accumulator import Accumulator, QueuedBatch
from tailrace.client.producer.queue.batches import ClosedBatch, InFlightBatch
from tailrace.client.user_code import call_user_code
from tailrace.model import Acks, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.coordinator_keys import CoordinatorKeyType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

log = logging.getLogger(__name__)

_STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Errors after which another broker may lead the partition."""

_PERHAPS_WRITTEN = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors after which the batch may be in the log all the same."""

# A leader election takes less, so that no line is written for what heals by itself.
SILENT_S: Final = 5.0
"""Seconds without a delivery after which the log says why."""

Batches = dict[TopicPartition, InFlightBatch]


class SentBatches(NamedTuple):
    """A Produce request that is not answered yet."""

    node_id: int
    batches: Batches
    at: float


class Sender:
    """Sends batches; every method is called under the producer's lock."""

    def __init__(
        self,
        config: ProducerConfig,
        *,
        accumulator: Accumulator,
        nodes: ConnectionPool,
        metadata: ProducerMetadata,
        transactions: TransactionManager | None,
        metrics: Metrics,
        hooks: BatchHooks,
        monotonic: Callable[[], float],
    ) -> None:
        self._config = config
        self._accumulator = accumulator
        self._nodes = nodes
        self._metadata = metadata
        self._transactions = transactions
        self._metrics = metrics
        self._hooks = hooks
        self._numbers = count()
        self._monotonic = monotonic
        self._delivery_timeout_s = config.delivery_timeout_ms / 1000
        self._is_muting = config.max_in_flight_requests_per_connection == 1
        # For partitioner.availability.timeout.ms (KIP-794).
        self._stuck: dict[int, float] = {}
        """By node with ready batches: since when it has taken no request."""
        self._delayed: dict[TopicPartition, set[object]] = {}
        """Partitions that the log has called delayed, with the kinds of reasons it gave."""
        self._silent_until = 0.0
        """When the next such line may come."""
        self._seen_version = metadata.version
        self.cluster = ClusterRequests(
            metadata,
            nodes,
            timeout_ms=config.request_timeout_ms,
            # Numbers that a caller owns belong to a log, and a new topic has another one.
            may_create_topics=lambda: transactions is None or not transactions.sequences.is_owned,
            clock=monotonic,
            error_of=producer_error,
        )
        self.metrics_call = IntervalCall(config.statistics_interval_ms)
        """The program's `on_metrics`."""
        self.in_flight: dict[InFlightBatch, None] = {}
        """Batches in requests without an answer, including expired ones."""
        self.calls: deque[Callable[[], None]] = deque()
        """Calls of user code that are due; the driver makes them, without the lock."""

    def poll(self, now: float) -> None:
        accumulator = self._accumulator
        self._nodes.poll(now)
        if accumulator.incomplete:
            self._expire(now)
        self.cluster.send(now)
        if self._transactions is not None and not self._transactions.is_quiet:
            self._step_transaction(self._transactions, now)
        # A topic may have got a leader, or been forgotten, by an answer that `nodes.poll` has read.
        if self._metadata.version != self._seen_version:
            self._seen_version = self._metadata.version
            accumulator.wake_moved(self._metadata.leader, now)
            self._metrics.forget_all_but(self._metadata.used_at)
        due = self.metrics_call.take(now)
        if due is not None:
            self.calls.append(partial(call_user_code, due, about="on_metrics"))
        accumulator.wake_timers(now)
        # A node may take several requests: until none does, or no batch is ready.
        while accumulator.ready and self._drain(now):
            pass

    def next_deadline(self, now: float) -> float:
        # May be too early, but never too late: a driver sleeps until then.
        times = [self.cluster.next_deadline(now), self.metrics_call.due_at]
        timer = self._accumulator.next_timer()
        if timer is not None:
            times.append(timer)
        if self._accumulator.incomplete:
            oldest = next(iter(self._accumulator.incomplete.values()))
            times.append(oldest.created_at + self._delivery_timeout_s)
        deadline = self._nodes.next_deadline()
        if deadline is not None:
            times.append(deadline)
        if self._transactions is not None:
            deadline = self._transactions.flow.queue.next_deadline()
            if deadline is not None:
                times.append(deadline)
        return min(times)

    def fail_all(self, error: Exception, *, also_in_flight: bool) -> None:
        """Fail every batch with `error`; those in flight only with `also_in_flight`."""
        for outcome, batch in list(self._accumulator.incomplete.items()):
            if also_in_flight or not _is_unanswered(batch):
                self._fail(self._accumulator.withdraw(outcome), error)

    # -- transactions -------------------------------------------------------------------------

    def _step_transaction(self, transactions: TransactionManager, now: float) -> None:
        """Send the next request about the producer id or the transaction, if one is due."""
        transactions.resolve_sequences(now)
        # Before the request: EndTxn waits until no batch is incomplete.
        if transactions.is_aborting_batches:
            self._abort_batches(transactions)
        request = transactions.flow.next_request(
            now, has_incomplete=bool(self._accumulator.incomplete)
        )
        if request is None:
            return
        if request.coordinator is None:
            node = self._nodes.least_loaded(self._metadata.nodes, now)
        else:
            node = request.node
        if node is None or not self._nodes.connect(node, now):
            failure = None if node is None else self._nodes.failure(node.id)
            if request.coordinator is None:
                # Without transactions, a refused login fails each record instead (`check_topic`).
                failure = (
                    self._nodes.login_error(self._metadata.nodes)
                    if transactions.is_transactional
                    else None
                )
            if failure is None:
                transactions.flow.queue.requeue(request)
            else:
                transactions.flow.answered(request, failure, now)
            return
        try:
            version = self._nodes.version_of(node.id, request.key)
            if version < request.first_version:
                raise UnsupportedVersionError(
                    f"{node}: takes {request.key.title} up to v{version}, and v"
                    f"{request.first_version} is needed"
                )
            if request.coordinator is CoordinatorKeyType.TRANSACTION:
                version = self._nodes.version_of(node.id, ApiKey.INIT_PRODUCER_ID)
                transactions.flow.version.note_coordinator(init_producer_id_version=version)
        except UnsupportedVersionError as error:
            transactions.flow.answered(request, error, now)
            return

        def done(answer: Message | NodeError | None) -> None:
            assert answer is not None, "the requests of a transaction are answered"
            transactions.flow.answered(request, answer, self._monotonic())

        request.is_sent = True
        self._nodes.send(
            node.id,
            request.body,
            now=now,
            done=done,
            timeout_ms=self._config.request_timeout_ms,
            version_max=request.version_max,
        )

    def _abort_batches(self, transactions: TransactionManager) -> None:
        """Fail batches without a sequence number; others may be in the log and are sent on."""
        is_over = transactions.state is State.FATAL_ERROR
        for outcome, batch in list(self._accumulator.incomplete.items()):
            has_number = isinstance(batch, InFlightBatch) and batch.base_sequence >= 0
            if not _is_unanswered(batch) and (is_over or not has_number):
                withdrawn = self._accumulator.withdraw(outcome)
                self._fail(withdrawn, transactions.flow.abort_reason())

    # -- sending ------------------------------------------------------------------------------

    def _drain(self, now: float) -> bool:
        """Send at most one request to each node; returns whether any was sent."""
        requests: dict[int, Batches] = {}
        sizes: dict[int, int] = {}
        busy: set[int] = set()
        for partition in list(self._accumulator.ready):
            leader = self._metadata.leader(partition)
            if leader is None:
                # `add_topic` again: it may have been idle for metadata.max.idle.ms by now.
                self._metadata.add_topic(partition.topic, now)
                self._metadata.request_topic(partition.topic)
                continue
            node_id = leader.node_id
            if node_id in busy:
                continue
            node = self._metadata.node(node_id)
            if not (
                node_id in requests
                or self._nodes.is_ready(node_id, now)
                or (node is not None and self._nodes.connect(node, now))
            ):
                self._stuck.setdefault(node_id, now)
                busy.add(node_id)
                continue
            batch = self._accumulator.queues[partition][0]
            if self._transactions is not None and not self._transactions.may_drain(batch):
                continue
            # At least one batch goes, however large, as in Kafka: the broker decides then.
            size = sizes.get(node_id, 0) + batch.size
            if node_id in requests and size > self._config.max_request_size:
                busy.add(node_id)
                continue
            taken = self._accumulator.take(partition, now)
            taken.leader = leader
            # Encoded by its first attempt; a later one changes id and numbers alone.
            requests.setdefault(node_id, {})[partition] = self._prepared(taken)
            sizes[node_id] = size
        # A node whose batches have gone to another leader, or have expired, is not slow: without
        # any it would never be asked again.
        if self._stuck:
            self._stuck = {each: at for each, at in self._stuck.items() if each in busy}
        for node_id, batches in requests.items():
            self._stuck.pop(node_id, None)
            self._send(node_id, batches, now)
        return bool(requests)

    def slow_nodes(self, timeout_s: float) -> frozenset[int]:
        """Nodes that had ready batches for longer than `timeout_s` but took no request."""
        now = self._monotonic()
        return frozenset(
            node_id for node_id, since in self._stuck.items() if now - since > timeout_s
        )

    def _prepared(self, batch: InFlightBatch) -> InFlightBatch:
        """Give the batch its sequence number, encode it, and return it for a request."""
        if self._transactions is not None:
            self._transactions.sequences.assign(batch)
        supply = self._accumulator.supply
        batch.encode(supply.pool, self._config, supply.ratios)
        # With one request in flight per connection the order is kept without numbers too, also
        # after a change of the leader (Kafka's `guaranteeMessageOrder`).
        if self._is_muting:
            self._accumulator.mute(batch.partition)
        batch.is_unanswered = True
        self.in_flight[batch] = None
        if self._hooks:
            if batch.number < 0:
                batch.number = next(self._numbers)
            self.calls.append(partial(self._hooks.on_send, _info_of(batch, self._config)))
        return batch

    def _send(self, node_id: int, batches: Batches, now: float) -> None:
        is_answered = self._config.acks is not Acks.NONE
        body = ProduceRequest(
            transactional_id=self._config.transactional_id,
            acks=self._config.acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=_by_topic(batches),
        )
        is_v2 = self._transactions is not None and self._transactions.flow.version.is_v2
        self._metrics.sent(batches.values())
        self._nodes.send(
            node_id,
            body,
            now=now,
            done=partial(self._answered, SentBatches(node_id, batches, now)),
            timeout_ms=self._config.request_timeout_ms,
            has_answer=is_answered,
            # From v12 on a leader adds the partition to the transaction (KIP-890).
            version_max=None if is_v2 else BEFORE_KIP_890[ApiKey.PRODUCE],
        )

    # -- answers ------------------------------------------------------------------------------

    def _answered(self, sent: SentBatches, answer: Message | NodeError | None) -> None:
        node_id, batches, sent_at = sent
        now = self._monotonic()
        if answer is None:  # acks=0: the request was written to the socket.
            for batch in batches.values():
                self._request_ended(batch, now)
                self._complete(batch, None)
            return
        if not isinstance(answer, ProduceResponse):
            assert isinstance(answer, Exception)
            self._lost(batches, answer, now)
            return
        self._metrics.answered(now - sent_at, answer.throttle_time_ms)
        endpoints = {each.node_id: each for each in answer.node_endpoints}
        waiting = dict(batches)
        for topic in answer.responses:
            for part in topic.partition_responses:
                partition = TopicPartition(topic.name, part.index)
                if partition not in waiting:
                    continue
                batch = waiting.pop(partition)
                # A broker that does not lead the partition any more says who does (KIP-951).
                leader = part.current_leader
                if leader.leader_id >= 0 and leader.leader_id in endpoints:
                    end = endpoints[leader.leader_id]
                    self._metadata.update_leader(
                        batch.partition,
                        Leader(leader.leader_id, leader.leader_epoch),
                        Node(end.node_id, end.host, end.port),
                    )
                self._apply(batch, part, now)
        if waiting:
            left_out = ", ".join(map(str, waiting))
            error = MalformedAnswerError(f"broker {node_id}: an answer to Produce lacks {left_out}")
            self._lost(waiting, error, now)

    def _lost(self, batches: Batches, error: Exception, now: float) -> None:
        """Retry or fail batches whose request got no answer; they may have been written."""
        self._metadata.request_update()
        for batch in batches.values():
            batch.last_error = error
            batch.may_be_written = True
            self._request_ended(batch, now)
            if batch.outcome.is_done:
                continue
            # A broker that speaks no such version, or refuses the login, does so again.
            if isinstance(error, DisconnectedError) and self._can_retry(
                batch, ErrorCode.NETWORK_EXCEPTION, log_start_offset=-1, now=now
            ):
                self._retry(batch, now)
            else:
                is_overdue = now >= batch.created_at + self._delivery_timeout_s
                reason = self._overdue(batch, now) if is_overdue else producer_error(error)
                self._fail(batch, reason, was_refused=False)

    def _apply(self, batch: InFlightBatch, part: PartitionProduceResponse, now: float) -> None:
        """Complete, retry, split or fail a batch, by its partition's part of an answer."""
        code = part.error_code
        self._request_ended(batch, now)
        if code in _STALE_METADATA:
            self._metadata.request_update()
        if batch.outcome.is_done:
            return
        # A duplicate whose offset the leader has forgotten is in the log all the same.
        if code in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
            self._complete(batch, part)
            return
        batch.last_error = error_for(code, about=f"{batch.partition}", said=part.error_message)
        batch.may_be_written |= code in _PERHAPS_WRITTEN
        # If the batch is in the log already, the broker would not recognise its parts as
        # duplicates, because their sequence numbers differ from the batch's.
        may_split = self._transactions is None or not batch.may_be_written
        if code == ErrorCode.MESSAGE_TOO_LARGE and batch.record_count > 1 and may_split:
            self._split(batch, now)
        elif self._can_retry(batch, code, log_start_offset=part.log_start_offset, now=now):
            self._retry(batch, now)
        else:
            is_known = code in set(ErrorCode) and code != ErrorCode.UNKNOWN_SERVER_ERROR
            was_refused = is_known and not ErrorCode(code).is_retriable and not batch.may_be_written
            self._fail(batch, batch.last_error, part, was_refused=was_refused)

    def _request_ended(self, batch: InFlightBatch, now: float) -> None:
        """Note that a batch's request has ended, with an answer or without."""
        batch.is_unanswered = False
        self.in_flight.pop(batch, None)
        self._accumulator.unmute(batch.partition, now)
        # An expired batch has kept its memory until now, because the socket may have read it.
        if batch.outcome.is_done:
            self._accumulator.supply.release(batch)

    def _can_retry(
        self, batch: InFlightBatch, code: int, *, log_start_offset: int, now: float
    ) -> bool:
        if (
            now >= batch.created_at + self._delivery_timeout_s
            or batch.attempts >= self._config.retries
        ):
            return False
        if self._transactions is not None:
            return self._transactions.sequences.can_retry(
                batch, code, log_start_offset=log_start_offset
            )
        return code in set(ErrorCode) and ErrorCode(code).is_retriable

    def _retry(self, batch: InFlightBatch, now: float) -> None:
        self._metrics.retried(batch)
        leader = self._metadata.leader(batch.partition)
        is_moved = leader is not None and leader != batch.leader
        self._accumulator.requeue(batch, now=now, index=self._index_of(batch), is_moved=is_moved)

    def _split(self, batch: InFlightBatch, now: float) -> None:
        """Replace a batch that is too large for the topic by two smaller ones."""
        codec = self._config.compression_type
        self._accumulator.supply.ratios.reset(batch.partition.topic, codec, batch.ratio)
        self._accumulator.supply.note_too_large(batch.partition.topic, batch.size)
        info = _info_of(batch, self._config) if self._hooks else None
        parts = [InFlightBatch(each) for each in batch.sealed.split()]
        if self._transactions is not None:
            self._transactions.sequences.split(batch, parts)
        self._metrics.batch_split_total += 1
        if info is not None:
            self.calls.append(partial(self._hooks.on_done, info, batch.last_error))
        self._accumulator.end(batch)
        self._accumulator.requeue_parts(parts, now=now, index=self._index_of(parts[0]))

    def _index_of(self, batch: InFlightBatch) -> int:
        """The index in its queue at which a batch is sent again, by sequence numbers."""
        if self._transactions is None:
            return 0
        queue = self._accumulator.queues.get(batch.partition, ())
        return self._transactions.sequences.index_in(queue, batch)

    def _complete(self, batch: InFlightBatch, part: PartitionProduceResponse | None) -> None:
        outcome = batch.outcome
        if part is not None:
            outcome.log_append_time = part.log_append_time_ms
            if part.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                outcome.base_offset = part.base_offset
        if self._transactions is not None:
            self._transactions.sequences.completed(batch, outcome.base_offset)
        if batch.partition in self._delayed:
            del self._delayed[batch.partition]
            waited_s = self._monotonic() - batch.created_at
            log.warning(
                "records_delivered_again partition=%s after_s=%.1f", batch.partition, waited_s
            )
        self._end(batch)

    def _fail(
        self,
        batch: ClosedBatch,
        error: Exception,
        part: PartitionProduceResponse | None = None,
        *,
        was_refused: bool = True,
    ) -> None:
        """Fail a batch; `was_refused` is False if it may be in the log all the same."""
        outcome = batch.outcome
        outcome.failure = error
        # A broker refuses a batch as a whole, and names the records that it did not like (KIP-467).
        if part is not None and part.record_errors:
            outcome.errors = {
                each.batch_index: RejectedRecordError(
                    f"{batch.partition}: "
                    f"{each.batch_index_error_message or part.error_message or error}"
                )
                for each in part.record_errors
                if 0 <= each.batch_index < batch.record_count
            }
            outcome.failure = RejectedRecordError(
                f"{batch.partition}: not written because {len(outcome.errors)} other records of "
                f"its batch were refused: {error}"
            )
        if self._transactions is not None:
            code = 0 if part is None else part.error_code
            self._transactions.failed(batch, error, code=code, was_refused=was_refused)
        self._end(batch)

    def _end(self, batch: ClosedBatch) -> None:
        outcome = batch.outcome
        # First: a caller that the outcome wakes finds its memory free.
        self._accumulator.end(batch)
        info = _info_of(batch, self._config) if self._hooks else None
        self._metrics.ended(batch)
        if outcome.is_forgotten and outcome.failure is not None:
            log.warning(
                "records_failed partition=%s count=%d reason=%s",
                batch.partition,
                batch.record_count,
                outcome.failure,
            )
        self.calls += (each.run_callbacks for each in outcome.finish() if each.callbacks)
        if info is not None:
            self.calls.append(partial(self._hooks.on_done, info, outcome.failure))

    def _expire(self, now: float) -> None:
        # `delivery.timeout.ms` counts from the first record, also for a batch that was never sent
        # (KIP-91). Batches are in the order of their age.
        overdue = []
        for outcome, batch in self._accumulator.incomplete.items():
            if now < batch.created_at + self._delivery_timeout_s:
                break
            overdue.append(outcome)
        if not overdue and now >= max(batch.created_at + SILENT_S, self._silent_until):
            self._note_delayed(batch, now)
        for outcome in overdue:
            batch = self._accumulator.withdraw(outcome)
            # It may be in the log: the next batch must not get its number (see `Sequences`).
            self._fail(batch, self._overdue(batch, now), was_refused=False)

    def _note_delayed(self, oldest: QueuedBatch, now: float) -> None:
        """Log why the oldest batch is not delivered: each kind of reason once, until one is.

        Lines are `SILENT_S` apart: while a leader comes back, several reasons hold for moments.
        Kafka's producer has a line for each attempt. Here only the oldest batch has one, since
        thousands of partitions may wait for the same broker.
        """
        # Under load there are thousands of polls a second.
        self._silent_until = now + 1
        partition = oldest.partition
        error = oldest.last_error if isinstance(oldest, InFlightBatch) else None
        # Not `str(error)`: it may count something, and then it would be another one each time.
        trouble = "" if error else _why_not_asked(self._metadata, self._nodes, partition)
        kind = (type(error), getattr(error, "code", None)) if error else trouble
        known = self._delayed.get(partition, ())
        # Without a reason it is on its way: the broker is slow, or waits for replicas.
        if not (error or trouble) or kind in known:
            return
        self._delayed.setdefault(partition, set()).add(kind)
        self._silent_until = now + SILENT_S
        log.warning(
            "records_delayed partition=%s for_s=%.1f attempts=%d batches_waiting=%d reason=%s",
            partition,
            now - oldest.created_at,
            oldest.attempts if isinstance(oldest, InFlightBatch) else 0,
            len(self._accumulator.incomplete),
            error or trouble,
        )

    def _overdue(self, batch: ClosedBatch, now: float) -> DeliveryTimeoutError:
        waited = round(now - batch.created_at, 1)
        trouble = _why_not_asked(self._metadata, self._nodes, batch.partition)
        sent = batch if isinstance(batch, InFlightBatch) else None
        if sent is not None and sent.last_error is not None:
            reason = f"after {sent.attempts} attempts, the last one: {sent.last_error}"
            reason += f"; by now {trouble}" * bool(trouble)
        elif sent is not None and sent.is_unanswered:
            reason = "it was sent, and no answer has come"
        else:
            reason = trouble or "its broker takes no more requests"
        return DeliveryTimeoutError(
            f"{batch.partition}: {batch.record_count} records were not "
            f"acknowledged within {waited} s: {reason}; delivery.timeout.ms sets how long to try"
        )


def _is_unanswered(batch: QueuedBatch) -> bool:
    return isinstance(batch, InFlightBatch) and batch.is_unanswered


def _by_topic(batches: Batches) -> tuple[TopicProduceData, ...]:
    topics: dict[str, list[PartitionProduceData]] = {}
    for (topic, number), batch in batches.items():
        topics.setdefault(topic, []).append(
            PartitionProduceData(index=number, records=batch.encoded)
        )
    return tuple(
        TopicProduceData(name=name, partition_data=tuple(parts)) for name, parts in topics.items()
    )


def _info_of(batch: ClosedBatch, config: ProducerConfig) -> BatchInfo:
    sent = batch if isinstance(batch, InFlightBatch) and batch.number >= 0 else None
    return BatchInfo(
        number=-1 if sent is None else sent.number,
        partition=batch.partition,
        record_count=batch.record_count,
        byte_count=batch.size,
        attempt=0 if sent is None else sent.attempts + 1,
        base_offset=batch.outcome.base_offset,
        client_id=config.client_id,
    )


def _why_not_asked(
    metadata: ProducerMetadata, nodes: ConnectionPool, partition: TopicPartition
) -> str:
    """The reason why a batch cannot be sent to its partition's leader; empty if none is known."""
    leader = metadata.leader(partition)
    if leader is not None:
        return str(nodes.failure(leader.node_id) or "")
    failures = [failure for each in metadata.nodes if (failure := nodes.failure(each.id))]
    # An unknown leader explains nothing while no broker can be reached.
    if failures and len(failures) == len(metadata.nodes):
        return f"no broker can be reached: {failures[0]}"
    return "no broker leads it"
