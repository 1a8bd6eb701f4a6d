"""`AsyncAdmin`: administers a Kafka cluster from an event loop, without a thread.

async with AsyncAdmin(bootstrap_servers="localhost:9092") as admin:
    (await admin.create_topics([NewTopic("flights", 6)])).results()
"""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from tailrace.client.admin.config import AdminConfig, parse_admin_config
from tailrace.client.admin.operations import BaseAdmin
from tailrace.client.calls import Call
from tailrace.client.cluster_engine import ClusterEngine
from tailrace.client.drive.loop import LoopDriver
from tailrace.client.drive.operation import AwaitingFace
from tailrace.client.drive.steps import Steps
from tailrace.client.errors import ClosedAdminError
from tailrace.client.nodes import NodesStatistics
from tailrace.runtime.system import Runtime, system_runtime

if TYPE_CHECKING:
    from tailrace.client.keywords import AdminSettings

T = TypeVar("T")


class _Shared:
    """The connections; see `SharedConnections`."""

    def __init__(self, config: AdminConfig, outside: Runtime) -> None:
        self._driver: LoopDriver | None = None
        self._engine = ClusterEngine(
            config,
            kind="admin",
            network=outside.network,
            chance=outside.chance,
            # The loop's own clock, so that deadlines and the loop's timers agree, also in tests.
            clock=lambda: asyncio.get_running_loop().time(),
            wake=self._wake,
        )

    def call(self, *, limit_ms: int, retries: int) -> Call:
        """The limits of an operation that begins now."""
        if self._engine.is_closed:
            raise ClosedAdminError("the admin client is closed; make another one")
        return self._engine.call(limit_ms=limit_ms, retries=retries)

    async def run(self, steps: Steps[T]) -> T:
        """The result of an operation, on the event loop of the first call."""
        if self._driver is None:
            # Not in the constructor, which may run before there is a loop.
            self._driver = LoopDriver()
            self._driver.start(self._engine)
        return await self._driver.run(steps)

    def statistics(self) -> NodesStatistics:
        """The connections by node."""
        return self._engine.nodes.statistics()

    def close(self) -> None:
        """Close all connections; idempotent."""
        with self._engine.lock:
            if self._driver is None:
                self._engine.end_close()
            else:
                self._driver.stop()

    def _wake(self) -> None:
        if self._driver is not None:
            self._driver.wake()


class AsyncAdmin(BaseAdmin, AwaitingFace):
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
        **more_settings: "Unpack[AdminSettings]",
    ) -> None:
        """`runtime` has the seams of the outside world, for tests."""
        config = parse_admin_config(settings, more_settings)
        self._shared = _Shared(config, runtime or system_runtime())
        super().__init__(config, self._shared)

    async def _run(self, steps: Steps[T]) -> T:
        return await self._shared.run(steps)

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
