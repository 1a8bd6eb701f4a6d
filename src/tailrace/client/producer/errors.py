"""Errors of records and transactions, by what the caller should do.

    RetriableError   the record was not written, or may not be; sending it again may help
    FatalError       the record, a setting or the cluster must change
    TransactionAbortableError        abort the transaction, and run it again
    TransactionOutcomeUnknownError   call finish_transaction; do not run the transaction again

Every message says what happened and which setting or call changes it.

An error of a connection is raised as the class of that name with `Producer` before it, so that both
`except ProducerError` and `except DisconnectedError` (of `tailrace.client.nodes`) catch it.
"""

from typing import Final

from tailrace.client.errors import (
    AuthenticationError,
    DisconnectedError,
    MalformedAnswerError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from tailrace.errors import FatalError, RetriableError, TailraceError
from tailrace.protocol.errors import ErrorCode


class ProducerError(TailraceError):
    """Base of a producer's errors; each is also a RetriableError or a FatalError."""


class DeliveryTimeoutError(ProducerError, RetriableError, TimeoutError):
    """A record was not acknowledged within `delivery.timeout.ms`; if sent, it may be in the log."""


class MetadataTimeoutError(ProducerError, RetriableError, TimeoutError):
    """No metadata of the topic, or of the partition, came within `max.block.ms`."""


class BufferExhaustedError(ProducerError, RetriableError, TimeoutError):
    """`buffer.memory` stayed full for `max.block.ms`."""


class SendCancelledError(ProducerError, RetriableError):
    """The record was not sent: it waited for memory or metadata, and that wait was cancelled."""


class ClosedProducerError(ProducerError, FatalError):
    """The producer was closed, or this process is a fork of the one that created it."""


class ClosedBatchError(ProducerError, FatalError):
    """The batch of `create_batch` was closed or sent: it takes no records, and is sent once."""


class ReentrantCallError(ProducerError, FatalError, RuntimeError):
    """A signal handler, a finalizer or a logging handler has interrupted a call of this producer.

    The handler runs on the same thread, so the interrupted call cannot go on before it returns.
    """


class SerializationError(ProducerError, FatalError, ValueError):
    """The key or value could not be serialized; the cause is chained."""


class RejectedRecordError(ProducerError, FatalError, ValueError):
    """The broker refused this record, or one of its fields is invalid."""


class UnknownTopicError(ProducerError, RetriableError, LookupError):
    """The topic or the partition does not exist."""


class InvalidTopicError(ProducerError, FatalError, ValueError):
    """The topic name is invalid."""


class AuthorizationError(ProducerError, FatalError, PermissionError):
    """The user is not authorized for this operation."""


class BrokerRefusedError(ProducerError, FatalError):
    """The broker answered with a permanent error; `code` says which."""

    def __init__(self, message: str, *, code: int = -1) -> None:
        self.code = code
        """The number on the wire."""
        super().__init__(message)


class OutOfOrderSequenceError(ProducerError, FatalError):
    """The log lacks a record that was written before this one, since the broker lost records.

    Of a producer with an `OwnedIdentity`: or the log has the number already, of another sender.
    """


class ProducerFencedError(ProducerError, FatalError):
    """This producer was fenced and can only be closed.

    Another producer uses its `transactional.id` now, or the coordinator has aborted its transaction
    after `transaction.timeout.ms`.
    """


class TransactionStateError(ProducerError, FatalError):
    """The call is not allowed in the present state of the transaction."""


class TransactionTimeoutError(ProducerError, RetriableError, TimeoutError):
    """A step of a transaction other than its commit took longer than `max.block.ms`.

    The transaction is not committed and will not be: its work can be done again.
    """


class TransactionOutcomeUnknownError(ProducerError, FatalError):
    """The transaction may or may not be committed; doing its work again could write it twice.

    Call `finish_transaction` to get the outcome.
    """

    def __init__(self, message: str, *, is_final: bool) -> None:
        self.is_final = is_final
        """Whether this producer cannot get the outcome any more, because it failed or was closed.
        Then read the topic, or ask the coordinator (`kafka-transactions.sh describe`)."""
        super().__init__(message)


class TransactionAbortableError(ProducerError, RetriableError):
    """The transaction cannot be committed; abort it and run it again."""


class TransactionAbortedError(ProducerError, RetriableError):
    """The record was not sent, because its transaction was aborted."""


_UNAUTHORIZED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
# The record has to change, or the topic's limit: sending it again cannot help.
_REJECTED = frozenset(
    {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.MESSAGE_TOO_LARGE}
)


class ProducerAuthenticationError(ProducerError, AuthenticationError):
    """The login failed, or no broker's identity could be checked: SASL or TLS."""


class ProducerDisconnectedError(ProducerError, DisconnectedError):
    """The connection ended before the answer, also after `retries`; records may be in the log."""


class ProducerRequestTimedOutError(ProducerDisconnectedError, RequestTimedOutError):
    """No answer came within `request.timeout.ms`, also after `retries`."""


class ProducerMalformedAnswerError(ProducerDisconnectedError, MalformedAnswerError):
    """The answer does not fit the request, also after `retries`."""


class ProducerUnsupportedVersionError(ProducerError, UnsupportedVersionError):
    """The broker speaks no version of the request that has the needed fields."""


# By exact type, not isinstance: an error that is a ProducerError already stays as it is.
_OF_NODES: dict[type[Exception], type[ProducerError]] = {
    AuthenticationError: ProducerAuthenticationError,
    DisconnectedError: ProducerDisconnectedError,
    RequestTimedOutError: ProducerRequestTimedOutError,
    MalformedAnswerError: ProducerMalformedAnswerError,
    UnsupportedVersionError: ProducerUnsupportedVersionError,
}


def producer_error(error: Exception) -> Exception:
    """The ProducerError for an error of a connection; other errors are returned unchanged."""
    kind = _OF_NODES.get(type(error))
    return error if kind is None else kind(*error.args)


FENCED_ADVICE: Final = (
    "either another producer has this transactional.id now, or the coordinator has ended the "
    "transaction because it was open for longer than transaction.timeout.ms; close this producer"
)
"""Both causes have one code: the coordinator raised the epoch, so the old one fails (KIP-360)."""

_ADVICE = {
    ErrorCode.INVALID_PRODUCER_EPOCH: FENCED_ADVICE,
    ErrorCode.PRODUCER_FENCED: FENCED_ADVICE,
    ErrorCode.MESSAGE_TOO_LARGE: "max.message.bytes of the topic is the limit",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas asks for",
    ErrorCode.REQUEST_TIMED_OUT: "the replicas did not have it within request.timeout.ms",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic may have been deleted",
}


def error_for(code: int, *, about: str, said: str | None) -> Exception:
    """The error for a code in the answer to Produce; `said` is the broker's own message."""
    known = ErrorCode(code) if code in set(ErrorCode) else None
    words = f"error {code}" if known is None else f"{said or known.message} ({known.name})"
    message = f"{about}: {words}"
    if known in _ADVICE:
        message += f"; {_ADVICE[known]}"
    if known in _UNAUTHORIZED:
        return AuthorizationError(message)
    if known in _REJECTED:
        return RejectedRecordError(message)
    if known is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopicError(message)
    if known is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        return OutOfOrderSequenceError(message)
    if known in {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}:
        return ProducerFencedError(message)
    return BrokerRefusedError(message, code=code)
