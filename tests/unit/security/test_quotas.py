"""Which quota a client has, with whom it shares the count, and what a request costs."""

from collections.abc import Mapping

import pytest

from tailrace.cluster.metadata.image import QuotaEntity
from tailrace.model import Principal
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.frames import Caller, RequestHeader
from tailrace.protocol.messages.create_topics import CreateTopicsResponse
from tailrace.security import quotas as quotas_module
from tailrace.security.quotas import ClientQuotas, Mutations, QuotaConfig, QuotaCounter, QuotaKind
from tailrace.testing import Outside

USER_APP: Mapping[str, str | None] = {"user": "alice", "client-id": "app"}
USER_ANY_APP: Mapping[str, str | None] = {"user": "alice", "client-id": None}
USER: Mapping[str, str | None] = {"user": "alice"}
ANY_USER_APP: Mapping[str, str | None] = {"user": None, "client-id": "app"}
ANY_USER_ANY_APP: Mapping[str, str | None] = {"user": None, "client-id": None}
ANY_USER: Mapping[str, str | None] = {"user": None}
APP: Mapping[str, str | None] = {"client-id": "app"}
ANY_APP: Mapping[str, str | None] = {"client-id": None}

LEVELS = [USER_APP, USER_ANY_APP, USER, ANY_USER_APP, ANY_USER_ANY_APP, ANY_USER, APP, ANY_APP]
"""All kinds of entities, the most specific first."""

RATE = QuotaKind.PRODUCE


class Node:
    """A node with quotas that a test changes."""

    def __init__(self, outside: Outside, config: QuotaConfig | None = None) -> None:
        self.outside = outside
        self.given: dict[QuotaEntity, dict[str, float]] = {}
        self.quotas = ClientQuotas(lambda: self.given, outside.clock, config or QuotaConfig())

    def set(self, names: Mapping[str, str | None], value: float | None, kind: str = RATE) -> None:
        """Set or remove a quota, as the next image of the metadata log has it."""
        entity = QuotaEntity(tuple(names.items()))
        values = {**self.given.get(entity, {}), kind: value}
        kept = {each: limit for each, limit in values.items() if limit is not None}
        self.given = {**self.given, entity: kept}

    def limit(self, user: str, client_id: str | None, kind: str = RATE) -> float | None:
        """The limit that a client has."""
        found = self.quotas.find(kind, user, client_id)
        return None if found is None else found.limit

    def counter(self, user: str, client_id: str, kind: str = RATE) -> QuotaCounter:
        """The counter of a client that has a quota."""
        found = self.quotas.find(kind, user, client_id)
        assert found is not None
        return found

    def throttled(self, user: str, client_id: str, size: int) -> int:
        """The throttle time of a client after a request of this size."""
        header = header_of(user, client_id)
        charge = self.quotas.charge_or_none(header, size)
        return 0 if charge is None else charge.settle()

    def mutations(self, version: int) -> Mutations:
        """The partitions of a request of Alice."""
        header = header_of("alice", "app", ApiKey.CREATE_TOPICS)._replace(api_version=version)
        return self.quotas.mutations(header)


def delay_of(asked: Mutations) -> int:
    """The throttle time in the answer to a request."""
    return asked.settle(CreateTopicsResponse(topics=())).throttle_time_ms


def header_of(user: str, client_id: str | None, key: ApiKey = ApiKey.PRODUCE) -> RequestHeader:
    """The header of a request."""
    return RequestHeader(int(key), 9, 1, client_id, Caller(principal=Principal("User", user)))


@pytest.fixture
def node(outside: Outside) -> Node:
    """A node without quotas."""
    return Node(outside)


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_most_specific_quota_counts(node: Node, first: int) -> None:
    """Each of the eight kinds of entities comes before all that follow it (KIP-55)."""
    for place, names in enumerate(LEVELS[first:], first):
        node.set(names, 1000 + place)
    assert node.limit("alice", "app") == 1000 + first


def test_others_have_the_quotas_of_their_own_names(node: Node) -> None:
    """Another user, another client id, and both."""
    for place, names in enumerate(LEVELS):
        node.set(names, 1000 + place)
    assert node.limit("alice", "web") == 1001
    assert node.limit("bob", "app") == 1003
    assert node.limit("bob", "web") == 1004


def test_names_are_taken_as_they_are(node: Node) -> None:
    """Names that a URL would escape, that look like a default, or are long."""
    for name in ("CN=alice,O=Org", "<default>", "a b%20c", "ü" * 200):
        node.set({"user": name, "client-id": name}, 7)
        assert node.limit(name, name) == 7
        assert node.limit(name, "app") is None


