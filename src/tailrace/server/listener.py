"""The listening ports of a broker, and their connections.

Ports have answers of their own, since an address in an answer is that of the port on which the
request came. Limits and memory are shared.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.errors import ListenError
from tailrace.model import ANONYMOUS, Principal
from tailrace.runtime.clock import Clock, elapsed_ms
from tailrace.runtime.limited_lines import LimitedLines
from tailrace.runtime.network import AcceptedSocket, Listener, Network
from tailrace.runtime.threads import BoundedThreads, Threads
from tailrace.security.audit import AUDIT
from tailrace.server.connection import Connection
from tailrace.server.dispatch import RequestAnswers
from tailrace.server.memory import ReceiveTurns, RequestMemory
from tailrace.server.quotas import ConnectionLimits, ConnectionQuotas, ConnectionRates
from tailrace.server.sending import DeviceRead, ResponseSender
from tailrace.server.slow_requests import SlowRequests
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.security.authenticator import ListenerLogins
    from tailrace.security.listener_tls import ListenerTls

logger = logging.getLogger(__name__)

SWEEP_S: Final = 5.0
"""Interval of the check for idle connections and closed peers."""

CLOSED_PER_TURN: Final = 20
"""Connections that are checked or closed in one turn of the loop; closing one takes some 100 us."""


IDENTIFIED_S_MAX: Final = 30.0
"""Time for the handshake of TLS and the login, from the accepted connection on. In Kafka only
`connections.max.idle.ms` ends those that were begun and left, and each byte prolongs them."""

HANDSHAKES_AT_ONCE: Final = 2
"""Most threads that work on handshakes: they share the cores with requests."""

THROTTLED_MAX: Final = 1000
"""Most refused connections that wait for their end: each takes a descriptor."""


class PortSecurity(NamedTuple):
    """Encryption and logins of a port."""

    tls: "ListenerTls | None" = None
    """Its certificate and rules; None: connections are not encrypted."""
    login: "ListenerLogins | None" = None
    """The logins of its clients; None: they do not log in."""


class Port(NamedTuple):
    """A port to listen on."""

    name: str
    """Name of the listener, in Kafka's sense."""
    host: str
    number: int
    """0: any free one."""
    answers: RequestAnswers
    security: PortSecurity = PortSecurity()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatistics:
    """Connections and memory of a server at one moment."""

    connection_count: int
    """Open connections."""
    connections: Mapping[str, int]
    """Open connections by the name of their listener; read only."""
    accepted: Mapping[str, int]
    """Connections that were accepted since the start, likewise."""
    buffered_bytes: int
    """Memory for requests that are not completely received."""
    claimed_bytes: int
    """Memory that large requests hold or have reserved (`queued.max.request.bytes`)."""


@dataclass(slots=True, eq=False)
class _Delayed:
    """A connection that is accepted when it is due, and there is room."""

    port: Port
    socket: AcceptedSocket
    timer: asyncio.TimerHandle
    is_due: bool = False


