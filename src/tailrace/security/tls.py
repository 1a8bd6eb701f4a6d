"""`TlsSocket`: TLS over any `Socket`, with the same methods, for both ends of a connection.

    send -> SSLObject -> outgoing BIO -> socket          both drive the handshake, and return
    receive_into <- SSLObject <- incoming BIO <- socket  None until it is done

A socket calls back as long as the kernel has bytes. Here bytes may have left the kernel and wait,
encrypted or not, in the SSL object: `has_pending` says so. `accepted` calls back for these, and a
client reads until there are no more.

Not here: what a failure means for the connection, and certificates (`tls_context`).

Invariant: the buffers of a connection are bounded in either direction, also against a peer that
makes OpenSSL answer and takes no answers.
"""

import contextlib
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import cast

from tailrace.runtime.files import Buffer
from tailrace.runtime.network import Socket
from tailrace.security.errors import TlsError

CHUNK_BYTES = 64 * 1024
"""Four TLS records."""

OUTGOING_BYTES_MAX = 3 * CHUNK_BYTES
"""`send` leaves less than that to be sent: more are answers of OpenSSL, as to updates of keys."""


HANDSHAKE_FETCH_BYTES = 16 * 1024
"""Bytes that are received at a time until the handshake is done. The peer may be anybody, and a
`MemoryBIO` keeps memory for the most bytes that it was given."""

BARREN_BYTES_MAX = 20 * 1024
"""Most encrypted bytes without data after the handshake: a record has 16 KiB and some at most, and
new keys and session tickets are few. An update of keys has 27 bytes, and takes OpenSSL up to
60 us."""

BARREN_FETCH_BYTES = 1024
"""Bytes that are received in one turn as long as no data comes: updates of keys in them take up to
2.5 ms. With data come more, up to `CHUNK_BYTES`, but never much more than the bytes before had
data: a peer may send one byte of it now and then."""


