"""Schemas of JSON values, as people write them: Spark's DDL or JSON, to Arrow's types."""

import json
from typing import TYPE_CHECKING, Any, Final

from tailrace.errors import UNEXPECTED_JSON, ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

_LEFT_OUT: Final = "leave it out, since the column value has every byte"

_INSTEAD: Final = {
    "binary": "use string",
    "char": "use string",
    "daytimeinterval": "use string",
    "interval": "use string",
    "map": "use a struct with the keys that you need",
    "struct": "name at least one column in it",
    "time": "use string",
    "varchar": "use string",
    "yearmonthinterval": "use string",
}
"""Advice for a type that typed columns cannot have, by Spark's name of the type."""


def schema_json(text: str) -> str:
    """A schema in Spark's DDL or JSON, as Spark's JSON; every column may be null there.

    Raises:
        ConfigError: it is neither.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        if text.lstrip().startswith("{"):
            return str(_nullable(StructType.fromJson(json.loads(text))).json())
        return str(_nullable(StructType.fromDDL(text)).json())
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage())
        raise ConfigError([f"value_schema: neither DDL nor JSON of Spark: {reason}"]) from error
    except (PySparkException, *UNEXPECTED_JSON) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError([f"value_schema: neither DDL nor JSON of Spark: {reason}"]) from error


def arrow_type(text: str) -> "pa.StructType":
    """The Arrow type of a schema in Spark's JSON.

    Raises:
        ConfigError: it has types that typed columns cannot have, or a name twice; all of them.
    """
    from pyspark.sql.types import StructType

    faults: list[str] = []
    kind = _arrow_struct("", StructType.fromJson(json.loads(text)), faults)
    if not len(kind):
        faults.append("value_schema: name at least one column")
    if faults:
        raise ConfigError(faults)
    return kind


def _nullable(kind: Any) -> Any:  # noqa: ANN401 - PySpark's types are Any here
    """A type whose columns may be null, as `from_json` of Spark takes it: values miss fields."""
    from pyspark.sql.types import ArrayType, StructField, StructType

    if isinstance(kind, StructType):
        return StructType(
            [StructField(each.name, _nullable(each.dataType), True, each.metadata) for each in kind]  # noqa: FBT003 - Spark's
        )
    return ArrayType(_nullable(kind.elementType)) if isinstance(kind, ArrayType) else kind


def _arrow_struct(path: str, kind: "StructType", faults: list[str]) -> "pa.StructType":
    import pyarrow as pa

    known: dict[str, str] = {}
    for name in kind.names:
        # Spark finds columns by their names in any case, and then finds two.
        if name.lower() in known:
            faults.append(
                f"value_schema: {_below(path, name)} is the name of two columns in Spark, beside "
                f"{known[name.lower()]}; keep one of them"
            )
        known[name.lower()] = name
    return pa.struct(
        [(each.name, _arrow(_below(path, each.name), each.dataType, faults)) for each in kind]
    )


def _arrow(path: str, kind: "DataType", faults: list[str]) -> "pa.DataType":
    """The Arrow type of one column; one of Spark's types without any is a fault."""
    import pyarrow as pa
    from pyspark.sql.types import ArrayType, DecimalType, StructType

    if isinstance(kind, StructType) and kind.names:
        return _arrow_struct(path, kind, faults)
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", _arrow(f"{path}[]", kind.elementType, faults)))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    found = {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }.get(kind.typeName())
    if found is None:
        instead = _INSTEAD.get(kind.typeName(), _LEFT_OUT)
        faults.append(
            f"value_schema: {path} is {kind.simpleString()}, which a typed column cannot be; "
            f"{instead}"
        )
        return pa.null()
    return found


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
