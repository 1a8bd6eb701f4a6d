"""Kafka's log in Python: a broker, the log's files, and topics as Spark DataFrames.

Importing this costs next to nothing; each name below loads its room when it is first used.
"""

from typing import TYPE_CHECKING

from tailrace.errors import CorruptionError, FatalError, RetriableError, TailraceError

if TYPE_CHECKING:
    from tailrace.broker import Broker
    from tailrace.client.producer import AsyncProducer, Producer

__all__ = [
    "AsyncProducer",
    "Broker",
    "CorruptionError",
    "FatalError",
    "Producer",
    "RetriableError",
    "TailraceError",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name == "Broker":
        from tailrace.broker import Broker

        return Broker
    if name in {"AsyncProducer", "Producer"}:
        from tailrace.client import producer

        return getattr(producer, name)
    raise AttributeError(f"module 'tailrace' has no attribute {name!r}")
