"""Errors of the reading client: local faults, and error codes that a broker answers.

Local faults (no connection, no common version) and remote ones (an error code in an answer) are
different classes. Each is a RetriableError or a FatalError, which says whether to try again.
A refused login is `nodes.AuthenticationError`.
"""

from collections.abc import Collection

from tailrace.errors import FatalError, RetriableError
from tailrace.protocol.errors import ErrorCode

TOPICS_SHOWN_MAX = 20
"""Most names in the sentence of an error."""

MESSAGE_CHARACTERS_MAX = 500
"""Longest part of a broker's message in the sentence of an error."""


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

    def __init__(self, code: int, *, about: str) -> None:
        self.code = code
        """The number on the wire."""
        self.about = about
        """The request, and the broker it went to."""
        super().__init__(f"{about}: {_words(code)}")


class RemoteFatalError(FatalError):
    """The broker answered with a permanent error; `code` says which."""

    def __init__(self, code: int, *, about: str) -> None:
        self.code = code
        """The number on the wire."""
        self.about = about
        """The request, and the broker it went to."""
        super().__init__(f"{about}: {_words(code)}")


class NoSuchTopicError(FatalError, LookupError):
    """The cluster does not have a topic."""

    def __init__(self, topic: str, *, existing: Collection[str]) -> None:
        self.topic = topic
        """The name that was asked for."""
        self.existing = tuple(sorted(existing))
        """The topics that the cluster has."""
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


def error_for(
    code: int, *, about: str, message: str | None = None
) -> RemoteRetriableError | RemoteFatalError | None:
    """The error of a code, with the broker's message; None for 0.

    A RemoteRetriableError if Kafka's own clients retry it, else, and for an unknown code, a
    RemoteFatalError.
    """
    if code == ErrorCode.NONE:
        return None
    if message:
        about = f"{about}: {message[:MESSAGE_CHARACTERS_MAX].rstrip('.')}"
    if code in set(ErrorCode) and ErrorCode(code).is_retriable:
        return RemoteRetriableError(code, about=about)
    return RemoteFatalError(code, about=about)


def raise_for(code: int, *, about: str) -> None:
    """Return for 0, raise for any other code.

    Raises:
        RemoteRetriableError: an error that Kafka's own clients retry.
        RemoteFatalError: an error that they do not retry, or an unknown code.
    """
    error = error_for(code, about=about)
    if error is not None:
        raise error


def _words(code: int) -> str:
    if code not in set(ErrorCode):
        return f"error {code}, which this version does not know"
    return f"{ErrorCode(code).message} ({ErrorCode(code).name})"
