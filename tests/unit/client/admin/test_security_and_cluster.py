"""Users, access control lists, quotas, features, the quorum and the cluster itself."""

import hashlib
from typing import Any
from uuid import UUID

import pytest

from tailrace.client import RemoteFatalError, UnsupportedBrokerError
from tailrace.client.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclResource,
    AnyName,
    AsyncAdmin,
    FeatureUpdate,
    IncompleteAnswerError,
    QuotaEntity,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    UpgradeType,
)
from tailrace.client.admin.cluster import LevelRange
from tailrace.client.admin.users import ScramCredential
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages import add_raft_voter as adding
from tailrace.protocol.messages import alter_client_quotas as quota_changes
from tailrace.protocol.messages import alter_user_scram_credentials as passwords
from tailrace.protocol.messages import create_acls, delete_acls, describe_acls
from tailrace.protocol.messages import describe_client_quotas as quotas
from tailrace.protocol.messages import describe_quorum as quorum
from tailrace.protocol.messages import describe_user_scram_credentials as users
from tailrace.protocol.messages import remove_raft_voter as removing
from tailrace.protocol.messages import unregister_broker as unregistering
from tailrace.protocol.messages import update_features as features
from tailrace.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.unit.client.admin.stage import AdminStage, ask, on_stage

READING = AclBinding(AclResource.TOPIC, "t", "User:alice", AclOperation.READ)


def test_a_password_is_salted_before_it_is_sent() -> None:
    """The broker gets PBKDF2 of the password with the salt, and never the password."""
    result = passwords.AlterUserScramCredentialsResult
    answer = passwords.AlterUserScramCredentialsResponse(
        results=(
            result(user="alice"),
            result(user="bob", error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message="no bob."),
        )
    )
    changes = [
        ScramUpsertion("alice", ScramMechanism.SHA_512, "secret", 5000, b"salt"),
        ScramDeletion("bob", ScramMechanism.SHA_256),
    ]
    found, at = on_stage(
        ask("alter_user_scram_credentials", changes), (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, answer)
    )
    ((_, body),) = at.asked
    (sent,) = body.upsertions
    assert bytes(sent.salted_password) == hashlib.pbkdf2_hmac("sha512", b"secret", b"salt", 5000)
    assert (sent.name, sent.mechanism, sent.iterations, bytes(sent.salt)) == (
        "alice", 2, 5000, b"salt",
    )  # fmt: skip
    assert (body.deletions[0].name, body.deletions[0].mechanism) == ("bob", 1)
    assert found.succeeded == {"alice": None}
    assert "user bob" in str(found["bob"])
    assert "secret" not in repr(changes)


def test_a_salt_is_random_unless_it_is_given() -> None:
    """Two users with one password have different salted passwords."""
    first, second = (ScramUpsertion("u", ScramMechanism.SHA_256, "p", 1).salted() for _ in range(2))
    assert first.salt != second.salt
    assert first.salted_password != second.salted_password


def test_an_unknown_mechanism_is_refused_before_anything_is_sent() -> None:
    """So are a number of iterations that is not positive, and a password that is empty."""
    with pytest.raises(ValueError, match="give the mechanism SHA_256 or SHA_512"):
        on_stage(ask("alter_user_scram_credentials", [ScramDeletion("u", ScramMechanism.UNKNOWN)]))
    bad = ScramUpsertion("u", ScramMechanism.SHA_256, "p", 0)
    with pytest.raises(ValueError, match="iterations is 0"):
        on_stage(ask("alter_user_scram_credentials", [bad]))
    for password in ("", b""):
        empty = ScramUpsertion("u", ScramMechanism.SHA_256, password)
        with pytest.raises(ValueError, match="the password is empty"):
            on_stage(ask("alter_user_scram_credentials", [empty]))


def test_users_are_described_without_their_passwords() -> None:
    """Each user has credentials or an error of its own."""
    result = users.DescribeUserScramCredentialsResult
    info = users.CredentialInfo(mechanism=2, iterations=4096)
    answer = users.DescribeUserScramCredentialsResponse(
        results=(
            result(user="alice", credential_infos=(info,)),
            result(user="bob", error_code=ErrorCode.RESOURCE_NOT_FOUND),
        )
    )
    found, _ = on_stage(
        ask("describe_user_scram_credentials"), (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, answer)
    )
    assert found.succeeded == {"alice": (ScramCredential(ScramMechanism.SHA_512, 4096),)}
    assert isinstance(found["bob"], RemoteFatalError)


