"""Serializers and deserializers together with a registry, and with files."""

import json
from pathlib import Path
from typing import Any

import pytest

from tailrace import Consumer, Producer
from tailrace.client.producer.plugins import serialize
from tailrace.errors import ConfigError
from tailrace.schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    RegistryRefusedError,
    RegistryUnavailableError,
    Schema,
    SchemaError,
    SchemaRegistry,
    SchemaType,
    UndecodableError,
)
from tailrace.testing.broker import TestBroker
from tailrace.testing.registry import TestRegistry
from tests.unit.schemas.samples import (
    AVRO,
    FLIGHT_VALUE,
    JSON,
    PERSON_VALUE,
    PROTO,
    proto_file,
    write_schemas,
)

INT, LONG = '"int"', '"long"'


def client(double: TestRegistry, **settings: Any) -> SchemaRegistry:
    """A client with further settings."""
    return SchemaRegistry(schema_registry_url=double.url, max_retries=0, **settings)


def test_values_of_each_type_come_back(registry: SchemaRegistry) -> None:
    """Through the registry, with the id of the schema in front."""
    rows: list[tuple[Any, Any, Any]] = [
        (AvroSerializer(registry, AVRO, topic="a"), AvroDeserializer(registry), FLIGHT_VALUE),
        (JsonSchemaSerializer(registry, JSON, topic="j"), JsonSchemaDeserializer(registry),
         PERSON_VALUE),
    ]  # fmt: skip
    for serializer, deserializer, value in rows:
        data = serializer(value)
        assert data[:1] == b"\0"
        assert deserializer("t", data) == value
        assert (serializer(None), deserializer("t", None)) == (None, None)
    to_proto: Any = ProtobufSerializer(registry, PROTO, message="Flight", topic="p")
    from_proto: Any = ProtobufDeserializer(registry)
    message = from_proto("p", to_proto({"number": 17, "carrier": "UA"}))
    assert (message.number, message.carrier) == (17, "UA")


def test_plain_values_need_no_registry(tmp_path: Path) -> None:
    """Files on both sides, and neither header nor indexes."""
    files = write_schemas(tmp_path)
    rows: list[tuple[Any, Any, Any]] = [
        (AvroSerializer(schema=files["avsc"]), AvroDeserializer(schema=files["avsc"],
         is_plain=True), FLIGHT_VALUE),
        (JsonSchemaSerializer(schema=files["json"]),
         JsonSchemaDeserializer(schema=files["json"], is_plain=True), PERSON_VALUE),
    ]  # fmt: skip
    for serializer, deserializer, value in rows:
        assert deserializer("t", serializer(value)) == value
    to_proto: Any = ProtobufSerializer(schema=files["proto"])
    assert to_proto({"code": "EWR"}) == b"\n\x03EWR"
    from_proto: Any = ProtobufDeserializer(schema=files["proto"], is_plain=True)
    assert from_proto("t", b"\n\x03EWR").code == "EWR"
    assert JsonSchemaDeserializer(is_plain=True)("t", b"[1]") == [1]


def test_a_file_decodes_values_with_an_id_when_no_registry_is_left(
    registry: SchemaRegistry,
) -> None:
    """The id is passed over."""
    data = AvroSerializer(registry, AVRO, topic="t")(FLIGHT_VALUE)
    assert AvroDeserializer(schema=AVRO)("t", data) == FLIGHT_VALUE
    proto: Any = ProtobufSerializer(registry, PROTO, message="Flight", topic="t")
    message: Any = ProtobufDeserializer(schema=PROTO)("t", proto({"number": 5}))
    assert message.number == 5


