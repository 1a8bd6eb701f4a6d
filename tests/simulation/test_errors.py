"""Each error code in the answer to Produce ends a batch, or has it sent again.

Records that cannot be sent harm no other.
"""

import dataclasses
from functools import partial
from typing import Any

import pytest

from tailrace.client import nodes
from tailrace.client.producer.errors import ProducerError, producer_error
from tailrace.client.producer.outcome import RecordMetadata
from tailrace.client.producer.plugins import ProducerRecord
from tailrace.client.producer.producer import Producer
from tailrace.errors import TailraceError
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.produce import BatchIndexAndErrorMessage, ProduceResponse
from tailrace.testing.script import FaultKind
from tests.simulation.stage import T0, T1, Stage, check_empty, outcomes, play, with_fields

RETRIABLE = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
)

FATAL = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "BrokerRefusedError",
    ErrorCode.MESSAGE_TOO_LARGE: "RejectedRecordError",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "BrokerRefusedError",
    ErrorCode.RECORD_LIST_TOO_LARGE: "BrokerRefusedError",
    ErrorCode.INVALID_REQUIRED_ACKS: "BrokerRefusedError",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "AuthorizationError",
    ErrorCode.INVALID_TIMESTAMP: "RejectedRecordError",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "BrokerRefusedError",
    ErrorCode.POLICY_VIOLATION: "BrokerRefusedError",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "BrokerRefusedError",
    ErrorCode.INVALID_RECORD: "RejectedRecordError",
}

KINDS: dict[str, dict[str, Any]] = {
    "idempotent": {},
    "plain": {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [FaultKind.ERROR, FaultKind.ERROR_AFTER])
@pytest.mark.parametrize("code", RETRIABLE, ids=lambda code: code.name)
@pytest.mark.parametrize("skip", [0, 2])
def test_a_retriable_code_is_no_failure(
    kind: str, how: FaultKind, code: ErrorCode, skip: int
) -> None:
    """The batch is sent until it is acknowledged; a broker knows one that it had already."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, how, error=code, skip=skip, times=2)
        async with stage.producer(batch_size=100, **KINDS[kind]) as producer:
            receipts = stage.send(producer, 6, size=90)
            await producer.flush()
            assert outcomes(receipts) == [""] * 6
            check_empty(producer)
        is_plain = kind == "plain"
        stage.check_log(may_repeat=is_plain, may_reorder=is_plain)

    play(main)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", FATAL, ids=lambda code: code.name)
@pytest.mark.parametrize("skip", [0, 2])
def test_a_fatal_code_fails_its_batch_and_no_other(kind: str, code: ErrorCode, skip: int) -> None:
    """The records of one batch fail with one clear error; all others are written, in order."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.ERROR, error=code, skip=skip)
        async with stage.producer(batch_size=100, **KINDS[kind]) as producer:
            receipts = stage.send(producer, 6, size=90)
            await producer.flush()
            expected = [""] * 6
            expected[skip] = FATAL[code]
            assert outcomes(receipts) == expected
            assert code.name in str(receipts[skip].exception())
            check_empty(producer)
        stage.check_log()

    play(main)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ],
    ids=lambda code: code.name,
)
def test_a_code_that_ends_the_producer_fails_all_that_is_to_come(code: ErrorCode) -> None:
    """After such an answer no record is taken, and each receipt says so."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.ERROR, error=code)
        async with stage.producer(batch_size=100) as producer:
            first = stage.send(producer, 4, size=90)
            await producer.flush()
            later = stage.send(producer, 2)
            await producer.flush()
            assert "" not in outcomes(first)[:1] + outcomes(later)
            check_empty(producer)
        stage.check_log()

    play(main)


def test_a_fatal_answer_leaves_what_is_in_flight_elsewhere_its_outcome() -> None:
    """A record that another node writes later is acknowledged, though no other is taken."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            for partition in (0, 1):
                await stage.send(producer, partition=partition)[0]
            stage.cluster.script.add(
                ApiKey.PRODUCE,
                FaultKind.ERROR,
                error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                partition=T0,
            )
            stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.DELAY, delay_s=3, partition=T1)
            receipts = stage.send(producer) + stage.send(producer, partition=1)
            await stage.pass_time(1)
            assert [each.done() for each in receipts] == [True, False]
            await stage.pass_time(5)
            assert outcomes(receipts) == ["AuthorizationError", ""]
            with pytest.raises(TailraceError):
                await stage.send(producer)[0]
            check_empty(producer)
        stage.check_log()

    play(main, nodes=2)


