"""Sockets, as a seam: non-blocking calls, and callbacks when a socket is ready.

The methods are those of system calls, not of streams: `receive_into` and `send` never wait, and
return None if they would have to. On asyncio's loop this costs a few per cent more than raw epoll,
while a coroutine per read costs twice as much. The double is in `tailrace.testing`.

`polling` has a network for programs without an event loop.
"""

import contextlib
import errno
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tailrace.errors import ListenError
from tailrace.runtime.files import Buffer

logger = logging.getLogger(__name__)

IOV_MAX = 1024
"""Linux refuses longer vectors (UIO_MAXIOV)."""

BACKLOG = 512
"""Connections that the kernel may hold before they are accepted; a test harness opens many."""


ACCEPTED_AT_ONCE = 4
"""Connections that are accepted in one callback: each takes some 200 us."""

ACCEPT_PAUSE_S = 0.003
"""Pause in seconds after those: a flood of connections leaves most of the loop to the open ones,
and 500 clients that connect at the same time are accepted in less than a second."""


class Socket(Protocol):
    """One end of a connection."""

    @property
    def peer(self) -> str:
        """The other end as HOST:PORT, for log lines."""
        ...

    def receive_into(self, buffer: memoryview) -> int | None:
        """Receive bytes and return their number: 0 if the peer has closed, None if there are none.

        Raises:
            ConnectionError: the connection is broken.
        """
        ...

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        """Send bytes of `buffers` and return their number; None if the kernel's buffer is full.

        Raises:
            ConnectionError: the connection is broken.
        """
        ...

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        """Call back when there is something to receive; None stops it."""
        ...

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        """Call back when there is room to send; None stops it."""
        ...

    def close(self) -> None:
        """End the connection; callbacks stop."""
        ...


class AcceptedSocket(Socket, Protocol):
    """The server's end of a connection."""

    @property
    def is_peer_gone(self) -> bool:
        """Whether the peer has closed or reset, and all that it has sent was received.

        For connections that are not being read; otherwise `receive_into` returns 0.
        """
        ...


class Listener(Protocol):
    """An open port."""

    @property
    def host(self) -> str:
        """The address that is listened on."""
        ...

    @property
    def port(self) -> int:
        """The port in use, also if port 0 was given."""
        ...

    def pause(self) -> None:
        """Leave new connections in the kernel's queue until `resume`."""
        ...

    def resume(self) -> None:
        """Accept again after `pause`."""
        ...

    def close(self) -> None:
        """Accept no more; open connections stay."""
        ...


