"""The part of Produce before a transaction's first batch in a partition: its coordinator is asked.

no transaction open here   guard from the log, the coordinator's yes, append with the guard
open                       nothing: the batch follows
of a newer epoch           refused: the log knows that the batch comes late

Produce up to v10   the partition is in the transaction, or INVALID_TXN_STATE
v11                 likewise, or TRANSACTION_ABORTABLE
from v12 on         it is added to the transaction now (KIP-890)
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from struct import Struct

from tailrace.coordinator.machine import TransactionalProducer
from tailrace.coordinator.transactions.requests import AddPartitions
from tailrace.coordinator.transactions.state import CLASSIC, EPOCH_PER_TRANSACTION
from tailrace.errors import TailraceError
from tailrace.handlers.produce_refusals import Refusal, is_transactional
from tailrace.handlers.services import Services, error_code
from tailrace.handlers.transactions import ask_coordinator, error_of_verification
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.produce import ProduceRequest
from tailrace.records import layout
from tailrace.runtime.slices import Slices
from tailrace.storage.producers import InvalidProducerEpochError
from tailrace.storage.verification import VerificationGuard
from tailrace.values import dataclass, field

# The first version with the code TRANSACTION_ABORTABLE (KIP-890).
ABORTABLE_SINCE = 11
# In a transaction clients send v12 only where `transaction.version` is 2, and leave
# AddPartitionsToTxn out then.
ADDS_SINCE = 12

_RETRIED = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        # Of a coordinator on another broker, which has not answered.
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors of a coordinator that clients do not expect from Produce; they retry
NOT_ENOUGH_REPLICAS, without new metadata."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The result for the transactional batches of a request, by partition."""

    refusals: Mapping[TopicPartition, Refusal] = field(default_factory=dict)
    guards: Mapping[TopicPartition, VerificationGuard] = field(default_factory=dict)
    """The guard of each batch that begins a transaction in its partition."""


async def admit(services: Services, request: ProduceRequest, version: int) -> Admission | Refusal:
    """Verify the transactional batches of a request; a refusal is for the whole request."""
    if request.transactional_id is None:
        # As in Kafka, whose check of the right to write to the id fails where there is no id.
        return Refusal(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "the request has transactional records and no transactional id",
        )
    slices = Slices()
    is_adding = version >= ADDS_SINCE
    producer: TransactionalProducer | None = None
    refusals: dict[TopicPartition, Refusal] = {}
    guards: dict[TopicPartition, VerificationGuard] = {}
    begun: dict[TopicPartition, Callable[[], VerificationGuard | None]] = {}
    for name, records in _transactional(services, request):
        await services.replicas.new_logs.wait_for(name)
        await slices.turn()
        producer_id, epoch, sequence = _PRODUCER.unpack_from(records, layout.PRODUCER_ID_POSITION)
        if producer not in {None, (producer_id, epoch)}:
            # One transactional id has one producer, so the coordinator could not be asked by one
            # request. Kafka refuses it likewise.
            return Refusal(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                "the request has transactional records of several producers",
            )
        producer = TransactionalProducer(producer_id, epoch)
        # From v12 on the partition is added whether verification is on or off: the client does not
        # do it, and what was not added gets no marker (decision 61).
        if producer_id < 0 or not (is_adding or services.transaction_settings.is_verifying):
            continue
        begun[name] = partial(
            _begin,
            services,
            name,
            producer,
            sequence=sequence,
            begins_at_zero=is_adding,
        )
        try:
            # Before the coordinator is asked: when a producer id is used up it knows the next one
            # only, but the log still knows the epoch of this one (decision 61).
            guard = begun[name]()
        except InvalidProducerEpochError as error:
            refusals[name] = _late(error)
            continue
        except (TailraceError, OSError) as error:
            # Refused here and not at the append: the partition may be led here by then, and would
            # get a batch that nobody has verified.
            refusals[name] = Refusal(error_code(error), str(error))
            continue
        if guard is not None:
            guards[name] = guard
    if producer is None or not guards:
        return Admission(refusals)
    asked = AddPartitions(
        transactional_id=request.transactional_id,
        producer=producer,
        partitions=frozenset(guards),
        client_version=EPOCH_PER_TRANSACTION if is_adding else CLASSIC,
    )

    def begin_again() -> None:
        for name in asked.partitions:
            try:
                guard = begun[name]()
            except InvalidProducerEpochError:
                raise
            except (TailraceError, OSError) as error:
                refusals[name] = Refusal(error_code(error), str(error))
                continue
            if guard is not None:
                guards[name] = guard

    try:
        errors = await ask_coordinator(
            services, asked, is_adding=is_adding, begin_again=begin_again
        )
    except InvalidProducerEpochError as error:
        # A marker came meanwhile; its epoch is that of the producer for all partitions.
        return Admission(refusals | dict.fromkeys(guards, _late(error)))
    # When they are only verified, partitions are refused one by one; they are added all or none.
    refusals |= {name: _refusal(error, version) for name, error in errors.items() if error}
    return Admission(refusals, guards)


_PRODUCER = Struct(">qhi")


def _begin(
    services: Services,
    name: TopicPartition,
    producer: TransactionalProducer,
    *,
    sequence: int,
    begins_at_zero: bool,
) -> VerificationGuard | None:
    """The guard for the producer's first batch in a partition; None if it needs none.

    Raises:
        InvalidProducerEpochError: as `begin_verification`.
        NotLeaderError, StorageError, UnknownPartitionError: as `Replicas.find`.
    """
    partition = services.replicas.find(name)
    return partition.log.producers.begin_verification(
        producer.producer_id,
        epoch=producer.producer_epoch,
        sequence=sequence,
        now_ms=services.clock.now_ms(),
        begins_at_zero=begins_at_zero,
    )


def _transactional(
    services: Services, request: ProduceRequest
) -> Iterator[tuple[TopicPartition, memoryview]]:
    """The transactional batches for topics that clients may write to."""
    for data in request.topic_data:
        topic = services.find_topic(data.name, data.topic_id)
        # Refused without the coordinator, which would add them to the transaction.
        if topic is None or topic.is_internal:
            continue
        for each in data.partition_data:
            records = memoryview(each.records or b"")
            if is_transactional(records):
                yield TopicPartition(topic.name, each.index), records


def _late(error: InvalidProducerEpochError) -> Refusal:
    return Refusal(ErrorCode.INVALID_PRODUCER_EPOCH, str(error))


def _refusal(error: ErrorCode, version: int) -> Refusal:
    code = error_of_verification(error, knows_abortable=version >= ABORTABLE_SINCE)
    if code is ErrorCode.INVALID_TXN_STATE:
        return Refusal(code, "the partition was not added to the transaction")
    # Usual from v12 on, while the markers of the transaction before are written: there is no
    # AddPartitionsToTxn any more that would get the code. Kafka does not translate it either.
    is_known = version >= ADDS_SINCE and code is ErrorCode.CONCURRENT_TRANSACTIONS
    if code in _RETRIED and not is_known:
        return Refusal(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"the transaction could not be verified now, because of {code.name}; send it again",
        )
    return Refusal(code)
