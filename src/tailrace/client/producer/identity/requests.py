"""The requests of a transaction, their queue, and the meaning of each error code in answers.

    InitProducerId       an id and epoch; fences earlier producers with the same transactional id
    AddPartitionsToTxn   before the first batch for a partition in each transaction
    AddOffsetsToTxn      before the first offsets of a consumer group
    TxnOffsetCommit      the offsets, to the coordinator of the group
    EndTxn               commit or abort
    FindCoordinator      which broker takes the others

In transactions of version 2 (KIP-890) brokers add partitions and groups themselves, and the answer
to EndTxn has the id and epoch of the next transaction.

`RequestQueue` has those that wait. They are sent by priority, then in the order in which they were
added, one at a time; an unknown coordinator is looked up first.

Not here: why each is made, and what its answer changes (`flow`).
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from itertools import groupby
from typing import Any, Final

from tailrace.client.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from tailrace.client.nodes import Backoff, Node
from tailrace.client.producer.errors import (
    FENCED_ADVICE,
    AuthorizationError,
    BrokerRefusedError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionOutcomeUnknownError,
)
from tailrace.client.producer.identity.sequences import ProducerIdAndEpoch
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.coordinator_keys import CoordinatorKeyType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from tailrace.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tailrace.values import dataclass

GROUP_MEMBER_SINCE: Final = 3
"""First version of TxnOffsetCommit that has the member of the group (KIP-447)."""


class PendingOperation:
    """An operation of a transaction that was started and gets its outcome later."""

    __slots__ = ("error", "is_done", "is_in_doubt", "is_taken")

    def __init__(self) -> None:
        self.is_done = False
        self.is_taken = False
        """Whether the caller has got the outcome; until then only the same call is allowed."""
        self.error: Exception | None = None
        """Why it failed; None if it is not done or succeeded."""
        self.is_in_doubt = False
        """Whether a commit was sent and may have been carried out although it was not confirmed."""

    def finish(self, error: Exception | None = None) -> None:
        """Set the outcome: success, or `error`; only the first call counts."""
        # An abort or a fatal error may come after the answer.
        if not self.is_done:
            self.is_done, self.error = True, error

    def take(self) -> None:
        """Return if the operation succeeded, else raise its error.

        Raises:
            TransactionOutcomeUnknownError: a commit that failed after it may have been carried out.
        """
        assert self.is_done, "the operation has no outcome yet"
        self.is_taken = True
        if self.error is not None and self.is_in_doubt:
            raise TransactionOutcomeUnknownError(
                f"a commit was sent and not answered, and then failed: {self.error}; the "
                "transaction may be committed: read the topic before you do its work again",
                is_final=True,
            ) from self.error
        if self.error is not None:
            raise self.error


class EpochAfterCommit(PendingOperation):
    """A new epoch that is asked for after a commit, which ends with it and not by its error."""

    def __init__(self, commit: PendingOperation) -> None:
        super().__init__()
        self._commit = commit

    def finish(self, error: Exception | None = None) -> None:
        """Set the outcome of both."""
        super().finish(error)
        # The transaction is committed, whatever becomes of the next epoch.
        self._commit.finish()


class Priority(IntEnum):
    """The order of waiting requests; the lowest is sent first."""

    # Every other request needs the coordinator, and all but one the id; EndTxn has to come last.
    FIND_COORDINATOR = 0
    INIT_PRODUCER_ID = 1
    ADD_PARTITIONS_OR_OFFSETS = 2
    END_TXN = 3


@dataclass(slots=True, kw_only=True, eq=False)
class TransactionRequest:
    """A request that waits to be sent or to be answered."""

    key: ApiKey
    priority: Priority
    make: Callable[[], Message]
    """Makes the body, with the producer's current id and epoch."""
    pending: PendingOperation
    coordinator: CoordinatorKeyType | None = CoordinatorKeyType.TRANSACTION
    """The kind of coordinator that takes it; None for any node."""
    group_id: str = ""
    """The group, for requests to a group coordinator."""
    node: Node | None = None
    """The coordinator; set when the request is taken from the queue."""
    first_version: int = 0
    """The lowest version that has the needed fields."""
    version_max: int | None = None
    """The highest version that this request may have, if the API has later ones."""
    accept: Callable[[Any], None]
    """Called with an answer that has no error."""
    failures: int = 0
    """Failed attempts so far."""
    is_commit: bool = False
    is_sent: bool = False
    """Whether it was sent and is not answered, so the broker may carry it out."""
    ready_at: float = 0.0
    """Monotonic seconds; it is not sent before."""

    @property
    def body(self) -> Message:
        return self.make()


