"""`SchemaRegistry`: Confluent's REST API for schemas, also that of Karapace and Apicurio.

    registry = SchemaRegistry(schema_registry_url="http://localhost:8081")
    registry.schema(17)
    registry.register("flights-value", Schema(type=SchemaType.AVRO, text=text))

Not here: the wire format (`framing`), and what a schema means (`codecs`).

Invariant: an id always has the same schema, so it is asked for once, as long as it is in the cache.
"""

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

from tailrace.schemas.caching import BoundedCache
from tailrace.schemas.config import RegistryConfig, parse_registry_config
from tailrace.schemas.errors import RegistryRefusedError, SchemaError
from tailrace.schemas.http import MockHttp, RegistryHttp
from tailrace.schemas.memory_registry import MOCK
from tailrace.schemas.schema import (
    RegisteredSchema,
    ResolvedSchema,
    Schema,
    SchemaReference,
    SchemaType,
    check_size,
)
from tailrace.values import dataclass

# A registry of several nodes writes by its leader and reads from each node's own copy of the topic
# `_schemas`: an id that a producer has just got may be missing on another node for a moment.
MISSING_TTL_S: Final = 10.0
"""Pause before an id that the registry does not have is asked for again."""

REFERENCES_MAX: Final = 256
"""Most schemas that a schema may use, those of its references included."""

_TYPES: Final = {each.value: each for each in SchemaType}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compatibility:
    """Whether a schema may become the next version of a subject."""

    is_compatible: bool
    reasons: tuple[str, ...]
    """Why not, in the registry's words; some registries give none."""


