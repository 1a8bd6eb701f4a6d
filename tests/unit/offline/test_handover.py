"""The report before a move between Tailrace and Apache Kafka, and Kafka's settings for it."""

import json
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from tailrace.broker.config import broker_config
from tailrace.cluster.bootstrap import FILE as BOOTSTRAP
from tailrace.cluster.bootstrap import bootstrap_file, new_image
from tailrace.cluster.metadata.snapshot_files import find_snapshots
from tailrace.config.sources import read_properties
from tailrace.errors import DirectoryError
from tailrace.offline.handover import (
    Effect,
    Handover,
    Side,
    plan_handover,
    properties_text,
    server_properties,
)
from tailrace.protocol.fields import Record
from tailrace.protocol.metadata_records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    ClientQuotaRecord,
    ConfigRecord,
    Endpoint,
    EntityData,
    FeatureLevelRecord,
    KRaftVersionFeature,
    RegisterBrokerRecord,
    UserScramCredentialRecord,
    VotersRecord,
    VotersRecordVoter,
)
from tailrace.storage import names
from tailrace.storage.directories import MetaProperties, write_identity
from tailrace.testing import MemoryFiles, Outside, virtual_runtime
from tests.kraft import METADATA_FOLDER, METADATA_LOG, ROOT, kraft_directory
from tests.unit.broker.brokers import running
from tests.unit.cluster.metadata_logs import Node

MARK = f"{ROOT}/{names.CLEAN_SHUTDOWN}"
SECOND = "more"
UNIQUE = "0f" * 16


def put(files: MemoryFiles, path: str, content: bytes) -> None:
    """Write or replace a file."""
    if not files.exists(path):
        files.open(path, create=True).close()
    files.overwrite(path, content)


def append(files: MemoryFiles, *records: Record, version: int = 0) -> None:
    """Records behind those of the metadata log."""
    log = Node(files, ROOT).open()
    log.append([(each, version) for each in records])  # type: ignore[misc]
    log.close()


def hindrances(found: Handover) -> list[tuple[Side, str]]:
    """Everything that hinders the move."""
    return [(each.side, each.sentence) for each in found.notes if each.effect is Effect.HINDERS]


def kept(found: Handover) -> str:
    """Everything that is kept without effect."""
    return "\n".join(each.sentence for each in found.notes if each.effect is Effect.KEPT)


def serve(files: MemoryFiles) -> None:
    """Start our broker on the directory, and stop it in order."""

    async def work(outside: Outside) -> None:
        async with running(outside):
            pass

    with virtual_runtime(files=files) as outside:
        outside.loop.run_until_complete(work(outside))


def test_a_directory_that_was_stopped_in_order_is_ready() -> None:
    """Either broker can have it next: as Kafka has left it, and after a turn of ours."""
    files = kraft_directory()
    for _ in range(2):
        found = plan_handover(files, [ROOT])
        assert hindrances(found) == []
        assert found.is_ready
        assert (found.release, found.identity.node_id) == ("4.3-IV0", 1)
        understood = [each.sentence for each in found.notes if each.effect is Effect.UNDERSTOOD]
        assert "Kafka must be 4.3 or later" in understood[0]
        assert understood[1].startswith("3 topics with 3 partitions")
        assert "min.insync.replicas" not in kept(found)
        serve(files)


def unclean(files: MemoryFiles) -> None:
    """A broker that was killed."""
    files.remove(MARK)


def other_stop(files: MemoryFiles) -> None:
    """A mark of an earlier registration."""
    put(files, MARK, b'{"version":0,"brokerEpoch":5}')


def in_use(files: MemoryFiles) -> None:
    """A broker at work."""
    files.lock(f"{ROOT}/{names.LOCK}")


def stray(files: MemoryFiles) -> None:
    """A folder that a broker has set aside."""
    files.make_directory(f"{ROOT}/gone-0.{UNIQUE}-stray")


def unknown_folder(files: MemoryFiles) -> None:
    """A folder of no topic."""
    files.make_directory(f"{ROOT}/gone-0")


def unknown_partition(files: MemoryFiles) -> None:
    """A folder of no partition of its topic."""
    files.make_directory(f"{ROOT}/other-7")


def missing_folder(files: MemoryFiles) -> None:
    """A partition that lies in another directory."""
    files.remove_tree(f"{ROOT}/other-0")


def other_topic(files: MemoryFiles) -> None:
    """A folder that was left by a deleted topic of the same name."""
    put(files, f"{ROOT}/other-0/partition.metadata", b"version: 0\ntopic_id: " + b"A" * 21 + b"g\n")


def no_topic_id(files: MemoryFiles) -> None:
    """A folder without its topic id."""
    files.remove(f"{ROOT}/other-0/partition.metadata")


