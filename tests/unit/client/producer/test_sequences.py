"""Numbers of batches: what is sent under which identity, and that nothing is written twice."""

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tailrace.client.producer.errors import (
    AuthorizationError,
    DeliveryTimeoutError,
    OutOfOrderSequenceError,
    RejectedRecordError,
)
from tailrace.client.producer.identity.flow import State
from tailrace.client.producer.identity.sequences import (
    IDLE_S,
    NO_PRODUCER,
    SEQUENCE_LIMIT,
    ProducerIdAndEpoch,
)
from tailrace.client.producer.queue.batches import BatchIdentity, InFlightBatch
from tailrace.model import PRODUCER_EPOCH_MAX, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tests.examples import examples
from tests.unit.client.producer.transaction_life import T0, T1, Life, closed_batch

GAP = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
UNKNOWN = ErrorCode.UNKNOWN_PRODUCER_ID
LOST = ErrorCode.NETWORK_EXCEPTION


def newcomer(*, epoch: int = 0) -> Life:
    """A producer without transactions that has an id."""
    life = Life(is_transactional=False)
    life.producer = (7, epoch)
    return life.initialized()


def idempotent(*, epoch: int = 0) -> Life:
    """Likewise, with one record in the log of each partition."""
    return newcomer(epoch=epoch).known_to(T0, T1)


def identity(batch: InFlightBatch) -> BatchIdentity:
    """Id, epoch and number of a batch."""
    return batch.identity


def can_retry(life: Life, batch: InFlightBatch, code: int, log_start_offset: int = 0) -> bool:
    """Whether a batch is sent again after this answer; counts the attempt if so."""
    answer = life.manager.sequences.can_retry(batch, code, log_start_offset=log_start_offset)
    batch.attempts += answer
    return answer


def expire(life: Life, batch: InFlightBatch) -> None:
    """The batch's time for delivery is over."""
    life.manager.failed(batch, DeliveryTimeoutError("too late"), was_refused=False)


def refuse(life: Life, batch: InFlightBatch) -> None:
    """The broker does not take the batch."""
    life.manager.failed(
        batch, RejectedRecordError("no"), code=ErrorCode.INVALID_RECORD, was_refused=True
    )


def test_batches_of_a_partition_are_numbered_from_zero() -> None:
    """Numbers count records, for each partition on its own."""
    assert identity(newcomer().sent(T0, 3)) == (7, 0, 0)
    life = idempotent()
    sent = [life.sent(T0, 3), life.sent(T0, 2), life.sent(T1, 5), life.sent(T0, 1)]
    assert [identity(each) for each in sent] == [(7, 0, 1), (7, 0, 4), (7, 0, 1), (7, 0, 6)]


def test_after_the_largest_number_comes_zero() -> None:
    """A batch may run across the largest number; those in flight stay in the order of sending."""
    life = idempotent()
    state = life.manager.sequences.of(T0)
    state.next, state.last_acked = SEQUENCE_LIMIT - 2, SEQUENCE_LIMIT - 3
    across, behind = life.sent(T0, 5), life.sent(T0, 1)
    assert (across.base_sequence, across.last_sequence) == (SEQUENCE_LIMIT - 2, 2)
    assert behind.base_sequence == 3
    for batch in (across, behind):
        assert can_retry(life, batch, LOST)
    assert life.manager.sequences.index_in([across], behind) == 1
    assert life.manager.may_drain(across)
    assert not life.manager.may_drain(behind)
    life.manager.sequences.completed(across, 10)
    life.manager.sequences.completed(behind, 15)
    assert life.sent(T0).base_sequence == 4


def test_nothing_is_sent_without_an_identity() -> None:
    """Batches wait for the first answer to InitProducerId."""
    life = Life(is_transactional=False)
    assert not life.manager.may_drain(closed_batch())
    life.initialized()
    assert life.manager.may_drain(closed_batch())


