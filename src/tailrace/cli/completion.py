"""Names that a shell completes: topics and groups of the cluster that the typed options lead to.

Invariant: a completion prints nothing but names. Where no broker answers within a second or two,
there are none.
"""

from collections.abc import Callable, Iterable
from typing import Final

import click

from tailrace.cli.on_cluster import connection_of
from tailrace.client.calls import Call
from tailrace.client.drive.steps import Steps
from tailrace.errors import TailraceError

LIMIT_MS: Final = 1000
"""Longest wait for a connection, and then for the names: somebody has pressed a key."""


def topics(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Topics that begin so; internal ones only after an underscore."""
    from tailrace.client.admin.topics import list_topics

    def names(call: Call) -> Steps[list[str]]:
        return [each.name for each in (yield from list_topics(call))]

    found = _found(context, names, incomplete)
    return [each for each in found if incomplete.startswith("_") or not each.startswith("__")]


def groups(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Groups that begin so."""
    from tailrace.client.admin.groups import list_groups

    def names(call: Call) -> Steps[list[str]]:
        return [each.group for each in (yield from list_groups(call))]

    return _found(context, names, incomplete)


def _found(
    context: click.Context, names: Callable[[Call], Steps[Iterable[str]]], incomplete: str
) -> list[str]:
    options = ("bootstrap", "assignments", "command_config")
    try:
        given = {name: context.params[name] for name in options}
        connection = connection_of(context, **given).within(LIMIT_MS)
        with connection.open() as cluster:
            found = cluster.run(names(cluster.call(limit_ms=LIMIT_MS, retries=0)))
    # A message would be taken for names, and break the line that is typed.
    except (TailraceError, click.ClickException, OSError):
        return []
    return sorted(each for each in found if each.startswith(incomplete))
