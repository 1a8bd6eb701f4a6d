"""Quotas of clients: the same load at both brokers, and the quotas of one directory in turn.

Throttle times are compared within a tolerance: how long a request takes is in them, and in a Fetch
the bytes around the records. A throttled connection is asked again at once, and its answer has to
come when the time is over.
"""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from compat import ours
from compat.kafka import Kafka
from compat.report import Report
from tailrace.client.admin import Admin, NewTopic, QuotaEntity
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import decode_response, encode_request
from tailrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tailrace.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tailrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tailrace.records.builder import BatchBuilder

M = TypeVar("M", bound=Message)

TOLERANCE_MS = 400
"""Largest difference of two times: machines of tests are busy, and rates fall while they wait."""
TOPIC = "limited"
BY_NAME = 12
"""The last version of Produce and Fetch that names topics."""

_QUOTAS = {
    QuotaEntity.of(client_id="app"): {"producer_byte_rate": 1000.0, "consumer_byte_rate": 1000.0},
    QuotaEntity.of(user=None, client_id="pair"): {"producer_byte_rate": 5000.0},
    QuotaEntity.of(user=None): {"producer_byte_rate": 1e9, "consumer_byte_rate": 1e9},
    QuotaEntity.of(user="ANONYMOUS", client_id="quiet"): {"producer_byte_rate": 1000.0},
    QuotaEntity.of(user="ANONYMOUS", client_id="maker"): {"controller_mutation_rate": 1.0},
    # Less than any request takes, and more than all of them.
    QuotaEntity.of(user="ANONYMOUS", client_id="slow"): {"request_percentage": 0.0001},
    QuotaEntity.of(user="ANONYMOUS", client_id="fast"): {"request_percentage": 10_000.0},
    QuotaEntity.of(user="ANONYMOUS", client_id="both"): {
        "request_percentage": 0.0001,
        "producer_byte_rate": 1000.0,
    },
    QuotaEntity.of(user="ANONYMOUS", client_id="app"): {
        "producer_byte_rate": 1000.0,
        "consumer_byte_rate": 1000.0,
    },
}
_OURS = {QuotaEntity.of(user="ANONYMOUS", client_id="late"): {"producer_byte_rate": 2000.0}}


class Measured(NamedTuple):
    """A step of the load at one broker."""

    name: str
    outcome: str
    """Codes and counts, which have to be equal."""
    throttle_ms: int
    delayed_ms: int | None = None
    """The wait of the next request on the connection, if there was one."""