def bad_topic_id(files: MemoryFiles) -> None:
    """A folder with a file that is none."""
    put(files, f"{ROOT}/other-0/partition.metadata", b"nonsense")


def later_level(files: MemoryFiles) -> None:
    """A level of a later release."""
    append(files, FeatureLevelRecord(name="metadata.version", feature_level=31))


def other_voters(files: MemoryFiles) -> None:
    """One node of a quorum of three."""
    path = f"{METADATA_FOLDER}/quorum-state"
    state = json.loads(files.content(path))
    state["currentVoters"] = [{"voterId": each} for each in (1, 2, 3)]
    put(files, path, json.dumps(state).encode())


def bad_quorum_state(files: MemoryFiles) -> None:
    """A file that is none."""
    put(files, f"{METADATA_FOLDER}/quorum-state", b"{")


def small_segments(files: MemoryFiles) -> None:
    """A size with which Kafka does not start."""
    append(
        files,
        ConfigRecord(resource_type=2, resource_name="other", name="segment.bytes", value="4096"),
    )


def other_directory_id(files: MemoryFiles) -> None:
    """A directory that has lost its id and got another one."""
    identity = MetaProperties(
        cluster_id="4L6g3nShT-eMCtK--X86sw", node_id=1, directory_id="A" * 20 + "BA"
    )
    write_identity(files, ROOT, identity)


def encrypted(files: MemoryFiles) -> None:
    """A listener with TLS."""
    broker = plan_handover(files, [ROOT]).image.brokers[1]
    end = BrokerEndpoint(name="SAFE", host="h", port=1, security_protocol=1)
    append(files, replace(broker, end_points=(*broker.end_points, end)), version=4)


def damaged(files: MemoryFiles) -> None:
    """A flipped bit in the last batch of the metadata log."""
    data = bytearray(files.content(METADATA_LOG))
    data[-1] ^= 1
    files.overwrite(METADATA_LOG, bytes(data))


def lost(files: MemoryFiles) -> None:
    """A log that begins behind what is left of it."""
    files.rename(METADATA_LOG, f"{METADATA_FOLDER}/{9:020d}.log")
    for each in find_snapshots(files, METADATA_FOLDER):
        files.remove(each.path)


def no_state(files: MemoryFiles) -> None:
    """Bare folders."""
    files.remove_tree(METADATA_FOLDER)
    files.remove(f"{ROOT}/{BOOTSTRAP}")


