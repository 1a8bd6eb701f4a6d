"""A small blocking Kafka client that reads: for Spark tasks and for tools.

Not here: groups, transactions, TLS, SASL, and writing. Sockets block, one request is under way at
a time, and nothing runs in the background; the broker's own traffic does not come this way.

Invariant: a batch that leaves this room has passed `Batch.check`.
"""

from tailrace.client.connection import BrokerAddress, Connection, open_connection
from tailrace.client.errors import (
    RemoteFatalError,
    RemoteRetriableError,
    UnreachableBrokerError,
    UnsupportedBrokerError,
)
from tailrace.client.fetcher import fetch_batches
from tailrace.client.metadata import ClusterReader, parse_bootstrap

__all__ = [
    "BrokerAddress",
    "ClusterReader",
    "Connection",
    "RemoteFatalError",
    "RemoteRetriableError",
    "UnreachableBrokerError",
    "UnsupportedBrokerError",
    "fetch_batches",
    "open_connection",
    "parse_bootstrap",
]
