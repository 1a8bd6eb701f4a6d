"""Clients with quotas at a broker: throttle times, and connections that are not read for a time."""

import asyncio
from collections.abc import Mapping

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.protocol.apis import ApiKey, api_of
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tailrace.protocol.messages.produce import ProduceResponse
from tailrace.protocol.metadata_records import ClientQuotaRecord, EntityData
from tailrace.security.quotas import QuotaKind
from tailrace.testing import Outside, Peer
from tests.unit.broker.acl_answers import SECRET, TOPIC, questions
from tests.unit.broker.brokers import (
    BY_NAME_FETCH,
    BY_NAME_PRODUCE,
    batch,
    connect,
    create_topic,
    fetch_request,
    produce_request,
    running,
)
from tests.unit.broker.principals import User, secured

APP = {"client-id": "app"}
Names = Mapping[str, str | None]
UNTHROTTLED = {ApiKey.WRITE_TXN_MARKERS, ApiKey.DESCRIBE_QUORUM}
"""A request between nodes, and an answer without a throttle time."""


def set_quota(broker: RunningBroker, names: Names, key: str, value: float | None) -> None:
    """Write a quota as an administrator has it; None removes it."""
    entity = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in names.items())
    record = ClientQuotaRecord(entity=entity, key=key, value=value or 0, remove=value is None)
    broker.controller.write(lambda _: [RecordToWrite(record, 0)])


def client(outside: Outside, broker: RunningBroker, client_id: str = "app") -> Peer:
    """A connection of a client with this id."""
    return Peer(outside.network.open(broker.endpoint[1]), client_id)


async def produce(peer: Peer, size: int, *, acks: int = 1) -> ProduceResponse:
    """The answer to a Produce with records of about this size."""
    request = produce_request("t", batch(b"x" * size), acks=acks)
    return await peer.ask(ApiKey.PRODUCE, request, ProduceResponse, version=BY_NAME_PRODUCE)


async def fetch(peer: Peer, offset: int = 0, **limits: int) -> FetchResponse:
    """The answer to a Fetch of the partition."""
    request = fetch_request("t", offset, **limits)
    return await peer.ask(ApiKey.FETCH, request, FetchResponse, version=BY_NAME_FETCH)


def bytes_of(answer: FetchResponse) -> int:
    """The bytes of records of an answer."""
    return sum(len(each.records or b"") for topic in answer.responses for each in topic.partitions)


async def asked_s(outside: Outside, peer: Peer) -> float:
    """The virtual seconds until a request that is sent now is answered."""
    begun = outside.clock.monotonic_s()
    await peer.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), ApiVersionsResponse, version=0)
    return outside.clock.monotonic_s() - begun


async def test_a_producer_is_answered_at_once_and_then_not_read(outside: Outside) -> None:
    """Its records are there; other clients go on, also on connections that come meanwhile."""
    async with running(outside) as broker:
        other = connect(outside, broker)
        await create_topic(other, "t")
        set_quota(broker, APP, "producer_byte_rate", 1000)
        peer = client(outside, broker)
        assert (await produce(peer, 5000)).throttle_time_ms == 0
        begun = outside.clock.monotonic_s()
        answer = await produce(peer, 19_850)
        # Some 25 kB at 1000 bytes a second, of which 10 kB are the burst.
        assert 15_000 < answer.throttle_time_ms < 15_500
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert outside.clock.monotonic_s() == begun
        assert (await produce(other, 100_000)).throttle_time_ms == 0
        assert await asked_s(outside, peer) == pytest.approx(answer.throttle_time_ms / 1000)
        assert bytes_of(await fetch(other)) > 124_000
        assert broker.statistics().quotas.throttled_count["producer_byte_rate"] == 1


