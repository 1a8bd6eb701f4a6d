"""A node on the doubles' network whose answers are no answers, at an address that others trust."""

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from struct import Struct
from typing import Any, Final

from tailrace.protocol.apis import APIS, BETWEEN_NODES, ApiKey
from tailrace.protocol.frames import encode_response, read_request_header
from tailrace.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from tailrace.testing import Outside
from tailrace.testing.network import MemorySocket

KNOWN: Final = {**APIS, **BETWEEN_NODES}
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
        received = bytearray()
        self._sockets.append(socket)
        socket.watch_reads(lambda: self._readable(socket, received))

    def _readable(self, socket: MemorySocket, received: bytearray) -> None:
        chunk = bytearray(1 << 16)
        try:
            count = socket.receive_into(memoryview(chunk))
        except ConnectionError:
            count = 0
        if not count:
            socket.watch_reads(None)
            return
        received += chunk[:count]
        while len(received) >= 4 + (size := int.from_bytes(received[:4], "big")):
            frame = bytes(received[4 : 4 + size])
            del received[: 4 + size]
            self._answer(socket, frame)

    def _answer(self, socket: MemorySocket, frame: bytes) -> None:
        header, _ = read_request_header(memoryview(frame), apis=KNOWN)
        if header.api_key == ApiKey.API_VERSIONS and self._answers_versions:
            answer = ApiVersionsResponse(
                api_keys=tuple(
                    ApiVersion(api_key=key, min_version=first, max_version=last)
                    for key, api in KNOWN.items()
                    for first, last in [
                        self._versions.get(ApiKey(key), (api.first_version, api.last_version))
                    ]
                )
            )
            data: bytes | bytearray = encode_response(
                KNOWN[header.api_key],
                answer,
                version=header.api_version,
                correlation_id=header.correlation_id,
            )
        else:
            self.request_count += 1
            data = next(self._garbage)(frame[4:8])
        whole = bytes(data).removesuffix(END)
        if whole:
            socket.send([whole])
        if len(whole) < len(data):
            socket.close()
            socket.watch_reads(None)
