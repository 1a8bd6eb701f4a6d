"""Settings of topics, described and changed while the broker runs; the broker's, described."""

import pytest

from tailrace.broker.broker import RunningBroker
from tailrace.handlers.configs import CONFIGS_MAX
from tailrace.model import Codec, TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.config_resources import ConfigOperation
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from tailrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from tailrace.records.builder import BatchBuilder
from tailrace.storage.config import TOPIC_SETTINGS
from tailrace.storage.log import Log, is_flush_due
from tailrace.testing import DiskFault, MemoryFiles, Outside, Peer, virtual_runtime
from tests.kraft import METADATA_LOG
from tests.unit.broker.brokers import batch, connect, create_topic, produce, running

TOPIC, BROKER = 2, 4
OWN, STATIC, DEFAULT = 1, 4, 5
T = TopicPartition("t", 0)
START_NOW = {"log.initial.task.delay.ms": "0", "log.retention.check.interval.ms": "1000"}
Change = tuple[str, int, str | None]


def set_to(name: str, value: str | None) -> Change:
    """A change that gives a setting a value."""
    return name, ConfigOperation.SET, value


def resource(
    *changes: Change, name: str = "t", kind: int = TOPIC
) -> IncrementalAlterConfigsResource:
    """Return a topic's part of a request to change settings."""
    return IncrementalAlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(
            IncrementalAlterableConfig(name=setting, config_operation=operation, value=value)
            for setting, operation, value in changes
        ),
    )


async def alter_all(
    peer: Peer, *resources: IncrementalAlterConfigsResource, validate_only: bool = False
) -> tuple[IncrementalAlterConfigsResourceResponse, ...]:
    """The broker's answers to an IncrementalAlterConfigs request."""
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    return (await peer.ask(key, request, IncrementalAlterConfigsResponse)).responses


async def alter(peer: Peer, *changes: Change) -> IncrementalAlterConfigsResourceResponse:
    """The broker's answer for the topic `t`."""
    (answer,) = await alter_all(peer, resource(*changes))
    return answer


async def replace_all(
    peer: Peer,
    configs: dict[str, str | None],
    *,
    name: str = "t",
    kind: int = TOPIC,
    validate_only: bool = False,
) -> AlterConfigsResourceResponse:
    """The broker's answer to an AlterConfigs request for one resource."""
    wanted = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=tuple(AlterableConfig(name=name, value=text) for name, text in configs.items()),
    )
    request = AlterConfigsRequest(resources=(wanted,), validate_only=validate_only)
    (answer,) = (await peer.ask(ApiKey.ALTER_CONFIGS, request, AlterConfigsResponse)).responses
    return answer


async def describe(
    peer: Peer,
    name: str = "t",
    *,
    kind: int = TOPIC,
    keys: tuple[str, ...] | None = None,
    is_full: bool = False,
    version: int = 4,
) -> DescribeConfigsResult:
    """The broker's answer for one resource; `is_full` asks for synonyms and documentation."""
    wanted = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(
        resources=(wanted,), include_synonyms=is_full, include_documentation=is_full
    )
    key = ApiKey.DESCRIBE_CONFIGS
    response = await peer.ask(key, request, DescribeConfigsResponse, version=version)
    (result,) = response.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def by_name(result: DescribeConfigsResult) -> dict[str, DescribeConfigsResourceResult]:
    """The settings of an answer."""
    assert result.error_code == 0
    return {config.name: config for config in result.configs}


def log_of(broker: RunningBroker, partition: TopicPartition = T) -> Log:
    """An open log."""
    log = broker.logs.get(partition)
    assert log is not None
    return log


async def test_every_setting_of_a_topic_is_described_with_its_source(outside: Outside) -> None:
    """The topic's own value, what the broker was started with, or Kafka's default."""
    async with running(outside, {"log.retention.ms": "500"}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs={"segment.bytes": "2500000", "preallocate": "TRUE"})
        found = by_name(await describe(peer))
        assert list(found) == [setting.name for setting in TOPIC_SETTINGS]
        told = {
            name: (found[name].value, found[name].config_source)
            for name in ("segment.bytes", "preallocate", "retention.ms", "cleanup.policy")
        }
        assert told == {
            "segment.bytes": ("2500000", OWN),
            "preallocate": ("true", OWN),
            "retention.ms": ("500", STATIC),
            "cleanup.policy": ("delete", DEFAULT),
        }
        assert not any(one.read_only or one.is_sensitive for one in found.values())
        assert not any(one.synonyms or one.documentation for one in found.values())


