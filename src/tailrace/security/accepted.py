"""`AcceptedTlsSocket`: the server's end of an encrypted connection, as an `AcceptedSocket`.

    readable -> handshake -> secured(principal) -> bytes of requests

The kernel calls back while it has bytes. This does the same for bytes that are in the SSL object
already, and for room to send there.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from tailrace.model import Principal
from tailrace.runtime.files import Buffer
from tailrace.runtime.network import AcceptedSocket
from tailrace.security.listener_tls import ListenerTls
from tailrace.security.tls import TlsSocket

LOOK_AHEAD_BYTES = 16 * 1024
"""One TLS record."""


class AcceptedTlsSocket:
    """The server's end of a connection, on the running event loop; see `AcceptedSocket`.

    `receive_into` raises `TlsError` if the handshake fails, or no rule gives the client a name.
    """

    def __init__(
        self,
        socket: AcceptedSocket,
        listener: ListenerTls,
        *,
        secured: Callable[[Principal], None],
    ) -> None:
        """`secured` gets the principal of the client before any byte of it is received."""
        self._raw = socket
        self._listener = listener
        self._secured = secured
        self._socket = TlsSocket(socket, partial(listener.context.wrap_bio, server_side=True))
        self._on_read: Callable[[], None] | None = None
        self._on_write: Callable[[], None] | None = None
        self._ahead = memoryview(b"")
        """Bytes of requests that were read to see whether the peer has closed."""
        self._is_scheduled = False
        self._loop = asyncio.get_running_loop()

    @property
    def peer(self) -> str:
        """The other end as HOST:PORT."""
        return self._socket.peer

    @property
    def is_peer_gone(self) -> bool:
        """Whether the peer has closed or reset, and all that it has sent was received."""
        # The kernel may have a close_notify alert, so what it has is no sign of a request.
        if not self._ahead:
            buffer = memoryview(bytearray(LOOK_AHEAD_BYTES))
            try:
                received = self.receive_into(buffer)
            except OSError:
                return True
            if received == 0:
                return True
            self._ahead = buffer[: received or 0]
        return False

    def receive_into(self, buffer: memoryview) -> int | None:
        """Return the bytes received, 0 at the end, None if nothing has come yet.

        Raises:
            TlsError: the handshake has failed, or the peer breaks the protocol.
            ConnectionError: the connection is broken.
        """
        if self._ahead:
            size = min(len(buffer), len(self._ahead))
            buffer[:size] = self._ahead[:size]
            self._ahead = self._ahead[size:]
            return size
        was_shaken = self._socket.is_shaken
        received = self._socket.receive_into(buffer)
        if self._socket.is_shaken and not was_shaken:
            self._secured(self._listener.principal_of(self._socket.tls))
        return received

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        """Return the bytes taken, None if there is no room yet; raises as `receive_into`."""
        return self._socket.send(buffers)

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        """Call back while there is something to receive; None stops it."""
        self._on_read = callback
        self._socket.watch_reads(None if callback is None else self._read)
        self._schedule()

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        """Call back when there is room to send; None stops it."""
        self._on_write = callback
        self._socket.watch_writes(callback)
        self._schedule()

    def close(self) -> None:
        """End the connection; callbacks stop."""
        self._on_read = self._on_write = None
        self._socket.close()

    def _read(self) -> None:
        if self._on_read is not None:
            self._on_read()
            self._schedule()

    def _schedule(self) -> None:
        """Call back in the next turn of the loop for what the kernel does not know of."""
        if not self._is_scheduled and (self._is_read_due or self._is_write_due):
            self._is_scheduled = True
            self._loop.call_soon(self._call)

    @property
    def _is_read_due(self) -> bool:
        return self._on_read is not None and bool(self._ahead or self._socket.has_pending)

    @property
    def _is_write_due(self) -> bool:
        return self._on_write is not None and not self._socket.has_unsent

    def _call(self) -> None:
        self._is_scheduled = False
        if self._is_write_due and self._on_write is not None:
            self._on_write()
        if self._is_read_due and self._on_read is not None:
            self._on_read()
        self._schedule()
