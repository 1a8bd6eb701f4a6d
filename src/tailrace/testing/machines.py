"""The machines of a simulated cluster: processes, disks, clocks, and the links between them.

    Link       the connections between two nodes: held, half held, cut
    Machine    the disk and the clock of a broker or a controller, which outlive its processes

Invariant: bytes of a connection keep their order, as on a real network, and what a process has
written is there after a kill. Only a loss of power takes what was not synced.
"""

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, Generic, Protocol, TypeVar

from tailrace.broker.config import BrokerConfig, broker_config
from tailrace.errors import TailraceError
from tailrace.runtime.network import AcceptedSocket, Socket
from tailrace.runtime.system import Runtime
from tailrace.testing.clock import VirtualClock
from tailrace.testing.files import DiskFault, MemoryFiles, ProcessKilledError
from tailrace.testing.network import MemoryListener, MemoryNetwork, MemorySocket
from tailrace.testing.outside import InlineThreads

CONTROLLER: Final = 100
CLIENTS: Final = 200
"""With `CONTROLLER` the nodes that are no brokers."""
FIRST_PORT: Final = 30_000
"""A node listens on this port and its id."""


class RunningNode(Protocol):
    """A process: a `RunningBroker` or a `RunningController`."""

    @property
    def failed(self) -> asyncio.Event:
        """Set when it cannot continue."""
        ...

    async def stop(self) -> None:
        """Stop in order."""
        ...

    def kill(self) -> None:
        """End as a killed process does."""
        ...


N = TypeVar("N", bound=RunningNode)


class Link:
    """The connections between two nodes, in whichever direction they were opened."""

    def __init__(self, one: int, other: int) -> None:
        self.silent: frozenset[int] = frozenset()
        """The nodes whose bytes do not arrive at the other."""
        self._nodes = (one, other)
        self._opened: list[tuple[int, MemorySocket]] = []

    def add(self, opener: int, socket: MemorySocket) -> None:
        """A connection that a node has opened."""
        self._opened.append((opener, socket))
        self._apply()

    def hold(self, senders: Iterable[int] | None = None) -> None:
        """Let nothing through from now on, of both nodes or of one; nobody notices."""
        self.silent |= frozenset(self._nodes if senders is None else senders)
        self._apply()

    def release(self) -> None:
        """Let through what was held, and all that comes."""
        self.silent = frozenset()
        for opener, socket in self._opened:
            # A client that has closed meanwhile gives up what it has sent. Else a commit of offsets
            # that was repeated since would come once more, hours later, and nobody could tell.
            if opener == CLIENTS and socket._is_closed and socket._held:
                del socket._held[:-1]
        self._apply()

    def cut(self) -> None:
        """Break every connection; both ends notice, and may connect again."""
        for _, socket in self._opened:
            socket.cut()
        self._opened.clear()

    def _apply(self) -> None:
        one, other = self._nodes
        for opener, socket in self._opened:
            ends = {opener: socket, (other if opener == one else one): socket._other}
            for node, end in ends.items():
                if end is not None and node in self.silent:
                    end.hold()
                elif end is not None and end._held is not None:
                    end.release()


class ProcessNetwork:
    """The network as one process has it, until it is killed."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network
        self._listeners: list[MemoryListener] = []
        self._sockets: list[MemorySocket] = []
        self._is_gone = False

    def listen(
        self, host: str, port: int, accepted: Callable[[AcceptedSocket], None]
    ) -> MemoryListener:
        """Open a port of this process."""

        def came(found: AcceptedSocket) -> None:
            assert isinstance(found, MemorySocket)
            self._sockets.append(found)
            accepted(found)

        self._listeners.append(self._network.listen(host, port, came))
        return self._listeners[-1]

    def connect(
        self, host: str, port: int, done: Callable[[Socket | OSError], None], *, first: int = 0
    ) -> Callable[[], None]:
        """Connect to another process."""
        if self._is_gone:
            return lambda: None

        def opened(found: Socket | OSError) -> None:
            if isinstance(found, MemorySocket):
                self._sockets.append(found)
            done(found)

        return self._network.connect(host, port, opened, first=first)

    def run_beside(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Work on the network of all."""
        self._network.run_beside(work, done)

    def go(self) -> None:
        """End as the network of a process that is killed: nothing reaches it, or comes from it."""
        self._is_gone = True
        for listener in self._listeners:
            listener.close()
        for each in self._sockets:
            each.watch_reads(None)
            each.watch_writes(None)
            each.cut()


