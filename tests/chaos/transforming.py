"""Transactional producers of librdkafka: alone, and consuming, transforming and producing.

A transformer reads records of its group, and in one transaction writes a record for each of them
and commits their offsets; so each committed source record has one committed effect, no matter which
process is killed. A transaction is committed or aborted at random. After an abort the transformer
goes back to where the transaction began; after an error that leaves the outcome open it ends its
life, and the next one with the same transactional id takes over. Where it begins in a partition it
asks for itself (`Beginning`).
"""

import signal
from typing import Any, Final

import confluent_kafka

from tests.chaos.consuming import (
    POLL_S,
    Membership,
    confluent_settings,
    records_of,
)
from tests.chaos.life import EVENTS, RESULTS, Life, named
from tests.histories.history import Assign, Commit, EndTransaction, Outcome, Send, Source

TIMEOUTS_OF_TRANSACTION: Final = 4
"""The transaction timeout in requests' timeouts."""

RECORDS_MAX: Final = 200
"""Source records of one transaction, so that two transformers keep up with the producers."""

TRIES: Final = 3
"""Calls of a method that has timed out, before the life ends."""

ASK_S: Final = 1.0
"""Limit of one question for committed offsets; a rebalance waits for it."""

COMMITS: Final = 0.8
"""Probability that a transaction is meant to be committed."""


class AbortedError(Exception):
    """The transaction was aborted, and the producer may begin another one."""


