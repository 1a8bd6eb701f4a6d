"""The formats of keys and values that a command or a data source takes, and their schemas.

    avro, json, protobuf                       after Confluent's header, with a registry or a file
    plain-avro, plain-json, plain-protobuf     nothing but the value, with a file

Not here: how values are shown (`shown`) or become columns (`columns`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tailrace.schemas.deserializers import SchemaDeserializer, ValueFormat
from tailrace.schemas.errors import SchemaError
from tailrace.schemas.registry import SchemaRegistry
from tailrace.schemas.schema import ResolvedSchema, SchemaType, read_schema_file
from tailrace.values import dataclass, field, replace

FORMATS: Final = {
    f"{'plain-' * is_plain}{kind.value.lower()}": ValueFormat(type=kind, is_plain=is_plain)
    for is_plain in (False, True)
    for kind in SchemaType
}
"""Formats by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Settings and schema to decode keys or values, as a value for any process."""

    form: ValueFormat
    registry: Mapping[str, str] | None = field(default=None, repr=False)
    """Settings of the registry; there may be a password among them."""
    schema: ResolvedSchema | None = None
    """The schema that values are read with; None: that of each value's id."""
    message: str | None = None
    """A message of Protobuf; None: the first one of the schema."""

    def deserializer(self, *, is_for_columns: bool = False) -> SchemaDeserializer:
        """A deserializer, with a client of the registry of its own.

        Raises:
            ConfigError: the settings of the registry have faults.
            SchemaError: the schema cannot be used, or there is none.
            MissingExtraError: packages of the extra are not installed.
        """
        return SchemaDeserializer(
            None if self.registry is None else SchemaRegistry(self.registry),
            self.form,
            self.schema,
            message=self.message,
            is_for_columns=is_for_columns,
        )


def plan_decoding(
    form: ValueFormat, *, registry: Mapping[str, str] | None, schema_file: str | None
) -> Decoding:
    """The decoding of values of a format, with the schema of a file if one is named.

    A file is a path, or `PATH:MESSAGE` for a message of Protobuf that is not the first one.

    Raises:
        SchemaError: the file cannot be read or has a schema of another type; there is neither a
            registry nor a file; the values are plain and there is no file.
    """
    name = next(name for name, each in FORMATS.items() if each == form)
    if schema_file is None:
        if form.is_plain and form.type is not SchemaType.JSON:
            raise SchemaError(f"{name} needs a schema file: its values do not name their schema")
        if not form.is_plain and registry is None:
            raise SchemaError(f"{name} needs a schema registry or a schema file")
        return Decoding(form=form, registry=registry)
    path, message = _split(schema_file)
    schema = read_schema_file(path)
    if schema.type is not form.type:
        raise SchemaError(f"{path}: the schema is {schema.type.title}, and the format is {name}")
    return Decoding(
        form=form, registry=registry, schema=ResolvedSchema(schema=schema), message=message
    )


def with_latest(decoding: Decoding, subject: str) -> Decoding:
    """The same with the latest schema of a subject, unless it has a schema.

    Raises:
        SchemaError: the subject has a schema of another type.
        RegistryRefusedError: there is no such subject, or the registry refuses this client.
        RegistryUnavailableError: no URL answered.
    """
    if decoding.schema is not None or decoding.registry is None:
        return decoding
    with SchemaRegistry(decoding.registry) as registry:
        latest = registry.latest(subject)
        if latest.schema.type is not decoding.form.type:
            raise SchemaError(
                f"subject {subject} is {latest.schema.type.title}, and the format is "
                f"{decoding.form.type.title}"
            )
        # Resolved once, by the driver: executors that each ask for "latest" could get two versions,
        # and with them two types of one column.
        return replace(decoding, schema=registry.resolve(latest.schema))


def _split(text: str) -> tuple[str, str | None]:
    """Path and message of `PATH:MESSAGE`."""
    path, colon, message = text.rpartition(":")
    # A path may have a colon of its own, so a file of the whole name wins.
    if colon and path.endswith(".proto") and not Path(text).exists():
        return path, message
    return text, None
