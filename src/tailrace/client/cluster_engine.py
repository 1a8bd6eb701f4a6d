"""`ClusterEngine`: the connections of a reader or an admin client, without I/O.

Not here: who waits for them (`drive`), and what is asked (`admin`, `reader`).
"""

import random
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from math import inf

from tailrace.client.calls import Call, send
from tailrace.client.config import ClientConfig
from tailrace.client.drive.locks import renew
from tailrace.client.errors import ClosedAdminError
from tailrace.client.nodes import Backoff, ConnectionPool, Node
from tailrace.client.nodes.versions import VERSION_LIMITS
from tailrace.client.routes import Routes
from tailrace.client.security import Security
from tailrace.runtime.network import Connector


class ClusterEngine:
    """The state of one client; see `drive.engine.Engine` and `calls.Connections`."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        kind: str,
        network: Connector,
        chance: random.Random,
        clock: Callable[[], float],
        wake: Callable[[], None],
        readable: Callable[[], None] | None = None,
        version_limits: Mapping[int, int] = VERSION_LIMITS,
        security: Security | None = None,
        routes: Routes | None = None,
    ) -> None:
        """Make no connection yet; `routes` are those of an engine before this one.

        `readable` is as of `ConnectionPool`.

        Raises:
            ConfigError: a TLS file cannot be read, or a name or password is not Unicode text.
        """
        self.kind = kind
        self.client_id = config.client_id
        # Reentrant, so that a signal handler that calls the client gets an error and no deadlock.
        self.lock = threading.RLock()
        self.calls: deque[Callable[[], None]] = deque()
        self.clock = clock
        self.request_timeout_ms = config.request_timeout_ms
        self.routes = routes or Routes(bootstrap_nodes(config))
        self.nodes = ConnectionPool(
            config,
            network=network,
            chance=chance,
            wake=wake,
            readable=readable,
            version_limits=version_limits,
            security=security,
            candidates=self.candidates,
        )
        self.is_closed = False
        self.is_done_by_one_poll = True
        self._pauses = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, chance)

    def call(self, *, limit_ms: int, retries: int) -> Call:
        """The limits of an operation that begins now."""
        return Call(
            routes=self.routes,
            send=partial(send, self),
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
            raise ClosedAdminError(f"the {self.kind} client was closed during the call")

    def poll(self, now: float) -> None:
        self.nodes.poll(now)

    def next_deadline(self, now: float) -> float:  # noqa: ARG002
        """The time of the next `poll`, if no socket has news before."""
        due = self.nodes.next_deadline()
        return inf if due is None else due

    def should_move(self) -> bool:
        """Return False: a call has sent all when it ends."""
        return False

    def abandoned(self, now: float) -> bool:  # noqa: ARG002
        """End at once: nobody waits for an answer."""
        return True

    def end_close(self) -> None:
        """Close all connections; calls that wait end with an error."""
        self.is_closed = True
        # After the flag, so that calls which the closing wakes see a closed client.
        self.nodes.close()

    def give_up(self, error: BaseException) -> None:  # noqa: ARG002
        """Close after an interrupted step has left the state unknown."""
        self.end_close()

    def forked(self) -> None:
        """Refuse calls in a forked child, which shares the parent's sockets."""
        # Another thread of the parent may have held it at the fork, and does not exist here.
        renew(self.lock)
        self.is_closed = True

    def reentrant_error(self) -> ClosedAdminError:
        """The error of a call by a signal handler that has interrupted another call."""
        return ClosedAdminError("this thread is in the middle of another call of this client")


def bootstrap_nodes(config: ClientConfig) -> list[Node]:
    """The brokers of `bootstrap.servers`, with ids from -1 downwards."""
    # Below 0, since the numbers of brokers begin at 0; Kafka's clients do the same.
    return [Node(-n, *each) for n, each in enumerate(config.bootstrap_servers, 1)]
