"""`Admin` against Apache Kafka: what our broker does not serve, and the main paths of the rest.

Each check changes something, reads it again by another operation, and takes it back.
"""

import time
from collections.abc import Callable, Iterator

from compat.clients import WAIT_SECONDS
from compat.kafka import NODE_ID, Kafka
from compat.report import Report
from tailrace.client.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclResource,
    Admin,
    ConfigResource,
    FeatureUpdate,
    NewTopic,
    OffsetAt,
    Place,
    QuotaEntity,
    Replica,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    UpgradeType,
)
from tailrace.client.admin.users import ScramCredential
from tailrace.client.errors import RemoteFatalError
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tailrace.protocol.config_resources import ResourceType
from tailrace.protocol.errors import ErrorCode

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Settings under which Kafka takes access control lists, and we may change them."""

PLACE = TopicPartition("administered", 0)


def check(report: Report, kafka: Kafka) -> None:
    """Have a Kafka administered, on a directory of its own, which is new."""
    kafka.settings |= SETTINGS
    with kafka, Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        for name, differences in (
            ("topics: dry run, creation, description by id, partitions", _topics),
            ("settings: changed, described with synonyms, listed", _configs),
            ("offsets of a group: reset, listed, deleted with the group", _offsets),
            ("users: SCRAM credentials set, described, removed", _users),
            ("access control lists: created, described, deleted", _acls),
            ("client quotas: set, described, removed", _quotas),
            ("features: described, and an update in a dry run", _features),
            ("cluster, quorum, log directories, leaders", _cluster),
            ("transactions: fenced, listed, described", _transactions),
        ):
            report.check(f"Admin, {name}", _differences(admin, differences))


def _differences(admin: Admin, differences: Callable[[Admin], Iterator[str]]) -> list[str]:
    try:
        return [*differences(admin)]
    except TailraceError as error:
        return [f"{type(error).__name__}: {error}"]


def _expect(what: str, found: object, expected: object) -> Iterator[str]:
    if found != expected:
        yield f"{what}: {found!r}, and not {expected!r}"


def _expect_soon(what: str, ask: Callable[[], object], expected: object) -> Iterator[str]:
    """Ask until the broker has heard of a change that the controller has noted."""
    until = time.monotonic() + WAIT_SECONDS
    while (found := ask()) != expected and time.monotonic() < until:
        time.sleep(0.1)
    yield from _expect(what, found, expected)


def _topics(admin: Admin) -> Iterator[str]:
    admin.create_topics([NewTopic(PLACE.topic, 1)], validate_only=True).results()
    yield from _expect("topics after a dry run", admin.list_topics(include_internal=False), ())
    outcomes = admin.create_topics([NewTopic(PLACE.topic, 1), NewTopic("b/d", 1)])
    yield from _expect("refused", [*outcomes.errors], ["b/d"])
    number = outcomes.result(PLACE.topic).topic_id
    assert number is not None, "Kafka 4 tells ids"
    admin.create_partitions({PLACE.topic: 2}).results()
    yield from _expect_soon(
        "partitions",
        lambda: len(admin.describe_topics([number]).result(number).partitions),
        2,
    )
    moved = admin.alter_partition_reassignments({PLACE: None})
    error = moved.errors.get(PLACE)
    code = error.code if isinstance(error, RemoteFatalError) else None
    yield from _expect("no reassignment", code, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)


def _configs(admin: Admin) -> Iterator[str]:
    topic = ConfigResource(ResourceType.TOPIC, PLACE.topic)
    broker = ConfigResource(ResourceType.BROKER, str(NODE_ID))
    admin.incremental_alter_configs({topic: {"retention.ms": 60_000}}).results()

    def values() -> tuple[object, object]:
        found = admin.describe_configs([topic, broker], include_synonyms=True).results()
        return found[topic]["retention.ms"].value, found[broker]["node.id"].value

    yield from _expect_soon("retention.ms and node.id", values, ("60000", str(NODE_ID)))
    if topic not in admin.list_config_resources():
        yield "the topic is not listed"


def _offsets(admin: Admin) -> Iterator[str]:
    place = OffsetAt(Place.LATEST)
    admin.reset_group_offsets("administered", [PLACE], to=place).results()
    yield from _expect("offset", admin.list_group_offsets("administered").result(PLACE).offset, 0)
    yield from _expect("state", admin.describe_groups(["administered"]).errors, {})
    yield from _expect("deleted", admin.delete_groups(["administered"]).errors, {})


def _users(admin: Admin) -> Iterator[str]:
    mechanism = ScramMechanism.SHA_512
    admin.alter_user_scram_credentials([ScramUpsertion("alice", mechanism, "secret")]).results()
    expected = {"alice": (ScramCredential(mechanism, 4096),)}
    yield from _expect_soon(
        "users", lambda: dict(admin.describe_user_scram_credentials()), expected
    )
    admin.alter_user_scram_credentials([ScramDeletion("alice", mechanism)]).results()
    yield from _expect_soon("left", lambda: dict(admin.describe_user_scram_credentials()), {})


def _acls(admin: Admin) -> Iterator[str]:
    binding = AclBinding(AclResource.TOPIC, PLACE.topic, "User:alice", AclOperation.READ)
    admin.create_acls([binding]).results()
    matching = AclFilter(principal="User:alice")
    yield from _expect_soon("bindings", lambda: admin.describe_acls(matching), (binding,))
    removed = admin.delete_acls([matching]).result(matching)
    yield from _expect("removed", dict(removed), {binding: None})
    yield from _expect_soon("left", admin.describe_acls, ())


def _quotas(admin: Admin) -> Iterator[str]:
    alice = QuotaEntity.of(user="alice", client_id=None)
    admin.alter_client_quotas({alice: {"producer_byte_rate": 1e6}}).results()
    expected = {alice: {"producer_byte_rate": 1e6}}
    yield from _expect_soon(
        "quotas", lambda: admin.describe_client_quotas({"user": "alice"}), expected
    )
    admin.alter_client_quotas({alice: {"producer_byte_rate": None}}).results()
    yield from _expect_soon("left", admin.describe_client_quotas, {})


def _features(admin: Admin) -> Iterator[str]:
    found = admin.describe_features()
    level = found.finalized["metadata.version"].max_level
    same = {"metadata.version": FeatureUpdate(level, UpgradeType.UPGRADE)}
    yield from _expect("same level", admin.update_features(same, validate_only=True).errors, {})
    above = {"metadata.version": FeatureUpdate(level + 1000)}
    refused = admin.update_features(above, validate_only=True)
    yield from _expect("refused", [*refused.errors], ["metadata.version"])


def _cluster(admin: Admin) -> Iterator[str]:
    cluster = admin.describe_cluster(include_authorized_operations=True)
    yield from _expect("brokers", [each.id for each in cluster.brokers], [NODE_ID])
    quorum = admin.describe_metadata_quorum()
    yield from _expect("leader", quorum.leader_id, NODE_ID)
    yield from _expect("voters", [each.replica_id for each in quorum.voters], [NODE_ID])
    replica = Replica(*PLACE, NODE_ID)
    (path,) = admin.describe_log_dirs().result(NODE_ID)
    found = admin.describe_replica_log_dirs([replica]).result(replica)
    yield from _expect("directory", found.current, path)
    yield from _expect("elected", [*admin.elect_leaders([PLACE]).errors], [PLACE])
    yield from _expect("reassignments", admin.list_partition_reassignments(), {})
    yield from _expect("log start", admin.delete_records({PLACE: -1}).result(PLACE), 0)


def _transactions(admin: Admin) -> Iterator[str]:
    fenced = admin.fence_producers(["administered"]).result("administered")
    listed = [each.transactional_id for each in admin.list_transactions()]
    yield from _expect("listed", listed, ["administered"])
    described = admin.describe_transactions(["administered", "gone"])
    yield from _expect("unknown", [*described.errors], ["gone"])
    found = described.result("administered").producer_id
    yield from _expect("producer", found, fenced.producer_id)
    yield from _expect("producers", admin.describe_producers([PLACE]).result(PLACE), ())