class Verdict(IntEnum):
    """The reaction to an error code; of several in one answer, the largest counts."""

    DONE = 0
    ABORT_UNLESS_RETRIED = 1
    """The same as ABORT, unless another code of the answer is RETRY or RELOCATE."""
    RETRY = 2
    RELOCATE = 3
    """Find the coordinator, then retry."""
    ABORT = 4
    """The transaction must be aborted; the producer can go on."""
    ABORT_AND_BUMP = 5
    """ABORT with a new epoch; FATAL if the coordinator is too old for that (KIP-360)."""
    FATAL = 6
    """The producer can only be closed."""


_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_ADVICE = {
    **dict.fromkeys(_FENCED, FENCED_ADVICE),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "transaction.timeout.ms of this producer is more than transaction.max.timeout.ms of the "
        "broker: lower the one or raise the other"
    ),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: (
        "the coordinator gave this transactional.id another producer id, or forgot it after "
        "transactional.id.expiration.ms: close this producer and make a new one"
    ),
}
_UNAUTHORIZED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
PERHAPS_COMMITTED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Error codes of EndTxn after which the coordinator may have written the commit all the same.

Either the replicas did not have it in time, or another broker became the coordinator meanwhile
(`TransactionStateManager.appendTransactionToLog` in Kafka) and completes the commit.
"""

FATAL_IN_PRODUCE: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Error codes of Produce after which the producer can only be closed."""

_COMMON = {
    ErrorCode.NONE: Verdict.DONE,
    ErrorCode.NOT_COORDINATOR: Verdict.RELOCATE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Verdict.RELOCATE,
    ErrorCode.TRANSACTION_ABORTABLE: Verdict.ABORT,
}
_OF_TRANSACTION = {
    ErrorCode.UNKNOWN_PRODUCER_ID: Verdict.ABORT_AND_BUMP,
    # Follows Kafka 4.3 (KIP-1050); Kafka 4.0 still aborted and asked for a new epoch.
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Verdict.FATAL,
}
_OF_API: dict[ApiKey, dict[ErrorCode, Verdict]] = {
    ApiKey.FIND_COORDINATOR: {
        ErrorCode.NOT_COORDINATOR: Verdict.RETRY,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Verdict.RETRY,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Verdict.ABORT,
    },
    # Rights may be granted meanwhile: the call fails, and the producer can be used afterwards.
    ApiKey.INIT_PRODUCER_ID: {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Verdict.ABORT,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.ABORT,
    },
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        **_OF_TRANSACTION,
        **dict.fromkeys(_FENCED, Verdict.FATAL),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.FATAL,
        ErrorCode.INVALID_TXN_STATE: Verdict.FATAL,
    },
    ApiKey.ADD_OFFSETS_TO_TXN: {
        **_OF_TRANSACTION,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Verdict.ABORT,
    },
    # The member was replaced in its group: its offsets must not be committed (KIP-447), but another
    # transaction of the producer is possible.
    ApiKey.TXN_OFFSET_COMMIT: {
        ErrorCode.REQUEST_TIMED_OUT: Verdict.RELOCATE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Verdict.ABORT,
        ErrorCode.FENCED_INSTANCE_ID: Verdict.ABORT,
        ErrorCode.UNKNOWN_MEMBER_ID: Verdict.ABORT,
        ErrorCode.ILLEGAL_GENERATION: Verdict.ABORT,
    },
    ApiKey.END_TXN: _OF_TRANSACTION,
}
"""Exceptions from `_COMMON` by API; codes in neither are retried if they are retriable in Kafka."""


