"""A `TransactionManager` whose coordinator is played by the test: batches, and answers by code."""

from collections.abc import Callable, Coroutine, Generator
from random import Random

from tailrace.client.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from tailrace.client.nodes import Backoff
from tailrace.client.producer.config import parse_producer_config
from tailrace.client.producer.errors import RejectedRecordError, TransactionAbortableError
from tailrace.client.producer.identity import TransactionManager
from tailrace.client.producer.identity.flow import State
from tailrace.client.producer.identity.requests import PendingOperation, TransactionRequest
from tailrace.client.producer.intake.records import Prepared
from tailrace.client.producer.outcome import BatchOutcome, DeliveryCallback, DeliveryOutcome
from tailrace.client.producer.plugins import ProducerRecord
from tailrace.client.producer.queue.batches import InFlightBatch
from tailrace.client.producer.queue.open_batches import OpenBatch
from tailrace.model import TopicPartition
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from tailrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from tailrace.protocol.messages.end_txn import EndTxnResponse
from tailrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.protocol.messages.init_producer_id import InitProducerIdResponse
from tailrace.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from tailrace.testing.answers import offsets_answer, partitions_answer

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
NAME = "transfers"


class NobodyWaits:
    """The waiting side of batches that no producer has made."""

    def wait(self, outcome: DeliveryOutcome, timeout_s: float | None) -> bool:
        """Not asked for here."""
        raise NotImplementedError(outcome, timeout_s)

    def call_back(self, outcome: DeliveryOutcome, index: int, callback: DeliveryCallback) -> None:
        """Not asked for here."""
        raise NotImplementedError(outcome, index, callback)

    def awaiting(self, outcome: DeliveryOutcome) -> Generator[object, None, None]:
        """Not asked for here."""
        raise NotImplementedError(outcome)

    def batched(self, receipt: object) -> Coroutine[object, object, object]:
        """Not asked for here."""
        raise NotImplementedError(receipt)

    def forked(self) -> None:
        """Not asked for here."""
        raise NotImplementedError


def closed_batch(
    partition: TopicPartition = T0, count: int = 1, *, created_at: float = 0.0
) -> InFlightBatch:
    """A batch of `count` records that takes no more."""
    batch = OpenBatch(
        BatchOutcome(partition, NobodyWaits()),
        created_at=created_at,
        size_limit=1000,
        size_max=1000,
        count_limit=count,
        reserved=0,
    )
    for _ in range(count):
        batch.append_prepared(Prepared(ProducerRecord(partition.topic), None, b"x", b"", 10), 0)
    return InFlightBatch(batch.seal())


def answer_to(body: Message, key: ApiKey, code: int, *, producer: tuple[int, int]) -> Message:
    """The answer with this error code for everything that was asked."""
    match body:
        case FindCoordinatorRequest():
            found = Coordinator(
                key=body.key, node_id=1 + body.key_type, host="broker", port=9092, error_code=code
            )
            return FindCoordinatorResponse(coordinators=(found,))
        case AddPartitionsToTxnRequest():
            return partitions_answer(body, code)
        case TxnOffsetCommitRequest():
            return offsets_answer(body, code)
    if key is ApiKey.INIT_PRODUCER_ID:
        who = producer if code == ErrorCode.NONE else (-1, -1)
        return InitProducerIdResponse(error_code=code, producer_id=who[0], producer_epoch=who[1])
    if key is ApiKey.END_TXN:
        return EndTxnResponse(error_code=code)
    return AddOffsetsToTxnResponse(error_code=code)


