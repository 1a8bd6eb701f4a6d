"""Results of a handler: a response, a long response, no response, or the end of the connection.

The two do not know each other: a handler has no sockets, and the server no meaning of a request.

Not here: how an answer is encoded and when it leaves (`server.dispatch`, `server.sending`).
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from tailrace.errors import FatalError
from tailrace.protocol.fields import Message, Records
from tailrace.protocol.frames import RequestHeader
from tailrace.values import dataclass

PARTS_INLINE_MAX: Final = 500
"""Most parts of a request that is decoded and answered on the loop: some 2 ms of work."""

Answer = Message | None
"""Answer to a request; None if the protocol wants no answer: Produce with acks 0."""


@dataclass(frozen=True, slots=True)
class LongAnswer:
    """An answer of many parts, which is made when there is a place for it."""

    make: Callable[[], Answer | Awaitable[Answer]]
    waits_for_device: bool = False
    """Such answers have places of their own: a device that hangs must not hold up the others."""


Handled = Answer | Awaitable[Answer] | LongAnswer
"""The answer, a coroutine where the handler has to wait for it, or a long one."""

Handler = Callable[[RequestHeader, Any], Handled]
"""The request is None for an ApiVersions request of a version that is not served."""


RepeatedAnswers = bytes | list[Records]
"""The frames of answers, maybe none; Fetch has slices of files among them."""


class Repeats(Protocol):
    """The requests of one connection that can be answered again without being decoded."""

    def learn(
        self, header: RequestHeader, request: Message, *, answer: Answer, frame: memoryview
    ) -> None:
        """Note a request that was answered at once; `frame` has the size in front cut off."""
        ...

    def take(
        self, received: bytearray, start: int, limit: int, *, frame_bytes_max: int
    ) -> tuple[int, RepeatedAnswers] | None:
        """Answer the requests at `start` that repeat a noted one; None if the first does not.

        Returns the position after the last of them, and their answers.
        """
        ...


class CloseConnectionError(FatalError):
    """A handler wants the connection closed: Kafka's answer to a failed produce with acks=0."""
