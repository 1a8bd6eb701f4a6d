"""The audit log says what was changed, by whom, and through which broker, and never a secret."""

import inspect
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from tailrace.broker.config import BROKER_SETTINGS
from tailrace.handlers import audit
from tailrace.handlers.audit import EVENTS
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.config_resources import ResourceType
from tailrace.protocol.fields import Message
from tailrace.protocol.messages import alter_client_quotas as quotas
from tailrace.protocol.messages import alter_partition_reassignments as reassignments
from tailrace.protocol.messages import alter_user_scram_credentials as scram
from tailrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tailrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tailrace.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tailrace.protocol.messages.delete_groups import DeleteGroupsRequest
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tailrace.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tailrace.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tailrace.security.authorizer_config import STANDARD_AUTHORIZER
from tailrace.storage.checkpoints import format_topic_id
from tailrace.testing import Outside, Peer
from tests.unit.broker.brokers import connect, create_topic, running
from tests.unit.broker.controller.own_clusters import own_cluster
from tests.unit.broker.test_configs import alter_all, resource, set_to

WHO = "principal=User:ANONYMOUS host=memory client_id=test listener=PLAINTEXT api="
ACCESS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
SECRET = "hunter2"
MONITORING = Path(__file__).parents[3] / "docs" / "monitoring.md"


