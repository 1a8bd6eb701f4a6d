"""Settings of the broker that change while it runs: for it and for all brokers, as in Kafka."""

import asyncio
from collections.abc import Callable

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.broker.changing import CHANGEABLE, FIXED, OF_NEW_LISTENERS, RENEWABLE
from tailrace.broker.config import BROKER_SETTINGS, TOPIC_DEFAULT_SETTINGS
from tailrace.cluster.metadata.image import ConfigResource
from tailrace.cluster.records import config_records
from tailrace.config.foreign import foreign_reason
from tailrace.handlers.broker_configs import THROTTLES, TYPES
from tailrace.protocol.config_resources import ConfigOperation
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.describe_configs import DescribeConfigsResourceResult
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsResourceResponse,
)
from tailrace.testing import DiskFault, MemoryFiles, Outside, Peer, virtual_runtime
from tests.kraft import METADATA_LOG
from tests.unit.broker.brokers import connect, create_topic, running
from tests.unit.broker.test_configs import (
    BROKER,
    STATIC,
    Change,
    alter_all,
    by_name,
    describe,
    log_of,
    replace_all,
    resource,
    set_to,
)
from tests.unit.broker.test_kafka_settings import of
from tests.unit.broker.test_scram_users import alter as alter_users
from tests.unit.broker.test_scram_users import described as described_users
from tests.unit.broker.test_scram_users import upsertion

OWN, ALL, DEFAULT = 2, 3, 5
METRICS, GROUP = 16, 32
THREADS = "log.cleaner.threads"
RETENTION = "log.retention.ms"


async def change(
    peer: Peer, *changes: Change, name: str = "1"
) -> IncrementalAlterConfigsResourceResponse:
    """The answer to changes of this broker, or of all with an empty name."""
    (answer,) = await alter_all(peer, resource(*changes, name=name, kind=BROKER))
    return answer


async def changed(peer: Peer, *changes: Change, name: str = "1") -> None:
    """Make changes that are taken."""
    answer = await change(peer, *changes, name=name)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)


def deleted(name: str) -> Change:
    """A change that goes back to what counted before."""
    return name, ConfigOperation.DELETE, None


async def described(peer: Peer, name: str = "1") -> dict[str, DescribeConfigsResourceResult]:
    """Every setting of a broker with synonyms and documentation."""
    return by_name(await describe(peer, name, kind=BROKER, is_full=True))


