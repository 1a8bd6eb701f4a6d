"""`AsyncAdmin`: administers a Kafka cluster from an event loop, without a thread.

async with AsyncAdmin(bootstrap_servers="localhost:9092") as admin:
    (await admin.create_topics([NewTopic("flights", 6)])).results()
"""

from collections.abc import Callable, Mapping
from copy import copy
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from tailrace.client.admin.config import parse_admin_config
from tailrace.client.admin.loop_cluster import LoopCluster
from tailrace.client.admin.operations import Operations
from tailrace.client.admin.outcomes import ClosedAdminError
from tailrace.client.nodes import NodesStatistics
from tailrace.client.steps import Call, Steps
from tailrace.runtime.system import Runtime, system_runtime

P = ParamSpec("P")
T = TypeVar("T")


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
        self._cluster = LoopCluster(config, runtime or system_runtime())
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
        if self._cluster.is_closed:
            raise ClosedAdminError("the admin client is closed; make another one")
        call = self._cluster.call(limit_ms=self._limit_ms, retries=self._retries)
        return await self._cluster.run(operation(call, *arguments, **options))

    def statistics(self) -> NodesStatistics:
        """The connections by node; none before the first call."""
        return self._cluster.statistics()

    async def close(self) -> None:
        """Close all connections; calls that wait end with an error. Idempotent."""
        self._cluster.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
