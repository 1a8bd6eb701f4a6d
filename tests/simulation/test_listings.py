"""A producer's lists of topics and partitions, and callbacks before the end of a flush."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tailrace.client.cluster_metadata import PartitionInfo
from tailrace.client.producer import Producer
from tailrace.client.producer.errors import (
    ClosedProducerError,
    InvalidTopicError,
    MetadataTimeoutError,
)
from tailrace.protocol.apis import ApiKey
from tailrace.testing.cluster import ScriptedCluster
from tailrace.testing.real_cluster import real_cluster
from tailrace.testing.script import FaultKind
from tests.simulation.stage import Stage, play

TIMEOUT_S = 30.0


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    """A broker on real sockets, for a producer of threads."""
    with real_cluster() as found:
        found.create_topic("t", partitions=2)
        yield found


def test_partitions_come_with_their_brokers() -> None:
    """Each partition is named in order, with the broker that leads it now."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            found = await producer.partitions_for("t")
            assert [each.partition for each in found] == [0, 1, 2]
            assert {type(each) for each in found} == {PartitionInfo}
            stage.cluster.move(found[1][:2], 2)  # type: ignore[arg-type]
            assert (await producer.partitions_for("t"))[1].leader == 2
            assert (await producer.list_topics())["t"] == tuple(await producer.partitions_for("t"))

    play(main, nodes=3, partitions=3)


def test_a_lost_answer_is_asked_for_again() -> None:
    """A connection that breaks costs a caller time, and not the list."""

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            await producer.send("t", b"first")
            stage.cluster.script.add(ApiKey.METADATA, FaultKind.CUT_AFTER)
            assert list(await producer.list_topics()) == ["t"]

    play(main)


def test_without_a_broker_the_wait_ends_with_the_reason() -> None:
    """After the time that the caller gave, or `max.block.ms`; another broker ends it before."""

    async def main(stage: Stage) -> None:
        async with stage.producer(max_block_ms=5000) as producer:
            await producer.send("t", b"first")
            stage.cluster.kill(1)
            began = stage.now
            with pytest.raises(MetadataTimeoutError, match="no list of topics has come in time: "):
                await producer.list_topics(timeout=2)
            assert stage.now - began == pytest.approx(2, abs=0.1)
            with pytest.raises(MetadataTimeoutError, match="bootstrap"):
                await producer.partitions_for("t")
            assert stage.now - began == pytest.approx(7, abs=0.1)
            waiting = asyncio.ensure_future(producer.list_topics())
            await stage.pass_time(1)
            stage.cluster.revive(1)
            assert list(await waiting) == ["t"]

    play(main)


def test_a_topic_that_is_not_there_or_cannot_be_ends_in_the_error_of_a_record() -> None:
    """An unknown one after `max.block.ms`, an invalid name at once, a wrong type as TypeError."""

    async def main(stage: Stage) -> None:
        async with stage.producer(max_block_ms=1000) as producer:
            with pytest.raises(MetadataTimeoutError, match="topic nobody"):
                await producer.partitions_for("nobody")
            began = stage.now
            with pytest.raises(InvalidTopicError):
                await producer.partitions_for("no body")
            with pytest.raises(TypeError, match="topic"):
                await producer.partitions_for(7)  # type: ignore[arg-type]
            assert stage.now == began
        with pytest.raises(ClosedProducerError):
            await producer.partitions_for("t")
        with pytest.raises(ClosedProducerError):
            await producer.list_topics()

    play(main)


def test_threads_get_the_same_lists(cluster: ScriptedCluster) -> None:
    """`Producer` answers as `AsyncProducer` does, and waits as long as it is told."""
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        found = producer.partitions_for("t")
        assert [each.partition for each in found] == [0, 1]
        assert producer.list_topics() == {"t": tuple(found)}
        cluster.kill(1)
        with pytest.raises(MetadataTimeoutError):
            producer.list_topics(timeout=0.2)
    with pytest.raises(ClosedProducerError):
        producer.list_topics()


def test_a_flush_returns_after_the_callbacks(cluster: ScriptedCluster) -> None:
    """Also a slow one has returned, and a flush in a callback does not wait for itself."""
    told: list[int] = []

    with Producer(bootstrap_servers=cluster.bootstrap) as producer:

        def tell(number: int) -> None:
            producer.flush(TIMEOUT_S)
            threading.Event().wait(0.001)
            told.append(number)

        for round_ in range(20):
            for number in range(5):
                producer.send("t", b"x", on_delivery=lambda *_, n=number: tell(n))
            producer.flush(TIMEOUT_S)
            assert told == [*range(5)] * (round_ + 1)


def test_a_close_returns_after_the_callbacks(cluster: ScriptedCluster) -> None:
    """All of them have run when the `with` block is over, the slow ones too."""
    told: list[int] = []

    def tell(number: int) -> None:
        threading.Event().wait(0.001)
        told.append(number)

    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(20):
            producer.send("t", b"x", on_delivery=lambda *_, n=number: tell(n))
    assert told == [*range(20)]


def test_a_flush_in_time_is_over_although_a_callback_hangs(cluster: ScriptedCluster) -> None:
    """The flush fails after its timeout, with another reason than records on their way."""
    go_on = threading.Event()

    def hang(*_: object) -> None:
        go_on.wait(TIMEOUT_S)

    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        producer.send("t", b"x", on_delivery=hang)
        with pytest.raises(TimeoutError, match="a callback runs for over"):
            producer.flush(0.3)
        go_on.set()
        producer.flush(TIMEOUT_S)


def test_an_awaited_flush_returns_after_the_callbacks() -> None:
    """Also with nothing left to send, the due ones run first."""
    told: list[int] = []

    async def main(stage: Stage) -> None:
        async with stage.producer() as producer:
            for round_ in range(20):
                for number in range(5):
                    producer.send("t", b"x", on_delivery=lambda *_, n=number: told.append(n))
                await producer.flush()
                assert told == [*range(5)] * (round_ + 1)
            producer.send("t", b"x", on_delivery=lambda *_: told.append(-1))
        assert told[-1] == -1

    play(main)