def test_the_first_batch_for_a_partition_goes_alone() -> None:
    """The second batch waits, since a leader accepts any number from an unknown producer."""
    life = newcomer()
    first = life.sent(T0)
    assert not life.manager.may_drain(closed_batch(T0))
    assert life.manager.may_drain(closed_batch(T1))
    life.manager.sequences.completed(first, 0)
    life.sent(T0)
    assert life.manager.may_drain(closed_batch(T0))


def test_after_a_pause_the_first_batch_for_a_partition_goes_alone() -> None:
    """A leader may have forgotten a producer that was idle, and would accept any number."""
    life = idempotent()
    life.now += IDLE_S
    first = life.sent(T0)
    assert not life.manager.may_drain(closed_batch(T0, created_at=life.now))
    life.manager.sequences.completed(first, 1)
    # Without a pause of that length between two batches it does not matter how long they take.
    for _ in range(3):
        life.now += IDLE_S - 1
        life.sent(T0)
    assert life.manager.may_drain(closed_batch(T0, created_at=life.now))


def test_a_partition_has_five_batches_in_flight_at_most() -> None:
    """The broker remembers five, so a sixth waits for an outcome."""
    life = idempotent()
    sent = [life.sent() for _ in range(5)]
    assert not life.manager.may_drain(closed_batch())
    assert life.manager.may_drain(closed_batch(T1))
    life.manager.sequences.completed(sent[0], 0)
    assert life.manager.may_drain(closed_batch())


def test_no_batch_is_sent_that_would_have_the_leader_forget_one_without_an_outcome() -> None:
    """The broker remembers five batches, also of those that were acknowledged since."""
    life = idempotent()
    first, *others = [life.sent() for _ in range(4)]
    for batch in others:
        life.manager.sequences.completed(batch, 1)
    others.append(life.sent())
    assert not life.manager.may_drain(closed_batch())
    assert can_retry(life, first, ErrorCode.REQUEST_TIMED_OUT)
    assert not life.manager.may_drain(closed_batch())
    life.manager.sequences.completed(first, 0)
    assert life.manager.may_drain(closed_batch())


def test_a_batch_that_was_split_counts_as_its_parts() -> None:
    """The leader remembers each of them, so one more than there was."""
    life = idempotent()
    _, large, _ = life.sent(), life.sent(count=2), life.sent()
    parts = [closed_batch(), closed_batch()]
    life.manager.sequences.split(large, parts)
    life.sent()
    assert not life.manager.may_drain(closed_batch())


def test_a_batch_that_is_sent_again_keeps_its_number_and_goes_alone() -> None:
    """Only the first of several retries may be sent, with the id, epoch and number it had."""
    life = idempotent()
    first, second = life.sent(), life.sent()
    assert can_retry(life, first, LOST)
    assert can_retry(life, second, LOST)
    assert not life.manager.may_drain(second)
    assert life.manager.may_drain(first)
    life.manager.sequences.assign(first)
    assert identity(first) == (7, 0, 1)
    life.manager.sequences.completed(first, 0)
    assert life.manager.may_drain(second)


def test_batches_go_back_into_the_queue_in_their_order() -> None:
    """However their answers come, earlier numbers stand before later ones and new batches last."""
    life = idempotent()
    sent = [life.sent() for _ in range(4)]
    new = closed_batch()
    queue = deque([new])
    for batch in (sent[2], sent[0], sent[3], sent[1]):
        queue.insert(life.manager.sequences.index_in(queue, batch), batch)
    assert list(queue) == [*sent, new]


def test_a_gap_behind_a_batch_without_outcome_is_no_gap() -> None:
    """A batch that is refused because an earlier one is missing is sent again as it is."""
    life = idempotent()
    first, second = life.sent(), life.sent()
    assert can_retry(life, second, GAP)
    life.manager.resolve_sequences(0.0)
    assert life.manager.producer.epoch == 0
    assert identity(second) == (7, 0, 2)
    assert identity(first) == (7, 0, 1)


