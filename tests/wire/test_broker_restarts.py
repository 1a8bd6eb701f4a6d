"""Kills, restarts and the clock of a `TestBroker`, with clients that go on meanwhile."""

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import confluent_kafka
import confluent_kafka.admin
import pytest

from tailrace import Producer
from tailrace.errors import DirectoryError
from tailrace.model import TopicPartition
from tailrace.testing import TestBroker
from tailrace.testing.broker_process import HOST, KeptPort, RefusedRequestError

pytestmark = pytest.mark.wire

CLEAN = ".kafka_cleanshutdown"
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    """A broker without topics."""
    with TestBroker() as broker:
        yield broker


class TestLife:
    """`kill`, `stop`, `start`, `restart` and `close`."""

    def test_a_killed_broker_keeps_what_it_acknowledged(self, broker: TestBroker) -> None:
        """One producer sends before and after it, to the same address, and loses nothing."""
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(3):
                producer.send("t", b"%d" % number).result()
                broker.kill()
                assert not (broker.directory / CLEAN).exists()
                broker.start()
            producer.send("t", b"last").result()
        assert broker.log("t").values() == [b"0", b"1", b"2", b"last"]

    def test_a_stop_in_order_is_marked(self, broker: TestBroker) -> None:
        """The next start trusts the files then, as after SIGTERM."""
        broker.produce("t", "one")
        broker.stop()
        assert (broker.directory / CLEAN).exists()
        assert broker.log("t").values() == [b"one"]
        broker.start()
        assert broker.log("t").values() == [b"one"]

    def test_a_broker_that_is_down_refuses_connections(self, broker: TestBroker) -> None:
        """Its port is kept for it, and open connections have ended."""
        host, port = broker.bootstrap_servers.split(":")
        with socket.create_connection((host, int(port))) as open_connection:
            broker.kill()
            # The system resets a connection that the broker had not accepted yet.
            with contextlib.suppress(ConnectionResetError):
                assert open_connection.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))
        other = socket.socket()
        with pytest.raises(OSError, match="in use"), other:
            other.bind((host, int(port)))
        broker.start()
        assert broker.bootstrap_servers == f"{host}:{port}"

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets both have the port")
    def test_nobody_takes_the_port_of_a_broker_that_starts(self) -> None:
        """Not even for a connection, whose port the system chooses: the broker could not listen."""
        port = KeptPort()
        port.lend()
        with socket.socket() as other, pytest.raises(OSError, match="already in use"):
            other.bind((HOST, port.number))
        with socket.socket() as node:
            node.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            node.bind((HOST, port.number))
            node.listen()
        port.give_back()

    def test_a_kill_ends_requests_that_wait(self, broker: TestBroker) -> None:
        """A delayed request is not done after the kill; its producer sends it again."""
        broker.create_topic("t")
        fault = broker.delay("Produce", seconds=3600, times=1)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            receipt = producer.send("t", b"one")
            flushing = threading.Thread(target=producer.flush)
            flushing.start()
            fault.wait()
            broker.kill()
            assert broker.log("t").values() == []
            broker.start()
            assert receipt.result().offset == 0
            flushing.join()
        assert broker.log("t").values() == [b"one"]

    def test_faults_outlive_a_restart(self, broker: TestBroker) -> None:
        """They are removed by the test alone."""
        broker.create_topic("t")
        fault = broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=1)
        broker.restart()
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("t", b"one").result()
        assert fault.count == 1

    def test_a_group_goes_on_at_its_offset_after_a_kill(self, broker: TestBroker) -> None:
        """Committed offsets are records, so the broker has them after the kill."""
        broker.create_topic("t")
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
        )
        consumer.commit(offsets=[confluent_kafka.TopicPartition("t", 0, 3)], asynchronous=False)
        consumer.close()
        broker.kill()
        broker.start()
        assert broker.committed_offsets("g") == {TopicPartition("t", 0): 3}

    def test_the_directory_goes_with_the_broker(self) -> None:
        """A directory that was named stays, and another broker finds the records there."""
        with TestBroker() as broker:
            broker.produce("t", "one")
            path = broker.directory
            assert (path / "t-0").is_dir()
        assert not path.exists()

    def test_a_directory_that_was_named_stays(self, tmp_path: object) -> None:
        """Another broker finds the records there."""
        with TestBroker(str(tmp_path)) as broker:
            broker.produce("t", "one")
        with TestBroker(str(tmp_path)) as broker:
            assert broker.log("t").values() == [b"one"]

    def test_a_broker_that_does_not_run_says_so(self) -> None:
        """The error names what to do."""
        broker = TestBroker()
        with pytest.raises(RuntimeError, match="the broker is not running; start it, or use it"):
            broker.create_topic("t")
        with pytest.raises(RuntimeError, match="a broker has its port from its first start on"):
            _ = broker.bootstrap_servers
        with broker, pytest.raises(RuntimeError, match="the broker is running already"):
            broker.start()


