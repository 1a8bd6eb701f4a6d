"""`LoopCluster`: runs operations on an event loop, over connections that never wait.

    turn     a socket has news, or a deadline has come: connections are polled, waiters look again
    wait     a task waits for the next turn, until its own deadline

Not here: which operations there are; see `operations`. The same for threads is `ClusterReader`.

Invariant: a turn is planned whenever the connections have a deadline.
"""

import asyncio
from contextlib import suppress
from functools import partial
from typing import TypeVar

from tailrace.client.admin.outcomes import ClosedAdminError
from tailrace.client.brokers import explained
from tailrace.client.config import BrokerAddress, ClientConfig, nodes_config
from tailrace.client.errors import UnreachableBrokerError, UnsupportedBrokerError
from tailrace.client.metadata import bootstrap_nodes
from tailrace.client.nodes import (
    Backoff,
    Node,
    NodeError,
    Nodes,
    NodesStatistics,
    RequestOutcome,
    UnsupportedVersionError,
)
from tailrace.client.routes import Routes
from tailrace.client.steps import Ask, Call, Pause, Replies, Reply, Step, Steps, check_version
from tailrace.errors import TailraceError
from tailrace.protocol.apis import api_of
from tailrace.runtime.system import Runtime

T = TypeVar("T")


class LoopCluster:
    """A cluster's connections on the event loop that first asks for something."""

    def __init__(self, config: ClientConfig, outside: Runtime) -> None:
        """Make no connection yet.

        Raises:
            ConfigError: a TLS file cannot be read, or a name or password is not Unicode text.
        """
        self.routes = Routes(bootstrap_nodes(config))
        self.is_closed = False
        self._request_timeout_ms = config.request_timeout_ms
        self._pauses = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, outside.chance)
        self._nodes = Nodes(
            nodes_config(config),
            network=outside.network,
            chance=outside.chance,
            stirred=self._stirred,
        )
        self._turning: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._news: asyncio.Future[None] | None = None

    def call(self, *, limit_ms: int, retries: int) -> Call:
        """The limits of an operation that begins now."""
        clock = asyncio.get_running_loop().time
        return Call(
            routes=self.routes,
            clock=clock,
            deadline=clock() + limit_ms / 1000,
            limit_ms=limit_ms,
            retries=retries,
            pauses=self._pauses,
        )

    async def run(self, steps: Steps[T]) -> T:
        """The result of an operation, whose requests are sent and whose pauses are kept.

        Raises:
            ClosedAdminError: the client was closed meanwhile.
            TailraceError: what the operation raises.
        """
        replies: Replies = ()
        try:
            while True:
                step = steps.send(replies) if replies else next(steps)
                replies = await self._take(step)
                if self.is_closed:
                    raise ClosedAdminError("the admin client was closed during the call")
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()

    def statistics(self) -> NodesStatistics:
        """The connections by node."""
        return self._nodes.statistics()

    def close(self) -> None:
        """Close all connections; calls that wait end with an error. Idempotent."""
        self.is_closed = True
        self._nodes.close()
        for handle in (self._turning, self._timer):
            if handle is not None:
                handle.cancel()
        self._turning = self._timer = None
        self._wake()

    async def _take(self, step: Step) -> Replies:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return ()
        if len(step.asks) == 1:
            return (await self._ask(step.asks[0]),)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._ask(each)) for each in step.asks]
        return tuple(each.result() for each in tasks)

    async def _ask(self, ask: Ask) -> Reply:
        """Send a request when its broker is ready, and wait for its outcome."""
        until = ask.deadline
        try:
            node = await self._ready(ask.node, until)
        except TailraceError as error:
            return Reply(ask.node, error, is_sent=False)
        loop = asyncio.get_running_loop()
        with suppress(UnsupportedVersionError):
            version = self._nodes.version_of(node.id, api_of(type(ask.body)).key)
            mismatch = check_version(ask, node, version)
            if mismatch is not None:
                return Reply(node, mismatch, is_sent=False)
        answered: asyncio.Future[RequestOutcome] = loop.create_future()
        left_ms = max(until - loop.time(), 0.0) * 1000
        self._nodes.send(
            node.id,
            ask.body,
            now=loop.time(),
            done=partial(_settle, answered),
            timeout_ms=int(min(self._request_timeout_ms, left_ms)),
            version_max=ask.last_version,
        )
        self._plan()
        outcome = await answered
        if isinstance(outcome, NodeError):
            failure = explained(outcome, node)
            return Reply(node, failure, is_sent=not isinstance(failure, UnsupportedBrokerError))
        assert outcome is not None, "requests of an admin client have answers"
        return Reply(node, outcome, is_sent=True)

    async def _ready(self, node: Node | None, until: float) -> Node:
        """The node, or any that can be reached, once it takes a request.

        Raises:
            UnreachableBrokerError: it cannot be reached, or not in time.
            AuthenticationError: the login failed, or the broker's identity could not be checked.
        """
        if node is not None:
            await self._connect(node, until)
            return node
        now = asyncio.get_running_loop().time()
        candidates = sorted(
            self.routes.candidates,
            key=lambda each: self._nodes.is_ready(each.id, now),
            reverse=True,
        )
        failures = []
        for each in candidates:
            try:
                await self._connect(each, until)
            except UnreachableBrokerError as error:
                failures.append(error)
            else:
                return each
        if len(failures) == 1:
            raise failures[0]
        raise UnreachableBrokerError(
            "no broker of the list can be reached: " + "; ".join(map(str, failures)),
            address=",".join(each.address for each in failures),
        )

    async def _connect(self, node: Node, until: float) -> None:
        loop = asyncio.get_running_loop()
        before = self._nodes.failure(node.id)
        while True:
            address = str(BrokerAddress(node.host, node.port))
            if self.is_closed:
                raise UnreachableBrokerError(f"{node}: this client was closed", address=address)
            if self._nodes.connect(node, loop.time()):
                return
            failure = self._nodes.failure(node.id)
            if failure is not None and failure is not before:
                raise explained(failure, node)
            if loop.time() >= until:
                raise UnreachableBrokerError(
                    f"{node}: no connection within the time limit", address=address
                )
            await self._turned(until)

    async def _turned(self, until: float) -> None:
        """Wait for the next turn, or until a time of the loop."""
        self._plan()
        loop = asyncio.get_running_loop()
        if self._news is None:
            self._news = loop.create_future()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await asyncio.shield(self._news)

    def _stirred(self) -> None:
        """Take a turn soon; connections call this when they have news."""
        if self._turning is None and not self.is_closed:
            self._turning = asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turning = None
        loop = asyncio.get_running_loop()
        try:
            self._nodes.poll(loop.time())
        finally:
            self._plan()
            self._wake()

    def _plan(self) -> None:
        """Set the timer for the next deadline of the connections."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._nodes.next_deadline()
        if due is not None and not self.is_closed:
            self._timer = asyncio.get_running_loop().call_at(due, self._stirred)

    def _wake(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)


def _settle(answered: asyncio.Future[RequestOutcome], outcome: RequestOutcome) -> None:
    if not answered.done():
        answered.set_result(outcome)
