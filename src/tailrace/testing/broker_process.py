"""A broker's life in a test: started, killed, and started again on its port and its directory.

    start --> stop     everything is on the device, and the next start trusts it
         '--> kill     nothing is flushed or closed in order, as with kill -9; the next recovers

While the broker is down its port is kept, so that no other process takes it; a client that
connects is refused.
"""

import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

from tailrace.broker.broker import RunningBroker
from tailrace.broker.config import broker_config
from tailrace.broker.start import start_broker
from tailrace.errors import FatalError
from tailrace.model import TopicPartition
from tailrace.protocol.apis import api_of
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Buffer, Message
from tailrace.protocol.frames import NOBODY, decode_response, encode_request
from tailrace.replication.partition import Partition
from tailrace.runtime.loop_thread import LoopThread
from tailrace.runtime.system import system_runtime
from tailrace.server.dispatch import Dispatch
from tailrace.testing.broker_clock import BrokerClock, BrokerLoop
from tailrace.testing.topic_log import partition_directories

HOST = "127.0.0.1"

M = TypeVar("M", bound=Message)
T = TypeVar("T")


class RefusedRequestError(FatalError):
    """The broker has refused what a test asked it to do."""

    def __init__(self, request: str, code: int, message: str | None = None) -> None:
        self.code = ErrorCode(code)
        """Kafka's error."""
        super().__init__(f"{request}: {self.code.name}: {message or self.code.message}")


async def ask(
    dispatch: Dispatch, request: Message, response: type[M], *, version: int | None = None
) -> M:
    """The answer of `dispatch` to a request that comes through no connection."""
    api = api_of(type(request))
    version = api.last_version if version is None else version
    # A connection's memory, which the broker writes the offsets of records into.
    frame = bytearray(
        encode_request(api, request, version=version, correlation_id=0, client_id=None)
    )
    found = dispatch(memoryview(frame)[4:], NOBODY, None)
    buffers = await found if isinstance(found, Awaitable) else found
    data = b"".join(cast("list[Buffer]", buffers))
    answer = decode_response(api, version, memoryview(data)[4:])
    assert isinstance(answer, response)
    return answer