class SchemaRegistry:
    """A client of a registry; for any number of threads, and to be closed."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        **more: object,
    ) -> None:
        """Settings are those of docs/schemas.md, in `settings` or as keywords with underscores.

        `schema.registry.url` may be `mock://SCOPE`: a registry in this process, for tests. Nothing
        is connected yet. `clock` and `pause` are for tests.

        Raises:
            ConfigError: unknown names and bad values, all of them.
        """
        self.config: RegistryConfig = parse_registry_config({**(settings or {}), **more})
        self._http: RegistryHttp | MockHttp
        if self.config.addresses[0].url.startswith(f"{MOCK}:"):
            self._http = MockHttp(self.config.addresses[0].url)
        else:
            self._http = RegistryHttp(self.config, clock=clock, pause=pause)
        self._clock = clock
        capacity = self.config.cache_capacity
        self._schemas: BoundedCache[int, Schema] = BoundedCache(capacity)
        self._missing: BoundedCache[int, tuple[float, RegistryRefusedError]] = BoundedCache(
            capacity
        )
        self._versions: BoundedCache[tuple[str, int], RegisteredSchema] = BoundedCache(capacity)
        self._ids: BoundedCache[tuple[str, Schema], int] = BoundedCache(capacity)
        self._latest: BoundedCache[str, tuple[float, RegisteredSchema]] = BoundedCache(capacity)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self._http.close()

    def schema(self, schema_id: int) -> Schema:
        """The schema of an id.

        Raises:
            RegistryRefusedError: the registry has no such id (`is_missing`), or answers nonsense.
            RegistryUnavailableError: no URL answered.
        """
        found = self._schemas.get(schema_id)
        if found is None:
            missing = self._missing.get(schema_id)
            if missing is not None and self._clock() < missing[0]:
                # The same error is raised many times; with its old traceback it would grow with
                # each of them.
                raise missing[1].with_traceback(None)
            try:
                answer = self._object("GET", f"/schemas/ids/{schema_id}")
            except RegistryRefusedError as error:
                if error.is_missing:
                    # Only "there is none" is kept. A login that was refused may be accepted at the
                    # next call.
                    self._missing.put(schema_id, (self._clock() + MISSING_TTL_S, error))
                raise
            found = schema_of_answer(answer)
            self._schemas.put(schema_id, found)
        return found

    def register(self, subject: str, schema: Schema) -> int:
        """The id of a schema, which becomes a version of the subject unless it is one already.

        Raises:
            RegistryRefusedError: it is invalid, or incompatible with the versions before it.
            RegistryUnavailableError: no URL answered.
        """
        schema_id = self._ids.get((subject, schema))
        if schema_id is None:
            # A subject may have slashes: that of a file which a Protobuf schema imports is the
            # file's name.
            path = f"/subjects/{quote(subject, safe='')}/versions"
            answer = self._object("POST", self._normalized(path), _body(schema))
            schema_id = _number(answer, "id")
            self._ids.put((subject, schema), schema_id)
        return schema_id

    def lookup(self, subject: str, schema: Schema) -> RegisteredSchema:
        """The version of a subject that has this schema.

        Raises:
            RegistryRefusedError: there is none (`is_missing`).
            RegistryUnavailableError: no URL answered.
        """
        path = f"/subjects/{quote(subject, safe='')}"
        return _registered(self._object("POST", self._normalized(path), _body(schema)))

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """A version of a subject, counted from 1.

        Raises:
            RegistryRefusedError: there is none (`is_missing`).
            RegistryUnavailableError: no URL answered.
        """
        found = self._versions.get((subject, version))
        if found is None:
            path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
            found = _registered(self._object("GET", path))
            self._versions.put((subject, version), found)
        return found

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest version of a subject, at most `latest.cache.ttl.sec` old.

        Raises:
            RegistryRefusedError: there is no such subject (`is_missing`).
            RegistryUnavailableError: no URL answered.
        """
        known = self._latest.get(subject)
        # Unlike an id or a numbered version, "latest" changes when anybody registers, hence the
        # TTL.
        if known is not None and self._clock() < known[0]:
            return known[1]
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        found = _registered(self._object("GET", path))
        self._latest.put(subject, (self._clock() + self.config.latest_ttl_s, found))
        return found

    def subjects(self) -> list[str]:
        """The names of all subjects that are not deleted."""
        return [each for each in self._list("/subjects") if isinstance(each, str)]

    def versions(self, subject: str) -> list[int]:
        """The numbers of a subject's versions, in rising order."""
        found = self._list(f"/subjects/{quote(subject, safe='')}/versions")
        return sorted(each for each in found if type(each) is int)

    def check_compatibility(
        self, subject: str, schema: Schema, version: int | None = None
    ) -> Compatibility:
        """Whether a schema is compatible with a version of a subject, the latest by default.

        Raises:
            RegistryRefusedError: there is no such version (`is_missing`), or the schema is invalid.
            RegistryUnavailableError: no URL answered.
        """
        number = "latest" if version is None else version
        # Without `verbose` a registry says yes or no, and no reason.
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/{number}?verbose=true"
        answer = self._object("POST", path, _body(schema))
        messages = answer.get("messages")
        reasons = tuple(map(str, messages)) if isinstance(messages, list) else ()
        # `is True`, since an answer without the field must not pass for a yes.
        return Compatibility(is_compatible=answer.get("is_compatible") is True, reasons=reasons)

    def resolve(self, schema: Schema) -> ResolvedSchema:
        """A schema with all that it refers to.

        Raises:
            SchemaError: there are more than 256, or they refer to each other in a circle.
            RegistryRefusedError: one does not exist.
            RegistryUnavailableError: no URL answered.
        """
        found: dict[str, str] = {}
        self._collect(schema, found, ())
        return ResolvedSchema(schema=schema, dependencies=tuple(found.items()))

    def _collect(
        self, schema: Schema, found: dict[str, str], above: tuple[SchemaReference, ...]
    ) -> None:
        for each in schema.references:
            # Two schemas may use a third one: it is needed once, and is no circle.
            if each.name in found:
                continue
            # A registry cannot make a circle, since a reference names a version that exists. One
            # that does is broken or hostile, and would recurse until the stack ends.
            if each in above or len(above) + len(found) >= REFERENCES_MAX:
                raise SchemaError(
                    f"reference {each.name!r} to {each.subject} version {each.version} leads to "
                    f"itself, or there are more than {REFERENCES_MAX} references"
                )
            used = self.version(each.subject, each.version).schema
            self._collect(used, found, (*above, each))
            # After the schemas that it uses, which fastavro and protobuf have to know first.
            found[each.name] = used.text

    def _normalized(self, path: str) -> str:
        return f"{path}?normalize=true" if self.config.normalizes else path

    def _object(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> dict[str, Any]:
        answer = self._http.request(method, path, body)
        if not isinstance(answer, dict):
            raise RegistryRefusedError(f"{method} {path}: the answer is a list, not an object")
        return answer

    def _list(self, path: str) -> list[Any]:
        answer = self._http.request("GET", path)
        if not isinstance(answer, list):
            raise RegistryRefusedError(f"GET {path}: the answer is an object, not a list")
        return answer


def _body(schema: Schema) -> dict[str, object]:
    body: dict[str, object] = {"schema": schema.text}
    if schema.type is not SchemaType.AVRO:
        # Registries before 5.5 know Avro alone, and no field `schemaType`.
        body["schemaType"] = schema.type.value
    if schema.references:
        body["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in schema.references
        ]
    return body


def _registered(answer: Mapping[str, Any]) -> RegisteredSchema:
    return RegisteredSchema(
        subject=_text(answer, "subject"),
        version=_number(answer, "version"),
        id=_number(answer, "id"),
        schema=schema_of_answer(answer),
    )


def schema_of_answer(answer: Mapping[str, Any]) -> Schema:
    """The schema in a registry's answer.

    Raises:
        RegistryRefusedError: the answer has none.
        SchemaError: it is larger than `TEXT_BYTES_MAX`.
    """
    # Confluent's registry leaves the field out for Avro.
    named = answer.get("schemaType", SchemaType.AVRO.value)
    kind = _TYPES.get(named) if isinstance(named, str) else None
    if kind is None:
        raise RegistryRefusedError(
            f"the registry's schema has the type {named!r}; known are {', '.join(_TYPES)}"
        )
    text = _text(answer, "schema")
    check_size(text)
    listed = answer.get("references") or []
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise RegistryRefusedError(
            "the registry's schema has references that are no list of objects"
        )
    references = tuple(
        SchemaReference(
            name=_text(each, "name"),
            subject=_text(each, "subject"),
            version=_number(each, "version"),
        )
        for each in listed
    )
    return Schema(type=kind, text=text, references=references)


def _text(answer: Mapping[str, Any], name: str) -> str:
    value = answer.get(name)
    if not isinstance(value, str):
        raise RegistryRefusedError(f"the registry's answer has no text {name!r}")
    return value


def _number(answer: Mapping[str, Any], name: str) -> int:
    value = answer.get(name)
    # Not `isinstance`: True and False are ints in Python. Java has ids and versions as signed ints,
    # the wire format's header reads 32 bits without a sign.
    if type(value) is not int or not -(1 << 31) <= value < 1 << 32:
        raise RegistryRefusedError(f"the registry's answer has no number {name!r}")
    return value
