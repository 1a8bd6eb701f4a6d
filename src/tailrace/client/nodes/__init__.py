"""Non-blocking connections to the brokers of a cluster, for the producer and for readers.

    pool            the connections to all brokers, with Kafka's pauses and time limits
    connection      one of them: requests out, answers in
    handshake       versions and login, before the first request; `versions` chooses
    sasl, kerberos, oauth, oidc    the login
    security.tls                   encryption

Everything is driven by `ConnectionPool.poll`, from one thread or event loop.

Not here: which requests go to which broker, retries, and waiting for answers.
"""

from tailrace.client.errors import (
    AuthenticationError,
    DisconnectedError,
    MalformedAnswerError,
    NodeError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from tailrace.client.nodes.connection import Done, RequestOutcome
from tailrace.client.nodes.pool import (
    SILENT_S,
    ConnectionPool,
    Node,
    NodesStatistics,
    NodeStatistics,
)
from tailrace.client.nodes.sasl import Credentials, Login
from tailrace.client.retries import Backoff

__all__ = [
    "SILENT_S",
    "AuthenticationError",
    "Backoff",
    "ConnectionPool",
    "Credentials",
    "DisconnectedError",
    "Done",
    "Login",
    "MalformedAnswerError",
    "Node",
    "NodeError",
    "NodeStatistics",
    "NodesStatistics",
    "RequestOutcome",
    "RequestTimedOutError",
    "UnsupportedVersionError",
]
