"""A broker under load, asked by HTTP for its metrics and its health."""

import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tailrace import Admin, Broker, Consumer, Producer
from tailrace.broker.monitoring import listener
from tailrace.broker.monitoring.families import families, family_of
from tailrace.errors import ListenError
from tests.unit.broker.monitoring.boards import BOARDS, NOT_SERVED

RECORDS = 500
COMMITTED = 200

_OTHERS = {
    # Of a cluster, of a controller, and of clients with quotas: none of them is here.
    "kafka_server_replicafetchermanager_maxlag",
    "kafka_server_raftmetrics_append_records_rate",
    "kafka_server_raftmetrics_current_epoch",
    "kafka_server_raftmetrics_current_leader",
    "kafka_server_raftmetrics_current_state",
    "kafka_server_raftmetrics_fetch_records_rate",
    "kafka_server_raftmetrics_high_watermark",
    "kafka_server_raftmetrics_log_end_offset",
    "kafka_server_fetch_byte_rate",
    "kafka_server_fetch_throttle_time",
    "kafka_server_produce_byte_rate",
    "kafka_server_produce_throttle_time",
    "kafka_server_request_request_time",
    "kafka_server_request_throttle_time",
}


def fetch(broker: Broker, path: str) -> tuple[int, str]:
    """Status and body of a page of its HTTP listener."""
    assert broker.http_address is not None
    return get(broker.http_address, path)


def get(address: str, path: str) -> tuple[int, str]:
    """Status and body of a page."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


Samples = dict[str, list[tuple[dict[str, str], float]]]


def scrape(broker: Broker) -> Samples:
    """The values of all metrics by name, read as Prometheus does."""
    status, body = fetch(broker, "/metrics")
    assert status == 200
    found: Samples = {}
    for family in text_string_to_metric_families(body):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    """The value with exactly these labels."""
    [found] = [each for own, each in samples[name] if own == labels]
    return found


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker that a producer, a consumer and an admin client have used."""
    with Broker(settings={"tailrace.http.listener": "127.0.0.1:0"}) as running:
        servers = running.bootstrap_servers
        with Producer(bootstrap_servers=servers) as producer:
            for _ in range(RECORDS):
                producer.send("orders", b"x" * 100, partition=0)
        with Consumer(
            bootstrap_servers=servers, group_id="billing", auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=COMMITTED,
        ) as consumer:  # fmt: skip
            consumer.subscribe("orders")
            read = 0
            while read < COMMITTED:
                read += len(consumer.poll(1))
            consumer.commit()
        yield running


def test_every_query_of_the_usual_boards_has_a_metric(broker: Broker) -> None:
    """Each name of a board is served, or listed with the reason why it is not."""
    served = set(scrape(broker))
    for board, names in BOARDS.items():
        for name in names - NOT_SERVED.keys() - served:
            assert family_of(name).name in _OTHERS, f"{board} asks for {name}"
    assert not NOT_SERVED.keys() & served
    assert NOT_SERVED.keys() <= {name for names in BOARDS.values() for name in names}


def test_every_value_belongs_to_a_documented_metric(broker: Broker) -> None:
    """Each sample has a name and the labels that the table declares for it."""
    for name, samples in scrape(broker).items():
        if name.startswith("process_"):
            continue
        family = family_of(name)
        for labels, _ in samples:
            due = set(family.labels) if labels or not family.is_totalled else set()
            assert labels.keys() - {"quantile"} == due, name
    assert len(families()) > 100


def test_traffic_is_counted_by_topic_and_in_total(broker: Broker) -> None:
    """Records, bytes in and bytes out of a topic are those that clients have sent and read."""
    samples, prefix = scrape(broker), "kafka_server_brokertopicmetrics"
    assert value(samples, f"{prefix}_messagesin_total", topic="orders") == RECORDS
    size = value(samples, f"{prefix}_bytesin_total", topic="orders")
    assert RECORDS * 100 < size < RECORDS * 200
    assert value(samples, f"{prefix}_bytesout_total", topic="orders") >= size
    assert value(samples, f"{prefix}_messagesin_total") > RECORDS
    assert value(samples, f"{prefix}_messagesinpersec", topic="orders") == RECORDS
    assert value(samples, "kafka_log_log_size", topic="orders", partition="0") == size


def test_the_lag_of_a_group_needs_no_exporter(broker: Broker) -> None:
    """A group's lag is the records that it has not committed, for each partition and in sum."""
    samples = scrape(broker)
    labels = {"consumergroup": "billing", "topic": "orders", "partition": "0"}
    assert value(samples, "kafka_consumergroup_current_offset", **labels) == COMMITTED
    assert value(samples, "kafka_consumergroup_lag", **labels) == RECORDS - COMMITTED
    del labels["partition"]
    assert value(samples, "kafka_consumergroup_lag_sum", **labels) == RECORDS - COMMITTED


