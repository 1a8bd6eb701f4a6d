"""`tailrace top`: rates, lag, partitions and brokers of any Kafka cluster, as they change.

command      here: a screen, or tables once
snapshot     asks the cluster
metrics      reads what brokers say beyond the protocol
poller       does both on a thread of its own
tables       rows, of two snapshots
screen       lines of cells, and the meaning of keys
terminal     curses
"""

import sys
import time
from math import isfinite
from typing import TYPE_CHECKING, Final

import click

from tailrace.cli.arguments import aligned
from tailrace.cli.on_cluster import AS_JSON, Connection, emit, on_cluster, say, say_silent

if TYPE_CHECKING:
    from tailrace.cli.top.poller import Poller
    from tailrace.cli.top.tables import Row, Table

FORMAT: Final = "tailrace.top/1"

# As `tables` has them, without an import of all that a snapshot needs.
_VIEWS: Final = ("topics", "groups", "brokers", "requests")
_METRICS_S: Final = 12.0
"""Longest wait for the metrics of brokers where tables are printed once."""


@click.command()
@click.option("--view", type=click.Choice(_VIEWS), help="The first view; with --once the only one.")
@click.option(
    "--interval", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True,
    metavar="SECONDS", help="Time between refreshes, or with --once of the rates.",
)  # fmt: skip
@click.option(
    "--once", "--batch", is_flag=True,
    help="Print the tables once and end, as it does where the output is no terminal.",
)  # fmt: skip
@click.option(
    "--metrics", metavar="URL",
    help="A broker's page for Prometheus, with {host} or {id} for those of each: "
    "http://{host}:9404/metrics. Without it a Tailrace broker says where its page is.",
)  # fmt: skip
@AS_JSON
@on_cluster
def top(
    *,
    view: str | None,
    interval: float,
    once: bool,
    metrics: str | None,
    as_json: bool,
    connection: Connection,
) -> None:
    """Watch a cluster: rates of topics, lag of groups, partitions, and brokers.

    Keys: q quits, h shows all others. Connections, compaction, replication and the times of
    requests are known of brokers with a page for Prometheus.
    """
    from tailrace.cli.top.poller import Poller
    from tailrace.cli.top.snapshot import Watch

    if metrics is not None and not metrics.startswith(("http://", "https://")):
        raise click.UsageError(f"--metrics: {metrics!r} is no URL; give http://HOST:PORT/metrics")
    with connection.open() as cluster:
        poller = Poller(Watch(cluster, metrics=metrics, clock=time.monotonic), interval_s=interval)
        is_watched = sys.stdout is not None and sys.stdout.isatty() and sys.stdin.isatty()
        if once or as_json or not is_watched:
            _print(poller, interval, view=view, as_json=as_json)
            return
        from tailrace.cli.top.screen import State

        try:
            from tailrace.cli.top.terminal import run_screen
        except ModuleNotFoundError as error:
            if error.name not in ("curses", "_curses"):
                raise
            raise click.UsageError("this Python was built without curses; add --once") from error

        poller.start()
        try:
            run_screen(poller, State(view=view or _VIEWS[0], interval_s=interval))
        finally:
            poller.stop()


def _print(poller: "Poller", interval_s: float, *, view: str | None, as_json: bool) -> None:
    """Print tables of two snapshots; where a broker is silent, it ends with exit code 1.

    Raises:
        TailraceError: no broker answers.
    """
    from tailrace.cli.top.screen import State, table_of

    poller.take(metrics_s=_METRICS_S)
    # Rates are of two moments.
    time.sleep(interval_s)
    overview = poller.take(metrics_s=_METRICS_S)
    names = _VIEWS if view is None else (view,)
    for number, name in enumerate(names):
        # JSON has all columns, and a terminal those that have values.
        if as_json:
            whole = overview.table(name)
            for row in whole.rows:
                emit(FORMAT, name.removesuffix("s"), _fields(whole, row))
            continue
        table = table_of(State(view=name), overview)
        if number:
            click.echo()
        if not table.rows:
            click.echo(f"{name}: {table.empty}")
            continue
        titles = [column.title for column in table.columns]
        right = [n for n, column in enumerate(table.columns) if column.is_right]
        for line in aligned([titles, *table.texts(table.rows)], right=right):
            click.echo(line)
    for each in overview.now.notes:
        say(each)
    say_silent(overview.now.silent)
    if overview.now.silent:
        sys.exit(1)


def _fields(table: "Table", row: "Row") -> dict[str, object]:
    # JSON has no infinity: a group that does not catch up has no time for it.
    return {
        column.key: value
        if not isinstance(value, float)
        else round(value, 3)
        if isfinite(value)
        else None
        for column, value in zip(table.columns, row.values, strict=True)
    }