class Connector(Protocol):
    """Opens outgoing connections."""

    def connect(
        self, host: str, port: int, done: Callable[[Socket | OSError], None], *, first: int = 0
    ) -> Callable[[], None]:
        """Call `done` once with a connection to `host`, or with the error; never waits.

        The addresses of a name are tried in turn until one answers (Kafka:
        client.dns.lookup=use_all_dns_ips), beginning with number `first` modulo their count. The
        caller passes its count of attempts, so that an address that does not answer is not tried
        first again. The name is looked up for each call.

        Returns a function that cancels the attempt: `done` is not called after it, and no socket
        stays open.
        """
        ...

    def run_beside(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run `work`, which may block, on a thread of its own; then call `done` as `connect` does.

        `work` must not raise. `done` is not called if the network is closed by then.
        """
        ...


class Network(Connector, Protocol):
    """Opens connections and ports."""

    def listen(self, host: str, port: int, accepted: Callable[[AcceptedSocket], None]) -> Listener:
        """Call `accepted` with each new connection; port 0 takes any free one.

        Raises:
            ListenError: the address is in use, not of this machine, or not allowed.
        """
        ...


class Watcher(Protocol):
    """Calls back when a socket is ready; the method names are those of an asyncio loop.

    It takes descriptors, because asyncio's loop takes 15 us to format an unknown socket object.
    """

    def add_reader(self, descriptor: int, callback: Callable[[], None], /) -> object:
        """Call back while there is something to receive."""
        ...

    def remove_reader(self, descriptor: int, /) -> object: ...

    def add_writer(self, descriptor: int, callback: Callable[[], None], /) -> object:
        """Call back while there is room to send."""
        ...

    def remove_writer(self, descriptor: int, /) -> object: ...

    def call_soon_threadsafe(self, callback: Callable[[], None], /) -> object:
        """Call back in the next turn; the only method that other threads may call.

        Raises:
            RuntimeError: the loop is closed.
        """
        ...


class KernelSocket:
    """A TCP connection."""

    def __init__(self, connection: socket.socket, loop: Watcher) -> None:
        connection.settimeout(0)
        with contextlib.suppress(OSError):
            # Nagle's algorithm would hold back a small request until the last one is acknowledged,
            # up to 40 ms with delayed acknowledgements. Kafka sets it as well.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._loop = loop
        try:
            host, port = connection.getpeername()[:2]
        except OSError:
            # A peer may reset between `accept` and here; the first read will report it.
            host, port = "gone", 0
        # A client over IPv4, on a socket for both: Java, and so Kafka, has its own address.
        if host.startswith("::ffff:") and "." in host:
            host = host.removeprefix("::ffff:")
        self._peer = f"{host}:{port}"

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def is_peer_gone(self) -> bool:
        """Whether nothing more comes."""
        try:
            # Peeks, so that a request that is there stays for the reader.
            return not self._connection.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True

    def receive_into(self, buffer: memoryview) -> int | None:
        """Bytes received, 0 at the end, None when there is nothing yet."""
        try:
            return self._connection.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return None

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        """Bytes taken over, None when there is no room yet."""
        try:
            if len(buffers) == 1:
                return self._connection.send(buffers[0])
            # The kernel refuses more buffers with EMSGSIZE, rather than taking the first ones.
            return self._connection.sendmsg(buffers[:IOV_MAX])
        except (BlockingIOError, InterruptedError):
            return None

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        if callback is None:
            self._loop.remove_reader(self._connection.fileno())
        else:
            self._loop.add_reader(self._connection.fileno(), callback)

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        if callback is None:
            self._loop.remove_writer(self._connection.fileno())
        else:
            self._loop.add_writer(self._connection.fileno(), callback)

    def close(self) -> None:
        if self._connection.fileno() >= 0:
            # Before the descriptor is closed: the next connection may get its number, and its
            # events.
            self.watch_reads(None)
            self.watch_writes(None)
            self._connection.close()


class KernelListener:
    """A listening TCP socket on the running event loop, which accepts from `start` on."""

    def __init__(
        self, listening: socket.socket, accepted: Callable[[AcceptedSocket], None]
    ) -> None:
        self._listening = listening
        self._accepted = accepted
        self._is_paused = False
        self._is_short = False
        """Whether connections wait for descriptors, and the log has a line of it."""
        import asyncio

        self._loop = asyncio.get_running_loop()
        self.host, self.port = listening.getsockname()[:2]

    def start(self) -> None:
        self._watch()

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if self._is_paused or self._listening.fileno() < 0:
                return
            try:
                connection, _address = self._listening.accept()
            # ECONNABORTED: a peer that left the queue before it was accepted.
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                # Nobody waits any more. One that is accepted may have taken the only descriptor.
                if self._is_short:
                    self._is_short = False
                    logger.info("connections_accepted port=%d", self.port)
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                # Out of descriptors: leave the peer in the backlog, or the loop would spin on it.
                self._watch_later(1.0)
                if not self._is_short:
                    self._is_short = True
                    logger.warning(
                        "connections_not_accepted port=%d reason=%s consequence=%s next=%s",
                        self.port, error, "clients wait until others disconnect",
                        "restart with a higher limit (ulimit -n, LimitNOFILE of systemd)",
                    )  # fmt: skip
                return
            self._accepted(KernelSocket(connection, self._loop))
        # The open connections take their turn now.
        self._watch_later(ACCEPT_PAUSE_S)

    def _watch_later(self, seconds: float) -> None:
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening.fileno())
        self._loop.call_later(seconds, self._watch)

    def pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._loop.remove_reader(self._listening.fileno())

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._watch()

    def _watch(self) -> None:
        if self._listening.fileno() >= 0 and not self._is_paused:
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def close(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening.fileno())
            self._listening.close()


Address = tuple[socket.AddressFamily, Any]
"""An address family and an address of that family."""


class Connecting:
    """An attempt to connect to one of a host's addresses; see `Connector.connect`."""

    def __init__(
        self, watcher: Watcher, done: Callable[[Socket | OSError], None], *, first: int
    ) -> None:
        self._watcher = watcher
        self._done = done
        self._first = first
        self._addresses: list[Address] = []
        self._connection: socket.socket | None = None
        self._is_ended = False

    def start(self, host: str, port: int) -> None:
        """Begin; a name that needs a lookup is resolved on a thread of its own."""
        try:
            # `getaddrinfo` blocks for as long as DNS takes. An address as a number needs no thread.
            addresses = _addresses(host, port, flags=socket.AI_NUMERICHOST)
        except (OSError, ValueError):
            threading.Thread(
                target=self._look_up, args=(host, port), name=f"look up {host}", daemon=True
            ).start()
        else:
            # Never within `connect`: the caller has not got the function that cancels yet.
            self._watcher.call_soon_threadsafe(lambda: self._found(addresses))

    def cancel(self) -> None:
        """End the attempt; does nothing after `done` was called."""
        self._is_ended = True
        self._let_go()

    def _look_up(self, host: str, port: int) -> None:
        found: list[Address] | OSError
        try:
            found = _addresses(host, port)
        except OSError as error:
            found = error
        except ValueError as error:
            found = OSError(f"the host name is invalid: {error}")
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            self._watcher.call_soon_threadsafe(lambda: self._found(found))

    def _found(self, found: list[Address] | OSError) -> None:
        if self._is_ended:
            return
        if isinstance(found, OSError):
            self._end(found)
            return
        start = self._first % len(found)
        self._addresses = found[start:] + found[:start]
        self._try_next(OSError("the name has no address"))

    def _try_next(self, reason: OSError) -> None:
        while self._addresses:
            family, address = self._addresses.pop(0)
            try:
                connection = socket.socket(family, socket.SOCK_STREAM)
            except OSError as error:
                reason = error
                continue
            connection.settimeout(0)
            try:
                code = connection.connect_ex(address)
            except OverflowError:  # the port number is out of range
                code = errno.EINVAL
            if code in (0, errno.EINPROGRESS):
                self._connection = connection
                self._watcher.add_writer(connection.fileno(), self._on_writable)
                return
            connection.close()
            reason = OSError(code, os.strerror(code))
        self._end(reason)

    def _on_writable(self) -> None:
        connection = self._connection
        assert connection is not None
        # The result of a `connect` that did not block; reading it clears it.
        code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._let_go()
            self._try_next(OSError(code, os.strerror(code)))
            return
        try:
            connection.getpeername()
        except OSError:
            return  # The event belongs to an older socket with the same descriptor.
        self._watcher.remove_writer(connection.fileno())
        self._connection = None
        self._end(KernelSocket(connection, self._watcher))

    def _end(self, outcome: Socket | OSError) -> None:
        self._is_ended = True
        self._done(outcome)

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._watcher.remove_writer(connection.fileno())
            connection.close()


def start_beside(watcher: Watcher, work: Callable[[], None], done: Callable[[], None]) -> None:
    """Start a thread for `work`, and have the watcher call `done`; see `Connector.run_beside`."""

    def run() -> None:
        work()
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            watcher.call_soon_threadsafe(done)

    threading.Thread(target=run, name="tailrace login", daemon=True).start()


def _addresses(host: str, port: int, *, flags: int = 0) -> list[Address]:
    found = socket.getaddrinfo(_name(host), port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, address) for family, _, _, _, address in found]


