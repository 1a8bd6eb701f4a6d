"""`BatchOutcomes`: what becomes of a batch that was sent, or that has waited for too long.

Each batch of an answered request is acknowledged, retried, split or failed. A batch whose
`delivery.timeout.ms` is over fails.

Not here: which batch is sent when (`sender`).

Invariant: a batch is acknowledged only by the answer to a request it was in, and it ends once: an
answer that comes after it has expired only releases its memory.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tailrace.client.nodes import (
    DisconnectedError,
    MalformedAnswerError,
    Node,
    NodeError,
    Nodes,
)
from tailrace.client.producer.config import ProducerConfig
from tailrace.client.producer.delivery.metrics import Metrics
from tailrace.client.producer.errors import (
    DeliveryTimeoutError,
    RejectedRecordError,
    error_for,
    producer_error,
)
from tailrace.client.producer.hooks import BatchHooks, BatchInfo
from tailrace.client.producer.identity import TransactionManager
from tailrace.client.producer.metadata import Leader, ProducerMetadata
from tailrace.client.producer.queue.accumulator import Accumulator
from tailrace.client.producer.queue.in_flight_batch import ClosedBatch, InFlightBatch
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.produce import PartitionProduceResponse, ProduceResponse

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

Batches = dict[TopicPartition, InFlightBatch]


class SentBatches(NamedTuple):
    """A Produce request that is not answered yet."""

    node_id: int
    batches: Batches
    at: float


class BatchOutcomes:
    """Ends batches; every method is called under the producer's lock."""

    def __init__(
        self,
        config: ProducerConfig,
        *,
        accumulator: Accumulator,
        nodes: Nodes,
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
        self._monotonic = monotonic
        self._delivery_timeout_s = config.delivery_timeout_ms / 1000
        self.in_flight: dict[InFlightBatch, None] = {}
        """Batches in requests without an answer, including expired ones."""
        self.calls: deque[Callable[[], None]] = deque()
        """Calls of user code that are due; the driver makes them, without the lock."""

    def answered(self, sent: SentBatches, answer: Message | NodeError | None) -> None:
        """Handle the answer to a Produce request, or the error that came instead."""
        node_id, batches, sent_at = sent
        now = self._monotonic()
        if answer is None:
            for batch in batches.values():
                self._landed(batch, now)
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
                place = TopicPartition(topic.name, part.index)
                if place not in waiting:
                    continue
                batch = waiting.pop(place)
                leader = part.current_leader
                if leader.leader_id >= 0 and leader.leader_id in endpoints:
                    end = endpoints[leader.leader_id]
                    self._metadata.update_leader(
                        batch.partition,
                        Leader(leader.leader_id, leader.leader_epoch),
                        Node(end.node_id, end.host, end.port),
                    )
                self._judge(batch, part, now)
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
            self._landed(batch, now)
            if batch.outcome.is_done:
                continue
            if isinstance(error, DisconnectedError) and self._can_retry(
                batch, ErrorCode.NETWORK_EXCEPTION, log_start_offset=-1, now=now
            ):
                self._retry(batch, now)
            else:
                is_overdue = now >= batch.created_at + self._delivery_timeout_s
                reason = self._overdue(batch, now) if is_overdue else producer_error(error)
                self.fail(batch, reason, was_refused=False)

    def _judge(self, batch: InFlightBatch, part: PartitionProduceResponse, now: float) -> None:
        """Complete, retry, split or fail a batch, by its partition's part of an answer."""
        code = part.error_code
        self._landed(batch, now)
        if code in _STALE_METADATA:
            self._metadata.request_update()
        if batch.outcome.is_done:
            return
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
            self.fail(batch, batch.last_error, part, was_refused=was_refused)

    def _landed(self, batch: InFlightBatch, now: float) -> None:
        """Note that a batch's request has ended, with an answer or without."""
        batch.is_unanswered = False
        self.in_flight.pop(batch, None)
        self._accumulator.unmute(batch.partition, now)
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
        self._accumulator.put_back(batch, now=now, place=self._place_of(batch), is_moved=is_moved)

    def _split(self, batch: InFlightBatch, now: float) -> None:
        """Replace a batch that is too large for the topic by two smaller ones."""
        codec = self._config.compression_type
        self._accumulator.supply.ratios.reset(batch.partition.topic, codec, batch.ratio)
        self._accumulator.supply.note_too_large(batch.partition.topic, batch.size)
        info = info_of(batch) if self._hooks else None
        parts = [InFlightBatch(each) for each in batch.sealed.split()]
        if self._transactions is not None:
            self._transactions.sequences.split(batch, parts)
        self._metrics.batch_split_total += 1
        if info is not None:
            self.calls.append(partial(self._hooks.on_done, info, batch.last_error))
        self._accumulator.end(batch)
        self._accumulator.put_parts(parts, now=now, place=self._place_of(parts[0]))

    def _place_of(self, batch: InFlightBatch) -> int:
        """The number of batches in the queue that have lower sequence numbers than this one."""
        if self._transactions is None:
            return 0
        queue = self._accumulator.queues.get(batch.partition, ())
        return self._transactions.sequences.place_in(queue, batch)

    def _complete(self, batch: InFlightBatch, part: PartitionProduceResponse | None) -> None:
        outcome = batch.outcome
        if part is not None:
            outcome.log_append_time = part.log_append_time_ms
            if part.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                outcome.base_offset = part.base_offset
        if self._transactions is not None:
            self._transactions.sequences.completed(batch, outcome.base_offset)
        self._end(batch)

    def fail(
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
        self._accumulator.end(batch)
        info = info_of(batch) if self._hooks else None
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

    def expire(self, now: float) -> None:
        """Fail the batches whose `delivery.timeout.ms` is over."""
        overdue = []
        for outcome, batch in self._accumulator.incomplete.items():
            if now < batch.created_at + self._delivery_timeout_s:
                break
            overdue.append(outcome)
        for outcome in overdue:
            batch = self._accumulator.withdraw(outcome)
            self.fail(batch, self._overdue(batch, now), was_refused=False)

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


def info_of(batch: ClosedBatch) -> BatchInfo:
    """The `BatchInfo` of a batch at this moment."""
    sent = batch if isinstance(batch, InFlightBatch) and batch.number >= 0 else None
    return BatchInfo(
        number=-1 if sent is None else sent.number,
        partition=batch.partition,
        record_count=batch.record_count,
        byte_count=batch.size,
        attempt=0 if sent is None else sent.attempts + 1,
        base_offset=batch.outcome.base_offset,
    )


def _why_not_asked(metadata: ProducerMetadata, nodes: Nodes, partition: TopicPartition) -> str:
    """The reason why a batch cannot be sent to its partition's leader; empty if none is known."""
    leader = metadata.leader(partition)
    if leader is not None:
        return str(nodes.failure(leader.node_id) or "")
    failures = [failure for each in metadata.nodes if (failure := nodes.failure(each.id))]
    # An unknown leader explains nothing while no broker can be reached.
    if failures and len(failures) == len(metadata.nodes):
        return f"no broker can be reached: {failures[0]}"
    return "no broker leads it"
