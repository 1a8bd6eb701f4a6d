"""`RefusedError`: why a request of a group's member is refused."""

from tailrace.errors import FatalError
from tailrace.protocol.errors import ErrorCode


class RefusedError(FatalError):
    """The request is refused, and nothing has changed; has the code and the text of the reply."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        self.code = code
        super().__init__(message)
