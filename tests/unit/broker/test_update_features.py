"""UpdateFeatures: levels of features that clients change, and what ApiVersions says of them."""

import pytest

from tailrace.cluster.metadata.features import initial_levels
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.cluster.metadata.proof import METADATA_FOLDER
from tailrace.cluster.metadata.snapshot import Snapshot
from tailrace.cluster.metadata.snapshot_files import save_snapshot
from tailrace.handlers.cluster import UPDATES_MAX
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tailrace.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tailrace.protocol.metadata_records import VotersRecord, VotersRecordVoter
from tailrace.testing import Outside, Peer
from tests.unit.broker.brokers import connect, running

SAFE = 2


async def update(
    peer: Peer, *updates: FeatureUpdateKey, version: int = 2, validate_only: bool = False
) -> UpdateFeaturesResponse:
    """The broker's answer."""
    request = UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)
    key = ApiKey.UPDATE_FEATURES
    return await peer.ask(key, request, UpdateFeaturesResponse, version=version)


async def features(peer: Peer) -> tuple[dict[str, int], int]:
    """The levels of the cluster as clients are told, and their epoch."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    found = await peer.ask(ApiKey.API_VERSIONS, request, ApiVersionsResponse)
    levels = {each.name: each.max_version_level for each in found.finalized_features}
    return levels, found.finalized_features_epoch


def lowered(name: str, level: int) -> FeatureUpdateKey:
    """A safe downgrade, by the way of each version."""
    return FeatureUpdateKey(
        feature=name, max_version_level=level, allow_downgrade=True, upgrade_type=SAFE
    )


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_level_is_changed_for_good(outside: Outside, version: int) -> None:
    """Clients are told the new level with a later epoch; the next start has it."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        before, epoch = await features(peer)
        answer = await update(peer, lowered("transaction.version", 1), version=version)
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        named = [(each.feature, each.error_code) for each in answer.results]
        assert named == ([("transaction.version", ErrorCode.NONE)] if version < 2 else [])
        after, later = await features(peer)
        assert after == before | {"transaction.version": 1}
        assert later > epoch
    async with running(outside) as broker:
        assert (await features(connect(outside, broker)))[0] == after


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_one_refusal_is_that_of_all(outside: Outside, version: int) -> None:
    """The message names the feature, there are no results, and nothing has changed."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        before = await features(peer)
        wrong = FeatureUpdateKey(feature="nonsense", max_version_level=1)
        answer = await update(peer, lowered("group.version", 0), wrong, version=version)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "nonsense cannot get level 1" in (answer.error_message or "")
        assert answer.results == ()
        assert await features(peer) == before


async def test_the_flag_of_the_first_version_allows_a_downgrade(outside: Outside) -> None:
    """Without it a lower level is refused."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        lower = FeatureUpdateKey(feature="group.version", max_version_level=0)
        answer = await update(peer, lower, version=0)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION


async def test_a_dry_run_tells_and_changes_nothing(outside: Outside) -> None:
    """A change that is allowed and one that is not have the answers of a change."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        before = await features(peer)
        allowed = await update(peer, lowered("group.version", 0), validate_only=True)
        refused = await update(peer, lowered("metadata.version", 29), validate_only=True)
        assert allowed.error_code == ErrorCode.NONE
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert await features(peer) == before


async def test_a_request_without_changes_is_no_error(outside: Outside) -> None:
    """Nothing is written, as in Kafka."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        before = await features(peer)
        assert (await update(peer)).error_code == ErrorCode.NONE
        assert await features(peer) == before


async def test_too_many_changes_are_refused(outside: Outside) -> None:
    """No cluster has so many features, and the loop would be busy with them."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        many = (
            FeatureUpdateKey(feature=f"f{number}", max_version_level=1)
            for number in range(UPDATES_MAX + 1)
        )
        answer = await update(peer, *many)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert answer.error_message == "257 changes; at most 256 are allowed"


async def supported(peer: Peer) -> dict[str, tuple[int, int]]:
    """The lowest and highest level of each feature."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    found = await peer.ask(ApiKey.API_VERSIONS, request, ApiVersionsResponse)
    return {each.name: (each.min_version, each.max_version) for each in found.supported_features}


async def test_the_version_of_the_quorum_is_told(outside: Outside) -> None:
    """Its levels are those of Kafka, level 0 is not listed, and it stays what it is."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        assert (await supported(peer))["kraft.version"] == (0, 1)
        assert "kraft.version" not in (await features(peer))[0]
        answer = await update(peer, FeatureUpdateKey(feature="kraft.version", max_version_level=1))
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "when it was formatted" in (answer.error_message or "")


async def test_voters_in_the_log_are_level_one(outside: Outside) -> None:
    """A directory that Kafka has formatted with --standalone has it, and takes no more voters."""
    folder = f"data/{METADATA_FOLDER}"
    outside.files.make_directory("data")
    outside.files.make_directory(folder)
    kept = Snapshot(
        image=MetadataImage(features=initial_levels()),
        log_timestamp=0,
        voters=VotersRecord(voters=(VotersRecordVoter(voter_id=1),)),
    )
    save_snapshot(outside.files, folder, kept, next_offset=7, epoch=2, now_ms=0)
    async with running(outside) as broker:
        peer = connect(outside, broker)
        assert (await features(peer))[0]["kraft.version"] == 1
        request = AddRaftVoterRequest(cluster_id=None)
        answer = await peer.ask(ApiKey.ADD_RAFT_VOTER, request, AddRaftVoterResponse)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "which leads alone" in (answer.error_message or "")