def test_a_client_without_an_id_has_quotas_of_users_alone(node: Node) -> None:
    """A default client id is not that of a client that has none."""
    node.set(ANY_APP, 1)
    node.set(ANY_USER_ANY_APP, 2)
    assert node.limit("alice", None) is None
    assert node.limit("alice", "") is None
    node.set(ANY_USER, 3)
    assert node.limit("alice", None) == 3
    node.set(USER, 4)
    assert node.limit("alice", "") == 4


def test_quotas_are_set_changed_and_removed(node: Node) -> None:
    """A change counts for the next request; without the last quota nothing is counted."""
    assert not node.quotas.are_there
    node.set(ANY_USER, 10)
    assert node.limit("alice", "app") == 10
    node.set(USER, 20)
    assert node.limit("alice", "app") == 20
    node.set(USER_APP, 30)
    assert node.limit("alice", "app") == 30
    node.set(USER_APP, None)
    assert node.limit("alice", "app") == 20
    node.set(USER, None)
    assert node.limit("alice", "app") == 10
    node.set(ANY_USER, None)
    assert node.limit("alice", "app") is None
    assert not node.quotas.are_there


def test_each_kind_has_its_own_entities(node: Node) -> None:
    """A specific quota to produce does not hide a general one to fetch."""
    node.set(USER_APP, 10)
    node.set(ANY_USER, 20, QuotaKind.FETCH)
    assert node.limit("alice", "app", QuotaKind.FETCH) == 20
    assert node.limit("alice", "app", QuotaKind.REQUEST_TIME) is None


def test_addresses_and_unknown_quotas_are_nothing_for_clients(node: Node) -> None:
    """A log of another version may have some."""
    node.set({"ip": "10.0.0.1"}, 5, "connection_creation_rate")
    node.set(USER, 5, "bytes_on_tuesdays")
    assert not node.quotas.are_there


def test_clients_of_one_user_share_its_quota(node: Node) -> None:
    """Together they have the rate of the quota; a user of the default has one of its own."""
    node.set(USER, 1000)
    node.set(ANY_USER, 1000)
    assert node.throttled("alice", "app", 6000) == 0
    assert node.throttled("alice", "web", 6000) == 2000
    assert node.throttled("bob", "app", 6000) == 0
    assert node.throttled("bob", "web", 3000) == 0


@pytest.mark.parametrize("names", [USER_APP, USER_ANY_APP, ANY_USER_APP, ANY_USER_ANY_APP])
def test_quotas_of_both_are_for_one_client_id_of_one_user(
    node: Node, names: Mapping[str, str | None]
) -> None:
    """The default entity gives each pair of names a count of its own."""
    node.set(names, 1000)
    assert node.throttled("alice", "app", 12_000) == 2000
    assert node.throttled("alice", "web", 10_000) == 0
    assert node.throttled("bob", "app", 10_000) == 0


@pytest.mark.parametrize("names", [APP, ANY_APP])
def test_quotas_of_client_ids_are_shared_by_users(
    node: Node, names: Mapping[str, str | None]
) -> None:
    """A client id that two users have is one client."""
    node.set(names, 1000)
    assert node.throttled("alice", "app", 6000) == 0
    assert node.throttled("bob", "app", 6000) == 2000


def test_a_new_limit_counts_what_was_sent_before(node: Node) -> None:
    """The rate stays, so a higher limit lets the client go at once."""
    node.set(USER, 1000)
    assert node.throttled("alice", "app", 20_000) == 10_000
    node.set(USER, 2000)
    assert node.throttled("alice", "app", 0) == 0
    node.set(USER, 500)
    assert node.throttled("alice", "app", 0) == 30_000


async def test_a_throttle_ends_with_the_windows(node: Node) -> None:
    """Clients that keep the rate from then on are not throttled again."""
    node.set(USER, 500)
    for _ in range(10):
        assert node.throttled("alice", "app", 400) == 0
        await node.outside.pass_time(1)
    await node.outside.pass_time(0.5)
    assert node.throttled("alice", "app", 2300) == 2100
    throttled = []
    for _ in range(15):
        await node.outside.pass_time(1)
        throttled.append(node.throttled("alice", "app", 400) > 0)
    assert throttled[0]
    assert not any(throttled[11:])