def verdict_on(key: ApiKey, code: int) -> Verdict:
    """Choose the reaction to an error code in the answer of an API, as Kafka's own client does."""
    # A code of a newer broker; Kafka's `Errors.forCode` does the same.
    if code not in set(ErrorCode):
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    known = ErrorCode(code)
    found = _OF_API[key].get(known, _COMMON.get(known))
    if found is not None:
        return found
    if known.is_retriable:
        return Verdict.RETRY
    # The other partitions of the answer get OPERATION_NOT_ATTEMPTED, and a retriable code of one of
    # them counts more: then all are asked for again.
    is_of_partition = key is ApiKey.ADD_PARTITIONS_TO_TXN
    return Verdict.ABORT_UNLESS_RETRIED if is_of_partition else Verdict.FATAL


def error_codes(key: ApiKey, answer: Any) -> list[tuple[str, int]]:  # noqa: ANN401 - six classes
    """The error codes of an answer, each with its partition or key; empty for the whole answer."""
    match key:
        case ApiKey.ADD_PARTITIONS_TO_TXN:
            return [
                (f"{topic.name}-{each.partition_index}", each.partition_error_code)
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            ]
        case ApiKey.TXN_OFFSET_COMMIT:
            return [
                (f"{topic.name}-{each.partition_index}", each.error_code)
                for topic in answer.topics
                for each in topic.partitions
            ]
        case ApiKey.FIND_COORDINATOR if answer.coordinators:
            return [(each.key, each.error_code) for each in answer.coordinators]
        case _:
            return [("", answer.error_code)]


def error_of(
    key: ApiKey,
    verdict: Verdict,
    codes: Iterable[tuple[str, int]],
    *,
    is_fatal: bool,
    commit_timeout_ms: int | None = None,
) -> Exception:
    """The error for the codes that led to a verdict other than RETRY and RELOCATE.

    `commit_timeout_ms` is the `transaction.timeout.ms` of the transaction that was to be committed;
    None: the request is no commit.
    """
    found = [(about, code) for about, code in codes if verdict_on(key, code) is verdict]
    # Partitions that were not tried because another one failed are no cause.
    causes = [each for each in found if each[1] != ErrorCode.OPERATION_NOT_ATTEMPTED] or found
    code = causes[0][1]
    known = ErrorCode(code) if code in set(ErrorCode) else None
    words = f"error {code}" if known is None else f"{known.message} ({known.name})"
    about = ", ".join(about for about, each in causes if about and each == code)
    message = f"{key.title}{' of ' * bool(about)}{about}: {words}"
    if known in _ADVICE:
        message += f"; {_ADVICE[known]}"
    if known is ErrorCode.INVALID_TXN_STATE and commit_timeout_ms is not None:
        # A client of KIP-890 is not fenced: its epoch is known as the one before the abort.
        message += (
            "; the coordinator has aborted the transaction, most likely because it was open for "
            f"longer than transaction.timeout.ms ({commit_timeout_ms} ms). Nothing of it is "
            "committed: close this producer, and do the work again with a new one, in shorter "
            "transactions or with a longer timeout"
        )
    if known in _FENCED:
        return ProducerFencedError(message)
    if known in _UNAUTHORIZED:
        return AuthorizationError(message)
    if is_fatal:
        return BrokerRefusedError(message, code=code)
    return TransactionAbortableError(message)


def find_coordinator(kind: CoordinatorKeyType, key: str) -> FindCoordinatorRequest:
    """A FindCoordinator request that has the key in the fields of all versions."""
    # Which version is sent is known only when the broker is; the encoder leaves the others out.
    return FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=(key,))


def add_partitions(
    transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    topics = groupby(sorted(partitions), key=lambda each: each.topic)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=tuple(
            AddPartitionsToTxnTopic(name=name, partitions=tuple(each.partition for each in group))
            for name, group in topics
        ),
    )


def offset_commit(
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    group: ConsumerGroupMetadata,
) -> TxnOffsetCommitRequest:
    topics = groupby(sorted(offsets), key=lambda each: each.topic)
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        group_id=group.group_id,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=tuple(
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=tuple(
                    TxnOffsetCommitRequestPartition(
                        partition_index=each.partition,
                        committed_offset=offsets[each].offset,
                        committed_leader_epoch=offsets[each].leader_epoch,
                        committed_metadata=offsets[each].metadata,
                    )
                    for each in partitions
                ),
            )
            for name, partitions in topics
        ),
    )


