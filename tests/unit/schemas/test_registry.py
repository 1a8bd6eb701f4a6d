"""The client of a registry, against one on a real socket: requests, cache, and bad answers."""

import base64
import json
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler

import pytest

from tailrace.errors import ConfigError
from tailrace.schemas import (
    RegistryRefusedError,
    RegistryUnavailableError,
    Schema,
    SchemaError,
    SchemaReference,
    SchemaRegistry,
    SchemaType,
)
from tailrace.schemas import http as registry_http
from tailrace.testing.registry import TestRegistry

STRING = Schema(type=SchemaType.AVRO, text='"string"')


def test_a_schema_is_registered_and_found_again(
    registry: SchemaRegistry, double: TestRegistry
) -> None:
    """By its id, by subject and version, as the latest, and by its text."""
    schema_id = registry.register("a/b-value", STRING)
    assert registry.schema(schema_id) == STRING
    found = registry.lookup("a/b-value", STRING)
    assert (found.subject, found.version, found.id) == ("a/b-value", 1, schema_id)
    assert registry.version("a/b-value", 1) == registry.latest("a/b-value") == found
    assert registry.subjects() == ["a/b-value"]
    assert registry.versions("a/b-value") == [1]
    assert "POST /subjects/a%2Fb-value/versions" in double.paths


def test_what_never_changes_is_asked_once(registry: SchemaRegistry, double: TestRegistry) -> None:
    """Ids, versions and registrations come from the cache the second time."""
    for _ in range(3):
        schema_id = registry.register("t-value", STRING)
        registry.schema(schema_id)
        registry.version("t-value", 1)
    assert len(double.requests) == 3


def test_the_cache_is_bounded(double: TestRegistry) -> None:
    """The oldest id is forgotten, and asked for again."""
    ids = [double.add("t", f'"{kind}"') for kind in ("string", "int", "long")]
    with SchemaRegistry(schema_registry_url=double.url, cache_capacity=2) as registry:
        for each in (*ids, *ids[1:], ids[0]):
            registry.schema(each)
    assert len(double.requests) == 4


def test_the_latest_version_is_asked_for_again_after_its_time(double: TestRegistry) -> None:
    """`latest.cache.ttl.sec` says when."""
    now = [0.0]
    double.add("t-value", '"int"')
    with SchemaRegistry(
        {"schema.registry.url": double.url, "latest.cache.ttl.sec": 60}, clock=lambda: now[0]
    ) as registry:
        assert registry.latest("t-value").version == 1
        double.add("t-value", '"long"')
        now[0] = 59
        assert registry.latest("t-value").version == 1
        now[0] = 61
        assert registry.latest("t-value").version == 2


def test_an_id_that_is_missing_is_not_asked_for_at_each_record(double: TestRegistry) -> None:
    """It is asked for again after ten seconds."""
    now = [0.0]
    with SchemaRegistry(schema_registry_url=double.url, clock=lambda: now[0]) as registry:
        for _ in range(3):
            with pytest.raises(RegistryRefusedError, match="Not found") as caught:
                registry.schema(7)
            assert (caught.value.is_missing, caught.value.code) == (True, 40403)
        assert len(double.requests) == 1
        double.schemas = [{"schema": '"int"'}] * 7
        now[0] = 11
        assert registry.schema(7).text == '"int"'


def test_references_are_resolved_in_their_order(
    registry: SchemaRegistry, double: TestRegistry
) -> None:
    """Each schema comes behind those that it uses, and once."""

    def reference(name: str) -> dict[str, object]:
        return {"name": name, "subject": name, "version": 1}

    double.add("c", '"C"')
    double.add("b", '"B"', references=[reference("c")])
    double.add("a", '"A"', references=[reference("b"), reference("c")])
    found = registry.resolve(registry.version("a", 1).schema)
    assert found.dependencies == (("c", '"C"'), ("b", '"B"'))


def test_a_circle_of_references_is_refused(registry: SchemaRegistry, double: TestRegistry) -> None:
    """A registry that was tampered with cannot lead into an endless search."""
    itself = {"name": "a", "subject": "a", "version": 1}
    double.add("a", '"A"', references=[itself])
    reference = SchemaReference(name="a", subject="a", version=1)
    with pytest.raises(SchemaError, match="leads to itself"):
        registry.resolve(Schema(type=SchemaType.AVRO, text='"B"', references=(reference,)))