def synonyms(entry: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    """Name, value and source of each."""
    return [(each.name, each.value, each.source) for each in entry.synonyms]


def cleaning_tasks() -> int:
    """Tasks that compact logs."""
    names = [getattr(each.get_coro(), "__qualname__", "") for each in asyncio.all_tasks()]
    return names.count("RunningBroker._clean")


EFFECTS: list[tuple[str, str, Callable[[RunningBroker], object]]] = [
    (RETENTION, "5000000", lambda broker: log_of(broker).config.retention_ms),
    ("message.max.bytes", "12345", lambda broker: log_of(broker).config.max_message_bytes),
    ("log.segment.bytes", "2000000", lambda broker: log_of(broker).config.segment_bytes),
    (THREADS, "3", lambda _: cleaning_tasks()),
    (
        "log.cleaner.io.max.bytes.per.second", "5000",
        lambda broker: int(broker.cleaner.throttle.bytes_per_second),
    ),
    (
        "num.recovery.threads.per.data.dir", "5",
        lambda broker: broker.current.recovery_thread_count,
    ),
    ("log.cleaner.backoff.ms", "77", lambda broker: broker.current.cleaner_backoff_ms),
    (
        "log.cleaner.dedupe.buffer.size", "8388608",
        lambda broker: broker.current.cleaner.map_bytes_max,
    ),
    ("producer.id.expiration.ms", "5000", lambda broker: broker.current.producer_expiration_ms),
    (
        "max.connection.creation.rate", "7",
        lambda broker: broker.current.connection_limits.creation_rate,
    ),
    ("max.connections", "7", lambda broker: broker.current.connection_limits.connections_max),
    (
        "max.connections.per.ip", "7",
        lambda broker: broker.current.connection_limits.per_address_max,
    ),
    (
        "max.connections.per.ip.overrides", "127.0.0.9:7",
        lambda broker: ",".join(
            f"{host}:{count}"
            for host, count in broker.current.connection_limits.overrides.items()
        ),
    ),
    (
        "replica.alter.log.dirs.io.max.bytes.per.second", "7",
        lambda broker: broker.current.move_bytes_per_second,
    ),
    (
        "group.consumer.assignment.interval.ms", "3000",
        lambda broker: broker.current.consumer_groups.assignment_interval_ms,
    ),
]  # fmt: skip
WITH_TESTS_OF_THEIR_OWN = {
    "cordoned.log.dirs", "listener.security.protocol.map", "listeners",
    "transaction.partition.verification.enable",
} | OF_NEW_LISTENERS  # fmt: skip


@pytest.mark.parametrize("owner", ["1", ""])
@pytest.mark.parametrize(("name", "value", "effect"), EFFECTS)
async def test_a_change_counts_at_once_and_after_a_restart(
    outside: Outside, name: str, value: str, effect: Callable[[RunningBroker], object], owner: str
) -> None:
    """The part of the broker follows the setting, and goes back when it is deleted."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        before = effect(broker)
        assert str(before) != value
        await changed(peer, set_to(name, value), name=owner)
        assert str(effect(broker)) == value
    async with running(outside) as broker:
        assert str(effect(broker)) == value
        await changed(connect(outside, broker), deleted(name), name=owner)
        # A cleaner's thread ends when it has rested.
        await outside.pass_time(16)
        assert effect(broker) == before


async def test_every_changeable_setting_can_be_changed(outside: Outside) -> None:
    """To the value that it has, at once, by both requests; all are described as changeable."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        found = await described(peer)
        assert {name for name, each in found.items() if not each.read_only} == CHANGEABLE
        # Kafka keeps the number of replicas in sync for all brokers (KIP-966).
        names = CHANGEABLE - {"min.insync.replicas", "max.connections.per.ip.overrides"}
        values = {name: found[name].value or "604800000" for name in names}
        values["max.connections.per.ip.overrides"] = "127.0.0.1:7"
        values["cordoned.log.dirs"] = "data"
        await changed(peer, *(set_to(name, value) for name, value in values.items()))
        answer = await replace_all(peer, {}, name="1", kind=BROKER)
        assert answer.error_code == ErrorCode.NONE
        assert not [each for each in (await described(peer)).values() if each.config_source == OWN]


def test_every_setting_that_changes_in_kafka_changes_here_or_has_a_reason() -> None:
    """Settings of stores change for single listeners, whose names have a prefix."""
    declared = {each.name for each in BROKER_SETTINGS}
    for each in of("broker"):
        is_known = each.name in CHANGEABLE | FIXED.keys() | RENEWABLE
        if each.mode == "read-only":
            assert each.name not in CHANGEABLE, each.name
        elif each.name in declared:
            assert is_known, each.name
        else:
            assert foreign_reason(each.name) is not None, each.name


def test_every_change_is_seen_by_a_test() -> None:
    """But for defaults of topics, which are handed on together, and what has no effect."""
    topics = {each.name for each in TOPIC_DEFAULT_SETTINGS}
    stored = {each.name for each in BROKER_SETTINGS if each.is_stored_only}
    seen = {name for name, *_ in EFFECTS} | WITH_TESTS_OF_THEIR_OWN
    assert CHANGEABLE - topics - stored <= seen


async def test_a_broker_goes_over_all_brokers_and_both_over_the_file(outside: Outside) -> None:
    """Values and synonyms are in Kafka's order; what is deleted gives way to the next."""
    async with running(outside, {THREADS: "4", "log.retention.hours": "1"}) as broker:
        peer = connect(outside, broker)
        await changed(peer, set_to(THREADS, "2"), set_to(RETENTION, "5000000"), name="")
        await changed(peer, set_to(THREADS, "3"))
        found = await described(peer)
        assert (found[THREADS].value, found[THREADS].config_source) == ("3", OWN)
        assert synonyms(found[THREADS]) == [
            (THREADS, "3", OWN), (THREADS, "2", ALL), (THREADS, "4", STATIC),
            (THREADS, "1", DEFAULT),
        ]  # fmt: skip
        assert synonyms(found[RETENTION]) == [
            (RETENTION, "5000000", ALL), ("log.retention.hours", "1", STATIC),
            ("log.retention.hours", "168", DEFAULT),
        ]  # fmt: skip
        of_all = await described(peer, "")
        assert {name: each.value for name, each in of_all.items()} == {
            THREADS: "2", RETENTION: "5000000", "min.insync.replicas": "1",
        }  # fmt: skip
        assert synonyms(of_all[THREADS]) == [(THREADS, "2", ALL)]
        await changed(peer, deleted(THREADS))
        assert broker.current.cleaner_thread_count == 2
        await changed(peer, deleted(THREADS), deleted(RETENTION), name="")
        assert broker.current.cleaner_thread_count == 4


async def test_lists_are_appended_to(outside: Outside) -> None:
    """APPEND and SUBTRACT change the own list, or the default."""
    name = "log.cleanup.policy"
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await changed(peer, (name, ConfigOperation.APPEND, "compact"))
        assert (await described(peer))[name].value == "delete,compact"
        await changed(peer, (name, ConfigOperation.SUBTRACT, "delete"))
        assert (await described(peer))[name].value == "compact"


async def test_deleting_what_is_not_set_is_done(outside: Outside) -> None:
    """kafka-reassign-partitions --verify deletes throttles; they can be set too."""
    names = (*THROTTLES, "replica.alter.log.dirs.io.max.bytes.per.second", "node.id", "nonsense")
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await changed(peer, *map(deleted, names))
        await changed(peer, *map(deleted, names), name="")
        assert broker.controller.log.image.configs_of(BROKER, "1") == {}
        await changed(peer, *(set_to(name, "1000") for name in THROTTLES))
        found = await described(peer)
        assert {(found[name].value, found[name].config_type) for name in THROTTLES} == {("1000", 5)}


REFUSED = [
    ((set_to("log.dirs", "/x"),), ErrorCode.INVALID_REQUEST,
     "Cannot update these configs dynamically: [log.dirs]"),
    ((set_to("num.io.threads", "9"), set_to("node.id", "2")), ErrorCode.INVALID_REQUEST,
     "Cannot update these configs dynamically: [num.io.threads, node.id]"),
    ((set_to("log.retention.hours", "9"),), ErrorCode.INVALID_REQUEST,
     "Cannot update these configs dynamically: [log.retention.hours]"),
    ((set_to("config.providers", "file"),), ErrorCode.INVALID_REQUEST,
     "Cannot update these configs dynamically: [config.providers]"),
    ((set_to("sasl.mechanism.inter.broker.protocol", "PLAIN"),), ErrorCode.INVALID_REQUEST,
     "Cannot update these configs dynamically: [sasl.mechanism.inter.broker.protocol]"),
    ((set_to("ssl.keystore.password", "hunter2"),), ErrorCode.INVALID_REQUEST,
     "can be dynamically updated only per-listener using the listener prefix: [ssl.keystore.p"),
    ((set_to("log.cleaner.thread", "2"),), ErrorCode.INVALID_CONFIG, "did you mean " + THREADS),
    ((set_to(THREADS, "x"),), ErrorCode.INVALID_REQUEST, "not a whole number"),
    ((set_to(THREADS, "0"),), ErrorCode.INVALID_REQUEST, "out of range"),
    ((set_to("leader.replication.throttled.rate", "x"),), ErrorCode.INVALID_REQUEST, "whole"),
    ((set_to("log.cleaner.dedupe.buffer.size", "4194304"), set_to(THREADS, "2")),
     ErrorCode.INVALID_REQUEST, "for each of 2 cleaner threads"),
    ((set_to("max.connections.per.ip", "0"),), ErrorCode.INVALID_REQUEST, "can be set to zero"),
    ((set_to("log.cleaner.max.compaction.lag.ms", "5"),), ErrorCode.INVALID_REQUEST,
     "below min.compaction.lag.ms"),
    ((set_to(THREADS, None),), ErrorCode.INVALID_REQUEST, "Null value not supported for : "),
    ((set_to(THREADS, "1"), deleted(THREADS)), ErrorCode.INVALID_REQUEST,
     "Error due to duplicate config keys"),
    (((THREADS, ConfigOperation.APPEND, "1"),), ErrorCode.INVALID_CONFIG, "is not LIST"),
    (((THREADS, 9, "1"),), ErrorCode.INVALID_REQUEST, "Unknown operations type 9"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "code", "words"), REFUSED)
async def test_a_change_that_cannot_be_made_is_refused(
    outside: Outside, changes: tuple[Change, ...], code: ErrorCode, words: str
) -> None:
    """With Kafka's code, for one broker and for all, and nothing is changed."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs={"min.compaction.lag.ms": "100"})
        await changed(peer, set_to("log.cleaner.backoff.ms", "15000"))
        before = broker.controller.log.image.configs
        for name in ("1", ""):
            answer = await change(peer, *changes, name=name)
            assert answer.error_code == code
            assert words in (answer.error_message or "")
        assert broker.controller.log.image.configs == before


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("2", "Unexpected broker id, expected 1, but received 2"),
        ("x", "Node id must be an integer, but it is: x"),
        (" 1", "Node id must be an integer, but it is:  1"),
    ],
)
async def test_another_broker_is_refused(outside: Outside, name: str, words: str) -> None:
    """The words are Kafka's."""
    async with running(outside) as broker:
        answer = await change(connect(outside, broker), set_to(THREADS, "1"), name=name)
        assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, words)


