"""What can go wrong with somebody else's broker, in our words and with its number.

Local faults (no connection, a version that is not shared) and remote ones (an error code in an
answer) are different classes. Whether to try again is the class's branch, not the reader's guess.
A broker that does not let us in is `nodes.AuthenticationError`.
"""

from tailrace.errors import FatalError, RetriableError
from tailrace.protocol.errors import ErrorCode


class UnreachableBrokerError(RetriableError, ConnectionError):
    """No connection to a broker, or one that broke or fell silent."""

    def __init__(self, rule: str, *, address: str) -> None:
        self.rule = rule
        """Which broker, what happened, and what to look at."""
        self.address = address
        """HOST:PORT of the broker, or of several with commas between."""
        super().__init__(rule)


class UnsupportedBrokerError(FatalError):
    """The broker and this client share no version of a request."""


class RemoteRetriableError(RetriableError):
    """The broker answered with an error that may pass; `code` says which."""

    def __init__(self, code: int, *, about: str) -> None:
        self.code = code
        """The number on the wire."""
        self.about = about
        """What was asked, and of whom."""
        super().__init__(f"{about}: {_words(code)}")


class RemoteFatalError(FatalError):
    """The broker answered with an error that will not pass; `code` says which."""

    def __init__(self, code: int, *, about: str) -> None:
        self.code = code
        """The number on the wire."""
        self.about = about
        """What was asked, and of whom."""
        super().__init__(f"{about}: {_words(code)}")


def raise_for(code: int, *, about: str) -> None:
    """Return for 0, raise for any other code.

    Raises:
        RemoteRetriableError: Kafka's own clients would ask again.
        RemoteFatalError: they would not, or the code is not known.
    """
    if code == ErrorCode.NONE:
        return
    if code in set(ErrorCode) and ErrorCode(code).is_retriable:
        raise RemoteRetriableError(code, about=about)
    raise RemoteFatalError(code, about=about)


def _words(code: int) -> str:
    if code not in set(ErrorCode):
        return f"error {code}, which this version does not know"
    return f"{ErrorCode(code).message} ({ErrorCode(code).name})"
