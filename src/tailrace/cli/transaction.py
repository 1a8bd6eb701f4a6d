"""`tailrace transaction`: transactions of any Kafka cluster, and the ones that hang."""

import sys
import time
from collections.abc import Container, Iterator, Sequence

import click

from tailrace.cli.arguments import aligned
from tailrace.cli.on_cluster import (
    AS_JSON,
    YES,
    Connection,
    answering_brokers,
    change,
    confirm,
    emit,
    end_without,
    list_from_all,
    on_cluster,
    say,
)
from tailrace.client.admin import transactions
from tailrace.client.admin.topics import list_topics
from tailrace.client.admin.transactions import (
    ProducerState,
    abort_transaction,
    describe_transactions,
    find_hanging_transactions,
    force_terminate_transaction,
)
from tailrace.client.reader import ClusterReader
from tailrace.client.topics import find_partitions, find_topic
from tailrace.model import TopicPartition
from tailrace.offline.show import printable
from tailrace.runtime.clock import iso_time

TRANSACTION_FORMAT = "tailrace.transaction/1"

# For scripts that watch a cluster.
_EXIT_FOUND = 1
_MINUTE_MS = 60_000


@click.group()
def transaction() -> None:
    """List and describe transactions of any Kafka cluster, and abort hanging ones.

    A transaction hangs if it is open in a partition and its coordinator does not know it, so it
    never ends. Consumers with read_committed cannot read past its first record.
    """


@transaction.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    help="Only transactions in this state, such as Ongoing; repeatable.",
)
@AS_JSON
@on_cluster
def list_transactions(*, states: tuple[str, ...], as_json: bool, connection: Connection) -> None:
    """List transactional ids with their coordinator, producer id and state.

    Where a broker does not answer within some seconds, its ids are missing, and the exit code is 1.
    """
    with connection.open() as cluster:
        try:
            found, silent = list_from_all(cluster, transactions.list_transactions, states=states)
        # Brokers leave out states that they do not know, and name them (KIP-664). An empty list
        # would look as if there were no transactions.
        except transactions.UnknownStateError as error:
            raise click.UsageError(f"--state: {error}") from error
    rows = [("transactional id", "coordinator", "producer", "state")]
    for each in found:
        if as_json:
            fields = {
                "transactional_id": each.transactional_id,
                "coordinator": str(each.coordinator),
                "producer_id": each.producer_id,
                "state": each.state,
            }
            emit(TRANSACTION_FORMAT, "transaction", fields)
        rows.append(
            (
                printable(each.transactional_id),
                str(each.coordinator),
                str(each.producer_id),
                each.state,
            )
        )
    for line in () if as_json else aligned(rows, right=(2,)):
        click.echo(line)
    end_without(silent, "transactional ids")


@transaction.command()
@click.argument("transactional_id", metavar="ID")
@AS_JSON
@on_cluster
def describe(transactional_id: str, *, as_json: bool, connection: Connection) -> None:
    """Show the producer, state and partitions of a transactional id."""
    with connection.open() as cluster:
        descriptions = cluster.do(describe_transactions, [transactional_id])
    found = descriptions.result(transactional_id)
    # -1 stands for no time.
    is_open = found.start_ms >= 0
    if as_json:
        fields = {
            "transactional_id": found.transactional_id,
            "coordinator": str(found.coordinator),
            "producer_id": found.producer_id,
            "producer_epoch": found.producer_epoch,
            "state": found.state,
            "timeout_ms": found.timeout_ms,
            "start_timestamp": found.start_ms if is_open else None,
            "partitions": [[each.topic, each.partition] for each in found.partitions],
        }
        emit(TRANSACTION_FORMAT, "transaction", fields)
        return
    began = f", since {iso_time(found.start_ms)}" if is_open else ""
    click.echo(
        f"{printable(found.transactional_id)}: {found.state}{began}, producer {found.producer_id} "
        f"epoch {found.producer_epoch}, timeout {found.timeout_ms} ms, coordinator "
        f"{found.coordinator}"
    )
    for each in found.partitions:
        click.echo(f"  {each}")