async def test_changes_at_the_same_time_do_not_contradict_each_other(outside: Outside) -> None:
    """One for all brokers and one for this broker are made one after the other."""
    async with running(outside) as broker:
        outside.runtime.threads.seconds_per_run = 1  # type: ignore[attr-defined]
        least, most = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
        answers = await asyncio.gather(
            change(connect(outside, broker), set_to(least, "100000"), name=""),
            change(connect(outside, broker), set_to(most, "5000"), name="1"),
        )
        assert [each.error_code for each in answers] == [
            ErrorCode.NONE,
            ErrorCode.INVALID_REQUEST,
        ]
        await create_topic(connect(outside, broker), "t")


async def test_replicas_in_sync_are_a_setting_of_all_brokers(outside: Outside) -> None:
    """No broker has its own where eligible leader replicas are kept, and it cannot go."""
    name = "min.insync.replicas"
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await changed(peer, set_to(name, "1"), name="")
        for owner, one in (("1", set_to(name, "1")), ("", deleted(name))):
            answer = await change(peer, one, name=owner)
            assert answer.error_code == ErrorCode.INVALID_CONFIG
            assert "while ELR is enabled" in (answer.error_message or "")


async def test_what_another_broker_has_stored_is_kept_and_need_not_count(outside: Outside) -> None:
    """Names and values that are refused here stay for Kafka; the others count."""
    stored = {
        "num.io.threads": "16", THREADS: "100", "log.cleaner.backoff.ms": "99", "custom": "secret",
    }  # fmt: skip
    async with running(outside) as broker:
        owner = ConfigResource(BROKER, "1")
        broker.controller.write(lambda image: config_records(image, owner, stored))
    async with running(outside) as broker:
        peer = connect(outside, broker)
        assert broker.current.cleaner_thread_count == 1
        assert broker.current.cleaner_backoff_ms == 99
        found = await described(peer)
        assert (found["num.io.threads"].value, found["num.io.threads"].read_only) == ("16", True)
        assert (found["custom"].value, found["custom"].is_sensitive) == (None, True)
        assert (found[THREADS].value, found[THREADS].config_source) == ("1", DEFAULT)
        await changed(peer, set_to(THREADS, "2"), deleted("num.io.threads"))
        assert broker.controller.log.image.configs_of(BROKER, "1") == {
            THREADS: "2", "log.cleaner.backoff.ms": "99", "custom": "secret",
        }  # fmt: skip