@pytest.mark.parametrize(
    ("strategy", "is_key", "subject"),
    [
        ("topic", False, "t-value"),
        ("TopicNameStrategy", True, "t-key"),
        ("record", False, "air.Flight"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", True, "air.Flight"),
        ("topic-record", False, "t-air.Flight"),
    ],
)
def test_subjects_follow_the_strategy(
    double: TestRegistry, strategy: str, *, is_key: bool, subject: str
) -> None:
    """Confluent's three, by class name or in short; for keys and for values."""
    part = "key" if is_key else "value"
    with client(double, **{f"{part}_subject_name_strategy": strategy}) as registry:
        AvroSerializer(registry, AVRO, is_key=is_key).serialize("t", FLIGHT_VALUE)
    assert list(double.subjects) == [subject]


def test_a_subject_that_needs_a_topic_says_so(double: TestRegistry) -> None:
    """And one that needs a name."""
    with client(double) as registry, pytest.raises(SchemaError, match="give the serializer its"):
        AvroSerializer(registry, AVRO)(FLIGHT_VALUE)
    with (
        client(double, value_subject_name_strategy="record") as registry,
        pytest.raises(SchemaError, match="needs a schema with a name"),
    ):
        AvroSerializer(registry, INT)(5)


def test_without_registration_the_schema_has_to_be_there(double: TestRegistry) -> None:
    """`auto.register.schemas=false` looks it up."""
    with client(double, auto_register_schemas=False) as registry:
        serializer = AvroSerializer(registry, INT, topic="t")
        with pytest.raises(RegistryRefusedError, match="Not found"):
            serializer(5)
        schema_id = double.add("t-value", INT)
        assert serializer(5) == schema_id.to_bytes(5, "big") + b"\x0a"
    assert double.subjects == {"t-value": [schema_id]}


def test_the_latest_version_is_written_if_asked_for(double: TestRegistry) -> None:
    """`use.latest.version=true` needs no schema, and registers none."""
    double.add("t-value", INT)
    with client(double, use_latest_version=True, latest_cache_ttl_sec=0) as registry:
        serializer = AvroSerializer(registry, topic="t")
        assert serializer(5) == b"\0\0\0\0\1\x0a"
        double.add("t-value", json.dumps({"type": "array", "items": "int"}))
        assert serializer([5]) == b"\0\0\0\0\2\x02\x0a\0"
        with pytest.raises(SchemaError, match="is Avro, and the serializer is for JSON Schema"):
            JsonSchemaSerializer(registry, topic="t")({})
    assert not any(each.startswith("POST") for each in double.paths)


def test_the_registry_is_asked_once_for_each_topic(
    registry: SchemaRegistry, double: TestRegistry
) -> None:
    """And before the first value, by `prepare`."""
    serializer = AvroSerializer(registry, INT)
    serializer.prepare("a")
    serializer.prepare("b")
    asked = len(double.requests)
    for _ in range(3):
        serializer.serialize("a", 1)
        serializer.serialize("b", 1)
    assert len(double.requests) == asked == 2
    data = serializer.serialize("a", 1)
    deserializer = AvroDeserializer(registry)
    for _ in range(3):
        deserializer("a", data)
    assert len(double.requests) == 3


def test_a_reader_with_a_schema_sees_its_own_fields(registry: SchemaRegistry) -> None:
    """Whatever version a value was written with."""

    def flight(*fields: dict[str, Any]) -> str:
        return json.dumps({"type": "record", "name": "F", "fields": fields})

    number, gate = {"name": "n", "type": "int"}, {"name": "g", "type": "string", "default": "?"}
    old = AvroSerializer(registry, flight(number), topic="a")({"n": 1})
    new = AvroSerializer(registry, flight(number, gate), topic="a")({"n": 2, "g": "B"})
    reader = AvroDeserializer(registry, flight(number, gate))
    assert [reader("a", each) for each in (old, new)] == [{"n": 1, "g": "?"}, {"n": 2, "g": "B"}]


def test_a_generated_class_is_registered_with_what_it_imports(
    registry: SchemaRegistry, double: TestRegistry
) -> None:
    """Its imports under their own names, Google's not at all; values become messages of it."""
    imported = (
        'syntax = "proto3"; package a; import "google/protobuf/empty.proto"; '
        "message A { int32 n = 1; google.protobuf.Empty e = 2; }"
    )
    text = 'syntax = "proto3"; import "lib/a.proto"; message X {} message B { a.A a = 1; }'
    file = proto_file(text, **{"lib/a_proto": imported})
    kind = file.named("B")
    serializer = ProtobufSerializer(registry, kind, topic="t")
    data = serializer(kind(a={"n": 5}))
    assert list(double.subjects) == ["lib/a.proto", "t-value"]
    found: Any = ProtobufDeserializer(registry, kind)("t", data)
    assert isinstance(found, kind)
    assert found.a.n == 5
    other: Any = ProtobufDeserializer(registry)("t", data)
    assert other.a.n == 5
    with pytest.raises(UndecodableError, match="the message is a B, and a X is wanted"):
        ProtobufDeserializer(registry, file.named("X"))("t", data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", r"topic t: 0 bytes have no room"),
        (b"hello", r"topic t: the first byte is 104"),
        (b"\0\0\0\0\x63x", r"topic t, schema 99: the registry has no schema of this id"),
        (b"\0\0\0\0\2x", r"topic t, schema 2: the schema is JSON Schema, and Avro is wanted"),
        (b"\0\0\0\0\3x", r"topic t, schema 3: this is no Avro schema"),
        (b"\0\0\0\0\1\x02\x02", r"topic t, schema 1: 1 of 2 bytes are left"),
    ],
)
def test_a_record_that_cannot_be_decoded_says_why(
    registry: SchemaRegistry, double: TestRegistry, data: bytes, reason: str
) -> None:
    """Each has one error of its own, with the topic and the id of its schema."""
    double.add("a", INT)
    double.add("b", "{}", schemaType="JSON")
    double.add("c", "nonsense")
    with pytest.raises(UndecodableError, match=reason):
        AvroDeserializer(registry)("t", data)
    assert AvroDeserializer(registry)("t", b"\0\0\0\0\1\x02") == 1


