"""Levels of features: which changes are allowed, and the records that they become."""

import random
import uuid
from dataclasses import replace

import pytest

from tailrace.cluster import records
from tailrace.cluster.bootstrap import new_image
from tailrace.cluster.controller import Controller
from tailrace.cluster.image import image_on_node
from tailrace.cluster.metadata.features import (
    ELIGIBLE_LEADERS,
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdateError,
    LevelChange,
    metadata_level,
    plan_levels,
)
from tailrace.cluster.metadata.image import (
    ALL_BROKERS,
    METADATA_VERSION,
    MIN_INSYNC_REPLICAS,
    ConfigResource,
    MetadataImage,
)
from tailrace.cluster.metadata.snapshot import snapshot_records
from tailrace.cluster.topic_defaults import TopicDefaults
from tailrace.protocol.metadata_records import (
    BrokerFeature,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from tailrace.testing import MemoryFiles
from tests.unit.cluster.metadata_logs import Node

NODE = 1
BROKER_1 = ConfigResource(4, "1")
DIRECTORY = uuid.UUID(int=700)


def plan(image: MetadataImage, name: str, level: int, kind: int = UPGRADE) -> dict[str, int]:
    """The new levels after one change."""
    return plan_levels(image, {name: LevelChange(level, kind)}, node_id=NODE)


@pytest.mark.parametrize(
    ("name", "level", "kind", "reason"),
    [
        ("nonsense", 1, UPGRADE, "knows no such feature"),
        ("kraft.version", 1, UPGRADE, "where they were when it was formatted"),
        ("group.version", 2, UPGRADE, "the levels 0 to 1"),
        ("group.version", -1, SAFE_DOWNGRADE, "the levels 0 to 1"),
        (METADATA_VERSION, 0, UNSAFE_DOWNGRADE, "the levels 7 to 30"),
        ("group.version", 0, UPGRADE, "no downgrade"),
        ("group.version", 1, 0, "no kind of change with the number 0"),
        ("group.version", 1, 4, "no kind of change with the number 4"),
        (METADATA_VERSION, 29, SAFE_DOWNGRADE, "new in level 30"),
        (METADATA_VERSION, 29, UNSAFE_DOWNGRADE, "new in level 30"),
    ],
)
def test_a_change_that_is_not_allowed(name: str, level: int, kind: int, reason: str) -> None:
    """The error names the feature, the level and the rule."""
    with pytest.raises(FeatureUpdateError, match=f"{name} cannot get level {level}: .*{reason}"):
        plan(new_image(), name, level, kind)


def test_a_higher_level_is_no_downgrade() -> None:
    """Both kinds of downgrades are refused, as by Kafka."""
    for kind in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        with pytest.raises(FeatureUpdateError, match="the change is a downgrade"):
            plan(new_image(22), METADATA_VERSION, 23, kind)


def test_metadata_is_downgraded_where_no_record_is_lost() -> None:
    """From 29 to 23 nothing is new; below 23 eligible leaders have no records."""
    image = new_image(29)
    assert plan(image, METADATA_VERSION, 23, SAFE_DOWNGRADE) == {METADATA_VERSION: 23}
    with pytest.raises(FeatureUpdateError, match="new in level 23"):
        plan(image, METADATA_VERSION, 22, SAFE_DOWNGRADE)


def test_a_level_that_is_there_already_is_no_change() -> None:
    """Neither as an upgrade nor as a downgrade; nor is level 0 of a feature not in use."""
    for kind in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        assert plan(new_image(), METADATA_VERSION, 30, kind) == {}
        assert plan(new_image(21), "group.version", 0, kind) == {}


def test_eligible_leaders_need_their_records() -> None:
    """The level that the same request gives `metadata.version` counts."""
    image = new_image(22)
    with pytest.raises(FeatureUpdateError, match=r"needs metadata\.version 23, not 22"):
        plan(image, ELIGIBLE_LEADERS, 1)
    both = {ELIGIBLE_LEADERS: LevelChange(1), METADATA_VERSION: LevelChange(23)}
    assert plan_levels(image, both, node_id=NODE) == {ELIGIBLE_LEADERS: 1, METADATA_VERSION: 23}


def test_other_nodes_have_to_know_the_level() -> None:
    """Their registrations count, and an old one of this node does not."""
    old = BrokerFeature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=25)
    image = new_image(24)
    for node, is_refused in ((NODE, False), (2, True)):
        broker = RegisterBrokerRecord(broker_id=node, features=(old,))
        controller = RegisterControllerRecord(
            controller_id=node,
            features=(
                ControllerFeature(
                    name=METADATA_VERSION, min_supported_version=7, max_supported_version=25
                ),
            ),
        )
        for with_node in (
            replace(image, brokers={node: broker}),
            replace(image, controllers={node: controller}),
        ):
            assert plan(with_node, METADATA_VERSION, 25) == {METADATA_VERSION: 25}
            if is_refused:
                with pytest.raises(FeatureUpdateError, match=f" {node} knows the levels 7 to 25"):
                    plan(with_node, METADATA_VERSION, 26)
                with pytest.raises(FeatureUpdateError, match=f" {node} knows the levels 0 to 0"):
                    plan(with_node, "group.version", 1)
            else:
                assert plan(with_node, METADATA_VERSION, 26) == {METADATA_VERSION: 26}


