"""A broker on a thread of its own, for programs without asyncio: `with Broker(...)`."""

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tailrace.broker.broker import BrokerStatistics, RunningBroker, start_broker
from tailrace.broker.config import broker_config
from tailrace.config import settings_texts
from tailrace.errors import kind_of
from tailrace.runtime.memory import keep_large_buffers
from tailrace.runtime.system import system_runtime


class Broker:
    """A broker in this process that runs until the end of the `with` block.

    Example:
        >>> with Broker(data="my-data") as broker:
        ...     print(broker.bootstrap_servers)
        127.0.0.1:43210

    Settings have Kafka's names, dotted in a mapping or with underscores as keyword arguments; see
    docs/configuration.md: `Broker("my-data", num_partitions=4)`.

    Raises:
        ConfigError: settings that do not exist or are out of range, all of them.
        TypeError: `data` is no path, or `settings` no mapping.

    Raises, on entering:
        DirectoryError: the directory is in use, foreign or unusable.
        ListenError: the address is taken.
    """

    def __init__(
        self,
        data: str | Path,
        *,
        listen: str = "127.0.0.1:0",
        settings: Mapping[str, object] | None = None,
        **more_settings: object,
    ) -> None:
        if not isinstance(data, str | Path):
            raise TypeError(f"data is {kind_of(data)}; it has to be the path of a directory")
        own = {"log.dirs": str(data), "listeners": listen}
        self._config = broker_config(settings_texts(settings, more_settings | own))
        self._running: RunningBroker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for `bootstrap.servers`; the broker must be running."""
        if self._running is None:
            raise RuntimeError("the broker is not running; use it in a with block")
        return self._running.bootstrap_servers

    def statistics(self) -> BrokerStatistics:
        """The statistics of all parts of the broker; looks at every segment of every log.

        Raises:
            RuntimeError: the broker is not running.
        """
        running, loop = self._running, self._loop
        if running is None or loop is None:
            raise RuntimeError("the broker is not running; use it in a with block")

        async def look() -> BrokerStatistics:
            return running.statistics()

        return asyncio.run_coroutine_threadsafe(look(), loop).result()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start, and return when the broker accepts requests."""
        keep_large_buffers()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="tailrace-broker", daemon=True
        )
        self._thread.start()
        starting = asyncio.run_coroutine_threadsafe(
            start_broker(self._config, system_runtime()), self._loop
        )
        try:
            self._running = starting.result()
        except BaseException:
            self._end_loop()
            raise

    def stop(self) -> None:
        """Stop in order; nothing happens if the broker is not running.

        Raises:
            OSError: the device failed while logs were closed.
        """
        running, self._running = self._running, None
        if running is None or self._loop is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(running.stop(), self._loop).result()
        finally:
            self._end_loop()

    def _end_loop(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
        self._loop = self._thread = None