async def test_requests_that_were_received_wait_too(outside: Outside) -> None:
    """Also those that came in one piece with the one that exceeds the quota."""
    async with running(outside) as broker:
        await create_topic(connect(outside, broker), "t")
        set_quota(broker, APP, "producer_byte_rate", 1000)
        peer = client(outside, broker)
        for _ in range(4):
            peer.send(
                ApiKey.PRODUCE, produce_request("t", batch(b"x" * 6000), acks=1),
                version=BY_NAME_PRODUCE,
            )  # fmt: skip
        begun, times = outside.clock.monotonic_s(), []
        for _ in range(4):
            await peer.read_frame()
            times.append(outside.clock.monotonic_s() - begun)
        # 12 kB are 2 s more than the 10 s of the windows, and 18 kB 8 s more.
        assert times == [0, 0, pytest.approx(2.2, rel=0.1), pytest.approx(10.3, rel=0.1)]


async def test_a_producer_without_answers_is_delayed(outside: Outside) -> None:
    """With acks=0 nothing says so, and its next request waits all the same."""
    async with running(outside) as broker:
        await create_topic(connect(outside, broker), "t")
        set_quota(broker, APP, "producer_byte_rate", 1000)
        peer = client(outside, broker)
        peer.send(
            ApiKey.PRODUCE, produce_request("t", batch(b"x" * 12_000), acks=0),
            version=BY_NAME_PRODUCE,
        )  # fmt: skip
        assert await asked_s(outside, peer) == pytest.approx(2.1, abs=0.1)


