"""Kafka's log in Python: a broker, the log's files, and topics as Spark DataFrames.

Importing this costs next to nothing; each name below loads its room when it is first used.
"""

from importlib import import_module

TYPE_CHECKING = False
"""A copy of `typing.TYPE_CHECKING`: importing `typing` takes longer than this whole module."""

if TYPE_CHECKING:
    from tailrace.broker import Broker
    from tailrace.client.producer import AsyncProducer, Producer
    from tailrace.errors import CorruptionError, FatalError, RetriableError, TailraceError
    from tailrace.reading import Log, list_partitions, open_log

__all__ = [
    "AsyncProducer",
    "Broker",
    "CorruptionError",
    "FatalError",
    "Log",
    "Producer",
    "RetriableError",
    "TailraceError",
    "list_partitions",
    "open_log",
]
__version__ = "0.1.0"

_ROOMS = {
    "AsyncProducer": "client.producer",
    "Broker": "broker",
    "Log": "reading",
    "Producer": "client.producer",
    "list_partitions": "reading",
    "open_log": "reading",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tailrace' has no attribute {name!r}")
    return getattr(import_module(f"tailrace.{_ROOMS.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return __all__