def test_each_binding_of_an_acl_has_its_outcome() -> None:
    """Answers are in the order of the request."""
    other = AclBinding(AclResource.GROUP, "g", "User:bob", AclOperation.ALL)
    result = create_acls.AclCreationResult
    answer = create_acls.CreateAclsResponse(
        results=(result(), result(error_code=ErrorCode.SECURITY_DISABLED, error_message="no acl"))
    )
    found, at = on_stage(ask("create_acls", [READING, other]), (ApiKey.CREATE_ACLS, answer))
    assert found[READING] is None
    assert "no acl" in str(found[other])
    (first, _) = at.asked[0][1].creations
    assert (first.resource_type, first.operation, first.permission_type) == (2, 3, 3)


def test_bindings_are_described_by_a_filter() -> None:
    """Numbers that this version does not know are UNKNOWN."""
    acl = describe_acls.AclDescription(
        principal="User:alice", host="*", operation=99, permission_type=3
    )
    found_one = describe_acls.DescribeAclsResource(
        resource_type=2, resource_name="t", pattern_type=3, acls=(acl,)
    )
    answer = describe_acls.DescribeAclsResponse(resources=(found_one,))
    matching = AclFilter(principal="User:alice")
    found, at = on_stage(ask("describe_acls", matching), (ApiKey.DESCRIBE_ACLS, answer))
    assert found == (AclBinding(AclResource.TOPIC, "t", "User:alice", AclOperation.UNKNOWN),)
    body = at.asked[0][1]
    assert (body.principal_filter, body.resource_type_filter, body.host_filter) == (
        "User:alice", 1, None,
    )  # fmt: skip


def test_a_broker_without_an_authorizer_is_told() -> None:
    """Its refusal is the error."""
    answer = describe_acls.DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
    )
    with pytest.raises(
        RemoteFatalError, match=r": No Authorizer is configured \(SECURITY_DISABLED\)$"
    ):
        on_stage(ask("describe_acls"), (ApiKey.DESCRIBE_ACLS, answer))


def test_deleted_bindings_are_told_by_filter() -> None:
    """Each binding that matched has its own outcome; a filter may fail alone."""
    acl = delete_acls.DeleteAclsMatchingAcl(
        resource_type=2, resource_name="t", pattern_type=3, principal="User:alice", host="*",
        operation=3, permission_type=3,
    )  # fmt: skip
    answer = delete_acls.DeleteAclsResponse(
        filter_results=(
            delete_acls.DeleteAclsFilterResult(matching_acls=(acl,)),
            delete_acls.DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED),
        )
    )
    mine, others = AclFilter(name="t"), AclFilter(name="u")
    found, _ = on_stage(ask("delete_acls", [mine, others]), (ApiKey.DELETE_ACLS, answer))
    assert dict(found.result(mine)) == {READING: None}
    assert isinstance(found[others], RemoteFatalError)


def test_quotas_are_described_by_entity() -> None:
    """None is the default of a kind; a filter has exact, default and any names."""
    part = quotas.EntityData
    value = quotas.ValueData(key="producer_byte_rate", value=1.5)
    entry = quotas.EntryData(entity=(part(entity_type="user", entity_name=None),), values=(value,))
    answer = quotas.DescribeClientQuotasResponse(entries=(entry,))
    matching = {"user": None, "client_id": AnyName.ANY, "ip": "::1"}
    found, at = on_stage(
        ask("describe_client_quotas", matching), (ApiKey.DESCRIBE_CLIENT_QUOTAS, answer)
    )
    assert found == {QuotaEntity.of(user=None): {"producer_byte_rate": 1.5}}
    assert [(c.entity_type, c.match_type, c.match) for c in at.asked[0][1].components] == [
        ("user", 1, None), ("client-id", 2, None), ("ip", 0, "::1"),
    ]  # fmt: skip


