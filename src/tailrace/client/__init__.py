"""Two Kafka clients: a small blocking one that reads, and the producer.

    connection, metadata, fetcher, admin   reads and creates topics, for Spark tasks and for tools:
                                           sockets block, one request is under way at a time, and
                                           nothing runs in the background
    nodes, producer                        connections that never wait, with TLS and SASL, and what
                                           is sent over them; imported only by who produces

Not here: consumer groups. The reader has no TLS and no SASL. The broker's own traffic comes neither
way.

Invariant: a batch that is read has passed `Batch.check` before it leaves this room.
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
