"""`RegistryDouble`: a schema registry in this process, on a real socket, for one test."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote, urlsplit

NOT_FOUND: Final = 404
Answer = tuple[int, Any]


@dataclass(slots=True, kw_only=True)
class Request:
    """A request as it came."""

    method: str
    path: str
    authorization: str | None
    body: Any


@dataclass(slots=True, kw_only=True)
class RegistryDouble:
    """The state of a registry, and what it has been asked."""

    url: str = ""
    ids: list[dict[str, Any]] = field(default_factory=list)
    """Schemas as they were sent, by id - 1."""
    subjects: dict[str, list[int]] = field(default_factory=dict)
    """The ids of each subject's versions."""
    requests: list[Request] = field(default_factory=list)
    answers: list[Answer | Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=list)
    """Answers to be given first, one for each request: status and JSON, or what writes it."""
    reasons: list[str] = field(default_factory=list)
    """Why a schema is incompatible with any other."""

    @property
    def paths(self) -> list[str]:
        """Methods and paths that were asked."""
        return [f"{each.method} {each.path}" for each in self.requests]

    def add(self, subject: str, text: str, **more: Any) -> int:
        """The id of a schema, which becomes a version of the subject."""
        sent = {"schema": text, **more}
        if sent not in self.ids:
            self.ids.append(sent)
        schema_id = self.ids.index(sent) + 1
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def answer(self, request: Request) -> Answer:
        """The registry's answer."""
        path = [unquote(each) for each in urlsplit(request.path).path.strip("/").split("/")]
        body = _known(request.body)
        match request.method, path:
            case "GET", ["schemas", "ids", number]:
                at = int(number) - 1
                return (200, self.ids[at]) if at < len(self.ids) else missing(40403)
            case "GET", ["subjects"]:
                return 200, list(self.subjects)
            case "GET", ["subjects", subject, "versions"]:
                found = self.subjects.get(subject)
                return (200, [*range(1, len(found) + 1)]) if found else missing(40401)
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case "POST", ["subjects", subject, "versions"]:
                more = {name: each for name, each in body.items() if name != "schema"}
                return 200, {"id": self.add(subject, body["schema"], **more)}
            case "POST", ["subjects", subject]:
                if body in self.ids and self.ids.index(body) + 1 in self.subjects.get(subject, ()):
                    place = self.subjects[subject].index(self.ids.index(body) + 1)
                    return self._version(subject, str(place + 1))
                return missing(40403)
            case "POST", ["compatibility", "subjects", _, "versions", _]:
                return 200, {"is_compatible": not self.reasons, "messages": self.reasons}
            case _:
                return missing(404)

    def _version(self, subject: str, version: str) -> Answer:
        ids = self.subjects.get(subject, [])
        number = len(ids) if version == "latest" else int(version)
        if not 1 <= number <= len(ids):
            return missing(40402)
        schema_id = ids[number - 1]
        found = {"subject": subject, "version": number, "id": schema_id}
        return 200, found | self.ids[schema_id - 1]


def _known(body: Any) -> Any:
    """A schema in a request without what is left out, or is the default."""
    if not isinstance(body, dict):
        return body
    known = {name: body[name] for name in ("schema", "schemaType", "references") if body.get(name)}
    return {name: each for name, each in known.items() if (name, each) != ("schemaType", "AVRO")}


def missing(code: int) -> Answer:
    """Confluent's answer for what is not there."""
    return NOT_FOUND, {"error_code": code, "message": "Not found."}


@contextmanager
def serving() -> Iterator[RegistryDouble]:
    """A registry that answers until the end of the block."""
    double = RegistryDouble()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 5

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def _serve(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            asked = Request(
                method=self.command,
                path=self.path,
                authorization=self.headers.get("Authorization"),
                body=body,
            )
            double.requests.append(asked)
            answer = double.answers.pop(0) if double.answers else double.answer(asked)
            if not isinstance(answer, tuple):
                answer(self)
                return
            status, content = answer
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            del format, arguments

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that hangs up early is part of a test."""
            del request, client_address

    with Server(("127.0.0.1", 0), Handler) as server:
        double.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield double
        finally:
            server.shutdown()
            thread.join()
