"""`Monitor`: answers /metrics, /healthz and /readyz over HTTP, from the start of a node to its end.

    GET /metrics   all metrics as Prometheus reads them (text, or OpenMetrics if it asks)
    GET /healthz   200 if the event loop answers within some seconds, else 503
    GET /readyz    200 if the node is ready, else 503 with a reason in each line

HTTP is answered on threads, by the standard library's server and prometheus-client; what they say
is read on the event loop. So it shows whether a loop hangs, or a process is gone. A few
requests are answered at a time, and each has a time limit, whatever its client does.
"""

import asyncio
import contextlib
import logging
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import TimeoutError as LateError
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tailrace.broker.monitoring.families import family_of
from tailrace.broker.monitoring.health import Health
from tailrace.broker.monitoring.leader_ends import LeaderEnds
from tailrace.broker.monitoring.values import (
    Meter,
    Values,
    add_room,
    of_broker,
    of_controller,
)
from tailrace.errors import ListenError, MissingExtraError
from tailrace.runtime.clock import Clock
from tailrace.server.request_times import RequestTimes

if TYPE_CHECKING:
    from prometheus_client import Metric

    from tailrace.broker.controller.node import ControllerNode

logger = logging.getLogger(__name__)

T = TypeVar("T")

_Request = Any
"""The socket of a connection."""

LIVE_S: Final = 5.0
"""Longest time in which the loop of a healthy node answers."""
SCRAPE_S: Final = 30.0
"""Longest time in which it gives all values, in slices between requests."""
READ_S: Final = 10.0
"""Longest wait for bytes of a client."""
REQUEST_S: Final = 60.0
"""Longest time for a connection, after which it is closed."""
AT_ONCE: Final = 8
"""Connections at a time; the next ones wait in the kernel's queue."""


class Monitor:
    """Metrics and health of one node, from `open` on; made on its event loop."""

    def __init__(self, clock: Clock, health: Health, *, node_id: int) -> None:
        self._health = health
        self.times = RequestTimes(clock)
        """Times of the requests of the node, whose handlers have to be wrapped by it."""
        self._loop = asyncio.get_running_loop()
        self._meter = Meter()
        self._server: _Server | None = None
        self._controller: ControllerNode | None = None
        self._ends: LeaderEnds | None = None
        self._node_id = node_id
        self._expose: Callable[[Values, str], tuple[str, bytes]] | None = None

    def open(self, address: tuple[str, int]) -> None:
        """Answer at an address from now on; port 0 is a free one.

        Raises:
            ListenError: it cannot be used.
            MissingExtraError: prometheus-client is not installed.
        """
        self._expose = _exposition()
        try:
            server = self._server = _Server(address, self._answer)
        except OSError as error:
            raise ListenError(f"tailrace.http.listener: {error}: {address}") from error
        self._meter.start()
        threading.Thread(target=server.serve_forever, name="tailrace-http", daemon=True).start()
        logger.info("http_listening address=%s paths=/metrics,/healthz,/readyz", self.address)

    def export(self) -> None:
        """Make instruments of OpenTelemetry, which the exporter of this process reads.

        Raises:
            MissingExtraError: OpenTelemetry's API is not installed.
        """
        from tailrace.broker.monitoring.opentelemetry import NodeMetrics

        NodeMetrics(self._read)
        self._meter.start()

    @property
    def address(self) -> str | None:
        """HOST:PORT in use; None: there is no listener."""
        if self._server is None:
            return None
        host, port = self._server.server_address[:2]
        return f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"

    def controls(self, controller: "ControllerNode") -> None:
        """Show a controller that is no broker."""
        self._controller = controller

    def close(self) -> None:
        """Answer no more; does not wait for answers under way."""
        self._meter.close()
        if self._ends is not None:
            self._ends.close()
        if self._server is None:
            return
        # On a thread: `shutdown` waits for the server's thread, which may wait for this loop.
        threading.Thread(target=self._server.end, name="tailrace-http-end", daemon=True).start()

    def _answer(self, path: str, accept: str) -> tuple[int, str, bytes]:
        """Status, content type and body for a path; on a thread of the server."""
        match path:
            case "/metrics":
                return self._metrics(accept)
            case "/healthz":
                reasons = self._ask(self._reasons(), LIVE_S)
                late = f"the event loop has not answered for {LIVE_S:g} s"
                return _plain(503, late) if reasons is None else _plain(200, "alive")
            case "/readyz":
                reasons = self._ask(self._reasons(), LIVE_S)
                if reasons is None:
                    reasons = [f"the event loop has not answered for {LIVE_S:g} s"]
                return _plain(503, *reasons) if reasons else _plain(200, "ready")
            case "/":
                return _plain(200, "/metrics", "/healthz", "/readyz")
        return _plain(404, f"no page {path[:100]!r}; there are /metrics, /healthz and /readyz")

    def _metrics(self, accept: str) -> tuple[int, str, bytes]:
        values = self._read()
        if values is None:
            return _plain(503, f"the event loop has not given its values within {SCRAPE_S:g} s")
        assert self._expose is not None, "made by `open`"
        return 200, *self._expose(values, accept)

    def _read(self) -> Values | None:
        """All values now; None: the event loop does not answer. On any other thread."""
        values = self._ask(self._values(), SCRAPE_S)
        if values is not None:
            add_room(values)
        return values

    def _ask(self, question: Coroutine[Any, Any, T], seconds_max: float) -> T | None:
        """The result of a coroutine on the node's loop; None: there was none in time."""
        if self._loop.is_closed():
            question.close()
            return None
        asked = asyncio.run_coroutine_threadsafe(question, self._loop)
        try:
            return asked.result(seconds_max)
        except LateError:
            asked.cancel()
            return None

    async def _reasons(self) -> list[str]:
        return self._health.reasons()

    async def _values(self) -> Values:
        broker = self._health.broker
        if broker is not None:
            if self._ends is None and (peers := broker.new_peers()) is not None:
                self._ends = LeaderEnds(broker.cluster, peers)
            values = await of_broker(broker, self.times, self._meter, ends=self._ends)
        elif self._controller is not None:
            values = of_controller(self._controller, self.times, self._meter, node_id=self._node_id)
        else:
            values = Values()
        values.add("tailrace_ready", not self._health.reasons())
        return values