class _Scratch(threading.local):
    """Memory that encrypted bytes are received into; all connections of a thread share it."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(CHUNK_BYTES))


_scratch = _Scratch()


class TlsSocket:
    """One end of an encrypted connection.

    `receive_into` and `send` raise `TlsError` if the peer breaks the protocol or is not trusted.
    """

    def __init__(
        self, socket: Socket, wrap: Callable[[ssl.MemoryBIO, ssl.MemoryBIO], ssl.SSLObject]
    ) -> None:
        """`wrap` is `SSLContext.wrap_bio`, for a client with the host.

        Raises:
            ValueError: no certificate can name that host.
        """
        self._socket = socket
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.tls = wrap(self._incoming, self._outgoing)
        self.is_shaken = False
        """Whether the handshake is done."""
        self._barren_bytes = 0
        """Encrypted bytes that were received since the last data."""
        self._data_bytes = 0
        """Bytes of data since bytes were fetched last."""
        self._unsent = memoryview(b"")
        self._is_waiting = False
        self._on_write: Callable[[], None] | None = None

    @property
    def peer(self) -> str:
        """The other end as HOST:PORT."""
        return self._socket.peer

    @property
    def has_pending(self) -> bool:
        """Whether bytes were received that `receive_into` has not returned yet."""
        return bool(self._incoming.pending or self.tls.pending())

    @property
    def has_unsent(self) -> bool:
        """Whether encrypted bytes wait for room in the kernel's buffer."""
        return bool(self._unsent or self._outgoing.pending)

    def fetch(self) -> int | None:
        """Pass bytes of the peer to the SSL object; their number, 0 at the end, None if none yet.

        For a handshake on another thread: until `shake` has returned nothing else may be called.
        """
        # The thread writes to the buffer that the loop would send from.
        if self._is_waiting:
            self._is_waiting = False
            self._socket.watch_writes(None)
        return self._fetch()

    def shake(self) -> bool:
        """Continue the handshake with what was fetched; return whether it is done.

        Raises:
            EOFError: the peer has ended the connection.
            TlsError: it broke the protocol, or is not trusted; `flush` sends the alert.
        """
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError) as error:
            raise EOFError(str(error)) from None
        except ssl.SSLError as error:
            raise TlsError(str(error)) from error
        return True

    def flush(self, *, is_shaken: bool) -> None:
        """Send what the handshake has made, on the loop again."""
        self.is_shaken = is_shaken
        self._flush()

    def receive_into(self, buffer: memoryview) -> int | None:
        """Return the bytes received, 0 at the end of the stream, None if nothing has come yet.

        Fewer bytes than the buffer has room for mean that there are no more for now.
        """
        filled = 0
        # What the kernel has then is received by the next call: a peer may send as fast as its
        # records are decrypted, and these may be empty.
        fetches_left = len(buffer) // CHUNK_BYTES + 2
        taken = 0  # Encrypted bytes of the last fetch of this call.
        while filled < len(buffer):
            try:
                if not self.is_shaken:
                    self._shake()
                received = cast("int", self.tls.read(len(buffer) - filled, buffer[filled:]))
            except ssl.SSLWantReadError:
                if not self._flush() and self._outgoing.pending > OUTGOING_BYTES_MAX:
                    raise TlsError("the peer asks for answers, and takes none") from None
                if self._barren_bytes > BARREN_BYTES_MAX:
                    raise TlsError("the peer sends records without data") from None
                # Others have their turn before more comes of a peer that sends hardly any data.
                if self._data_bytes < taken // 2:
                    return filled or None
                fetched = self._fetch() if fetches_left else None
                if fetched is None:
                    return filled or None
                fetches_left -= 1
                if self.is_shaken:
                    taken = fetched
                    self._barren_bytes += fetched
            # The end of the stream, as of a plain socket; a peer that is killed sends no
            # close_notify.
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return filled
            except ssl.SSLError as error:
                raise TlsError(str(error)) from error
            else:
                if not received:
                    return filled
                self._barren_bytes = 0
                self._data_bytes += received
                filled += received
        return filled

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        """Return the bytes taken; None if there is no room or the handshake is not done yet.

        Fewer bytes than there are mean that the kernel's buffer is full.
        """
        taken = 0
        try:
            if not self.is_shaken:
                self._shake()
            for buffer in buffers:
                rest = memoryview(buffer)
                while rest:
                    # What is encrypted is kept until it is sent; without a limit that would be a
                    # whole batch twice.
                    if self._outgoing.pending >= CHUNK_BYTES and not self._flush():
                        return taken or None
                    size = self.tls.write(rest[:CHUNK_BYTES])
                    taken += size
                    rest = rest[size:]
        except ssl.SSLWantReadError:
            self._flush()
            return taken or None
        except ssl.SSLError as error:
            raise TlsError(str(error)) from error
        self._flush()
        return taken

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        """Call back while there is something to receive from the kernel."""
        self._socket.watch_reads(callback)

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        """Call back when there is room to send; not during the handshake, which reads drive."""
        self._on_write = callback
        self._wait()

    def close(self) -> None:
        """Send a close_notify alert if there is room for it, and close the socket."""
        with contextlib.suppress(OSError):
            if self.is_shaken:
                # The peer's own close_notify is not waited for.
                with contextlib.suppress(ssl.SSLWantReadError):
                    self.tls.unwrap()
            self._flush()
        self._on_write = None
        self._socket.close()

    def _shake(self) -> None:
        """Continue the handshake; raises SSLWantReadError while it waits for the peer."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            raise
        except ssl.SSLError:
            with contextlib.suppress(OSError):
                self._flush()  # the alert that tells the peer why
            raise
        self.is_shaken = True

    def _fetch(self) -> int | None:
        """Pass the peer's bytes to the SSL object; their number, or None if there are none yet."""
        scratch = _scratch.view
        if not self.is_shaken:
            scratch = scratch[:HANDSHAKE_FETCH_BYTES]
        else:
            scratch = scratch[: max(BARREN_FETCH_BYTES, self._data_bytes * 5 // 4)]
        self._data_bytes = 0
        received = self._socket.receive_into(scratch)
        if received:
            self._incoming.write(scratch[:received])
        elif received is not None:
            # So that the next read raises or returns the end, where TLS decides which.
            self._incoming.write_eof()
        return received

    def _flush(self) -> bool:
        """Send encrypted bytes; return False if some are left."""
        while self.has_unsent:
            self._unsent = self._unsent or memoryview(self._outgoing.read())
            sent = self._socket.send([self._unsent])
            if sent is None:
                break
            self._unsent = self._unsent[sent:]
        self._wait()
        return not self.has_unsent

    def _wait(self) -> None:
        # Only a change is passed on: each costs a call of epoll_ctl.
        is_waiting = self.has_unsent
        if is_waiting != self._is_waiting:
            self._is_waiting = is_waiting
            self._socket.watch_writes(self._on_writable if is_waiting else None)

    def _on_writable(self) -> None:
        # The next `send` or `receive_into` raises the error.
        with contextlib.suppress(OSError):
            self._flush()
        if self._on_write is not None:
            self._on_write()
