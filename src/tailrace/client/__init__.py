"""Kafka clients: one that reads, one that administers, and the producer.

    nodes                        connections that never wait, with TLS, SASL and throttling
    config, security, logins     how all clients get to their brokers
    drive                        who waits for the connections: threads, or an event loop
    calls, routes                the requests of an operation, and which broker gets them
    cluster_engine, reader       a client that asks a cluster; nothing runs in the background
    tailer                       records of one range, and of many partitions as they come
    admin                        administration, on threads and on an event loop
    producer, consumer           send and read records

The broker process uses none of them.

A name below loads its module when it is first used: a command that lists topics needs no codec.

Invariant: a batch that is read has passed `Batch.check` before it leaves this package.
"""

from importlib import import_module

TYPE_CHECKING = False
"""A copy of `typing.TYPE_CHECKING`, as in `tailrace`."""

if TYPE_CHECKING:
    from tailrace.client.config import BrokerAddress, parse_bootstrap
    from tailrace.client.errors import (
        RemoteFatalError,
        RemoteRetriableError,
        UnreachableBrokerError,
        UnsupportedBrokerError,
    )
    from tailrace.client.nodes import AuthenticationError
    from tailrace.client.reader import ClusterReader, RemoteBroker
    from tailrace.client.tailer import fetch_batches, fetch_pieces

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
    "ClusterReader": "reader",
    "RemoteBroker": "reader",
    "fetch_batches": "tailer",
    "fetch_pieces": "tailer",
    "parse_bootstrap": "config",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tailrace.client' has no attribute {name!r}")
    return getattr(import_module(f"tailrace.client.{_MODULES.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return __all__
