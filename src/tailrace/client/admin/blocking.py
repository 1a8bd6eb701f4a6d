"""`Admin`: administers a Kafka cluster from threads.

    with Admin(bootstrap_servers="localhost:9092") as admin:
        admin.create_topics([NewTopic("flights", 6)]).results()

Nothing runs in the background: connections are served while a call waits.
"""

import threading
from collections.abc import Callable, Mapping
from copy import copy
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from tailrace.client.admin.config import AdminConfig, parse_admin_config
from tailrace.client.admin.operations import Operations
from tailrace.client.errors import ClosedAdminError
from tailrace.client.metadata import ClusterReader
from tailrace.client.nodes import NodesStatistics
from tailrace.client.steps import Call, Steps

P = ParamSpec("P")
T = TypeVar("T")


class _Shared:
    """The connections of a client, and of those that differ from it in the time limit."""

    def __init__(self, config: AdminConfig) -> None:
        self.reader = ClusterReader(config)
        self.retries = config.retries
        self.lock = threading.Lock()
        self.is_closed = False


class Admin(Operations):
    """Administers a Kafka cluster; threads may share it, and their calls go one after the other.

    Settings are Kafka's: `Admin({"bootstrap.servers": "localhost:9092"})`, or as keywords with
    underscores. It connects with the first call, not here.

    Operations about several items return `Outcomes`: a mapping from each item to its result or its
    error, whose `results()` raises. Each call ends within `default.api.timeout.ms`; a retriable
    error is retried until then, item by item. Changes that cannot be repeated are sent once, and an
    item whose answer was lost has an `UnknownOutcomeError`.

    Raises:
        ConfigError: unknown or contradictory settings, all of them at once.
        TypeError: `settings` is no mapping of names to values.
    """

    def __init__(
        self, settings: Mapping[str, object] | None = None, **more_settings: object
    ) -> None:
        config = parse_admin_config(settings, more_settings)
        self._shared = _Shared(config)
        self._limit_ms = config.default_api_timeout_ms

    def within(self, timeout_ms: int) -> "Admin":
        """The same client with another time limit for each call.

            admin.within(5_000).describe_cluster()

        It shares connections with this one, and ends with it.
        """
        other = copy(self)
        other._limit_ms = timeout_ms
        return other

    def run(
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
        shared = self._shared
        with shared.lock:
            if shared.is_closed:
                raise ClosedAdminError("the admin client is closed; make another one")
            call = shared.reader.call(limit_ms=self._limit_ms, retries=shared.retries)
            return shared.reader.run(operation(call, *arguments, **options))

    def statistics(self) -> NodesStatistics:
        """The connections by node; none before the first call."""
        return self._shared.reader.statistics()

    def close(self) -> None:
        """Close all connections, after the call that is under way; idempotent."""
        shared = self._shared
        with shared.lock:
            shared.reader.close()
            shared.is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