def test_the_most_at_once_is_that_of_all_windows_but_one(outside: Outside) -> None:
    """A larger answer would be throttled each time it is asked for."""
    node = Node(outside)
    node.set(USER, 100, QuotaKind.FETCH)
    assert node.counter("alice", "app", QuotaKind.FETCH).most_at_once == 1000
    other = Node(outside, QuotaConfig(window_count=7, window_s=3))
    other.set(USER, 100, QuotaKind.FETCH)
    assert other.counter("alice", "app", QuotaKind.FETCH).most_at_once == 1800


def test_without_quotas_a_request_is_not_charged(node: Node) -> None:
    """Also a request of a client without one, while others have some."""
    assert node.quotas.charge_or_none(header_of("alice", "app"), 1) is None
    node.set(USER, 10)
    assert node.quotas.charge_or_none(header_of("bob", "app"), 1) is None
    assert node.quotas.charge_or_none(header_of("alice", "app", ApiKey.METADATA), 1) is None
    assert node.quotas.statistics().counter_count == 0


@pytest.mark.parametrize("key", [ApiKey.WRITE_TXN_MARKERS, ApiKey.ENVELOPE, ApiKey.ALTER_PARTITION])
def test_requests_between_nodes_are_exempt(node: Node, key: ApiKey) -> None:
    """No quota keeps a cluster from running."""
    node.set(ANY_USER, 0.001, QuotaKind.REQUEST_TIME)
    assert node.quotas.charge_or_none(header_of("ANONYMOUS", "1", key), 1) is None
    assert node.quotas.charge_or_none(header_of("ANONYMOUS", "1", ApiKey.METADATA), 1) is not None


async def test_time_is_counted_in_percent_of_a_core(node: Node) -> None:
    """Kafka's numbers: 4 % for 10 s are within 5 %, and a request of 200 ms more is not.

    The throttle time is no longer than a window, as with heartbeats in between.
    """
    node.set(USER, 1, QuotaKind.REQUEST_TIME)

    async def ask(seconds: float) -> int:
        charge = node.quotas.charge_or_none(header_of("alice", "app", ApiKey.METADATA), 1)
        assert charge is not None
        await node.outside.pass_time(seconds)
        return charge.settle()

    for _ in range(10):
        assert await ask(0.004) == 0
        await node.outside.pass_time(0.996)
    await node.outside.pass_time(0.5)
    # 40 ms and 67.1 ms are 10.71 percent of a second, in 10.5671 s of which 10.5671 are allowed.
    throttle_ms = await ask(0.0671)
    assert 100 <= throttle_ms <= 200
    assert await ask(5) == 1000


async def test_only_the_steps_of_a_coroutine_count(node: Node) -> None:
    """A request that waits for others costs nothing meanwhile; its error arrives."""
    node.set(USER, 50, QuotaKind.REQUEST_TIME)
    clock = node.outside.clock

    async def work() -> str:
        clock.pause(0.25)
        await node.outside.pass_time(100)
        clock.pause(0.25)
        return "done"

    async def fail() -> str:
        await node.outside.pass_time(1)
        raise ValueError("of the work")

    charge = node.quotas.charge_or_none(header_of("alice", "app", ApiKey.METADATA), 1)
    assert charge is not None
    assert await charge.timed(work()) == "done"
    assert charge.settle() == 0
    rate = node.counter("alice", "app", QuotaKind.REQUEST_TIME).rate
    assert rate.per_second(node.quotas.now_ms) == pytest.approx(5)
    with pytest.raises(ValueError, match="of the work"):
        await charge.timed(fail())


def test_the_longer_of_two_throttles_counts(node: Node) -> None:
    """Bytes and time are counted both."""
    node.set(USER, 1000)
    node.set(USER, 0.001, QuotaKind.REQUEST_TIME)
    node.counter("alice", "app", QuotaKind.REQUEST_TIME).record(50, node.quotas.now_ms)
    assert node.throttled("alice", "app", 0) == 1000
    assert node.throttled("alice", "app", 12_000) == 2000


def test_the_time_of_a_request_without_an_answer_does_not_count(node: Node) -> None:
    """Its client would not learn of it (Produce with acks 0); its bytes count."""
    node.set(USER, 1000)
    node.set(USER, 0.001, QuotaKind.REQUEST_TIME)
    node.counter("alice", "app", QuotaKind.REQUEST_TIME).record(50, node.quotas.now_ms)
    charge = node.quotas.charge_or_none(header_of("alice", "app"), 10_500)
    assert charge is not None
    assert charge.settle(is_answered=False) == 500


