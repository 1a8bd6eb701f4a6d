"""Clients at work on a cluster while its nodes fail, and what each of them was told.

    with Load(servers, has_kafka=False) as load:
        load.wait_for_more()            each worker has done something that it began after this call
    faults = load.faults()              what was acknowledged and is not there, or twice, or half

Workers are threads: idempotent producers, transactions that commit and abort, a group, and a group
that copies exactly once. librdkafka and our clients do each, but for the copies, which are ours.

Invariant: a worker goes on after every error that its client tells it to get over; any other ends
it, and is a fault.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from compat.clients import Acknowledged, ReadBack, Sender, lost, read_partitions
from tailrace.client.consumer import Consumer, ConsumerRecord
from tailrace.client.producer.errors import TransactionOutcomeUnknownError
from tailrace.client.producer.producer import Producer
from tailrace.errors import FatalError, RetriableError, TailraceError
from tailrace.model import TopicPartition

if TYPE_CHECKING:
    from tailrace.client.producer.receipts import Receipt

RECORDS, TRANSACTIONS, COPIES = "load-records", "load-transactions", "load-copies"
TOPICS = (RECORDS, TRANSACTIONS, COPIES)
PARTITION_COUNT = 6
"""Two for each of three brokers to lead."""
STEP_S = 0.05
"""Time between two steps of a worker: faults are to meet requests under way, not full machines."""
BATCH = 10
_IMPATIENT = {"socket.timeout.ms": 5000, "socket.connection.setup.timeout.ms": 5000}
"""So that librdkafka leaves a broker that is cut off as soon as our clients do."""
CALL_S = 20.0
"""For how long a call of librdkafka waits before it is made again."""
PROGRESS_S_MAX = 120
"""Time in which a step has to end; a broker that is killed has others lead after some seconds."""
ABORTED = b"aborted"

Places = Mapping[tuple[str, int], ReadBack]


class _Worker(ABC):
    """A client that repeats one step on a thread of its own."""

    name: str

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.steps = 0
        """The number of steps that have ended, and of that which is under way."""
        self.error: str | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Begin no other step, and return when the last is over."""
        self._is_over.set()
        self._thread.join()

    @abstractmethod
    def step(self) -> None:
        """Do something, and return when its outcome is known."""

    def close(self) -> None:  # noqa: B027 - most have nothing to do
        """Close the client, after the last step."""

    def _run(self) -> None:
        try:
            while not self._is_over.wait(STEP_S):
                self.step()
                self.steps += 1
            self.close()
        except Exception as error:  # noqa: BLE001 - of whatever kind: it is a fault
            self.error = f"{self.name}: {error!r}"


class _Librdkafka(_Worker):
    """Sends with librdkafka's idempotent producer."""

    name = "librdkafka's producer"

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self._sender = Sender(servers, settings=_IMPATIENT)

    def step(self) -> None:
        for each in range(BATCH):
            value = b"theirs %d %d" % (self.steps, each)
            self._sender.send(RECORDS, value, partition=(self.steps + each) % PARTITION_COUNT)
        deadline = time.monotonic() + PROGRESS_S_MAX
        while len(self._sender.acknowledged) < BATCH * (self.steps + 1):
            self._sender.poll()
            if self._sender.refused or time.monotonic() > deadline:
                raise FatalError(str(self._sender.refused or "nothing is acknowledged"))

    @property
    def acknowledged(self) -> Iterable[Acknowledged]:
        """The records that the brokers have acknowledged."""
        return self._sender.acknowledged


class _Ours(_Worker):
    """Sends with our idempotent producer."""

    name = "our producer"

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self._producer = Producer(bootstrap_servers=servers, request_timeout_ms=5000)
        self._receipts: list[tuple[bytes, Receipt]] = []

    def step(self) -> None:
        values = [b"ours %d %d" % (self.steps, each) for each in range(BATCH)]
        sent = [(each, self._producer.send(RECORDS, each)) for each in values]
        self._receipts += sent
        for _, receipt in sent:
            receipt.result()

    def close(self) -> None:
        self._producer.close()

    @property
    def acknowledged(self) -> Iterator[Acknowledged]:
        """The records that the brokers have acknowledged."""
        for value, receipt in self._receipts:
            if receipt.exception(0) is None:
                yield Acknowledged(RECORDS, receipt.partition, receipt.offset, value)


