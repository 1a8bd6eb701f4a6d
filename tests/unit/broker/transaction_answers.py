"""Answers to transactional producers: every state of a transaction, request, version and producer.

    state                the steps that bring a transactional id there, from a record in the log
      x request          InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, Produce, …
      x version          those in which answers differ
      x producer         the current one, those of other epochs, another one
    = a cell             one transactional id, one question, one line of `transaction_answers.tsv`

Apache Kafka has given the answers (`python -m compat.transaction_answers`), and our broker is held
to them. A cell knows no connection: it is a generator of requests, to which responses are sent, so
that the same cells run over a socket and on a broker on doubles.

A line says the error, the producer that the answer gives, and state and producer afterwards.
Producer ids are written as `first`, the one of the record in the log, and `new`, any other.

`HELD` is a partition that takes no markers, because its log directory has failed: what ends in it
remains prepared.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tailrace.coordinator.machine import CoordinatorRecord
from tailrace.coordinator.transactions.records import transaction_record
from tailrace.coordinator.transactions.state import (
    EPOCH_PER_TRANSACTION,
    PREPARED,
    Transaction,
)
from tailrace.coordinator.transactions.state import TransactionStatus as Status
from tailrace.model import PRODUCER_EPOCH_MAX, ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tailrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tailrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from tailrace.protocol.messages.end_txn import EndTxnRequest
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tailrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tailrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tailrace.records.builder import BatchBuilder

ANSWERS = Path(__file__).with_suffix(".tsv")
HEADER = "state\trequest\tproducer\terror\tanswer\tafterwards"

LIVE = TopicPartition("live", 0)
OTHER = TopicPartition("live", 1)
"""A partition that is in no transaction before the question."""
HELD = TopicPartition("held", 0)
GROUP = "g"

EPOCH = ProducerEpoch(3)
LAST_BUT_ONE = ProducerEpoch(32_765)
"""The epoch after it is the last one that a client gets."""
FIRST_ID = 1_000_000
"""Producer id of the first cell; above those that either broker gives out."""
STRANGER = 1_000_000
"""Distance from it to a producer id that has nothing to do with its transactional id."""
TIMEOUT_MS = 600_000
SENT_MS = 1_700_000_000_000
"""Timestamp of records."""
UPDATED_MS = 1_900_000_000_000
"""Late, so that no id expires."""
MARKED_BY = 1_000
"""Coordinator epoch of markers that are written here; above those of either broker."""
LATE_TURNS_MAX = 2_000


class Ask(NamedTuple):
    """A request, and the version to send it in."""

    request: Message
    version: int


class Producer(NamedTuple):
    """Producer id and epoch."""

    id: int
    epoch: int


NOBODY = Producer(-1, -1)

Run = Generator[Ask | None, Any, Any]
"""Yields requests, and gets responses; None: let some time pass."""


@dataclass(slots=True)
class Life:
    """A transactional id on its way to a state."""

    transactional_id: str
    first_id: int
    """Producer id of the record that it begins with."""
    producer: Producer
    """The current one, as far as answers say."""
    given: Producer = NOBODY
    """The one of the last answer, if the current one is another."""

    def describe(self) -> Run:
        """The response of DescribeTransactions for the id."""
        request = DescribeTransactionsRequest(transactional_ids=(self.transactional_id,))
        response = yield Ask(request, 0)
        return response.transaction_states[0]


Step = Callable[[Life], Run]


def init(*, knows_producer: bool) -> Step:
    """InitProducerId, of a client that goes on or of a new one."""

    def run(life: Life) -> Run:
        known = life.producer if knows_producer else NOBODY
        response = yield Ask(_init(life, known), 5)
        if response.error_code == ErrorCode.NONE:
            life.producer = Producer(response.producer_id, response.producer_epoch)

    return run


def add(partition: TopicPartition, *, version: int) -> Step:
    """AddPartitionsToTxn: version 3 of a client that keeps its epoch, 5 of one of KIP-890."""

    def run(life: Life) -> Run:
        response = yield Ask(_add(life, life.producer, version, partition), version)
        assert _partition_code(response, version) == ErrorCode.NONE

    return run


def add_group(life: Life) -> Run:
    """AddOffsetsToTxn."""
    response = yield Ask(_add_group(life, life.producer), 4)
    assert response.error_code == ErrorCode.NONE


def end(*, is_commit: bool, version: int) -> Step:
    """EndTxn."""

    def run(life: Life) -> Run:
        response = yield Ask(_end(life, life.producer, is_commit=is_commit), version)
        assert response.error_code == ErrorCode.NONE
        if response.producer_id >= 0:
            life.given = Producer(response.producer_id, response.producer_epoch)

    return run


def write(life: Life) -> Run:
    """Produce, to `LIVE`."""
    response = yield Ask(_produce(life, life.producer, LIVE), 12)
    assert _produced(response, 12).error == ErrorCode.NONE


def mark(life: Life) -> Run:
    """WriteTxnMarkers of an operator, who ends the transaction in `LIVE`."""
    marker = life.producer._replace(epoch=life.producer.epoch + 1)
    response = yield Ask(_mark(marker, MARKED_BY, transaction_version=2), 2)
    assert _marked(response, 2).error == ErrorCode.NONE


def settle(life: Life) -> Run:
    """Wait until the markers are written."""
    yield from _settled(life)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A state, and the way to it."""

    status: Status | None
    """The end of the way; None: the id is not known."""
    seed: tuple[Status, ProducerEpoch] | None = (Status.EMPTY, EPOCH)
    """Status and epoch of the record in the log that it begins with."""
    steps: tuple[Step, ...] = ()


