"""Leader and endpoint structs that Produce and Fetch responses share.

Both are tagged fields (KIP-951), so that a client that asked the wrong broker need not send a
Metadata request.
"""

from dataclasses import dataclass

from tailrace.protocol.fields import wire


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderIdAndEpoch:
    """The leader of a partition, as far as the answering broker knows."""

    leader_id: int = wire("int32", default=-1)
    """The broker; -1: not known."""
    leader_epoch: int = wire("int32", default=-1)
    """Its epoch; -1: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEndpoint:
    """Address of a broker."""

    node_id: int = wire("int32")
    """The broker."""
    host: str = wire("string")
    """Host name to connect to."""
    port: int = wire("int32")
    """Port to connect to."""
    rack: str | None = wire("string", nullable_since=0, default=None)
    """The broker's rack, where it has one."""