class TestClock:
    """`advance` and `set_time`."""

    def test_retention_deletes_what_is_old_enough(self, broker: TestBroker) -> None:
        """Records of eight days ago are gone when `advance` returns; newer ones are there."""
        broker.create_topic(
            "t", configs={"retention.ms": 7 * 86_400_000, "internal.segment.bytes": 2000}
        )
        for _ in range(2):
            broker.produce("t", b"old" * 400)
        broker.advance(timedelta(days=8))
        broker.produce("t", "new")
        broker.advance(timedelta(minutes=6))
        assert broker.log("t").values() == [b"new"]

    def test_log_append_time_is_the_brokers(self, broker: TestBroker) -> None:
        """A time that was set stands still until the clock is advanced."""
        broker.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
        broker.set_time(NEW_YEAR)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("t", b"one").result()
            producer.send("t", b"two").result()
            broker.advance(1.5)
            producer.send("t", b"three").result()
        first = 1_767_225_600_000
        assert broker.log("t").timestamps() == [first, first, first + 1500]

    def test_a_silent_member_leaves_its_group(self, broker: TestBroker) -> None:
        """After its session timeout the consumer has lost its partitions, and joins again."""
        broker.create_topic("t")
        assigned, lost = threading.Semaphore(0), threading.Event()
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "heartbeat.interval.ms": 100,
            }
        )
        consumer.subscribe(
            ["t"], on_assign=lambda *_: assigned.release(), on_lost=lambda *_: lost.set()
        )
        while not assigned.acquire(blocking=False):
            consumer.poll(0.1)
        broker.advance(timedelta(minutes=5))
        while not lost.is_set():
            consumer.poll(0.1)
        while not assigned.acquire(blocking=False):
            consumer.poll(0.1)
        consumer.close()

    def test_a_waiting_consumer_is_answered(self, broker: TestBroker) -> None:
        """A fetch waits on the broker's clock, so an advance ends it."""
        broker.create_topic("t")
        with broker.delay("Fetch", seconds=60, times=1) as fault:
            consumer = confluent_kafka.Consumer(
                {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}
            )
            consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
            fault.wait()
            broker.produce("t", "one")
            broker.advance(61)
            message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"one"
        consumer.close()

    @pytest.mark.parametrize("seconds", [-1, float("inf"), timedelta(seconds=-1)])
    def test_time_does_not_go_back(self, broker: TestBroker, seconds: "float | timedelta") -> None:
        """A negative step is refused, and so is one without end."""
        with pytest.raises(ValueError, match="a clock advances by 0 seconds or more, and not by"):
            broker.advance(seconds)

    @pytest.mark.parametrize("seconds", [1e30, timedelta.max])
    def test_time_ends_with_the_year_9999(
        self, broker: TestBroker, seconds: "float | timedelta"
    ) -> None:
        """A step beyond it is refused, and the clock stays where it was."""
        broker.advance(timedelta(days=365 * 7000))
        with pytest.raises(ValueError, match="a clock advances up to the year 9999, and not by"):
            broker.advance(seconds)
        broker.set_time(NEW_YEAR)
        broker.produce("t", "x")
        assert broker.log("t").values() == [b"x"]

    def test_a_time_names_its_zone(self, broker: TestBroker) -> None:
        """A time without a zone is refused."""
        with pytest.raises(ValueError, match="names no zone; give it a tzinfo"):
            broker.set_time(datetime(2026, 1, 1))  # noqa: DTZ001 - the mistake