class KeptPort:
    """The port of a node, which no other process may take while the node is down."""

    def __init__(self) -> None:
        self.number = 0
        """The port; 0 before it is first kept or lent, which takes any free one."""
        self._kept: socket.socket | None = None

    @property
    def address(self) -> str:
        """HOST:PORT, the same after every start.

        Raises:
            RuntimeError: the node was not started yet.
        """
        if not self.number:
            raise RuntimeError("a broker has its port from its first start on")
        return f"{HOST}:{self.number}"

    def keep(self) -> None:
        """Take the port: a client that connects is refused, since nothing listens."""
        if self._kept is None:
            self._kept = socket.socket()
            self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._kept.bind((HOST, self.number))
            self.number = self._kept.getsockname()[1]

    def lend(self) -> None:
        """Let the node listen on it, until `keep`."""
        self.keep()
        # Linux lets one socket listen beside one that is only bound, so that no other process can
        # take the port while the node starts, not even for a connection of its own. BSD does not.
        if sys.platform != "linux":
            self.give_back()

    def give_back(self) -> None:
        """Let any process have it."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None


class BrokerProcess:
    """One broker, running or not; `around` is between its connections and the broker."""

    def __init__(
        self,
        data: str | None,
        settings: dict[str, str],
        *,
        clock: BrokerClock,
        around: Callable[[Dispatch], Dispatch],
        listener: str = "PLAINTEXT",
    ) -> None:
        """Without `data` the directory is a temporary one, from the first start until `close`.

        `listener` is the name of the listener, and its security protocol.

        Raises:
            ConfigError: settings that do not exist or are out of range, all of them.
        """
        self._settings = settings
        self._listener = listener
        broker_config(self._settings_at(data or "a temporary directory", port=0))
        self._clock = clock
        self._around = around
        self._data = data
        self._temporary: TemporaryDirectory[str] | None = None
        self._port = KeptPort()
        self._thread: LoopThread | None = None
        self._running: RunningBroker | None = None
        self._dispatch: Dispatch | None = None
        """Answers a frame, without `around`."""

    @property
    def is_running(self) -> bool:
        """Whether the broker accepts requests."""
        return self._running is not None

    @property
    def running(self) -> RunningBroker:
        """The running broker, for calls on its loop.

        Raises:
            RuntimeError: it is not running.
        """
        if self._running is None:
            raise RuntimeError("the broker is not running; start it, or use it in a with block")
        return self._running

    @property
    def directory(self) -> str:
        """The path of the log directory.

        Raises:
            RuntimeError: it is temporary, and the broker was not started or is closed.
        """
        if self._data is not None:
            return self._data
        if self._temporary is None:
            raise RuntimeError("a broker has its temporary directory from its start to its close")
        return self._temporary.name

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT, the same after every start.

        Raises:
            RuntimeError: the broker was not started yet.
        """
        return self._port.address

    def start(self) -> None:
        """Start, and return when the broker accepts requests.

        Raises:
            RuntimeError: it is running.
            DirectoryError, ListenError: as `start_broker`.
        """
        if self.is_running:
            raise RuntimeError("the broker is running already")
        if self._data is None and self._temporary is None:
            self._temporary = TemporaryDirectory(prefix="tailrace-")
        self._port.lend()
        config = broker_config(self._settings_at(self.directory, port=self._port.number))
        runtime = replace(system_runtime(is_synced=False), clock=self._clock)
        self._thread = LoopThread(BrokerLoop(self._clock), name="tailrace-broker")
        self._thread.start()
        try:
            starting = start_broker(config, runtime, wrap_dispatch=self._between)
            self._running = self._thread.run(starting)
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """Stop in order; nothing happens if the broker is not running.

        Raises:
            OSError: the device failed while logs were closed.
        """
        if self._running is not None:
            try:
                self.run(self._running.stop())
            finally:
                self._end()

    def kill(self) -> None:
        """End as a killed process does; nothing happens if the broker is not running."""
        if self._running is not None:
            self._end(self._running.kill)

    def close(self) -> None:
        """Kill, give up the port, and remove the directory if it is temporary."""
        self.kill()
        self._port.give_back()
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            temporary.cleanup()

    def run(self, main: Coroutine[Any, Any, T], *, timeout_s: float | None = None) -> T:
        """Run a coroutine on the broker's loop, which is running; as `LoopThread.run`."""
        assert self._thread is not None
        return self._thread.run(main, timeout_s=timeout_s)

    def on_loop(self, function: Callable[[], T]) -> T:
        """Call a function on the broker's loop.

        Raises:
            RuntimeError: it is not running.
        """
        _ = self.running
        assert self._thread is not None
        return self._thread.call(function)

    def directories_of(self, topic: str, partition: int | None) -> dict[int, str]:
        """The log directory by partition, as `LogSource.directories_of`."""
        if self.is_running:
            self.wait_for_logs()
        return partition_directories(self.directory, topic, partition)

    def replica(self, partition: TopicPartition) -> Partition | None:
        """A partition that is served; on the loop."""
        return self.running.replicas.get(partition)

    def wait_for_logs(self) -> None:
        """Wait until each partition has its folder: a topic is answered before.

        Raises:
            RuntimeError: the broker is not running.
        """
        self.run(self.running.replicas.new_logs.wait_for_all())

    def partition_count(self, topic: str) -> int | None:
        """The number of partitions of a topic; None if it does not exist."""
        found = self.on_loop(lambda: self.running.controller.image.topics.get(topic))
        return None if found is None else found.partition_count

    def ask(self, request: Message, response: type[M], *, version: int | None = None) -> M:
        """The broker's response to a request that comes through no connection, and meets no fault.

        By default in the last version. For APIs whose responses have no records.
        """
        _ = self.running
        assert self._dispatch is not None
        return self.run(ask(self._dispatch, request, response, version=version))

    def _settings_at(self, directory: str, *, port: int) -> dict[str, str]:
        listeners = f"{self._listener}://{HOST}:{port}"
        return self._settings | {"log.dirs": directory, "listeners": listeners}

    def _between(self, dispatch: Dispatch) -> Dispatch:
        self._dispatch = dispatch
        return self._around(dispatch)

    def _end(self, first: Callable[[], None] = lambda: None) -> None:
        """End the thread, after `first` on its loop, and keep the port."""
        thread, self._thread, self._running = self._thread, None, None
        if thread is not None:
            thread.close(first)
        self._port.keep()