def _name(host: str) -> bytes | str:
    # Python imports its tables of international names for text, and not for bytes.
    return host.encode() if host.isascii() else host


class SocketNetwork:
    """The machine's own TCP, on the running event loop."""

    def __init__(self, inherited: Mapping[tuple[str, int], socket.socket] | None = None) -> None:
        """`inherited` are listening sockets by host and port, which `listen` takes from there."""
        self._inherited = inherited or {}

    def connect(
        self, host: str, port: int, done: Callable[[Socket | OSError], None], *, first: int = 0
    ) -> Callable[[], None]:
        import asyncio

        connecting = Connecting(asyncio.get_running_loop(), done, first=first)
        connecting.start(host, port)
        return connecting.cancel

    def run_beside(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        import asyncio

        start_beside(asyncio.get_running_loop(), work, done)

    def listen(
        self, host: str, port: int, accepted: Callable[[AcceptedSocket], None]
    ) -> KernelListener:
        inherited = self._inherited.get((host, port))
        if inherited is not None:
            # A copy is closed with the listener: connections wait in the kernel's queue as long as
            # anybody has the socket.
            listener = KernelListener(inherited.dup(), accepted)
            listener.start()
            return listener
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                _name(host) or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listening = socket.socket(family, kind, protocol)
        except OSError as error:
            raise _listen_error(host, port, error) from error
        try:
            # A broker that restarts finds connections of the last one in TIME_WAIT, which would
            # keep the port for a minute.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.settimeout(0)
            listening.bind(address)
            listening.listen(BACKLOG)
        except OSError as error:
            listening.close()
            raise _listen_error(host, port, error) from error
        listener = KernelListener(listening, accepted)
        listener.start()
        return listener


def without_front(buffers: list[Buffer], size: int) -> list[Buffer]:
    """The rest of the buffers after `size` bytes of them have been sent."""
    for number, buffer in enumerate(buffers):
        if size < len(buffer):
            return [memoryview(buffer)[size:], *buffers[number + 1 :]] if size else buffers[number:]
        size -= len(buffer)
    return []


def _listen_error(host: str, port: int, error: OSError) -> ListenError:
    advice = {
        errno.EADDRINUSE: "another process listens there; choose another port, or 0 for a free one",
        errno.EACCES: "ports below 1024 need more rights; choose a higher one",
        errno.EADDRNOTAVAIL: "this machine has no such address; try 127.0.0.1 or 0.0.0.0",
    }.get(error.errno or 0, "check the address given to --listen")
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return ListenError(f"cannot listen on {host}:{port}: {reason.lower()}: {advice}")