def test_requests_are_counted_by_api_with_their_times(broker: Broker) -> None:
    """A request is counted under its API and version, and its total time is that of its stages."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        before = scrape(broker)
        admin.describe_cluster()
        after = scrape(broker)

    def count(samples: Samples) -> float:
        name = "kafka_network_requestmetrics_requests_total"
        own = [each for labels, each in samples[name] if labels["request"] == "DescribeCluster"]
        return sum(own)

    assert count(after) == count(before) + 1
    prefix = "kafka_network_requestmetrics"
    for stage in ("local", "remote", "total"):
        assert value(after, f"{prefix}_{stage}timems_count", request="Produce") > 0
    local, total = (
        value(after, f"{prefix}_{stage}timems", request="JoinGroup", quantile="0.99")
        for stage in ("local", "total")
    )
    # A member waits for others, with nothing to do for the broker.
    assert total > 10 * local > 0
    assert value(after, f"{prefix}_errors_total", request="JoinGroup", error="MEMBER_ID_REQUIRED")


def test_a_refused_batch_is_an_error_of_its_request_and_its_topic(broker: Broker) -> None:
    """A record above the topic's limit counts under its error code."""
    with (
        Producer(
            bootstrap_servers=broker.bootstrap_servers, max_request_size=5_000_000
        ) as producer,
        pytest.raises(Exception, match="MESSAGE_TOO_LARGE"),
    ):
        producer.send("orders", b"x" * 2_000_000).result()
    samples = scrape(broker)
    labels = {"request": "Produce", "error": "MESSAGE_TOO_LARGE"}
    assert value(samples, "kafka_network_requestmetrics_errors_total", **labels) == 1


def test_a_healthy_broker_is_alive_and_ready(broker: Broker) -> None:
    """/healthz and /readyz answer 200, and other pages are not there."""
    assert fetch(broker, "/healthz") == (200, "alive\n")
    assert fetch(broker, "/readyz") == (200, "ready\n")
    assert fetch(broker, "/other")[0] == 404
    assert value(scrape(broker), "tailrace_ready") == 1


def test_a_lost_directory_is_the_reason_for_not_being_ready(tmp_path: Path) -> None:
    """/readyz names the directory that is out of service, while /healthz stays well."""
    (tmp_path / "two").write_text("a file where a directory has to be")
    settings = {
        "tailrace.http.listener": "127.0.0.1:0",
        "log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}",
    }
    with Broker(f"{tmp_path / 'one'},{tmp_path / 'two'}", settings=settings) as broker:
        status, body = fetch(broker, "/readyz")
        assert status == 503
        assert f"log directory {tmp_path / 'two'} is not in service" in body
        assert fetch(broker, "/healthz")[0] == 200
        samples = scrape(broker)
        assert value(samples, "kafka_log_logmanager_offlinelogdirectorycount") == 1
        assert value(samples, "tailrace_ready") == 0


def test_a_loop_that_hangs_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """/healthz and /readyz answer 503 while the event loop does, and 200 after that."""
    monkeypatch.setattr(listener, "LIVE_S", 0.05)
    released = threading.Event()
    with Broker(settings={"tailrace.http.listener": "127.0.0.1:0"}) as broker:
        assert fetch(broker, "/healthz")[0] == 200
        address = broker.http_address
        assert address is not None and broker._thread is not None  # noqa: PT018
        broker._thread.loop.call_soon_threadsafe(released.wait)
        try:
            assert get(address, "/healthz") == (503, "the event loop has not answered for 0.05 s\n")
            assert get(address, "/readyz")[0] == 503
        finally:
            released.set()
        monkeypatch.setattr(listener, "LIVE_S", 10.0)
        assert get(address, "/readyz") == (200, "ready\n")


def test_clients_that_send_nothing_hold_up_others_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are closed in time, before a read alone takes too long; the next one is answered."""
    monkeypatch.setattr(listener, "REQUEST_S", 0.1)
    with Broker(settings={"tailrace.http.listener": "127.0.0.1:0"}) as broker:
        assert broker.http_address is not None
        host, _, port = broker.http_address.rpartition(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(listener.AT_ONCE)]
        for each in silent:
            each.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        begun = time.monotonic()
        assert fetch(broker, "/healthz") == (200, "alive\n")
        assert time.monotonic() - begun < listener.READ_S
        for each in silent:
            each.close()


def test_an_address_in_use_ends_the_start_with_its_setting() -> None:
    """The error of a start names the setting, and the directory is free after it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        broker = Broker(settings={"tailrace.http.listener": address})
        with pytest.raises(ListenError, match=r"tailrace\.http\.listener"):
            broker.start()
