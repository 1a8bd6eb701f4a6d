"""`Sender`: sends ready batches to the leaders of their partitions, and the other requests.

One `poll` fails overdue batches, requests metadata, sends the next request of a transaction, and
sends a Produce request to each node that can take one. Answers come from `nodes`; each batch of a
request is then acknowledged, retried, split or failed (`outcomes`).

Not here: when a batch is ready (`accumulator`), sequence numbers (`identity`), sockets.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from math import inf

from tailrace.client.interval_call import IntervalCall
from tailrace.client.listings import TopicListings
from tailrace.client.nodes import (
    Node,
    NodeError,
    Nodes,
    UnsupportedVersionError,
)
from tailrace.client.nodes.versions import BEFORE_KIP_890
from tailrace.client.producer.config import ProducerConfig
from tailrace.client.producer.delivery.metrics import Metrics
from tailrace.client.producer.delivery.outcomes import Batches, BatchOutcomes, SentBatches, info_of
from tailrace.client.producer.errors import producer_error
from tailrace.client.producer.hooks import BatchHooks
from tailrace.client.producer.identity import TransactionManager
from tailrace.client.producer.identity.state import State
from tailrace.client.producer.metadata import ProducerMetadata
from tailrace.client.producer.queue.accumulator import Accumulator, QueuedBatch
from tailrace.client.producer.queue.in_flight_batch import InFlightBatch
from tailrace.client.user_code import call_user_code
from tailrace.model import Acks
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.coordinator_keys import CoordinatorKeyType
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.metadata import MetadataResponse
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)


class Sender:
    """Sends batches; every method is called under the producer's lock."""

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
        self._numbers = count()
        self._monotonic = monotonic
        self._delivery_timeout_s = config.delivery_timeout_ms / 1000
        self._is_muting = config.max_in_flight_requests_per_connection == 1
        self._has_no_node = False
        self._failures = 0
        self._stuck: dict[int, float] = {}
        """By node with ready batches: since when it has taken no request."""
        self._seen_version = metadata.version
        self._outcomes = BatchOutcomes(
            config,
            accumulator=accumulator,
            nodes=nodes,
            metadata=metadata,
            transactions=transactions,
            metrics=metrics,
            hooks=hooks,
            monotonic=monotonic,
        )
        self.listings = TopicListings(
            nodes, timeout_ms=config.request_timeout_ms, error_of=producer_error
        )
        """Requests of callers for topics."""
        self.metrics_call = IntervalCall(config.statistics_interval_ms)
        """The program's `on_metrics`."""
        self.in_flight = self._outcomes.in_flight
        """Batches in requests without an answer, including expired ones."""
        self.calls = self._outcomes.calls
        """Calls of user code that are due; the driver makes them, without the lock."""

    def poll(self, now: float) -> None:
        """Do everything that is due now, without waiting."""
        accumulator = self._accumulator
        self._nodes.poll(now)
        if accumulator.incomplete:
            self._outcomes.expire(now)
        self._ask_for_metadata(now)
        if self.listings.is_waiting:
            self._send_listings(now)
        if self._transactions is not None and not self._transactions.is_quiet:
            self._step_transaction(self._transactions, now)
        if self._metadata.version != self._seen_version:
            self._seen_version = self._metadata.version
            accumulator.wake_moved(self._metadata.leader, now)
            self._metrics.forget_all_but(self._metadata.used_at)
        due = self.metrics_call.take(now)
        if due is not None:
            self.calls.append(partial(call_user_code, due, about="on_metrics"))
        accumulator.wake_timers(now)
        while accumulator.ready and self._drain(now):
            pass

    def next_deadline(self, now: float) -> float:
        """Return the time for the next `poll`, if no socket event comes before."""
        # While no node is connected for metadata, the connections' deadlines count instead.
        times = [inf if self._has_no_node else now + self._metadata.due_in(now)]
        times.append(self.metrics_call.due_at)
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
            deadline = self._transactions.flow.queue.next_deadline(now)
            if deadline is not None:
                times.append(deadline)
        return min(times)

    def fail_all(self, error: Exception, *, also_in_flight: bool) -> None:
        """Fail every batch with `error`; those in flight only with `also_in_flight`."""
        for outcome, batch in list(self._accumulator.incomplete.items()):
            if also_in_flight or not _is_unanswered(batch):
                self._outcomes.fail(self._accumulator.withdraw(outcome), error)

    # -- metadata and transactions ------------------------------------------------------------

    def _ask_for_metadata(self, now: float) -> None:
        self._has_no_node = False
        if self._nodes.failure_count != self._failures:
            self._failures = self._nodes.failure_count
            self._metadata.request_update()
        if self._metadata.due_in(now) > 0:
            return
        node = self._nodes.least_loaded(self._metadata.nodes, now)
        if node is None:
            self._metadata.no_node(now)
            return
        if not self._nodes.connect(node, now):
            self._has_no_node = True
            return
        # Numbers that a caller owns belong to a log, and a new topic has another one.
        may_create = self._transactions is None or not self._transactions.sequences.is_owned
        asked = self._metadata.next_request(now, may_create=may_create)
        if asked is None:
            return

        try:
            version = self._nodes.version_of(node.id, ApiKey.METADATA)
        except NodeError as error:
            self._metadata.failed(asked.token, error, now)
            return

        def take(answer: Message | NodeError | None) -> None:
            if isinstance(answer, MetadataResponse):
                self._metadata.answered(asked.token, answer, self._monotonic(), version=version)
            else:
                assert isinstance(answer, Exception)
                self._metadata.failed(asked.token, answer, self._monotonic())

        self._nodes.send(
            node.id, asked.body, now=now, done=take, timeout_ms=self._config.request_timeout_ms
        )

    def _send_listings(self, now: float) -> None:
        refused = self._nodes.login_error(self._metadata.nodes)
        if refused is not None:
            self.listings.fail(producer_error(refused))
        self.listings.send(self._any_node, now)
        nodes = self._metadata.nodes
        if self.listings.is_waiting and self._nodes.least_loaded(nodes, now) is None:
            # Has this called again in time, and the bootstrap list tried if no broker is there.
            self._metadata.request_update()

    def _any_node(self, now: float) -> Node | None:
        """A node that is ready, or None; if none is, one gets a connection."""
        node = self._nodes.least_loaded(self._metadata.nodes, now)
        return node if node is not None and self._nodes.connect(node, now) else None

    def _step_transaction(self, transactions: TransactionManager, now: float) -> None:
        """Send the next request about the producer id or the transaction, if one is due."""
        transactions.resolve_sequences(now)
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
                transactions.flow.queue.put_back(request)
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
                self._outcomes.fail(withdrawn, transactions.flow.abort_reason())

    # -- sending ------------------------------------------------------------------------------

    def _drain(self, now: float) -> bool:
        """Send at most one request to each node; returns whether any was sent."""
        requests: dict[int, Batches] = {}
        sizes: dict[int, int] = {}
        busy: set[int] = set()
        for partition in list(self._accumulator.ready):
            leader = self._metadata.leader(partition)
            if leader is None:
                self._metadata.add_topic(partition.topic, now)
                self._metadata.request_topic(partition.topic)
                continue
            node_id = leader.node_id
            if node_id in busy:
                continue
            if not self._can_take(node_id, requests, now):
                self._stuck.setdefault(node_id, now)
                busy.add(node_id)
                continue
            batch = self._accumulator.queues[partition][0]
            if self._transactions is not None and not self._transactions.may_drain(batch):
                continue
            size = sizes.get(node_id, 0) + batch.size
            if node_id in requests and size > self._config.max_request_size:
                busy.add(node_id)
                continue
            taken = self._accumulator.take(partition, now)
            taken.leader = leader
            requests.setdefault(node_id, {})[partition] = self._prepared(taken)
            sizes[node_id] = size
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

    def _can_take(self, node_id: int, requests: dict[int, Batches], now: float) -> bool:
        if node_id in requests or self._nodes.is_ready(node_id, now):
            return True
        node = self._metadata.node(node_id)
        return node is not None and self._nodes.connect(node, now)

    def _prepared(self, batch: InFlightBatch) -> InFlightBatch:
        """Give the batch its sequence number, encode it, and return it for a request."""
        if self._transactions is not None:
            self._transactions.sequences.assign(batch)
        supply = self._accumulator.supply
        batch.encode(supply.pool, self._config, supply.ratios)
        if self._is_muting:
            self._accumulator.mute(batch.partition)
        batch.is_unanswered = True
        self.in_flight[batch] = None
        if self._hooks:
            if batch.number < 0:
                batch.number = next(self._numbers)
            self.calls.append(partial(self._hooks.on_send, info_of(batch)))
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
            done=partial(self._outcomes.answered, SentBatches(node_id, batches, now)),
            timeout_ms=self._config.request_timeout_ms,
            has_answer=is_answered,
            version_max=None if is_v2 else BEFORE_KIP_890[ApiKey.PRODUCE],
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
