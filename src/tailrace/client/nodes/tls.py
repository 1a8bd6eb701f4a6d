"""TLS over any `Socket`: the same calls, with bytes encrypted on the way.

    send -> SSLObject -> outgoing BIO -> socket          the handshake goes along by itself:
    receive_into <- SSLObject <- incoming BIO <- socket  until it is done, both say None

Not here: what a failure means for the connection; see `link`.

Invariant: one call takes at most `CHUNK_BYTES` in either direction, so neither side's bytes pile
up here.
"""

import contextlib
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from tailrace.errors import ConfigError
from tailrace.runtime.files import Buffer
from tailrace.runtime.network import Socket

CHUNK_BYTES = 64 * 1024
"""Four TLS records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Files in PEM format; an empty name stands for none."""

    truststore_location: str = ""
    """Authorities that are trusted (`ssl.truststore.location`); empty: those of the system."""
    keystore_location: str = ""
    """Our own certificate chain, for brokers that ask for one (`ssl.keystore.location`)."""
    key_location: str = ""
    """Its private key (`ssl.key.location`); empty: it is in the same file."""
    key_password: str = ""
    """Password of the key (`ssl.key.password`)."""
    checks_host: bool = True
    """Whether a certificate must name the host (`ssl.endpoint.identification.algorithm`)."""


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """What connections are encrypted with.

    Raises:
        ConfigError: a file cannot be read, or is not PEM.
    """
    try:
        context = ssl.create_default_context(cafile=settings.truststore_location or None)
    except OSError as error:
        raise ConfigError(
            [f"ssl.truststore.location: {settings.truststore_location}: {error}; PEM is taken"]
        ) from error
    context.check_hostname = settings.checks_host
    if settings.keystore_location:
        try:
            context.load_cert_chain(
                settings.keystore_location,
                settings.key_location or None,
                # A function, since None would have OpenSSL ask at the terminal.
                password=lambda: settings.key_password,
            )
        except OSError as error:
            fault = (
                f"ssl.keystore.location: {settings.keystore_location}: {error}; PEM is taken, and "
                "ssl.key.password must fit"
            )
            raise ConfigError([fault]) from error
    return context


class TlsSocket:
    """The client's end of an encrypted connection.

    `receive_into` and `send` raise `ssl.SSLError` where the peer breaks the protocol or is not
    trusted.
    """

    def __init__(self, socket: Socket, context: ssl.SSLContext, *, host: str) -> None:
        self._socket = socket
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._chunk = bytearray(CHUNK_BYTES)
        self._unsent = b""
        self._is_shaken = False
        self._is_waiting = False
        self._on_write: Callable[[], None] | None = None

    @property
    def peer(self) -> str:
        """The other end as HOST:PORT."""
        return self._socket.peer

    def receive_into(self, buffer: memoryview) -> int | None:
        """Bytes received, 0 at the end, None when there is nothing yet.

        Fewer than fit mean that there is no more for now.
        """
        filled = 0
        while filled < len(buffer):
            try:
                if not self._is_shaken:
                    self._shake()
                received = cast("int", self._tls.read(len(buffer) - filled, buffer[filled:]))
            except ssl.SSLWantReadError:
                self._flush()
                if not self._fetch():
                    return filled or None
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return filled
            else:
                if not received:
                    return filled
                filled += received
        return filled

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        """Bytes taken over, None when there is no room yet or the handshake goes on."""
        try:
            if not self._is_shaken:
                self._shake()
            if not self._flush():
                return None
            taken = 0
            for buffer in buffers:
                part = memoryview(buffer)[: CHUNK_BYTES - taken]
                if part:
                    taken += self._tls.write(part)
                if taken == CHUNK_BYTES:
                    break
        except ssl.SSLWantReadError:
            self._flush()
            return None
        self._flush()
        return taken

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        """Call back while there is something to receive."""
        self._socket.watch_reads(callback)

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        """Call back when there is room to send.

        Not while the handshake goes on: that is moved by what is received.
        """
        self._on_write = callback
        self._wait()

    def close(self) -> None:
        """Say goodbye if there is room for it, and end the connection."""
        with contextlib.suppress(OSError):
            if self._is_shaken:
                with contextlib.suppress(ssl.SSLWantReadError):
                    self._tls.unwrap()
            self._flush()
        self._socket.close()

    def _shake(self) -> None:
        """Go on with the handshake; raises SSLWantReadError while it waits for the peer."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            raise
        except ssl.SSLError:
            with contextlib.suppress(OSError):
                self._flush()  # the alert that tells the peer why
            raise
        self._is_shaken = True

    def _fetch(self) -> bool:
        """Hand the peer's bytes to the SSL object; False when there are none yet."""
        received = self._socket.receive_into(memoryview(self._chunk))
        if received is None:
            return False
        if received:
            self._incoming.write(memoryview(self._chunk)[:received])
        else:
            self._incoming.write_eof()
        return True

    def _flush(self) -> bool:
        """Hand over encrypted bytes; False when some are left."""
        while self._unsent or self._outgoing.pending:
            self._unsent = self._unsent or self._outgoing.read()
            sent = self._socket.send([self._unsent])
            if sent is None:
                break
            self._unsent = self._unsent[sent:]
        self._wait()
        return not (self._unsent or self._outgoing.pending)

    def _wait(self) -> None:
        is_waiting = bool(self._unsent or self._outgoing.pending)
        if is_waiting != self._is_waiting:
            self._is_waiting = is_waiting
            self._socket.watch_writes(self._on_writable if is_waiting else None)

    def _on_writable(self) -> None:
        # An error shows itself in the next call of whoever uses this socket.
        with contextlib.suppress(OSError):
            self._flush()
        if self._on_write is not None:
            self._on_write()