@pytest.mark.parametrize(
    ("make", "side", "told"),
    [
        (unclean, Side.KAFKA, ".kafka_cleanshutdown is missing"),
        (other_stop, Side.KAFKA, "in order in epoch 5, and"),
        (in_use, Side.BOTH, "a node has data open"),
        (stray, Side.BOTH, "-stray was set aside"),
        (unknown_folder, Side.BOTH, "data/gone-0 is of no partition"),
        (unknown_partition, Side.BOTH, "data/other-7 is of no partition"),
        (missing_folder, Side.BOTH, "other-0 of this node have no folder"),
        (other_topic, Side.BOTH, "data/other-0 is of another topic"),
        (no_topic_id, Side.KAFKA, "data/other-0 has no partition.metadata"),
        (bad_topic_id, Side.KAFKA, "start Tailrace, which writes it again"),
        (later_level, Side.TAILRACE, "metadata.version is at level 31"),
        (other_voters, Side.TAILRACE, "the voters 1, 2, 3"),
        (bad_quorum_state, Side.BOTH, "cannot be understood"),
        (small_segments, Side.KAFKA, "topic other has segment.bytes 4096"),
        (other_directory_id, Side.KAFKA, "in another directory than the metadata says"),
        (damaged, Side.KAFKA, "is damaged at byte"),
        (lost, Side.BOTH, "cannot be proven"),
        (no_state, Side.KAFKA, "neither a metadata log nor bootstrap.checkpoint"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_hindrance_is_told(make: Callable[[MemoryFiles], None], side: Side, told: str) -> None:
    """It comes with the broker that it hinders, and nothing in the directory changes."""
    files = kraft_directory()
    make(files)
    before = len(files.operations)
    found = plan_handover(files, [ROOT])
    assert not found.is_ready
    assert [at for at, sentence in hindrances(found) if told in sentence] in ([side], [side] * 3)
    assert len(files.operations) == before
    assert server_properties(found)["node.id"] == "1"


def with_second(
    cluster_id: str = "4L6g3nShT-eMCtK--X86sw", node_id: int = 1, directory: int = 800
) -> MemoryFiles:
    """Kafka's directory, and another one of this identity."""
    files = kraft_directory()
    files.make_directory(SECOND)
    text = MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id="")
    own = "M0EqCp7dTv2yJ1Nk3ZfZ4Q" if directory else plan_handover(files, [ROOT]).identity
    given = own if isinstance(own, str) else own.directory_id
    write_identity(files, SECOND, replace(text, directory_id=given))
    put(files, f"{SECOND}/{names.CLEAN_SHUTDOWN}", files.content(MARK))
    return files


def test_directories_have_to_belong_together() -> None:
    """Node, cluster and the ids of the directories; and each has its `meta.properties`."""
    for files, told in (
        (with_second(), None),
        (with_second(node_id=2), "more belongs to node 2, and data to node 1"),
        (with_second(cluster_id="x"), "more belongs to another cluster than data"),
        (with_second(directory=0), "more and data have the same directory id"),
    ):
        sentences = [each for _, each in hindrances(plan_handover(files, [ROOT, SECOND]))]
        assert sentences == ([] if told is None else [sentences[0]])
        assert told is None or told in sentences[0]
    files = with_second()
    files.remove(f"{SECOND}/meta.properties")
    ((side, sentence),) = hindrances(plan_handover(files, [SECOND, ROOT]))
    assert side is Side.KAFKA
    assert sentence.endswith("format it with --cluster-id 4L6g3nShT-eMCtK--X86sw")
    files = with_second()
    files.make_directory(f"{SECOND}/other-0")
    put(files, f"{SECOND}/other-0/partition.metadata",
        files.content(f"{ROOT}/other-0/partition.metadata"))  # fmt: skip
    sentences = [each for _, each in hindrances(plan_handover(files, [ROOT, SECOND]))]
    assert "other-0 is in data/other-0 and more/other-0" in sentences
    files = with_second()
    files.make_directory(f"{SECOND}/__cluster_metadata-0")
    assert "a metadata log each" in hindrances(plan_handover(files, [ROOT, SECOND]))[0][1]


def test_folders_that_go_or_move_hinder_nothing() -> None:
    """Deleted partitions, copies on their way, and folders of topics that were removed."""
    files = kraft_directory()
    for name in (f"gone-0.{UNIQUE}-delete", f"events-0.{UNIQUE}-future"):
        files.make_directory(f"{ROOT}/{name}")
    assert plan_handover(files, [ROOT]).is_ready


@pytest.mark.parametrize("directory", [ROOT, SECOND])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("lost+found", "Kafka does not start beside it"),
        ("backup", "Kafka does not start beside it"),
        (".snapshot", "Kafka does not start beside it"),
        ("other-0.bak", "Kafka does not start beside it"),
        ("to-delete", "Kafka does not start beside it"),
        ("my notes-1", "Kafka would take it for one"),
        ("other-00", "Kafka would take it for one"),
    ],
)
def test_a_folder_of_others_hinders_kafka(directory: str, name: str, told: str) -> None:
    """Kafka takes every folder of log.dirs for a partition, in each directory; files are fine."""
    files = with_second()
    put(files, f"{directory}/backup.txt", b"")
    assert plan_handover(files, [ROOT, SECOND]).is_ready
    files.make_directory(f"{directory}/{name}")
    ((side, sentence),) = hindrances(plan_handover(files, [ROOT, SECOND]))
    assert side is Side.KAFKA
    assert sentence.startswith(f"{directory}/{name} ")
    assert told in sentence


def test_a_formatted_directory_is_ready() -> None:
    """It has levels and no topics; nobody has registered, so no mark is asked for."""
    files = MemoryFiles()
    files.make_directory(ROOT)
    put(files, f"{ROOT}/{BOOTSTRAP}", bootstrap_file(new_image(25), now_ms=0))
    identity = MetaProperties(cluster_id="c", node_id=4, directory_id="M0EqCp7dTv2yJ1Nk3ZfZ4Q")
    write_identity(files, ROOT, identity)
    found = plan_handover(files, [ROOT])
    assert (found.is_ready, found.release) == (True, "4.0-IV3")
    assert server_properties(found)["advertised.listeners"] == "PLAINTEXT://localhost:9092"


def test_a_directory_of_nobody_is_refused() -> None:
    """Without any identity there is no node that could hand it over."""
    files = MemoryFiles()
    files.make_directory(ROOT)
    with pytest.raises(DirectoryError, match=r"data has no meta\.properties"):
        plan_handover(files, [ROOT])
    with pytest.raises(DirectoryError, match="cannot read nonsuch"):
        plan_handover(files, ["nonsuch"])


def test_settings_of_secured_listeners_have_to_be_added() -> None:
    """They are in no directory; both brokers have such listeners."""
    files = kraft_directory()
    encrypted(files)
    found = plan_handover(files, [ROOT])
    assert found.is_ready
    assert any("a login: SAFE; their certificates" in each.sentence for each in found.notes)


