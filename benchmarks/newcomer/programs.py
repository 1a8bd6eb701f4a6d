"""Short programs, as somebody writes them who is new to a client.

    python programs.py send CLIENT ADDRESS TOPIC COUNT    keyed records of 100 bytes, and a flush
    python programs.py read CLIENT ADDRESS TOPIC COUNT    all records of partition 0
    python programs.py query ours ADDRESS TOPIC COUNT     Spark reads and sums the records' bytes

CLIENT is `ours` or `confluent-kafka`. The caller measures the whole process: interpreter,
imports, and every record from the first. So nothing of the checkout is imported here, and any
version of the package can be the one that is installed.
"""

import sys
from collections.abc import Callable, Mapping

SETTINGS = {"acks": "all", "linger.ms": 5, "batch.size": 1_000_000, "enable.idempotence": True}
"""Settings of both producers; both place keys as the Java client does, which is our default."""
ROWS_MAX = 500
TIMEOUT_S = 30
VALUE_BYTES = 100


def send(address: str, topic: str, count: int) -> None:
    """Send with our producer."""
    from tailrace import Producer

    with Producer(SETTINGS, bootstrap_servers=address) as producer:
        for number in range(count):
            producer.send(topic, b"%0*d" % (VALUE_BYTES, number), b"user-%d" % number)
        producer.flush()


def send_confluent(address: str, topic: str, count: int) -> None:
    """Send with confluent-kafka."""
    from confluent_kafka import Producer

    producer = Producer({**SETTINGS, "bootstrap.servers": address, "partitioner": "murmur2_random"})
    for number in range(count):
        value, key = b"%0*d" % (VALUE_BYTES, number), b"user-%d" % number
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


def read(address: str, topic: str, count: int) -> None:
    """Poll with our consumer."""
    from tailrace import Consumer, TopicPartition

    size = found = 0
    with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign(TopicPartition(topic, 0))
        while found < count:
            records = consumer.poll(TIMEOUT_S)
            assert records
            found += len(records)
            for record in records:
                size += len(record.value)
    assert size == count * VALUE_BYTES


def read_confluent(address: str, topic: str, count: int) -> None:
    """Consume with confluent-kafka."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    size = found = 0
    while found < count:
        messages = consumer.consume(ROWS_MAX, TIMEOUT_S)
        assert messages
        found += len(messages)
        for message in messages:
            size += len(message.value())
    consumer.close()
    assert size == count * VALUE_BYTES


def query(address: str, topic: str, count: int) -> None:
    """Start Spark with two local cores, and ask one question."""
    from tailrace.spark import session

    spark = session(name="newcomer", master="local[2]")
    rows = (
        spark.read.format("tailrace")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", topic)
        .load()
    )
    assert rows.selectExpr("sum(length(value))").first()[0] == count * VALUE_BYTES
    spark.stop()


PROGRAMS: Mapping[tuple[str, str], Callable[[str, str, int], None]] = {
    ("send", "ours"): send,
    ("send", "confluent-kafka"): send_confluent,
    ("read", "ours"): read,
    ("read", "confluent-kafka"): read_confluent,
    ("query", "ours"): query,
}


def main(arguments: list[str]) -> None:
    """Run one."""
    what, client, address, topic, count = arguments
    PROGRAMS[what, client](address, topic, int(count))


if __name__ == "__main__":
    main(sys.argv[1:])
