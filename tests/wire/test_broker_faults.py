"""Faults of a `TestBroker` by API, as clients of other people meet them."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from tailrace import Producer
from tailrace.client.producer.errors import RejectedRecordError
from tailrace.errors import ConfigError
from tailrace.model import TopicPartition
from tailrace.testing import TestBroker
from tailrace.testing.request_faults import Fault
from tests.wire.clients import CLIENTS, Client, Sent, kafka

pytestmark = pytest.mark.wire

ONE = Sent(b"k", b"one", 1_700_000_000_000)
CLIENTS_ONLY = pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    """A broker with the empty topic `t`."""
    with TestBroker() as broker:
        broker.create_topic("t")
        yield broker


def send(client: Client, broker: TestBroker) -> list[int]:
    """Send `ONE` as an idempotent producer does."""
    return client.produce(broker.bootstrap_servers, "t", [ONE], codec="none", is_idempotent=True)


class TestFail:
    """`fail`: the broker answers with an error."""

    @CLIENTS_ONLY
    def test_a_producer_tries_again_after_a_retriable_error(
        self, broker: TestBroker, client: Client
    ) -> None:
        """One refused request later the record is in the log, once."""
        fault = broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=1)
        assert send(client, broker) == [0]
        assert fault.count == 1
        assert broker.log("t").values() == [b"one"]

    def test_nothing_of_a_failed_request_is_done(self, broker: TestBroker) -> None:
        """The producer raises the error, and the log is empty."""
        broker.fail("Produce", error="MESSAGE_TOO_LARGE")
        with (
            Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
            pytest.raises(RejectedRecordError),
        ):
            producer.send("t", b"one").result()
        assert broker.log("t").values() == []

    def test_a_producer_without_acks_loses_its_connection(self, broker: TestBroker) -> None:
        """There is no answer for the error to be in, so Kafka closes the connection."""
        fault = broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=1)
        with Producer(
            bootstrap_servers=broker.bootstrap_servers,
            acks=0,
            enable_idempotence=False,
            # Without an answer it may be told of the end of its connection while it still sends.
            retries=0,
        ) as producer:
            producer.send("t", b"lost")
            fault.wait()
        assert broker.log("t").values() == []

    @CLIENTS_ONLY
    def test_metadata_has_the_error_in_its_topics(self, broker: TestBroker, client: Client) -> None:
        """Clients find the brokers in it, and ask for the topic again."""
        fault = broker.fail("Metadata", error="LEADER_NOT_AVAILABLE", times=2)
        assert send(client, broker) == [0]
        assert fault.count == 2

    def test_an_older_list_of_apis_is_read_after_unsupported_version(
        self, broker: TestBroker
    ) -> None:
        """UNSUPPORTED_VERSION is answered in v0, as by a broker that does not know the version."""
        fault = broker.fail("ApiVersions", error="UNSUPPORTED_VERSION", times=1)
        assert send(CLIENTS["confluent-kafka"], broker) == [0]
        assert fault.count == 1

    def test_helpers_of_the_test_meet_no_fault(self, broker: TestBroker) -> None:
        """A topic and its records can be prepared while every request of clients fails."""
        broker.fail(error="UNKNOWN_SERVER_ERROR")
        broker.create_topic("other")
        broker.produce("other", "one")
        assert broker.log("other").values() == [b"one"]
        assert broker.committed_offsets("group") == {}


class TestDelay:
    """`delay`: a request waits before the broker looks at it."""

    def test_a_slow_broker_makes_a_client_time_out(self, broker: TestBroker) -> None:
        """The consumer's call ends with its own timeout, long before the delay does."""
        broker.produce("t", "one")
        consumer: Any = confluent_kafka.Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
        )
        place = confluent_kafka.TopicPartition("t", 0)
        consumer.get_watermark_offsets(place, timeout=30)  # It is connected then.
        with broker.delay("ListOffsets", seconds=3600) as fault:
            with pytest.raises(confluent_kafka.KafkaException, match="_TIMED_OUT"):
                consumer.get_watermark_offsets(place, timeout=1)
            assert fault.count >= 1
        consumer.close()

    @pytest.mark.parametrize(
        "end",
        [
            lambda _, fault: fault.remove(),
            lambda broker, _: broker.heal(),
            lambda broker, _: broker.advance(3601),
        ],
        ids=["removed", "healed", "advanced"],
    )
    def test_a_delayed_request_goes_on(
        self, broker: TestBroker, end: Callable[[TestBroker, Fault], None]
    ) -> None:
        """Removing the fault lets it go on, and so does the broker's clock."""
        fault = broker.delay("Produce", seconds=3600, times=1)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            receipt = producer.send("t", b"one")
            flushing = threading.Thread(target=producer.flush)
            flushing.start()
            fault.wait()
            assert broker.log("t").values() == []
            end(broker, fault)
            assert receipt.result().offset == 0
            flushing.join()

    def test_delays_come_with_other_faults(self, broker: TestBroker) -> None:
        """A request that is delayed meets the oldest fault of another kind after that."""
        delay = broker.delay("Produce", seconds=0.001)
        failure = broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=1)
        assert send(CLIENTS["kafka-python"], broker) == [0]
        assert (delay.count, failure.count) == (2, 1)


