"""`Proxy`: forwards frames between clients and a broker on real sockets, and disturbs them.

    with Proxy("127.0.0.1:9092") as proxy:              # clients connect to proxy.address
        proxy.disturb(Direction.ANSWER, Action.HOLD, {ApiKey.END_TXN})
        ...a commit: the broker executes it, its response stays in the proxy...
        proxy.wait_for_disturbed(1, timeout_s=10)
        proxy.heal()                                     # the response is forwarded
        proxy.cut()                                      # all connections end, with a reset

It parses frames, so that rules can select requests and responses of an API; it does not support
TLS. Clients connect to the broker's advertised listeners: advertise the proxy's address, or clients
bypass the proxy after the first Metadata response.

    PASS        the frame is forwarded
    HOLD        it waits until `heal` or another `disturb`, with all later ones of the connection
    BLACK_HOLE  it is dropped, with all later ones of the connection, which stays open
    HALF        half of the frame is forwarded, then the connection is closed
    CUT         the connection is closed with a reset instead

For connections on virtual time see `tailrace.testing.cluster`.

Invariant: bytes of one direction of a connection keep their order.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Collection
from enum import Enum
from typing import Final, NamedTuple, Self, TypeVar

from tailrace.protocol.apis import ApiKey

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER of 0 s: a close sends RST, like a machine that has restarted."""

T = TypeVar("T")


class Direction(Enum):
    """The direction of a frame."""

    REQUEST = "to the broker"
    ANSWER = "to the client"


class Action(Enum):
    """The action on a frame."""

    PASS = "pass"  # noqa: S105 - no password
    HOLD = "hold"
    BLACK_HOLE = "black hole"
    HALF = "half"
    CUT = "cut"


class _Rule(NamedTuple):
    """The frames of a direction that are disturbed, and how."""

    action: Action
    apis: frozenset[int] | None
    is_concerned: Callable[[str], bool] | None
    """Chooses connections by their client ids; None: all."""


class _Connection:
    """One client's connection, and the proxy's connection to the broker for it."""

    def __init__(self, client: asyncio.StreamWriter, broker: asyncio.StreamWriter) -> None:
        self._ends = client, broker
        self._asked: dict[bytes, int] = {}
        """The API of each unanswered request, by correlation id."""
        self.client_id = ""
        """The client id of the latest request."""

    def cut(self) -> None:
        """Reset both connections; unsent bytes are lost."""
        for end in self._ends:
            own = end.get_extra_info("socket")
            if own.fileno() >= 0:  # else the peer was first, and the socket is closed
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.transport.abort()

    def api_of(self, body: bytes, direction: Direction) -> int:
        """The API key of a frame; -1 if it is unknown."""
        if direction is Direction.ANSWER:
            return self._asked.pop(body[:4], -1)
        api = int.from_bytes(body[:2], "big")
        self._asked[body[4:8]] = api
        # Flexible headers have it in the same place and form (KIP-482). -1 is no client id.
        length = int.from_bytes(body[8:10], "big", signed=True)
        self.client_id = body[10 : 10 + max(0, length)].decode(errors="replace")
        return api


