"""`TypedColumns`: keys and values of record batches as columns with the types of a schema.

The schema of each column is settled on the driver, by a file or by the latest version of a subject,
and sent to the tasks: all of a query have the same types, whatever is registered meanwhile. A value
that was written with another version is read as that schema has it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tailrace.errors import ConfigError, FatalError
from tailrace.schemas.errors import SchemaError
from tailrace.schemas.formats import Decoding, plan_decoding, with_latest
from tailrace.spark.options import Partitions, Selection, SourceOptions, Topics
from tailrace.spark.options.names import ERRORS
from tailrace.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

    from tailrace.schemas.columns import BadValue

_PLACE: Final = ("topic", "partition", "offset")
_FILES: Final = {"key": "keySchemaFile", "value": "schemaFile"}


class UndecodedError(FatalError, ValueError):
    """A key or value could not be decoded, and the query is to fail then (`mode=FAILFAST`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedColumns:
    """The decodings of some columns; sent from the driver to the tasks."""

    decodings: Mapping[str, Decoding]
    """By the name of the column; each has a schema."""
    is_strict: bool
    """Whether a value that cannot be decoded is an error."""

    def spark_types(self) -> "dict[str, DataType]":
        """The types of the decoded columns, and of the columns with their errors.

        Raises:
            ConfigError: a schema cannot be used; named by its option.
            MissingExtraError: packages of the extra are not installed.
        """
        if not self.decodings:
            return {}
        from pyspark.sql.pandas.types import from_arrow_type
        from pyspark.sql.types import StringType

        from tailrace.schemas.columns import plan_type

        found: dict[str, DataType] = {}
        for name, decoding in self.decodings.items():
            try:
                kind = plan_type(decoding).type
            except SchemaError as error:
                raise ConfigError([f"{name}Format: {error}"]) from error
            # Else a time without a zone, such as Avro's local-timestamp, would be one of the
            # session's zone.
            found[name] = from_arrow_type(kind, prefer_timestamp_ntz=True)
            found[ERRORS[name]] = StringType()
        return found

    def stored(self, columns: Iterable[str]) -> tuple[str, ...]:
        """The columns that have to be read for these."""
        # With the place of each record, which the error of a value names.
        wanted = dict.fromkeys(columns)
        errors = {error: name for name, error in ERRORS.items()}
        read = dict.fromkeys(errors.get(name, name) for name in wanted)
        return (*(read | dict.fromkeys(_PLACE)),) if self.decodings else tuple(wanted)

    def decode(
        self, batches: "Iterable[pa.RecordBatch]", columns: tuple[str, ...]
    ) -> "Iterator[pa.RecordBatch]":
        """Record batches with these columns, from those with the columns of `stored`.

        Raises:
            UndecodedError: a value cannot be decoded, and the query is to fail then.
            RegistryUnavailableError, RegistryRefusedError: the registry cannot be asked.
        """
        import pyarrow as pa

        from tailrace.schemas.columns import ColumnDecoder

        decoders = {
            name: ColumnDecoder(decoding)
            for name, decoding in self.decodings.items()
            if name in columns or ERRORS[name] in columns
        }
        for batch in batches:
            found = dict(zip(batch.schema.names, batch.columns, strict=True))
            for name, decoder in decoders.items():
                found[name], bad = decoder.decode(found[name])
                if bad and self.is_strict:
                    raise _error(batch, name, bad[0])
                reasons = dict(bad)
                found[ERRORS[name]] = pa.array(
                    [reasons.get(row) for row in range(batch.num_rows)], pa.string()
                )
            # In the order of the declared schema: PySpark compares that with the first batch as a
            # whole.
            yield pa.RecordBatch.from_arrays([found[name] for name in columns], names=columns)


def plan_typed(options: SourceOptions) -> TypedColumns:
    """Settle the decodings of a query; reads files and asks the registry.

    Raises:
        ConfigError: a file or a subject has no schema that can be used, or several topics are read
            and no subject is named; by the option.
        RegistryUnavailableError, RegistryRefusedError: the registry cannot be asked.
    """
    decodings, faults = {}, []
    for name, each in options.decoding.formats.items():
        try:
            planned = plan_decoding(
                each.form, registry=options.decoding.registry, schema_file=each.schema_file
            )
            if planned.schema is None:
                subject = each.subject or _subject(options.selection, name)
                # Here and in no task: a version that is registered meanwhile would give tasks other
                # types.
                planned = with_latest(planned, subject)
        except SchemaError as error:
            option = f"{name}Format" if each.schema_file is None else _FILES[name]
            faults.append(f"{option}: {error}")
            continue
        decodings[name] = planned
    if faults:
        raise ConfigError(faults)
    return TypedColumns(decodings=decodings, is_strict=options.decoding.is_strict)


def _subject(selection: Selection, column: str) -> str:
    """The subject of the one topic that is read."""
    match selection:
        case Topics((topic,)):
            return f"{topic}-{column}"
        case Partitions(partitions) if len({each.topic for each in partitions}) == 1:
            return f"{partitions[0].topic}-{column}"
        case _:
            # A DataFrame has one type for a column, and subjects are named after topics.
            raise SchemaError(
                f"the type of {column} follows from one subject, and several topics may be read; "
                f"name it by {column}Subject, or give {_FILES[column]}"
            )


def _error(batch: "pa.RecordBatch", column: str, bad: "BadValue") -> UndecodedError:
    topic, partition, offset = (
        batch.column(batch.schema.get_field_index(name))[bad.row].as_py() for name in _PLACE
    )
    return UndecodedError(
        f"{topic}-{partition} offset {offset}: {column}: {bad.reason}; mode=PERMISSIVE gives a null"
    )
