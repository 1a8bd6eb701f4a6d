"""Every request of a transactional producer, in every state of a transaction, to both brokers.

    python -m compat.transaction_answers     writes tests/unit/broker/transaction_answers.tsv anew,
                                             from what Kafka answers

The table is `tests.unit.broker.transaction_answers`. Both brokers run on copies of one directory,
whose `__transaction_state` has a record for each transactional id, from which its state is reached.
A partition whose markers wait is on a second Kafka, which is paused: of one without a leader Kafka
believes that it is deleted, and needs no marker. Ours is in a log directory that has failed.

Invariant: no answer in the file was worked out by Tailrace.
"""

import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from confluent_kafka.admin import AdminClient, NewTopic

from compat import ours
from compat.artifacts import KAFKA, class_path
from compat.bytewise import copy_directory
from compat.kafka import NODE_ID, Kafka
from compat.processes import free_ports
from compat.report import Report
from compat.topics import create_topics
from tailrace.coordinator.transactions.records import TransactionCodec
from tailrace.model import TRANSACTIONS_TOPIC, AppendOrigin, LeaderEpoch
from tailrace.protocol.apis import api_of
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import decode_response, encode_request
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from tailrace.protocol.messages.init_producer_id import InitProducerIdRequest
from tailrace.protocol.messages.list_groups import ListGroupsRequest
from tailrace.protocol.messages.list_transactions import ListTransactionsRequest
from tailrace.records.builder import BatchBuilder
from tailrace.runtime.clock import SystemClock
from tailrace.spark.java import find_java
from tests.unit.broker.transaction_answers import (
    ANSWERS,
    GROUP,
    HEADER,
    HELD,
    LIVE,
    Cell,
    answers,
    cells,
    seeds,
    why_other,
)

PAUSE_S = 0.005
READY_SECONDS_MAX = 30

_VOTERS = "controller.quorum.voters"
_SETTINGS = {
    # Nothing is to end a transaction but a question.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
    # The paused Kafka leads its partition all the time.
    "broker.session.timeout.ms": "3600000",
}


def check(report: Report, kafka: Kafka) -> None:
    """Ask both brokers everything, with `kafka` on a directory of its own, which is new."""
    asked = list(cells())
    _prepare(kafka, asked)
    mine = copy_directory(kafka.logs, kafka.directory / "ours")
    theirs = _answers_of_kafka(kafka, asked)
    found = _answers_of_ours(mine, asked)
    report.check(
        f"{len(theirs)} requests in all states of a transaction are answered as Kafka does",
        [*_differences((each for each in theirs if why_other(each) is None), found)],
        explained="but where Kafka fails, and where it lets a client have epoch 32767",
    )
    report.check(
        "the answers to which make test holds our broker are Kafka's",
        [*_differences(ANSWERS.read_text().splitlines()[1:], theirs)],
    )


def _prepare(kafka: Kafka, asked: Sequence[Cell]) -> None:
    """Make the topics, and the records that the cells begin with."""
    kafka.settings |= _SETTINGS
    with kafka:
        create_topics(kafka.bootstrap_servers, {LIVE.topic: {}}, partition_count=2)
        with Connection(kafka.bootstrap_servers) as connection:
            connection.wait_for_coordinators()
    with ours.opened(kafka.logs) as logs:
        now_ms = SystemClock().now_ms()
        builder = BatchBuilder()
        for record in seeds(asked):
            key, value = TransactionCodec().encode(record)
            builder.append(key, value, timestamp=now_ms)
        ours.log_of(logs, TRANSACTIONS_TOPIC).append(
            memoryview(bytearray(builder.build())),
            leader_epoch=LeaderEpoch(0),
            now_ms=now_ms,
            origin=AppendOrigin.COORDINATOR,
        )


def _answers_of_kafka(kafka: Kafka, asked: Sequence[Cell]) -> list[str]:
    other = kafka.moved_to(kafka.directory / "other")
    [port] = free_ports(1)
    other.settings |= {
        "process.roles": "broker",
        "node.id": str(NODE_ID + 1),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
    }
    try:
        kafka.start()
        config = (kafka.directory / "server.properties").read_text().splitlines()
        other.settings[_VOTERS] = dict(line.split("=", 1) for line in config)[_VOTERS]
        other.start()
        topic = NewTopic(HELD.topic, num_partitions=1, replica_assignment=[[NODE_ID + 1]])
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        admin.create_topics([topic])[HELD.topic].result()
        os.kill(other.pid, signal.SIGSTOP)
        return _ask_all(kafka.bootstrap_servers, asked)
    finally:
        # An orderly stop would wait for the paused one.
        kafka.kill()
        other.kill()