class _Transactions(_Worker):
    """Transactions over all partitions, of which every third is aborted."""

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self.committed: list[bytes] = []
        """Values that each partition has once for readers of committed records; no others."""

    def step(self) -> None:
        if self.steps % 3 == 2:
            self.abort(b"%s %s %d" % (ABORTED, self.name.encode(), self.steps))
        else:
            value = b"%s %d" % (self.name.encode(), self.steps)
            self.commit(value)
            self.committed.append(value)

    @abstractmethod
    def commit(self, value: bytes) -> None:
        """Have a value committed in each partition."""

    @abstractmethod
    def abort(self, value: bytes) -> None:
        """Have a value sent to each partition, in a transaction that aborts."""


class _OurTransactions(_Transactions):
    name = "our transactions"

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self._producer = Producer(
            bootstrap_servers=servers, transactional_id=self.name, request_timeout_ms=5000
        )

    def commit(self, value: bytes) -> None:
        while True:
            try:
                with self._producer.transaction():
                    self._send(value)
                return
            except TransactionOutcomeUnknownError:
                if _finish(self._producer):
                    return
            except RetriableError:
                continue

    def abort(self, value: bytes) -> None:
        with suppress(LookupError, RetriableError), self._producer.transaction():
            self._send(value)
            raise LookupError

    def _send(self, value: bytes) -> None:
        for partition in range(PARTITION_COUNT):
            self._producer.send(TRANSACTIONS, value, partition=partition)

    def close(self) -> None:
        self._producer.close()


def _finish(producer: Producer) -> bool:
    """Wait for the outcome of a commit; whether it is a commit."""
    while True:
        try:
            producer.finish_transaction()
        except TransactionOutcomeUnknownError:
            continue
        except RetriableError:
            return False
        return True


class _TheirTransactions(_Transactions):
    name = "librdkafka's transactions"

    def __init__(self, servers: str, *, has_kafka: bool) -> None:
        super().__init__(servers)
        self._has_kafka = has_kafka
        self._begin()

    def _begin(self) -> None:
        """Take a new producer, which aborts what the one before has left."""
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.servers, "transactional.id": self.name, "log_level": 0,
                **_IMPATIENT,
            }
        )  # fmt: skip
        self._is_initialized = False

    def commit(self, value: bytes) -> None:
        while not self._try(value, is_commit=True):
            pass

    def abort(self, value: bytes) -> None:
        self._try(value, is_commit=False)

    def _try(self, value: bytes, *, is_commit: bool) -> bool:
        """Run a transaction; False if it had to be aborted."""
        if not self._is_initialized:
            _again(lambda: self._producer.init_transactions(CALL_S))
            self._is_initialized = True
        acknowledged: list[Message] = []
        failed: list[KafkaError] = []

        def note(error: KafkaError | None, sent: Message) -> None:
            if error is None:
                acknowledged.append(sent)
            else:
                failed.append(error)

        self._producer.begin_transaction()
        for partition in range(PARTITION_COUNT):
            self._producer.produce(TRANSACTIONS, value, partition=partition, on_delivery=note)
        try:
            if is_commit:
                _again(lambda: self._producer.commit_transaction(CALL_S))
                if len(acknowledged) < PARTITION_COUNT:
                    raise FatalError(
                        f"librdkafka has committed {value!r} with {len(acknowledged)} of "
                        f"{PARTITION_COUNT} records acknowledged, and says of others: {failed}"
                    )
                return True
            self._producer.flush(CALL_S)
        except KafkaException as error:
            # A Kafka that was cut off keeps the sequence of the batch whose transaction it was
            # verifying. When it leads again it holds the next one against that, and refuses it
            # (`checkSequence` in ProducerAppendInfo of 4.3.1: "earliest seen sequence").
            code = _error(error).code()
            if self._has_kafka and code == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self._begin()
                return False
            if not _error(error).txn_requires_abort():
                raise
        try:
            _again(lambda: self._producer.abort_transaction(CALL_S))
        except KafkaException as error:
            # Where no coordinator has answered AddPartitionsToTxn, it sends EndTxn all the same
            # ("we can't be sure if the request was received", rdkafka_txnmgr.c of 2.16). The next
            # coordinator has the commit before, which cannot be aborted, and librdkafka dies of
            # that at Kafka too (tests/wire/test_transactions.py). One partition that has taken a
            # record was added, and then a coordinator has lost it.
            if _error(error).code() != KafkaError.INVALID_TXN_STATE or acknowledged:
                raise
            self._begin()
        return False