@pytest.mark.parametrize("code", [-7, 9999])
def test_an_unknown_error_code_is_fatal_for_its_batch(code: int) -> None:
    """The error has the unknown number."""
    with_code = partial(with_fields, error_code=code)

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.EDIT, edit=with_code)
        async with stage.producer() as producer:
            (receipt,) = stage.send(producer)
            await producer.flush()
            assert str(code) in str(receipt.exception())
            await stage.send(producer)[0]
        stage.check_log()

    play(main)


def test_a_late_answer_with_a_retriable_code_gives_no_number_to_another_record() -> None:
    """A batch that may be in the log keeps its sequence number, though its time is up."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(
            ApiKey.PRODUCE,
            FaultKind.ERROR_AFTER,
            error=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            delay_s=3.0,
        )
        async with stage.producer(
            request_timeout_ms=3000, delivery_timeout_ms=3000, retry_backoff_ms=1
        ) as producer:
            stage.send(producer)
            await producer.flush()
            await stage.send(producer)[0]
        stage.check_log()

    play(main)


def test_an_unknown_server_error_gives_no_number_to_another_record() -> None:
    """A broker that failed may have written the batch, so its number is not used again."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(
            ApiKey.PRODUCE, FaultKind.ERROR_AFTER, error=ErrorCode.UNKNOWN_SERVER_ERROR
        )
        async with stage.producer() as producer:
            (receipt,) = stage.send(producer)
            await producer.flush()
            assert outcomes([receipt]) == ["BrokerRefusedError"]
            await stage.send(producer)[0]
        stage.check_log()

    play(main)


def test_retries_bound_how_often_a_batch_is_sent() -> None:
    """After `retries` further attempts the batch fails with the error of the last one."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(
            ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.NOT_ENOUGH_REPLICAS, times=9
        )
        async with stage.producer(retries=2) as producer:
            (receipt,) = stage.send(producer)
            await producer.flush()
            assert "NOT_ENOUGH_REPLICAS" in str(receipt.exception())
            assert stage.cluster.count(ApiKey.PRODUCE) == 3
            stage.cluster.script.heal()
            await stage.send(producer)[0]
        stage.check_log()

    play(main)


def test_disconnects_count_as_attempts() -> None:
    """A batch whose connection breaks is sent again, and at most `retries` times."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.CUT)
        async with stage.producer(retries=1) as producer:
            await stage.send(producer)[0]
            stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.CUT, times=2)
            (receipt,) = stage.send(producer)
            await producer.flush()
            assert outcomes([receipt]) == ["ProducerDisconnectedError"]
        stage.check_log()

    play(main)


def test_a_batch_that_is_too_large_is_sent_in_parts() -> None:
    """MESSAGE_TOO_LARGE splits a batch until it fits; receipts and order stay."""

    async def main(stage: Stage) -> None:
        stage.cluster.log().batch_bytes_max = 250
        async with stage.producer(batch_size=10_000, linger_ms=10) as producer:
            receipts = stage.send(producer, 20, size=50)
            await producer.flush()
            assert outcomes(receipts) == [""] * 20
            assert [each.offset for each in receipts] == list(range(20))
            assert producer.metrics()["batch-split-total"] > 2
            check_empty(producer)
            # Nothing of the whole is left that could expire.
            await stage.pass_time(200)
            assert outcomes(receipts) == [""] * 20
            check_empty(producer)
        stage.check_log()

    play(main)


