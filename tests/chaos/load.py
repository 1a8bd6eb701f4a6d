"""Producers that send numbered records until they are told to stop, and what they say of them.

    plain           send, without and with keys, from a thread
    async           tasks that await, that do not, and that give up waiting
    many            send_many, some hundred rows at a time
    transactional   transactions that are committed and aborted, where there is a coordinator

Not here: whether what they say is true (`verdict`).
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

from tailrace import AsyncProducer, Producer
from tailrace.client.producer import Receipt
from tailrace.client.producer.errors import (
    BufferExhaustedError,
    MetadataTimeoutError,
    ProducerError,
    SendCancelledError,
    TransactionOutcomeUnknownError,
)
from tailrace.errors import FatalError, RetriableError
from tests.chaos.verdict import End, Told, value_of

TOPIC: Final = "chaos"

_NEVER_SENT: Final = (BufferExhaustedError, MetadataTimeoutError, SendCancelledError)
_SIZES: Final = (20, 100, 900)


class Changed(Exception):  # noqa: N818 - no error
    """A transaction is aborted because its program wants that."""


class Load:
    """One producer's part: a thread, and what it has sent."""

    def __init__(self, name: str, settings: dict[str, Any], seed: int) -> None:
        self.name = name
        self._settings = settings
        self._chance = Random(f"{seed} {name}")
        self._receipts: list[tuple[int, Receipt, int]] = []
        self._told: list[Told] = []
        self._next = 0
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Send no more."""
        self._stop.set()

    def join(self, timeout_s: float) -> str:
        """Wait until all has its outcome; what is wrong if it takes longer or the thread failed."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return f"{self.name} has not come to its end within {timeout_s:.0f} s"
        return f"{self.name} failed: {self._failure!r}" if self._failure is not None else ""

    def told(self) -> list[Told]:
        """Return the outcome of every record."""
        return self._told + [self._of(*each) for each in self._receipts]

    def _run(self) -> None:
        try:
            work: Callable[[], None] = getattr(self, f"_send_{self.name.split('-')[0]}")
            work()
        except Exception as error:  # noqa: BLE001 - told by `join`
            self._failure = error

    def _values(self, count: int) -> Iterator[tuple[int, bytes]]:
        """Numbers and values of the next records."""
        for _ in range(count):
            number, self._next = self._next, self._next + 1
            yield number, value_of(self.name, number, self._chance.choice(_SIZES))

    def _key(self) -> bytes | None:
        return b"%d" % self._chance.randrange(50) if self.name.endswith("keys") else None

    def _pause_s(self) -> float:
        return self._chance.random() * 0.06

    def _of(self, number: int, receipt: Receipt, transaction: int) -> Told:
        end, partition, offset = End.NOT_ENDED, -1, -1
        if receipt.done():
            error = receipt.exception()
            end = End.NEVER_SENT if isinstance(error, _NEVER_SENT) else End.FAILED
            if error is None:
                end, partition, offset = End.ACKNOWLEDGED, receipt.partition, receipt.offset
        return Told(
            producer=self.name,
            number=number,
            end=end,
            partition=partition,
            offset=offset,
            transaction=transaction,
        )

    def _note(self, number: int, end: End, *, transaction: int = -1) -> None:
        told = Told(producer=self.name, number=number, end=end, transaction=transaction)
        self._told.append(told)

    def _send_plain(self) -> None:
        with Producer(self._settings) as producer:
            while not self._stop.wait(self._pause_s()):
                for number, value in self._values(self._chance.randrange(1, 20)):
                    receipt = producer.send(TOPIC, value, self._key())
                    self._receipts.append((number, receipt, -1))

    def _send_many(self) -> None:
        with Producer(self._settings) as producer:
            while not self._stop.wait(self._pause_s()):
                records = list(self._values(self._chance.randrange(1, 300)))
                rows = [value for _, value in records]
                try:
                    summary = producer.send_many(TOPIC, rows)
                except ProducerError:
                    # Some of them are on their way, and may be written yet.
                    for number, _ in records:
                        self._note(number, End.FAILED)
                    continue
                for row, (number, _) in enumerate(records):
                    is_written = row not in summary.errors
                    self._note(number, End.ACKNOWLEDGED if is_written else End.FAILED)

    def _send_async(self) -> None:
        asyncio.run(self._send_from_tasks())

    async def _send_from_tasks(self) -> None:
        async with AsyncProducer(self._settings) as producer, asyncio.TaskGroup() as tasks:
            for _ in range(8):
                tasks.create_task(self._send_and_await(producer))

    async def _send_and_await(self, producer: AsyncProducer) -> None:
        chance = self._chance
        while not self._stop.is_set():
            for number, value in self._values(chance.randrange(1, 5)):
                receipt = producer.send(TOPIC, value, self._key())
                self._receipts.append((number, receipt, -1))
                if chance.random() < 0.5:
                    limit_s = chance.choice((None, None, 0.0, 0.05))
                    try:
                        await asyncio.wait_for(receipt, limit_s)
                    except (TimeoutError, ProducerError):
                        continue
            await asyncio.to_thread(self._stop.wait, self._pause_s())

    def _send_transactional(self) -> None:
        transaction = 0
        while not self._stop.is_set():
            with Producer(self._settings, transactional_id=self.name) as producer:
                try:
                    while not self._stop.wait(self._pause_s()):
                        self._send_transaction(producer, transaction)
                        transaction += 1
                except FatalError:
                    # Another one with the same name takes over, and aborts what was left.
                    transaction += 1

    def _send_transaction(self, producer: Producer, transaction: int) -> None:
        end, numbers = End.FAILED, []
        try:
            with producer.transaction():
                for number, value in self._values(self._chance.randrange(1, 20)):
                    numbers.append(number)
                    producer.send(TOPIC, value, receipt=False)
                if self._chance.random() < 0.2:
                    end = End.NEVER_SENT
                    raise Changed
            end = End.ACKNOWLEDGED
        except TransactionOutcomeUnknownError as error:
            if error.is_final:
                raise
            end = finished(producer)
        except (Changed, RetriableError):
            # Nothing of the transaction is committed, nor will be.
            end = End.NEVER_SENT
        finally:
            for number in numbers:
                self._note(number, end, transaction=transaction)


def finished(producer: Producer) -> End:
    """Finish a transaction of unknown outcome, and return the outcome that the producer learns.

    Raises:
        TransactionOutcomeUnknownError: it never will.
    """
    while True:
        try:
            producer.finish_transaction()
        except TransactionOutcomeUnknownError as error:
            if error.is_final:
                raise
        except RetriableError:
            return End.NEVER_SENT
        else:
            return End.ACKNOWLEDGED
