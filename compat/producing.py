"""Our producer sends to Kafka; librdkafka reads what Kafka has, and Kafka says what is committed.

One node with a listener for each way to log in. It keeps its ports over restarts, as a broker
does, so that a producer finds it again.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from compat.clients import START_MS, WAIT_SECONDS, Seen, read_back
from compat.kafka import NODE_ID, Kafka
from compat.processes import free_ports
from compat.report import Report
from compat.topics import CODECS, create_topics
from tailrace.client.admin import Admin
from tailrace.client.nodes import AuthenticationError
from tailrace.client.producer.errors import (
    ClosedProducerError,
    ProducerFencedError,
    TransactionOutcomeUnknownError,
)
from tailrace.client.producer.producer import Producer
from tailrace.client.producer.receipts import Receipt
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.testing.proxy import Action, Direction, Proxy
from tests.unit.security.certificates import BROKER, BROKER_KEY

RECORDS = 600
AT_ONCE_S = 10.0
"""Limit for calls that must not wait; far below `max.block.ms`, which is a minute."""
BETWEEN_RESTARTS = 20_000
USER, PASSWORD = "alice", "secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SENT = (*(f"produced-{codec}" for codec in CODECS), "rows")
TOPICS = ("restarted", "moved", "secured", "late")
_JAAS = "org.apache.kafka.common.security"


class Addresses(NamedTuple):
    """Addresses of the node's listeners."""

    plain: str
    sasl: str
    tls: str
    proxied: str
    """A listener whose clients are sent to a proxy before it."""
    controller: str


def check(report: Report, kafka: Kafka, directory: Path) -> None:
    """All checks, on a Kafka whose directory is new."""
    at = Addresses(*(f"127.0.0.1:{port}" for port in free_ports(5)))
    with Proxy(at.proxied) as proxy:
        kafka.settings |= _settings(at, proxy)
        _check(report, kafka, at, proxy=proxy, directory=directory)


def _check(report: Report, kafka: Kafka, at: Addresses, *, proxy: Proxy, directory: Path) -> None:
    with kafka:
        check_sending(report, at.plain)
        create_topics(at.plain, {topic: {} for topic in TOPICS})
        _check_restarts(report, kafka, at)
        _check_late_commit(report, at, proxy)
        _check_close_in_transaction(report, at)
        _check_transactions(report, kafka, at)
        _check_logins(report, at, directory)


def check_sending(report: Report, servers: str) -> None:
    """Records one by one and many at once, on brokers that run and have no topics of this."""
    create_topics(servers, {topic: {} for topic in SENT})
    _check_codecs(report, servers)
    _check_rows(report, servers)


def _settings(at: Addresses, proxy: Proxy) -> dict[str, str]:
    public = f"PLAINTEXT://{at.plain},SASL_PLAINTEXT://{at.sasl},SSL://{at.tls}"
    return {
        "listeners": f"{public},PROXIED://{at.proxied},CONTROLLER://{at.controller}",
        "advertised.listeners": f"{public},PROXIED://{proxy.address}",
        "controller.quorum.voters": f"{NODE_ID}@{at.controller}",
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}"
            for name, protocol in (
                ("CONTROLLER", "PLAINTEXT"),
                ("PROXIED", "PLAINTEXT"),
                ("PLAINTEXT", "PLAINTEXT"),
                ("SASL_PLAINTEXT", "SASL_PLAINTEXT"),
                ("SSL", "SSL"),
            )
        ),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{_JAAS}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
        **{
            f"listener.name.sasl_plaintext.{mechanism.lower()}.sasl.jaas.config": (
                f"{_JAAS}.scram.ScramLoginModule required;"
            )
            for mechanism in MECHANISMS[1:]
        },
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": BROKER.replace("\n", "\\n"),
        "ssl.keystore.key": BROKER_KEY.replace("\n", "\\n"),
    }


def _check_codecs(report: Report, servers: str) -> None:
    """Keys, values, nulls, headers and timestamps of single records."""
    for codec in CODECS:
        topic = f"produced-{codec}"
        sent = [
            Seen(
                number,
                True,  # noqa: FBT003 - whether the time is the record's own
                START_MS + 10 * number,
                None if number % 5 == 0 else b"key %d" % number,
                None if number % 19 == 0 else b"%d " % number * 20,
                (("n", b"%d" % number), ("nothing", None)) if number % 4 == 0 else (),
            )
            for number in range(RECORDS)
        ]
        with Producer(
            {"compression.type": codec}, bootstrap_servers=servers, batch_size=4000
        ) as producer:
            receipts = [
                producer.send(
                    topic, each.value, each.key, headers=each.headers, timestamp=each.timestamp
                )
                for each in sent
            ]
        read = read_back(servers, topic, is_committed=True).records
        differences = list(_differences(sent, read))
        differences += _differences([each.offset for each in sent], _offsets(receipts))
        report.check(f"librdkafka reads what our producer sent with {codec}", differences)


