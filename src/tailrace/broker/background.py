"""A broker on a thread of its own, for programs without asyncio: `with Broker(...)`."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack

from tailrace.broker.broker import BrokerStatistics, RunningBroker
from tailrace.broker.config import broker_config
from tailrace.broker.start import start_broker
from tailrace.config import settings_texts
from tailrace.errors import kind_of
from tailrace.runtime.loop_thread import LoopThread
from tailrace.runtime.memory import keep_large_buffers
from tailrace.runtime.system import system_runtime

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    from tailrace.broker.keywords import BrokerSettings

UNNAMED = "a temporary directory"
"""`log.dirs` of a broker whose directory is made when it starts; to check its other settings."""


class Broker:
    """A broker in this process that runs until the end of the `with` block.

    Example:
        >>> with Broker(data="my-data") as broker:
        ...     print(broker.bootstrap_servers)
        127.0.0.1:43210

    Settings have Kafka's names, dotted in a mapping or with underscores as keyword arguments; see
    docs/configuration.md: `Broker("my-data", num_partitions=4)`. Without `data` the broker has a
    temporary directory, which is removed when the broker stops. For tests see
    `tailrace.testing.TestBroker`.

    Raises:
        ConfigError: settings that do not exist or are out of range, all of them.
        TypeError: `data` is neither a path nor None, or `settings` is no mapping.

    Raises, on entering:
        DirectoryError: the directory is in use, foreign or unusable.
        ListenError: the address is taken.
    """

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        listen: str = "127.0.0.1:0",
        settings: Mapping[str, object] | None = None,
        **more_settings: "Unpack[BrokerSettings]",
    ) -> None:
        if not isinstance(data, str | Path | None):
            raise TypeError(f"data is {kind_of(data)}; it has to be the path of a directory")
        own = {"log.dirs": UNNAMED if data is None else str(data), "listeners": listen}
        self._texts = settings_texts(settings, more_settings | own)
        self._config = broker_config(self._texts)
        self._is_temporary = data is None
        self._directory: TemporaryDirectory[str] | None = None
        self._running: RunningBroker | None = None
        self._thread: LoopThread | None = None

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for `bootstrap.servers`; the broker must be running."""
        if self._running is None:
            raise RuntimeError("the broker is not running; use it in a with block")
        return self._running.bootstrap_servers

    @property
    def http_address(self) -> str | None:
        """HOST:PORT for metrics and health (`tailrace.http.listener`); None: nobody has asked.

        The broker must be running.
        """
        if self._running is None:
            raise RuntimeError("the broker is not running; use it in a with block")
        return self._running.http_address

    def statistics(self) -> BrokerStatistics:
        """The statistics of all parts of the broker; looks at every segment, group and transaction.

        Raises:
            RuntimeError: the broker is not running.
        """
        running, thread = self._running, self._thread
        if running is None or thread is None:
            raise RuntimeError("the broker is not running; use it in a with block")
        return thread.call(running.statistics)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start, and return when the broker accepts requests."""
        # Of all that `serve` tunes only this: the process is the user's.
        keep_large_buffers()
        config = self._config
        if self._is_temporary:
            from tempfile import TemporaryDirectory  # A broker as a process needs none.

            self._directory = TemporaryDirectory(prefix="tailrace-")
            config = broker_config(self._texts | {"log.dirs": self._directory.name})
        self._thread = LoopThread(asyncio.new_event_loop(), name="tailrace-broker")
        self._thread.start()
        try:
            # A directory that goes with the broker need not reach the device.
            runtime = system_runtime(is_synced=not self._is_temporary)
            self._running = self._thread.run(start_broker(config, runtime))
        except BaseException:
            # The thread and the directory outlive a start that fails, and nobody would stop them.
            self._end()
            raise

    def stop(self) -> None:
        """Stop in order; nothing happens if the broker is not running.

        Raises:
            OSError: the device failed while logs were closed.
        """
        running, self._running = self._running, None
        if running is None or self._thread is None:
            return
        try:
            self._thread.run(running.stop())
        finally:
            self._end()

    def _end(self) -> None:
        thread, self._thread = self._thread, None
        directory, self._directory = self._directory, None
        if thread is not None:
            thread.close()
        if directory is not None:
            directory.cleanup()
