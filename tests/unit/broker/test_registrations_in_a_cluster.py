"""The registration of a running broker, which controllers lose, and whose level changes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tailrace.broker.start import StartAbandonedError
from tailrace.cluster.bootstrap import new_image
from tailrace.cluster.metadata.image import METADATA_VERSION
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tailrace.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tailrace.protocol.metadata_records import RegisterBrokerRecord
from tailrace.testing import Outside
from tailrace.testing.controller import ScriptedController
from tests.unit.broker.brokers import batch, produce
from tests.unit.broker.clusters import Cluster, running_cluster


def registration(cluster: Cluster) -> RegisterBrokerRecord:
    """The registration of broker 1, as the controller has it."""
    return cluster.controller.image.brokers[1]


@asynccontextmanager
async def cluster_at(outside: Outside, level: int) -> AsyncIterator[Cluster]:
    """A cluster with this level of metadata.version, and one broker."""
    cluster = Cluster(outside)
    cluster.controller = ScriptedController(outside, image=new_image(level))
    cluster.controller.start()
    await cluster.start(1)
    try:
        yield cluster
    finally:
        for each in list(cluster.brokers):
            await cluster.stop(each)
        await cluster.controller.close()


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_stop_ends_the_wait_for_controllers(
    outside: Outside,
    is_known: bool,  # noqa: FBT001 - a parameter
) -> None:
    """A start waits for them, for ever where its metadata log has no room; its logs stay clean."""
    cluster = Cluster(outside)
    if is_known:
        cluster.controller.start()
        await cluster.start(1)
        await cluster.stop(1)
        await cluster.controller.close()
    asked_to_stop = asyncio.Event()
    starting = asyncio.ensure_future(cluster.start(1, asked_to_stop=asked_to_stop))
    await outside.pass_time(5)
    assert not starting.done()
    asked_to_stop.set()
    await outside.pass_time(0)
    with pytest.raises(StartAbandonedError):
        await starting
    assert outside.files.exists("data-1/.kafka_cleanshutdown") is is_known
    # The directory and the port are free again.
    cluster.controller.start()
    await cluster.start(1)
    await cluster.stop(1)
    await cluster.controller.close()


async def test_a_broker_that_was_unregistered_is_back_in_its_cluster(outside: Outside) -> None:
    """A client takes it for dead, and it is alive: it registers again, and leads as before."""
    async with running_cluster(outside, 1, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
        before = registration(cluster).broker_epoch
        answer = await cluster.peer(2).ask(
            ApiKey.UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=1), UnregisterBrokerResponse
        )
        assert answer.error_code == ErrorCode.NONE
        await cluster.until(
            lambda: 1 in cluster.controller.image.brokers and not registration(cluster).fenced
        )
        epoch = registration(cluster).broker_epoch
        assert epoch > before
        await cluster.until(lambda: cluster.brokers[1].cluster.broker_epoch == epoch)
        await cluster.until(lambda: set(cluster.state().isr) == {1, 2})
        result = await produce(cluster.peer(cluster.state().leader), "t", batch(b"v"))
        assert result.error_code == ErrorCode.NONE
        await cluster.until(lambda: cluster.end(1) == cluster.end(2) == 1)


async def test_below_the_level_of_directories_none_is_reported(outside: Outside) -> None:
    """The controllers would refuse it, and be asked again for ever."""
    async with cluster_at(outside, 16) as cluster:
        await cluster.add_topic(replicas=(1,))
        await outside.pass_time(5)
        assert cluster.controller.counts.get(ApiKey.ASSIGN_REPLICAS_TO_DIRS) is None


@pytest.mark.parametrize("level", [7, 16, 17, 29])
async def test_a_new_level_has_the_broker_name_its_directories(
    outside: Outside, level: int
) -> None:
    """Controllers of a level before have dropped them, and could not elect by them (KIP-858)."""
    async with cluster_at(outside, level) as cluster:
        directory = cluster.brokers[1].logs.metadata_home.directory.directory_id
        before = registration(cluster)
        assert before.log_dirs == ((directory,) if level >= 17 else ())
        update = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=30)
        answer = await cluster.peer(1).ask(
            ApiKey.UPDATE_FEATURES,
            UpdateFeaturesRequest(feature_updates=(update,)),
            UpdateFeaturesResponse,
        )
        assert answer.error_code == ErrorCode.NONE
        await cluster.until(lambda: registration(cluster).log_dirs == (directory,))
        # The same life of the broker, which nobody has to elect other leaders for.
        assert registration(cluster).broker_epoch == before.broker_epoch
        assert not registration(cluster).fenced
        await outside.pass_time(60)
        asked = cluster.controller.counts[ApiKey.BROKER_REGISTRATION]
        assert asked == (1 if level >= 17 else 2)
