"""Results of a handler: a response, now or later, no response, or the end of the connection.

The two do not know each other: a handler has no sockets, and the server no meaning of a request.

Not here: how an answer is encoded and when it leaves (`server.dispatch`, `server.sending`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from tailrace.errors import FatalError
from tailrace.protocol.fields import Message, Records
from tailrace.protocol.frames import RequestHeader
from tailrace.values import dataclass

T = TypeVar("T")
S = TypeVar("S")

PARTS_INLINE_MAX: Final = 500
"""Most parts of a request that is decoded and answered on the loop: some 2 ms of work."""

Answer = Message | None
"""Answer to a request; None if the protocol wants no answer: Produce with acks 0."""


class Throttled(list[Records]):
    """The buffers of an answer, maybe none, after which its connection is not read for a time.

    The answer leaves at once, and says so to the client (KIP-219).
    """

    __slots__ = ("throttle_ms",)

    def __init__(self, buffers: Iterable[Records], throttle_ms: int) -> None:
        super().__init__(buffers)
        self.throttle_ms = throttle_ms
        """Length of that time, above 0."""


@dataclass(frozen=True, slots=True)
class LongAnswer:
    """An answer of many parts, which is made when there is a place for it."""

    make: Callable[[], Answer | Awaitable[Answer]]
    waits_for_device: bool = False
    """Such answers have places of their own: a device that hangs must not hold up the others."""


class Deferred(Generic[T]):
    """The answer to a request that has taken effect, and whose client waits for others to have it.

    So the next request may begin before: nothing of the frame is needed any more, and what was done
    stays done. The caller calls `take` or `cancel`, or awaits it.
    """

    __slots__ = ("_end", "_make", "expected", "waiting")

    def __init__(
        self,
        waiting: Sequence[asyncio.Future[Any]],
        make: Callable[[], T],
        *,
        end: Callable[[], None],
        expected: "Answer" = None,
    ) -> None:
        """`make` gives the answer once all in `waiting` are done.

        `end` cancels those that are not, and may be called again. `expected` is the answer if
        nothing fails, for `Repeats.learn`.
        """
        self.waiting = waiting
        self.expected = expected
        self._make = make
        self._end = end

    @property
    def is_done(self) -> bool:
        """Whether the answer can be taken."""
        return all(each.done() for each in self.waiting)

    def take(self) -> T:
        """The answer; raises what `make` raises."""
        try:
            return self._make()
        finally:
            self._end()

    def cancel(self) -> None:
        """Wait for it no more."""
        self._end()

    def then(self, change: Callable[[T], S]) -> "Deferred[S]":
        """The same answer in another form."""
        make = self._make
        return Deferred(self.waiting, lambda: change(make()), end=self._end, expected=self.expected)

    def __await__(self) -> Generator[Any, Any, T]:
        try:
            if not self.is_done:
                yield from asyncio.wait(self.waiting).__await__()
        except BaseException:
            self.cancel()
            raise
        return self.take()


Handled = Answer | Awaitable[Answer] | Deferred[Answer] | LongAnswer
"""The answer, a coroutine where the handler has to wait for it, a deferred or a long one."""

Handler = Callable[[RequestHeader, Any], Handled]
"""The request is None for an ApiVersions request of a version that is not served."""


RepeatedAnswers = bytes | list[Records] | Deferred[list[Records]]
"""The frames of answers, maybe none; Fetch has slices of files among them, Produce may defer."""


class Repeats(Protocol):
    """The requests of one connection that can be answered again without being decoded."""

    @property
    def taken(self) -> int:
        """Number of requests that the last `take` has answered."""
        ...

    def learn(
        self, header: RequestHeader, request: Message, *, answer: Answer, frame: memoryview
    ) -> None:
        """Note a request that was answered at once, or has a deferred answer.

        `frame` has the size in front cut off.
        """
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


class LoginEndedError(CloseConnectionError):
    """A login has failed: the connection ends with this answer, which may be empty."""

    def __init__(self, reason: str, answer: list[Records]) -> None:
        self.answer = answer
        super().__init__(reason)
