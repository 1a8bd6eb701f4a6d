"""`tailrace cluster describe` of a cluster that runs: brokers, controller and quorum."""

import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final

import click

from tailrace.cli.arguments import aligned
from tailrace.cli.on_cluster import Connection, ask_quorum, emit, say, say_silent, silent_brokers
from tailrace.client.admin.cluster import (
    BrokerNode,
    ClusterDescription,
    MetadataQuorum,
    QuorumReplica,
    describe_cluster,
)
from tailrace.client.errors import UnsupportedBrokerError
from tailrace.client.nodes import Node
from tailrace.errors import RetriableError
from tailrace.runtime.clock import iso_time

if TYPE_CHECKING:
    from tailrace.client.reader import ClusterReader

FORMAT: Final = "tailrace.cluster/1"


def describe_running(connection: Connection, *, as_json: bool) -> None:
    """Print the brokers of a cluster, fenced ones too, and the replicas of its metadata log.

    Each broker is asked whether it answers, see `silent_brokers`.
    Without controllers it prints what the broker knows, says so, and ends with exit code 1.

    Raises:
        TailraceError: no broker answers, or one refuses.
    """
    silence: RetriableError | None = None
    quorum: MetadataQuorum | None = None
    with connection.open() as cluster:
        found = _described(cluster)
        try:
            quorum = _quorum(cluster)
        except RetriableError as error:
            silence = error
        silent = silent_brokers(
            cluster, {each.id: Node(each.id, each.host, each.port) for each in found.brokers}
        )
    # Brokers name any of them as the controller, since each forwards to the active one (KIP-590).
    controller = None if found.controller is None or silence else found.controller.id
    if quorum is not None:
        controller = None if quorum.leader_id < 0 else quorum.leader_id
    if as_json:
        _emit(found, quorum, controller, silent=silent)
    else:
        click.echo(f"cluster {found.cluster_id or '-'}: {_controller(controller, quorum)}")
        parts = _broker_lines(found, silent), () if quorum is None else _quorum_lines(quorum)
        for line in chain(*parts):
            click.echo(line)
    say_silent(silent)
    if silence is not None:
        say(f"no controller answers, and the states of brokers may be old: {silence}")
        sys.exit(1)


def brokers(cluster: "ClusterReader") -> tuple[BrokerNode, ...]:
    """The brokers of a cluster, fenced ones too where the broker that is asked names them."""
    return _described(cluster).brokers


def _described(cluster: "ClusterReader") -> ClusterDescription:
    try:
        return cluster.do(describe_cluster, include_fenced_brokers=True)
    except UnsupportedBrokerError:
        say("this broker does not name fenced brokers (before Kafka 4.0); shown are the others")
        return cluster.do(describe_cluster)


def _quorum(cluster: "ClusterReader") -> MetadataQuorum | None:
    try:
        return ask_quorum(cluster)
    except UnsupportedBrokerError:
        say("this broker does not describe a quorum: it is older than Kafka 3.0, or has ZooKeeper")
        return None


def _controller(controller: int | None, quorum: MetadataQuorum | None) -> str:
    if controller is None:
        return "no controller is active"
    if quorum is None:
        return f"controller {controller}"
    return (
        f"controller {controller} in epoch {quorum.leader_epoch}, "
        f"high watermark {quorum.high_watermark}"
    )


def _state(broker: BrokerNode) -> str:
    return "fenced" if broker.is_fenced else "active"


def _broker_lines(found: ClusterDescription, silent: Mapping[int, str]) -> Iterator[str]:
    rows = [("id", "state", "answers", "rack", "address")]
    for each in found.brokers:
        answers = "no" if each.id in silent else "yes"
        row = str(each.id), _state(each), answers, each.rack or "-", f"{each.host}:{each.port}"
        rows.append(row)
    yield "brokers"
    yield from (f"  {line}" for line in aligned(rows, right=(0,)))


def _replicas(quorum: MetadataQuorum) -> Iterator[tuple[str, QuorumReplica]]:
    for each in quorum.voters:
        yield ("leader" if each.replica_id == quorum.leader_id else "voter"), each
    for each in quorum.observers:
        yield "observer", each


def _lag(each: QuorumReplica, quorum: MetadataQuorum) -> int | None:
    """Records that a replica lacks of the leader's log; None if one of the ends is not known."""
    ends = {known.replica_id: known.log_end_offset for known in quorum.voters}
    end = ends.get(quorum.leader_id, -1)
    return None if end < 0 or each.log_end_offset < 0 else max(end - each.log_end_offset, 0)


def _quorum_lines(quorum: MetadataQuorum) -> Iterator[str]:
    rows = [("id", "role", "log end", "lag", "caught up", "controller listener")]
    for role, each in _replicas(quorum):
        lag, ends = _lag(each, quorum), quorum.addresses.get(each.replica_id, ())
        row = (
            str(each.replica_id),
            role,
            "-" if each.log_end_offset < 0 else str(each.log_end_offset),
            "-" if lag is None else str(lag),
            # Controllers before Kafka 3.3 do not say when (KIP-836).
            "-" if each.last_caught_up_timestamp < 0 else iso_time(each.last_caught_up_timestamp),
            " ".join(f"{name}://{host}:{port}" for name, host, port in ends) or "-",
        )
        rows.append(row)
    yield "metadata quorum"
    yield from (f"  {line}" for line in aligned(rows, right=(0, 2, 3)))


def _emit(
    found: ClusterDescription,
    quorum: MetadataQuorum | None,
    controller: int | None,
    *,
    silent: Mapping[int, str],
) -> None:
    cluster = {
        "cluster_id": found.cluster_id,
        "controller": controller,
        "epoch": None if quorum is None else quorum.leader_epoch,
        "high_watermark": None if quorum is None else quorum.high_watermark,
    }
    emit(FORMAT, "cluster", cluster)
    for each in found.brokers:
        broker = {
            "broker": each.id,
            "state": _state(each),
            "answers": each.id not in silent,
            "silence": silent.get(each.id),
            "rack": each.rack,
            "host": each.host,
            "port": each.port,
        }
        emit(FORMAT, "broker", broker)
    if quorum is None:
        return
    for role, replica in _replicas(quorum):
        fields = {
            "replica": replica.replica_id,
            "role": role,
            # -1 on the wire; null in JSON, so that nobody takes it for an offset or a time.
            "log_end": _known(replica.log_end_offset),
            "lag": _lag(replica, quorum),
            "last_fetch_ms": _known(replica.last_fetch_timestamp),
            "last_caught_up_ms": _known(replica.last_caught_up_timestamp),
        }
        emit(FORMAT, "quorum", fields)


def _known(value: int) -> int | None:
    return None if value < 0 else value
