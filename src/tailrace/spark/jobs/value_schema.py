"""Schemas of JSON values, as people write them: Spark's DDL or JSON, to Arrow's types."""

import json
from typing import TYPE_CHECKING, Any

from tailrace.errors import UNEXPECTED_JSON, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


def schema_json(text: str) -> str:
    """A schema in Spark's DDL or JSON, as Spark's JSON.

    Raises:
        ConfigError: it is neither.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        if text.lstrip().startswith("{"):
            return str(StructType.fromJson(json.loads(text)).json())
        return str(StructType.fromDDL(text).json())
    except (PySparkException, *UNEXPECTED_JSON) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError([f"value_schema: neither DDL nor JSON of Spark: {reason}"]) from error


def arrow_type(text: str) -> "pa.StructType":
    """The Arrow type of a schema in Spark's JSON.

    Raises:
        ConfigError: it has types that JSON does not have.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    kind = pa.struct(list(to_arrow_schema(StructType.fromJson(json.loads(text)))))
    faults = [
        f"value_schema: {path} is {found}, which has no form in JSON"
        for path, found in _leaf_types("", kind)
        if pa.types.is_map(found) or pa.types.is_binary(found) or pa.types.is_duration(found)
    ]
    if faults or not len(kind):
        raise ConfigError(faults or ["value_schema: name at least one column"])
    return kind


def _leaf_types(path: str, kind: Any) -> "Iterator[tuple[str, pa.DataType]]":  # noqa: ANN401
    import pyarrow as pa

    if pa.types.is_struct(kind):
        for each in kind:
            yield from _leaf_types(f"{path}.{each.name}".lstrip("."), each.type)
    elif pa.types.is_list(kind):
        yield from _leaf_types(f"{path}[]", kind.value_type)
    else:
        yield path, kind