def _check_rows(report: Report, servers: str) -> None:
    """Check `send_many` with many records."""
    values = [b"%d" % number for number in range(100_000)]
    with Producer(bootstrap_servers=servers, compression_type="lz4") as producer:
        summary = producer.send_many("rows", values)
    read = read_back(servers, "rows", is_committed=True)
    differences = [f"row {row}: {error}" for row, error in summary.errors.items()]
    differences += _differences(values, [each.value for each in read.records])
    report.check("librdkafka reads what send_many sent", differences)


def _check_restarts(report: Report, kafka: Kafka, at: Addresses) -> None:
    """A producer sends on while Kafka is stopped, killed and started again."""
    is_over = threading.Event()
    receipts: list[Receipt] = []

    def send() -> None:
        while not is_over.is_set():
            receipts.append(producer.send("restarted", b"%d" % len(receipts)))

    with Producer(bootstrap_servers=at.plain) as producer:
        receipts.append(producer.send("restarted", b"0"))
        receipts[0].result()
        sender = threading.Thread(target=send)
        sender.start()
        for end in (kafka.stop, kafka.kill):
            target = len(receipts) + BETWEEN_RESTARTS
            while len(receipts) < target:
                receipts[-1].exception()
            end()
            kafka.start()
        is_over.set()
        sender.join()
    read = read_back(at.plain, "restarted", is_committed=True)
    differences = list(_differences(range(len(receipts)), _offsets(receipts)))
    values = [b"%d" % number for number in range(len(receipts))]
    differences += _differences(values, [each.value for each in read.records])
    report.check("nothing is lost, doubled or moved where Kafka is stopped and killed", differences)


def _check_late_commit(report: Report, at: Addresses, proxy: Proxy) -> None:
    """The answer to a commit is held for longer than anyone waits, and the work is tried again."""
    values = [b"%d" % number for number in range(100)]
    differences: list[str] = []
    with Producer(
        bootstrap_servers=proxy.address,
        transactional_id="late",
        max_block_ms=2000,
        request_timeout_ms=1000,
    ) as producer:

        def write() -> None:
            with producer.transaction():
                for each in values:
                    producer.send("late", each)

        proxy.disturb(Direction.ANSWER, Action.HOLD, {ApiKey.END_TXN})
        for attempt in ("first", "second"):
            error = _error_of(write)
            if not isinstance(error, TransactionOutcomeUnknownError):
                differences.append(f"{attempt} attempt: {error!r}")
        proxy.heal()
        while isinstance(
            error := _error_of(producer.finish_transaction), TransactionOutcomeUnknownError
        ):
            pass
        differences += _told(error)
    differences += _differences(values, _values(at, "late"))
    report.check("a transaction whose commit is answered late is written once", differences)


def _check_close_in_transaction(report: Report, at: Addresses) -> None:
    """Readers of committed records pass an open transaction once its producer is closed."""
    producer = Producer(bootstrap_servers=at.plain, transactional_id="closed")
    try:
        with producer.transaction():
            producer.send("late", b"open").result()
            producer.close()
    except ClosedProducerError:
        pass
    before = _values(at, "late")
    with Producer(bootstrap_servers=at.plain) as other:
        other.send("late", b"behind").result()
    report.check(
        "a close in an open transaction lets readers see what comes behind it",
        list(_differences([*before, b"behind"], _values(at, "late"))),
    )


def _epoch(at: Addresses, transactional_id: str) -> int:
    """The producer epoch that the coordinator knows."""
    with Admin(bootstrap_servers=at.plain) as admin:
        found = admin.describe_transactions([transactional_id])[transactional_id]
    if isinstance(found, TailraceError):
        raise found
    return found.producer_epoch


