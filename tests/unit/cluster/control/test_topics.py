"""Topics: made, grown, configured and deleted, with the cases of ReplicationControlManagerTest."""

from typing import Any
from uuid import UUID

import pytest

from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.topic_rules import GROUPS_MAX
from tailrace.handlers.client_metrics import SUBSCRIPTIONS_MAX
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from tailrace.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tailrace.protocol.messages.create_topics import CreatableReplicaAssignment, CreateTopicsRequest
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tailrace.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tailrace.protocol.metadata_records import ConfigRecord
from tests.unit.cluster.control.controlled import (
    Controlled,
    assigned,
    directory,
    features,
    wanted,
)

NO_ID = UUID(int=0)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def names(cluster: Controlled, since: int) -> list[str]:
    """The kinds of the records since some point."""
    return [type(each).__name__ for each in cluster.appended[since:]]


# -- creation -------------------------------------------------------------------------------------


def test_a_topic_is_made_of_its_records() -> None:
    """It needs enough brokers, and its name may not be taken."""
    cluster = Controlled()
    [result] = cluster.create(wanted("foo", -1, -1))
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert result.error_message == (
        "Unable to replicate the partition 3 time(s): All brokers are currently fenced, or have "
        "all their log directories cordoned."
    )
    cluster.serve(0, 1, 2)
    before = len(cluster.appended)
    [result] = cluster.create(wanted("foo", -1, -1))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 1, 3)
    assert names(cluster, before) == ["TopicRecord", "PartitionRecord"]
    state = cluster.partition("foo")
    assert set(state.replicas) == set(state.isr) == {0, 1, 2}
    assert state.leader == state.replicas[0]
    assert (state.leader_epoch, state.partition_epoch) == (0, 0)
    assert state.directories == tuple(map(directory, state.replicas))
    [again] = cluster.create(wanted("foo", -1, -1))
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert again.error_message == "Topic 'foo' already exists."


