"""The report before a controller's directory is moved, its settings, and the commands."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from tailrace.broker.config import broker_config
from tailrace.broker.controller.start import start_controller
from tailrace.cluster.metadata.batches import BatchPlace, control_batch
from tailrace.config.sources import read_properties
from tailrace.offline.handover import (
    Controller,
    Effect,
    Handover,
    Side,
    next_steps,
    plan_handover,
    properties_text,
    server_properties,
)
from tailrace.offline.metadata_state import END, metadata_state
from tailrace.protocol.metadata_records import VotersRecord
from tailrace.records.control import ControlType
from tailrace.testing import MemoryFiles, Outside
from tests.unit.broker.controller.own_clusters import (
    CONTROLLER,
    PORT,
    OwnCluster,
    cluster_of_both,
    own_cluster,
)

LOG = "data/__cluster_metadata-0"
OTHERS = (Controller(101, "127.0.0.1", 9292), Controller(102, "kafka.example", 9293))


def hindrances(found: Handover) -> list[tuple[Side, str]]:
    """Everything that hinders the move."""
    return [(each.side, each.sentence) for each in found.notes if each.effect is Effect.HINDERS]


async def stopped(
    outside: Outside, *broker_ids: int, settings: dict[str, str] | None = None
) -> OwnCluster:
    """A controller that has stopped in order, and had these brokers."""
    async with own_cluster(outside, *broker_ids, settings=settings) as cluster:
        if broker_ids:
            await cluster.add_topic(replicas=broker_ids)
        return cluster


async def planned(
    outside: Outside, *broker_ids: int, settings: dict[str, str] | None = None
) -> Handover:
    """The report about the directory of `stopped`."""
    cluster = await stopped(outside, *broker_ids, settings=settings)
    return plan_handover(cluster.disks[CONTROLLER], ["data"])


async def test_a_controller_is_no_broker(outside: Outside) -> None:
    """It is ready after a stop; brokers and topics are understood, and nothing is missed."""
    found = await planned(outside, 1, 2)
    assert found.is_controller
    assert hindrances(found) == []
    understood = " ".join(each.sentence for each in found.notes)
    assert "1 topic with 1 partition and" in understood
    assert "registrations of the brokers 1, 2" in understood
    assert "other nodes" not in understood


async def test_a_node_with_both_roles_names_the_brokers_that_need_it(outside: Outside) -> None:
    """They are not state without effect: without its listener for controllers it does not start."""
    async with cluster_of_both(outside, 2) as cluster:
        await cluster.add_topic(replicas=(1, 2))
    found = plan_handover(cluster.disks[1], ["data"])
    assert not found.is_controller
    by_effect = {
        effect: " ".join(each.sentence for each in found.notes if each.effect is effect)
        for effect in Effect
    }
    assert "the brokers 2, whose controller this node is" in by_effect[Effect.UNDERSTOOD]
    assert "registrations" not in by_effect[Effect.KEPT]


async def test_a_controller_that_runs_is_not_ready(outside: Outside) -> None:
    """The settings can be written before the stop all the same."""
    async with own_cluster(outside, 1) as cluster:
        found = plan_handover(cluster.disks[CONTROLLER], ["data"])
        assert hindrances(found) == [(Side.BOTH, "a node has data open; stop it and ask again")]
        assert server_properties(found)["process.roles"] == "controller"


async def test_the_settings_are_those_of_both_sides(outside: Outside) -> None:
    """Kafka's names; and a controller of ours starts with the file."""
    found = await planned(outside, 1)
    settings = server_properties(found, OTHERS)
    assert settings == {
        "process.roles": "controller",
        "node.id": str(CONTROLLER),
        "log.dirs": "data",
        "controller.quorum.bootstrap.servers": f"memory:{PORT},127.0.0.1:9292,kafka.example:9293",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://:{PORT}",
        "advertised.listeners": f"CONTROLLER://memory:{PORT}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
    }
    given = read_properties(properties_text(server_properties(found)))
    assert given == settings | {"controller.quorum.bootstrap.servers": f"memory:{PORT}"}
    controller = await start_controller(broker_config(given), outside.runtime)
    assert controller.address == ("memory", PORT)
    await controller.stop()