def test_a_registry_that_is_away_is_no_fault_of_a_record() -> None:
    """The same call may go through later."""
    with TestRegistry() as gone:
        nobody = gone
    with client(nobody) as registry, pytest.raises(RegistryUnavailableError):
        AvroDeserializer(registry)("t", b"\0\0\0\0\1\x02")


def test_a_refused_login_is_no_fault_of_a_record(
    registry: SchemaRegistry, double: TestRegistry
) -> None:
    """Neither for its schema nor for one that this refers to; afterwards the value is read."""
    double.add("part", INT)
    reference = {"name": "part", "subject": "part", "version": 1}
    schema_id = double.add("t-value", LONG, references=[reference])
    data, deserializer = schema_id.to_bytes(5, "big") + b"\x0a", AvroDeserializer(registry)
    double.fail(401)
    with pytest.raises(RegistryRefusedError, match="status 401"):
        deserializer("t", data)
    registry.schema(schema_id)
    double.fail(403)
    with pytest.raises(RegistryRefusedError, match="status 403"):
        deserializer("t", data)
    assert deserializer("t", data) == 5


def test_what_is_missing_is_told_when_it_is_made(registry: SchemaRegistry) -> None:
    """Nobody waits for the first record to learn that there is no schema."""
    with pytest.raises(SchemaError, match="needs a schema, unless"):
        AvroSerializer(registry)
    with pytest.raises(SchemaError, match="need a registry or a schema"):
        AvroDeserializer()
    with pytest.raises(SchemaError, match="plain values of Avro name no schema"):
        AvroDeserializer(registry, is_plain=True)
    with pytest.raises(SchemaError, match="this is no Avro schema"):
        AvroDeserializer(registry, "nonsense")
    with pytest.raises(SchemaError, match="the schema is Protobuf, and Avro is needed"):
        AvroSerializer(registry, Schema(type=SchemaType.PROTOBUF, text=""))
    with pytest.raises(TypeError, match="give a text, a Path or a Schema"):
        AvroSerializer(registry, 7)  # type: ignore[arg-type]


def test_clients_take_serializers_and_deserializers_for_several_topics() -> None:
    """Each topic has its subject; the registry is one of this process, without a socket."""
    registry = SchemaRegistry(schema_registry_url="mock://several-topics")
    with TestBroker() as broker:
        address = broker.bootstrap_servers
        serializer = AvroSerializer(registry, AVRO)
        with Producer(bootstrap_servers=address, value_serializer=serializer) as producer:
            for topic in ("flights", "charters"):
                producer.send(topic, FLIGHT_VALUE)
                producer.send_many(topic, [FLIGHT_VALUE]).raise_errors()
        other = SchemaRegistry(schema_registry_url="mock://several-topics")
        assert other.subjects() == ["flights-value", "charters-value"]
        with Consumer(
            bootstrap_servers=address, value_deserializer=AvroDeserializer(other)
        ) as consumer:
            consumer.assign([("flights", 0), ("charters", 0)])
            consumer.seek_to_beginning()
            found: list[object] = []
            while len(found) < 4:
                found += [each.value for each in consumer.poll(60)]
    assert found == [FLIGHT_VALUE] * 4


def test_a_mock_registry_refuses_as_a_registry_does() -> None:
    """An absent subject is missing, and its scope is its own; no other URL goes with it."""
    registry = SchemaRegistry(schema_registry_url="mock://one")
    registry.register("t-value", Schema(type=SchemaType.AVRO, text=INT))
    assert SchemaRegistry(schema_registry_url="mock://two").subjects() == []
    with pytest.raises(RegistryRefusedError, match=r"mock://one/.*Not found.*404") as refused:
        registry.latest("nonsuch")
    assert refused.value.is_missing
    with pytest.raises(ConfigError, match="names the only registry"):
        SchemaRegistry(schema_registry_url="mock://one,http://localhost:1")


def test_the_producer_takes_a_serializer(registry: SchemaRegistry) -> None:
    """Records arrive with the header; an error of the serializer is the record's."""
    deserializer = AvroDeserializer(registry)
    with TestBroker() as broker:
        serializer = AvroSerializer(registry, AVRO, topic="flights")
        with Producer(
            bootstrap_servers=broker.bootstrap_servers, value_serializer=serializer
        ) as producer:
            producer.send("flights", FLIGHT_VALUE)
        [record] = broker.log("flights").records()
        assert deserializer("flights", record.value) == FLIGHT_VALUE
    with pytest.raises(Exception, match="value_serializer failed on a int"):
        serialize(7, serializer, setting="value_serializer")
