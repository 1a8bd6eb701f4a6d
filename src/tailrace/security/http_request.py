"""One HTTP request with limits of time and size: for tokens, and for the keys that they have.

Blocks, so it runs on threads. Nothing is followed and nothing read from the environment: redirects
and proxies could send a secret elsewhere (decision 45).

Invariant: whatever the other side sends, the call ends within both time limits, and receives
`bytes_max` and `HEAD_BYTES_MAX` bytes of it. (The system resolves the host's name, and has limits
of its own for that.)
"""

import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

from tailrace.errors import FatalError

HEAD_BYTES_MAX: Final = 256 * 1024
"""Most bytes that are received besides the body: the headers, and the sizes of chunks."""

_SAID_MAX: Final = 200


class HttpAnswer(NamedTuple):
    """An answer, whatever its status is."""

    status: int
    location: str
    """The address of a redirect; empty: it is none."""
    body: bytes


class OversizedAnswerError(FatalError):
    """The answer is larger than the caller takes."""


def http_request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: str | None = None,
    context: ssl.SSLContext | None,
    connect_timeout_s: float,
    read_timeout_s: float,
    bytes_max: int,
) -> HttpAnswer:
    """Send a request to a valid URL with `http` or `https`, and receive the answer.

    `context` checks the certificate; None: against the authorities of the system.

    Raises:
        OSError: no connection, no trust in the certificate, or a time limit.
        ValueError: the answer is not HTTP; of what it is instead the message has the beginning.
        OversizedAnswerError: it has more than `bytes_max` bytes.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        # For each request, which is rare: so changed authorities of the system count.
        connection = http.client.HTTPSConnection(
            host,
            parts.port,
            timeout=connect_timeout_s,
            context=context or ssl.create_default_context(),
        )
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=connect_timeout_s)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    # By hand, so that the time limits of connecting and of the answer are two (KIP-768).
    connection.connect()
    with connection.sock as opened:
        limited = _LimitedSocket(
            opened,
            deadline=time.monotonic() + read_timeout_s,
            # One byte more than allowed tells a body that is too long from one that just fits.
            bytes_max=bytes_max + 1 + HEAD_BYTES_MAX,
        )
        connection.sock = cast("socket.socket", limited)
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            found = response.read(bytes_max + 1)
        except OSError:
            # A connection that ends before the answer is one, and an HTTPException too.
            raise
        except http.client.HTTPException as error:
            # Its text may be a line of the answer, with 64 KiB of any bytes.
            said = f"{type(error).__name__}: {error}"
            raise ValueError(f"the answer is not HTTP ({said[:_SAID_MAX]!r})") from None
    if len(found) > bytes_max:
        raise _oversized(bytes_max)
    return HttpAnswer(response.status, response.headers.get("Location", ""), found)


def _oversized(bytes_max: int) -> OversizedAnswerError:
    return OversizedAnswerError(f"the answer has more than {bytes_max} bytes")


class _LimitedSocket:
    """The part of a socket that `http.client` uses, with one deadline and limit for the answer."""

    def __init__(self, connection: socket.socket, *, deadline: float, bytes_max: int) -> None:
        self._connection = connection
        self._deadline = deadline
        self._bytes_max = bytes_max

    def sendall(self, data: bytes) -> None:
        """Send all bytes."""
        self._connection.settimeout(_left_s(self._deadline))
        self._connection.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """A file to read from."""
        assert mode == "rb"
        reader = _LimitedReader(
            self._connection, deadline=self._deadline, bytes_max=self._bytes_max
        )
        return io.BufferedReader(reader)

    def close(self) -> None:
        """Do nothing: `http.client` closes the socket before it reads the last of the answer."""


class _LimitedReader(io.RawIOBase):
    """Receives bytes until a deadline, and up to a number.

    `http.client` alone has no limit: a chunk whose size is -1 is all that comes until the end, and
    there may be any number of answers with the status 100.
    """

    def __init__(self, connection: socket.socket, *, deadline: float, bytes_max: int) -> None:
        self._connection = connection
        self._deadline = deadline
        self._bytes_max = bytes_max
        self._received = 0

    def readable(self) -> bool:
        """Always True."""
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        """Receive some bytes; 0 at the end."""
        # A timeout of the socket is one for each piece: a peer that sends a byte a second would
        # never end it.
        self._connection.settimeout(_left_s(self._deadline))
        count = self._connection.recv_into(buffer)
        self._received += count
        if self._received > self._bytes_max:
            raise _oversized(self._bytes_max)
        return count


def _left_s(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("it takes longer than its read timeout")
    return left