class Transactions:
    """The transactions of a life, one after the other, with their history."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._count = 0
        self._limit_s = 4 * life.plan.timeout_ms / 1000
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": life.plan.bootstrap,
                "transactional.id": life.plan.name,
                "transaction.timeout.ms": TIMEOUTS_OF_TRANSACTION * life.plan.timeout_ms,
                "linger.ms": 5,
                "socket.timeout.ms": life.plan.timeout_ms,
                "request.timeout.ms": life.plan.timeout_ms,
                "message.timeout.ms": TIMEOUTS_OF_TRANSACTION * life.plan.timeout_ms,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self.name = ""
        """The transaction that is open."""

    def open(self) -> None:
        """Take over from the life before, which has the same transactional id."""
        self._again(self._producer.init_transactions)

    def begin(self) -> None:
        """Begin a transaction."""
        self._count += 1
        self.name = f"{self._life.plan.process}#{self._count}"
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, source: Source | None = None) -> None:
        """Send a record in it.

        Raises:
            KafkaException: see `abort_after`.
        """
        value = self._life.value()
        send = Send(
            partition=named(topic, partition), value=value, transaction=self.name, source=source
        )
        number = self._life.recorder.begin(send)

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self._life.recorder.end(number, Outcome.OK, offset=message.offset())
            else:
                self._life.recorder.end(number, Outcome.INFO)

        self._producer.produce(topic, value.encode(), partition=partition, on_delivery=delivered)

    def commit_offsets(self, consumer: Any, offsets: dict[int, int]) -> None:
        """Commit offsets of the consumer's group as part of it.

        Raises:
            KafkaException: see `abort_after`.
        """
        commit = Commit(
            group=self._life.plan.group,
            offsets={named(EVENTS, partition): offset for partition, offset in offsets.items()},
            transaction=self.name,
        )
        number = self._life.recorder.begin(commit)
        wanted = [
            confluent_kafka.TopicPartition(EVENTS, partition, offset)
            for partition, offset in offsets.items()
        ]
        self._again(
            self._producer.send_offsets_to_transaction, wanted, consumer.consumer_group_metadata()
        )
        self._life.recorder.end(number, Outcome.OK)

    def end(self, *, is_commit: bool) -> None:
        """Commit or abort.

        Raises:
            KafkaException: see `abort_after`.
        """
        # At an abort librdkafka 2.16 throws away what waits for another attempt, and gives its
        # sequence number to the next record of the partition. If an attempt has been carried out,
        # that record is taken for a repetition by Apache Kafka 4.3.1: acknowledged and lost.
        if not is_commit and self._producer.flush(self._limit_s):
            self._life.give_up("_PURGE_QUEUE")
        action = EndTransaction(transaction=self.name, is_commit=is_commit)
        number = self._life.recorder.begin(action)
        # An operation that fails here stays without an outcome: the coordinator may know better.
        self._again(
            self._producer.commit_transaction if is_commit else self._producer.abort_transaction
        )
        self._life.recorder.end(number, Outcome.OK)

    def abort_after(self, error: confluent_kafka.KafkaException) -> None:
        """Abort because of an error, which need not be the one that made it necessary.

        Raises:
            KafkaException: it cannot be aborted: it is being committed, or this producer is over.
        """
        if error.args[0].fatal():
            raise error
        self.end(is_commit=False)

    def _again(self, call: Any, *arguments: Any) -> None:
        """Call until there is an outcome; a new life is better than waiting for ever."""
        # librdkafka 2.16 may wait for ever after the broker was away: SIGALRM ends this life then.
        signal.alarm(round((TRIES + 1) * self._limit_s))
        for left in reversed(range(TRIES)):
            try:
                call(*arguments, self._limit_s)
            except confluent_kafka.KafkaException as error:
                if not left or not error.args[0].retriable():
                    raise
            else:
                break
        signal.alarm(0)


class Beginning:
    """Has a consumer of librdkafka begin where its group has committed.

    By itself librdkafka 2.16 begins a partition at `auto.offset.reset` if a transaction has an
    offset for it that is not decided yet and the consumer keeps the partition over a rebalance. It
    does so with Apache Kafka 4.3.1 too. `committed` waits for the decision.
    """

    def __init__(self, life: Life, consumer: Any) -> None:
        self._life = life
        self._consumer = consumer
        self._waiting: list[Any] = []
        """The partitions that are assigned and not read yet."""

    def assigned(self, partitions: list[Any]) -> None:
        """Take an assignment, of which nothing is read before `settle` knows the offsets."""
        # A callback that assigns nothing has all partitions assigned by the binding, to be read.
        self._consumer.assign([])
        self._waiting = partitions

    def revoked(self) -> None:
        """Forget the partitions: the consumer has none any more."""
        self._waiting = []

    def settle(self) -> None:
        """Begin if there is something to begin, and its offsets are decided within `ASK_S`.

        It waits no longer, as the consumer has to hear of a rebalance.
        """
        if not self._waiting:
            return
        try:
            found = self._consumer.committed(self._waiting, ASK_S)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() == confluent_kafka.KafkaError._TIMED_OUT:
                return
            self._life.give_up(error.args[0].name())
        for each in found:
            if each.error is not None:
                self._life.give_up(each.error.name())
            if each.offset == confluent_kafka.OFFSET_INVALID:
                each.offset = confluent_kafka.OFFSET_BEGINNING
        self._consumer.assign(found)
        self._waiting = []


def send_transactions(life: Life) -> None:
    """Send transactions of some records until the end of the life."""
    transactions = Transactions(life)
    transactions.open()
    while not life.stopping.is_set():
        transactions.begin()
        try:
            for _ in range(life.chance.randrange(1, 8)):
                transactions.send(EVENTS, life.partition())
                life.stopping.wait(life.pause_s() / 4)
            transactions.end(is_commit=life.chance.random() < COMMITS)
        except confluent_kafka.KafkaException as error:
            transactions.abort_after(error)
        life.stopping.wait(life.pause_s())


def transform(life: Life) -> None:
    """Consume, transform and produce until the end of the life."""
    membership = Membership(life)
    consumer = confluent_kafka.Consumer(confluent_settings(life, "range"))
    beginning = Beginning(life, consumer)

    def assigned(_: Any, partitions: list[Any]) -> None:
        membership.assigned(each.partition for each in partitions)
        beginning.assigned(partitions)

    def revoked(_: Any, partitions: list[Any]) -> None:
        membership.revoked(each.partition for each in partitions)
        beginning.revoked()

    consumer.subscribe([EVENTS], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    transactions = Transactions(life)
    transactions.open()
    while not life.stopping.is_set():
        beginning.settle()
        messages = records_of(life, consumer.consume(RECORDS_MAX, POLL_S))
        if not messages:
            continue
        membership.polled((each.partition(), each.offset(), each.value()) for each in messages)
        try:
            _transform(life, transactions, consumer, messages)
        except AbortedError:
            _go_back(life, consumer, messages)
    consumer.close()


def _transform(life: Life, transactions: Transactions, consumer: Any, messages: Any) -> None:
    """Have the effects of some records and their offsets committed.

    Raises:
        AbortedError: nothing of it was committed.
        KafkaException: this producer is over, and the outcome is open.
    """
    is_commit = life.chance.random() < COMMITS
    transactions.begin()
    try:
        for each in messages:
            source = Source(life.plan.group, named(EVENTS, each.partition()), each.offset())
            transactions.send(RESULTS, life.partition(), source)
        offsets = {each.partition(): each.offset() + 1 for each in messages}
        life.stopping.wait(life.work_s())
        transactions.commit_offsets(consumer, offsets)
        transactions.end(is_commit=is_commit)
    except confluent_kafka.KafkaException as error:
        transactions.abort_after(error)
        raise AbortedError from error
    if not is_commit:
        raise AbortedError


def _go_back(life: Life, consumer: Any, messages: Any) -> None:
    """Have the next poll return what the last one has returned, if it is still ours."""
    firsts: dict[int, int] = {}
    for each in messages:
        firsts.setdefault(each.partition(), each.offset())
    for partition in consumer.assignment():
        if partition.partition in firsts:
            offset = firsts[partition.partition]
            consumer.seek(confluent_kafka.TopicPartition(EVENTS, partition.partition, offset))
            again = (named(EVENTS, partition.partition),)
            life.recorder.note(Assign(added=again, group=life.plan.group))