def test_what_tailrace_does_not_act_on_is_told() -> None:
    """Settings of others; users, rights, quotas and other brokers count."""
    files = kraft_directory()
    user = EntityData(entity_type="user", entity_name="ann")

    def setting(kind: int, owner: str, name: str) -> ConfigRecord:
        return ConfigRecord(resource_type=kind, resource_name=owner, name=name, value="1")

    append(
        files,
        UserScramCredentialRecord(name="ann", mechanism=1, iterations=4096),
        AccessControlEntryRecord(id=UUID(int=9), resource_name="r", principal="p", host="h"),
        ClientQuotaRecord(entity=(user,), key="producer_byte_rate", value=1.0),
        setting(4, "1", "log.cleaner.threads"),
        setting(16, "m", "interval.ms"),
        setting(2, "other", "from.the.future"),
        setting(32, "g", "consumer.session.timeout.ms"),
        RegisterBrokerRecord(broker_id=7),
    )
    found = plan_handover(files, [ROOT])
    for told in (
        "log.cleaner.threads of 1",
        "client metrics: interval.ms of m",
        "not known, or not possible: from.the.future of other",
        "share groups are not served",
    ):
        assert told in kept(found)
    understood = "\n".join(each.sentence for each in found.notes)
    assert "1 user with a SCRAM password" in understood
    assert "access control entries, 1 in all" in understood
    assert "the brokers 7, whose controller this node is" in understood
    assert "settings of the groups g" in understood
    assert "quotas of 1 users, client ids and addresses" in understood
    assert found.is_ready


def test_settings_name_this_node_alone() -> None:
    """The file has them as Kafka and our broker read them."""
    found = plan_handover(kraft_directory(), [ROOT])
    settings = server_properties(found)
    assert settings["process.roles"] == "broker,controller"
    assert settings["controller.quorum.voters"] == "1@localhost:9093"
    assert settings["listeners"].endswith(",CONTROLLER://localhost:9093")
    assert settings["advertised.listeners"].startswith("PLAINTEXT://127.0.0.1:")
    assert settings["offsets.topic.replication.factor"] == "1"
    assert "metadata.log.dir" not in settings
    given = read_properties(properties_text(settings))
    assert given == settings
    config = broker_config(given)
    assert (config.node_id, config.log_dirs) == (1, (ROOT,))
    assert [each.host for each in config.listeners] == ["127.0.0.1"]


def test_the_directory_of_the_metadata_log_is_named_if_it_is_not_the_first() -> None:
    """Kafka looks for it in the first one otherwise."""
    settings = server_properties(plan_handover(with_second(), [SECOND, ROOT]))
    assert settings["log.dirs"] == f"{SECOND},{ROOT}"
    assert settings["metadata.log.dir"] == ROOT


def test_listeners_are_those_that_were_registered() -> None:
    """A host of its own is advertised, and all addresses are listened on; ports do not collide."""
    found = plan_handover(kraft_directory(), [ROOT])
    ends = (
        BrokerEndpoint(name="INSIDE", host="kafka.example", port=9093, security_protocol=0),
        BrokerEndpoint(name="SSL", host="::1", port=9095, security_protocol=1),
        BrokerEndpoint(name="LATER", host="h", port=1, security_protocol=9),
    )
    image = replace(found.image, brokers={1: replace(found.image.brokers[1], end_points=ends)})
    settings = server_properties(replace(found, image=image))
    assert settings["listeners"] == "INSIDE://:9093,SSL://[::1]:9095,CONTROLLER://localhost:9094"
    assert settings["advertised.listeners"] == "INSIDE://kafka.example:9093,SSL://[::1]:9095"
    assert settings["inter.broker.listener.name"] == "INSIDE"
    protocols = "INSIDE:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
    assert settings["listener.security.protocol.map"] == protocols


def test_a_voter_in_the_log_says_where_the_controller_listens() -> None:
    """With `kraft.version` 1 Kafka refuses `controller.quorum.voters`."""
    from tailrace.protocol.metadata_records import KRaftVersionRecord

    found = plan_handover(kraft_directory(), [ROOT])
    voter = VotersRecordVoter(
        voter_id=1,
        voter_directory_id=UUID(int=7),
        endpoints=(Endpoint(name="C", host="127.0.0.1", port=9099),),
        kraft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
    )
    found.replay.quorum = {
        "KRaftVersionRecord": KRaftVersionRecord(kraft_version=1),
        "VotersRecord": VotersRecord(version=0, voters=(voter,)),
    }
    settings = server_properties(found)
    assert settings["controller.quorum.bootstrap.servers"] == "127.0.0.1:9099"
    assert settings["controller.listener.names"] == "C"
    assert "controller.quorum.voters" not in settings


def test_a_path_with_a_backslash_is_escaped() -> None:
    """Properties files have it as the beginning of an escape."""
    assert "log.dirs=a\\\\b\n" in properties_text({"log.dirs": "a\\b"})