def _again(call: Callable[[], object]) -> None:
    """Make a call until it does not end with an error that says to make it again."""
    deadline = time.monotonic() + PROGRESS_S_MAX
    while True:
        try:
            call()
        except KafkaException as error:
            if not _error(error).retriable() or time.monotonic() > deadline:
                raise
        else:
            return


def _error(error: KafkaException) -> KafkaError:
    found: KafkaError = error.args[0]
    return found


class _Member(_Worker):
    """A member of a group that reads all records."""

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self.read: Counter[bytes] = Counter()


class _OurMember(_Member):
    name = "our member of a group"

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self._consumer = Consumer(
            bootstrap_servers=servers,
            group_id="load-readers",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            request_timeout_ms=5000,
        )
        self._consumer.subscribe(RECORDS)

    def step(self) -> None:
        found = [each.value or b"" for each in self._consumer.poll(1)]
        self.read.update(found)

    def close(self) -> None:
        self._consumer.close()


class _TheirMember(_Member):
    name = "librdkafka's member of a group"

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers, "group.id": "load-readers", "log_level": 0,
                "auto.offset.reset": "earliest", "partition.assignment.strategy": "range",
                **_IMPATIENT,
            }
        )  # fmt: skip
        self._consumer.subscribe([RECORDS])

    def step(self) -> None:
        for message in self._consumer.consume(100, 1):
            if message.error() is None:
                self.read[message.value()] += 1
            elif message.error().fatal():
                raise KafkaException(message.error())

    def close(self) -> None:
        self._consumer.close()


class _Copies(_Worker):
    """Copies all records into another topic, with their offsets in the same transaction."""

    name = "our copies"

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self.copied = 0
        self._producer = Producer(
            bootstrap_servers=servers, transactional_id=self.name, request_timeout_ms=5000
        )
        self._begin()

    def _begin(self) -> None:
        """Read from what is committed."""
        self._consumer = Consumer(
            bootstrap_servers=self.servers,
            group_id="load-copies",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
            request_timeout_ms=5000,
        )
        self._consumer.subscribe(RECORDS)

    def step(self) -> None:
        records = [*self._consumer.poll(1)]
        if records and self._copy(records):
            self.copied += len(records)
        elif records:
            # Nothing of them is committed, and this consumer is behind them.
            self._consumer.close()
            self._begin()

    def _copy(self, records: Sequence[ConsumerRecord]) -> bool:
        """Whether the copies and the offsets are committed."""
        ends = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
        try:
            with self._producer.transaction():
                for each in records:
                    self._producer.send(COPIES, each.value, partition=each.partition)
                self._producer.send_offsets_to_transaction(ends, self._consumer.group_metadata())
        except TransactionOutcomeUnknownError:
            return _finish(self._producer)
        except RetriableError:
            return False
        return True

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()