class RequestQueue:
    """The waiting requests and the one in flight."""

    def __init__(self, backoff: Backoff, *, transactional_id: str) -> None:
        self._backoff = backoff
        self._transactional_id = transactional_id
        self._waiting: list[TransactionRequest] = []
        self._coordinators: dict[tuple[CoordinatorKeyType, str], Node] = {}
        self.in_flight: TransactionRequest | None = None
        """The request that `take` returned and that is not answered yet."""
        self._taken_at = 0.0
        """When `take` was called last."""

    def add(self, request: TransactionRequest) -> None:
        self._waiting.append(request)

    def has(self, key: ApiKey) -> bool:
        return any(request.key is key for request in self._waiting)

    def first(self) -> TransactionRequest | None:
        return min(self._waiting, key=lambda each: each.priority, default=None)

    def remove(self, request: TransactionRequest) -> None:
        self._waiting.remove(request)

    def take(self, now: float) -> TransactionRequest | None:
        """Return the next request, or the look-up of its coordinator; None while it pauses."""
        self._taken_at = now
        request = self.first()
        if request is None:
            return None
        # Each kind of coordinator is a broker of its own: of the transactional id, of the group.
        if request.coordinator is not None:
            request.node = self._coordinators.get((request.coordinator, request.group_id))
            if request.node is None and request.ready_at <= now:
                kind, group_id = request.coordinator, request.group_id
                name = group_id or self._transactional_id
                self.add(
                    TransactionRequest(
                        key=ApiKey.FIND_COORDINATOR,
                        priority=Priority.FIND_COORDINATOR,
                        coordinator=None,
                        pending=PendingOperation(),
                        make=lambda: find_coordinator(kind, name),
                        accept=lambda answer: self._located((kind, group_id), answer),
                    )
                )
                return self.take(now)
        if request.ready_at > now:
            return None
        self._waiting.remove(request)
        self.in_flight = request
        return request

    def requeue(self, request: TransactionRequest) -> None:
        """Queue a taken request again, because it could not be sent."""
        self.in_flight = None
        self._waiting.append(request)

    def forget_coordinator(self, request: TransactionRequest) -> None:
        if request.coordinator is not None:
            self._coordinators.pop((request.coordinator, request.group_id), None)

    def retry(self, request: TransactionRequest, now: float, *, limit_s: float) -> None:
        """Queue a request again, with a pause of at most `limit_s`."""
        pause_s = self._backoff.pause_s(request.failures)
        request.failures += 1
        request.ready_at = now + min(pause_s, limit_s)
        self._waiting.append(request)

    def drop(
        self, error: Exception, which: Callable[[TransactionRequest], bool] = lambda _: True
    ) -> None:
        """Fail the waiting requests for which `which` is true."""
        dropped = [request for request in self._waiting if which(request)]
        self._waiting = [request for request in self._waiting if not which(request)]
        for request in dropped:
            request.pending.finish(error)

    def next_deadline(self) -> float | None:
        """Return the end of the next request's pause; None if `take` would bring nothing then."""
        request = self.first()
        if self.in_flight is not None or request is None:
            return None
        # Compared with the present time, a pause that has ended since `take` would end unnoticed.
        return None if request.ready_at <= self._taken_at else request.ready_at

    def _located(
        self, key: tuple[CoordinatorKeyType, str], answer: FindCoordinatorResponse
    ) -> None:
        """Store the coordinator of an answer."""
        # From v4 on it is in a list (KIP-699), before in fields.
        if len(answer.coordinators) > 1:
            raise BrokerRefusedError(
                f"FindCoordinator named {len(answer.coordinators)} coordinators for one key"
            )
        found = answer.coordinators[0] if answer.coordinators else answer
        node = Node(found.node_id, found.host, found.port)
        if node.id < 0 or not node.host or not 0 < node.port < 1 << 16:
            raise BrokerRefusedError(f"FindCoordinator named no coordinator, but {node}")
        self._coordinators[key] = node