class TestDrop:
    """`drop`: the connection is closed instead of an answer."""

    @CLIENTS_ONLY
    def test_a_client_connects_again(self, broker: TestBroker, client: Client) -> None:
        """After two closed connections the record is in the log."""
        fault = broker.drop("Produce", times=2)
        assert send(client, broker) == [0]
        assert fault.count == 2

    @CLIENTS_ONLY
    def test_an_answer_that_is_lost_leaves_one_record(
        self, broker: TestBroker, client: Client
    ) -> None:
        """The broker has appended the record; the idempotent producer's retry adds no second."""
        fault = broker.drop("Produce", times=1, handled=True)
        assert send(client, broker) == [0]
        assert fault.count == 1
        assert broker.log("t").values() == [b"one"]


class TestCorrupt:
    """`corrupt`: wrong bytes in the answer."""

    def test_a_consumer_sees_that_records_are_damaged(self, broker: TestBroker) -> None:
        """The CRC of the batch does not match; the log itself is sound."""
        broker.produce("t", "one")
        fault = broker.corrupt("Fetch", times=1)
        consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
        consumer.assign([kafka.TopicPartition("t", 0)])
        consumer.seek_to_beginning()
        with pytest.raises(kafka.errors.KafkaError, match=r"(?i)crc|corrupt"):
            consumer.poll(30_000)
        consumer.close(autocommit=False)
        assert fault.count == 1
        assert broker.log("t").values() == [b"one"]

    def test_another_answer_cannot_be_read(self, broker: TestBroker) -> None:
        """A producer drops the connection and asks again."""
        fault = broker.corrupt("Metadata", times=1)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            assert producer.send("t", b"one").result().offset == 0
        assert fault.count == 1


class TestRules:
    """Which requests a fault meets, and what a test is told of mistakes."""

    def test_faults_of_an_api_follow_each_other(self, broker: TestBroker) -> None:
        """The oldest one meets requests until it has met its number of them."""
        faults = [
            broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2),
            broker.drop("Produce", times=1),
            broker.fail("Produce", error="REQUEST_TIMED_OUT", times=1),
        ]
        assert send(CLIENTS["confluent-kafka"], broker) == [0]
        assert [fault.count for fault in faults] == [2, 1, 1]

    def test_a_removed_fault_meets_nothing(self, broker: TestBroker) -> None:
        """A `with` block removes it at its end."""
        with broker.fail("Produce", error="MESSAGE_TOO_LARGE") as fault:
            pass
        assert send(CLIENTS["kafka-python"], broker) == [0]
        assert fault.count == 0

    def test_a_fault_without_names_meets_every_api(self, broker: TestBroker) -> None:
        """The first request of a connection meets it already."""
        fault = broker.drop(times=1)
        assert send(CLIENTS["kafka-python"], broker) == [0]
        assert fault.count == 1

    def test_waiting_for_a_fault_ends(self, broker: TestBroker) -> None:
        """The error says which fault, what it has met, and what was waited for."""
        fault = broker.fail("Fetch", "Produce", error="NOT_LEADER_OR_FOLLOWER", times=3)
        with pytest.raises(TimeoutError) as raised:
            fault.wait(2, timeout_s=0.01)
        assert str(raised.value) == (
            "<Fault: Fetch, Produce failed with NOT_LEADER_OR_FOLLOWER, 3 times; 0 so far> after "
            "0.01 s; 2 were waited for"
        )

    @pytest.mark.parametrize(
        ("make", "words"),
        [
            (
                lambda broker: broker.drop("Prodcue"),
                "'Prodcue' is no API that this broker serves; did you mean Produce?",
            ),
            (lambda broker: broker.drop("ZZZ"), "'ZZZ' is no API that this broker serves"),
            (
                lambda broker: broker.fail("Produce", error="CORRUPT"),
                "'CORRUPT' is no error of Kafka's protocol; did you mean CORRUPT_MESSAGE?",
            ),
            (
                lambda broker: broker.fail("Produce", error="NONE"),
                "'NONE' is no error of Kafka's protocol",
            ),
            (
                lambda broker: broker.drop("Fetch", times=0),
                "times is 0; a fault meets 1 request or more, or None: all",
            ),
            (
                lambda broker: broker.delay("Fetch", seconds=-1),
                "seconds is -1; a delay is 0 or more, and finite",
            ),
        ],
    )
    def test_a_mistake_is_told_in_one_sentence(
        self, broker: TestBroker, make: Any, words: str
    ) -> None:
        """The call raises it, and no fault is set."""
        with pytest.raises(ConfigError) as raised:
            make(broker)
        assert str(raised.value) == words
        assert send(CLIENTS["kafka-python"], broker) == [0]

    def test_committed_offsets_are_those_of_the_group(self, broker: TestBroker) -> None:
        """They are read without a client."""
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
        )
        consumer.commit(offsets=[confluent_kafka.TopicPartition("t", 0, 7)], asynchronous=False)
        consumer.close()
        assert broker.committed_offsets("g") == {TopicPartition("t", 0): 7}