class NodeNetwork(ProcessNetwork):
    """The network of a process whose links are known: who it talks with is known by ports."""

    def __init__(
        self,
        network: MemoryNetwork,
        node: int,
        *,
        controller_id: int,
        link: Callable[[int, int], Link],
        delay: Callable[[], float],
    ) -> None:
        """`link` finds the connections of two nodes; `delay` is asked for each new connection.

        `controller_id` is the node that has the controller, with a port of its own.
        """
        super().__init__(network)
        self._node = node
        self._controller_id = controller_id
        self._link = link
        self._delay = delay

    def connect(
        self, host: str, port: int, done: Callable[[Socket | OSError], None], *, first: int = 0
    ) -> Callable[[], None]:
        """Connect to another node, unless nothing gets through to it."""
        node = port - FIRST_PORT
        # A controller with a script listens on a port that the network has chosen.
        other = node if 0 < node < CONTROLLER else self._controller_id
        if other == self._node:
            # A coordinator asks a leader that is itself: no fault is between them.
            return super().connect(host, port, done, first=first)
        link = self._link(self._node, other)
        if link.silent:
            return lambda: None

        def opened(found: Socket | OSError) -> None:
            if isinstance(found, MemorySocket):
                # Each way for itself, so that what is sent first on one connection may come last.
                found.delay_s = self._delay()
                if found._other is not None:
                    found._other.delay_s = self._delay()
                link.add(self._node, found)
            done(found)

        return super().connect(host, port, opened, first=first)


class MachineClock:
    """A machine's time of day, which may be set; durations are those of all."""

    def __init__(self, clock: VirtualClock) -> None:
        self.ahead_ms = 0
        """Milliseconds by which it is ahead of the true time."""
        self._clock = clock

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, as this machine believes."""
        return self._clock.now_ms() + self.ahead_ms

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary moment."""
        return self._clock.monotonic_s()

    def pause(self, seconds: float) -> None:
        """Let time pass, for all machines."""
        self._clock.pause(seconds)