def test_made_up_client_ids_do_not_fill_memory(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only some are counted at a time; the oldest ones are forgotten first."""
    monkeypatch.setattr(quotas_module, "COUNTERS_MAX", 100)
    node.set(ANY_APP, 10)
    for number in range(1000):
        node.throttled("eve", str(number), 500)
    assert node.quotas.statistics().counter_count == 100
    assert node.throttled("eve", "999", 0) == 40_000
    assert node.throttled("eve", "1", 0) == 0


def test_a_long_client_id_fills_no_memory(node: Node) -> None:
    """It is known by its beginning, also as that of a quota of its own."""
    long = "x" * 30_000
    node.set(ANY_APP, 10)
    counter = node.counter("alice", long + "1")
    assert counter is node.counter("alice", long + "2")
    assert all(len(client_id) < 1000 for (_, client_id), _, _ in node.quotas.rates(RATE))
    node.set({"client-id": long}, 20)
    assert node.limit("alice", long) == 20
    assert node.limit("alice", "x") == 10


async def test_idle_clients_are_forgotten_before_others(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that was silent for all windows is as one that has never sent."""
    monkeypatch.setattr(quotas_module, "COUNTERS_MAX", 100)
    node.set(ANY_APP, 10)
    node.throttled("alice", "busy", 500)
    for number in range(99):
        node.throttled("alice", str(number), 500)
    await node.outside.pass_time(8)
    node.throttled("alice", "busy", 500)
    await node.outside.pass_time(8)
    node.throttled("alice", "new", 500)
    assert node.quotas.statistics().counter_count == 2
    assert node.throttled("alice", "busy", 0) > 0


def test_one_line_of_the_log_tells_of_many_throttles(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """It names the quota and one client, and the next one has their number."""
    caplog.set_level("INFO", logger="tailrace")
    node.set(USER, 10)
    for _ in range(500):
        node.throttled("alice", "app", 1000)
    (line,) = (each.getMessage() for each in caplog.records)
    assert "client_throttled quota=producer_byte_rate limit=10 user='alice'" in line
    assert node.quotas.statistics().throttled_count["producer_byte_rate"] == 500
    node.outside.clock.pause(10)
    node.throttled("alice", "app", 100_000)
    assert "throttled_since_last_line=500" in caplog.records[-1].getMessage()


# -- changes of topics ----------------------------------------------------------------------------


def test_a_strict_request_may_overdraw_and_the_next_is_refused(node: Node) -> None:
    """A burst of 11 tokens at 1 a second: 15 partitions pass, and 4 s later the next ones."""
    node.set(USER, 1, QuotaKind.MUTATIONS)
    first = node.mutations(6)
    assert first.take(15)
    assert delay_of(first) == 0
    second = node.mutations(7)
    assert not second.take(1)
    assert delay_of(second) == 4000
    node.outside.clock.pause(4)
    third = node.mutations(7)
    assert third.take(1)
    assert delay_of(third) == 0


def test_the_parts_of_a_strict_request_pass_until_the_quota_is_used_up(node: Node) -> None:
    """The topics after that are refused; what is refused is not counted."""
    node.set(USER, 1, QuotaKind.MUTATIONS)
    asked = node.mutations(6)
    assert [asked.take(8) for _ in range(4)] == [True, True, False, False]
    assert delay_of(asked) == 5000


def test_an_older_request_is_done_and_its_client_delayed(node: Node) -> None:
    """Its version has no error for it."""
    node.set(USER, 1, QuotaKind.MUTATIONS)
    asked = node.mutations(5)
    assert all(asked.take(8) for _ in range(4))
    assert delay_of(asked) == 21_000
    assert delay_of(node.mutations(5)) == 0


def test_the_throttle_time_is_what_is_left_when_the_answer_leaves(node: Node) -> None:
    """Records have to be written in between."""
    node.set(USER, 1, QuotaKind.MUTATIONS)
    asked = node.mutations(5)
    asked.take(21)
    node.outside.clock.pause(3)
    assert delay_of(asked) == 7000
    node.outside.clock.pause(60)
    assert delay_of(asked) == 0


def test_without_a_quota_any_number_of_partitions_is_taken(node: Node) -> None:
    """Nothing is counted."""
    asked = node.mutations(7)
    assert all(asked.take(10_000) for _ in range(3))
    assert delay_of(asked) == 0


def test_the_bucket_has_windows_of_its_own(outside: Outside) -> None:
    """The windows of controllers, with which more can be created at once."""
    config = QuotaConfig(controller_window_count=20, controller_window_s=5)
    node = Node(outside, config)
    node.set(USER, 2, QuotaKind.MUTATIONS)
    asked = node.mutations(6)
    assert asked.take(201)
    assert not asked.take(1)
    assert delay_of(asked) == 500