def test_compatibility_is_told_with_its_reasons(
    registry: SchemaRegistry, double: TestRegistry
) -> None:
    """The registry's own words are kept."""
    assert registry.check_compatibility("t-value", STRING).is_compatible
    double.reasons = ["READER_FIELD_MISSING_DEFAULT_VALUE"]
    found = registry.check_compatibility("t-value", STRING, version=3)
    assert (found.is_compatible, found.reasons) == (False, tuple(double.reasons))
    assert double.paths[-1] == "POST /compatibility/subjects/t-value/versions/3?verbose=true"


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        ({"basic.auth.user.info": "ann:se:cret"}, b"Basic " + base64.b64encode(b"ann:se:cret")),
        ({"schema.registry.basic.auth.user.info": "a:b"}, b"Basic " + base64.b64encode(b"a:b")),
        ({"bearer.auth.token": "t0ken"}, b"Bearer t0ken"),
    ],
)
def test_a_login_is_sent_and_never_shown(
    double: TestRegistry, settings: dict[str, str], sent: bytes
) -> None:
    """Basic authentication and a token, each by Confluent's name."""
    with SchemaRegistry({"schema.registry.url": double.url} | settings) as registry:
        registry.subjects()
        assert double.requests[0].authorization == sent.decode()
        assert not any(each in repr(registry.config) for each in ("se:cret", "t0ken", "a:b"))


def test_a_url_may_have_the_login(double: TestRegistry) -> None:
    """The password is decoded, and not shown in errors."""
    url = double.url.replace("://", "://ann:p%40ss@")
    with SchemaRegistry(schema_registry_url=url, max_retries=0) as registry:
        registry.subjects()
        assert double.requests[0].authorization == (
            f"Basic {base64.b64encode(b'ann:p@ss').decode()}"
        )
        double.answers = [(500, {})]
        with pytest.raises(RegistryUnavailableError) as caught:
            registry.subjects()
        assert "ann" not in str(caught.value)


def test_a_url_that_does_not_answer_is_followed_by_the_next(double: TestRegistry) -> None:
    """The one that answered is asked first from then on."""
    with TestRegistry() as gone:
        nobody = gone.url
    waits: list[float] = []
    with SchemaRegistry(
        schema_registry_url=f"{nobody},{double.url}", pause=waits.append
    ) as registry:
        registry.subjects()
        registry.subjects()
    assert (len(double.requests), waits) == (2, [])


def test_retries_wait_longer_each_time_and_end_with_what_was_told() -> None:
    """The error names the URL and the number of attempts."""
    with TestRegistry() as gone:
        nobody = gone.url
    waits: list[float] = []
    settings: dict[str, object] = {
        "schema.registry.url": nobody,
        "max.retries": 3,
        "retries.wait.ms": 100,
        "retries.max.wait.ms": 300,
    }
    with (
        SchemaRegistry(settings, pause=waits.append) as registry,
        pytest.raises(RegistryUnavailableError, match=rf"4 attempts: {nobody}: .*refused"),
    ):
        registry.subjects()
    assert waits == [0.1, 0.2, 0.3]


def test_an_overloaded_registry_is_asked_again(double: TestRegistry) -> None:
    """Status 503 and 429 are no answer."""
    double.answers = [(503, {}), (429, {"error_code": 429, "message": "slow down"})]
    with SchemaRegistry(schema_registry_url=double.url, pause=lambda _: None) as registry:
        assert registry.subjects() == []