def _answers_of_ours(logs: Path, asked: Sequence[Cell]) -> list[str]:
    lost = logs.with_name("lost")
    # A directory that is empty gets the next partition.
    with ours.serving(logs, lost, settings=_SETTINGS) as servers:
        create_topics(servers, {HELD.topic: {}})
    assert (lost / f"{HELD.topic}-0").exists()
    shutil.rmtree(lost)
    lost.write_text("no directory\n")
    with ours.serving(logs, lost, settings=_SETTINGS) as servers:
        return _ask_all(servers, asked)


def _ask_all(servers: str, asked: Sequence[Cell]) -> list[str]:
    """The lines of all cells, in their order."""
    with Connection(servers) as connection:
        connection.wait_for_coordinators()
        # One after the other: Kafka verifies all that waits by the version of the first.
        return [line for cell in asked for line in connection.answers(cell)]


class Connection:
    """A connection on which requests are sent one after the other."""

    def __init__(self, servers: str) -> None:
        host, _, port = servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._socket.close()

    def ask(self, request: Message, version: int) -> Any:  # noqa: ANN401 - as it was asked
        """The response to a request.

        Raises:
            EOFError: the broker has closed the connection.
        """
        api = api_of(type(request))
        self._socket.sendall(
            encode_request(api, request, version=version, correlation_id=1, client_id="compat")
        )
        size = int.from_bytes(self._reader.read(4), "big")
        if not size:
            raise EOFError("the connection was closed")
        return decode_response(api, version, memoryview(self._reader.read(size)))

    def answers(self, cell: Cell) -> list[str]:
        """The line of a cell; none if its producer does not exist in its state."""
        run = answers([cell])
        response: Message | None = None
        while True:
            try:
                asked = run.send(response)
            except StopIteration as end:
                lines: list[str] = end.value
                return lines
            if asked is None:
                response = None
                time.sleep(PAUSE_S)
            else:
                response = self.ask(*asked)

    def wait_for_coordinators(self) -> None:
        """Return when the coordinators of groups and of transactions are loaded."""
        deadline = time.monotonic() + READY_SECONDS_MAX

        def wait_for(is_ready: Callable[[], bool]) -> None:
            while not is_ready():
                assert time.monotonic() < deadline, "the coordinators are not ready"
                time.sleep(PAUSE_S)

        def has_coordinator(kind: int) -> bool:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=(GROUP,))
            found: int = self.ask(request, 4).coordinators[0].error_code
            return found == ErrorCode.NONE

        def is_served(request: Message, version: int) -> bool:
            code: int = self.ask(request, version).error_code
            return code == ErrorCode.NONE

        new_id = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        wait_for(lambda: has_coordinator(0))
        wait_for(lambda: has_coordinator(1))
        wait_for(lambda: is_served(ListGroupsRequest(), 4))
        wait_for(lambda: is_served(ListTransactionsRequest(), 0))
        wait_for(lambda: is_served(new_id, 5))


def _differences(due: Iterable[str], found: Iterable[str]) -> Iterator[str]:
    answers = _by_label(found)
    for label, expected in _by_label(due).items():
        if answers.get(label) != expected:
            yield f"{label}: {expected} is due, and it is {answers.get(label)}"


def _by_label(lines: Iterable[str]) -> Mapping[str, str]:
    return {
        " ".join(fields[:3]): " ".join(fields[3:])
        for fields in (each.split("\t") for each in lines)
    }


def main() -> None:
    """Write the file."""
    java, jars = find_java(os.environ).home / "bin" / "java", class_path(KAFKA, os.environ)
    with tempfile.TemporaryDirectory(prefix="tailrace-answers-", dir="/var/tmp") as directory:
        kafka = Kafka(java, jars, Path(directory) / "kafka")
        asked = list(cells())
        _prepare(kafka, asked)
        lines = _answers_of_kafka(kafka, asked)
    ANSWERS.write_text("\n".join([HEADER, *lines]) + "\n")
    print(f"{ANSWERS}: {len(lines)} answers", file=sys.stderr)


if __name__ == "__main__":
    main()
