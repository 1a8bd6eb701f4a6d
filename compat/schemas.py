"""Values by schemas, written and read by Confluent's own serializers for Python and by ours.

Each writes what the other reads, with the registry of our tests between them; the ids in the bytes
are those that both got there. Confluent's packages are in an environment of their own.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from google.protobuf import json_format

from compat.artifacts import cache_directory
from compat.report import Report
from tailrace.errors import FatalError
from tailrace.schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    SchemaRegistry,
)
from tailrace.testing.registry import TestRegistry

BUILD_SECONDS_MAX: Final = 600
RUN_SECONDS_MAX: Final = 120

_OTHERS: Final = Path(__file__).with_name("others")
_PROGRAM: Final = _OTHERS / "confluent_schemas.py"
_VERSIONS: Final = _OTHERS / "confluent-schemas.txt"

AVRO_VALUE: Final = {
    "number": 17, "departed": "2013-01-01T05:17:00.123000+00:00", "fare": "129.90", "carrier": "UA",
}  # fmt: skip
TYPES_VALUE: Final = {
    "text": "Zürich ✈", "flag": True, "number": 0.1, "long": -(1 << 60), "class": "LAST",
    "list": [3, -1, 1 << 30], "map": {"a": None, "ü": 5},
    "leg": {"to": "IAH", "next": {"to": "EWR", "next": None}},
}  # fmt: skip
JSON_VALUE: Final = {"name": "Ann", "age": 7}
UNICODE_VALUE: Final = {"name": 'Zoë "✈" \u2028', "age": -1, "more": {"list": [1.5, True, None]}}
FLIGHT_VALUE: Final = {"number": 17, "leg": {"to": "IAH", "at": "2013-01-01T05:17:00Z"}}
INVOICE_VALUE: Final = {"order": {"number": 17}, "paid": True}
ROOTS: Final[Mapping[str, Any]] = {
    "union": INVOICE_VALUE,
    "array": [INVOICE_VALUE, INVOICE_VALUE],
}
"""Values of roots of Avro that are made of the names of references."""
ALIKE_VALUE: Final = {"home": "Bern", "work": 3011}
VALUES: Final[Mapping[str, Any]] = {
    "avro": AVRO_VALUE,
    "null": AVRO_VALUE | {"carrier": None},
    "types": TYPES_VALUE,
    "json": JSON_VALUE,
    "unicode": UNICODE_VALUE,
    "protobuf": FLIGHT_VALUE,
    "nested": FLIGHT_VALUE["leg"],
    **ROOTS,
    "alike": ALIKE_VALUE,
}


def check(report: Report, environment: Mapping[str, str]) -> None:
    """Both directions, each type.

    Raises:
        FatalError: Confluent's packages cannot be installed, or their program fails.
    """
    python = _python(cache_directory(environment))
    with TestRegistry() as double, SchemaRegistry(schema_registry_url=double.url) as registry:
        theirs = _theirs(python, "write", double.url, VALUES)
        report.check(
            "Confluent's serializers write, ours read", [*_differing(_read(registry, theirs))]
        )
        ours = _written(registry, theirs)
        report.check(
            "our serializers write, Confluent's read",
            [*_differing(_theirs(python, "read", double.url, ours))],
        )
        report.check(
            "both write the same bytes",
            [
                f"{name}: {ours[name]} and {theirs[name]}"
                for name in ours
                if ours[name] != theirs[name]
            ],
        )


def _read(registry: SchemaRegistry, theirs: Mapping[str, str]) -> dict[str, Any]:
    """Values of bytes that the others wrote."""
    found: dict[str, Any] = {}
    for name in ("avro", "null", "types"):
        avro: Any = AvroDeserializer(registry)("t", bytes.fromhex(theirs[name]))
        if name != "types":
            avro |= {"departed": avro["departed"].isoformat(), "fare": str(avro["fare"])}
        found[name] = avro
    for name in ROOTS:
        found[name] = AvroDeserializer(registry)("t", bytes.fromhex(theirs[name]))
    for name in ("json", "unicode", "alike"):
        found[name] = JsonSchemaDeserializer(registry)("t", bytes.fromhex(theirs[name]))
    for name in ("protobuf", "nested"):
        message: Any = ProtobufDeserializer(registry)("t", bytes.fromhex(theirs[name]))
        found[name] = json_format.MessageToDict(message)
    return found


def _written(registry: SchemaRegistry, theirs: Mapping[str, str]) -> dict[str, str]:
    """The same values, written with the schemas that the others have registered."""

    def schema(name: str) -> Any:  # noqa: ANN401 - a schema of any type
        return registry.schema(int(theirs[name][2:10], 16))

    avro = AVRO_VALUE | {
        "departed": datetime.fromisoformat(str(AVRO_VALUE["departed"])),
        "fare": Decimal("129.90"),
    }
    serializers: dict[str, tuple[Any, Mapping[str, Any]]] = {
        "avro": (AvroSerializer(registry, schema("avro")), avro),
        "null": (AvroSerializer(registry, schema("null")), avro | {"carrier": None}),
        "types": (AvroSerializer(registry, schema("types")), TYPES_VALUE),
        "json": (JsonSchemaSerializer(registry, schema("json")), JSON_VALUE),
        "unicode": (JsonSchemaSerializer(registry, schema("unicode")), UNICODE_VALUE),
        **{name: (AvroSerializer(registry, schema(name)), ROOTS[name]) for name in ROOTS},
        "alike": (JsonSchemaSerializer(registry, schema("alike")), ALIKE_VALUE),
        "protobuf": (
            ProtobufSerializer(registry, schema("protobuf"), message="air.Flight"), FLIGHT_VALUE,
        ),
        "nested": (
            ProtobufSerializer(registry, schema("nested"), message="air.Flight.Leg"),
            VALUES["nested"],
        ),
    }  # fmt: skip
    return {
        name: serializer.serialize(f"theirs-{name}", value).hex()
        for name, (serializer, value) in serializers.items()
    }


def _differing(found: Mapping[str, Any]) -> Iterator[str]:
    for name, value in VALUES.items():
        if found.get(name) != value:
            yield f"{name}: {found.get(name)} instead of {value}"


def _theirs(python: Path, command: str, url: str, given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        told = subprocess.run(  # noqa: S603 - the environment that was made here
            [str(python), "-W", "ignore", str(_PROGRAM), command, url],
            input=json.dumps(given), capture_output=True, text=True, check=False,
            timeout=RUN_SECONDS_MAX,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise FatalError(
            f"Confluent's serializers have not ended in {RUN_SECONDS_MAX} s"
        ) from error
    if told.returncode:
        raise FatalError(f"Confluent's serializers failed: {told.stderr[-500:]}")
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def _python(cache: Path) -> Path:
    """The Python of the environment with Confluent's packages, made if it is not there."""
    place = cache / f"confluent-schemas-{sys.version_info.major}.{sys.version_info.minor}"
    mark, python = place / "versions.txt", place / "bin" / "python"
    if not mark.exists() or mark.read_text() != _VERSIONS.read_text():
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(place)],
            [str(python), "-m", "pip", "install", "--quiet", "--requirement", str(_VERSIONS)],
        ):
            told = subprocess.run(  # noqa: S603 - Python's own tools
                command, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS_MAX
            )
            if told.returncode:
                raise FatalError(f"{command[2]} failed: {told.stderr[-500:]}")
        mark.write_text(_VERSIONS.read_text())
    return python
