"""Sockets, as a seam: non-blocking calls plus a callback when they are worth repeating.

The shape is that of the system calls, not of streams: `receive_into` and `send` never wait, and
say so by returning None. On asyncio's own loop this costs within a few per cent of raw epoll,
while a coroutine per read costs twice as much; and the double in `tailrace.testing` needs no
kernel.
"""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable, Sequence
from typing import Protocol

from tailrace.errors import ListenError
from tailrace.runtime.files import Buffer

IOV_MAX = 1024
"""Linux refuses longer vectors (UIO_MAXIOV)."""

BACKLOG = 512
"""Connections that the kernel may hold before they are accepted; a test harness opens many."""


class Socket(Protocol):
    """One end of a connection."""

    @property
    def peer(self) -> str:
        """The other end as HOST:PORT, for log lines."""
        ...

    def receive_into(self, buffer: memoryview) -> int | None:
        """Bytes received; 0 when the peer has closed; None when there is nothing yet.

        Raises:
            ConnectionError: the connection is broken.
        """
        ...

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        """Bytes taken over from the front of `buffers`; None when there is no room yet.

        Raises:
            ConnectionError: the connection is broken.
        """
        ...

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        """Call back whenever `receive_into` is worth a try; None stops it."""
        ...

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        """Call back whenever `send` is worth a try; None stops it."""
        ...

    def close(self) -> None:
        """End the connection; callbacks stop."""
        ...


class Listener(Protocol):
    """An open port."""

    @property
    def host(self) -> str:
        """The address that is listened on."""
        ...

    @property
    def port(self) -> int:
        """The port, also when any free one was asked for."""
        ...

    def close(self) -> None:
        """Accept no more; open connections go on."""
        ...


class Network(Protocol):
    """Opens ports."""

    def listen(self, host: str, port: int, accepted: Callable[[Socket], None]) -> Listener:
        """Call `accepted` with each new connection; port 0 takes any free one.

        Raises:
            ListenError: the address is taken, not ours, or not allowed.
        """
        ...


class KernelSocket:
    """A TCP connection on the running event loop."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(0)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        try:
            host, port = connection.getpeername()[:2]
        except OSError:
            host, port = "gone", 0
        self._peer = f"{host}:{port}"

    @property
    def peer(self) -> str:
        """The other end as HOST:PORT."""
        return self._peer

    def receive_into(self, buffer: memoryview) -> int | None:
        """Bytes received, 0 at the end, None when there is nothing yet."""
        try:
            return self._connection.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return None

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        """Bytes taken over, None when there is no room yet."""
        try:
            return self._connection.sendmsg(buffers[:IOV_MAX])
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            # EFAULT: a mapped file was cut while its bytes waited to be sent.
            if error.errno == errno.EFAULT:
                raise ConnectionAbortedError(
                    errno.EFAULT, "the file behind a reply was cut"
                ) from error
            raise

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        """Call back while there is something to receive."""
        if callback is None:
            self._loop.remove_reader(self._connection)
        else:
            self._loop.add_reader(self._connection, callback)

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        """Call back while there is room to send."""
        if callback is None:
            self._loop.remove_writer(self._connection)
        else:
            self._loop.add_writer(self._connection, callback)

    def close(self) -> None:
        """End the connection."""
        if self._connection.fileno() >= 0:
            self.watch_reads(None)
            self.watch_writes(None)
            self._connection.close()


class KernelListener:
    """A listening TCP socket on the running event loop."""

    def __init__(self, listening: socket.socket, accepted: Callable[[Socket], None]) -> None:
        self._listening = listening
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self.host, self.port = listening.getsockname()[:2]
        self._loop.add_reader(listening, self._accept)

    def _accept(self) -> None:
        for _ in range(BACKLOG):
            try:
                connection, _address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                # Out of descriptors: leave the peer in the backlog, or the loop would spin on it.
                self._loop.remove_reader(self._listening)
                self._loop.call_later(1.0, self._resume)
                return
            self._accepted(KernelSocket(connection))

    def _resume(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Accept no more."""
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening)
            self._listening.close()


class SocketNetwork:
    """The machine's own TCP."""

    def listen(self, host: str, port: int, accepted: Callable[[Socket], None]) -> KernelListener:
        """Open a port; see `Network.listen`."""
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listening = socket.socket(family, kind, protocol)
        except OSError as error:
            raise _listen_error(host, port, error) from error
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.settimeout(0)
            listening.bind(address)
            listening.listen(BACKLOG)
        except OSError as error:
            listening.close()
            raise _listen_error(host, port, error) from error
        return KernelListener(listening, accepted)


def _listen_error(host: str, port: int, error: OSError) -> ListenError:
    advice = {
        errno.EADDRINUSE: "another process listens there; choose another port, or 0 for a free one",
        errno.EACCES: "ports below 1024 need more rights; choose a higher one",
        errno.EADDRNOTAVAIL: "this machine has no such address; try 127.0.0.1 or 0.0.0.0",
    }.get(error.errno or 0, "check the address given to --listen")
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return ListenError(f"cannot listen on {host}:{port}: {reason.lower()}: {advice}")