def ended(status: Status, *, version: int, first: tuple[Step, ...] = ()) -> tuple[Step, ...]:
    """The steps to a transaction whose end is prepared or complete, by EndTxn of this version."""
    is_held = status in PREPARED
    is_commit = status in {Status.PREPARE_COMMIT, Status.COMPLETE_COMMIT}
    begin = add(HELD if is_held else LIVE, version=version)
    ending = end(is_commit=is_commit, version=version)
    return (*first, begin, ending) if is_held else (*first, begin, ending, settle)


WRITTEN, MARKED = "Ongoing, written", "Ongoing, written and marked"
BY_EARLIER_KAFKA = "CompleteAbort, by Kafka before 4.3"
_ENDS = (
    Status.PREPARE_COMMIT,
    Status.PREPARE_ABORT,
    Status.COMPLETE_COMMIT,
    Status.COMPLETE_ABORT,
)
_AT_LAST = (init(knows_producer=True),)
"""From `_LAST_SEED` to the last epoch that a client gets."""
_LAST_SEED = (Status.EMPTY, LAST_BUT_ONE)
_FENCE = init(knows_producer=False)

STATES: Mapping[str, State] = {
    "unknown": State(status=None, seed=None),
    "Empty": State(status=Status.EMPTY),
    "Empty, continued": State(status=Status.EMPTY, steps=(init(knows_producer=True),)),
    "Ongoing, classic": State(status=Status.ONGOING, steps=(add(LIVE, version=3),)),
    "Ongoing": State(status=Status.ONGOING, steps=(add(LIVE, version=5),)),
    "Ongoing, continued": State(
        status=Status.ONGOING, steps=(init(knows_producer=True), add(LIVE, version=5))
    ),
    "Ongoing, group": State(status=Status.ONGOING, steps=(add_group,)),
    WRITTEN: State(status=Status.ONGOING, steps=(add(LIVE, version=5), write)),
    MARKED: State(status=Status.ONGOING, steps=(add(LIVE, version=5), write, mark)),
    **{
        f"{each.label}, classic": State(status=each, steps=ended(each, version=3)) for each in _ENDS
    },
    **{each.label: State(status=each, steps=ended(each, version=5)) for each in _ENDS},
    "PrepareAbort, fenced": State(
        status=Status.PREPARE_ABORT, steps=(add(HELD, version=5), _FENCE)
    ),
    "CompleteAbort, fenced": State(
        status=Status.COMPLETE_ABORT, steps=(add(LIVE, version=5), _FENCE, settle)
    ),
    "Empty, last epoch": State(status=Status.EMPTY, seed=_LAST_SEED, steps=(_FENCE,)),
    "Empty, last epoch, continued": State(status=Status.EMPTY, seed=_LAST_SEED, steps=_AT_LAST),
    "Ongoing, last epoch": State(
        status=Status.ONGOING, seed=_LAST_SEED, steps=(*_AT_LAST, add(LIVE, version=5))
    ),
    **{
        f"{each.label}, classic, last epoch": State(
            status=each, seed=_LAST_SEED, steps=ended(each, version=3, first=_AT_LAST)
        )
        for each in _ENDS
    },
    **{
        f"{each.label}, last epoch": State(
            status=each, seed=_LAST_SEED, steps=ended(each, version=5, first=_AT_LAST)
        )
        for each in _ENDS
    },
    "PrepareAbort, last epoch, fenced": State(
        status=Status.PREPARE_ABORT,
        seed=_LAST_SEED,
        steps=(*_AT_LAST, add(HELD, version=5), _FENCE),
    ),
    "CompleteAbort, last epoch, fenced": State(
        status=Status.COMPLETE_ABORT,
        seed=_LAST_SEED,
        steps=(*_AT_LAST, add(LIVE, version=5), _FENCE, settle),
    ),
    "Empty, next producer id": State(
        status=Status.EMPTY, seed=_LAST_SEED, steps=(*_AT_LAST, init(knows_producer=True))
    ),
    "Empty, next producer id, fenced": State(
        status=Status.EMPTY, seed=_LAST_SEED, steps=(*_AT_LAST, _FENCE)
    ),
    BY_EARLIER_KAFKA: State(
        status=Status.COMPLETE_ABORT, seed=(Status.COMPLETE_ABORT, ProducerEpoch(32_767))
    ),
}