def test_a_record_that_is_too_large_for_the_topic_fails_alone() -> None:
    """Split down to itself, only the record that is too large fails; its neighbours are written."""

    async def main(stage: Stage) -> None:
        stage.cluster.log().batch_bytes_max = 400
        async with stage.producer(linger_ms=10) as producer:
            receipts = stage.send(producer, 3)
            receipts += stage.send(producer, 1, size=500)
            receipts += stage.send(producer, 3)
            await producer.flush()
            assert outcomes(receipts) == ["", "", "", "RejectedRecordError", "", "", ""]
            check_empty(producer)
        stage.check_log()

    play(main)


def test_a_batch_that_expired_is_not_split() -> None:
    """MESSAGE_TOO_LARGE after the time for delivery changes nothing."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(
            ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.MESSAGE_TOO_LARGE, delay_s=5
        )
        async with stage.producer(
            linger_ms=10, request_timeout_ms=2990, delivery_timeout_ms=3000
        ) as producer:
            receipts = stage.send(producer, 3)
            await producer.flush()
            await stage.pass_time(10)
            assert outcomes(receipts) == ["DeliveryTimeoutError"] * 3
            assert producer.metrics()["batch-split-total"] == 0
            check_empty(producer)

    play(main)


def test_an_error_of_one_record_reaches_its_receipt() -> None:
    """The broker's words about a record are its own error, and the others say why they failed."""
    with_errors = partial(
        with_fields,
        error_code=ErrorCode.INVALID_RECORD,
        error_message="bad batch",
        record_errors=(
            BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key"),
            BatchIndexAndErrorMessage(batch_index=2),
        ),
    )

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.EDIT, edit=with_errors)
        async with stage.producer(linger_ms=10) as producer:
            receipts = [producer.send("t", b"x", partition=0) for _ in range(4)]
            await producer.flush()
            said = [str(each.exception()) for each in receipts]
            assert "no key" in said[1]
            assert "bad batch" in said[2]
            assert "2 other records" in said[0]
            assert "2 other records" in said[3]

    play(main)


@pytest.mark.parametrize(("text", "expected"), [(None, "INVALID_RECORD"), ("no way", "no way")])
def test_the_brokers_words_are_passed_on(text: str | None, expected: str) -> None:
    """The error has the broker's text, or the code's own where there is none."""
    with_text = partial(with_fields, error_code=ErrorCode.INVALID_RECORD, error_message=text)

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.EDIT, edit=with_text)
        async with stage.producer() as producer:
            receipt = producer.send("t", b"x", partition=0)
            await producer.flush()
            assert expected in str(receipt.exception())

    play(main)


def test_an_answer_that_leaves_a_batch_out_is_no_acknowledgement() -> None:
    """A partition that is not in the answer is asked for again."""

    def without(answer: ProduceResponse) -> ProduceResponse:
        return dataclasses.replace(answer, responses=())

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.EDIT, edit=without)
        async with stage.producer() as producer:
            await stage.send(producer)[0]
            assert stage.cluster.count(ApiKey.PRODUCE) == 2
        stage.check_log()

    play(main)


class Odd:
    """Something that is no record's value."""


def fail(_: object) -> bytes:
    """A serializer that fails."""
    raise ZeroDivisionError("no")


BAD: dict[str, dict[str, Any]] = {
    "too large": {"value": b"x" * 2_000_000},
    "lone surrogate": {"value": "\ud800"},
    "no such partition": {"partition": 99},
    "negative partition": {"partition": -3},
    "huge timestamp": {"timestamp": 1 << 70},
    "smallest timestamp": {"timestamp": -(1 << 63)},
    "header surrogate": {"headers": [("\udcff", b"")]},
    "illegal topic": {"topic": "a b"},
    "empty topic": {"topic": ""},
    "long topic": {"topic": "x" * 40_000},
    "surrogate topic": {"topic": "\ud800"},
}

