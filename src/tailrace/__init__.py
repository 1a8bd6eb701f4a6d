"""Kafka's log in Python: a broker, the log's files, and topics as Spark DataFrames.

Importing this costs next to nothing; each name below loads its room when it is first used.
"""

from importlib import import_module

TYPE_CHECKING = False
"""As in `typing`, which takes longer to import than all of this."""

if TYPE_CHECKING:
    from tailrace.broker import Broker
    from tailrace.client.producer import AsyncProducer, Producer
    from tailrace.errors import CorruptionError, FatalError, RetriableError, TailraceError

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

_ROOMS = {"Broker": "broker", "AsyncProducer": "client.producer", "Producer": "client.producer"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tailrace' has no attribute {name!r}")
    return getattr(import_module(f"tailrace.{_ROOMS.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