class Life:
    """A manager, virtual time, and a coordinator that answers what the test says."""

    def __init__(
        self, *, is_transactional: bool = True, init_version: int = 5, level: int = 0
    ) -> None:
        self.level = level
        """The cluster's `transaction.version`."""
        settings = {"bootstrap.servers": "none:9092"}
        if is_transactional:
            settings["transactional.id"] = NAME
        self.manager = TransactionManager(
            parse_producer_config(settings), Backoff(100, 1000, Random(1)), lambda _: self.level
        )
        self.manager.flow.version.note_coordinator(init_producer_id_version=init_version)
        self.now = 0.0
        self.has_incomplete = False
        self.producer = (7, 0)
        self.asked: list[ApiKey] = []

    def ask(self, expected: ApiKey) -> TransactionRequest:
        """The next request, which has to be this one; virtual time runs through any pause."""
        self.manager.resolve_sequences(self.now)
        request = self.manager.flow.next_request(self.now, has_incomplete=self.has_incomplete)
        deadline = self.next_deadline()
        if request is None and deadline is not None:
            self.now = deadline
            request = self.manager.flow.next_request(self.now, has_incomplete=self.has_incomplete)
        assert request is not None, f"nothing is asked for, {expected.title} was expected"
        assert request.key is expected
        self.asked.append(request.key)
        return request

    def next_deadline(self) -> float | None:
        """When the next request is due, if it pauses."""
        return self.manager.flow.queue.next_deadline()

    def reply(self, request: TransactionRequest, code: int = ErrorCode.NONE) -> None:
        """Answer a request, after its body has gone through the wire."""
        assert isinstance(request.body, APIS[request.key].request)
        answer = answer_to(request.body, request.key, code, producer=self.producer)
        self.manager.flow.answered(request, answer, self.now)

    def serve(self, expected: ApiKey, code: int = ErrorCode.NONE) -> TransactionRequest:
        """Ask and answer."""
        request = self.ask(expected)
        self.reply(request, code)
        return request

    def is_idle(self) -> bool:
        """Whether nothing is to be sent, now or after a pause."""
        return (
            self.manager.flow.next_request(self.now, has_incomplete=self.has_incomplete) is None
            and self.next_deadline() is None
        )

    def initialized(self) -> "Life":
        """With an id and an epoch."""
        if self.manager.is_transactional:
            pending = self.manager.init_transactions()
            self.serve(ApiKey.FIND_COORDINATOR)
            self.serve(ApiKey.INIT_PRODUCER_ID)
            pending.take()
        else:
            self.serve(ApiKey.INIT_PRODUCER_ID)
        return self

    def begun(self, *partitions: TopicPartition) -> "Life":
        """With a transaction that has these partitions."""
        self.manager.begin()
        for partition in partitions:
            self.manager.may_append(partition)
            self.manager.note_append(partition)
        if partitions:
            self.serve(ApiKey.ADD_PARTITIONS_TO_TXN)
        return self

    def known_to(self, *partitions: TopicPartition) -> "Life":
        """With a first batch of one record in the log of each partition."""
        for partition in partitions:
            self.manager.sequences.completed(self.sent(partition), 0)
        return self

    def sent(self, partition: TopicPartition = T0, count: int = 1) -> InFlightBatch:
        """A batch that has been sent."""
        batch = closed_batch(partition, count, created_at=self.now)
        assert self.manager.may_drain(batch)
        self.manager.sequences.assign(batch)
        return batch


FIND = ApiKey.FIND_COORDINATOR
INIT = ApiKey.INIT_PRODUCER_ID
PARTITIONS = ApiKey.ADD_PARTITIONS_TO_TXN
OFFSETS = ApiKey.ADD_OFFSETS_TO_TXN
COMMIT_OFFSETS = ApiKey.TXN_OFFSET_COMMIT
END = ApiKey.END_TXN

GROUP = ConsumerGroupMetadata("consumers", 3, "member", "instance")
CONSUMED = {T0: OffsetAndMetadata(42, 5, "here"), T1: OffsetAndMetadata(7)}

FENCED = [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH]
FORGOTTEN = [ErrorCode.UNKNOWN_PRODUCER_ID]
LOST_COORDINATOR = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE]
PASSING = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NETWORK_EXCEPTION,
]

ABORTABLE = TransactionAbortableError("the batch failed")


def upto_init(life: Life) -> PendingOperation:
    """Asking for an id."""
    pending = life.manager.init_transactions()
    life.serve(FIND)
    return pending


def upto_partitions(life: Life) -> PendingOperation:
    """Asking for a partition; the commit waits for it."""
    life.initialized().begun()
    life.manager.note_append(T0)
    return life.manager.commit()


def upto_offsets(life: Life) -> PendingOperation:
    """Asking for the offsets of a group."""
    life.initialized().begun()
    return life.manager.send_offsets(CONSUMED, GROUP)


def upto_offset_commit(life: Life) -> PendingOperation:
    """Handing in the offsets themselves."""
    pending = upto_offsets(life)
    life.serve(OFFSETS)
    life.serve(FIND)
    return pending


def upto_end(life: Life) -> PendingOperation:
    """Asking for a commit."""
    life.initialized().begun(T0)
    return life.manager.commit()


STEPS: list[tuple[ApiKey, Callable[[Life], PendingOperation]]] = [
    (INIT, upto_init),
    (PARTITIONS, upto_partitions),
    (OFFSETS, upto_offsets),
    (COMMIT_OFFSETS, upto_offset_commit),
    (END, upto_end),
]
STEP_NAMES = [key.name for key, _ in STEPS]


def fail_batch(life: Life, *, code: int = ErrorCode.INVALID_RECORD) -> None:
    """A batch of the transaction is refused."""
    life.manager.failed(life.sent(T0), RejectedRecordError("no"), code=code, was_refused=True)


def finish(life: Life, key: ApiKey) -> None:
    """Serve a step, and what has to follow until its call is done."""
    follow = {PARTITIONS: (END,), OFFSETS: (FIND, COMMIT_OFFSETS)}
    for each in (key, *follow.get(key, ())):
        life.serve(each)


def abort(life: Life, *keys: ApiKey) -> None:
    """Abort; these are the requests that it takes."""
    pending = life.manager.abort()
    for key in keys:
        life.serve(key)
    assert life.is_idle()
    pending.take()


def state_of(life: Life) -> State:
    """Return the state of the producer."""
    return life.manager.state


def is_ongoing(life: Life) -> bool:
    """Whether there is a transaction without an end."""
    return state_of(life) not in {State.UNINITIALIZED, State.INITIALIZING, State.READY}
