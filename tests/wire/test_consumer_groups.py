"""Groups of the consumer protocol (KIP-848): confluent-kafka against a real broker."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tailrace import Broker, Producer

pytestmark = pytest.mark.wire

COUNT = 240
PARTITIONS = 4
PATIENCE_S = 60
SETTINGS = {
    "num.partitions": PARTITIONS,
    "group.initial.rebalance.delay.ms": 200,
    "offsets.topic.num.partitions": 5,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.assignment.interval.ms": 100,
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a broker with records in the partitions of the topics `t` and `other`."""
    with Broker(tmp_path_factory.mktemp("groups") / "data", settings=SETTINGS) as broker:
        for topic in ("t", "other"):
            fill(broker.bootstrap_servers, topic)
        yield broker.bootstrap_servers


def fill(address: str, topic: str, first: int = 0) -> None:
    """Send `COUNT` numbered records from a number on."""
    with Producer(bootstrap_servers=address) as producer:
        for number in range(first, first + COUNT):
            producer.send(topic, b"%d" % number, key=b"%d" % number)


def numbers(first: int = 0, count: int = COUNT) -> list[bytes]:
    """The values of the records."""
    return sorted(b"%d" % number for number in range(first, first + count))


class Member:
    """A consumer, and what it has read."""

    def __init__(
        self, address: str, group: str, *topics: str, protocol: str = "consumer", **settings: Any
    ) -> None:
        given: dict[str, Any] = {
            "bootstrap.servers": address,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        if protocol == "classic":
            given |= {"heartbeat.interval.ms": 200, "session.timeout.ms": 6000}
        self._consumer = confluent_kafka.Consumer(given)
        self._consumer.subscribe(list(topics or ["t"]))
        self.values: list[bytes] = []

    def poll(self) -> None:
        """Take what has come, and commit it."""
        messages = self._consumer.consume(20, 0.05)
        for message in messages:
            assert message.error() is None, message.error()
            self.values.append(message.value() or b"")
        if messages:
            self._consumer.commit(asynchronous=False)

    @property
    def assigned(self) -> list[tuple[str, int]]:
        """Topic and number of its partitions."""
        return sorted((each.topic, each.partition) for each in self._consumer.assignment())

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


@contextmanager
def members(*made: Member) -> Iterator[list[Member]]:
    """Members that leave at the end."""
    inside = list(made)
    try:
        yield inside
    finally:
        for each in inside:
            each.close()


def poll_until(inside: list[Member], is_reached: Callable[[], bool]) -> bool:
    """Let members poll until something is so, or for too long."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for each in inside:
            each.poll()
        if is_reached():
            return True
    return False


def read(*inside: Member) -> list[bytes]:
    """All values that these members have read, in order of their text."""
    return sorted(value for each in inside for value in each.values)


def shares(*inside: Member) -> list[int]:
    """The number of partitions of each member, rising."""
    return sorted(len(each.assigned) for each in inside)


@pytest.fixture(scope="module", autouse=True)
def regex_member(address: str) -> Iterator[Member]:
    """A member that subscribes to a regular expression, of which a topic exists.

    The broker looks for topics again after ten seconds, which pass while other tests run.
    """
    fill(address, "flights-1")
    member = Member(address, "regex", "^flights-.*")
    with members(member) as inside:
        assert poll_until(inside, lambda: len(read(member)) >= COUNT)
        yield member


def test_two_members_share_and_one_takes_over(address: str) -> None:
    """Each record is read once, though one member leaves in between."""
    with members(Member(address, "shared"), Member(address, "shared")) as inside:
        one, two = inside
        assert poll_until(inside, lambda: shares(one, two) == [2, 2])
        assert not set(one.assigned) & set(two.assigned)
        inside.remove(two)
        two.close()
        assert poll_until(inside, lambda: len(one.assigned) == PARTITIONS)
        assert poll_until(inside, lambda: len(read(one, two)) >= COUNT)
        assert read(one, two) == numbers()


def test_a_static_member_comes_back_to_its_partitions(address: str) -> None:
    """Nobody else gets them while it restarts."""
    one = Member(address, "static", group_instance_id="one")
    two = Member(address, "static", group_instance_id="two")
    with members(one, two) as inside:
        assert poll_until(inside, lambda: shares(one, two) == [2, 2])
        before, other = one.assigned, two.assigned
        inside.remove(one)
        one.close()
        again = Member(address, "static", group_instance_id="one")
        inside.append(again)
        assert poll_until(inside, lambda: len(again.assigned) == 2)
        assert (again.assigned, two.assigned) == (before, other)
        assert poll_until(inside, lambda: len(read(one, two, again)) >= COUNT)
        assert read(one, two, again) == numbers()


@pytest.mark.parametrize("protocols", [("classic", "consumer"), ("consumer", "classic")])
def test_members_of_both_protocols_share(address: str, protocols: tuple[str, str]) -> None:
    """The group is upgraded and downgraded under them; each record is read once."""
    group = "-".join(protocols)
    one = Member(address, group, protocol=protocols[0])
    with members(one) as inside:
        assert poll_until(inside, lambda: len(one.assigned) == PARTITIONS)
        two = Member(address, group, protocol=protocols[1])
        inside.append(two)
        assert poll_until(inside, lambda: shares(one, two) == [2, 2])
        assert not set(one.assigned) & set(two.assigned)
        stays = one if protocols[0] == "classic" else two
        leaves = two if stays is one else one
        inside.remove(leaves)
        leaves.close()
        assert poll_until(inside, lambda: len(stays.assigned) == PARTITIONS)
        assert poll_until(inside, lambda: len(read(one, two)) >= COUNT)
        assert read(one, two) == numbers()


def test_a_group_goes_on_when_the_broker_restarts(tmp_path: Path) -> None:
    """Its members keep their partitions and their offsets: nothing is lost, nothing comes twice."""
    data, settings = tmp_path / "data", dict(SETTINGS)
    with Broker(data, settings=settings) as broker:
        address = broker.bootstrap_servers
        fill(address, "t")
        one, two = Member(address, "lives"), Member(address, "lives")
        both = [one, two]
        assert poll_until(both, lambda: shares(one, two) == [2, 2])
        assert poll_until(both, lambda: len(read(one, two)) >= COUNT)
        before = one.assigned, two.assigned
    with members(one, two) as inside, Broker(data, listen=address, settings=settings):
        fill(address, "t", COUNT)
        assert poll_until(inside, lambda: len(read(one, two)) >= 2 * COUNT)
        assert read(one, two) == numbers(0, 2 * COUNT)
        assert (one.assigned, two.assigned) == before


def test_a_regular_expression_finds_topics_that_come_later(
    address: str, regex_member: Member
) -> None:
    """A topic that begins to exist is read, too; others are not."""
    fill(address, "flights-2", COUNT)
    assert poll_until([regex_member], lambda: len(read(regex_member)) >= 2 * COUNT)
    assert read(regex_member) == numbers(0, 2 * COUNT)
    assert {topic for topic, _ in regex_member.assigned} == {"flights-1", "flights-2"}
