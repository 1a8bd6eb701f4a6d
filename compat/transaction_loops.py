"""Producers that end a transaction, and at once begin, fill and abort the next, a thousand times.

Each request then meets the markers of the transaction before, which are still being written. What
a broker answers there decides whether a producer tries again or dies. The clients of
`compat.others`, librdkafka and our producer do so on our broker and on Kafka.

Kafka's client asks whether it has batches, and then takes the next request from its queue, without
a lock around both (`Sender.maybeSendAndPollTransactionalRequest` of 4.3.1). Once in some thousand
times another thread sends and aborts in between: EndTxn overtakes the batch, which goes out with
the next transaction. Such a record is known, because its future is not done when the abort is.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import confluent_kafka
from confluent_kafka import KafkaException

from compat import clients, ours
from compat.kafka import Kafka
from compat.others import OtherClient
from compat.processes import bound_to_us, run
from compat.report import Report
from compat.topics import create_topics
from tailrace.client.producer.producer import Producer
from tailrace.errors import FatalError, TailraceError

COUNT = 1_000
RUN_SECONDS_MAX = 900

_UNVERIFIED = {"transaction.partition.verification.enable": "false"}
_FEW = 100

Loop = Callable[[str, str, int], Sequence[str]]
"""Runs on a broker, with a topic, this number of times; returns what the client has leaked."""


def check(report: Report, found: Iterable[OtherClient], kafka: Kafka, directory: Path) -> None:
    """Run each loop on both brokers, with `kafka` on a directory of its own, which is new."""
    loops = _loops(found)
    logs = directory / "transaction-loops"
    logs.mkdir()
    with ours.serving(logs) as servers:
        _check_loops(report, loops, servers, count=COUNT, broker="our broker")
    with kafka:
        _check_loops(report, loops, kafka.bootstrap_servers, count=COUNT, broker="Kafka")
    broker = "our broker, which verifies nothing"
    with ours.serving(logs, settings=_UNVERIFIED) as servers:
        _check_loops(report, loops, servers, count=_FEW, broker=broker)


def check_at(report: Report, found: Iterable[OtherClient], servers: str, *, broker: str) -> None:
    """Run each loop some times on brokers that run."""
    _check_loops(report, _loops(found), servers, count=_FEW, broker=broker)


def _loops(found: Iterable[OtherClient]) -> Mapping[str, Loop]:
    return {**dict(_others(found)), "librdkafka": _librdkafka, "our producer": _our_producer}


def _others(found: Iterable[OtherClient]) -> Iterator[tuple[str, Loop]]:
    for client in found:
        if client.name.endswith("consumer groups"):
            continue  # It differs from the one of classic groups as a consumer only.

        def loop(
            servers: str, topic: str, count: int, client: OtherClient = client
        ) -> Sequence[str]:
            command = bound_to_us([*client.command, "transact", servers, topic, str(count)])
            printed = run(command, name=client.name, seconds_max=RUN_SECONDS_MAX)
            return re.findall(r"^leaked (\w+)$", printed, re.MULTILINE)

        yield client.name.partition(", ")[0], loop


def _check_loops(
    report: Report, loops: Mapping[str, Loop], servers: str, *, count: int, broker: str
) -> None:
    for number, (name, loop) in enumerate(loops.items()):
        topic = f"loop-{count}-{number}"
        create_topics(servers, {topic: {}})
        started = time.monotonic()
        failure: list[str] = []
        leaked: Sequence[str] = ()
        try:
            leaked = loop(servers, topic, count)
        except (FatalError, KafkaException, TailraceError) as error:
            failure = [str(error)]
        report.say(f"      {time.monotonic() - started:.1f} s")
        report.check(
            f"{name} commits and aborts {count} transactions in turn on {broker}",
            [*failure, *_differing(servers, topic, count, leaked=leaked)],
            explained=f"the client has let out {', '.join(leaked)}" if leaked else "",
        )


def _differing(
    servers: str, topic: str, count: int, *, leaked: Sequence[str] = ()
) -> Iterator[str]:
    """The values that are not visible once, or should not be."""
    [read] = clients.read_partitions(servers, [(topic, 0)], is_committed=True).values()
    seen = Counter((each.value or b"").decode() for each in read.records)
    due = Counter(f"c{number}" for number in range(count))
    yield from (f"{value} is missing" for value in due - seen)
    yield from (f"{value} is there too often" for value in seen - due - Counter(leaked))


def _librdkafka(servers: str, topic: str, count: int) -> Sequence[str]:
    settings = {"bootstrap.servers": servers, "transactional.id": topic, "log_level": 0}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(clients.WAIT_SECONDS)
    for number in range(count):
        producer.begin_transaction()
        producer.produce(topic, b"c%d" % number)
        producer.commit_transaction(clients.WAIT_SECONDS)
        producer.begin_transaction()
        producer.produce(topic, b"a%d" % number)
        # Without it EndTxn may overtake AddPartitionsToTxn, which Kafka refuses while it writes
        # the markers before. The abort is then one of nothing, and its refusal is fatal.
        producer.flush(clients.WAIT_SECONDS)
        producer.abort_transaction(clients.WAIT_SECONDS)
    return ()


def _our_producer(servers: str, topic: str, count: int) -> Sequence[str]:
    with Producer(
        bootstrap_servers=servers, transactional_id=topic, retry_backoff_ms=5
    ) as producer:
        producer.init_transactions()
        for number in range(count):
            producer.begin_transaction()
            producer.send(topic, b"c%d" % number)
            producer.commit_transaction()
            producer.begin_transaction()
            producer.send(topic, b"a%d" % number)
            producer.abort_transaction()
    return ()