class Load:
    """All workers."""

    def __init__(self, servers: str, *, has_kafka: bool) -> None:
        """`has_kafka` tells that brokers of Kafka's are among them."""
        self._servers = servers
        self._senders = (_Librdkafka(servers), _Ours(servers))
        self._transactions = (
            _TheirTransactions(servers, has_kafka=has_kafka),
            _OurTransactions(servers),
        )
        self._members = (_TheirMember(servers), _OurMember(servers))
        self._copies = _Copies(servers)

    @property
    def _workers(self) -> tuple[_Worker, ...]:
        return (*self._senders, *self._transactions, *self._members, self._copies)

    def __enter__(self) -> Self:
        for each in self._workers:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        for writer in (*self._senders, *self._transactions):
            writer.end()
        with suppress(TailraceError, KafkaException):
            self._wait_for_readers()
        for reader in (*self._members, self._copies):
            reader.end()

    def wait_for_more(self) -> Iterator[str]:
        """Wait until each worker has ended a step that it began after this call."""
        wanted = {each: each.steps + 2 for each in self._workers}
        deadline = time.monotonic() + PROGRESS_S_MAX
        while late := [each for each, steps in wanted.items() if each.steps < steps]:
            if time.monotonic() > deadline or all(each.error for each in late):
                yield from (each.error or f"{each.name} has not gone on" for each in late)
                return
            time.sleep(0.1)

    def _wait_for_readers(self) -> None:
        """Wait until the groups have read what is there."""
        places = [(RECORDS, each) for each in range(PARTITION_COUNT)]
        read = read_partitions(self._servers, places, is_committed=True)
        count = sum(len(each.records) for each in read.values())
        deadline = time.monotonic() + PROGRESS_S_MAX
        while time.monotonic() < deadline:
            shared = {*self._members[0].read, *self._members[1].read}
            if len(shared) >= count and self._copies.copied >= count:
                return
            time.sleep(0.2)

    def faults(self) -> dict[str, list[str]]:
        """Each claim with what contradicts it; after the end of all workers."""
        places = [(topic, each) for topic in TOPICS for each in range(PARTITION_COUNT)]
        every, committed = (
            read_partitions(self._servers, places, is_committed=each) for each in (False, True)
        )
        acknowledged: dict[tuple[str, int], list[Acknowledged]] = defaultdict(list)
        for sender in self._senders:
            for each in sender.acknowledged:
                acknowledged[each[:2]].append(each)
        values = _values(committed, RECORDS)
        count = sum(map(len, acknowledged.values()))
        shared = self._members[0].read + self._members[1].read
        return {
            "no client was told to give up": [
                each.error for each in self._workers if each.error is not None
            ],
            "each record that was acknowledged is at its offset": [
                *(fault for place, sent in acknowledged.items()
                  for fault in lost(sent, every[place])),
                *([] if count else ["nothing was acknowledged"]),
            ],
            "no record of an idempotent producer is there twice": [*_repeated(values)],
            "transactions are whole, and aborted ones invisible": [
                *self._partial(committed, every)
            ],
            "two members of a group have read each record": [
                f"{each!r} was not read" for each in values - shared
            ],
            "each record is copied exactly once": [
                *_differing(values, _values(committed, COPIES))
            ],
        }  # fmt: skip

    def _partial(self, committed: Places, every: Places) -> Iterator[str]:
        due = Counter(each for worker in self._transactions for each in worker.committed)
        for partition in range(PARTITION_COUNT):
            place = TRANSACTIONS, partition
            found = Counter(each.value or b"" for each in committed[place].records)
            for fault in _differing(due, found):
                yield f"partition {partition}: {fault}"
            if not any((each.value or b"").startswith(ABORTED) for each in every[place].records):
                yield f"partition {partition}: no record of an aborted transaction is in the log"


def _values(read: Places, topic: str) -> Counter[bytes]:
    return Counter(
        each.value or b""
        for place, found in read.items()
        if place[0] == topic
        for each in found.records
    )


def _repeated(values: Counter[bytes]) -> Iterator[str]:
    yield from (f"{each!r} is there {count} times" for each, count in values.items() if count > 1)


def _differing(due: Counter[bytes], found: Counter[bytes]) -> Iterator[str]:
    yield from (f"{each!r} is missing" for each in due - found)
    yield from (f"{each!r} is there too often" for each in found - due)
