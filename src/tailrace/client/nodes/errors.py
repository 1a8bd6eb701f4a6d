"""Errors that take the place of an answer, or of a connection.

    NodeError
    ├── DisconnectedError           retry; the request may have been carried out
    │   ├── RequestTimedOutError
    │   └── MalformedAnswerError
    ├── AuthenticationError         a setting is wrong: SASL or TLS
    └── UnsupportedVersionError     the broker is too old for this request

Not here: error codes inside of answers; the sender of the request reads them.
"""

from tailrace.errors import FatalError, RetriableError, TailraceError


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