def test_quotas_are_set_and_removed() -> None:
    """None removes; a dry run says so; each entity has its outcome."""
    part = quota_changes.EntityData
    alice = QuotaEntity.of(user="alice", client_id=None)
    bob = QuotaEntity.of(user="bob")
    entry = quota_changes.AlterClientQuotasResponseEntryData
    answer = quota_changes.AlterClientQuotasResponse(
        entries=(
            entry(
                entity=(
                    part(entity_type="user", entity_name="alice"),
                    part(entity_type="client-id", entity_name=None),
                )
            ),
            entry(
                entity=(part(entity_type="user", entity_name="bob"),),
                error_code=ErrorCode.INVALID_REQUEST,
            ),
        )
    )
    changes = {alice: {"producer_byte_rate": 2.0, "request_percentage": None}, bob: {"x": 1.0}}
    found, at = on_stage(
        ask("alter_client_quotas", changes, validate_only=True),
        (ApiKey.ALTER_CLIENT_QUOTAS, answer),
    )
    assert found.succeeded == {alice: None}
    assert "user=bob" in str(found[bob])
    body = at.asked[0][1]
    assert body.validate_only
    ops = [(each.key, each.value, each.remove) for each in body.entries[0].ops]
    assert ops == [("producer_byte_rate", 2.0, False), ("request_percentage", 0.0, True)]


def test_features_have_one_outcome_in_the_newest_version() -> None:
    """From version 2 on one code is for all; the request has levels and kinds of changes."""
    answer = features.UpdateFeaturesResponse(error_code=ErrorCode.FEATURE_UPDATE_FAILED)
    updates = {"a": FeatureUpdate(3), "b": FeatureUpdate(0, UpgradeType.SAFE_DOWNGRADE)}
    found, at = on_stage(
        ask("update_features", updates, validate_only=True), (ApiKey.UPDATE_FEATURES, answer)
    )
    assert [*found.errors] == ["a", "b"]
    body = at.asked[0][1]
    assert body.validate_only
    assert [(each.max_version_level, each.upgrade_type) for each in body.feature_updates] == [
        (3, 1), (0, 2),
    ]  # fmt: skip


def test_features_have_their_own_outcomes_in_version_1() -> None:
    """Brokers before Kafka 4.0 answer for each feature."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.cluster.versions[ApiKey.UPDATE_FEATURES] = 1
        result = features.UpdatableFeatureResult
        answer = features.UpdateFeaturesResponse(
            results=(
                result(feature="a"),
                result(feature="b", error_code=ErrorCode.INVALID_UPDATE_VERSION),
            )
        )
        at.on(ApiKey.UPDATE_FEATURES, answer)
        return await admin.update_features({"a": FeatureUpdate(3), "b": FeatureUpdate(9)})

    found, _ = on_stage(scene)
    assert found.succeeded == {"a": None}


def test_a_controller_that_has_moved_is_found_again_for_features() -> None:
    """NOT_CONTROLLER is retried."""

    def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        moved_away = features.UpdateFeaturesResponse(error_code=ErrorCode.NOT_CONTROLLER)
        at.on(ApiKey.UPDATE_FEATURES, moved_away, features.UpdateFeaturesResponse())
        return ask("update_features", {"a": FeatureUpdate(3)})(at, admin)

    found, at = on_stage(scene)
    assert found.errors == {}
    assert len(at.asked) == 2


@pytest.mark.parametrize(
    ("updates", "fault"),
    [
        ({}, "updates is empty"),
        ({" ": FeatureUpdate(1)}, "an empty name"),
        ({"a": FeatureUpdate(0)}, "level 0 removes it"),
    ],
)
def test_wrong_feature_updates_are_refused_before_anything_is_sent(
    updates: dict[str, FeatureUpdate], fault: str
) -> None:
    """None, a name that is empty, and a removal that is called an upgrade."""
    with pytest.raises(ValueError, match=fault):
        on_stage(ask("update_features", updates))


def test_features_are_described() -> None:
    """A cluster that finalized none has no epoch."""
    found, _ = on_stage(ask("describe_features"))
    assert (found.finalized, found.supported, found.epoch) == ({}, {}, None)
    assert LevelRange(1, 2).max_level == 2


def quorum_answer(**fields: Any) -> Message:
    """A quorum of one voter and one observer."""
    state = quorum.ReplicaState
    part = quorum.DescribeQuorumResponsePartitionData(
        leader_id=1, leader_epoch=4, high_watermark=90,
        current_voters=(state(replica_id=1, log_end_offset=90),),
        observers=(state(replica_id=2, log_end_offset=80),),
        **fields,
    )  # fmt: skip
    topic = quorum.DescribeQuorumResponseTopicData(
        topic_name="__cluster_metadata", partitions=(part,)
    )
    return quorum.DescribeQuorumResponse(topics=(topic,))


def test_the_metadata_quorum_is_described() -> None:
    """Leader, voters and observers, and how far each is."""
    found, _ = on_stage(ask("describe_metadata_quorum"), (ApiKey.DESCRIBE_QUORUM, quorum_answer()))
    assert (found.leader_id, found.high_watermark) == (1, 90)
    assert [each.log_end_offset for each in found.observers] == [80]


@pytest.mark.parametrize(
    "answer",
    [
        quorum_answer(error_code=ErrorCode.INVALID_REQUEST),
        quorum.DescribeQuorumResponse(error_code=ErrorCode.INVALID_REQUEST),
        quorum.DescribeQuorumResponse(),
    ],
)
def test_a_quorum_that_is_refused_or_of_no_topic_is_an_error(answer: Message) -> None:
    """Errors of the whole answer and of the partition, and an answer without the partition."""
    with pytest.raises((RemoteFatalError, IncompleteAnswerError), match=r"the (metadata )?quorum"):
        on_stage(ask("describe_metadata_quorum"), (ApiKey.DESCRIBE_QUORUM, answer))


def test_the_cluster_of_an_old_broker_is_described_by_its_metadata() -> None:
    """Brokers before Kafka 2.8 have no DescribeCluster."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.cluster.versions[ApiKey.DESCRIBE_CLUSTER] = -1
        brokers = (MetadataResponseBroker(node_id=1, host="a", port=1, rack="r"),)
        at.on(
            ApiKey.METADATA,
            MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1),
        )
        return await admin.describe_cluster()

    found, _ = on_stage(scene)
    assert (found.cluster_id, found.controller.rack, found.authorized_operations) == (
        "c",
        "r",
        None,
    )