@pytest.fixture(autouse=True)
def at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tailrace.audit")


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The audit lines so far, which are forgotten."""
    found = [each.getMessage() for each in caplog.records if each.name == "tailrace.audit"]
    caplog.clear()
    return found


async def ask(peer: Peer, request: Message) -> Any:
    """The answer to a request of any API."""
    [api] = [each for each in APIS.values() if each.request is type(request)]
    return await peer.ask(api.key, request, api.response)


def deletion(*names: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=tuple(DeleteTopicState(name=each) for each in names))


CREDENTIAL = scram.ScramCredentialUpsertion(
    name="bob", mechanism=1, iterations=4096, salt=SECRET.encode(), salted_password=b"x" * 32
)
ENTRY = AclCreation(
    resource_type=2, resource_name="t", principal="User:bob", host="*", operation=3,
    permission_type=3,
)  # fmt: skip
FILTER = DeleteAclsFilter(
    resource_type_filter=2, resource_name_filter="t", principal_filter="User:bob",
    host_filter=None, operation=1, permission_type=1,
)  # fmt: skip
ACL = (
    "resource_type=TOPIC pattern=LITERAL resource=t acl_principal=User:bob acl_host=* "
    "operation=READ permission=ALLOW"
)
CHANGES: list[tuple[Message, str]] = [
    (
        CreatePartitionsRequest(
            topics=(CreatePartitionsTopic(name="t", count=3, assignments=None),)
        ),
        "partitions_created {}CreatePartitions topic=t partitions=3",
    ),
    (CreateAclsRequest(creations=(ENTRY,)), "acl_created {}CreateAcls " + ACL),
    (DeleteAclsRequest(filters=(FILTER,)), "acl_deleted {}DeleteAcls " + ACL),
    (
        scram.AlterUserScramCredentialsRequest(upsertions=(CREDENTIAL,)),
        "scram_credential_set {}AlterUserScramCredentials user=bob mechanism=SCRAM-SHA-256",
    ),
    (
        quotas.AlterClientQuotasRequest(
            entries=(
                quotas.EntryData(
                    entity=(quotas.EntityData(entity_type="user", entity_name="b"),),
                    ops=(quotas.OpData(key="request_percentage", value=9, remove=False),),
                ),
            )
        ),
        "quota_changed {}AlterClientQuotas entity=user=b quota=request_percentage value=9.0",
    ),
    (
        UpdateFeaturesRequest(
            feature_updates=(
                FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2),
            )
        ),
        "feature_changed {}UpdateFeatures feature=group.version level=0",
    ),
]


async def test_each_change_has_a_line_with_who_has_made_it(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """A refused one has none, nor has a dry run; a secret is in no line."""
    async with running(outside, ACCESS) as broker:
        peer = connect(outside, broker)
        topic = await create_topic(peer, "t", partitions=2)
        [line] = said(caplog)
        named = f"topic=t topic_id={format_topic_id(topic.topic_id)}"
        assert line == f"topic_created {WHO}CreateTopics {named} partitions=2 replication_factor=1"
        for request, line in CHANGES:
            await ask(peer, request)
            assert said(caplog) == [line.format(WHO)]
        await alter_all(peer, resource(set_to("cleanup.policy", "no")))
        await alter_all(peer, resource(set_to("retention.ms", "5")), validate_only=True)
        await ask(peer, DeleteGroupsRequest(groups_names=("no",)))
        await ask(peer, UnregisterBrokerRequest(broker_id=7))
        assert said(caplog) == []
        await alter_all(peer, resource(set_to("retention.ms", "1000")))
        [line] = said(caplog)
        assert line.startswith(f"config_changed {WHO}IncrementalAlterConfigs resource_type=TOPIC ")
        assert line.endswith(" resource=t config=retention.ms operation=SET value=1000")
        await ask(peer, deletion("t", "missing"))
        assert said(caplog) == [f"topic_deleted {WHO}DeleteTopics {named}"]


async def test_a_change_is_logged_where_its_client_has_gone(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """The request is carried out to its end: no topic disappears without a name beside it."""
    async with running(outside) as broker:
        socket = outside.network.open(broker.endpoint[1])
        peer = Peer(socket)
        for name in "ab":
            await create_topic(peer, name)
        said(caplog)
        peer.send(ApiKey.DELETE_TOPICS, deletion("a", "b"))
        await outside.pass_time(0)
        assert len(broker.cluster.image.topics) == 2, "the request is under way"
        socket.close()
        await outside.pass_time(1)
    assert [each.partition(" topic_id")[0] for each in said(caplog)] == [
        f"topic_deleted {WHO}DeleteTopics topic={name}" for name in "ab"
    ]


async def test_a_forwarded_change_has_one_line_with_its_client_and_the_broker(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """The controller, which decides, writes it: principal and address are those of the client."""
    who = "principal=User:ANONYMOUS host=127.0.0.1 client_id=test listener=CONTROLLER api="
    async with own_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        [created] = said(caplog)
        assert created.startswith(f"topic_created {who}CreateTopics forwarded_by=broker-1@")
        peer = cluster.peer(2)
        move = reassignments.ReassignablePartition(partition_index=0, replicas=(2,))
        await ask(
            peer,
            reassignments.AlterPartitionReassignmentsRequest(
                topics=(reassignments.ReassignableTopic(name="t", partitions=(move,)),)
            ),
        )
        [moved] = said(caplog)
        assert moved.startswith("reassignment_started ")
        assert "forwarded_by=broker-2@" in moved
        assert moved.endswith(" topic=t partition=0 replicas=2")
        await ask(peer, MetadataRequest(topics=(MetadataRequestTopic(name="new"),)))
        await cluster.until(lambda image: "new" in image.topic_ids)
        asked, made = said(caplog)
        assert asked == f"topic_asked_for {WHO}Metadata topic=new"
        assert made.startswith("topic_created principal=User:ANONYMOUS ")
        await cluster.stop(1)
        await ask(peer, UnregisterBrokerRequest(broker_id=1))
        [gone] = said(caplog)
        assert gone.startswith(f"broker_unregistered {who}UnregisterBroker forwarded_by=broker-2@")
        assert gone.endswith(" broker=1")


def test_each_event_is_in_the_table_of_the_documentation() -> None:
    """Collectors look for these names."""
    source = inspect.getsource(audit)
    found = re.findall(r'yield \(?\s*"([a-z_]+)"|"(scram_\w+)", request', source)
    names = {one or other for one, other in found}
    table = MONITORING.read_text().partition("### Audit log")[2].partition("### What was")[0]
    assert len(names) >= len(EVENTS)
    for name in names:
        assert f"`{name}`" in table, name


def test_secrets_are_hidden_by_their_names() -> None:
    """All settings that are declared as secrets have such a name, in each resource."""
    secrets = [each.name for each in BROKER_SETTINGS if each.is_secret]
    changes = [set_to(f"{prefix}{each}", SECRET) for each in secrets for prefix in ("", "a.")]
    changed = resource(*changes, name="1", kind=ResourceType.BROKER)
    result = IncrementalAlterConfigsResourceResponse(
        error_code=0, error_message=None, resource_type=ResourceType.BROKER, resource_name="1"
    )
    found = EVENTS[ApiKey.INCREMENTAL_ALTER_CONFIGS](
        IncrementalAlterConfigsRequest(resources=(changed,)),
        IncrementalAlterConfigsResponse(responses=(result,)),
    )
    assert [fields["value"] for _, fields in found] == ["***"] * len(changes)