WRONG_TYPES: dict[str, dict[str, Any]] = {
    "value is an Odd; it has to be bytes, .* set value_serializer": {"value": Odd()},
    "key is an int; it has to be bytes, .* set key_serializer": {"key": 5},
    "partition is a str": {"partition": "0"},
    "partition is a bool": {"partition": True},
    "timestamp is a str": {"timestamp": "now"},
    "timestamp is a float; it has to be an int, milliseconds": {"timestamp": 1.7e9},
    "the value of the header 'h' is an int; it has to be bytes": {"headers": [("h", 5)]},
    "the value of the header 'h' is a str; .*; encode.. makes bytes": {"headers": {"h": "text"}},
    "the name of a header is a bytes; .*; decode.. makes a str": {"headers": [(b"h", b"")]},
    "a header is a str": {"headers": ["abc"]},
    "a header is a tuple": {"headers": [("h", b"", b"")]},
    "headers is a str": {"headers": "h"},
    "headers is an int": {"headers": 5},
    "topic is a bytes; it has to be a str; decode.. makes a str": {"topic": b"t"},
    "topic is a NoneType": {"topic": None},
    "topic is a list": {"topic": ["t"]},
    "on_delivery is a str": {"on_delivery": "call me"},
}
"""Arguments, by the beginning of the error."""


@pytest.mark.parametrize("words", WRONG_TYPES)
def test_an_argument_of_a_wrong_type_is_an_error_of_the_call(words: str) -> None:
    """The message names the argument and the expected type; the producer still works."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            for _ in range(2):
                given: dict[str, Any] = {"topic": "t", "value": b"v"} | WRONG_TYPES[words]
                with pytest.raises(TypeError, match=f"^{words}"):
                    producer.send(given.pop("topic"), given.pop("value"), **given)
                await stage.send(producer, partition=None)[0]
            check_empty(producer)
        stage.check_log()

    play(main)


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("when", ["first", "later"])
def test_a_bad_record_has_its_own_error(case: str, when: str) -> None:
    """The receipt of a bad record says what is wrong, and the other records are written."""

    async def main(stage: Stage) -> None:
        async with stage.producer(max_block_ms=2000) as producer:
            if when == "later":
                await stage.send(producer)[0]
            before = stage.send(producer, 2)
            given: dict[str, Any] = {"topic": "t", "value": b"v"} | BAD[case]
            bad = producer.send(given.pop("topic"), given.pop("value"), **given)
            after = stage.send(producer, 2)
            await producer.flush()
            assert outcomes([bad]) != [""]
            assert str(bad.exception())
            assert outcomes(before + after) == [""] * 4
            await stage.send(producer)[0]
            check_empty(producer)

    play(main)


def test_a_serializer_that_raises_fails_its_record_alone() -> None:
    """The serializer's error is the cause of the record's."""

    async def main(stage: Stage) -> None:
        async with stage.producer(key_serializer=fail) as producer:
            bad = producer.send("t", b"v", b"k", partition=0)
            good = producer.send("t", b"v", partition=0)
            await good
            error = bad.exception()
            assert error is not None
            assert isinstance(error.__cause__, ZeroDivisionError)

    play(main)


def test_an_unknown_topic_fails_after_max_block() -> None:
    """Records for a missing topic fail with the reason after `max.block.ms`."""

    async def main(stage: Stage) -> None:
        async with stage.producer(max_block_ms=3000) as producer:
            lost = [producer.send("nowhere", b"v") for _ in range(3)]
            good = stage.send(producer, 2)
            await good[1]
            assert not lost[0].done()
            await producer.flush()
            assert 2.9 <= stage.now <= 3.2
            assert outcomes(lost) == ["MetadataTimeoutError"] * 3
            assert "UNKNOWN_TOPIC_OR_PARTITION" in str(lost[0].exception())

    play(main)


def test_a_topic_that_may_not_be_written_fails_at_once() -> None:
    """Waiting for rights is vain, so the record fails without waiting."""

    async def main(stage: Stage) -> None:
        stage.cluster.topic_errors["t"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        async with stage.producer() as producer:
            (receipt,) = stage.send(producer)
            await producer.flush()
            assert outcomes([receipt]) == ["AuthorizationError"]
            assert stage.now < 1
            stage.cluster.topic_errors.clear()
            await stage.send(producer)[0]

    play(main)


def test_a_partition_that_was_added_is_found() -> None:
    """A record for a partition that the topic had not when it was last asked for is written."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            await stage.send(producer)[0]
            stage.cluster.create_topic("t", partitions=3)
            assert (await stage.send(producer, partition=2)[0]).partition == 2
            assert stage.now < 1
        stage.check_log()

    play(main)


