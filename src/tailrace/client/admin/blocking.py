"""`Admin`: administers a Kafka cluster from threads; `create_topic`: a new topic, without one.

    with Admin(bootstrap_servers="localhost:9092") as admin:
        admin.create_topics([NewTopic("flights", 6)]).results()

Nothing runs in the background: connections are served while a call waits.
"""

import threading
from collections.abc import Mapping
from contextlib import closing
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from tailrace.client.admin.config import AdminConfig, parse_admin_config
from tailrace.client.admin.operations import BaseAdmin
from tailrace.client.admin.topics import NewTopic, create_topics
from tailrace.client.calls import Call
from tailrace.client.drive.operation import BlockingFace
from tailrace.client.drive.steps import Steps
from tailrace.client.errors import ClosedAdminError
from tailrace.client.nodes import NodesStatistics
from tailrace.client.reader import REQUEST_TIMEOUT_MS, ClusterReader
from tailrace.errors import kind_of

if TYPE_CHECKING:
    from tailrace.client.keywords import AdminSettings

T = TypeVar("T")


class _Shared:
    """The connections; see `SharedConnections`."""

    def __init__(self, config: AdminConfig) -> None:
        self._reader = ClusterReader(config)
        self._idle = threading.Condition()
        self._running: list[int] = []
        """The idents of the threads whose calls have not ended."""
        self._is_closed = False

    def call(self, *, limit_ms: int, retries: int) -> Call:
        """The limits of an operation that begins now."""
        if self._is_closed:
            raise ClosedAdminError("the admin client is closed; make another one")
        return self._reader.call(limit_ms=limit_ms, retries=retries)

    def run(self, steps: Steps[T]) -> T:
        """The result of an operation."""
        caller = threading.get_ident()
        with self._idle:
            self._running.append(caller)
        try:
            return self._reader.run(steps)
        finally:
            with self._idle:
                self._running.remove(caller)
                self._idle.notify_all()

    def statistics(self) -> NodesStatistics:
        """The connections by node."""
        return self._reader.statistics()

    def close(self) -> None:
        """Refuse further calls, wait for those under way, and close the connections.

        Raises:
            ClosedAdminError: by a signal handler that has interrupted one of them.
        """
        if threading.get_ident() in self._running:
            raise ClosedAdminError(
                "this thread is in the middle of another call of this client, which close would "
                "wait for; close it when that has ended"
            )
        with self._idle:
            self._is_closed = True
            # A change whose answer is cut off would be one of unknown outcome.
            while self._running:
                self._idle.wait()
        self._reader.close()


class Admin(BaseAdmin, BlockingFace):
    """Administers a Kafka cluster; threads may share it, and their calls run at the same time.

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
        self, settings: Mapping[str, object] | None = None, **more_settings: "Unpack[AdminSettings]"
    ) -> None:
        config = parse_admin_config(settings, more_settings)
        self._shared = _Shared(config)
        super().__init__(config, self._shared)

    def _run(self, steps: Steps[T]) -> T:
        return self._shared.run(steps)

    def close(self) -> None:
        """Close all connections, after the calls that are under way; idempotent.

        Raises:
            ClosedAdminError: called by a signal handler that has interrupted a call of this client,
                which stays open.
        """
        self._shared.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def create_topic(
    bootstrap: str,
    name: str,
    *,
    partition_count: int,
    replication_factor: int = -1,
    settings: Mapping[str, object] | None = None,
    timeout_ms: int = REQUEST_TIMEOUT_MS,
) -> None:
    """Create a topic, with the broker's own replication factor unless one is given.

    `settings` are the topic's. A broker may take `timeout_ms` for it. See
    `Admin.create_topics` for what is sent once.

    Raises:
        ConfigError: `bootstrap` is not a list like `host1:9092,host2:9092`.
        TypeError: `name` is no str, or `settings` no mapping of names to values.
        UnreachableBrokerError: no broker of the list answers.
        RemoteFatalError: the broker refuses: the topic exists, or a setting is wrong.
        RemoteRetriableError: the broker refuses for now; try again later.
        UnknownOutcomeError: the broker got the request and did not answer.
    """
    if not isinstance(name, str):
        raise TypeError(f"name is {kind_of(name)}; it has to be a str")
    topic = NewTopic(name, partition_count, replication_factor, settings)
    with closing(ClusterReader(bootstrap, timeout_ms=timeout_ms)) as cluster:
        cluster.do(create_topics, [topic]).results()