def _init(life: Life, producer: Producer) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=life.transactional_id,
        transaction_timeout_ms=TIMEOUT_MS,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
    )


def _add(
    life: Life,
    producer: Producer,
    version: int,
    partition: TopicPartition,
    *,
    verify_only: bool = False,
) -> AddPartitionsToTxnRequest:
    topics = (AddPartitionsToTxnTopic(name=partition.topic, partitions=(partition.partition,)),)
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=life.transactional_id,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=topics,
        )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=life.transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=topics,
    )
    return AddPartitionsToTxnRequest(transactions=(transaction,))


def _add_group(life: Life, producer: Producer) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=life.transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        group_id=GROUP,
    )


def _end(life: Life, producer: Producer, *, is_commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=life.transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        committed=is_commit,
    )


def _produce(life: Life, producer: Producer, partition: TopicPartition) -> ProduceRequest:
    builder = BatchBuilder(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        is_transactional=True,
    )
    builder.append(None, b"v", timestamp=SENT_MS)
    data = PartitionProduceData(index=partition.partition, records=builder.build())
    return ProduceRequest(
        transactional_id=life.transactional_id,
        acks=-1,
        timeout_ms=10_000,
        topic_data=(TopicProduceData(name=partition.topic, partition_data=(data,)),),
    )


def _commit_offset(life: Life, producer: Producer) -> TxnOffsetCommitRequest:
    offset = TxnOffsetCommitRequestPartition(
        partition_index=LIVE.partition, committed_offset=1, committed_metadata=None
    )
    return TxnOffsetCommitRequest(
        transactional_id=life.transactional_id,
        group_id=GROUP,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=(TxnOffsetCommitRequestTopic(name=LIVE.topic, partitions=(offset,)),),
    )


class Found(NamedTuple):
    """An error, and the producer that came with it."""

    error: int
    producer: Producer = NOBODY