@pytest.mark.parametrize("client_count", [1, 4])
async def test_repeated_requests_keep_the_rate(outside: Outside, client_count: int) -> None:
    """Small requests that are not decoded are counted: 100 kB take 90 s at 1000 bytes a second."""
    async with running(outside) as broker:
        await create_topic(connect(outside, broker), "t")
        set_quota(broker, {"client-id": None, "user": "ANONYMOUS"}, "producer_byte_rate", 1e9)
        set_quota(broker, {"user": "ANONYMOUS"}, "producer_byte_rate", 1000)
        set_quota(broker, {"client-id": None, "user": "ANONYMOUS"}, "producer_byte_rate", None)
        request = produce_request("t", batch(b"x" * 100), acks=1)
        size = 0

        async def send(peer: Peer) -> None:
            nonlocal size
            for _ in range(500 // client_count):
                peer.send(ApiKey.PRODUCE, request, version=BY_NAME_PRODUCE)
                await peer.read_frame()
                size += 220

        peers = [client(outside, broker, f"app-{number}") for number in range(client_count)]
        await asyncio.gather(*map(send, peers))
        assert 0.8 * size < 10_000 + outside.clock.monotonic_s() * 1000 < 1.3 * size


async def test_a_deferred_answer_has_its_throttle_time(outside: Outside) -> None:
    """Records that wait for a flush are counted when they are answered."""
    async with running(outside, {"tailrace.durability": "sync"}) as broker:
        await create_topic(connect(outside, broker), "t")
        set_quota(broker, APP, "producer_byte_rate", 1000)
        peer = client(outside, broker)
        answer = await produce(peer, 12_000, acks=-1)
        assert 2000 < answer.throttle_time_ms < 2300
        assert await asked_s(outside, peer) == pytest.approx(answer.throttle_time_ms / 1000)


async def test_a_consumer_gets_what_its_quota_allows(outside: Outside) -> None:
    """An answer has at most the burst; the next one is empty, and its records come later."""
    async with running(outside) as broker:
        other = connect(outside, broker)
        await create_topic(other, "t")
        for _ in range(20):
            await produce(other, 1000)
        set_quota(broker, APP, "consumer_byte_rate", 1000)
        peer = client(outside, broker)
        first = await fetch(peer)
        assert first.throttle_time_ms == 0
        assert 8000 < bytes_of(first) <= 10_000
        second = await fetch(peer, 9)
        assert 7000 < second.throttle_time_ms <= 10_000
        assert second.responses == ()
        begun = outside.clock.monotonic_s()
        third = await fetch(peer, 9)
        waited_s = outside.clock.monotonic_s() - begun
        assert waited_s == pytest.approx(second.throttle_time_ms / 1000)
        while third.throttle_time_ms:
            third = await fetch(peer, 9)
        assert bytes_of(third) > 8000
        assert bytes_of(await fetch(other, 0)) > 20_000


async def test_a_batch_that_is_larger_than_the_quota_is_fetched(outside: Outside) -> None:
    """It is sent whole once the rate allows for it, or its reader would stop (KIP-74)."""
    async with running(outside) as broker:
        other = connect(outside, broker)
        await create_topic(other, "t")
        await produce(other, 9_800)
        set_quota(broker, APP, "consumer_byte_rate", 1000)
        assert bytes_of(await fetch(client(outside, broker))) > 9_800


async def test_a_throttled_session_misses_nothing(outside: Outside) -> None:
    """The empty answer does not count as what the client has got, and the session goes on."""
    async with running(outside) as broker:
        other = connect(outside, broker)
        await create_topic(other, "t")
        peer = client(outside, broker)
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = (FetchTopic(topic="t", partitions=(wanted,)),)

        async def ask(session_id: int, epoch: int) -> FetchResponse:
            request = FetchRequest(
                session_id=session_id, session_epoch=epoch, max_wait_ms=0, min_bytes=1,
                topics=topics if epoch == 0 else (),
            )  # fmt: skip
            return await peer.ask(ApiKey.FETCH, request, FetchResponse, version=BY_NAME_FETCH)

        set_quota(broker, APP, "consumer_byte_rate", 20)
        assert (await ask(0, 0)).session_id > 0
        await produce(other, 150)
        throttled = await ask(0, 0)
        assert throttled.throttle_time_ms > 0
        # As in Kafka: with nothing in it there would be nothing to continue with.
        assert throttled.session_id == 0
        set_quota(broker, APP, "consumer_byte_rate", None)
        session_id = (await ask(0, 0)).session_id
        set_quota(broker, APP, "consumer_byte_rate", 20)
        answers = [await ask(session_id, number) for number in range(1, 4)]
        assert {each.error_code for each in answers} == {ErrorCode.NONE}
        assert {each.session_id for each in answers} == {session_id}
        assert answers[-1].throttle_time_ms > 0
        set_quota(broker, APP, "consumer_byte_rate", None)
        assert bytes_of(await ask(session_id, 4)) > 150


@pytest.mark.parametrize("count", [80, 200])
async def test_partitions_without_news_cost_a_consumer_nothing(
    outside: Outside, count: int
) -> None:
    """It may have many that are silent, and gets the records of one at once; it waits for them."""
    async with running(outside) as broker:
        other = connect(outside, broker)
        await create_topic(other, "t", partitions=count)
        peer = client(outside, broker)
        topic = FetchTopic(
            topic="t",
            partitions=tuple(
                FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
                for number in range(count)
            ),
        )

        async def ask(session_id: int, epoch: int) -> FetchResponse:
            request = FetchRequest(
                session_id=session_id, session_epoch=epoch, max_wait_ms=500, min_bytes=1,
                topics=() if epoch else (topic,),
            )  # fmt: skip
            return await peer.ask(ApiKey.FETCH, request, FetchResponse, version=BY_NAME_FETCH)

        session_id = (await ask(0, 0)).session_id
        set_quota(broker, APP, "consumer_byte_rate", 1000)
        begun = outside.clock.monotonic_s()
        answers = [await ask(session_id, number) for number in range(1, 41)]
        assert {each.throttle_time_ms for each in answers} == {0}
        assert outside.clock.monotonic_s() - begun == pytest.approx(20)
        await produce(other, 150)
        answer = await ask(session_id, 41)
        assert answer.throttle_time_ms == 0
        assert bytes_of(answer) > 150


async def test_followers_are_no_clients(outside: Outside) -> None:
    """A quota for everybody does not hold up the copies of partitions."""
    async with running(outside) as broker:
        other = connect(outside, broker)
        await create_topic(other, "t")
        await produce(other, 1000)
        set_quota(broker, {"user": None}, "consumer_byte_rate", 1)
        request = FetchRequest(
            replica_id=7, max_wait_ms=0, min_bytes=1,
            topics=fetch_request("t", 0).topics,
        )  # fmt: skip
        answer = await other.ask(ApiKey.FETCH, request, FetchResponse, version=BY_NAME_FETCH)
        assert answer.throttle_time_ms == 0
        assert len(answer.responses) == 1
        assert (await fetch(other)).throttle_time_ms > 0


async def test_repeated_fetches_keep_the_rate(outside: Outside) -> None:
    """A consumer that asks for one partition again and again gets 1000 bytes a second."""
    async with running(outside) as broker:
        other = connect(outside, broker)
        await create_topic(other, "t")
        for _ in range(60):
            await produce(other, 400)
        set_quota(broker, APP, "consumer_byte_rate", 1000)
        peer, offset, size = client(outside, broker), 0, 0
        while offset < 60:
            answer = await fetch(peer, offset, bytes_max=500)
            if bytes_of(answer):
                offset, size = offset + 1, size + bytes_of(answer)
        # Slower than the rate: what does not fit is asked for again after its throttle time.
        assert 0.8 * size < 10_000 + outside.clock.monotonic_s() * 1000 < 1.7 * size


async def test_a_connection_that_closes_while_it_is_throttled(outside: Outside) -> None:
    """Its timer goes with it, and the broker stops without waiting for any."""
    async with running(outside) as broker:
        await create_topic(connect(outside, broker), "t")
        set_quota(broker, APP, "producer_byte_rate", 1)
        peer, staying = client(outside, broker), client(outside, broker)
        assert (await produce(peer, 30_000)).throttle_time_ms > 1_000_000
        assert (await produce(staying, 100)).throttle_time_ms > 1_000_000
        peer.socket.close()
        await outside.pass_time(20)
        assert broker.statistics().server.connection_count == 2
    assert outside.clock.monotonic_s() < 60


async def test_the_quota_of_time_delays_all_requests(outside: Outside) -> None:
    """Also those that are answered from what was learned before; by no more than a window."""
    async with running(outside) as broker:
        await create_topic(connect(outside, broker), "t")
        peer = client(outside, broker)
        for _ in range(3):
            await produce(peer, 10)
        set_quota(broker, APP, "request_percentage", 1)
        quotas = broker.quotas
        counter = quotas.find(QuotaKind.REQUEST_TIME, "ANONYMOUS", "app")
        assert counter is not None
        assert (await produce(peer, 10)).throttle_time_ms == 0
        counter.record(15, quotas.now_ms)
        answer = await produce(peer, 10)
        assert answer.throttle_time_ms == 1000
        assert await asked_s(outside, peer) == pytest.approx(1)
        versions = await peer.ask(
            ApiKey.API_VERSIONS, ApiVersionsRequest(), ApiVersionsResponse, version=2
        )
        assert versions.throttle_time_ms == 1000


async def test_requests_of_every_api_are_throttled(outside: Outside) -> None:
    """Also those that are refused for want of rights, but for requests between nodes."""
    async with secured(outside) as broker:
        admin = User(connect(outside, broker))
        ids = {each: (await create_topic(admin.peer, each)).topic_id for each in (TOPIC, SECRET)}
        set_quota(broker, {"user": "u"}, "request_percentage", 1)
        counter = broker.quotas.find(QuotaKind.REQUEST_TIME, "u", "u")
        assert counter is not None
        # The first of each API: that of Fetch is a client's.
        by_api = {api_of(type(each.request)).key: each for each in reversed([*questions(ids)])}
        unthrottled = set[ApiKey]()
        for key, asked in by_api.items():
            user = User(connect(outside, broker), "u")
            counter.record(1000, broker.quotas.now_ms)
            try:
                answer = await user.answer(asked.request, version=asked.version)
            except EOFError:
                continue
            if getattr(answer, "throttle_time_ms", 0) != 1000:
                unthrottled.add(ApiKey(key))
            elif key != ApiKey.API_VERSIONS:
                begun_s = outside.clock.monotonic_s()
                await user.ask(ApiVersionsRequest(), ApiVersionsResponse, version=2)
                assert outside.clock.monotonic_s() - begun_s == pytest.approx(1, abs=0.1)
        assert unthrottled == UNTHROTTLED