def _check_transactions(report: Report, kafka: Kafka, at: Addresses) -> None:
    """Commit, abort, offsets, a restart in between, and two producers of one name."""
    source = TopicPartition("source", 0)
    create_topics(at.plain, {source.topic: {}})
    with Producer(bootstrap_servers=at.plain, transactional_id="mover") as producer:
        with producer.transaction():
            producer.send("moved", b"committed")
            producer.send_offsets_to_transaction({source: 7}, "movers")
        differences = list(_differences([b"committed"], _values(at)))
        report.check("records of a transaction are there after its commit", differences)
        report.check(
            "a group's offsets are there after the commit",
            list(_differences([7], [_committed(at, source)])),
        )
        epochs = [_epoch(at, "mover")]
        _abort(producer, source)
        epochs.append(_epoch(at, "mover"))
        report.check(
            "each transaction has an epoch of its own, which the end of the one before brought",
            list(_differences([0, 1], [each - epochs[0] for each in epochs])),
        )
        report.check(
            "records of a transaction that was aborted are not there",
            list(_differences([b"committed"], _values(at))),
        )
        report.check(
            "a group's offsets stay as they were after an abort",
            list(_differences([7], [_committed(at, source)])),
        )
        with producer.transaction():
            producer.send("moved", b"before").result()
            kafka.kill()
            kafka.start()
            producer.send("moved", b"after")
        report.check(
            "a transaction is committed though Kafka was killed in the middle of it",
            list(_differences([b"committed", b"before", b"after"], _values(at))),
        )
        with Producer(bootstrap_servers=at.plain, transactional_id="mover") as second:
            with second.transaction():
                second.send("moved", b"second")
            fenced = _error_of(lambda: _commit_one(producer))
            report.check(
                "a producer is fenced by a second one of its name",
                [] if isinstance(fenced, ProducerFencedError) else [repr(fenced)],
            )
        report.check(
            "the second producer's records are there, and not those of the fenced one",
            list(_differences([b"committed", b"before", b"after", b"second"], _values(at))),
        )


def _check_logins(report: Report, at: Addresses, directory: Path) -> None:
    """SASL and TLS; and what a wrong password gets."""
    admin = AdminClient({"bootstrap.servers": at.plain, "log_level": 0})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        credential = UserScramCredentialUpsertion(
            USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
        )
        for future in admin.alter_user_scram_credentials([credential]).values():
            future.result(WAIT_SECONDS)
    for mechanism in MECHANISMS:
        login: dict[str, object] = {
            "bootstrap.servers": at.sasl,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
        }
        error = _send_one(login | {"sasl.password": PASSWORD})
        report.check(f"Kafka takes records after a login with {mechanism}", _told(error))
        refused = _send_one(login | {"sasl.password": "wrong", "max.block.ms": 10_000})
        report.check(
            f"the error of a wrong password says so with {mechanism}",
            [] if "sasl.password" in str(refused) else [repr(refused)],
        )
        began = time.monotonic()
        told = _error_of(partial(_open_transaction, login))
        seconds = time.monotonic() - began
        is_told = isinstance(told, AuthenticationError) and seconds < AT_ONCE_S
        report.check(
            f"a wrong password with {mechanism} is told at once in a transaction",
            [] if is_told else [f"{told!r} after {seconds:.1f} s"],
        )
    trusted = directory / "trusted.pem"
    trusted.write_text(BROKER)
    error = _send_one(
        {
            "bootstrap.servers": at.tls,
            "security.protocol": "SSL",
            "ssl.truststore.location": str(trusted),
        }
    )
    report.check("Kafka takes records through TLS", _told(error))


def _open_transaction(login: dict[str, object]) -> None:
    wrong = login | {"sasl.password": "wrong", "transactional.id": "stranger"}
    with Producer(wrong) as producer, producer.transaction():
        pass


def _send_one(settings: dict[str, object]) -> Exception | None:
    with Producer(settings) as producer:
        return producer.send("secured", b"secret").exception()


def _told(error: Exception | None) -> list[str]:
    return [] if error is None else [repr(error)]


def _abort(producer: Producer, source: TopicPartition) -> None:
    try:
        with producer.transaction():
            producer.send("moved", b"aborted").result()
            producer.send_offsets_to_transaction({source: 8}, "movers")
            raise LookupError
    except LookupError:
        pass


def _commit_one(producer: Producer) -> None:
    with producer.transaction():
        producer.send("moved", b"fenced")


def _error_of(call: Callable[[], None]) -> Exception | None:
    try:
        call()
    except TailraceError as error:
        return error
    return None


def _values(at: Addresses, topic: str = "moved") -> list[bytes | None]:
    return [each.value for each in read_back(at.plain, topic, is_committed=True).records]


def _committed(at: Addresses, partition: TopicPartition) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": at.plain, "group.id": "movers"})
    try:
        wanted = [confluent_kafka.TopicPartition(*partition)]
        return int(consumer.committed(wanted, WAIT_SECONDS)[0].offset)
    finally:
        consumer.close()


def _offsets(receipts: Sequence[Receipt]) -> list[int | str]:
    return [
        each.offset if (error := each.exception()) is None else repr(error) for each in receipts
    ]


def _differences(sent: Sequence[Any], found: Sequence[Any]) -> Iterator[str]:
    """Tell the differences between two lists."""
    if len(sent) != len(found):
        yield f"{len(sent)} were sent, {len(found)} found"
    for number, (one, other) in enumerate(zip(sent, found, strict=False)):
        if one != other:
            yield f"{number}: {one!r} was sent, {other!r} found"