@pytest.mark.parametrize("code", [GAP, UNKNOWN])
def test_a_gap_at_the_first_batch_bumps_the_epoch(code: int) -> None:
    """All in flight begin at 0 in the next epoch, and answers to the old numbers change nothing."""
    life = idempotent()
    done = life.sent()
    rest = [life.sent(count=2) for _ in range(4)]
    life.manager.sequences.completed(done, 500)
    assert can_retry(life, rest[0], code, 501)
    assert not life.manager.may_drain(rest[0])
    life.manager.resolve_sequences(0.0)
    assert [identity(each) for each in rest] == [(7, 1, 0), (7, 1, 2), (7, 1, 4), (7, 1, 6)]
    for late in rest[1:]:
        assert can_retry(life, late, code, 501)
    life.manager.resolve_sequences(0.0)
    assert life.manager.producer == ProducerIdAndEpoch(7, 1)
    assert life.manager.may_drain(rest[0])


def test_an_unknown_producer_without_log_start_is_asked_again() -> None:
    """A leader that does not know its log yet says nothing about the producer."""
    life = idempotent()
    batch = life.sent()
    assert can_retry(life, batch, UNKNOWN, -1)
    life.manager.resolve_sequences(0.0)
    assert identity(batch) == (7, 0, 1)


@pytest.mark.parametrize("log_start_offset", [10, 1010])
def test_an_unknown_producer_begins_anew_whether_or_not_its_records_were_deleted(
    log_start_offset: int,
) -> None:
    """The log begins behind the last acknowledged record or before it: one bump, nothing lost."""
    life = idempotent()
    life.manager.sequences.completed(life.sent(), 1000)
    batch = life.sent(count=2)
    assert can_retry(life, batch, UNKNOWN, log_start_offset)
    life.manager.resolve_sequences(0.0)
    assert life.manager.producer == ProducerIdAndEpoch(7, 1)
    assert identity(batch) == (7, 1, 0)


