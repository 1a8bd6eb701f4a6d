"""`AsyncAdmin`: administers a Kafka cluster from an event loop, without a thread.

async with AsyncAdmin(bootstrap_servers="localhost:9092") as admin:
    (await admin.create_topics([NewTopic("flights", 6)])).results()
"""

import asyncio
from collections.abc import Callable, Mapping
from copy import copy
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from tailrace.client.admin.config import AdminConfig, parse_admin_config
from tailrace.client.admin.engine import AdminEngine
from tailrace.client.admin.operations import Operations
from tailrace.client.asking import carry_out
from tailrace.client.drive.loop import LoopDriver
from tailrace.client.errors import ClosedAdminError
from tailrace.client.nodes import NodesStatistics
from tailrace.client.steps import Call, Steps
from tailrace.runtime.system import Runtime, system_runtime

P = ParamSpec("P")
T = TypeVar("T")


class _Shared:
    """The connections of a client, and of those that differ from it in the time limit."""

    def __init__(self, config: AdminConfig, outside: Runtime) -> None:
        self._driver: LoopDriver | None = None
        self.engine = AdminEngine(
            config,
            network=outside.network,
            chance=outside.chance,
            clock=lambda: asyncio.get_running_loop().time(),
            wake=self._wake,
        )

    def driver(self) -> LoopDriver:
        """The driver, on the event loop of the first call."""
        if self._driver is None:
            self._driver = LoopDriver()
            self._driver.start(self.engine)
        return self._driver

    def close(self) -> None:
        """Close all connections; idempotent."""
        with self.engine.lock:
            if self._driver is None:
                self.engine.end_close()
            else:
                self._driver.stop()

    def _wake(self) -> None:
        if self._driver is not None:
            self._driver.wake()


class AsyncAdmin(Operations):
    """Administers a Kafka cluster from one event loop; its calls may run at the same time.

    The same as `Admin`, except that each operation and `close()` are awaited. A call that is
    cancelled leaves its request to the broker: a change may still be made.

    Raises:
        ConfigError: unknown or contradictory settings, all of them at once.
        TypeError: `settings` is no mapping of names to values.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        runtime: Runtime | None = None,
        **more_settings: object,
    ) -> None:
        """`runtime` has the seams of the outside world, for tests."""
        config = parse_admin_config(settings, more_settings)
        self._shared = _Shared(config, runtime or system_runtime())
        self._retries = config.retries
        self._limit_ms = config.default_api_timeout_ms

    def within(self, timeout_ms: int) -> "AsyncAdmin":
        """The same client with another time limit for each call; see `Admin.within`."""
        other = copy(self)
        other._limit_ms = timeout_ms
        return other

    async def run(
        self,
        operation: Callable[Concatenate[Call, P], Steps[T]],
        /,
        *arguments: P.args,
        **options: P.kwargs,
    ) -> T:
        """The result of an operation; the methods of this class call it.

        Raises:
            ClosedAdminError: the client was closed.
            TailraceError: what the operation raises.
        """
        engine = self._shared.engine
        if engine.is_closed:
            raise ClosedAdminError("the admin client is closed; make another one")
        call = engine.call(limit_ms=self._limit_ms, retries=self._retries)
        steps = carry_out(operation(call, *arguments, **options), engine)
        return await self._shared.driver().run(steps)

    def statistics(self) -> NodesStatistics:
        """The connections by node; none before the first call."""
        return self._shared.engine.nodes.statistics()

    async def close(self) -> None:
        """Close all connections; calls that wait end with an error. Idempotent."""
        self._shared.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
