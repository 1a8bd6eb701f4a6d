"""Two Kafka clients: a small blocking one that reads and administers, and the producer.

    nodes                        connections that never wait, with TLS, SASL and throttling
    config                       how both clients get to their brokers
    brokers, metadata            one thread waits for the connections; nothing runs in the
                                 background
    fetcher, follower            records of one range, and of many partitions as they come
    topics, configs, groups,     administration, one module for a kind of thing: functions that take
    offsets, transactions        a `ClusterReader`
    producer                     sends records; imported only where records are produced

Not here: members of consumer groups. The broker process uses neither client.

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