class Server:
    """Accepts connections from `start` on, and owns them until they end."""

    def __init__(
        self,
        network: Network,
        ports: Sequence[Port],
        *,
        read_from_device: DeviceRead,
        frame_bytes_max: int,
        idle_ms_max: int,
        memory_bytes_max: int,
        limits: ConnectionLimits,
        rates: ConnectionRates,
        clock: Clock,
        threads: Threads,
        slow_request_ms: int = -1,
    ) -> None:
        """`slow_request_ms` is the time after which a request is logged; below 0: none is."""
        self._network = network
        self._ports = {each.name: each for each in ports}
        self._sending = ResponseSender(read_from_device)
        self._frame_bytes_max = frame_bytes_max
        self._idle_s_max = idle_ms_max / 1000
        self._connections: dict[Connection, str] = {}
        """Open connections, with the names of their listeners."""
        self._memory = RequestMemory(memory_bytes_max)
        self._turns = ReceiveTurns()
        self._quotas = ConnectionQuotas(limits)
        self._rates = rates
        self._clock = clock
        self._handshakes = BoundedThreads(threads, HANDSHAKES_AT_ONCE)
        self._delayed: dict[str, _Delayed] = {}
        """A connection of each listener that is accepted later, as those in the kernel's queue."""
        self._delayed_counts: Counter[str] = Counter()
        """Connections that came too fast, by listener, since the last check."""
        self._throttled: dict[AcceptedSocket, asyncio.Handle] = {}
        """Connections that are refused, until they are closed."""
        self._lost: list[Connection] = []
        """Connections whose clients have closed; to be closed here."""
        self._lines = LimitedLines()
        self._slow = SlowRequests(slow_request_ms, self._lines)
        self._accepted_counts: Counter[str] = Counter()
        """Connections since the start, by listener."""
        self._listeners: dict[str, Listener] = {}
        """The open ports by name; empty before `open` and `start`."""
        self._sweeping: asyncio.Handle | None = None
        self._is_closed = False

    def open(self) -> None:
        """Open the ports; connections are accepted from `start` on, and wait until then.

        Raises:
            ListenError: an address cannot be used; nothing was opened.
        """
        self._listen()
        for listener in self._listeners.values():
            listener.pause()

    def start(self) -> None:
        """Accept connections, on the running event loop; opens the ports first if they are not.

        Raises:
            ListenError: as `open`.
        """
        if self._listeners:
            self._accept_if_there_is_room()
        else:
            self._listen()
        self._sweeping = self._sweep_later()

    def _listen(self) -> None:
        for port in self._ports.values():
            try:
                self._listen_on(port)
            except ListenError:
                for listener in self._listeners.values():
                    listener.close()
                self._listeners.clear()
                raise

    def _listen_on(self, port: Port) -> None:
        accepted = partial(self._accepted, port)
        self._listeners[port.name] = self._network.listen(port.host, port.number, accepted)

    def check_port(self, host: str, number: int) -> None:
        """Check that a port could be added.

        Raises:
            ListenError: the address cannot be used.
        """
        self._network.listen(host, number, lambda accepted: accepted.close()).close()

    def add_port(self, port: Port) -> None:
        """Listen on one more port, and accept its connections; after `start`.

        Raises:
            ListenError: the address cannot be used, or the server is closed.
        """
        if self._is_closed:
            raise ListenError(f"cannot listen on {port.host}:{port.number}: the broker stops")
        self._listen_on(port)
        self._ports[port.name] = port
        self._accept_if_there_is_room()

    def remove_port(self, name: str) -> None:
        """Listen on a port no more, and end its connections, some in each turn of the loop."""
        del self._ports[name]
        self._listeners.pop(name).close()
        delayed = self._delayed.pop(name, None)
        if delayed is not None:
            delayed.timer.cancel()
            delayed.socket.close()
        for connection, own in self._connections.items():
            if own == name:
                self._close_later(connection)

    def address_of(self, name: str) -> tuple[str, int]:
        """Host and port in use of an open port, also if port 0 was given."""
        listener = self._listeners[name]
        return listener.host, listener.port

    def statistics(self) -> ServerStatistics:
        """Connections and memory right now."""
        return ServerStatistics(
            connection_count=len(self._connections),
            connections=MappingProxyType(
                {name: self._quotas.by_listener.get(name, 0) for name in self._ports}
            ),
            accepted=MappingProxyType({name: self._accepted_counts[name] for name in self._ports}),
            buffered_bytes=sum(connection.requests.held_bytes for connection in self._connections),
            claimed_bytes=self._memory.held_bytes,
        )

    def limit(self, limits: ConnectionLimits) -> None:
        """Use other limits from now on; connections above them stay."""
        self._quotas.limit(limits)
        self._rates.limit(limits)
        self._accept_if_there_is_room()

    def _accept_if_there_is_room(self) -> None:
        # The kernel's queue keeps those that come meanwhile, as in Kafka.
        for name, listener in self._listeners.items():
            delayed = self._delayed.get(name)
            if self._quotas.is_full(name) or (delayed is not None and not delayed.is_due):
                listener.pause()
                continue
            if delayed is not None:
                del self._delayed[name]
                self._admit(delayed.port, delayed.socket)
            if not self._quotas.is_full(name):
                listener.resume()

    def _pause_if_full(self) -> None:
        for name, listener in self._listeners.items():
            if self._quotas.is_full(name):
                listener.pause()

    def _close_oldest(self) -> None:
        """End the connection of a client that has been silent for the longest time."""
        # As in Kafka: other brokers are let in above the limit, which clients make room for.
        preferred = self._quotas.preferred
        of_clients = [each for each, name in self._connections.items() if name != preferred]
        if of_clients:
            oldest = max(of_clients, key=lambda each: each.idle_s)
            self._lines.log(
                logger, logging.INFO, "connection_replaced peer=%s reason=max.connections",
                peer=oldest.peer,
            )  # fmt: skip
            oldest.close()

    def close(self) -> None:
        """Accept no more and end every connection; does nothing before `start`."""
        self._is_closed = True
        for listener in self._listeners.values():
            listener.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for delayed in self._delayed.values():
            delayed.timer.cancel()
            delayed.socket.close()
        self._delayed.clear()
        for socket in tuple(self._throttled):
            self._close_throttled(socket)
        for connection in tuple(self._connections):
            connection.close()
        self._lines.close()

    def _sweep_later(self) -> asyncio.Handle:
        delay_s = min(self._idle_s_max / 2, SWEEP_S)
        return asyncio.get_running_loop().call_later(delay_s, self._sweep)

    def _sweep(self) -> None:
        """End idle connections, and those whose peer has closed."""
        for name, count in self._delayed_counts.items():
            logger.info(
                "connections_delayed listener=%s count=%d limit=max.connection.creation.rate",
                name, count,
            )  # fmt: skip
        self._delayed_counts.clear()
        self._sweep_some(list(self._connections))

    def _sweep_some(self, left: list[Connection]) -> None:
        """Check some connections, and the others in the next turns of the loop."""
        for connection in left[:CLOSED_PER_TURN]:
            if connection not in self._connections:
                continue
            idle_s_max = self._idle_s_max
            if not connection.is_identified:
                idle_s_max = min(idle_s_max, IDENTIFIED_S_MAX)
            if connection.idle_s >= idle_s_max:
                connection.end_idle()
            elif connection.has_lost_peer():
                logger.debug("connection_lost peer=%s reason=closed", connection.peer)
                connection.close()
            elif connection.idle_s >= SWEEP_S:
                connection.requests.release_empty()
        del left[:CLOSED_PER_TURN]
        if left:
            self._sweeping = asyncio.get_running_loop().call_soon(self._sweep_some, left)
        else:
            self._sweeping = self._sweep_later()

    def _close_later(self, connection: Connection) -> None:
        """Close it in a later turn: a client that ends may have held thousands."""
        if not self._lost:
            asyncio.get_running_loop().call_soon(self._close_some)
        self._lost.append(connection)

    def _close_some(self) -> None:
        for connection in self._lost[:CLOSED_PER_TURN]:
            connection.close()
        del self._lost[:CLOSED_PER_TURN]
        if self._lost:
            asyncio.get_running_loop().call_soon(self._close_some)

    def _accepted(self, port: Port, socket: AcceptedSocket) -> None:
        delay_ms = self._rates.accept_delay_ms(port.name, elapsed_ms(self._clock))
        if not delay_ms:
            self._admit(port, socket)
            return

        def due() -> None:
            delayed.is_due = True
            self._accept_if_there_is_room()

        timer = asyncio.get_running_loop().call_later(delay_ms / 1000, due)
        delayed = self._delayed[port.name] = _Delayed(port, socket, timer)
        self._delayed_counts[port.name] += 1
        self._listeners[port.name].pause()

    def _throttle(self, socket: AcceptedSocket, *, delay_ms: int) -> None:
        """Close a connection of an address that makes too many, so late that it makes fewer."""
        self._lines.log(
            logger, logging.INFO,
            "connection_refused peer=%s reason=connection_creation_rate closed_after_ms=%d",
            delay_ms, peer=socket.peer,
        )  # fmt: skip
        if len(self._throttled) >= THROTTLED_MAX:
            self._close_throttled(next(iter(self._throttled)))
        loop = asyncio.get_running_loop()
        timer = loop.call_later(delay_ms / 1000, self._close_throttled, socket)
        self._throttled[socket] = timer

    def _close_throttled(self, socket: AcceptedSocket) -> None:
        self._throttled.pop(socket).cancel()
        socket.close()

    def _admit(self, port: Port, socket: AcceptedSocket) -> None:
        address = socket.peer.rpartition(":")[0]
        delay_ms = self._rates.close_delay_ms(port.name, address, elapsed_ms(self._clock))
        if delay_ms:
            self._throttle(socket, delay_ms=delay_ms)
            return
        if not self._quotas.take(port.name, address):
            self._lines.log(
                logger, logging.INFO, "connection_refused peer=%s reason=max.connections.per.ip",
                peer=socket.peer,
            )  # fmt: skip
            socket.close()
            return

        def ended(connection: Connection) -> None:
            del self._connections[connection]
            self._quotas.give_back(port.name, address)
            self._accept_if_there_is_room()

        tls = port.security.tls
        if tls is not None:
            # Here, because ssl takes 20 ms to import and most listeners are plain.
            from tailrace.security.accepted import AcceptedTlsSocket

            def secured(principal: Principal) -> None:
                if principal != ANONYMOUS:
                    AUDIT.debug(
                        "login peer=%s listener=%s mechanism=TLS user=%s",
                        connection.peer, port.name, principal.name,
                    )  # fmt: skip
                connection.identify(principal)

            socket = AcceptedTlsSocket(socket, tls, threads=self._handshakes, secured=secured)
        login = None
        if port.security.login is not None:
            # Here, because most brokers have no logins.
            from tailrace.security.authenticator import ConnectionLogin

            login = ConnectionLogin(port.security.login, socket.peer, self._lines)
        connection = Connection(
            socket,
            port.answers,
            listener=port.name,
            sending=self._sending,
            frame_bytes_max=self._frame_bytes_max,
            memory=self._memory,
            turns=self._turns,
            lines=self._lines,
            slow=self._slow,
            on_lost=self._close_later,
            on_close=ended,
            login=login,
            is_identified=tls is None and login is None,
        )
        self._connections[connection] = port.name
        self._accepted_counts[port.name] += 1
        if self._quotas.is_full(port.name):
            self._lines.log(
                logger, logging.WARNING,
                "connections_full peer=%s listener=%s count=%d count_of_all=%d consequence=new "
                "ones wait until one ends limits=max.connections and "
                "listener.name.%s.max.connections",
                port.name, self._quotas.by_listener[port.name], len(self._connections),
                port.name.lower(), peer=socket.peer,
            )  # fmt: skip
        self._pause_if_full()
        if port.name == self._quotas.preferred and self._quotas.is_exceeded:
            self._close_oldest()
        connection.start_reading()
        logger.debug("connection_opened peer=%s", connection.peer)
