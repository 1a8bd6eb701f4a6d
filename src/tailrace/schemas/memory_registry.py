"""`MemoryRegistry`: a schema registry in this process, for tests; `mock://SCOPE` names one.

    registry = SchemaRegistry(schema_registry_url="mock://tests")

All clients of a scope in a process share its registry, as with Confluent's clients. It answers the
requests that `SchemaRegistry` sends as Confluent's registry does, and `tailrace.testing` serves one
by HTTP to clients of any kind.

Not here: whether a schema is compatible with another one: it is, unless a test gives reasons why
not; a schema is neither parsed nor normalized.

Invariant: an id always has the same schema, and a subject keeps the order of its versions.
"""

import threading
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

Answer = tuple[int, Any]
"""HTTP status, and the JSON of an answer."""

MOCK: Final = "mock"
"""The scheme of URLs that name a registry of this process."""

_OK: Final = 200
_NOT_FOUND: Final = 404
_UNPROCESSABLE: Final = 422

_NO_PATH: Final = 404
_NO_SUBJECT: Final = 40401
_NO_VERSION: Final = 40402
_NO_SCHEMA: Final = 40403
_INVALID_VERSION: Final = 42202


class MemoryRegistry:
    """Schemas by id, and the versions of subjects; for any number of threads."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        """Why a schema is incompatible with any other; empty: it is compatible."""
        self._lock = threading.Lock()
        self.schemas: list[dict[str, Any]] = []
        """Schemas as they were sent, by id - 1."""
        self.subjects: dict[str, list[int]] = {}
        """The ids of each subject's versions."""

    def add(self, subject: str, text: str, **more: object) -> int:
        """The id of a schema, which becomes a version of the subject unless it is one already.

        `more` are `schemaType` and `references`, as in a request.
        """
        with self._lock:
            return self._add(subject, _known({"schema": text, **more}))

    def answer(self, method: str, path: str, body: object = None) -> Answer:
        """The answer to a request of Confluent's REST API; an error if it is none of those here."""
        parts = [unquote(each) for each in urlsplit(path).path.strip("/").split("/")]
        with self._lock:
            return self._answer(method, parts, _known(body) if isinstance(body, dict) else {})

    def _answer(self, method: str, path: list[str], schema: dict[str, Any]) -> Answer:
        match method, path:
            case "GET", ["schemas", "ids", number]:
                at = int(number) if number.isdecimal() else 0
                known = 1 <= at <= len(self.schemas)
                return (_OK, self.schemas[at - 1]) if known else _missing(_NO_SCHEMA)
            case "GET", ["subjects"]:
                return _OK, [*self.subjects]
            case "GET", ["subjects", subject, "versions"]:
                found = self.subjects.get(subject)
                return (_OK, [*range(1, len(found) + 1)]) if found else _missing(_NO_SUBJECT)
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case "POST", ["subjects", subject, "versions"] if "schema" in schema:
                return _OK, {"id": self._add(subject, schema)}
            case "POST", ["subjects", subject] if "schema" in schema:
                return self._lookup(subject, schema)
            case "POST", ["compatibility", "subjects", _, "versions", _]:
                return _OK, {"is_compatible": not self.reasons, "messages": self.reasons}
            case _:
                return _missing(_NO_PATH)

    def _add(self, subject: str, schema: dict[str, Any]) -> int:
        if schema not in self.schemas:
            self.schemas.append(schema)
        schema_id = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def _lookup(self, subject: str, schema: dict[str, Any]) -> Answer:
        ids = self.subjects.get(subject)
        if ids is None:
            return _missing(_NO_SUBJECT)
        for version, schema_id in enumerate(ids, 1):
            if self.schemas[schema_id - 1] == schema:
                return self._version(subject, str(version))
        return _missing(_NO_SCHEMA)

    def _version(self, subject: str, version: str) -> Answer:
        ids = self.subjects.get(subject)
        if ids is None:
            return _missing(_NO_SUBJECT)
        if version != "latest" and not version.isdecimal():
            return _UNPROCESSABLE, {"error_code": _INVALID_VERSION, "message": "Invalid version."}
        number = len(ids) if version == "latest" else int(version)
        if not 1 <= number <= len(ids):
            return _missing(_NO_VERSION)
        schema_id = ids[number - 1]
        found = {"subject": subject, "version": number, "id": schema_id}
        return _OK, found | self.schemas[schema_id - 1]


def _known(body: Mapping[str, Any]) -> dict[str, Any]:
    """A schema in a request, without what is left out or is the default."""
    known = {name: body[name] for name in ("schema", "schemaType", "references") if body.get(name)}
    # As Confluent's registry, whose answers leave the type out for Avro.
    return {name: each for name, each in known.items() if (name, each) != ("schemaType", "AVRO")}


def _missing(code: int) -> Answer:
    return _NOT_FOUND, {"error_code": code, "message": "Not found."}


_scopes: dict[str, MemoryRegistry] = {}
_scopes_lock = threading.Lock()


def registry_of(scope: str) -> MemoryRegistry:
    """The registry of `mock://SCOPE` in this process, which lives as long as the process."""
    with _scopes_lock:
        return _scopes.setdefault(scope, MemoryRegistry())