async def test_limits_of_connections_follow(outside: Outside) -> None:
    """A connection above the new limit is closed; with more room the next is taken."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await changed(peer, set_to("max.connections.per.ip", "1"))
        assert await connect(outside, broker).is_closed()
        await changed(peer, set_to("max.connections.per.ip", "2"))
        await described(connect(outside, broker))


async def test_groups_follow_the_interval_of_assignments(outside: Outside) -> None:
    """A group without its own interval has the broker's."""
    name = "group.consumer.assignment.interval.ms"
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await changed(peer, set_to(name, "3000"))
        found = by_name(await describe(peer, "g", kind=GROUP))
        assert found["consumer.assignment.interval.ms"].value == "3000"


async def test_the_check_of_transactions_follows(outside: Outside) -> None:
    """Logs that are there and logs that come ask for a guard, or do not."""
    name = "transaction.partition.verification.enable"
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        assert log_of(broker).producers.verifications.is_required
        await changed(peer, set_to(name, "false"))
        assert not log_of(broker).producers.verifications.is_required


async def test_the_broker_has_every_name_of_kafka(outside: Outside) -> None:
    """A setting without effect is read only, with its reason and value; passwords have none."""
    given = {"num.io.threads": "12", "ssl.keystore.password": "secret"}
    async with running(outside, given) as broker:
        found = await described(connect(outside, broker))
        shown = {each.name for each in of("broker") if each.visibility == "public"}
        assert not shown - found.keys()
        one = found["num.io.threads"]
        assert (one.value, one.read_only, one.config_source) == ("12", True, STATIC)
        assert synonyms(one) == [("num.io.threads", "12", STATIC), ("num.io.threads", "8", DEFAULT)]
        assert "One event loop" in (one.documentation or "")
        secret = found["ssl.keystore.password"]
        assert (secret.value, secret.is_sensitive) == (None, True)
        assert synonyms(secret) == [("ssl.keystore.password", None, STATIC)]
        assert found["log.dir"].value is None
        assert found["log.cleaner.io.max.bytes.per.second"].value == "1.7976931348623157E308"