def test_a_broker_that_is_unregistered_or_unknown_is_told() -> None:
    """A retriable refusal is retried, another one raised."""
    response = unregistering.UnregisterBrokerResponse
    answer = response(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message="no 9")
    with pytest.raises(RemoteFatalError, match=r"broker 9 at .*no 9"):
        on_stage(ask("unregister_broker", 9), (ApiKey.UNREGISTER_BROKER, answer))

    def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.on(
            ApiKey.UNREGISTER_BROKER, response(error_code=ErrorCode.REQUEST_TIMED_OUT), response()
        )
        return ask("unregister_broker", 9)(at, admin)

    _, at = on_stage(scene)
    assert len(at.asked) == 2


def test_a_voter_is_added() -> None:
    """The request has its directory and its listeners; a refusal has the controller's words."""
    response, directory = adding.AddRaftVoterResponse, UUID(int=7)
    endpoints = [("C", "h", 9093), ("D", "i", 9094)]

    async def scene(_: AdminStage, admin: AsyncAdmin) -> Any:
        return await admin.add_raft_voter(102, directory, endpoints=endpoints)

    _, at = on_stage(scene, (ApiKey.ADD_RAFT_VOTER, response()))
    [(_, request)] = at.asked
    assert (request.voter_id, request.voter_directory_id) == (102, directory)
    assert [(each.name, each.host, each.port) for each in request.listeners] == endpoints
    refused = response(error_code=ErrorCode.DUPLICATE_VOTER, error_message="is one")
    with pytest.raises(RemoteFatalError, match=r"controller 102 at .*is one"):
        on_stage(scene, (ApiKey.ADD_RAFT_VOTER, refused))


def test_a_voter_is_removed() -> None:
    """The request has its directory; a refusal has the controller's words."""
    response, directory = removing.RemoveRaftVoterResponse, UUID(int=7)
    _, at = on_stage(
        ask("remove_raft_voter", 102, directory), (ApiKey.REMOVE_RAFT_VOTER, response())
    )
    [(_, request)] = at.asked
    assert (request.voter_id, request.voter_directory_id) == (102, directory)
    refused = response(error_code=ErrorCode.VOTER_NOT_FOUND, error_message="is none")
    with pytest.raises(RemoteFatalError, match=r"controller 102 at .*is none"):
        on_stage(ask("remove_raft_voter", 102, directory), (ApiKey.REMOVE_RAFT_VOTER, refused))


def test_fenced_brokers_are_not_left_out_in_silence() -> None:
    """A broker that cannot tell them is an error, and no fallback."""

    async def scene(at: AdminStage, admin: AsyncAdmin) -> Any:
        at.cluster.versions[ApiKey.DESCRIBE_CLUSTER] = 1
        return await admin.describe_cluster(include_fenced_brokers=True)

    with pytest.raises(UnsupportedBrokerError):
        on_stage(scene)
