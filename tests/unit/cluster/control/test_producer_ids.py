"""Blocks of producer ids: what of ProducerIdControlManagerTest is refused."""

from tailrace.config.settings import INT64_MAX
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tailrace.protocol.metadata_records import ProducerIdsRecord
from tests.unit.cluster.control.controlled import Controlled


def refused(cluster: Controlled, broker_id: int, epoch: int) -> ErrorCode:
    """The code of a request for a block."""
    request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
    return cluster.refused(ApiKey.ALLOCATE_PRODUCER_IDS, request)


def test_only_a_registered_broker_gets_ids() -> None:
    """Another epoch is that of an earlier registration, and its broker has restarted."""
    cluster = Controlled()
    cluster.serve(0)
    epoch = cluster.epoch(0)
    before = len(cluster.appended)
    for broker_id, wrong in ((99, epoch), (0, epoch + 1), (0, epoch - 1)):
        assert refused(cluster, broker_id, wrong) is ErrorCode.STALE_BROKER_EPOCH
    assert len(cluster.appended) == before
    assert refused(cluster, 0, epoch) is ErrorCode.NONE


def test_the_last_block_of_ids() -> None:
    """The last one that fits 63 bits is given, and after it none: an id never comes again."""
    cluster = Controlled()
    cluster.serve(0)
    last = ProducerIdsRecord(
        broker_id=0, broker_epoch=cluster.epoch(0), next_producer_id=INT64_MAX - 1000
    )
    cluster.state.replay([last])
    assert refused(cluster, 0, cluster.epoch(0)) is ErrorCode.NONE
    assert cluster.state.image.next_producer_id == INT64_MAX
    for _ in range(2):
        assert refused(cluster, 0, cluster.epoch(0)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert cluster.state.image.next_producer_id == INT64_MAX