def _partition_code(response: Any, version: int) -> int:
    results = (
        response.results_by_topic_v3_and_below
        if version < 4
        else response.results_by_transaction[0].topic_results
    )
    code: int = results[0].results_by_partition[0].partition_error_code
    return code


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A kind of request."""

    versions: tuple[int, ...]
    """The versions whose answers differ."""
    make: Callable[[Life, Producer, int], Message]
    read: Callable[[Any, int], Found]
    """The answer in a response of this version."""
    takes_nobody: bool = False
    """Whether a client without a producer id may ask."""
    states: Collection[str] | None = None
    """The states in which it is asked; None: all."""


def _coded(response: Any, _: int) -> Found:
    return Found(response.error_code)


def _with_producer(response: Any, _: int) -> Found:
    producer = Producer(response.producer_id, response.producer_epoch)
    return Found(response.error_code, producer)


def _of_partition(response: Any, version: int) -> Found:
    return Found(_partition_code(response, version))


def _produced(response: Any, _: int) -> Found:
    return Found(response.responses[0].partition_responses[0].error_code)


def _committed(response: Any, _: int) -> Found:
    return Found(response.topics[0].partitions[0].error_code)


def _marked(response: Any, _: int) -> Found:
    return Found(response.markers[0].topics[0].partitions[0].error_code)


def _mark(
    producer: Producer, coordinator_epoch: int, *, transaction_version: int
) -> WriteTxnMarkersRequest:
    topic = WritableTxnMarkerTopic(name=LIVE.topic, partition_indexes=(LIVE.partition,))
    marker = WritableTxnMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transaction_result=True,
        topics=(topic,),
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    return WriteTxnMarkersRequest(markers=(marker,))


def _marking(coordinator_epoch: int, *, versions: tuple[int, ...], raises: bool) -> Question:
    return Question(
        versions=versions,
        make=lambda _, producer, __: _mark(
            producer, coordinator_epoch, transaction_version=2 if raises else 0
        ),
        read=_marked,
        states=("unknown", "Empty", WRITTEN, MARKED),
    )


def _verify(partition: TopicPartition) -> Question:
    return Question(
        versions=(5,),
        make=lambda life, producer, version: _add(
            life, producer, version, partition, verify_only=True
        ),
        read=_of_partition,
    )


def _write(partition: TopicPartition) -> Question:
    return Question(
        versions=(10, 11, 12),
        make=lambda life, producer, _: _produce(life, producer, partition),
        read=_produced,
    )


def _finish(*, is_commit: bool) -> Question:
    return Question(
        versions=(1, 4, 5),
        make=lambda life, producer, _: _end(life, producer, is_commit=is_commit),
        read=_with_producer,
    )


QUESTIONS: Mapping[str, Question] = {
    "InitProducerId": Question(
        versions=(3, 5),
        make=lambda life, producer, _: _init(life, producer),
        read=_with_producer,
        takes_nobody=True,
    ),
    "AddPartitionsToTxn": Question(
        versions=(1, 3, 5),
        make=lambda life, producer, version: _add(life, producer, version, OTHER),
        read=_of_partition,
    ),
    "AddPartitionsToTxn, verify what was added": _verify(LIVE),
    "AddPartitionsToTxn, verify another": _verify(OTHER),
    "AddOffsetsToTxn": Question(
        versions=(1, 4),
        make=lambda life, producer, _: _add_group(life, producer),
        read=_coded,
    ),
    "EndTxn, commit": _finish(is_commit=True),
    "EndTxn, abort": _finish(is_commit=False),
    "Produce to what was added": _write(LIVE),
    "Produce to another": _write(OTHER),
    "TxnOffsetCommit": Question(
        versions=(3, 4, 5),
        make=lambda life, producer, _: _commit_offset(life, producer),
        read=_committed,
    ),
    "WriteTxnMarkers": _marking(MARKED_BY, versions=(1, 2), raises=False),
    "WriteTxnMarkers, raised epoch": _marking(MARKED_BY, versions=(2,), raises=True),
    "WriteTxnMarkers, older coordinator": _marking(MARKED_BY - 1, versions=(1,), raises=False),
    "WriteTxnMarkers, raised epoch, older coordinator": _marking(
        MARKED_BY - 1, versions=(2,), raises=True
    ),
    "WriteTxnMarkers, raised epoch, newer coordinator": _marking(
        MARKED_BY + 1, versions=(2,), raises=True
    ),
}

PRODUCERS: Mapping[str, Callable[[Life], Producer]] = {
    "none": lambda _: NOBODY,
    "current": lambda life: life.producer,
    "last epoch": lambda life: life.producer._replace(epoch=life.producer.epoch - 1),
    "older epoch": lambda life: life.producer._replace(epoch=life.producer.epoch - 2),
    "next epoch": lambda life: life.producer._replace(epoch=life.producer.epoch + 1),
    "other id": lambda life: life.producer._replace(id=life.first_id + STRANGER),
    "given": lambda life: life.given,
    "first id": lambda life: Producer(life.first_id, LAST_BUT_ONE + 1),
    "first id, last epoch": lambda life: Producer(life.first_id, LAST_BUT_ONE),
}


class Cell(NamedTuple):
    """A question to one transactional id, by the names of the tables above."""

    number: int
    state: str
    question: str
    version: int
    producer: str

    @property
    def label(self) -> str:
        """The beginning of its line in the file, before the answer."""
        return f"{self.state}\t{self.question} v{self.version}\t{self.producer}"

    @property
    def transactional_id(self) -> str:
        """Its own, so that cells can be asked in any order."""
        return f"t{self.number}"

    @property
    def first_id(self) -> ProducerId:
        """The producer id of the record in the log."""
        return ProducerId(FIRST_ID + self.number)


def cells() -> Iterator[Cell]:
    """Every one; some producers do not exist in some states, and get no line."""
    places = (
        (state, name, version, producer)
        for state in STATES
        for name, question in QUESTIONS.items()
        for version in question.versions
        for producer in PRODUCERS
        if producer != "none" or question.takes_nobody
        if (state not in {WRITTEN, MARKED} if question.states is None else state in question.states)
    )
    for number, place in enumerate(places):
        yield Cell(number, *place)


def seeds(found: Iterable[Cell]) -> Iterator[CoordinatorRecord]:
    """The records with which their transactional ids begin."""
    for cell in found:
        seed = STATES[cell.state].seed
        if seed is not None:
            status, epoch = seed
            yield transaction_record(
                Transaction(
                    transactional_id=cell.transactional_id,
                    producer_id=cell.first_id,
                    producer_epoch=epoch,
                    previous_producer_id=cell.first_id,
                    timeout_ms=TIMEOUT_MS,
                    status=status,
                    updated_ms=UPDATED_MS,
                    start_ms=UPDATED_MS if status is Status.COMPLETE_ABORT else -1,
                    client_version=EPOCH_PER_TRANSACTION,
                )
            )


def why_other(line: str) -> str | None:
    """Why our answer may be another than this line of Kafka's; None: it may not."""
    state, _, producer, error, *_ = line.split("\t")
    if error == ErrorCode.UNKNOWN_SERVER_ERROR.name:
        return "Kafka fails where the epochs are used up; we fence the client, or answer as before"
    if state == BY_EARLIER_KAFKA and producer in {"current", "last epoch"}:
        return "a transaction under epoch 32767 could neither be fenced nor ended"
    return None


