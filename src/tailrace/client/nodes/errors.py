"""Why a request has no answer, or a node no connection.

    NodeError
    ├── DisconnectedError           ask again; the request may have been carried out
    │   ├── RequestTimedOutError
    │   └── MalformedAnswerError
    ├── AuthenticationError         a setting is wrong: SASL or TLS
    └── UnsupportedVersionError     the broker is too old for this request

Not here: error codes inside of answers; those are read by whoever asked.
"""

from tailrace.errors import FatalError, RetriableError, TailraceError


class NodeError(TailraceError):
    """What stands in the place of an answer."""


class DisconnectedError(NodeError, RetriableError):
    """There was no connection, or it ended before the answer; what was asked may have been done."""


class RequestTimedOutError(DisconnectedError):
    """No answer within the request's time, so the connection was given up."""


class MalformedAnswerError(DisconnectedError):
    """The broker sent bytes that are no answer to what was asked; the connection was given up."""


class AuthenticationError(NodeError, FatalError):
    """The broker does not take who we are, or we do not take who it is: SASL or TLS."""


class UnsupportedVersionError(NodeError, FatalError):
    """The broker takes no version of a request that could carry what was asked."""