async def test_synonyms_are_every_value_that_could_count(outside: Outside) -> None:
    """The one that does first, each with the name of the setting that has it."""
    async with running(outside, {"log.retention.bytes": "500"}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs={"retention.bytes": "7"})
        found = by_name(await describe(peer, is_full=True))["retention.bytes"]
        assert [(one.name, one.value, one.source) for one in found.synonyms] == [
            ("retention.bytes", "7", OWN),
            ("log.retention.bytes", "500", STATIC),
            ("log.retention.bytes", "-1", DEFAULT),
        ]


async def test_settings_that_kafka_leaves_unset_have_no_default_as_a_synonym(
    outside: Outside,
) -> None:
    """Kafka has a default for log.retention.hours, and none for log.retention.ms."""
    async with running(outside, {}) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs={"retention.ms": "7"})
        found = by_name(await describe(peer, is_full=True))
        assert [one.name for one in found["retention.ms"].synonyms] == ["retention.ms"]
        assert found["segment.ms"].synonyms == ()


async def test_kinds_and_texts_of_settings_are_told(outside: Outside) -> None:
    """Types are Kafka's numbers; documentation comes only on request; neither before version 3."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        found = by_name(await describe(peer, is_full=True))
        kinds = {
            "preallocate": 1, "compression.type": 2, "segment.bytes": 3, "retention.ms": 5,
            "min.cleanable.dirty.ratio": 6, "cleanup.policy": 7,
        }  # fmt: skip
        assert {name: found[name].config_type for name in kinds} == kinds
        texts = {setting.name: setting.text for setting in TOPIC_SETTINGS}
        assert {name: one.documentation for name, one in found.items()} == texts
        before = by_name(await describe(peer, version=2))
        assert {(one.config_type, one.documentation) for one in before.values()} == {(0, "")}


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (("retention.ms", "no.such.setting", "flush.ms"), ["retention.ms", "flush.ms"]),
        ((), [setting.name for setting in TOPIC_SETTINGS]),
    ],
)
async def test_named_settings_are_described(
    outside: Outside, keys: tuple[str, ...], names: list[str]
) -> None:
    """Unknown names are ignored; an empty list means all settings."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        assert list(by_name(await describe(peer, keys=keys))) == names


async def test_the_broker_describes_itself(outside: Outside) -> None:
    """Its settings are from its start or by default; there is one cluster default (KIP-966)."""
    async with running(outside, {"log.retention.ms": " 500"}) as broker:
        peer = connect(outside, broker)
        found = by_name(await describe(peer, "1", kind=BROKER, is_full=True))
        told = {
            name: (found[name].value, found[name].config_source)
            for name in ("log.dirs", "log.retention.ms", "node.id")
        }
        assert told == {
            "log.dirs": ("data", STATIC),
            "log.retention.ms": ("500", STATIC),
            "node.id": ("1", DEFAULT),
        }
        assert all(one.documentation for one in found.values())
        # Kafka has no default for the directories.
        assert [one.source for one in found["log.dirs"].synonyms] == [STATIC]
        assert list(by_name(await describe(peer, "", kind=BROKER))) == ["min.insync.replicas"]