def test_a_refusal_is_told_at_once(registry: SchemaRegistry, double: TestRegistry) -> None:
    """An incompatible schema, and a login that is refused, each with what to do."""
    double.answers = [(409, {"error_code": 409, "message": "incompatible\nwith version 1"})]
    with pytest.raises(RegistryRefusedError, match=r"incompatible with version 1 .*status 409"):
        registry.register("t-value", STRING)
    double.answers = [(401, b"<html>")]
    with pytest.raises(RegistryRefusedError, match=r"check basic.auth.user.info") as caught:
        registry.subjects()
    assert caught.value.status == 401


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>hello</html>",
        b"17",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"schema": 17}',
        b'{"schema": "a", "schemaType": "XML"}',
        b'{"schema": "a", "schemaType": ["AVRO"]}',
        b'{"schema": "a", "references": 3}',
        b'{"schema": "a", "references": [3]}',
        b'{"schema": "a", "references": [{"name": "a", "subject": "b", "version": "x"}]}',
        b"[1, 2]",
    ],
)
def test_an_answer_that_is_none_is_refused(
    registry: SchemaRegistry, double: TestRegistry, answer: bytes
) -> None:
    """Whatever a registry sends ends in one error of its own."""
    double.answers = [(200, answer)]
    with pytest.raises(RegistryRefusedError):
        registry.schema(1)


def _endless(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" " * 65536)


def test_an_answer_without_end_stops_at_the_limit(
    registry: SchemaRegistry, double: TestRegistry
) -> None:
    """16 MiB are read, and the connection is closed."""
    double.answers = [_endless]
    with pytest.raises(RegistryRefusedError, match="more than 16777216 bytes"):
        registry.subjects()
    assert registry.subjects() == []


def test_an_answer_that_drips_stops_at_its_time(double: TestRegistry) -> None:
    """The time is that of the whole answer, not of each byte."""
    times = iter(range(1000))

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        handler.wfile.write(b" " * 500_000)
        handler.wfile.flush()
        handler.rfile.read(1)

    double.answers = [drip]
    with (
        SchemaRegistry(
            {"schema.registry.url": double.url, "http.read.timeout.ms": 3000, "max.retries": 0},
            clock=lambda: float(next(times) * 5),
        ) as registry,
        pytest.raises(RegistryUnavailableError, match=r"longer than http.read.timeout.ms, 3000 ms"),
    ):
        registry.subjects()


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_the_double_refuses_other_requests_as_a_registry_does(
    double: TestRegistry, method: str
) -> None:
    """A client that sets a level or deletes a subject gets an error of the registry's own."""
    connection = HTTPConnection(double.url.removeprefix("http://"))
    connection.request(method, "/config/t-value", body=b"{}")
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["error_code"]) == (404, 404)
    connection.close()
    assert double.paths == [f"{method} /config/t-value"]


def test_a_redirect_is_not_followed(registry: SchemaRegistry, double: TestRegistry) -> None:
    """A login would go to another place."""
    double.answers = [(302, b"")]
    with pytest.raises(RegistryRefusedError, match="status 302"):
        registry.subjects()


def test_all_faults_of_the_settings_are_told() -> None:
    """Unknown names with a hint, bad values, no URL, and settings that exclude each other."""
    with pytest.raises(ConfigError) as caught:
        SchemaRegistry(
            {
                "url": "http://a",
                "max.retrie": 3,
                "cache.capacity": 0,
                "basic.auth.user.info": "a:b",
                "bearer.auth.token": "t",
                "key.subject.name.strategy": "Other",
                "ssl.key.location": "k.pem",
            }
        )
    told = "\n".join(caught.value.faults)
    for part in (
        "url: no such setting; say schema.registry.url",
        "did you mean max.retries?",
        "cache.capacity: 0 is out of range",
        "give one of them",
        "'Other' is not one of",
        "ssl.key.location: give ssl.keystore.location too",
    ):
        assert part in told


@pytest.mark.parametrize(
    "url", ["localhost:8081", "ftp://a", "http://", "http://a:b:c", "http://[a"]
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    """The fault shows it without a password."""
    with pytest.raises(ConfigError, match=r"schema.registry.url: "):
        SchemaRegistry(schema_registry_url=url)


def test_a_truststore_that_cannot_be_read_is_named() -> None:
    """The fault names the setting, before anything is sent."""
    with (
        SchemaRegistry(
            schema_registry_url="https://localhost:1", ssl_truststore_location="/none.pem"
        ) as registry,
        pytest.raises(ConfigError, match=r"ssl.truststore.location: /none.pem"),
    ):
        registry.subjects()


def test_the_largest_schema_fits_into_an_answer() -> None:
    """The limits of a schema and of an answer go together."""
    from tailrace.schemas.schema import TEXT_BYTES_MAX

    assert registry_http.ANSWER_BYTES_MAX > 2 * TEXT_BYTES_MAX
