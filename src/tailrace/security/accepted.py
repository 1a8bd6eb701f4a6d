"""`AcceptedTlsSocket`: the server's end of an encrypted connection, as an `AcceptedSocket`.

    readable -> bytes -> a step of the handshake, on a thread -> answer -> ...
             -> secured(principal) -> bytes of requests, on the loop

A step of a handshake signs, and checks certificates: 0.5 to 7 ms, more than the loop may spend on
one callback (decision 89). Steps run on a few threads, each connection's in their order; bytes of
its peer stay in the kernel meanwhile.

The kernel calls back while it has bytes. After the handshake this does the same for bytes that are
in the SSL object already, and for room to send there.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from tailrace.model import Principal
from tailrace.runtime.files import Buffer
from tailrace.runtime.network import AcceptedSocket
from tailrace.runtime.threads import BoundedThreads
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
        threads: BoundedThreads,
        secured: Callable[[Principal], None],
    ) -> None:
        """`secured` gets the principal of the client before any byte of it is received."""
        self._raw = socket
        self._listener = listener
        self._secured: Callable[[Principal], None] | None = secured
        self._socket = TlsSocket(socket, partial(listener.context.wrap_bio, server_side=True))
        self._on_read: Callable[[], None] | None = None
        self._on_write: Callable[[], None] | None = None
        self._ahead = memoryview(b"")
        """Bytes of requests that were read to see whether the peer has closed."""
        self._is_scheduled = False
        self._loop = asyncio.get_running_loop()
        self._threads = threads
        self._step: asyncio.Task[None] | None = None
        """A step of the handshake, on a thread."""
        self._failure: OSError | EOFError | None = None
        """The end of the handshake, if it has failed."""
        self._is_closed = False

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
        if isinstance(self._failure, EOFError):
            return 0
        if self._failure is not None:
            raise self._failure
        if self._socket.is_shaken:
            return self._socket.receive_into(buffer)
        if self._step is not None:
            return None
        fetched = self._socket.fetch()
        if fetched == 0:
            # No thread has to be asked: thousands of silent clients may leave at once.
            self._failure = EOFError("the peer has left during the handshake")
            return 0
        if fetched:
            self._raw.watch_reads(None)
            self._step = asyncio.ensure_future(self._shake())
        return None

    async def _shake(self) -> None:
        is_done = False
        try:
            is_done = await self._threads.run(self._socket.shake)
        except (OSError, EOFError) as error:
            self._failure = error
        except RuntimeError as error:
            # The broker stops, and takes no more work for its threads.
            self._failure = EOFError(str(error))
        except asyncio.CancelledError:
            # The loop ends, and with it what would close the socket later.
            self._raw.close()
            raise
        self._step = None
        if self._is_closed:
            self._failure = None
            self._raw.close()
            return
        try:
            self._socket.flush(is_shaken=is_done)
            if is_done and self._secured is not None:
                self._secured(self._listener.principal_of(self._socket.tls))
        except OSError as error:
            self._failure = self._failure or error
        if self._on_read is not None:
            self._raw.watch_reads(self._read)
        self._schedule()

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        """Return the bytes taken, None if there is no room yet; raises as `receive_into`."""
        return self._socket.send(buffers)

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        """Call back while there is something to receive; None stops it."""
        self._on_read = callback
        if self._step is None:
            self._raw.watch_reads(None if callback is None else self._read)
            self._schedule()

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        """Call back when there is room to send; None stops it."""
        self._on_write = callback
        if self._step is None:
            self._socket.watch_writes(callback)
            self._schedule()

    def close(self) -> None:
        """End the connection; callbacks stop."""
        self._on_read = self._on_write = None
        # They refer to the connection and to this object, which would stay until the garbage
        # collector looks at all objects, with the memory of OpenSSL that it does not know of.
        self._secured = self._failure = None
        if not self._is_closed:
            self._is_closed = True
            if self._step is None:
                self._socket.close()
            else:
                # The thread may write to what would be sent; the step closes the socket.
                self._raw.watch_reads(None)

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
        return self._on_read is not None and bool(
            self._ahead or self._failure or (self._socket.is_shaken and self._socket.has_pending)
        )

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
