"""Errors of a coordinator that its clients get as codes."""

from tailrace.errors import FatalError, RetriableError
from tailrace.protocol.errors import ErrorCode


class CoordinatorLoadInProgressError(RetriableError):
    """The partition that has the key is being read; ask again."""


class NotCoordinatorError(RetriableError):
    """Another broker has the key, or none has: look the coordinator up again."""


class CoordinatorNotAvailableError(RetriableError):
    """The records could not be written now, or the coordinator's topic is being created."""


class RefusedError(FatalError):
    """The request is refused, and nothing has changed; has the code and the text of the reply."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        self.code = code
        super().__init__(message)