REFUSED = [
    (TOPIC, "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
    (BROKER, "2", ErrorCode.INVALID_REQUEST),
    (BROKER, "one", ErrorCode.INVALID_REQUEST),
    (8, "2", ErrorCode.INVALID_REQUEST),
    (8, "", ErrorCode.INVALID_REQUEST),
    (16, "", ErrorCode.INVALID_REQUEST),
    (32, "", ErrorCode.INVALID_REQUEST),
    (0, "t", ErrorCode.INVALID_REQUEST),
]
"""Resources that are not here, and what is said of them."""


@pytest.mark.parametrize(
    ("kind", "name", "code"), [*REFUSED, (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION)]
)
async def test_resources_that_cannot_be_described(
    outside: Outside, kind: int, name: str, code: ErrorCode
) -> None:
    """Unknown topics, other brokers, and kinds that have no settings here."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        found = await describe(peer, name, kind=kind)
        assert (found.error_code, found.configs) == (code, ())
        assert found.error_message


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        *REFUSED,
        (TOPIC, "", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_resources_that_cannot_be_altered(
    outside: Outside, kind: int, name: str, code: ErrorCode
) -> None:
    """The same ones."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        wanted = resource(set_to("flush.ms", "1"), name=name, kind=kind)
        (answer,) = await alter_all(peer, wanted)
        assert (answer.error_code, answer.resource_type) == (code, kind)
        assert answer.error_message


async def test_settings_are_changed_one_by_one(outside: Outside) -> None:
    """Set, back to the default, added to a list and taken from it; the others stay."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs={"flush.ms": "9", "segment.bytes": "2500000"})
        answer = await alter(
            peer,
            set_to("retention.ms", "5"),
            ("flush.ms", ConfigOperation.DELETE, None),
            ("cleanup.policy", ConfigOperation.APPEND, "compact"),
        )
        assert (answer.error_code, answer.error_message) == (0, None)
        found = by_name(await describe(peer))
        assert {name: one.value for name, one in found.items() if one.config_source == OWN} == {
            "segment.bytes": "2500000", "retention.ms": "5", "cleanup.policy": "delete,compact",
        }  # fmt: skip
        await alter(peer, ("cleanup.policy", ConfigOperation.SUBTRACT, "delete"))
        assert by_name(await describe(peer))["cleanup.policy"].value == "compact"
        assert log_of(broker).config.cleanup_policies == ("compact",)


async def test_the_old_request_replaces_all_settings(outside: Outside) -> None:
    """Settings that it does not name are reset to the default; a refused one changes nothing."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs={"flush.ms": "9", "segment.bytes": "2500000"})
        topics = broker.controller.image.topics
        wrong = await replace_all(peer, {"retention.ms": "5", "flush.mz": "1"})
        assert wrong.error_code == ErrorCode.INVALID_CONFIG
        assert (await replace_all(peer, {"flush.ms": None})).error_code == (
            ErrorCode.INVALID_REQUEST
        )
        assert (await replace_all(peer, {}, validate_only=True)).error_code == 0
        assert broker.controller.image.topics is topics
        assert (await replace_all(peer, {"retention.ms": "5"})).error_code == 0
        assert broker.controller.image.topics["t"].configs == {"retention.ms": "5"}
        assert log_of(broker).config.segment_bytes == 2**30


async def test_all_faults_of_a_topic_are_told_together(outside: Outside) -> None:
    """Unknown names with a suggestion; nothing of it is changed."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        before = log_of(broker).config
        answer = await alter(
            peer,
            set_to("retention.mz", "1"),
            set_to("segment.bytes", "-1"),
            ("flush.ms", ConfigOperation.APPEND, "1"),
            set_to("retention.bytes", "5"),
        )
        assert answer.error_code == ErrorCode.INVALID_CONFIG
        assert answer.error_message is not None
        assert "did you mean retention.ms?" in answer.error_message
        for words in ("segment.bytes: ", "Can't APPEND to key flush.ms"):
            assert words in answer.error_message
        assert log_of(broker).config is before
        assert broker.controller.image.topics["t"].configs == {}


@pytest.mark.parametrize(
    "changes",
    [
        (set_to("flush.ms", "1"), set_to("flush.ms", "2")),
        (set_to("flush.ms", None),),
        (("cleanup.policy", ConfigOperation.APPEND, None),),
        (("flush.ms", 4, "1"),),
        (("flush.ms", -1, "1"),),
        tuple(set_to(f"a{number}", "1") for number in range(CONFIGS_MAX + 1)),
    ],
)
async def test_requests_that_make_no_sense(outside: Outside, changes: tuple[Change, ...]) -> None:
    """A setting twice, no value, an unknown operation, more settings than there can be."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        answer = await alter(peer, *changes)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert broker.controller.image.topics["t"].configs == {}


async def test_a_new_topic_has_no_more_settings_than_there_can_be(outside: Outside) -> None:
    """The same limit as for changes: each unknown name costs a search for one like it."""
    async with running(outside) as broker:
        configs = {f"a{number}": "1" for number in range(CONFIGS_MAX + 1)}
        answer = await create_topic(connect(outside, broker), "t", configs=configs)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert broker.controller.image.topics == {}


async def test_a_message_fits_the_oldest_version(outside: Outside) -> None:
    """However many faults there are, and however long their names."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        changes = [set_to(f"{number}-{'ä' * 1000}", "1") for number in range(20)]
        request = IncrementalAlterConfigsRequest(resources=(resource(*changes),))
        key = ApiKey.INCREMENTAL_ALTER_CONFIGS
        answer = await peer.ask(key, request, IncrementalAlterConfigsResponse, version=0)
        assert answer.responses[0].error_code == ErrorCode.INVALID_CONFIG


async def test_resources_are_changed_each_on_its_own(outside: Outside) -> None:
    """One that is there twice is refused, as is a wrong one; the others change."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        for name in ("a", "b", "c"):
            await create_topic(peer, name)
        good, wrong = set_to("flush.ms", "1"), set_to("flush.ms", "x")
        answers = await alter_all(
            peer,
            resource(good, name="a"),
            resource(wrong, name="b"),
            resource(good, name="c"),
            resource(good, name="a"),
        )
        assert [(one.resource_name, one.error_code) for one in answers] == [
            ("a", ErrorCode.INVALID_REQUEST),
            ("b", ErrorCode.INVALID_CONFIG),
            ("c", ErrorCode.NONE),
            ("a", ErrorCode.INVALID_REQUEST),
        ]
        configs = {name: t.configs for name, t in broker.controller.image.topics.items()}
        assert configs == {"a": {}, "b": {}, "c": {"flush.ms": "1"}}
        assert log_of(broker, TopicPartition("a", 0)).config.flush_ms > 1
        assert log_of(broker, TopicPartition("c", 0)).config.flush_ms == 1


async def test_a_dry_run_changes_nothing(outside: Outside) -> None:
    """It says what would be said; the image, the disk and the log are as before."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        before = log_of(broker).config, outside.files.content(METADATA_LOG)
        for value, code in (("5", ErrorCode.NONE), ("x", ErrorCode.INVALID_CONFIG)):
            wanted = resource(set_to("retention.ms", value))
            (answer,) = await alter_all(peer, wanted, validate_only=True)
            assert answer.error_code == code
        assert (log_of(broker).config, outside.files.content(METADATA_LOG)) == before
        assert log_of(broker).config is before[0]


async def test_what_changes_nothing_writes_nothing(outside: Outside) -> None:
    """A setting that the topic has already."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs={"retention.ms": "5"})
        count = len(outside.files.operations)
        assert (await alter(peer, set_to("retention.ms", "5"))).error_code == 0
        assert len(outside.files.operations) == count


def test_settings_are_on_the_device_when_they_are_answered() -> None:
    """A machine that is lost then comes back with them, and its logs act on them."""

    async def before(outside: Outside) -> MemoryFiles:
        async with running(outside) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", partitions=2)
            await alter(peer, set_to("segment.bytes", "2500000"))
            return outside.files.crash()

    async def after(outside: Outside) -> None:
        async with running(outside) as broker:
            for number in range(2):
                assert log_of(broker, TopicPartition("t", number)).config.segment_bytes == 2500000
            found = by_name(await describe(connect(outside, broker)))["segment.bytes"]
            assert (found.value, found.config_source) == ("2500000", OWN)

    with virtual_runtime() as outside:
        disk = outside.run(before(outside))
    with virtual_runtime(files=disk) as outside:
        outside.run(after(outside))


async def test_settings_that_cannot_be_saved_do_not_count(outside: Outside) -> None:
    """KAFKA_STORAGE_ERROR, and the logs go on with the old ones."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        before = log_of(broker).config
        fault = DiskFault(operation="write", path_part=METADATA_LOG)
        outside.files.faults.append(fault)
        answer = await alter(peer, set_to("segment.bytes", "2500000"))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert log_of(broker).config is before
        assert by_name(await describe(peer))["segment.bytes"].config_source == DEFAULT


async def test_every_partition_of_the_topic_follows_and_no_other(outside: Outside) -> None:
    """A change reaches all partitions of the topic, but no topic whose name has it as a prefix."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", partitions=3)
        await create_topic(peer, "t-0")
        await alter(peer, set_to("flush.messages", "7"))
        changed = {log.partition for log in broker.logs if log.config.flush_messages == 7}
        assert changed == {TopicPartition("t", number) for number in range(3)}


