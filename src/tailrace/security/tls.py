"""`TlsSocket`: TLS over any `Socket`, with the same methods.

    send -> SSLObject -> outgoing BIO -> socket          both drive the handshake, and return
    receive_into <- SSLObject <- incoming BIO <- socket  None until it is done

Not here: what a failure means for the connection (`connection`), and certificates (`tls_context`).

Invariant: one call moves at most `CHUNK_BYTES` in either direction, so the buffers here stay small.
"""

import contextlib
import ssl
from collections.abc import Callable, Sequence
from typing import cast

from tailrace.runtime.files import Buffer
from tailrace.runtime.network import Socket
from tailrace.security.errors import TlsError

CHUNK_BYTES = 64 * 1024
"""Four TLS records."""


class TlsSocket:
    """The client's end of an encrypted connection.

    `receive_into` and `send` raise `TlsError` if the peer breaks the protocol or is not trusted.
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
        """Return the bytes received, 0 at the end of the stream, None if nothing has come yet.

        Fewer bytes than the buffer has room for mean that there are no more for now.
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
            # The end of the stream, as of a plain socket; a broker that is killed sends no
            # close_notify.
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return filled
            except ssl.SSLError as error:
                raise TlsError(str(error)) from error
            else:
                if not received:
                    return filled
                filled += received
        return filled

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        """Return the bytes taken; None if there is no room or the handshake is not done yet."""
        try:
            if not self._is_shaken:
                self._shake()
            if not self._flush():
                return None
            taken = 0
            for buffer in buffers:
                # What is encrypted is kept until it is sent; without a limit that would be a whole
                # batch twice.
                part = memoryview(buffer)[: CHUNK_BYTES - taken]
                if part:
                    taken += self._tls.write(part)
                if taken == CHUNK_BYTES:
                    break
        except ssl.SSLWantReadError:
            self._flush()
            return None
        except ssl.SSLError as error:
            raise TlsError(str(error)) from error
        self._flush()
        return taken

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        """Call back while there is something to receive."""
        self._socket.watch_reads(callback)

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        """Call back when there is room to send; not during the handshake, which reads drive."""
        self._on_write = callback
        self._wait()

    def close(self) -> None:
        """Send a close_notify alert if there is room for it, and close the socket."""
        with contextlib.suppress(OSError):
            if self._is_shaken:
                # The peer's own close_notify is not waited for.
                with contextlib.suppress(ssl.SSLWantReadError):
                    self._tls.unwrap()
            self._flush()
        self._socket.close()

    def _shake(self) -> None:
        """Continue the handshake; raises SSLWantReadError while it waits for the peer."""
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
        """Pass the peer's bytes to the SSL object; return False if there are none yet."""
        received = self._socket.receive_into(memoryview(self._chunk))
        if received is None:
            return False
        if received:
            self._incoming.write(memoryview(self._chunk)[:received])
        else:
            # So that the next read raises or returns the end, where TLS decides which.
            self._incoming.write_eof()
        return True

    def _flush(self) -> bool:
        """Send encrypted bytes; return False if some are left."""
        while self._unsent or self._outgoing.pending:
            self._unsent = self._unsent or self._outgoing.read()
            sent = self._socket.send([self._unsent])
            if sent is None:
                break
            self._unsent = self._unsent[sent:]
        self._wait()
        return not (self._unsent or self._outgoing.pending)

    def _wait(self) -> None:
        # Only a change is passed on: each costs a call of epoll_ctl.
        is_waiting = bool(self._unsent or self._outgoing.pending)
        if is_waiting != self._is_waiting:
            self._is_waiting = is_waiting
            self._socket.watch_writes(self._on_writable if is_waiting else None)

    def _on_writable(self) -> None:
        # The next `send` or `receive_into` raises the error.
        with contextlib.suppress(OSError):
            self._flush()
        if self._on_write is not None:
            self._on_write()
