"""Non-blocking connections to the brokers of a cluster, for the producer and for readers.

`Nodes` opens them, sends requests and reads answers, keeps Kafka's rules about pauses, time limits
and the number of requests in flight, and is driven by `poll` from one thread or event loop.

Not here: which requests go to which broker, retries, and waiting for answers (`brokers`).
"""

from tailrace.client.errors import (
    AuthenticationError,
    DisconnectedError,
    MalformedAnswerError,
    NodeError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from tailrace.client.nodes.backoff import Backoff
from tailrace.client.nodes.link import Done, RequestOutcome
from tailrace.client.nodes.nodes import Nodes
from tailrace.client.nodes.sasl import Credentials, Login
from tailrace.client.nodes.state import Node, NodesConfig, NodesStatistics, NodeStatistics

__all__ = [
    "AuthenticationError",
    "Backoff",
    "Credentials",
    "DisconnectedError",
    "Done",
    "Login",
    "MalformedAnswerError",
    "Node",
    "NodeError",
    "NodeStatistics",
    "Nodes",
    "NodesConfig",
    "NodesStatistics",
    "RequestOutcome",
    "RequestTimedOutError",
    "UnsupportedVersionError",
]