class TestLog:
    """`produce`, `log` and `create_topic`."""

    def test_a_record_is_read_as_it_was_produced(self, broker: TestBroker) -> None:
        """Key, value, headers, timestamp and offset."""
        broker.produce("t", "first")
        broker.produce("t", b"v", key="k", headers=[("h", b"1"), ("n", None)], timestamp_ms=1)
        broker.produce("t", None, key=b"k")
        log = broker.log("t")
        assert log.keys() == [None, b"k", b"k"]
        assert log.values() == [b"first", b"v", None]
        assert log.headers() == [(), (("h", b"1"), ("n", None)), ()]
        assert log.offsets() == [0, 1, 2]
        assert log.timestamps()[1] == 1

    def test_records_go_to_partitions_as_from_a_client(self, broker: TestBroker) -> None:
        """By key as in all clients, without key in turn, or as the test says."""
        broker.create_topic("t", partitions=3)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            expected = producer.send("t", b"", key=b"JFK").result().partition
        assert broker.produce("t", "", key="JFK") == ("t", expected)
        assert [broker.produce("t", "").partition for _ in range(4)] == [0, 1, 2, 0]
        assert broker.produce("t", "here", partition=2) == ("t", 2)
        assert broker.log("t", 2).values()[-1] == b"here"
        assert len(broker.log("t").records()) == 7

    def test_deleted_records_are_gone_at_once(self, broker: TestBroker) -> None:
        """The log starts where the broker says, before its files say so."""
        for number in range(3):
            broker.produce("t", str(number))
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        wanted = confluent_kafka.TopicPartition("t", 0, 2)
        for future in admin.delete_records([wanted]).values():
            future.result(30)
        assert broker.log("t").values() == [b"2"]

    def test_a_test_waits_for_records(self, broker: TestBroker) -> None:
        """It goes on as soon as a producer on another thread has sent the last of them."""
        broker.create_topic("t", partitions=2)

        def send() -> None:
            with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                for number in range(20):
                    producer.send("t", b"%d" % number, key=b"%d" % number)

        sending = threading.Thread(target=send)
        sending.start()
        values = {record.value for record in broker.log("t").wait_for(20)}
        sending.join()
        assert values == {b"%d" % number for number in range(20)}

    def test_waiting_for_records_ends(self, broker: TestBroker) -> None:
        """The error says how many there are, and how many were waited for."""
        broker.produce("t", "one")
        with pytest.raises(TimeoutError) as raised:
            broker.log("t").wait_for(2, timeout_s=0.01)
        assert str(raised.value) == "t has 1 records after 0.01 s; 2 were waited for"

    def test_a_test_waits_for_a_topic(self, broker: TestBroker) -> None:
        """The program under test may create it, after the test has begun to wait."""
        waiting = ThreadPoolExecutor(1)
        found = waiting.submit(broker.log("later").wait_for, 1, timeout_s=60)
        with contextlib.suppress(TimeoutError):
            found.result(0.05)
        assert not found.done()
        broker.produce("later", "one")
        assert [each.value for each in found.result(60)] == [b"one"]
        waiting.shutdown()

    @pytest.mark.parametrize(
        ("topic", "partition", "what"),
        [("x", None, "has no topic 'x'; its topics: t"), ("t", 7, "has no partition 7 of t; ")],
    )
    def test_waiting_for_a_topic_ends(
        self, broker: TestBroker, topic: str, partition: int | None, what: str
    ) -> None:
        """The error says which topics and partitions there are."""
        broker.create_topic("t")
        with pytest.raises(TimeoutError, match=f"0 records after 0.01 s.*{what}"):
            broker.log(topic, partition).wait_for(1, timeout_s=0.01)

    def test_a_refused_topic_is_told(self, broker: TestBroker) -> None:
        """The error has Kafka's code and the broker's reason."""
        broker.create_topic("t")
        with pytest.raises(RefusedRequestError, match="create topic t: TOPIC_ALREADY_EXISTS"):
            broker.create_topic("t")
        with pytest.raises(RefusedRequestError, match=r"INVALID_CONFIG.*retention"):
            broker.create_topic("u", configs={"retention": 5})

    def test_a_missing_topic_is_told_with_those_that_are_there(self, broker: TestBroker) -> None:
        """A test with a typing error in a name does not pass on an empty log."""
        broker.create_topic("flights")
        with pytest.raises(DirectoryError, match="no topic 'fligths'; its topics: flights"):
            broker.log("fligths").values()
