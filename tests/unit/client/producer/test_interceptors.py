"""Interceptors see and change records, and nothing that they do wrong reaches the producer."""

import logging
from typing import cast

import pytest

from tailrace.client.producer.outcome import RecordMetadata
from tailrace.client.producer.plugins import (
    ProducerInterceptor,
    ProducerInterceptors,
    ProducerRecord,
)

RECORD = ProducerRecord("test", "value", key=1, partition=0)
METADATA = RecordMetadata("test", 0, 5, 0)


class Appending(ProducerInterceptor):
    """Appends to each value, notes each outcome, and fails if told to."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.fails = False
        self.outcomes: list[tuple[RecordMetadata, Exception | None]] = []
        self.is_closed = False

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        if self.fails:
            raise ValueError("a fault of the interceptor")
        return record._replace(value=f"{record.value}{self.text}")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.outcomes.append((metadata, error))
        if self.fails:
            raise ValueError("a fault of the interceptor")

    def close(self) -> None:
        self.is_closed = True
        if self.fails:
            raise ValueError("a fault of the interceptor")


class Watching(ProducerInterceptor):
    """Overrides nothing."""


class Forgetful(ProducerInterceptor):
    """Forgets to return the record."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:  # noqa: ARG002
        return cast("ProducerRecord", None)


def test_each_interceptor_changes_what_the_one_before_made() -> None:
    """The last one's record is sent; the caller's own is as it was."""
    chain = ProducerInterceptors([Appending("One"), Watching(), Appending("Two")])
    assert chain.on_send(RECORD) == RECORD._replace(value="valueOneTwo")
    assert chain.on_send(RECORD) == RECORD._replace(value="valueOneTwo")


def test_a_fault_on_sending_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    """The chain goes on with the last good record, and the fault is in the log."""
    first, second = Appending("One"), Appending("Two")
    chain = ProducerInterceptors([first, second])
    first.fails = True
    assert chain.on_send(RECORD).value == "valueTwo"
    second.fails = True
    assert chain.on_send(RECORD) == RECORD
    assert "user_code_failed name=Appending.on_send" in caplog.text
    assert "a fault of the interceptor" in caplog.text


def test_a_forgotten_return_loses_no_record(caplog: pytest.LogCaptureFixture) -> None:
    """Without a record in return the last good one goes on, and the log says whose fault it is."""
    chain = ProducerInterceptors([Appending("One"), Forgetful(), Appending("Two")])
    assert chain.on_send(RECORD).value == "valueOneTwo"
    assert "name=Forgetful.on_send reason=it returned a NoneType" in caplog.text


def test_all_are_told_of_an_acknowledgement_whatever_one_does() -> None:
    """A fault of one interceptor neither reaches the producer nor the next interceptor."""
    first, second = Appending("One"), Appending("Two")
    chain = ProducerInterceptors([first, Watching(), second])
    first.fails = True
    chain.on_acknowledgement(METADATA, None)
    second.fails = True
    chain.on_acknowledgement(METADATA, None)
    assert first.outcomes == second.outcomes == [(METADATA, None), (METADATA, None)]


@pytest.mark.parametrize(("partition", "told"), [(3, 3), (None, -1)])
def test_a_record_that_could_not_be_sent_is_told_with_what_is_known(
    partition: int | None, told: int
) -> None:
    """Topic and partition are the record's own, -1 if it has none, and there is no offset."""
    watcher = Appending("")
    error = ValueError("not sent")
    record = RECORD._replace(partition=partition)
    ProducerInterceptors([watcher]).on_send_error(record, error)
    assert watcher.outcomes == [(RecordMetadata("test", told, -1, -1), error)]


def test_all_are_closed_whatever_one_does(caplog: pytest.LogCaptureFixture) -> None:
    """A fault at the end keeps no other interceptor from its end."""
    first, second = Appending("One"), Appending("Two")
    first.fails = True
    with caplog.at_level(logging.ERROR):
        ProducerInterceptors([first, Watching(), second]).close()
    assert first.is_closed
    assert second.is_closed
    assert "user_code_failed name=Appending.close" in caplog.text


def test_without_interceptors_the_chain_is_false() -> None:
    """An empty chain is false, so that a producer can skip it."""
    assert not ProducerInterceptors()
    assert ProducerInterceptors([Watching()])