def subclasses_of(kind: type[Exception]) -> list[type[Exception]]:
    """All classes below one that are of the same module."""
    found = [each for each in kind.__subclasses__() if each.__module__ == kind.__module__]
    return found + [below for each in found for below in subclasses_of(each)]


class Watching:
    """An interceptor that changes values and keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[RecordMetadata, str]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Mark the value."""
        return record._replace(value=b"marked %s" % record.value)

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Keep it."""
        self.heard.append((metadata, type(error).__name__ if error else ""))

    def close(self) -> None:
        """Do nothing: there is nothing to give up."""


def test_interceptors_hear_once_of_each_record() -> None:
    """Interceptors get one call for each record: written, refused at once, or failed in line."""

    async def main(stage: Stage) -> None:
        watching = Watching()
        async with stage.producer(interceptors=[watching], max_block_ms=1000) as producer:
            await producer.send("t", b"v", partition=0)
            producer.send("t", b"x" * 2_000_000, partition=0)
            producer.send("nowhere", b"v")
            await producer.flush()
            heard = {error: tuple(metadata)[:3] for metadata, error in watching.heard}
            assert len(watching.heard) == 3
            # Where a record was to go is told also of one that went nowhere.
            assert heard == {
                "": ("t", 0, 0),
                "RejectedRecordError": ("t", 0, -1),
                "MetadataTimeoutError": ("nowhere", -1, -1),
            }
            assert stage.cluster.log().values() == [b"marked v"]

    play(main)


class Closing(Watching):
    """An interceptor, serializer and partitioner that can be closed, and fails at that."""

    def __init__(self) -> None:
        super().__init__()
        self.heard_before_close: list[int] = []

    def __call__(self, value: object) -> bytes:
        """The value, which is bytes."""
        assert isinstance(value, bytes)
        return value

    def partition(
        self,
        topic: str,  # noqa: ARG002
        key: bytes | None,  # noqa: ARG002
        value: bytes | None,  # noqa: ARG002
        *,
        partition_count: int,  # noqa: ARG002
        available: object,  # noqa: ARG002
    ) -> int:
        """The first."""
        return 0

    def close(self) -> None:
        """Note how many records were heard of until then."""
        self.heard_before_close.append(len(self.heard))
        raise OSError("cannot be closed")


@pytest.mark.parametrize("timeout", [None, 0])
def test_what_was_put_into_a_producer_is_closed_with_it(timeout: float | None) -> None:
    """Interceptors, serializers and the partitioner are closed once, after the last outcome."""

    async def main(stage: Stage) -> None:
        watching, serializing, choosing = Closing(), Closing(), Closing()
        producer = stage.producer(
            interceptors=[watching],
            key_serializer=serializing,
            value_serializer=serializing,
            partitioner=choosing,
        )
        for _ in range(3):
            producer.send("t", b"v", b"k")
        await producer.close(timeout)
        await producer.close(timeout)
        assert watching.heard_before_close == [3]
        assert serializing.heard_before_close == [0]
        assert choosing.heard_before_close == [0]

    play(main)


def test_what_was_put_into_a_producer_of_threads_is_closed_with_it() -> None:
    """The producer's own thread closes them all before `close` returns."""
    watching, serializing = Closing(), Closing()
    producer = Producer(
        bootstrap_servers="127.0.0.1:1",
        interceptors=[watching],
        value_serializer=serializing,
        max_block_ms=10,
    )
    assert producer.send("t", b"v").exception() is not None
    producer.close()
    producer.close()
    assert watching.heard_before_close == [1]
    assert serializing.heard_before_close == [0]


