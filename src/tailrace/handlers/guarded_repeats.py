"""`GuardedRepeats`: repeated requests are answered without a check, as long as no rights change.

A request is learned after its check. Who sends it does not change, since a connection keeps its
principal; so the check of its repetition would say the same, until an entry of the access control
lists comes or goes. Then everything is forgotten, and the next request is decoded and checked. That
costs one comparison for each call of `take`.
"""

from collections.abc import Callable

from tailrace.protocol.answers import Answer, RepeatedAnswers, Repeats
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import RequestHeader
from tailrace.security.authorizer import Authorizer


class GuardedRepeats:
    """The requests that a connection repeats, with the rights that they rest on."""

    def __init__(self, open_repeats: Callable[[], Repeats], authorizer: Authorizer) -> None:
        self._open = open_repeats
        self._authorizer = authorizer
        self._version = authorizer.version
        self._known = open_repeats()

    @property
    def taken(self) -> int:
        """See `Repeats`."""
        return self._known.taken

    def learn(
        self, header: RequestHeader, request: Message, *, answer: Answer, frame: memoryview
    ) -> None:
        """See `Repeats.learn`: the request has just been checked, and was answered at once."""
        self._forget_old()
        self._known.learn(header, request, answer=answer, frame=frame)

    def take(
        self, received: bytearray, start: int, limit: int, *, frame_bytes_max: int
    ) -> tuple[int, RepeatedAnswers] | None:
        """See `Repeats.take`; None after a change of rights."""
        if self._forget_old():
            return None
        return self._known.take(received, start, limit, frame_bytes_max=frame_bytes_max)

    def _forget_old(self) -> bool:
        version = self._authorizer.version
        if version is self._version:
            return False
        self._version, self._known = version, self._open()
        return True
