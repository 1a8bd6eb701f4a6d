"""Errors of connections, answers and operations that all clients share.

    NodeError                       instead of an answer, or of a connection
    ├── DisconnectedError           retry; the request may have been carried out
    │   ├── RequestTimedOutError
    │   └── MalformedAnswerError
    ├── AuthenticationError         a setting is wrong: SASL or TLS
    └── UnsupportedVersionError     the broker is too old for this request

Local faults (no connection, no common version) and remote ones (an error code in an answer) are
different classes. Each is a RetriableError or a FatalError, which says whether to try again.

Not here: errors that only a producer or a consumer raises (`producer.errors`, `consumer.errors`):
the classes of one take longer to make than a module of the other takes to load.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from tailrace.errors import FatalError, RetriableError, TailraceError
from tailrace.protocol.errors import ErrorCode

TOPICS_SHOWN_MAX = 20
"""Most names in the sentence of an error."""

MESSAGE_CHARACTERS_MAX = 500
"""Longest part of a broker's message in the sentence of an error."""

ITEMS_SHOWN_MAX = 5
"""Most items in the sentence of an error."""


class NodeError(TailraceError):
    """The error that a request gets instead of an answer."""


class DisconnectedError(NodeError, RetriableError):
    """The connection failed or ended before the answer; the request may have been carried out."""


class RequestTimedOutError(DisconnectedError):
    """No answer came within the request's time limit, so the connection was closed."""


class MalformedAnswerError(DisconnectedError):
    """The broker sent bytes that are no answer to the request; the connection was closed."""


class AuthenticationError(NodeError, FatalError):
    """The login failed, or the broker's identity could not be checked: SASL or TLS."""


class UnsupportedVersionError(NodeError, FatalError):
    """The broker speaks no version of the request that has the needed fields."""


# Python's class as well, so a program may catch ConnectionError without our names.
class UnreachableBrokerError(RetriableError, ConnectionError):
    """No connection to a broker, or one that broke or fell silent."""

    def __init__(self, rule: str, *, address: str) -> None:
        self.rule = rule
        """Which broker, what happened, and what to check."""
        self.address = address
        """HOST:PORT of the broker, or of several with commas between."""
        super().__init__(rule)


class UnsupportedBrokerError(FatalError):
    """The broker and this client share no version of a request."""


class RemoteRetriableError(RetriableError):
    """The broker answered with a temporary error; `code` says which."""

    def __init__(self, code: int, *, about: str, message: str | None = None) -> None:
        self.code = code
        """The number on the wire."""
        self.about = about
        """The request, and the broker it went to."""
        super().__init__(f"{about}: {error_words(code, message)}")


class RemoteFatalError(FatalError):
    """The broker answered with a permanent error; `code` says which."""

    def __init__(self, code: int, *, about: str, message: str | None = None) -> None:
        self.code = code
        """The number on the wire."""
        self.about = about
        """The request, and the broker it went to."""
        super().__init__(f"{about}: {error_words(code, message)}")


# A LookupError, as a mapping has for a missing key.
class NoSuchTopicError(FatalError, LookupError):
    """The cluster does not have a topic."""

    def __init__(self, topic: str, *, existing: Collection[str]) -> None:
        self.topic = topic
        """The name that was asked for."""
        self.existing = tuple(sorted(existing))
        """The topics that the cluster has."""
        # A cluster may have a hundred thousand topics.
        shown = ", ".join(self.existing[:TOPICS_SHOWN_MAX]) or "none"
        more = len(self.existing) - TOPICS_SHOWN_MAX
        super().__init__(
            f"topic {topic!r} does not exist; there are: {shown}"
            + (f" and {more} more" if more > 0 else "")
        )


class NoSuchPartitionError(FatalError, LookupError):
    """A topic does not have a partition."""

    def __init__(self, topic: str, partition: int, *, count: int) -> None:
        self.topic = topic
        self.partition = partition
        self.count = count
        """The number of partitions that the topic has."""
        has = "1, number 0" if count == 1 else f"{count}, numbers 0 to {count - 1}"
        super().__init__(f"topic {topic!r} has no partition {partition}; it has {has}")


class ItemErrors(TailraceError):  # noqa: N818 - the errors of several items
    """Several items of an operation failed; the others have their results."""

    def __init__(self, errors: Mapping[Any, TailraceError], *, count: int) -> None:
        # Read-only, since an error may be raised to several callers.
        self.errors = MappingProxyType(dict(errors))
        """The errors by item."""
        self.count = count
        """The number of items in the call."""
        shown = [*map(str, self.errors.values())][:ITEMS_SHOWN_MAX]
        more = len(self.errors) - len(shown)
        super().__init__(
            f"{len(self.errors)} of {count} items failed: {'; '.join(shown)}"
            + (f"; and {more} more" if more else "")
        )


class OperationTimeoutError(RetriableError, TimeoutError):
    """An item was not done within the time limit of the call; its last error is the cause."""

    def __init__(self, item: str, *, limit_ms: int, last: TailraceError | None) -> None:
        self.limit_ms = limit_ms
        """The limit in milliseconds."""
        why = "" if last is None else f"; the last error: {last}"
        super().__init__(f"{item}: not done within default.api.timeout.ms ({limit_ms} ms){why}")


class UnknownOutcomeError(FatalError):
    """A change was sent once and not answered: it may have been made, or not."""

    def __init__(self, item: str, *, cause: TailraceError) -> None:
        super().__init__(f"{item} may have been changed or not; look before you repeat it: {cause}")


class ClosedAdminError(FatalError):
    """The admin client was closed."""


class IncompleteAnswerError(FatalError):
    """A broker's answer lacks an item that it was asked about, or contradicts the request."""


def error_for(
    code: int, *, about: str, message: str | None = None
) -> RemoteRetriableError | RemoteFatalError | None:
    """The error of a code, with the broker's message; None for 0.

    A RemoteRetriableError if Kafka's own clients retry it, else, and for an unknown code, a
    RemoteFatalError.
    """
    if code == ErrorCode.NONE:
        return None
    # A code that this version does not know is final: retried without an end, it would look like a
    # broker that hangs.
    if code in set(ErrorCode) and ErrorCode(code).is_retriable:
        return RemoteRetriableError(code, about=about, message=message)
    return RemoteFatalError(code, about=about, message=message)


def raise_for(code: int, *, about: str) -> None:
    """Return for 0, raise for any other code.

    Raises:
        RemoteRetriableError: an error that Kafka's own clients retry.
        RemoteFatalError: an error that they do not retry, or an unknown code.
    """
    error = error_for(code, about=about)
    if error is not None:
        raise error


def error_words(code: int, message: str | None = None) -> str:
    """An error code as a sentence and its name; the sentence is the broker's message, if any."""
    # A broker may put a whole request into its message.
    said = (message or "")[:MESSAGE_CHARACTERS_MAX].rstrip(".")
    if code not in set(ErrorCode):
        unknown = f"error {code}, which this version does not know"
        return f"{said} ({unknown})" if said else unknown
    # Not both sentences: that of the code says the broker's again, in general words.
    return f"{said or ErrorCode(code).message} ({ErrorCode(code).name})"