async def test_static_voters_stay_in_the_settings(outside: Outside) -> None:
    """The log has no address then, which the report says."""
    voters = f"{CONTROLLER}@memory:{PORT}"
    found = await planned(outside, settings={"controller.quorum.voters": voters})
    settings = server_properties(found)
    assert settings["controller.quorum.voters"] == f"{CONTROLLER}@localhost:9093"
    assert "controller.quorum.bootstrap.servers" not in settings
    assert any("put it into the settings" in each.sentence for each in found.notes)


async def test_the_steps_have_ids_and_addresses(outside: Outside) -> None:
    """Commands that can be copied: Kafka's, those that add controllers, and the way back."""
    found = await planned(outside, 1, 2)
    steps = next_steps(found, OTHERS, path="c.properties")
    [port] = found.image.brokers[1].end_points
    commands = [each.strip() for each in steps if each.startswith("  ")]
    assert commands[0] == "kafka-server-start.sh c.properties"
    assert commands[-1] == (
        "tailrace serve --config c.properties "
        f"--override controller.quorum.bootstrap.servers=memory:{PORT}"
    )
    assert (
        f"kafka-storage.sh format --cluster-id {found.identity.cluster_id} "
        "--no-initial-controllers --config controller-102.properties"
    ) in commands
    assert {"node.id=102", "listeners=CONTROLLER://:9293"} <= {*commands}
    assert "advertised.listeners=CONTROLLER://kafka.example:9293" in commands
    [added] = [each for each in commands if "add-controller 101@" in each]
    assert added.startswith("tailrace cluster add-controller 101@127.0.0.1:9292 --bootstrap ")
    assert f"{port.host}:{port.port}" in added
    assert [each.split()[3] for each in commands if "remove-controller" in each] == ["101", "102"]


def append_voters(
    files: MemoryFiles, ids: Sequence[int], *, directory_id: UUID | None = None
) -> None:
    """A record that names other voters, as the controllers of Kafka's write it."""
    state = metadata_state(files, LOG, END, on_skip=lambda _: None)
    assert state.voters is not None
    [own] = state.voters.voters
    voters = VotersRecord(
        voters=tuple(
            replace(own, voter_id=each, voter_directory_id=directory_id or own.voter_directory_id)
            for each in ids
        )
    )
    place = BatchPlace(state.next_offset, state.epoch, 0)
    segment = max(each for each in files.list(LOG) if each.endswith(".log"))
    file = files.open(f"{LOG}/{segment}")
    file.write(file.size(), control_batch([(ControlType.VOTERS, voters)], place))
    file.sync()
    file.close()


@pytest.mark.parametrize("ids", [(CONTROLLER, 102, 103), (102, 103)])
async def test_other_voters_are_removed_first(outside: Outside, ids: tuple[int, ...]) -> None:
    """Tailrace leads only alone; the commands name the voters of the log."""
    disk = (await stopped(outside)).disks[CONTROLLER]
    append_voters(disk, ids)
    found = plan_handover(disk, ["data"])
    [(side, sentence)] = hindrances(found)
    assert side is Side.TAILRACE
    assert "`tailrace cluster remove-controller` removes the others" in sentence
    steps = next_steps(found, (), path="c")
    assert [each.split()[3] for each in steps if "remove-controller" in each] == ["102", "103"]


async def test_the_voter_of_another_directory_is_not_this_one(outside: Outside) -> None:
    """Kafka's controller would not vote; a start of ours names the directory."""
    disk = (await stopped(outside)).disks[CONTROLLER]
    append_voters(disk, [CONTROLLER], directory_id=UUID(int=9))
    [(side, sentence)] = hindrances(plan_handover(disk, ["data"]))
    assert side is Side.KAFKA
    assert "names another directory of node 100 as the voter" in sentence
    cluster = OwnCluster(outside)
    await cluster.start_controller()
    await cluster.controller.stop()
    assert plan_handover(disk, ["data"]).is_ready