def test_an_error_of_a_connection_is_a_producers() -> None:
    """`except ProducerError` catches what a connection failed of, and so does its own class."""

    async def main(stage: Stage) -> None:
        async with stage.producer(retries=1, retry_backoff_ms=1) as producer:
            await stage.send(producer)[0]
            stage.cluster.script.add(ApiKey.PRODUCE, FaultKind.CUT, times=2)
            (receipt,) = stage.send(producer)
            with pytest.raises(ProducerError) as caught:
                await receipt
            assert isinstance(caught.value, nodes.DisconnectedError)

    play(main)


@pytest.mark.parametrize("kind", subclasses_of(nodes.NodeError), ids=lambda kind: kind.__name__)
def test_every_error_of_a_connection_has_its_class_among_a_producers(
    kind: type[nodes.NodeError],
) -> None:
    """Each error of a connection becomes a ProducerError of its kind, with the same message."""
    error = producer_error(kind("node 1: the broker refused the login"))
    assert isinstance(error, ProducerError)
    assert isinstance(error, kind)
    assert type(error).__name__ == f"Producer{kind.__name__}"
    assert str(error) == "node 1: the broker refused the login"


def test_a_broker_that_cannot_be_reached_is_said_to_be_that() -> None:
    """The error of a record names the connection that fails, and not a missing leader."""

    async def main(stage: Stage) -> None:
        async with stage.producer(delivery_timeout_ms=20_000, request_timeout_ms=3000) as producer:
            await stage.send(producer)[0]
            stage.cluster.nodes[1].kill()
            (receipt,) = stage.send(producer)
            await producer.flush()
            text = str(receipt.exception())
            assert "no broker leads it" not in text
            assert "no broker can be reached: bootstrap server (node:20001)" in text
            assert "no connection" in text

    play(main)


def test_the_error_names_a_partition_without_a_leader() -> None:
    """If brokers answer, the error says that the partition has no leader."""

    async def main(stage: Stage) -> None:
        async with stage.producer(delivery_timeout_ms=20_000, request_timeout_ms=3000) as producer:
            await stage.send(producer)[0]
            stage.cluster.move(T0, -1)
            (receipt,) = stage.send(producer)
            await producer.flush()
            assert "no broker leads it" in str(receipt.exception())

    play(main)


def test_a_partitioner_that_fails_fails_its_record_alone() -> None:
    """An error of a partitioner, or a partition that is not there, is the record's own."""

    class Failing:
        """A partitioner by the value."""

        def partition(
            self,
            topic: str,  # noqa: ARG002
            key: bytes | None,  # noqa: ARG002
            value: bytes | None,
            *,
            partition_count: int,  # noqa: ARG002
            available: object,  # noqa: ARG002
        ) -> int:
            """The value as a number."""
            return int(value or b"0")

    async def main(stage: Stage) -> None:
        async with stage.producer(partitioner=Failing()) as producer:
            receipts = [producer.send("t", each) for each in (b"1", b"x", b"7", b"0")]
            await producer.flush()
            expected = ["", "RejectedRecordError", "RejectedRecordError", ""]
            assert outcomes(receipts) == expected
            assert receipts[0].partition == 1

    play(main)


def test_other_partitions_of_a_request_are_judged_on_their_own() -> None:
    """An error for one partition's batch leaves the batch of another one acknowledged."""

    async def main(stage: Stage) -> None:
        stage.cluster.script.add(
            ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.INVALID_RECORD, partition=T0
        )
        async with stage.producer(linger_ms=10) as producer:
            receipts = stage.send(producer, 2) + stage.send(producer, 2, partition=1)
            await producer.flush()
            assert outcomes(receipts) == ["RejectedRecordError"] * 2 + [""] * 2
        stage.check_log()

    play(main)
