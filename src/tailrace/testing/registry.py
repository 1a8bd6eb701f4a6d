"""`TestRegistry`: a schema registry for the tests of programs, on a real socket of this process.

    with TestRegistry() as registry:
        ...the program under test, with registry.url
        assert list(registry.subjects) == ["orders-value"]

Any client of Confluent's REST API can use it. The fixture `tailrace_registry` of
`tailrace.pytest_plugin` gives one. For a program that uses `tailrace.schemas` alone, a URL such as
`mock://tests` does without a socket.

Not here: what it answers (`schemas.memory_registry`).
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from tailrace.schemas.memory_registry import Answer, MemoryRegistry
from tailrace.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRequest:
    """A request as it came."""

    method: str
    path: str
    authorization: str | None
    body: Any


class TestRegistry(MemoryRegistry):
    """A registry that answers by HTTP within a `with` block."""

    __test__ = False
    """No class of tests, whatever its name."""

    def __init__(self) -> None:
        super().__init__()
        self.url = ""
        """The value for `schema.registry.url`; empty before the block."""
        self.requests: list[RegistryRequest] = []
        """All requests so far."""
        self.answers: list[Answer | Callable[[BaseHTTPRequestHandler], None]] = []
        """Answers to be given first, one for each request: status and JSON, or what writes it."""

    @property
    def paths(self) -> list[str]:
        """Methods and paths of all requests so far."""
        return [f"{each.method} {each.path}" for each in self.requests]

    def fail(self, status: int, *, times: int = 1, message: str = "the test asked for it") -> None:
        """Have the next requests refused with an HTTP status, such as 503 or 401."""
        answer = {"error_code": status * 100 + 1, "message": message}
        self.answers += [(status, answer)] * times

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - of any kind
        """Do nothing: a client that hangs up early is part of a test."""
        del request, client_address


def _handler(registry: TestRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 5

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        # Without these the server would answer 501 and a page, and not the registry by its JSON.
        def do_PUT(self) -> None:
            self._serve()

        def do_DELETE(self) -> None:
            self._serve()

        def _serve(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            asked = RegistryRequest(
                method=self.command,
                path=self.path,
                authorization=self.headers.get("Authorization"),
                body=body,
            )
            registry.requests.append(asked)
            if registry.answers:
                answer = registry.answers.pop(0)
            else:
                answer = registry.answer(asked.method, asked.path, body)
            if not isinstance(answer, tuple):
                answer(self)
                return
            status, content = answer
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Do nothing: a test has its own output."""
            del format, arguments

    return Handler