class Machine(Generic[N]):
    """One node's machine: its disk outlives its processes."""

    def __init__(
        self,
        settings: Mapping[str, str],
        start_node: Callable[[BrokerConfig, Runtime], Awaitable[N]],
        *,
        clock: VirtualClock,
        network: NodeNetwork,
        chance: random.Random,
        note: Callable[[str], None],
    ) -> None:
        self.running: N | None = None
        """The process, from the end of its start."""
        self.files = MemoryFiles()
        self.clock = MachineClock(clock)
        self.threads = InlineThreads()
        self._config = broker_config(settings)
        self._name = "the controller" if self._config.controller_listener else "a broker"
        self._start_node = start_node
        self._note = note
        self._network = network
        self._chance = chance
        self._changing: asyncio.Task[None] | None = None
        self._crash_loses_power = False

    @property
    def is_serving(self) -> bool:
        """Whether its process has started, does not stop, and can write."""
        return (
            self.running is not None
            and self._changing is None
            and not self.running.failed.is_set()
            and not self.is_full
        )

    @property
    def is_full(self) -> bool:
        """Whether its disk takes no more bytes."""
        return bool(self.files.faults)

    def start(self) -> None:
        """Begin to start a process, if there is none that works."""
        if self._changing is None and (self.running is None or self.running.failed.is_set()):
            self._changing = asyncio.ensure_future(self._start())

    async def _start(self) -> None:
        runtime = Runtime(
            clock=self.clock,
            files=self.files,
            network=self._network,
            threads=self.threads,
            chance=random.Random(self._chance.getrandbits(64)),
        )
        try:
            if self.running is not None:
                # It has lost its directory, and an operator starts it again.
                node, self.running = self.running, None
                with suppress(OSError):
                    await node.stop()
            # Controllers that cannot be reached and a full disk end a start; he tries again.
            try:
                self.running = await self._start_node(self._config, runtime)
            except (TailraceError, OSError) as error:
                self._note(f"{self._name} does not start: {error}")
            if self.running is not None and self._is_killed:
                # In a task beside the start, which did not notice.
                self.running.kill()
                self.running = None
                self._lose(loses_power=self._crash_loses_power)
        except ProcessKilledError as error:
            self._note(f"{self._name} is killed in its start: {error}")
            self._lose(loses_power=self._crash_loses_power)
        finally:
            self._changing = None

    def stop(self) -> None:
        """Begin to stop the process in order."""
        if self.running is not None and self._changing is None:
            self._changing = asyncio.ensure_future(self._stop())

    async def _stop(self) -> None:
        assert self.running is not None
        try:
            with suppress(OSError):
                await self.running.stop()
        except ProcessKilledError as error:
            self._note(f"{self._name} is killed in its stop: {error}")
            self.running.kill()
            self._lose(loses_power=self._crash_loses_power)
        finally:
            # A process that is killed in a task beside its stop may have another one by now.
            if self._changing is asyncio.current_task():
                self.running = self._changing = None

    def give_up(self) -> None:
        """End a start or a stop that has not come to its end."""
        if self._changing is not None:
            self._changing.cancel()

    async def rest(self) -> None:
        """Wait until it has started or stopped."""
        if self._changing is not None:
            await asyncio.gather(self._changing, return_exceptions=True)

    def kill(self, *, loses_power: bool) -> None:
        """End the process; with the power, what was not synced may be lost."""
        if self.running is None or self._changing is not None:
            return
        self.running.kill()
        self.running = None
        self._lose(loses_power=loses_power)

    def _lose(self, *, loses_power: bool) -> None:
        chance = random.Random(self._chance.getrandbits(64))
        faults = self.files.faults
        self.files = self.files.crash(keep_unsynced=not loses_power, chance=chance)
        self.files.faults = faults

    def crash_at_change(self, number: int, *, loses_power: bool) -> None:
        """Kill the process in the change of its disk with this number, counted from now on."""
        files, loop = self.files, asyncio.get_running_loop()
        stop_at = len(files.operations) + number

        def called(operation: str, path: str) -> None:
            if len(files.operations) == stop_at + 1:
                self._note(f"{self._name} is killed in {operation} {path}")
                # In the next turn: this one is inside of the call, which ends by an exception.
                loop.call_soon(self._crash, files)

        files.stop_at, files.on_call = stop_at, called
        files.stop_partial_bytes = self._chance.choice([0, 1, 30, 1000])
        self._crash_loses_power = loses_power

    @property
    def _is_killed(self) -> bool:
        """Whether the change of the disk that kills the process has come."""
        files = self.files
        return files.stop_at is not None and len(files.operations) > files.stop_at

    def _crash(self, files: MemoryFiles) -> None:
        if self.files is not files:
            return
        if self.running is not None and self._changing is not None:
            # It stops, and would go on with that when the disk kills nobody any more.
            self._changing.cancel()
            self._changing = None
        self.kill(loses_power=self._crash_loses_power)

    def crash_no_more(self) -> None:
        """Let no change of the disk kill the process any more."""
        self.files.stop_at = self.files.on_call = None

    def fill(self) -> None:
        """Let the disk take no more bytes, wherever they belong."""
        partial = self._chance.choice([0, 10, 1000])
        self.files.faults = [
            DiskFault(operation="write", error=errno.ENOSPC, partial_bytes=partial),
            DiskFault(operation="open", error=errno.ENOSPC),
        ]

    def make_room(self) -> None:
        """Let the disk take bytes again."""
        self.files.faults = []