@transaction.command("find-hanging")
@click.option("--topic", "topics", multiple=True, help="Only this topic; repeatable.")
# The default of transaction.max.timeout.ms, and of --max-transaction-timeout in kafka-transactions:
# a transaction that runs can be as old as that.
@click.option(
    "--open-for", "minutes", type=click.IntRange(min=0), default=15, show_default=True,
    metavar="MINUTES",
    help="Ignore transactions whose last record is younger than this. Give at least the brokers' "
    "transaction.max.timeout.ms, so that running transactions are not reported.",
)  # fmt: skip
@AS_JSON
@on_cluster
def find_hanging(
    *, topics: tuple[str, ...], minutes: int, as_json: bool, connection: Connection
) -> None:
    """Find transactions that are open in a partition and never end.

    Where a broker does not answer within some seconds, the partitions that it leads are not
    checked, and transactions that no other broker knows are missing, as it may coordinate them.

    Exit code 0: none found. 1: some found, a broker does not answer, or an error.
    """
    # Before the question, so that a transaction does not age while brokers answer.
    now_ms = int(time.time() * 1000)
    with connection.open() as cluster:
        answering, silent = answering_brokers(cluster)
        found = cluster.do(
            find_hanging_transactions,
            _partitions(cluster, topics, silent),
            now_ms=now_ms,
            open_for_ms=minutes * _MINUTE_MS,
            brokers=answering if silent else None,
        )
    if as_json:
        for each in found:
            emit(TRANSACTION_FORMAT, "hanging", _state_fields(each))
    elif not found and not silent:
        click.echo("no hanging transaction")
    elif found:
        for line in _table(found, now_ms):
            click.echo(line)
    end_without(silent, "hanging transactions")
    if found:
        sys.exit(_EXIT_FOUND)


@transaction.command()
@click.option("--topic", required=True, help="The topic in which the transaction is open.")
@click.option("--partition", type=click.IntRange(min=0), required=True, help="The partition.")
# Brokers since 3.0 know it. For older ones kafka-transactions takes the producer's id and epochs.
@click.option(
    "--start-offset", type=click.IntRange(min=0), required=True,
    help="The first offset of the transaction, as find-hanging shows it.",
)  # fmt: skip
@YES
@AS_JSON
@on_cluster
def abort(
    *,
    topic: str,
    partition: int,
    start_offset: int,
    yes: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Abort a hanging transaction in one partition.

    Consumers with read_committed will skip its records. The coordinator is not involved: if the
    transaction is still running, it is aborted in this partition only, which breaks its atomicity.
    Run find-hanging first.
    """
    with connection.open() as cluster:
        (place,) = find_partitions(cluster, topic, (partition,))
        # kafka-transactions does not ask.
        confirm(f"Abort the transaction of {place} from offset {start_offset} on?", yes=yes)
        found = change(cluster, abort_transaction, place, start_offset)
    if as_json:
        emit(TRANSACTION_FORMAT, "aborted", _state_fields(found))
    else:
        click.echo(
            f"aborted the transaction of producer {found.producer_id} epoch {found.producer_epoch} "
            f"in {place} from offset {start_offset} on"
        )


@transaction.command()
@click.argument("transactional_id", metavar="ID")
@YES
@AS_JSON
@on_cluster
def terminate(transactional_id: str, *, yes: bool, as_json: bool, connection: Connection) -> None:
    """Abort the transaction of a transactional id, also a prepared one, and fence its producer.

    For a producer that is gone while its transaction is open: readers of committed records wait for
    it until transaction.timeout.ms is over. A producer that still runs ends with an error.
    """
    with connection.open() as cluster:
        confirm(f"Abort the transaction of {transactional_id} and fence its producer?", yes=yes)
        found = change(cluster, force_terminate_transaction, transactional_id)
    fields = {
        "transactional_id": transactional_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
    }
    if as_json:
        emit(TRANSACTION_FORMAT, "terminated", fields)
    else:
        click.echo(
            f"{printable(transactional_id)}: producer {found.producer_id} is fenced below epoch "
            f"{found.producer_epoch}, and has no transaction"
        )


def _partitions(
    cluster: ClusterReader, topics: Sequence[str], silent: Container[int]
) -> list[TopicPartition]:
    if topics:
        found = [find_topic(cluster, each) for each in dict.fromkeys(topics)]
    else:
        # kafka-transactions wants --topic or --broker-id here, to limit the search.
        found = [*cluster.do(list_topics)]
    partitions = []
    for each in found:
        for part in each.partitions:
            name = TopicPartition(each.name, part.partition)
            # Reported, since a hanging transaction may be in it.
            if part.leader < 0:
                say(f"{name} was not checked: it has no leader")
            elif part.leader in silent:
                say(f"{name} was not checked: broker {part.leader} leads it")
            else:
                partitions.append(name)
    return partitions


def _state_fields(each: ProducerState) -> dict[str, object]:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "coordinator_epoch": each.coordinator_epoch,
        "start_offset": each.transaction_start_offset,
        "last_timestamp": each.last_timestamp,
    }


def _table(found: Sequence[ProducerState], now_ms: int) -> Iterator[str]:
    rows = [("partition", "start offset", "producer", "epoch", "minutes idle")]
    rows += [
        (
            str(each.partition),
            str(each.transaction_start_offset),
            str(each.producer_id),
            str(each.producer_epoch),
            # DescribeProducers has no time of the first record, only of the last.
            str((now_ms - each.last_timestamp) // _MINUTE_MS),
        )
        for each in found
    ]
    return aligned(rows, right=(1, 2, 3, 4))
