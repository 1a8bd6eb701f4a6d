"""What can become of a record or a transaction besides success, by who must act.

    RetriableError   the record was not written, or it is not known; sending it again may do
    FatalError       the record, a setting or the cluster must change
    TransactionAbortableError   abort the transaction, begin it anew
    TransactionOutcomeUnknownError   ask again for the outcome; never do the work again blindly

Every message says what happened and which setting or call changes it.
"""

from typing import Final

from tailrace.client.nodes import errors as of_nodes
from tailrace.errors import FatalError, RetriableError, TailraceError
from tailrace.protocol.errors import ErrorCode


class ProducerError(TailraceError):
    """Whatever a producer raises about records; always with the branch of who must act besides."""


class DeliveryTimeoutError(ProducerError, RetriableError, TimeoutError):
    """Not acknowledged within `delivery.timeout.ms`. If it was sent, it may be in the log."""


class MetadataTimeoutError(ProducerError, RetriableError, TimeoutError):
    """Nothing was learnt about the topic within `max.block.ms`."""


class BufferExhaustedError(ProducerError, RetriableError, TimeoutError):
    """`buffer.memory` stayed full for `max.block.ms`."""


class SendCancelledError(ProducerError, RetriableError):
    """The record was not sent: it waited for memory or metadata, and that wait was cancelled."""


class ClosedProducerError(ProducerError, FatalError):
    """The producer was closed, or this process is a fork of the one that made it."""


class ReentrantCallError(ProducerError, FatalError, RuntimeError):
    """A signal handler, a finalizer or a logging handler has interrupted a call of this producer.

    It runs on the same thread, so the interrupted call cannot go on before it returns.
    """


class SerializationError(ProducerError, FatalError, ValueError):
    """The key or value cannot be made into bytes; the cause is chained."""


class RejectedRecordError(ProducerError, FatalError, ValueError):
    """The broker, or the record's own fields, refuse this one record."""


class UnknownTopicError(ProducerError, RetriableError, LookupError):
    """The topic, or that partition of it, does not exist."""


class InvalidTopicError(ProducerError, FatalError, ValueError):
    """No topic can have that name."""


class AuthorizationError(ProducerError, FatalError, PermissionError):
    """The cluster does not let this user do that."""


class BrokerRefusedError(ProducerError, FatalError):
    """The broker answered with an error that will not pass; `code` says which."""

    def __init__(self, message: str, *, code: int = -1) -> None:
        self.code = code
        """The number on the wire."""
        super().__init__(message)


class OutOfOrderSequenceError(ProducerError, FatalError):
    """The broker's log lacks a record that came before this one: records were lost there."""


class ProducerFencedError(ProducerError, FatalError):
    """This producer can only be closed.

    Another one has taken over its `transactional.id`, or the coordinator has ended its transaction
    after `transaction.timeout.ms`.
    """


class TransactionStateError(ProducerError, FatalError):
    """The call does not fit the state of the transaction."""


class TransactionTimeoutError(ProducerError, RetriableError, TimeoutError):
    """A step of a transaction other than its commit took longer than `max.block.ms`.

    Nothing of the transaction is committed, nor will be: its work can be done again.
    """


class TransactionOutcomeUnknownError(ProducerError, FatalError):
    """A transaction may be committed, or not; whoever does its work again may write it twice.

    Ask for the outcome with `finish_transaction`.
    """

    def __init__(self, message: str, *, is_final: bool) -> None:
        self.is_final = is_final
        """Whether this producer will never know: it has failed, or was closed. Then only the topic
        tells, or the coordinator (`kafka-transactions.sh describe`)."""
        super().__init__(message)


class TransactionAbortableError(ProducerError, RetriableError):
    """The transaction cannot be committed; abort it and begin anew."""


class TransactionAbortedError(ProducerError, RetriableError):
    """The record was not sent, because its transaction was aborted."""


_UNAUTHORIZED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_REJECTED = frozenset(
    {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.MESSAGE_TOO_LARGE}
)


class AuthenticationError(ProducerError, of_nodes.AuthenticationError):
    """No broker takes who we are, or we take none for who it is: SASL or TLS."""


class DisconnectedError(ProducerError, of_nodes.DisconnectedError):
    """The connection ended before the answer, `retries` times; it may be in the log."""


class RequestTimedOutError(DisconnectedError, of_nodes.RequestTimedOutError):
    """Likewise, after no answer came within `request.timeout.ms`."""


class MalformedAnswerError(DisconnectedError, of_nodes.MalformedAnswerError):
    """Likewise, after an answer that is none to what was asked."""


class UnsupportedVersionError(ProducerError, of_nodes.UnsupportedVersionError):
    """The broker takes no version of a request that could carry what was asked."""


_OF_NODES: dict[type[Exception], type[ProducerError]] = {
    of_nodes.AuthenticationError: AuthenticationError,
    of_nodes.DisconnectedError: DisconnectedError,
    of_nodes.RequestTimedOutError: RequestTimedOutError,
    of_nodes.MalformedAnswerError: MalformedAnswerError,
    of_nodes.UnsupportedVersionError: UnsupportedVersionError,
}


def producer_error(error: Exception) -> Exception:
    """The error of a connection as one that `except ProducerError` catches; others as they are."""
    kind = _OF_NODES.get(type(error))
    return error if kind is None else kind(*error.args)


FENCED_ADVICE: Final = (
    "either another producer has this transactional.id now, or the coordinator has ended the "
    "transaction because it was open for longer than transaction.timeout.ms; close this producer"
)
"""Both have one code: the coordinator raises the epoch, and the old one is refused (KIP-360)."""

_ADVICE = {
    ErrorCode.INVALID_PRODUCER_EPOCH: FENCED_ADVICE,
    ErrorCode.PRODUCER_FENCED: FENCED_ADVICE,
    ErrorCode.MESSAGE_TOO_LARGE: "max.message.bytes of the topic is the limit",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas asks for",
    ErrorCode.REQUEST_TIMED_OUT: "the replicas did not have it within request.timeout.ms",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic may have been deleted",
}


def error_for(code: int, *, about: str, said: str | None) -> Exception:
    """The error for a code in the answer to Produce; `said` are the broker's own words."""
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
