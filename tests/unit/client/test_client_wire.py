"""The client against librdkafka's own stand-in for a cluster, over real sockets."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest
from confluent_kafka import Producer

from tailrace.client import (
    ClusterReader,
    UnreachableBrokerError,
    UnsupportedBrokerError,
    fetch_batches,
)
from tailrace.errors import OffsetOutOfRangeError
from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.records.builder import records_of

pytestmark = pytest.mark.wire

FLIGHTS = TopicPartition("flights", 0)

IMPATIENT = {
    "retry.backoff.ms": 1,
    "retry.backoff.max.ms": 1,
    "reconnect.backoff.ms": 1,
    "reconnect.backoff.max.ms": 1,
    "socket.connection.setup.timeout.ms": 100,
    "socket.connection.setup.timeout.max.ms": 100,
}
"""Settings for brokers that never answer."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Address of a cluster whose `flights-0` has the values 0 to 2999, ten or so to a batch."""
    producer = Producer(
        {"bootstrap.servers": "none", "test.mock.num.brokers": 2, "batch.num.messages": 10}
    )
    for number in range(3000):
        producer.produce("flights", b"%d" % number, partition=0, timestamp=1000 + number)
    producer.flush(60)
    brokers = producer.list_topics("flights", timeout=60).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    del producer


@pytest.fixture(params=[False, True], ids=["by names", "by ids"])
def cluster(bootstrap: str, request: pytest.FixtureRequest) -> Iterator[ClusterReader]:
    """A client of that cluster, which tells topics apart by their names or also by their ids."""
    reader = ClusterReader(bootstrap, has_topic_ids=request.param)
    yield reader
    reader.close()


def values(cluster: ClusterReader, start: int, limit: int, fetch_bytes: int = 1 << 20) -> list[int]:
    """The values of a range of `flights-0`."""
    batches = fetch_batches(
        cluster, FLIGHTS, start_offset=start, limit_offset=limit, fetch_bytes=fetch_bytes
    )
    records = (record for batch in batches for record in records_of(batch))
    return [int(r.value or b"") for r in records if start <= r.offset < limit]


def test_topics_and_offsets_are_told(cluster: ClusterReader) -> None:
    """A topic has its partitions, and a partition has its two ends."""
    assert 0 in cluster.partitions(["flights"])["flights"]
    assert set(cluster.partitions()) == {"flights"}
    assert cluster.log_range(FLIGHTS) == (0, 3000)
    assert cluster.list_offsets({FLIGHTS: SpecialTimestamp.LATEST}) == {FLIGHTS: 3000}


def test_a_range_is_fetched_whole_and_in_order(cluster: ClusterReader) -> None:
    """Every record once, with a start and a limit in the middle of batches."""
    assert values(cluster, 0, 3000) == list(range(3000))
    assert values(cluster, 1234, 1239) == list(range(1234, 1239))
    assert not values(cluster, 7, 7)


def test_small_answers_make_more_requests_and_lose_nothing(cluster: ClusterReader) -> None:
    """A limit below the size of one batch still gives every batch."""
    assert values(cluster, 0, 300, fetch_bytes=50) == list(range(300))


def test_an_offset_beyond_the_log_is_refused(cluster: ClusterReader) -> None:
    """The error says what the log has."""
    with pytest.raises(OffsetOutOfRangeError) as caught:
        values(cluster, 5000, 6000)
    assert (caught.value.log_start_offset, caught.value.log_end_offset) == (0, 3000)


def test_the_second_address_serves_if_the_first_does_not(bootstrap: str) -> None:
    """Addresses are tried in order."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    reader = ClusterReader(f"127.0.0.1:{port},{bootstrap}")
    assert "flights" in reader.partitions()
    reader.close()


def test_an_unreachable_broker_is_named_with_its_address() -> None:
    """After the last attempt the error names HOST:PORT."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    reader = ClusterReader(f"127.0.0.1:{port}", settings=IMPATIENT)
    with pytest.raises(UnreachableBrokerError, match=f"127.0.0.1:{port}.*no connection") as caught:
        reader.partitions()
    assert caught.value.address == f"127.0.0.1:{port}"
    reader.close()


@contextmanager
def answering(frame: bytes | None) -> Iterator[str]:
    """A server that answers each request with `frame`, or with None says nothing; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    channel, _ = server.accept()
                    with channel, suppress(ConnectionError):
                        channel.recv(1000)
                        if frame is None:
                            channel.recv(1)
                        else:
                            channel.sendall(frame)

        thread = threading.Thread(target=serve)
        thread.start()
        host, port = server.getsockname()
        yield f"{host}:{port}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize(
    ("frame", "error", "words"),
    [
        (b"", UnreachableBrokerError, "the connection broke before the first request"),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            UnreachableBrokerError,
            "a frame claims 1213486160 bytes.*the port speaks HTTP, not Kafka",
        ),
        (None, UnreachableBrokerError, r"no connection within socket\.connection\.setup\.timeout"),
        (
            bytes.fromhex("0000000c 00000000 0000 01 00000000 00"),
            UnsupportedBrokerError,
            "takes no version of Metadata",
        ),
    ],
)
def test_a_peer_that_is_no_broker_is_told_apart(
    frame: bytes | None, error: type[Exception], words: str
) -> None:
    """One that hangs up, one of another protocol, one that is silent, one without any API."""
    with (
        answering(frame) as address,
        closing(ClusterReader(address, settings=IMPATIENT)) as cluster,
        pytest.raises(error, match=words),
    ):
        cluster.partitions()