async def test_retention_acts_on_its_new_limit(outside: Outside) -> None:
    """Segments that were kept go at the next look, without a restart."""
    async with running(outside, START_NOW) as broker:
        peer = connect(outside, broker)
        await create_topic(
            peer, "t", configs={"internal.segment.bytes": "250", "retention.ms": "-1"}
        )
        for number in range(10):
            await produce(peer, "t", batch(b"%d" % number))
        await outside.pass_time(5)
        assert log_of(broker).start_offset == 0
        await alter(peer, set_to("retention.bytes", "200"))
        await outside.pass_time(5)
        assert 0 < log_of(broker).start_offset < 10
        # The records are older than the clock.
        await alter(peer, set_to("retention.ms", "1"))
        await outside.pass_time(5)
        assert log_of(broker).start_offset == 10


async def test_segments_follow_their_new_size_and_age(outside: Outside) -> None:
    """The next append rolls by the new limits."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        for _ in range(5):
            await produce(peer, "t", batch(b"x"))
        assert len(log_of(broker).segments) == 1
        await alter(peer, set_to("internal.segment.bytes", "250"))
        await produce(peer, "t", batch(b"x"))
        assert [each.base_offset for each in log_of(broker).segments] == [0, 5]
        await alter(
            peer,
            ("internal.segment.bytes", ConfigOperation.DELETE, None),
            set_to("segment.ms", "10"),
            set_to("segment.jitter.ms", "5"),
        )
        await produce(peer, "t", batch(b"x", timestamp=1_700_000_000_011))
        assert [each.base_offset for each in log_of(broker).segments] == [0, 5, 6]


async def test_small_segments_have_a_name_of_their_own(outside: Outside) -> None:
    """Kafka refuses less than 1 MiB, but not by the name for its own tests, which it hides."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs={"segment.bytes": "1048576"})
        for name, value in (("segment.bytes", "1048575"), ("internal.segment.bytes", "x")):
            answer = await alter(peer, set_to(name, value))
            assert answer.error_code == ErrorCode.INVALID_CONFIG
            assert name in (answer.error_message or "")
        assert log_of(broker).config.segment_bytes == 1048576
        await alter(peer, set_to("internal.segment.bytes", "200"))
        assert log_of(broker).config.segment_bytes == 200
        found = by_name(await describe(peer))
        assert found["segment.bytes"].value == "1048576"
        assert "internal.segment.bytes" not in found