class Proxy:
    """A port of 127.0.0.1 that forwards to a broker.

    Its connections run on an event loop in a thread of its own; call its methods on other threads.
    """

    def __init__(self, target: str, *, port: int = 0) -> None:
        """Will forward to `target`, a `host:port`, in a `with` block; port 0 takes any free one.

        A client's connection is closed at once if the target refuses.
        """
        host, _, number = target.rpartition(":")
        self._target = host, int(number)
        self._port = port
        self._listener: socket.socket
        self.address = ""
        """`host:port` in the `with` block, for `bootstrap.servers` and advertised listeners."""
        self._rules: dict[Direction, _Rule] = {}
        self._connections: set[_Connection] = set()
        self._changed = asyncio.Event()
        """Set when the rules change, and then replaced by a new event."""
        self._disturbed_count = 0
        self._disturbed = threading.Condition()
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()
        self._on_loop(lambda: None)
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def disturb(
        self,
        direction: Direction,
        action: Action,
        apis: Collection[ApiKey] | None = None,
        *,
        is_concerned: Callable[[str], bool] | None = None,
    ) -> None:
        """Apply `action` to frames of these APIs, or of all, in one direction from now on.

        `is_concerned` chooses connections by their client ids, which distinguish brokers from
        clients, and from each other. It replaces the previous rule of that direction.
        """
        rule = _Rule(action, None if apis is None else frozenset(map(int, apis)), is_concerned)
        self._on_loop(lambda: self._rules.update({direction: rule}))

    def heal(self) -> None:
        """Remove all rules; held frames are forwarded first."""
        self._on_loop(self._rules.clear)

    def cut(self) -> None:
        """Reset all current connections; held frames are lost."""

        def cut() -> None:
            for each in self._connections:
                each.cut()

        self._on_loop(cut)

    @property
    def disturbed_count(self) -> int:
        """The frames that were disturbed, in total."""
        return self._disturbed_count

    def wait_for_disturbed(self, count: int, *, timeout_s: float) -> bool:
        """Wait until `count` frames in total were disturbed; False after `timeout_s`."""
        with self._disturbed:
            return self._disturbed.wait_for(lambda: self._disturbed_count >= count, timeout_s)

    # -- on the loop --------------------------------------------------------------------------

    def _on_loop(self, change: Callable[[], T]) -> T:
        """Run `change` on the loop, and let held frames check the rules again."""

        async def make() -> T:
            made = change()
            self._changed.set()
            self._changed = asyncio.Event()
            return made

        return asyncio.run_coroutine_threadsafe(make(), self._loop).result()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._accepted, sock=self._listener)
        )
        self._loop.run_forever()
        server.close()
        for each in asyncio.all_tasks(self._loop):
            each.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_broker, to_broker = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        connection = _Connection(writer, to_broker)
        self._connections.add(connection)
        requests = asyncio.create_task(
            self._carry(connection, reader, to_broker, direction=Direction.REQUEST)
        )
        answers = asyncio.create_task(
            self._carry(connection, from_broker, writer, direction=Direction.ANSWER)
        )
        try:
            # If one side closes, close both: clients and brokers do not use half-open connections.
            await asyncio.wait({requests, answers}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._connections.discard(connection)
            for task, end in ((requests, to_broker), (answers, writer)):
                task.cancel()
                end.close()

    async def _carry(
        self,
        connection: _Connection,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        *,
        direction: Direction,
    ) -> None:
        is_swallowed = False
        try:
            while True:
                size = await source.readexactly(4)
                body = await source.readexactly(int.from_bytes(size, "big"))
                api = connection.api_of(body, direction)
                action = await self._action_for(direction, api, connection.client_id)
                is_swallowed |= action is Action.BLACK_HOLE
                if is_swallowed:
                    continue
                if action is Action.PASS:
                    target.write(size + body)
                    await target.drain()
                    continue
                if action is Action.HALF:
                    target.write((size + body)[: (4 + len(body)) // 2])
                    await target.drain()
                    return
                connection.cut()
                return
        except (OSError, asyncio.IncompleteReadError):
            return

    async def _action_for(self, direction: Direction, api: int, client_id: str) -> Action:
        """The action for a frame, after waiting while the rule is HOLD."""
        is_counted = False
        while True:
            rule = self._rules.get(direction)
            if (
                rule is None
                or rule.action is Action.PASS
                or (rule.apis is not None and api not in rule.apis)
                or (rule.is_concerned is not None and not rule.is_concerned(client_id))
            ):
                return Action.PASS
            if not is_counted:
                is_counted = True
                with self._disturbed:
                    self._disturbed_count += 1
                    self._disturbed.notify_all()
            if rule.action is not Action.HOLD:
                return rule.action
            await self._changed.wait()
