"""Log directories are formatted whole or not at all, and brokers begin with their levels."""

import random
from collections.abc import Mapping

import pytest

from tailrace.cluster.bootstrap import FILE as BOOTSTRAP
from tailrace.cluster.bootstrap import bootstrap_file, first_image, new_image
from tailrace.cluster.metadata.features import (
    ELIGIBLE_LEADERS,
    FeatureUpdateError,
    initial_levels,
    metadata_level,
)
from tailrace.cluster.metadata.image import ALL_BROKERS, METADATA_VERSION, MetadataImage
from tailrace.errors import DirectoryError
from tailrace.offline.formatting import Formatted, Wanted, format_directories, levels_of
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.update_features import FeatureUpdateKey
from tailrace.storage import names
from tailrace.storage.directories import read_identity
from tailrace.testing import MemoryFiles, Outside, ProcessKilledError, virtual_runtime
from tests.kraft import ROOT, kraft_directory
from tests.unit.broker.brokers import batch, connect, create_topic, produce, running
from tests.unit.broker.test_update_features import update
from tests.unit.storage.builders import SetClock

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
BOTH = ("a", "b")


def format_on(
    files: MemoryFiles,
    *directories: str,
    levels: Mapping[str, int] | None = None,
    cluster_id: str | None = None,
    node_id: int | None = None,
    ignores_formatted: bool = False,
    seed: int = 0,
) -> tuple[Formatted, ...]:
    """Format directories for the newest levels."""
    wanted = Wanted(
        cluster_id=cluster_id,
        node_id=node_id,
        levels=initial_levels() if levels is None else levels,
        ignores_formatted=ignores_formatted,
    )
    return format_directories(
        files, directories, wanted, clock=SetClock(), chance=random.Random(seed)
    )


def test_directories_of_one_node() -> None:
    """They have one cluster id and ids of their own, and each has the levels."""
    files = MemoryFiles()
    one, two = format_on(files, *BOTH, node_id=7)
    assert one.is_new
    assert one.identity.cluster_id == two.identity.cluster_id
    assert one.identity.directory_id != two.identity.directory_id
    for each in (one, two):
        assert each.identity.node_id == 7
        assert read_identity(files, each.path) == each.identity
        expected = bootstrap_file(new_image(), now_ms=SetClock().now_ms())
        assert files.content(f"{each.path}/{BOOTSTRAP}") == expected
        assert sorted(files.list(each.path)) == [BOOTSTRAP, names.META_PROPERTIES]


def test_the_identity_is_written_behind_everything_else() -> None:
    """A directory counts as formatted when all is there."""
    files = MemoryFiles()
    format_on(files, *BOTH)
    renamed = [path for kind, path in files.operations if kind == "rename"]
    assert [each.partition("/")[2].removesuffix(".tmp") for each in renamed] == [
        BOOTSTRAP, BOOTSTRAP, names.META_PROPERTIES, names.META_PROPERTIES,
    ]  # fmt: skip


def test_a_crash_leaves_directories_that_can_be_formatted() -> None:
    """Wherever it comes: a second attempt ends with what the first one was to do."""
    count = 0
    while True:
        files = MemoryFiles()
        files.stop_at = count
        try:
            format_on(files, *BOTH, cluster_id=CLUSTER)
        except ProcessKilledError:
            pass
        else:
            break
        for keep_unsynced in (False, True):
            for seed in range(4):
                disk = files.crash(keep_unsynced=keep_unsynced, chance=random.Random(seed))
                found = format_on(
                    disk, *BOTH, cluster_id=CLUSTER, ignores_formatted=True, seed=seed
                )
                for each in found:
                    image = first_image(disk, each.path, min_insync_replicas="1")
                    assert image.features == initial_levels()
                    assert read_identity(disk, each.path) == each.identity
        count += 1
    assert count > 10


def test_formatted_directories_are_an_error_or_stay() -> None:
    """A new one joins their node and cluster; nothing of the others changes."""
    files = MemoryFiles()
    (first,) = format_on(files, "a", node_id=7)
    with pytest.raises(DirectoryError, match="a is formatted already, for node 7"):
        format_on(files, *BOTH)
    assert not files.exists("b")
    before = files.content(f"a/{names.META_PROPERTIES}")
    again, new = format_on(files, *BOTH, ignores_formatted=True, seed=1)
    assert (again.identity, again.is_new, new.is_new) == (first.identity, False, True)
    assert (new.identity.cluster_id, new.identity.node_id) == (first.identity.cluster_id, 7)
    assert files.content(f"a/{names.META_PROPERTIES}") == before


