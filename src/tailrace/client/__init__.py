"""Kafka clients: one that reads, one that administers, and the producer.

    nodes                        connections that never wait, with TLS, SASL and throttling
    config                       how all clients get to their brokers
    steps, routes                requests without I/O, and which broker gets them
    brokers, metadata            one thread waits for the connections; nothing runs in the
                                 background
    fetcher, follower            records of one range, and of many partitions as they come
    admin                        administration, on threads and on an event loop
    producer                     sends records; imported only where records are produced

Not here: members of consumer groups. The broker process uses neither client.

A name below loads its module when it is first used: a command that lists topics needs no codec.

Invariant: a batch that is read has passed `Batch.check` before it leaves this package.
"""

from importlib import import_module

TYPE_CHECKING = False
"""A copy of `typing.TYPE_CHECKING`, as in `tailrace`."""

if TYPE_CHECKING:
    from tailrace.client.brokers import RemoteBroker
    from tailrace.client.config import BrokerAddress, parse_bootstrap
    from tailrace.client.errors import (
        RemoteFatalError,
        RemoteRetriableError,
        UnreachableBrokerError,
        UnsupportedBrokerError,
    )
    from tailrace.client.fetcher import fetch_batches, fetch_pieces
    from tailrace.client.metadata import ClusterReader
    from tailrace.client.nodes import AuthenticationError

__all__ = [
    "AuthenticationError",
    "BrokerAddress",
    "ClusterReader",
    "RemoteBroker",
    "RemoteFatalError",
    "RemoteRetriableError",
    "UnreachableBrokerError",
    "UnsupportedBrokerError",
    "fetch_batches",
    "fetch_pieces",
    "parse_bootstrap",
]

_MODULES = {
    "AuthenticationError": "nodes",
    "BrokerAddress": "config",
    "ClusterReader": "metadata",
    "RemoteBroker": "brokers",
    "fetch_batches": "fetcher",
    "fetch_pieces": "fetcher",
    "parse_bootstrap": "config",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tailrace.client' has no attribute {name!r}")
    return getattr(import_module(f"tailrace.client.{_MODULES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return __all__
