"""HTTP endpoints on this machine, for tokens and key sets, which may be hostile in every way."""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tailrace.security.tls_context import as_file
from tests.unit.security.certificates import BROKER, BROKER_KEY
from tests.wire.clients import TIMEOUT_S

MIB = 1024 * 1024

Answer = Callable[[socket.socket], None]
"""Answers one request on its connection."""


class Endpoint:
    """An endpoint that answers one request after the other as it is told."""

    def __init__(self, answer: Answer, context: ssl.SSLContext | None) -> None:
        self.requests: list[bytes] = []
        self._answer = answer
        self._context = context
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        """The endpoint's address."""
        scheme = "http" if self._context is None else "https"
        return f"{scheme}://127.0.0.1:{self._listening.getsockname()[1]}/oauth/token?a=b"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(TIMEOUT_S)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with suppress(OSError), connection:
                connection.settimeout(TIMEOUT_S)
                if self._context is not None:
                    with self._context.wrap_socket(connection, server_side=True) as wrapped:
                        self._take(wrapped)
                else:
                    self._take(connection)

    def _take(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as file:
            head = b"".join(iter(file.readline, b"\r\n"))
            _, _, rest = head.lower().partition(b"content-length: ")
            size = int(rest.split(b"\r\n")[0] or b"0")
            self.requests.append(head + b"\r\n" + file.read(size))
        self._answer(connection)


@contextmanager
def endpoint(answer: Answer, context: ssl.SSLContext | None = None) -> Iterator[Endpoint]:
    """An endpoint for the time of the block."""
    found = Endpoint(answer, context)
    found.start()
    try:
        yield found
    finally:
        found.close()


def saying(body: object, *, status: str = "200 OK", headers: str = "") -> Answer:
    """An answer with that body, bytes or what JSON makes of it."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\n{headers}\r\n"
    return lambda connection: connection.sendall(head.encode() + data)


def server_side() -> ssl.SSLContext:
    """A context of the host 127.0.0.1, with the certificate BROKER."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with as_file(BROKER + BROKER_KEY) as path:
        context.load_cert_chain(path)
    return context


def forever(head: bytes, piece: bytes) -> Answer:
    """An answer that does not end."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(piece)

    return answer


def slowly(piece: bytes) -> Answer:
    """An answer that comes byte by byte, each within any time limit of a single receive."""

    def answer(connection: socket.socket) -> None:
        connection.settimeout(0.02)
        with suppress(TimeoutError, ConnectionError):
            while True:
                connection.sendall(piece)
                with suppress(TimeoutError):
                    if not connection.recv(1):
                        return

    return answer


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
HOSTILE: dict[str, Answer] = {
    "a body without end": forever(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536),
    "chunks without end": forever(CHUNKED, b"10000\r\n" + b"x" * 65536 + b"\r\n"),
    "a chunk of a negative size": forever(CHUNKED + b"-1\r\n", b"x" * 65536),
    "a gigabyte": forever(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n", b"x" * 65536),
    "headers without end": forever(b"HTTP/1.1 200 OK\r\n", b"A: " + b"x" * 60_000 + b"\r\n"),
    "a line without end": forever(b"HTTP/1.1 200 OK", b"x" * 65536),
    "continue without end": forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "a trickle of headers": slowly(b"H"),
    "silence": slowly(b""),
    "no HTTP": lambda connection: connection.sendall(b"\x15\x03\x01\x00\x02\x02\x28"),
    "an end before the answer": lambda connection: connection.close(),
    "a body cut short": lambda connection: connection.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"
    ),
    "a length that lies": lambda connection: connection.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n{}"
    ),
}