def test_other_partitions_finish_in_the_old_epoch() -> None:
    """Batches in flight elsewhere keep their epoch, and new batches there wait for them."""
    life = idempotent()
    broken, healthy = life.sent(T0), life.sent(T1)
    assert can_retry(life, broken, GAP)
    life.manager.resolve_sequences(0.0)
    assert identity(broken) == (7, 1, 0)
    assert identity(healthy) == (7, 0, 1)
    assert not life.manager.may_drain(closed_batch(T1))
    assert can_retry(life, healthy, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert life.manager.may_drain(healthy)
    life.manager.sequences.assign(healthy)
    assert identity(healthy) == (7, 0, 1)
    life.manager.sequences.completed(healthy, 500)
    assert identity(life.sent(T1)) == (7, 1, 0)


def test_a_failure_in_the_old_epoch_bumps_once_more() -> None:
    """A partition that finishes in the old epoch may lose a batch there without harm."""
    life = idempotent()
    broken, healthy, behind = life.sent(T0), life.sent(T1), life.sent(T1)
    assert can_retry(life, broken, GAP)
    life.manager.resolve_sequences(0.0)
    refuse(life, healthy)
    assert can_retry(life, behind, GAP)
    life.manager.resolve_sequences(0.0)
    assert identity(behind) == (7, 2, 0)


def test_a_partition_with_nothing_in_flight_follows_the_bump_with_its_next_batch() -> None:
    """Its numbers begin at 0 in the new epoch when it is written to, and not before."""
    life = idempotent()
    broken = life.sent(T0)
    assert can_retry(life, broken, GAP)
    life.manager.resolve_sequences(0.0)
    assert life.manager.sequences.of(T1).producer == ProducerIdAndEpoch(7, 0)
    life.manager.sequences.assign(broken)
    life.manager.sequences.completed(broken, 1)
    assert [identity(life.sent(T1)), identity(life.sent(T0))] == [(7, 1, 0), (7, 1, 1)]
    assert life.manager.producer == ProducerIdAndEpoch(7, 1)


def test_a_batch_given_up_in_the_old_epoch_lets_its_partition_begin_anew() -> None:
    """No later batch is in flight, so the next batch of the partition begins a newer epoch."""
    life = idempotent()
    broken, healthy = life.sent(T0), life.sent(T1)
    assert can_retry(life, broken, GAP)
    life.manager.resolve_sequences(0.0)
    life.manager.sequences.assign(broken)
    assert can_retry(life, healthy, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    life.manager.sequences.completed(broken, 1)
    expire(life, healthy)
    life.manager.resolve_sequences(0.0)
    later = life.sent(T1)
    assert later.identity.producer_epoch > healthy.identity.producer_epoch
    assert later.base_sequence == 0
    life.manager.sequences.completed(later, 1)
    assert life.sent(T1).base_sequence == 1
    # What T0 has in its own epoch still counts: there too nothing is numbered twice.
    following = life.sent(T0)
    assert identity(following) in {(7, 1, 1), (7, 2, 0)}


def test_after_the_last_epoch_comes_a_new_id() -> None:
    """Batches that wait for the epoch wait for the id, and others finish under the old one."""
    life = idempotent(epoch=PRODUCER_EPOCH_MAX)
    broken, behind, healthy = life.sent(T0), life.sent(T0), life.sent(T1)
    assert can_retry(life, broken, GAP)
    life.manager.resolve_sequences(0.0)
    assert life.manager.producer == NO_PRODUCER
    assert not life.manager.may_drain(broken)
    life.producer = (8, 0)
    life.serve(ApiKey.INIT_PRODUCER_ID)
    assert [identity(each) for each in (broken, behind)] == [(8, 0, 0), (8, 0, 1)]
    assert identity(healthy) == (7, PRODUCER_EPOCH_MAX, 1)
    life.manager.sequences.completed(healthy, 500)
    assert identity(life.sent(T1)) == (8, 0, 0)


def test_an_acknowledgement_of_the_old_epoch_counts_for_it() -> None:
    """After a bump elsewhere, a partition changes its epoch when its batches are in the log."""
    life = idempotent(epoch=PRODUCER_EPOCH_MAX)
    first, second, elsewhere = life.sent(T0), life.sent(T0), life.sent(T1)
    assert can_retry(life, elsewhere, GAP)
    life.manager.resolve_sequences(0.0)
    life.producer = (8, 0)
    life.serve(ApiKey.INIT_PRODUCER_ID)
    life.manager.sequences.completed(first, 500)
    assert identity(second) == (7, PRODUCER_EPOCH_MAX, 2)
    life.manager.sequences.completed(second, 501)
    assert identity(life.sent(T0)) == (8, 0, 0)


def test_a_refused_batch_that_stands_last_gives_its_number_back() -> None:
    """The log has no gap if the next batch gets the number of the refused one."""
    life = idempotent()
    refuse(life, life.sent())
    life.manager.resolve_sequences(0.0)
    assert identity(life.sent()) == (7, 0, 1)


def test_a_refused_batch_that_was_sent_before_keeps_its_number() -> None:
    """It may be in the log by its first attempt, so the next batch may not look like it."""
    life = idempotent()
    batch = life.sent()
    assert can_retry(life, batch, LOST)
    refuse(life, batch)
    life.manager.resolve_sequences(0.0)
    assert identity(life.sent()) == (7, 1, 0)


def test_a_batch_before_a_refused_one_keeps_its_number() -> None:
    """It may be in the log while its answer is lost, so it is never written under another one."""
    life = idempotent()
    first, refused, behind = life.sent(), life.sent(), life.sent()
    refuse(life, refused)
    assert can_retry(life, first, LOST)
    assert can_retry(life, behind, GAP)
    life.manager.resolve_sequences(0.0)
    assert [identity(each) for each in (first, behind)] == [(7, 0, 1), (7, 0, 3)]
    life.manager.sequences.completed(first, 1)
    life.manager.sequences.assign(behind)
    assert can_retry(life, behind, GAP)
    life.manager.resolve_sequences(0.0)
    assert identity(behind) == (7, 1, 0)


def test_nothing_new_is_sent_behind_a_batch_of_unknown_fate() -> None:
    """While batches behind an expired one are in flight, their outcome decides."""
    life = idempotent()
    expired, behind = life.sent(), life.sent()
    expire(life, expired)
    life.manager.resolve_sequences(0.0)
    assert not life.manager.may_drain(closed_batch())
    life.manager.sequences.completed(behind, 501)
    life.manager.resolve_sequences(0.0)
    assert identity(life.sent()) == (7, 0, 3)


def test_a_gap_behind_an_expired_batch_bumps_the_epoch() -> None:
    """If the log lacks the expired batch, later ones start at 0 in the next epoch."""
    life = idempotent()
    expired, behind = life.sent(), life.sent()
    assert can_retry(life, expired, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    expire(life, expired)
    life.manager.resolve_sequences(0.0)
    assert not life.manager.may_drain(closed_batch())
    assert can_retry(life, behind, GAP)
    life.manager.resolve_sequences(0.0)
    assert identity(behind) == (7, 1, 0)
    assert life.manager.may_drain(behind)
    life.manager.sequences.assign(behind)
    assert not life.manager.may_drain(closed_batch())
    life.manager.sequences.completed(behind, 501)
    assert identity(life.sent()) == (7, 1, 1)


def test_an_expired_batch_with_nothing_behind_bumps_the_epoch() -> None:
    """The next batch has a new epoch, since the expired one may be in the log."""
    life = idempotent()
    life.manager.sequences.completed(life.sent(), 500)
    expire(life, life.sent())
    life.manager.resolve_sequences(0.0)
    assert identity(life.sent()) == (7, 1, 0)


def test_expired_batches_behind_an_expired_one_bump_the_epoch() -> None:
    """If the last batch in flight fails too, numbers restart in a new epoch."""
    life = idempotent()
    batches = [life.sent(), life.sent()]
    for batch in batches:
        expire(life, batch)
    life.manager.resolve_sequences(0.0)
    assert identity(life.sent()) == (7, 1, 0)


def test_a_batch_that_was_never_sent_expires_without_trace() -> None:
    """It had no number."""
    life = idempotent()
    expire(life, closed_batch())
    life.manager.resolve_sequences(0.0)
    assert identity(life.sent()) == (7, 0, 1)


def test_parts_of_a_batch_share_its_numbers() -> None:
    """They stand in its place, before later batches."""
    life = idempotent()
    whole, behind = life.sent(count=5), life.sent()
    parts = [closed_batch(count=2), closed_batch(count=3)]
    life.manager.sequences.split(whole, parts)
    assert [identity(each) for each in parts] == [(7, 0, 1), (7, 0, 3)]
    assert life.manager.sequences.index_in([parts[0], behind], parts[1]) == 1
    life.manager.sequences.completed(parts[0], 0)
    life.manager.sequences.completed(parts[1], 2)
    life.manager.sequences.completed(behind, 5)
    assert life.sent().base_sequence == 7


def test_a_duplicate_counts_as_written() -> None:
    """After a duplicate of unknown offset, the next number follows."""
    life = idempotent()
    life.manager.sequences.completed(life.sent(), -1)
    life.manager.resolve_sequences(0.0)
    assert identity(life.sent()) == (7, 0, 2)


def test_a_retriable_code_is_retried_and_others_are_not() -> None:
    """A code that is not retriable in Kafka, or unknown, fails the batch."""
    life = idempotent()
    batch = life.sent()
    assert can_retry(life, batch, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert not can_retry(life, batch, ErrorCode.INVALID_RECORD)
    assert not can_retry(life, batch, 9999)


def test_an_unauthorized_cluster_ends_the_producer() -> None:
    """After CLUSTER_AUTHORIZATION_FAILED nothing is sent and no failure is looked at."""
    life = idempotent()
    first, second = life.sent(), life.sent()
    life.manager.failed(
        first,
        AuthorizationError("no idempotent writes"),
        code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        was_refused=True,
    )
    assert life.manager.state is State.FATAL_ERROR
    life.manager.failed(second, OutOfOrderSequenceError("gap"), code=GAP, was_refused=True)
    life.manager.resolve_sequences(0.0)
    assert life.manager.producer == ProducerIdAndEpoch(7, 0)
    assert not life.manager.may_drain(closed_batch())


@dataclass
class Log:
    """A partition's leader: Kafka's check of numbers, and what it has written."""

    written: list[InFlightBatch] = field(default_factory=list)
    known: dict[int, tuple[int, "deque[tuple[int, int]]"]] = field(default_factory=dict)

    def append(self, batch: InFlightBatch, sent_as: tuple[int, int, int], *, is_bad: bool) -> int:
        """The answer's code; duplicates of the last five are NONE, as if they were new."""
        producer_id, epoch, first = sent_as
        last = (first + batch.record_count - 1) % SEQUENCE_LIMIT
        if is_bad:
            return ErrorCode.INVALID_RECORD
        known_epoch, recent = self.known.get(producer_id, (epoch, deque(maxlen=5)))
        if epoch < known_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch > known_epoch:
            if first != 0:
                return GAP
            recent = deque(maxlen=5)
        if (first, last) in recent:
            return ErrorCode.NONE
        if recent and first != (recent[-1][1] + 1) % SEQUENCE_LIMIT:
            return GAP
        recent.append((first, last))
        self.known[producer_id] = (epoch, recent)
        self.written.append(batch)
        return ErrorCode.NONE


@dataclass
class Connection:
    """Requests that the leader has not read, and answers that we have not."""

    requests: "deque[tuple[InFlightBatch, BatchIdentity]]" = field(default_factory=deque)
    answers: "deque[tuple[InFlightBatch, int]]" = field(default_factory=deque)
    is_leader: bool = True


PARTITIONS = st.sampled_from([T0, T1])


class ProducerLife(RuleBasedStateMachine):
    """Batches, a leader that may change, connections that may break, at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[InFlightBatch] = []
        self.bad: set[InFlightBatch] = set()
        self.acked: set[InFlightBatch] = set()
        self.queues: dict[TopicPartition, deque[InFlightBatch]] = {T0: deque(), T1: deque()}
        self.logs = {T0: Log(), T1: Log()}
        self.connections = {T0: [Connection()], T1: [Connection()]}

    @initialize(epoch=st.sampled_from([0, PRODUCER_EPOCH_MAX - 1]))
    def start(self, epoch: int) -> None:
        """A producer with an id."""
        self.life = newcomer(epoch=epoch)
        self.ids = 7

    @rule(
        partition=PARTITIONS, count=st.integers(1, 3), is_bad=st.integers(0, 5).map(lambda n: not n)
    )
    def append(self, partition: TopicPartition, count: int, is_bad: bool) -> None:  # noqa: FBT001
        """Records that wait; one in six batches will be refused."""
        batch = closed_batch(partition, count)
        self.order.append(batch)
        self.queues[partition].append(batch)
        if is_bad:
            self.bad.add(batch)

    @rule(partition=PARTITIONS)
    def drain(self, partition: TopicPartition) -> None:
        """Send what may be sent to the leader of the moment."""
        queue = self.queues[partition]
        while queue and self.life.manager.may_drain(queue[0]):
            batch = queue.popleft()
            self.life.manager.sequences.assign(batch)
            self.connections[partition][-1].requests.append((batch, identity(batch)))

    @rule(partition=PARTITIONS, age=st.integers(0, 3), count=st.integers(1, 5))
    def work(self, partition: TopicPartition, age: int, count: int) -> None:
        """A broker reads some requests of a connection and answers them."""
        connections = self.connections[partition]
        connection = connections[-1 - age % len(connections)]
        for _ in range(min(count, len(connection.requests))):
            batch, sent_as = connection.requests.popleft()
            code: int = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if connection.is_leader:
                log = self.logs[partition]
                code = log.append(batch, sent_as, is_bad=batch in self.bad)
            connection.answers.append((batch, code))

    @rule(partition=PARTITIONS, age=st.integers(0, 3), count=st.integers(1, 5))
    def hear(self, partition: TopicPartition, age: int, count: int) -> None:
        """Some answers of a connection arrive."""
        connections = self.connections[partition]
        connection = connections[-1 - age % len(connections)]
        for _ in range(min(count, len(connection.answers))):
            self.take(*connection.answers.popleft())

    @rule(partition=PARTITIONS, age=st.integers(0, 3))
    def disconnect(self, partition: TopicPartition, age: int) -> None:
        """A connection breaks: its answers are lost, and what was not read is not read."""
        connections = self.connections[partition]
        place = len(connections) - 1 - age % len(connections)
        broken = connections[place]
        connections[place] = Connection(is_leader=broken.is_leader)
        for batch, _ in (*broken.answers, *broken.requests):
            self.take(batch, LOST)

    @rule(partition=PARTITIONS)
    def refuse_for_now(self, partition: TopicPartition) -> None:
        """The leader answers the next request with an error that passes."""
        connection = self.connections[partition][-1]
        if connection.requests:
            batch, _ = connection.requests.popleft()
            connection.answers.append((batch, ErrorCode.NOT_ENOUGH_REPLICAS))

    @rule(partition=PARTITIONS)
    def change_leader(self, partition: TopicPartition) -> None:
        """Another broker leads, with the same log; the old one refuses what it has not read."""
        self.connections[partition][-1].is_leader = False
        self.connections[partition].append(Connection())

    @precondition(lambda self: any(not each.outcome.is_done for each in self.order))
    @rule()
    def expire(self) -> None:
        """The oldest batch has no time left."""
        batch = next(each for each in self.order if not each.outcome.is_done)
        if batch in self.queues[batch.partition]:
            self.queues[batch.partition].remove(batch)
        expire(self.life, batch)
        batch.outcome.finish()

    @rule()
    def poll(self) -> None:
        """The manager sees to its epoch; InitProducerId is answered with a new id."""
        manager = self.life.manager
        manager.resolve_sequences(0.0)
        request = manager.flow.next_request(0.0, has_incomplete=False)
        if request is not None:
            self.ids += 1
            self.life.producer = (self.ids, 0)
            self.life.reply(request)

    def take(self, batch: InFlightBatch, code: int) -> None:
        """An answer, as the sender takes it."""
        manager = self.life.manager
        if batch.outcome.is_done:
            return
        if code == ErrorCode.NONE:
            manager.sequences.completed(batch, 0)
            self.acked.add(batch)
            batch.outcome.finish()
        elif can_retry(self.life, batch, code):
            queue = self.queues[batch.partition]
            queue.insert(manager.sequences.index_in(queue, batch), batch)
        else:
            manager.failed(batch, RejectedRecordError("no"), code=code, was_refused=True)
            batch.outcome.finish()

    @invariant()
    def the_log_has_everything_once_and_in_order(self) -> None:
        """No batch twice, whatever became of it; the acknowledged ones all, as they were sent."""
        for partition, log in self.logs.items():
            assert len(set(log.written)) == len(log.written)
            acked = [each for each in self.order if each in self.acked]
            sent = [each for each in acked if each.partition == partition]
            assert [each for each in log.written if each in self.acked] == sent

    def teardown(self) -> None:
        """Once nothing breaks any more, every batch gets its outcome."""
        for _ in range(8 * len(self.order) + 8):
            for partition in self.queues:
                self.poll()
                self.drain(partition)
                for age in range(len(self.connections[partition])):
                    self.work(partition, age, 99)
                    self.hear(partition, age, 99)
        assert all(each.outcome.is_done for each in self.order)
        self.the_log_has_everything_once_and_in_order()


def test_every_acknowledged_batch_is_in_the_log_once_and_in_order() -> None:
    """This holds whatever is lost, late, refused or moved, and in whatever order."""
    run_state_machine_as_test(
        ProducerLife,
        settings=settings(
            max_examples=examples(120),
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