@pytest.mark.parametrize(
    ("cluster_id", "node_id"), [(CLUSTER, None), (None, 8)], ids=["cluster", "node"]
)
def test_a_directory_of_another_node_or_cluster_is_refused(
    cluster_id: str | None, node_id: int | None
) -> None:
    """Nothing is formatted beside it."""
    files = MemoryFiles()
    format_on(files, "a")
    with pytest.raises(DirectoryError, match="a belongs to node 1 of cluster"):
        format_on(files, *BOTH, cluster_id=cluster_id, node_id=node_id, ignores_formatted=True)
    assert not files.exists("b")


@pytest.mark.parametrize("cluster_id", ["my-cluster", "MkU3OEVBNTcwNTJENDM2Qk", "#=:!"])
def test_a_cluster_may_have_any_word_for_its_id(cluster_id: str) -> None:
    """Kafka's storage tool takes it too, and so do its files."""
    files = MemoryFiles()
    format_on(files, "a", cluster_id=cluster_id)
    found = read_identity(files, "a")
    assert found is not None
    assert found.cluster_id == cluster_id


def test_directories_that_cannot_be_formatted() -> None:
    """One sentence says why, and nothing is written."""
    files = kraft_directory()
    files.remove(f"{ROOT}/{names.META_PROPERTIES}")
    with pytest.raises(DirectoryError, match=r"has a metadata log and no meta\.properties"):
        format_on(files, ROOT)
    files.remove_tree(f"{ROOT}/__cluster_metadata-0")
    with pytest.raises(DirectoryError, match="tailrace serve takes them over"):
        format_on(files, ROOT)
    with pytest.raises(DirectoryError, match="given twice"):
        format_on(files, "a", "a")
    for wrong in ("", "my cluster", "a\\\\b", "caf\u00e9"):
        with pytest.raises(DirectoryError, match="is no cluster id; it has to be a word"):
            format_on(files, "a", cluster_id=wrong)
    assert not files.exists("a")


def test_levels_are_those_of_a_release_and_what_is_given() -> None:
    """In the order of Kafka's storage tool; level 0 leaves a feature out.

    Whether the log names the voters (`kraft.version`) is not for a format to say: a start does.
    """
    assert levels_of(None, {}) == initial_levels()
    assert next(iter(levels_of(None, {}))) == METADATA_VERSION
    assert levels_of(metadata_level("3.3"), {}) == {METADATA_VERSION: 7}
    given = {"group.version": 0, ELIGIBLE_LEADERS: 1}
    found = levels_of(metadata_level("4.0"), given)
    assert list(found.items()) == [
        (METADATA_VERSION, 25), (ELIGIBLE_LEADERS, 1), ("transaction.version", 2),
    ]  # fmt: skip
    assert levels_of(None, {METADATA_VERSION: 21}) == {METADATA_VERSION: 21}
    for wrong in (
        {"nonsense": 1},
        {METADATA_VERSION: 31},
        {"kraft.version": 0},
        {"kraft.version": 1},
        {METADATA_VERSION: 22, ELIGIBLE_LEADERS: 1},
    ):
        with pytest.raises(FeatureUpdateError):
            levels_of(None, wrong)


@pytest.mark.parametrize("release", ["3.3", "3.7", "3.9", "4.0", "4.1", "4.3"])
def test_a_broker_begins_with_the_levels(release: str) -> None:
    """It serves, and can be upgraded; the next start has the new levels and the records."""
    files = MemoryFiles()
    levels = levels_of(metadata_level(release), {})
    format_on(files, "data", levels=levels, node_id=7)
    newest = initial_levels()

    async def work(outside: Outside, expected: Mapping[str, int], topic: str) -> MetadataImage:
        async with running(outside, {"node.id": "7", "min.insync.replicas": "1"}) as broker:
            peer = connect(outside, broker)
            assert broker.controller.image.features == expected
            assert (await create_topic(peer, topic)).error_code == ErrorCode.NONE
            answer = await produce(peer, topic, batch(b"v"))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
            changes = (
                FeatureUpdateKey(feature=name, max_version_level=level)
                for name, level in newest.items()
            )
            assert (await update(peer, *changes)).error_code == ErrorCode.NONE
            return broker.controller.log.image

    with virtual_runtime(files=files) as outside:
        image = outside.loop.run_until_complete(work(outside, levels, "old"))
    assert image.configs[ALL_BROKERS] == {"min.insync.replicas": "1"}
    with virtual_runtime(files=files) as outside:
        image = outside.loop.run_until_complete(work(outside, newest, "new"))
    assert image.topic_ids.keys() == {"old", "new"}
    directory = image.brokers[7].log_dirs
    for topic in image.topics.values():
        assert topic.partitions[0].directories == directory
