"""The rules of the setting `partitioner` beside those of librdkafka, on one broker."""

from collections.abc import Iterator

import confluent_kafka
import pytest

from tailrace import Broker, Producer
from tailrace.client.producer.partitioners import KEY_RULES
from tests.wire.clients import TIMEOUT_S

pytestmark = pytest.mark.wire

KEYS = [b"", b"a", b"kafka", b"giberish123456789", "é".encode(), bytes(range(256))]
KEYS += [b"key-%d" % number for number in range(40)]
PARTITIONS = 7


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a broker whose topics have seven partitions."""
    path = tmp_path_factory.mktemp("partitioners") / "data"
    with Broker(path, settings={"num.partitions": PARTITIONS}) as broker:
        yield broker.bootstrap_servers


def of_librdkafka(address: str, rule: str, keys: list[bytes | None]) -> list[int]:
    """The partitions that librdkafka chooses."""
    found: dict[int, int] = {}
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "partitioner": rule})
    for number, key in enumerate(keys):

        def told(error: object, message: confluent_kafka.Message, number: int = number) -> None:
            assert error is None
            found[number] = message.partition()

        producer.produce("t", b"v", key, on_delivery=told)
    assert producer.flush(TIMEOUT_S) == 0
    return [found[number] for number in range(len(keys))]


@pytest.mark.parametrize("rule", sorted(set(KEY_RULES) - {"random"}))
def test_keys_go_where_librdkafka_sends_them(address: str, rule: str) -> None:
    """By `send` on both of its ways and by `send_many`; without a key too, if that has a place."""
    keys: list[bytes | None] = list(KEYS)
    if not rule.endswith("_random"):
        keys.append(None)
    elif rule == "consistent_random":
        keys.remove(b"")
    expected = of_librdkafka(address, rule, keys)
    settings = {"bootstrap.servers": address, "partitioner": rule}
    with Producer(settings, linger_ms=50) as producer:
        for _ in range(2):
            receipts = [producer.send("t", b"v", key) for key in keys]
            receipts += [producer.send("t", "v", key, headers={"h": b""}) for key in keys]
            assert [each.result(TIMEOUT_S).partition for each in receipts] == expected * 2
        summary = producer.send_many("t", {"key": keys, "value": [b"v"] * len(keys)})
        counts = {
            partition: last - first + 1 for partition, (first, last) in summary.offsets.items()
        }
        assert counts == {each: expected.count(each) for each in set(expected)}


@pytest.mark.parametrize("rule", ["random", "murmur2_random", "consistent_random", "fnv1a_random"])
def test_records_without_a_key_go_anywhere(address: str, rule: str) -> None:
    """In time each partition gets some of them."""
    with Producer(bootstrap_servers=address, partitioner=rule, batch_size=200) as producer:
        receipts = [producer.send("t", bytes(90)) for _ in range(600)]
        assert len({each.result(TIMEOUT_S).partition for each in receipts}) == PARTITIONS
