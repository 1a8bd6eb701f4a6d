"""Two Kafka clients: a small blocking one that reads, and the producer.

    nodes                                connections that never wait, with TLS, SASL and throttling
    settings, config                     how both clients get to their brokers
    brokers, metadata, fetcher, admin    reads and creates topics, for Spark tasks and for tools:
                                         one thread waits for the connections, and nothing runs in
                                         the background
    producer                             sends records; imported only where records are produced

Not here: consumer groups. The broker process uses neither client.

Invariant: a batch that is read has passed `Batch.check` before it leaves this package.
"""

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