def answers(group: Sequence[Cell]) -> Run:
    """The lines of cells of one state, asked of the first one's id, one after the other.

    All but the last one have to leave the state as it is. A cell whose producer does not exist in
    the state has no line.
    """
    first = group[0]
    state = STATES[first.state]
    epoch = EPOCH if state.seed is None else state.seed[1]
    life = Life(first.transactional_id, first.first_id, Producer(first.first_id, epoch))
    for step in state.steps:
        yield from step(life)
    if state.status is not None:
        described = yield from life.describe()
        assert described.transaction_state == state.status.label, (first, described)
        life.producer = Producer(described.producer_id, described.producer_epoch)
    found: list[tuple[Cell, Found]] = []
    for cell in group:
        question, asker = QUESTIONS[cell.question], PRODUCERS[cell.producer](life)
        if _is_asking(cell.producer, asker, life):
            response = yield Ask(question.make(life, asker, cell.version), cell.version)
            found.append((cell, question.read(response, cell.version)))
    afterwards = "" if not found else _afterwards((yield from _settled(life)), life)
    return [
        "\t".join((cell.label, ErrorCode(each.error).name, _named(each.producer, life), afterwards))
        for cell, each in found
    ]


def _is_asking(name: str, asker: Producer, life: Life) -> bool:
    """Whether a producer exists, and has no other name."""
    if name == "none":
        return True
    if name in {"given", "first id", "first id, last epoch"} and asker.id == life.producer.id:
        return False
    return asker.id >= 0 and 0 <= asker.epoch <= PRODUCER_EPOCH_MAX


def _settled(life: Life) -> Run:
    """The state of an id when all markers that can be written are written."""
    described = yield from life.describe()
    turns = 0
    while described.transaction_state.startswith("Prepare"):
        if HELD.topic in {topic.topic for topic in described.topics}:
            return described
        turns += 1
        assert turns < LATE_TURNS_MAX, f"{life.transactional_id} is not complete: {described}"
        yield None
        described = yield from life.describe()
    return described


def _named(producer: Producer, life: Life) -> str:
    if producer == NOBODY:
        return "-"
    return f"{'first' if producer.id == life.first_id else 'new'}:{producer.epoch}"


def _afterwards(described: Any, life: Life) -> str:
    if described.error_code != ErrorCode.NONE:
        return ErrorCode(described.error_code).name
    producer = Producer(described.producer_id, described.producer_epoch)
    return f"{described.transaction_state} {_named(producer, life)}"