def controller_at(files: MemoryFiles, image: MetadataImage, *, least: str = "2") -> Controller:
    """A controller whose log begins with an image, or with what it has already."""
    log = Node(files).open()
    if not log.image.features:
        log.append([*snapshot_records(image)])
    node = records.Node(node_id=NODE, directories={"data": DIRECTORY})
    defaults = TopicDefaults(
        partition_count=1, replication_factor=1, given={MIN_INSYNC_REPLICAS: least}
    )
    controller = Controller(log, node, chance=random.Random(1), defaults=defaults)
    controller.image = image_on_node(log.image, NODE)
    controller.register({"PLAINTEXT": records.Endpoint("localhost", 9092)})
    return controller


def test_levels_outlast_a_crash_and_a_dry_run_changes_none() -> None:
    """The changes of a request are there together."""
    files = MemoryFiles()
    controller = controller_at(files, new_image())
    changes = {
        "group.version": LevelChange(0, SAFE_DOWNGRADE),
        "transaction.version": LevelChange(1, SAFE_DOWNGRADE),
    }
    before = dict(controller.image.features)
    controller.change_features(changes, is_dry_run=True)
    assert controller.image.features == controller.log.image.features == before
    controller.change_features(changes, is_dry_run=False)
    expected = {**before, "transaction.version": 1}
    del expected["group.version"]
    assert controller.image.features == expected
    assert controller_at(files.crash(), new_image()).image.features == expected


def test_eligible_leaders_make_a_setting_common() -> None:
    """Brokers lose their own `min.insync.replicas`, and all get that of this broker, once."""
    image = new_image(25)
    own = {MIN_INSYNC_REPLICAS: "3", "log.cleaner.threads": "2"}
    for shared, expected in (({}, "2"), ({MIN_INSYNC_REPLICAS: "4"}, "4")):
        configs = {BROKER_1: own} | ({ALL_BROKERS: shared} if shared else {})
        controller = controller_at(MemoryFiles(), replace(image, configs=configs))
        controller.change_features({ELIGIBLE_LEADERS: LevelChange(1)}, is_dry_run=False)
        assert controller.log.image.configs == {
            BROKER_1: {"log.cleaner.threads": "2"},
            ALL_BROKERS: {MIN_INSYNC_REPLICAS: expected},
        }


def test_a_registration_names_its_directories_when_it_can() -> None:
    """Before level 17 it has none; the upgrade adds them, in the epoch of the registration."""
    controller = controller_at(MemoryFiles(), new_image(16))
    assert controller.log.image.brokers[NODE].log_dirs == ()
    controller.change_features({METADATA_VERSION: LevelChange(17)}, is_dry_run=False)
    broker = controller.log.image.brokers[NODE]
    assert (broker.log_dirs, broker.broker_epoch) == ((DIRECTORY,), controller.broker_epoch)


@pytest.mark.parametrize(
    ("release", "level"),
    [("3.3", 7), ("3.5", 11), ("4.2", 29), ("4.2.1", 29), ("4.2-IV0", 28), ("4.3", 30)],
)
def test_a_release_has_a_level(release: str, level: int) -> None:
    """A name without IV is the last level of the release."""
    assert metadata_level(release) == level


@pytest.mark.parametrize("release", ["3.3-IV2", "3.2", "4", "", "5.0", "4.2-", "4.2-IV1.1"])
def test_an_unknown_release(release: str) -> None:
    """One before 3.3-IV3 is unknown too, as nothing can begin with them."""
    with pytest.raises(ValueError, match=r"there are 3\.3-IV3 to 4\.3-IV0"):
        metadata_level(release)