class Link:
    """A connection of a client with an id of its own."""

    def __init__(self, servers: str, client_id: str) -> None:
        host, _, port = servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._client_id = client_id

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def ask(self, key: ApiKey, request: Message, answer: type[M], *, version: int) -> M:
        """The answer to a request."""
        self.send(key, request, version=version)
        size = int.from_bytes(self._received(4), "big")
        found = decode_response(APIS[key], version, memoryview(self._received(size)))
        assert isinstance(found, answer), found
        return found

    def send(self, key: ApiKey, request: Message, *, version: int) -> None:
        """Send a request."""
        self._socket.sendall(
            encode_request(
                APIS[key], request, version=version, correlation_id=1, client_id=self._client_id
            )
        )

    def delayed_ms(self) -> int:
        """The time until a request that is sent now is answered."""
        begun = time.monotonic()
        self.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), ApiVersionsResponse, version=0)
        return round((time.monotonic() - begun) * 1000)

    def _received(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            assert part, "the connection was closed"
            data += part
        return data


@contextmanager
def linked(servers: str, client_id: str) -> Iterator[Link]:
    """A connection, until the end of the block."""
    link = Link(servers, client_id)
    try:
        yield link
    finally:
        link.close()


def check(report: Report, kafka: Kafka, directory: Path) -> None:
    """Compare the throttles of both, and have both use the quotas of one directory."""
    with kafka as running, Admin(bootstrap_servers=running.bootstrap_servers) as admin:
        _set_up(admin)
        theirs = [*_loaded(running.bootstrap_servers), _connected(running.bootstrap_servers, admin)]
    other = directory / "quotas-ours"
    with ours.serving(other) as servers, Admin(bootstrap_servers=servers) as admin:
        _set_up(admin)
        found = [*_loaded(servers), _connected(servers, admin)]
    for mine, his in zip(found, theirs, strict=True):
        report.check(
            f"throttled alike: {mine.name}",
            _differences(mine, his),
            explained=f"{mine.throttle_ms} and {his.throttle_ms} ms",
        )
    with ours.serving(kafka.logs) as servers, Admin(bootstrap_servers=servers) as admin:
        known = admin.describe_client_quotas()
        throttled = _produced(servers, "app", 25_000)
        admin.alter_client_quotas(_OURS).results()
    report.check(
        "quotas made in Kafka are known to Tailrace, and throttle",
        [] if known == _QUOTAS and throttled.throttle_ms > 0 else [f"{known}, {throttled}"],
    )
    with kafka as running, Admin(bootstrap_servers=running.bootstrap_servers) as admin:
        known = admin.describe_client_quotas()
        throttled = _produced(running.bootstrap_servers, "late", 25_000)
    report.check(
        "quotas made in Tailrace are known to Kafka, and throttle",
        [] if known == {**_QUOTAS, **_OURS} and throttled.throttle_ms > 0
        else [f"{known}, {throttled}"],
    )  # fmt: skip


def _set_up(admin: Admin) -> None:
    admin.create_topics([NewTopic(TOPIC, 1)]).results()
    admin.alter_client_quotas(_QUOTAS).results()
    deadline = time.monotonic() + 30
    while admin.describe_client_quotas() != _QUOTAS:
        assert time.monotonic() < deadline, "the quotas are not there"
        time.sleep(0.1)


def _loaded(servers: str) -> Iterator[Measured]:
    yield _produced(servers, "app", 25_000)
    # A client of both a user's and its own quota has that of both.
    yield _produced(servers, "pair", 60_000)
    yield _produced(servers, "free", 200_000)
    yield _unanswered(servers)
    yield _fetched(servers)
    yield from _timed(servers)
    yield from _created(servers)


def _produced(servers: str, client_id: str, size: int) -> Measured:
    with linked(servers, client_id) as link:
        answer = link.ask(ApiKey.PRODUCE, _produce(size), ProduceResponse, version=BY_NAME)
        code = answer.responses[0].partition_responses[0].error_code
        return Measured(
            f"produce of {size} bytes by {client_id}",
            f"code {code}",
            answer.throttle_time_ms,
            link.delayed_ms(),
        )


def _unanswered(servers: str) -> Measured:
    with linked(servers, "quiet") as link:
        link.send(ApiKey.PRODUCE, _produce(12_000, acks=0), version=BY_NAME)
        return Measured("produce of 12000 bytes without an answer", "", link.delayed_ms())


def _produce(size: int, *, acks: int = 1) -> ProduceRequest:
    builder = BatchBuilder()
    builder.append(b"k", b"x" * size, timestamp=time.time_ns() // 1_000_000)
    data = PartitionProduceData(index=0, records=builder.build())
    return ProduceRequest(
        acks=acks, timeout_ms=30_000,
        topic_data=(TopicProduceData(name=TOPIC, partition_data=(data,)),),
    )  # fmt: skip


def _fetched(servers: str) -> Measured:
    with linked(servers, "app") as link:
        throttled: list[int] = []
        sizes: list[int] = []
        # The first batch is larger than the burst: it comes when the rate allows for it, or never.
        for _ in range(2):
            answer = link.ask(ApiKey.FETCH, _fetch(), FetchResponse, version=BY_NAME)
            throttled.append(answer.throttle_time_ms)
            sizes.append(sum(len(p.records or b"") for t in answer.responses for p in t.partitions))
        return Measured("fetch of a batch above the burst", f"bytes {sizes}", max(throttled))


def _timed(servers: str) -> Iterator[Measured]:
    """Requests of each kind above a quota of time, which delays by one window at most."""
    latest = ListOffsetsTopic(name=TOPIC, partitions=(ListOffsetsPartition(partition_index=0),))
    limits = DescribeClientQuotasRequest(components=(), strict=False)
    changes = AlterClientQuotasRequest(entries=())
    for client_id in ("slow", "fast"):
        for key, request, answer, version in (
            (ApiKey.API_VERSIONS, ApiVersionsRequest(), ApiVersionsResponse, 2),
            (ApiKey.METADATA, MetadataRequest(topics=()), MetadataResponse, 9),
            (ApiKey.LIST_OFFSETS, ListOffsetsRequest(topics=(latest,)), ListOffsetsResponse, 6),
            (ApiKey.PRODUCE, _produce(10), ProduceResponse, BY_NAME),
            (ApiKey.FETCH, _fetch(), FetchResponse, BY_NAME),
            (ApiKey.DESCRIBE_CLIENT_QUOTAS, limits, DescribeClientQuotasResponse, 1),
            # One that a controller answers.
            (ApiKey.ALTER_CLIENT_QUOTAS, changes, AlterClientQuotasResponse, 1),
        ):
            with linked(servers, client_id) as link:
                found: Any = link.ask(key, request, answer, version=version)
                name = f"{key.title} of a client with a quota of time, {client_id}"
                yield Measured(name, "", found.throttle_time_ms, link.delayed_ms())
    yield _produced(servers, "both", 25_000)


def _fetch() -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=(FetchTopic(topic=TOPIC, partitions=(wanted,)),)
    )


def _created(servers: str) -> Iterator[Measured]:
    with linked(servers, "maker") as link:

        def create(name: str, count: int, version: int) -> Measured:
            # Not in the millisecond in which the bucket has a token again.
            time.sleep(0.3)
            topic = CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            request = CreateTopicsRequest(topics=(topic,), timeout_ms=30_000)
            answer = link.ask(ApiKey.CREATE_TOPICS, request, CreateTopicsResponse, version=version)
            code = answer.topics[0].error_code
            delayed_ms = link.delayed_ms()
            return Measured(
                f"create {count} partitions by v{version}",
                f"code {code}",
                answer.throttle_time_ms,
                delayed_ms,
            )

        yield create("made-15", 15, 7)
        yield create("made-late", 1, 7)
        yield create("made-older", 4, 5)
        time.sleep(0.3)
        request = DeleteTopicsRequest(topic_names=("made-15",), timeout_ms=30_000)
        answer = link.ask(ApiKey.DELETE_TOPICS, request, DeleteTopicsResponse, version=5)
        yield Measured(
            "delete 15 partitions by v5",
            f"code {answer.responses[0].error_code}",
            answer.throttle_time_ms,
        )


def _connected(servers: str, admin: Admin) -> Measured:
    """Connections of an address above its quota, which are closed later without an answer."""
    address = QuotaEntity.of(ip="127.0.0.1")
    admin.alter_client_quotas({address: {"connection_creation_rate": 2.0}}).results()
    deadline = time.monotonic() + 30
    while address not in admin.describe_client_quotas():
        assert time.monotonic() < deadline, "the quota is not there"
        time.sleep(0.1)
    time.sleep(1)
    begun = time.monotonic()
    links = [Link(servers, "app") for _ in range(30)]
    closed = 0
    for link in links:
        try:
            link.delayed_ms()
        except (AssertionError, OSError):
            closed += 1
        link.close()
    closed_ms = round((time.monotonic() - begun) * 1000)
    admin.alter_client_quotas({address: {"connection_creation_rate": None}}).results()
    # Of 20 at once one or two may be the administrator's.
    outcome = "about 10 of 30 closed" if 8 <= closed <= 13 else f"{closed} of 30 closed"
    return Measured("connections of an address", outcome, closed_ms)


def _differences(mine: Measured, his: Measured) -> list[str]:
    found = []
    if mine.outcome != his.outcome:
        found.append(f"{mine.outcome}, in Kafka {his.outcome}")
    if abs(mine.throttle_ms - his.throttle_ms) > TOLERANCE_MS:
        found.append(f"throttle {mine.throttle_ms} ms, in Kafka {his.throttle_ms}")
    return found + [
        f"delayed by {each.delayed_ms} ms for {each.throttle_ms} ms"
        for each in (mine, his)
        if each.delayed_ms is not None and abs(each.delayed_ms - each.throttle_ms) > TOLERANCE_MS
    ]
