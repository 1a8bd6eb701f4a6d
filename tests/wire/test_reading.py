"""A log is read from its files while a real broker on a real disk writes it."""

import threading
from pathlib import Path

import pytest

from tailrace import Admin, Broker, Producer, list_partitions, open_log
from tailrace.client.admin import NewTopic

pytestmark = pytest.mark.wire

SMALL = {"internal.segment.bytes": "20000", "index.interval.bytes": "500"}
COUNT = 2_000
WAIT_S = 60


def test_a_log_is_followed_while_the_broker_writes_and_rolls_it(tmp_path: Path) -> None:
    """Every record, once, in order, by two readers; the second one ends when its log is closed."""
    values = [b"flight %d" % number for number in range(COUNT)]
    with (
        Broker(tmp_path) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=500) as producer,
    ):
        admin.create_topics([NewTopic("flights", 1, configs=SMALL)]).results()
        producer.send("flights", values[0]).result()
        topics = [each.topic for each in list_partitions(tmp_path)]
        assert topics == ["__cluster_metadata", "flights"]
        found: list[bytes | None] = []
        has_all = threading.Event()
        log = open_log(tmp_path, "flights", 0, isolation="read_committed")

        def follow() -> None:
            for record in log.records(follow=True):
                found.append(record.value)
                if len(found) == COUNT:
                    has_all.set()

        thread = threading.Thread(target=follow)
        thread.start()
        for value in values[1:]:
            producer.send("flights", value)
        with open_log(tmp_path, "flights", 0) as other:
            rows = list(other.arrow(["value"], limit=COUNT, follow=True))
        assert has_all.wait(WAIT_S)
        log.close()
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert found == values
    assert [value for each in rows for value in each.column(0).to_pylist()] == values
    assert open_log(tmp_path).statistics().segment_count > 2
