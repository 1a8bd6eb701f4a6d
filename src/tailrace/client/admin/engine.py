"""`AdminEngine`: the connections of an admin client, without a thread or an event loop."""

import random
import threading
from collections import deque
from collections.abc import Callable

from tailrace.client.config import ClientConfig
from tailrace.client.drive.locks import renew
from tailrace.client.errors import ClosedAdminError
from tailrace.client.metadata import bootstrap_nodes
from tailrace.client.nodes import Backoff, ConnectionPool, Node
from tailrace.client.routes import Routes
from tailrace.client.steps import Call
from tailrace.runtime.network import Connector


class AdminEngine:
    """The state of one admin client; see `drive.engine.Engine` and `asking.Connections`."""

    kind = "admin"

    def __init__(
        self,
        config: ClientConfig,
        *,
        network: Connector,
        chance: random.Random,
        clock: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        """Make no connection yet.

        Raises:
            ConfigError: a TLS file cannot be read, or a name or password is not Unicode text.
        """
        self.client_id = config.client_id
        self.lock = threading.RLock()
        self.calls: deque[Callable[[], None]] = deque()
        self.clock = clock
        self.request_timeout_ms = config.request_timeout_ms
        self.routes = Routes(bootstrap_nodes(config))
        self.nodes = ConnectionPool(config, network=network, chance=chance, wake=wake)
        self.is_closed = False
        self._pauses = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, chance)

    def call(self, *, limit_ms: int, retries: int) -> Call:
        """The limits of an operation that begins now."""
        return Call(
            routes=self.routes,
            clock=self.clock,
            deadline=self.clock() + limit_ms / 1000,
            limit_ms=limit_ms,
            retries=retries,
            pauses=self._pauses,
        )

    def candidates(self) -> list[Node]:
        """The brokers of the bootstrap list, and those that answers have named."""
        return self.routes.candidates

    def check_open(self) -> None:
        """Raise ClosedAdminError if the client was closed during a call."""
        if self.is_closed:
            raise ClosedAdminError("the admin client was closed during the call")

    def poll(self, now: float) -> None:
        """Take in what has arrived."""
        self.nodes.poll(now)

    def next_deadline(self, now: float) -> float:  # noqa: ARG002
        """The time of the next `poll`, if no socket has news before."""
        due = self.nodes.next_deadline()
        return float("inf") if due is None else due

    def should_move(self) -> bool:
        """Return False: a call has sent all when it ends."""
        return False

    def abandoned(self, now: float) -> bool:  # noqa: ARG002
        """End at once: nobody waits for an answer."""
        return True

    def end_close(self) -> None:
        """Close all connections; calls that wait end with an error."""
        self.is_closed = True
        self.nodes.close()

    def give_up(self, error: BaseException) -> None:  # noqa: ARG002
        """Close after an interrupted step has left the state unknown."""
        self.end_close()

    def forked(self) -> None:
        """Refuse calls in a forked child, which shares the parent's sockets."""
        renew(self.lock)
        self.is_closed = True

    def reentrant_error(self) -> ClosedAdminError:
        """The error of a call by a signal handler that has interrupted another call."""
        return ClosedAdminError("this thread is in the middle of another call of this client")
