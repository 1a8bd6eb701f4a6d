"""Quotas and users under a controller of our own: changed by any broker, known to all of them."""

from tailrace.client.admin import (
    AclBinding,
    AclOperation,
    AclResource,
    AsyncAdmin,
    QuotaEntity,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from tailrace.client.admin.users import ScramCredential
from tailrace.client.errors import RemoteFatalError
from tailrace.protocol.errors import ErrorCode
from tailrace.testing import Outside
from tests.unit.broker.controller.own_clusters import OwnCluster, own_cluster

ALICE = QuotaEntity.of(user="alice")
APP = QuotaEntity.of(user="alice", client_id=None)


def admin_of(cluster: OwnCluster, broker_id: int) -> AsyncAdmin:
    """An admin client that knows one broker."""
    host, port = cluster.brokers[broker_id].endpoint
    return AsyncAdmin(
        bootstrap_servers=f"{host}:{port}",
        runtime=cluster.outside.runtime,
    )


async def test_quotas_are_known_to_every_broker(outside: Outside) -> None:
    """Also after a kill of the controller, and to a broker that begins with its snapshot."""
    settings = {
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        "metadata.max.retention.bytes": "3000",
        "metadata.log.segment.ms": "100",
    }
    async with own_cluster(outside, 1, 2, settings=settings) as cluster:
        async with admin_of(cluster, 1) as admin:
            wanted = {ALICE: {"producer_byte_rate": 1e6}, APP: {"request_percentage": 12.5}}
            assert not (await admin.alter_client_quotas(wanted)).errors
            bad = {QuotaEntity.of(ip="no.address"): {"connection_creation_rate": 1.0}}
            [error] = (await admin.alter_client_quotas(bad)).errors.values()
            assert isinstance(error, RemoteFatalError)
            assert error.code == ErrorCode.INVALID_REQUEST
        cluster.kill_controller()
        await cluster.start_controller()
        for number in range(20):
            await cluster.add_topic(f"t{number}", replicas=(1,))
            await outside.pass_time(1)
        folder = outside.files.list("data/__cluster_metadata-0")
        assert f"{0:020}.log" not in folder, "what is before the snapshot is gone"
        await cluster.start(3)
        for broker_id in (1, 2, 3):
            async with admin_of(cluster, broker_id) as admin:
                assert await admin.describe_client_quotas() == wanted
        async with admin_of(cluster, 3) as admin:
            assert not (await admin.alter_client_quotas({APP: {"request_percentage": None}})).errors
        await cluster.until(lambda image: len(image.quotas) == 1)
        await outside.pass_time(1)
        async with admin_of(cluster, 2) as admin:
            assert await admin.describe_client_quotas() == {ALICE: wanted[ALICE]}


async def test_users_are_known_to_every_broker(outside: Outside) -> None:
    """A credential is shown without its keys; each user is refused by itself."""
    async with own_cluster(outside, 1, 2) as cluster:
        async with admin_of(cluster, 1) as admin:
            outcomes = await admin.alter_user_scram_credentials(
                [
                    ScramUpsertion("alice", ScramMechanism.SHA_512, "secret", iterations=5000),
                    ScramUpsertion("bob", ScramMechanism.SHA_256, "secret"),
                    ScramDeletion("nobody"),
                ]
            )
            assert list(outcomes.errors) == ["nobody"]
        await outside.pass_time(1)
        async with admin_of(cluster, 2) as admin:
            alice, bob = (
                ScramCredential(ScramMechanism.SHA_512, 5000),
                ScramCredential(ScramMechanism.SHA_256, 4096),
            )
            found = (await admin.describe_user_scram_credentials()).results()
            assert found == {"alice": (alice,), "bob": (bob,)}
            gone = ScramDeletion("bob", ScramMechanism.SHA_256)
            assert not (await admin.alter_user_scram_credentials([gone])).errors
        assert [user.name for user in cluster.image.scram] == ["alice"]


async def test_there_is_no_access_control(outside: Outside) -> None:
    """Entries would protect nothing without an authorizer, so they are refused as by Kafka."""
    async with own_cluster(outside, 1) as cluster, admin_of(cluster, 1) as admin:
        binding = AclBinding(AclResource.TOPIC, "t", "User:alice", AclOperation.READ)
        [error] = (await admin.create_acls([binding])).errors.values()
        assert isinstance(error, RemoteFatalError)
        assert error.code == ErrorCode.SECURITY_DISABLED
        assert not cluster.image.acls
