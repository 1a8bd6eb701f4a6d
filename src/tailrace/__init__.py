"""Kafka's log in Python: a broker, the log's files, and topics as Spark DataFrames.

Importing this costs next to nothing; each name below loads its room when it is first used.
"""

from importlib import import_module

TYPE_CHECKING = False
"""A copy of `typing.TYPE_CHECKING`: importing `typing` takes longer than this whole module."""

if TYPE_CHECKING:
    from tailrace.broker import Broker
    from tailrace.broker.keywords import BrokerSettings
    from tailrace.client.admin import Admin, AsyncAdmin
    from tailrace.client.consumer import AsyncConsumer, Consumer, ConsumerRecord
    from tailrace.client.nodes.oauth import OAuthToken
    from tailrace.client.producer import AsyncProducer, Producer
    from tailrace.errors import CorruptionError, FatalError, RetriableError, TailraceError
    from tailrace.model import TopicPartition
    from tailrace.reading import Log, list_partitions, open_log
    from tailrace.records.codecs import limit_decompression

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "Broker",
    "BrokerSettings",
    "Consumer",
    "ConsumerRecord",
    "CorruptionError",
    "FatalError",
    "Log",
    "OAuthToken",
    "Producer",
    "RetriableError",
    "TailraceError",
    "TopicPartition",
    "limit_decompression",
    "list_partitions",
    "open_log",
]
__version__ = "0.1.0"

_ROOMS = {
    "Admin": "client.admin",
    "AsyncAdmin": "client.admin",
    "AsyncConsumer": "client.consumer",
    "AsyncProducer": "client.producer",
    "Broker": "broker",
    "BrokerSettings": "broker.keywords",
    "Consumer": "client.consumer",
    "ConsumerRecord": "client.consumer",
    "Log": "reading",
    "OAuthToken": "client.nodes.oauth",
    "Producer": "client.producer",
    "TopicPartition": "model",
    "limit_decompression": "records.codecs",
    "list_partitions": "reading",
    "open_log": "reading",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tailrace' has no attribute {name!r}")
    return getattr(import_module(f"tailrace.{_ROOMS.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return __all__