async def test_sizes_of_indexes_count_from_the_next_segment_on(outside: Outside) -> None:
    """The files of the present one stay as they are."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs={"segment.index.bytes": "4800"})
        await produce(peer, "t", batch(b"x"))
        await alter(peer, set_to("segment.index.bytes", "96"))
        index = "data/t-0/{:020d}.index"
        assert len(outside.files.content(index.format(0))) == 4800
        log_of(broker).roll()
        assert len(outside.files.content(index.format(1))) == 96


def compressible() -> bytes:
    """A batch that is smaller when it is compressed."""
    builder = BatchBuilder()
    for _ in range(20):
        builder.append(b"k", b"x" * 100, timestamp=1_700_000_000_000)
    return builder.build()


async def test_the_next_append_acts_on_the_new_settings(outside: Outside) -> None:
    """Sizes, keys, timestamps, codecs and flushes."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        keyless = batch(b"x", key=None)
        assert (await produce(peer, "t", keyless)).error_code == 0
        await alter(peer, set_to("cleanup.policy", "compact"))
        assert (await produce(peer, "t", keyless)).error_code == ErrorCode.INVALID_RECORD
        await alter(peer, set_to("compression.type", "zstd"))
        assert (await produce(peer, "t", compressible())).error_code == 0
        stored = list(log_of(broker).batches(1))
        assert [each.codec for each in stored] == [Codec.ZSTD]
        await alter(peer, set_to("max.message.bytes", "100"))
        too_large = await produce(peer, "t", compressible())
        assert too_large.error_code == ErrorCode.MESSAGE_TOO_LARGE
        await alter(peer, set_to("message.timestamp.type", "LogAppendTime"))
        answer = await produce(peer, "t", batch(b"x"))
        assert answer.log_append_time_ms == outside.clock.now_ms()
        assert not is_flush_due(log_of(broker))
        await alter(peer, set_to("flush.messages", "1"))
        assert is_flush_due(log_of(broker))


COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "300",
    "index.interval.bytes": "60",
    "retention.ms": "-1",
}


def record_count(log: Log) -> int:
    """Return the number of records in a log."""
    return sum(each.record_count for each in log.batches(log.start_offset))


async def compacting(outside: Outside, broker: RunningBroker, *, partitions: int = 1) -> Peer:
    """A connection, after jobs of slow steps have begun over a compacted topic `t`."""
    peer = connect(outside, broker)
    await create_topic(peer, "t", partitions=partitions, configs=COMPACTED)
    for partition in range(partitions):
        for number in range(30):
            await produce(peer, "t", batch(b"%d" % number), partition=partition)
    outside.threads.seconds_per_run = 10.0
    await outside.pass_time(20)
    return peer


async def test_a_compaction_is_called_off_when_compact_is_removed(outside: Outside) -> None:
    """The compaction ends at its next batch and leaves the records; none comes after it."""
    async with running(outside) as broker:
        peer = await compacting(outside, broker, partitions=2)
        other = TopicPartition("t", 1)
        assert broker.cleaner.is_cleaning(T)
        assert not broker.cleaner.is_cleaning(other)
        answer = await alter(peer, set_to("cleanup.policy", "delete"))
        assert answer.error_code == 0
        await outside.pass_time(200)
        for partition in (T, other):
            log = log_of(broker, partition)
            assert log.config.cleanup_policies == ("delete",)
            assert not broker.cleaner.is_cleaning(partition)
            assert record_count(log) == 30
        assert broker.cleaner.failures() == {}


async def test_a_compaction_goes_on_when_compact_stays(outside: Outside) -> None:
    """The compaction continues whatever else changes."""
    async with running(outside) as broker:
        peer = await compacting(outside, broker)
        assert broker.cleaner.is_cleaning(T)
        await alter(peer, ("cleanup.policy", ConfigOperation.APPEND, "delete"))
        await alter(peer, set_to("flush.ms", "5"))
        await outside.pass_time(200)
        assert record_count(log_of(broker)) < 10


async def test_compaction_comes_to_a_topic_that_is_given_it(outside: Outside) -> None:
    """Records without a key, which it could have before, go."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t", configs={**COMPACTED, "cleanup.policy": "delete"})
        for number in range(30):
            await produce(peer, "t", batch(b"%d" % number, key=None if number < 9 else b"k"))
        await outside.pass_time(60)
        assert record_count(log_of(broker)) == 30
        await alter(peer, set_to("cleanup.policy", "compact"))
        await outside.pass_time(60)
        assert record_count(log_of(broker)) < 10


def test_a_topic_without_an_open_log_can_be_changed() -> None:
    """Its directory is away: the change is kept, and counts when the directory is back."""

    async def change(outside: Outside) -> None:
        async with running(outside, {"log.dirs": "a,b"}) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t", partitions=4)
            for log in list(broker.logs.directories[1]):
                assert log.partition.topic == "t"
            broker.logs.fail(broker.logs.directories[1], OSError(5, "gone"))
            assert (await alter(peer, set_to("flush.ms", "5"))).error_code == 0
            await create_topic(peer, "elsewhere")

    async def come_back(outside: Outside) -> None:
        async with running(outside, {"log.dirs": "a,b"}) as broker:
            logs = [log for log in broker.logs if log.partition.topic == "t"]
            assert [log.config.flush_ms for log in logs] == [5] * 4

    with virtual_runtime() as outside:
        outside.run(change(outside))
        disk = outside.files.crash()
    with virtual_runtime(files=disk) as outside:
        outside.run(come_back(outside))