def test_only_replicas_that_serve_are_in_sync() -> None:
    """Replicas that are fenced or shut down are not in sync from the beginning."""
    cluster = Controlled()
    cluster.serve(0, 1, 2)
    cluster.topic([1, 0], name="led")
    cluster.fence(0)
    cluster.beat(1, want_shut_down=True)
    [result] = cluster.create(assigned("foo", [0, 1, 2]))
    assert not result.error_code
    assert cluster.shown("foo") == (2, (2,), ())
    assert cluster.partition("foo").replicas == (0, 1, 2)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (wanted("foo", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted("foo", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted("foo", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (wanted("foo", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (wanted("foo", -2, 1), ErrorCode.INVALID_PARTITIONS),
        (wanted("", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted("woo|", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted("is.here", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (wanted("is_here", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (wanted("__cluster_metadata", 1, 1), ErrorCode.INVALID_REQUEST),
        (wanted("foo", 1, 1, configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (wanted("foo", 1, 1, configs={"retention.ms": "x"}), ErrorCode.INVALID_CONFIG),
        (wanted("foo", 1, 1, configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),  # type: ignore[dict-item]
        (assigned("foo", [0, 3]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("foo", [0, 0]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("foo", []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("foo", [0, 1], [0]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("foo", [2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("foo", [0, 1], [1, 0], [2, 0]), ErrorCode.NONE),
    ],
)
def test_a_topic_that_is_refused(topic: Any, code: ErrorCode) -> None:
    """Nothing is written for it; a dry run says the same."""
    cluster = Controlled()
    cluster.serve(0, 1)
    cluster.register(2)
    cluster.topic([0], name="is_here")
    before = len(cluster.appended)
    [dry] = cluster.create(topic, validate_only=True)
    assert (dry.error_code, len(cluster.appended)) == (code, before)
    [result] = cluster.create(topic)
    assert result.error_code == code
    assert (len(cluster.appended) == before) is bool(code)


def test_manual_assignments_are_numbered_from_zero() -> None:
    """Each once; and then no counts may be given."""
    cluster = Controlled()
    cluster.serve(0, 1)

    def code(*numbers: int, partitions: int = -1, factor: int = -1) -> ErrorCode:
        topic = wanted(
            "foo", partitions, factor,
            assignments=tuple(
                CreatableReplicaAssignment(partition_index=each, broker_ids=(0,))
                for each in numbers
            ),
        )  # fmt: skip
        [result] = cluster.create(topic, validate_only=True)
        return ErrorCode(result.error_code)

    assert code(1, 0) is ErrorCode.NONE
    assert code(0, 2) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert code(0, 0) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert code(0, partitions=1) is ErrorCode.INVALID_REQUEST
    assert code(0, factor=1) is ErrorCode.INVALID_REQUEST


def test_settings_come_before_the_partitions() -> None:
    """The answer has all settings, with their source."""
    cluster = Controlled()
    cluster.serve(0)
    cluster.configure(BROKER, "", ("min.insync.replicas", 0, "1"))
    before = len(cluster.appended)
    good = wanted("good", 2, 1, configs={"retention.ms": "5000", "segment.bytes": "2000000"})
    bad = wanted("bad", 1, 1, configs={"retention.ms": "x"})
    first, second = cluster.create(good, bad)
    assert (first.error_code, second.error_code) == (0, ErrorCode.INVALID_CONFIG)
    assert names(cluster, before) == [
        "TopicRecord", "ConfigRecord", "ConfigRecord", "PartitionRecord", "PartitionRecord",
    ]  # fmt: skip
    shown = {each.name: (each.value, each.config_source) for each in first.configs}
    assert shown["retention.ms"] == ("5000", 1)
    assert shown["min.insync.replicas"] == ("1", 3)
    assert shown["cleanup.policy"] == ("delete", 5)
    assert list(shown) == sorted(shown)


def test_names_that_collide_in_one_request() -> None:
    """The same name twice is refused for both; of names that collide the first is made."""
    cluster = Controlled()
    cluster.serve(0)
    results = cluster.create(*(wanted(each, 1, 1) for each in ("a.b", "a_b", "x", "x")))
    assert [(each.name, each.error_code) for each in results] == [
        ("a.b", ErrorCode.NONE),
        ("a_b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x", ErrorCode.INVALID_REQUEST),
    ]


def test_a_request_for_too_many_partitions() -> None:
    """None of them is made."""
    cluster = Controlled()
    cluster.serve(0)
    topics = (wanted("foo", 5000, 1), wanted("bar", 5000, 1), wanted("baz", -1, 1))
    request = CreateTopicsRequest(topics=topics)
    assert cluster.refused(ApiKey.CREATE_TOPICS, request) is ErrorCode.POLICY_VIOLATION
    many = assigned("foo", *[[0]] * 10_001)
    request = CreateTopicsRequest(topics=(many,))
    assert cluster.refused(ApiKey.CREATE_TOPICS, request) is ErrorCode.POLICY_VIOLATION
    # Allowed by the count, but with the topic's record there is one too many for a batch.
    request = CreateTopicsRequest(topics=(wanted("foo", 10_000, 1),))
    assert cluster.refused(ApiKey.CREATE_TOPICS, request) is ErrorCode.POLICY_VIOLATION


def test_a_request_that_adds_too_many_partitions() -> None:
    """They count together, before any of them is placed, and none is made."""
    cluster = Controlled()
    cluster.serve(0)
    names = ("a", "b", "c")
    cluster.create(*(wanted(name, 1, 1) for name in names))

    def growing(count: int) -> CreatePartitionsRequest:
        topics = tuple(
            CreatePartitionsTopic(name=name, count=count, assignments=None) for name in names
        )
        return CreatePartitionsRequest(topics=topics, timeout_ms=1, validate_only=True)

    key = ApiKey.CREATE_PARTITIONS
    assert cluster.refused(key, growing(5_000)) is ErrorCode.POLICY_VIOLATION
    assert [each.error_code for each in cluster.do(key, growing(3_000)).results] == [0, 0, 0]


def test_a_dry_run_makes_nothing() -> None:
    """The answer is as if it were made."""
    cluster = Controlled()
    cluster.serve(0)
    [result] = cluster.create(wanted("foo", 3, 1), validate_only=True)
    assert (result.error_code, result.num_partitions) == (0, 3)
    assert cluster.state.image.topic("foo") is None


# -- partitions -----------------------------------------------------------------------------------


def grow(
    cluster: Controlled, name: str, count: int, assignments: list[list[int]] | None = None
) -> ErrorCode:
    """Add partitions; the code of the topic."""
    given = None
    if assignments is not None:
        given = tuple(CreatePartitionsAssignment(broker_ids=tuple(each)) for each in assignments)
    topic = CreatePartitionsTopic(name=name, count=count, assignments=given)
    request = CreatePartitionsRequest(topics=(topic,), timeout_ms=1, validate_only=False)
    [result] = cluster.do(ApiKey.CREATE_PARTITIONS, request).results
    return ErrorCode(result.error_code)


def test_topics_grow() -> None:
    """With the topic's replication factor, in the order of the numbers."""
    cluster = Controlled()
    cluster.serve(0, 1)
    cluster.topic([0, 1])
    assert grow(cluster, "t", 3) is ErrorCode.NONE
    topic = cluster.state.image.topic("t")
    assert topic is not None
    assert list(topic.partitions) == [0, 1, 2]
    assert all(len(each.replicas) == 2 for each in topic.partitions.values())
    assert grow(cluster, "t", 5, [[1, 0], [0, 1]]) is ErrorCode.NONE
    assert [cluster.partition(number=each).leader for each in (3, 4)] == [1, 0]


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 0, None, ErrorCode.INVALID_PARTITIONS),
        ("x", 2, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 10_001, None, ErrorCode.POLICY_VIOLATION),
        ("t", 3, [[0, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 2, [[0]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 2, [[0, 7]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 2, [[2, 3]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 2, [[2, 1]], ErrorCode.NONE),
    ],
)
def test_growth_that_is_refused(
    name: str, count: int, assignments: list[list[int]] | None, code: ErrorCode
) -> None:
    """The topic keeps its partitions, and an assignment that fits is taken."""
    cluster = Controlled()
    cluster.serve(0, 1)
    cluster.register(2)
    cluster.register(3)
    cluster.topic([0, 1])
    assert grow(cluster, name, count, assignments) is code
    if code is ErrorCode.NONE:
        assert cluster.shown(number=1) == (1, (1,), ())


def test_nothing_grows_while_no_broker_serves() -> None:
    """All of them are fenced or shut down, so that nobody could lead."""
    cluster = Controlled()
    cluster.serve(0, 1)
    cluster.topic([0, 1], [1, 0])
    cluster.beat(0, want_shut_down=True)
    cluster.fence(1)
    assert cluster.state.image.brokers[0].in_controlled_shutdown
    assert grow(cluster, "t", 3) is ErrorCode.INVALID_REPLICATION_FACTOR


# -- deletion -------------------------------------------------------------------------------------


def test_topics_are_deleted_by_name_and_by_id() -> None:
    """Each by itself; a topic that is named twice or in two ways stays, and is answered once."""
    cluster = Controlled()
    cluster.serve(0)
    ids = {each: cluster.topic([0], name=each).topic_id for each in ("a", "b", "c", "d")}
    asked = (
        DeleteTopicState(name="a", topic_id=NO_ID),
        DeleteTopicState(name=None, topic_id=ids["b"]),
        DeleteTopicState(name="c", topic_id=NO_ID),
        DeleteTopicState(name=None, topic_id=ids["c"]),
        DeleteTopicState(name="d", topic_id=ids["d"]),
        DeleteTopicState(name=None, topic_id=NO_ID),
        DeleteTopicState(name="none", topic_id=NO_ID),
        DeleteTopicState(name=None, topic_id=UUID(int=77)),
        *[DeleteTopicState(name="d", topic_id=NO_ID)] * 2,
        *[DeleteTopicState(name=None, topic_id=ids["d"])] * 2,
        *[DeleteTopicState(name="nothing", topic_id=NO_ID)] * 2,
    )
    request = DeleteTopicsRequest(topics=asked, timeout_ms=1)
    codes = [each.error_code for each in cluster.do(ApiKey.DELETE_TOPICS, request).responses]
    assert codes == [
        ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST,
    ]  # fmt: skip
    assert set(cluster.state.image.topic_ids) == {"c", "d"}
    old = DeleteTopicsRequest(topic_names=("c",), topics=(), timeout_ms=1)
    [result] = cluster.do(ApiKey.DELETE_TOPICS, old, version=5).responses
    assert (result.name, result.error_code) == ("c", ErrorCode.NONE)


# -- settings -------------------------------------------------------------------------------------


def test_settings_change_one_by_one() -> None:
    """Set, delete, append and subtract; what is as it was is not written."""
    cluster = Controlled()
    cluster.serve(0)
    cluster.topic([0], retention_ms="1000")
    before = len(cluster.appended)
    changes = [("retention.ms", 0, "1000"), ("cleanup.policy", 2, "compact"),
               ("segment.ms", 1, None)]  # fmt: skip
    assert cluster.configure(TOPIC, "t", *changes) == (ErrorCode.NONE, None)
    assert names(cluster, before) == ["ConfigRecord"]
    own = cluster.state.image.configs_of(TOPIC, "t")
    assert own == {"retention.ms": "1000", "cleanup.policy": "delete,compact"}
    assert cluster.configure(TOPIC, "t", ("retention.ms", 1, None))[0] is ErrorCode.NONE
    assert "retention.ms" not in cluster.state.image.configs_of(TOPIC, "t")
    # A broker reads files again that its settings name, so those are always written.
    for _ in range(2):
        before = len(cluster.appended)
        assert cluster.configure(BROKER, "0", ("log.cleaner.threads", 0, "2"))[0] is ErrorCode.NONE
        assert names(cluster, before) == ["ConfigRecord"]


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (TOPIC, "x", ("retention.ms", 0, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "t", ("no.such", 0, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", 2, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", 0, None), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (LOGGER, "0", ("root", 0, "INFO"), ErrorCode.INVALID_REQUEST),
        (BROKER, "0", ("x", 0, "y" * 40_000), ErrorCode.INVALID_CONFIG),
        (BROKER, "0", ("min.insync.replicas", 0, "1"), ErrorCode.INVALID_CONFIG),
        (BROKER, "", ("min.insync.replicas", 1, None), ErrorCode.INVALID_CONFIG),
        (BROKER, "", ("min.insync.replicas", 0, "2"), ErrorCode.NONE),
    ],
)
def test_a_change_of_a_setting_that_is_refused(
    kind: int, name: str, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    """With eligible leaders the size of an ISR is the same for all brokers (KIP-966)."""
    cluster = Controlled()
    cluster.serve(0)
    cluster.topic([0])
    before = len(cluster.appended)
    assert cluster.configure(kind, name, change)[0] is code
    assert (len(cluster.appended) == before) is bool(code)


def test_a_resource_or_a_setting_that_is_named_twice() -> None:
    """Which of the values would count is not clear."""
    cluster = Controlled()
    cluster.serve(0)
    cluster.topic([0])
    twice = ("retention.ms", 0, "1"), ("retention.ms", 0, "2")
    assert cluster.configure(TOPIC, "t", *twice)[0] is ErrorCode.INVALID_CONFIG
    resource = IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=())
    request = IncrementalAlterConfigsRequest(resources=(resource, resource), validate_only=False)
    answers = cluster.do(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).responses
    assert [each.error_code for each in answers] == [ErrorCode.INVALID_REQUEST] * 2


def test_settings_are_replaced() -> None:
    """AlterConfigs: those that are not named go; null is the default again."""
    cluster = Controlled()
    cluster.serve(0)
    cluster.topic([0], retention_ms="1000", segment_ms="5000")

    def replace(kind: int, name: str, **settings: str | None) -> ErrorCode:
        resource = AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=tuple(
                AlterableConfig(name=key.replace("_", "."), value=value)
                for key, value in settings.items()
            ),
        )
        request = AlterConfigsRequest(resources=(resource,), validate_only=False)
        [answer] = cluster.do(ApiKey.ALTER_CONFIGS, request).responses
        return ErrorCode(answer.error_code)

    assert replace(TOPIC, "t", retention_ms="2000", cleanup_policy=None) is ErrorCode.NONE
    assert cluster.state.image.configs_of(TOPIC, "t") == {"retention.ms": "2000"}
    assert replace(TOPIC, "t", retention_ms="x") is ErrorCode.INVALID_CONFIG
    assert replace(TOPIC, "x") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # The size of an ISR would go, without a word of it.
    cluster.configure(BROKER, "", ("min.insync.replicas", 0, "1"))
    assert replace(BROKER, "", log_cleaner_threads="2") is ErrorCode.INVALID_CONFIG
    assert replace(BROKER, "", min_insync_replicas="2") is ErrorCode.NONE
    assert replace(TOPIC, "t") is ErrorCode.NONE
    assert cluster.state.image.configs_of(TOPIC, "t") == {}


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (TOPIC, "", ("retention.ms", 0, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "a/b", ("retention.ms", 0, "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "none", ("retention.ms", 0, "x"), ErrorCode.INVALID_CONFIG),
        (BROKER, "7", ("log.cleaner.threads", 0, "2"), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "-1", ("log.cleaner.threads", 0, "2"), ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ("log.cleaner.threads", 0, "2"), ErrorCode.INVALID_REQUEST),
        (BROKER, " 0", ("log.cleaner.threads", 0, "2"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1_0", ("log.cleaner.threads", 0, "2"), ErrorCode.INVALID_REQUEST),
        (BROKER, "", ("log.cleaner.threads", 2, "2"), ErrorCode.INVALID_CONFIG),
        (BROKER, "", ("unknown", 3, "2"), ErrorCode.INVALID_CONFIG),
        (BROKER, "0", ("log.cleaner.threads", 0, "2"), ErrorCode.NONE),
        (BROKER, "100", ("log.cleaner.threads", 0, "2"), ErrorCode.NONE),
        (METRICS, "m", ("interval.ms", 0, "1"), ErrorCode.INVALID_REQUEST),
        (METRICS, "m", ("interval.ms", 0, "x"), ErrorCode.INVALID_CONFIG),
        (METRICS, "m", ("match", 0, "color=red"), ErrorCode.INVALID_CONFIG),
        (METRICS, "m", ("metrics", 2, "a."), ErrorCode.INVALID_CONFIG),
        (METRICS, "m", ("unknown", 0, "1"), ErrorCode.INVALID_REQUEST),
        (METRICS, "", ("metrics", 0, "a."), ErrorCode.INVALID_REQUEST),
        (METRICS, "m", ("metrics", 0, "a."), ErrorCode.NONE),
        (GROUP, "g", ("consumer.session.timeout.ms", 0, "1"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", ("consumer.session.timeout.ms", 2, "1"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", ("unknown", 0, "1"), ErrorCode.INVALID_CONFIG),
        (GROUP, "", ("consumer.session.timeout.ms", 0, "50000"), ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ("consumer.session.timeout.ms", 0, "50000"), ErrorCode.NONE),
        (LOGGER, "100", ("tailrace", 0, "INFO"), ErrorCode.INVALID_REQUEST),
        (77, "x", ("a", 0, "b"), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_settings_of_each_type_have_rules(
    kind: int, name: str, change: tuple[str, int, str], code: ErrorCode
) -> None:
    """A change is refused with the code of Kafka's controller, and nothing is stored of it."""
    cluster = Controlled()
    cluster.serve(0)
    assert cluster.configure(kind, name, change)[0] is code
    assert (change[0] in cluster.state.image.configs_of(kind, name)) is (code is ErrorCode.NONE)


def test_values_are_added_to_lists_of_brokers() -> None:
    """The list begins with the default."""
    cluster = Controlled()
    change = ("log.cleanup.policy", 2, "compact")
    assert cluster.configure(BROKER, "", change)[0] is ErrorCode.NONE
    found = cluster.state.image.configs_of(BROKER, "")["log.cleanup.policy"]
    assert found == "delete,compact"


@pytest.mark.parametrize(
    ("kind", "setting", "value", "count"),
    [
        (METRICS, "interval.ms", "60000", SUBSCRIPTIONS_MAX),
        (GROUP, "consumer.session.timeout.ms", "50000", GROUPS_MAX),
    ],
)
def test_names_with_settings_are_limited(kind: int, setting: str, value: str, count: int) -> None:
    """One more is refused, and those that have some can still change and lose them."""
    cluster = Controlled()
    owners = [ConfigRecord(resource_type=kind, resource_name=f"n{number}", name=setting,
                           value=value) for number in range(count)]  # fmt: skip
    cluster.append([RecordToWrite(each, 0) for each in owners])
    code, _ = cluster.configure(kind, "another", (setting, 0, value))
    assert code is ErrorCode.POLICY_VIOLATION
    assert cluster.configure(kind, "n0", (setting, 1, None))[0] is ErrorCode.NONE
    assert cluster.configure(kind, "another", (setting, 0, value))[0] is ErrorCode.NONE


@pytest.mark.parametrize(
    ("kind", "setting", "value", "count"),
    [
        (METRICS, "interval.ms", "60000", SUBSCRIPTIONS_MAX),
        (GROUP, "consumer.session.timeout.ms", "50000", GROUPS_MAX),
    ],
)
def test_names_of_one_request_count_too(kind: int, setting: str, value: str, count: int) -> None:
    """The limit holds within a request, also where nothing is there before it."""
    changed = (IncrementalAlterableConfig(name=setting, config_operation=0, value=value),)
    resources = tuple(
        IncrementalAlterConfigsResource(
            resource_type=kind, resource_name=f"n{number}", configs=changed
        )
        for number in range(count + 5)
    )
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
    answer = Controlled().do(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
    codes = [each.error_code for each in answer.responses]
    assert codes == [ErrorCode.NONE] * count + [ErrorCode.POLICY_VIOLATION] * 5


# -- levels ---------------------------------------------------------------------------------------


def test_levels_of_features_change_together() -> None:
    """A level that a broker does not know is refused, and all others with it."""
    cluster = Controlled(level=29)
    cluster.serve(0)
    cluster.serve(1, features=features(group_version=(0, 1), metadata_version=(7, 29)))

    def update(*changes: tuple[str, int, int], version: int = 2) -> ErrorCode:
        request = UpdateFeaturesRequest(
            feature_updates=tuple(
                FeatureUpdateKey(
                    feature=name,
                    max_version_level=level,
                    upgrade_type=kind,
                    allow_downgrade=kind > 1,
                )
                for name, level, kind in changes
            ),
            validate_only=False,
        )
        return cluster.refused(ApiKey.UPDATE_FEATURES, request, version=version)

    lower = ("group.version", 0, 2)
    assert update(lower, ("metadata.version", 30, 1)) is ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.state.image.features["group.version"] == 1
    assert update(("group.version", 0, 1)) is ErrorCode.INVALID_UPDATE_VERSION
    # The level at which the log names the voters can only stay.
    assert update(("kraft.version", 0, 1)) is ErrorCode.NONE
    assert update(("kraft.version", 1, 1)) is ErrorCode.INVALID_UPDATE_VERSION
    assert update(lower, version=0) is ErrorCode.NONE
    assert "group.version" not in cluster.state.image.features
    # Without eligible leaders the records of partitions do not name any.
    assert update(("eligible.leader.replicas.version", 0, 2)) is ErrorCode.NONE
    cluster.topic([0, 1], min_insync_replicas="2")
    cluster.fence(1)
    assert cluster.shown() == (0, (0,), ())
    # Where they begin, the size of an ISR becomes a setting of all brokers.
    assert update(("eligible.leader.replicas.version", 1, 1)) is ErrorCode.NONE
    assert cluster.state.image.configs_of(BROKER, "") == {"min.insync.replicas": "1"}
