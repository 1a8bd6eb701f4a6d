"""One HTTP request with limits of time and size: for tokens, and for the keys that they have.

Blocks, so it runs on threads. Nothing is followed and nothing read from the environment: redirects
and proxies could send a secret elsewhere (decision 45).

Invariant: whatever the other side sends, the call ends within both time limits, and holds
`bytes_max` of the answer besides the headers.
"""

import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from typing import NamedTuple, cast
from urllib.parse import urlsplit

from tailrace.errors import FatalError


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
        ValueError, http.client.HTTPException: the answer is not HTTP.
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
        deadline = time.monotonic() + read_timeout_s
        connection.sock = cast("socket.socket", _TimedSocket(opened, deadline))
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        # One byte more than allowed, which tells a body that is too long from one that just fits.
        found = response.read(bytes_max + 1)
    if len(found) > bytes_max:
        raise OversizedAnswerError(f"the answer of {url} has more than {bytes_max} bytes")
    return HttpAnswer(response.status, response.headers.get("Location", ""), found)


class _TimedSocket:
    """The part of a socket that `http.client` uses, with one deadline for all that it receives."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        """Send all bytes."""
        self._connection.settimeout(_left_s(self._deadline))
        self._connection.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """A file to read from."""
        assert mode == "rb"
        return io.BufferedReader(_TimedReader(self._connection, self._deadline))

    def close(self) -> None:
        """Do nothing: `http.client` closes the socket before it reads the last of the answer."""


class _TimedReader(io.RawIOBase):
    """Receives bytes until a deadline."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def readable(self) -> bool:
        """Always True."""
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        """Receive some bytes; 0 at the end."""
        # A timeout of the socket is one for each piece: a peer that sends a byte a second would
        # never end it.
        self._connection.settimeout(_left_s(self._deadline))
        return self._connection.recv_into(buffer)


def _left_s(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("it takes longer than its read timeout")
    return left
