"""`Broker` as a program makes it: settings of Python's own types, and what it says of mistakes."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tailrace import Broker, Producer
from tailrace.client import ClusterReader
from tailrace.client.admin import create_topic
from tailrace.errors import ConfigError, DirectoryError

pytestmark = pytest.mark.wire


@pytest.mark.parametrize(
    "given",
    [
        {"settings": {"num.partitions": 3}},
        {"num_partitions": 3},
        {"settings": {"num.partitions": "5"}, "num_partitions": "3"},
    ],
)
def test_settings_are_given_as_to_a_producer(tmp_path: Path, given: dict[str, Any]) -> None:
    """Dotted or as keyword arguments, as text or as Python's numbers and booleans."""
    with Broker(tmp_path, auto_create_topics_enable=True, **given) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("flights", b"JFK").result()
        with closing(ClusterReader(broker.bootstrap_servers)) as cluster:
            assert cluster.partitions(["flights"]) == {"flights": (0, 1, 2)}


def test_a_topic_takes_settings_of_pythons_own_types(tmp_path: Path) -> None:
    """Numbers are written as Kafka has them; a name that is no text is told at once."""
    with Broker(tmp_path) as broker:
        address = broker.bootstrap_servers
        create_topic(address, "t", partition_count=1, settings={"retention.ms": 1000})
        with pytest.raises(TypeError, match="name is a bytes; it has to be a str"):
            create_topic(address, b"t", partition_count=1)  # type: ignore[arg-type]


WRONG: dict[str, tuple[type[Exception], dict[str, Any]]] = {
    "data is an int; it has to be the path of a directory": (TypeError, {"data": 5}),
    "settings is a list; it has to be a mapping": (TypeError, {"settings": ["x"]}),
    "num.partitions is a dict; a setting is a str": (ConfigError, {"num_partitions": {}}),
    "num.partitions: 'x' is not a whole number": (ConfigError, {"num_partitions": "x"}),
    "num.partition: no such setting; did you mean num.partitions": (
        ConfigError, {"num_partition": 3},
    ),
    "listeners: '9092' is not HOST:PORT": (ConfigError, {"listen": 9092}),
}  # fmt: skip


@pytest.mark.parametrize("words", WRONG)
def test_a_mistake_is_told_at_the_call(tmp_path: Path, words: str) -> None:
    """The error names the argument before anything is opened."""
    kind, given = WRONG[words]
    with pytest.raises(kind, match=words):
        Broker(**{"data": tmp_path / "data"} | given)
    assert not (tmp_path / "data").exists()


def test_a_second_broker_of_one_process_is_told_who_has_the_directory(tmp_path: Path) -> None:
    """Nobody looks for another process then; the first broker goes on."""
    with Broker(tmp_path) as first:
        with pytest.raises(DirectoryError) as raised:
            Broker(tmp_path).start()
        assert str(raised.value) == (
            f"{tmp_path} is in use by this same process, which has it open; stop that one or "
            "choose another directory"
        )
        with Producer(bootstrap_servers=first.bootstrap_servers) as producer:
            producer.send("flights", b"JFK").result()


def test_a_partition_that_is_not_there_is_told_soon(tmp_path: Path) -> None:
    """The broker is asked once more, and then, long before a minute, the receipt says it."""
    with (
        Broker(tmp_path) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        receipt = producer.send("flights", b"JFK", partition=9)
        said = str(receipt.exception(30))
        assert said.startswith("partition: topic flights has no partition 9, it has 0 alone; ")


def test_statistics_are_those_of_the_running_broker(tmp_path: Path) -> None:
    """A program on another thread gets one value for all of it; without a broker there is none."""
    broker = Broker(tmp_path, auto_create_topics_enable=True, num_partitions=3)
    with pytest.raises(RuntimeError, match="use it in a with block"):
        broker.statistics()
    with broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(3):
                producer.send("flights", b"JFK", partition=number).result()
            nodes = producer.statistics().nodes.nodes.values()
            found = broker.statistics()
        assert found.replicas.partition_count == found.logs.log_count == 3
        assert found.server.connection_count == sum(each.is_ready for each in nodes)
        assert list(found.schedules) == [str(tmp_path)]


def test_a_broker_without_a_directory_leaves_none_behind() -> None:
    """It has a temporary one of its own, with what clients send to it, until it stops."""
    with Broker(num_partitions=1) as broker:
        (path,) = map(Path, broker.statistics().schedules)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("flights", b"JFK").result()
        assert (path / "flights-0").is_dir()
    assert not path.exists()
