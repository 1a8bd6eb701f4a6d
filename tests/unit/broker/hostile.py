"""A node on the doubles' network whose answers are no answers, at an address that others trust."""

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from struct import Struct
from typing import Any, Final

from tailrace.protocol.apis import ApiKey
from tailrace.protocol.frames import encode_response, read_request_header
from tailrace.testing import MemorySocket, Outside
from tailrace.testing.frame_socket import FrameSocket
from tests.unit.broker.kraft.scripted import SERVED, versions_answer

_SIZE: Final = Struct(">i")

Garbage = Callable[[bytes], bytes]
"""The bytes in place of an answer; gets the correlation id. None more come if it ends in `END`."""

END: Final = b"the end"


def _random(correlation_id: bytes) -> bytes:
    body = random.Random(correlation_id).randbytes(300)
    return _SIZE.pack(len(body) + 4) + correlation_id + body


GARBAGE: Final[Mapping[str, Garbage]] = {
    "a size of 2 GB": lambda _: _SIZE.pack(2**31 - 1) + bytes(100),
    "a size below 0": lambda _: _SIZE.pack(-5) + bytes(100),
    "a size of 99 MB and 10 bytes": lambda found: _SIZE.pack(99 << 20) + found + bytes(6),
    "no bytes in the frame": lambda _: _SIZE.pack(0),
    "half a frame and the end": lambda found: _SIZE.pack(40) + found + bytes(20) + END,
    "another request's answer": lambda _: _SIZE.pack(40) + b"\xff" * 40,
    "random bytes": _random,
    "an array of 2 billion": lambda found: _SIZE.pack(40) + found + b"\x7f\xff\xff\xff" * 9,
    "nothing and the end": lambda _: END,
    "TLS": lambda _: b"\x15\x03\x01\x00\x02\x02\x28",
}


class HostileNode:
    """Answers ApiVersions, and each other request with the next garbage."""

    def __init__(
        self,
        outside: Outside,
        port: int,
        garbage: Sequence[Garbage] = tuple(GARBAGE.values()),
        *,
        versions: Mapping[ApiKey, tuple[int, int]] | None = None,
        answers_versions: bool = True,
    ) -> None:
        """`versions` are those of an API where they are not ours.

        Without `answers_versions` that request gets garbage too.
        """
        self.request_count = 0
        """Requests that got garbage."""
        self._garbage = cycle(garbage)
        self._versions = versions or {}
        self._answers_versions = answers_versions
        self._sockets: list[MemorySocket] = []
        self._listener = outside.network.listen("memory", port, self._accepted)

    def close(self) -> None:
        """Close the port and all connections."""
        self._listener.close()
        for each in self._sockets:
            each.cut()

    def _accepted(self, socket: Any) -> None:
        self._sockets.append(socket)
        connection = FrameSocket(socket, on_frame=lambda frame: self._answer(connection, frame))
        connection.start()

    def _answer(self, connection: FrameSocket, frame: memoryview) -> None:
        header, _ = read_request_header(frame, apis=SERVED)
        if header.api_key == ApiKey.API_VERSIONS and self._answers_versions:
            data: bytes | bytearray = encode_response(
                SERVED[header.api_key],
                versions_answer(self._versions),
                version=header.api_version,
                correlation_id=header.correlation_id,
            )
        else:
            self.request_count += 1
            data = next(self._garbage)(bytes(frame[4:8]))
        whole = bytes(data).removesuffix(END)
        connection.send(whole)
        if len(whole) < len(data):
            connection.close()
