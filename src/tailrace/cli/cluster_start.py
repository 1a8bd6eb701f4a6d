"""`tailrace cluster start`: processes of a cluster on this machine, until Ctrl-C."""

import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from tailrace.broker.local_cluster import LocalCluster, LocalNode
from tailrace.cli.arguments import aligned, say_if_heard
from tailrace.runtime.interrupts import stop_signals

_LOOK_S: Final = 0.2
"""Time until a node that was killed is reported."""


def start_cluster(directory: Path | None, *, brokers: int, port: int) -> None:
    """Run a controller and brokers until one of `stop_signals`.

    Raises:
        NodeNotStartedError: one has ended, or takes too long; the others are stopped.
    """
    with TemporaryDirectory(prefix="tailrace-cluster-") as temporary, _signals() as asked_to_stop:
        cluster = LocalCluster(
            directory or Path(temporary), brokers=brokers, ports=range(port, port + brokers + 1)
        )
        click.echo(f"Starting a controller and {brokers} brokers in {cluster.directory}")
        cluster.start()
        try:
            _introduce(cluster, is_temporary=directory is None)
            while not asked_to_stop.wait(_LOOK_S):
                for each in cluster.ended():
                    click.echo(f"{each.name} has ended ({_reason(each)}); start it again:")
                    click.echo(f"  {_command(each)}")
        finally:
            # The nodes have sessions of their own, and would run on after the terminal.
            say_if_heard("Stopping")
            cluster.stop()


def _introduce(cluster: LocalCluster, *, is_temporary: bool) -> None:
    rows = [("node", "pid", "address", "log")]
    rows += [(each.name, str(each.pid), each.address, str(each.log)) for each in cluster.nodes]
    click.echo()
    for line in aligned(rows, right=(1,)):
        click.echo(line)
    servers = cluster.bootstrap_servers
    last = list(cluster.brokers.values())[-1]
    click.echo(f"\nbootstrap.servers={servers}\n")
    click.echo("Try, in another terminal:")
    click.echo(f"  tailrace topic create flights --partitions 3 --bootstrap {servers}")
    click.echo(f"  seq 1 1000 | tailrace produce flights --bootstrap {servers}")
    click.echo(f"  kill -9 {last.pid}")
    click.echo(f"  tailrace topic describe flights --bootstrap {servers}")
    click.echo(f"  {_command(last)}")
    click.echo(
        "\nThe metadata is on one node, the controller: do not use this for what must not stop."
    )
    kept = "and the directory is removed" if is_temporary else "and the next start continues"
    click.echo(f"Ctrl-C stops all nodes, {kept}.")


def _command(node: LocalNode) -> str:
    return f"tailrace serve --config {shlex.quote(str(node.config))}"


def _reason(node: LocalNode) -> str:
    code = 0 if node.process is None else node.process.returncode
    return f"by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """An event that `stop_signals` set, instead of ending the program."""
    event = threading.Event()
    before = {each: signal.signal(each, lambda *_: event.set()) for each in stop_signals()}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