async def test_settings_of_a_cluster_have_the_types_and_defaults_of_kafka(outside: Outside) -> None:
    """No rack and no selector are null, not empty, and counts of replicas are of 16 bits."""
    async with running(outside) as broker:
        found = await described(connect(outside, broker))
        for name in ("broker.rack", "replica.selector.class"):
            assert (found[name].value, synonyms(found[name])) == (None, [])
        for topic in ("offsets.topic", "transaction.state.log"):
            one = found[f"{topic}.replication.factor"]
            assert (one.config_type, one.value) == (TYPES["short"], "3")


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("h:9092", "PLAINTEXT://h:9092"),
        ("PLAINTEXT://:9092", "PLAINTEXT://:9092"),
        ("OWN://[::1]:5, CONTROLLER://:9", "OWN://[::1]:5,CONTROLLER://:9"),
    ],
)
async def test_listeners_have_the_form_of_kafka(outside: Outside, given: str, value: str) -> None:
    """Interfaces read names, hosts and ports of it."""
    settings = {
        "listeners": given, "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "OWN:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }  # fmt: skip
    async with running(outside, settings) as broker:
        found = await described(connect(outside, broker))
        assert found["listeners"].value == value


def test_changes_are_on_the_device_when_they_are_answered() -> None:
    """A machine that is lost then comes back with settings, users and subscriptions."""

    async def before(outside: Outside) -> MemoryFiles:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            await changed(peer, set_to(THREADS, "3"))
            assert await alter_users(peer, upsertion("alice")) == {"alice": (0, None)}
            metrics = resource(set_to("interval.ms", "1000"), name="sub", kind=METRICS)
            (answer,) = await alter_all(peer, metrics)
            assert answer.error_code == ErrorCode.NONE
            return outside.files.crash()

    async def after(outside: Outside) -> None:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            assert broker.current.cleaner_thread_count == 3
            assert await described_users(peer) == {"alice": (0, [(1, 4096)])}
            found = by_name(await describe(peer, "sub", kind=METRICS))
            assert found["interval.ms"].value == "1000"

    with virtual_runtime() as outside:
        disk = outside.run(before(outside))
    with virtual_runtime(files=disk) as outside:
        outside.run(after(outside))


async def test_changes_that_cannot_be_saved_do_not_count(outside: Outside) -> None:
    """KAFKA_STORAGE_ERROR, and settings and users stay as they were."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await changed(peer, set_to(THREADS, "2"))
        outside.files.faults.append(DiskFault(operation="write", path_part=METADATA_LOG))
        answer = await change(peer, set_to(THREADS, "3"))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.current.cleaner_thread_count == 2
        assert (await described(peer))[THREADS].value == "2"
        outside.files.faults.append(DiskFault(operation="write", path_part=METADATA_LOG))
        refused = await alter_users(peer, upsertion("alice"))
        assert refused["alice"][0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert await described_users(peer) == {}


async def test_the_limit_of_a_listener_changes_while_the_broker_runs(outside: Outside) -> None:
    """It is shown only where it is given, counts at once, and has to allow a connection."""
    name = "listener.name.plaintext.max.connections"
    async with running(outside) as broker:
        peer = connect(outside, broker)
        assert name not in await described(peer)
        await changed(peer, set_to(name, "1"))
        shown = (await described(peer))[name]
        assert (shown.value, shown.read_only, shown.config_source) == ("1", False, OWN)
        waiting = asyncio.ensure_future(described(connect(outside, broker)))
        await outside.pass_time(1)
        assert not waiting.done()
        assert (await change(peer, set_to(name, "0"))).error_code == ErrorCode.INVALID_REQUEST
        # As in Kafka: there may be such a listener later.
        await changed(peer, set_to("listener.name.other.max.connections", "1"))
        await changed(peer, set_to(name, "2"))
        assert (await waiting)[name].value == "2"