def _plain(status: int, *lines: str) -> tuple[int, str, bytes]:
    text = "".join(f"{line}\n" for line in lines)
    return status, "text/plain; charset=utf-8", text.encode()


def _exposition() -> Callable[[Values, str], tuple[str, bytes]]:
    """A function that writes values as a client of Prometheus accepts them.

    Raises:
        MissingExtraError: prometheus-client is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder
        from prometheus_client.process_collector import ProcessCollector
    except ImportError as error:
        raise MissingExtraError(
            "tailrace.http.listener", ["prometheus-client"], extra="metrics"
        ) from error

    class _Collected:
        """The values of one scrape."""

        def __init__(self, values: Values) -> None:
            self._values = values

        def collect(self) -> Iterator["Metric"]:
            return _metrics_of(self._values)

    def expose(values: Values, accept: str) -> tuple[str, bytes]:
        registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)
        registry.register(_Collected(values))
        encode, content_type = choose_encoder(accept)
        return content_type, encode(registry)

    return expose


def _metrics_of(values: Values) -> "Iterator[Metric]":
    from prometheus_client import Metric

    for name, found in values.found.items():
        family = family_of(name)
        # Names without `_total` are those of Confluent, whose counters have no such ending.
        is_counter = family.kind == "counter" and name.endswith("_total")
        kind = "counter" if is_counter else "gauge"
        metric = Metric(name.removesuffix("_total") if is_counter else name, family.text, kind)
        for each in found:
            metric.add_sample(name, dict(each.labels), each.value)
        yield metric


def _cut(connection: socket.socket) -> None:
    """Wake the thread that reads or writes, which `shutdown_request` of the base class does not."""
    with contextlib.suppress(OSError):  # it has ended meanwhile
        connection.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    """Gives each connection a thread, for a limited time, and a limited number of them."""

    daemon_threads = True
    request_queue_size = 32

    def __init__(
        self, address: tuple[str, int], answer: Callable[[str, str], tuple[int, str, bytes]]
    ) -> None:
        self.answer = answer
        self._places = threading.Semaphore(AT_ONCE)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind, without the look-up of a name that the base class does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: _Request, client_address: object) -> None:
        """Answer a connection on a thread, when there is a place for it."""
        self._places.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: _Request, client_address: object) -> None:
        """Answer a connection; one that takes too long is closed."""
        end = threading.Timer(REQUEST_S, _cut, [request])
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._places.release()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """Log what ended a connection: most often its client has gone."""
        # Called where the error is handled, by the base class.
        logger.debug("http_connection_ended peer=%s", client_address, exc_info=sys.exception())

    def end(self) -> None:
        """Accept no more, and release the port."""
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD."""

    timeout = READ_S
    server_version = "tailrace"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer with the page."""
        server = self.server
        assert isinstance(server, _Server)
        path = self.path.partition("?")[0]
        status, content_type, body = server.answer(path, self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the base class calls it by this name

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
        """Log a request; there are many of them, and all alike."""
        logger.debug("http_request peer=%s request=%s", self.client_address[0], format % args)
