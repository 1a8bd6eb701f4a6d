"""Places for the replicas of old brokers, and faults that are found before anything moves."""

from typing import Any

import pytest

from tailrace.client.admin.cluster import BrokerNode
from tailrace.client.admin.replicas import Reassignment
from tailrace.client.migration.plan import Order, Plan, plan_migration
from tailrace.client.migration.survey import Survey
from tailrace.client.reader import PartitionDescription
from tailrace.errors import FatalError
from tailrace.model import TopicPartition
from tailrace.values import replace

ORDER = Order(source=(1, 2, 3), target=(4, 5, 6))


def at(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


def partition(*replicas: int, **fields: Any) -> PartitionDescription:
    """A partition whose replicas are in sync, led by the first."""
    given: dict[str, Any] = {"leader": replicas[0], "isr": replicas} | fields
    return PartitionDescription(partition=0, leader_epoch=1, replicas=replicas, offline=(), **given)


def survey(
    partitions: dict[TopicPartition, PartitionDescription],
    *,
    racks: dict[int, str] | None = None,
    **fields: Any,
) -> Survey:
    """Six brokers, of which three are new; each partition has 100 bytes."""
    brokers = {
        each: BrokerNode(id=each, host="h", port=9092, rack=(racks or {}).get(each))
        for each in range(1, 7)
    }
    sizes: dict[int, dict[TopicPartition, int]] = {each: {} for each in brokers}
    for name, state in partitions.items():
        for each in state.replicas:
            sizes.setdefault(each, {})[name] = 100
    default: dict[str, Any] = {
        "brokers": brokers,
        "voters": frozenset({100}),
        "partitions": partitions,
        "internal": frozenset({"__consumer_offsets"}),
        "moving": {},
        "sizes": sizes,
        "room": dict.fromkeys((4, 5, 6), 1000),
        "silent": {},
        "apis": {},
    }
    default |= fields
    return Survey(**{"room_apart": default["room"], **default})


def targets(plan: Plan) -> list[tuple[int, ...]]:
    assert plan.faults == ()
    return [each.target for each in plan.moves]


def test_each_old_broker_has_a_twin() -> None:
    """So the order of replicas stays, and with it the spread of leaders."""
    found = survey({at(0): partition(1, 2, 3), at(1): partition(2, 3, 1), at(2): partition(3, 2)})
    assert targets(plan_migration(found, ORDER)) == [(4, 5, 6), (5, 6, 4), (6, 5)]


def test_a_twin_is_in_the_same_rack() -> None:
    """Whatever the order of ids is; a broker whose rack has no new one gets what is left."""
    racks = {1: "a", 2: "b", 3: "c", 4: "c", 5: "x", 6: "a"}
    found = survey({at(0): partition(1, 2, 3)}, racks=racks)
    plan = plan_migration(found, ORDER)
    assert targets(plan) == [(6, 5, 4)]
    assert plan.notes == ()


def test_more_new_brokers_share_what_few_had() -> None:
    """Replicas and leaders are spread over all of them."""
    found = survey({at(each): partition(1) for each in range(6)})
    plan = plan_migration(found, Order(source=(1,), target=(4, 5, 6)))
    assert targets(plan) == [(4,), (5,), (6,)] * 2


def test_fewer_new_brokers_take_what_many_had() -> None:
    """A broker has one replica of a partition, though it stands for several old brokers."""
    found = survey({at(0): partition(1, 2), at(1): partition(2, 3), at(2): partition(3, 1)})
    plan = plan_migration(found, Order(source=(1, 2, 3), target=(4, 5)))
    assert [sorted(each) for each in targets(plan)] == [[4, 5]] * 3
    assert {each[0] for each in targets(plan)} == {4, 5}


def test_replicas_in_different_racks_stay_apart() -> None:
    """Also where no new broker is in an old rack."""
    racks = {1: "a", 2: "b", 4: "x", 5: "x", 6: "y"}
    found = survey({at(0): partition(1, 2)}, racks=racks)
    plan = plan_migration(found, Order(source=(1, 2), target=(4, 5, 6)))
    assert targets(plan) == [(6, 4)] or targets(plan) == [(4, 6)]


def test_lost_racks_are_noted() -> None:
    """It is no reason not to move, and an operator might not see it."""
    racks = {1: "a", 2: "b", 4: "x", 5: "x"}
    found = survey({at(0): partition(1, 2)}, racks=racks)
    (note,) = plan_migration(found, Order(source=(1, 2), target=(4, 5))).notes
    assert "t-0 will share racks that they did not share" in note


def test_other_brokers_keep_what_they_have() -> None:
    """Replicas on brokers in neither list stay where they are in the list."""
    found = survey({at(0): partition(3, 1), at(1): partition(3)})
    assert targets(plan_migration(found, Order(source=(1,), target=(4,)))) == [(3, 4)]


def test_topics_of_kafka_itself_come_last() -> None:
    """They move too; what is wrong shows with a topic of the user."""
    found = survey({at(0, "__consumer_offsets"): partition(1), at(0, "z"): partition(1)})
    moves = plan_migration(found, ORDER).moves
    assert [each.partition.topic for each in moves] == ["z", "__consumer_offsets"]


def test_what_has_moved_is_done() -> None:
    """A partition that an earlier run has moved is not looked at again."""
    found = survey({at(0): partition(4, 5, 6), at(1): partition(1, 2, 3)})
    assert [each.partition for each in plan_migration(found, ORDER).moves] == [at(1)]


def test_what_is_under_way_is_continued() -> None:
    """A reassignment from old brokers to new ones is that of an earlier run, to where it goes."""
    moved = Reassignment(replicas=(6, 5, 1, 2), adding=(5, 6), removing=(1, 2))
    found = survey(
        {at(0): partition(6, 5, 1, 2, leader=1, isr=(1, 2))},
        moving={at(0): moved},
        sizes={1: {at(0): 100}, 5: {at(0): 40}},
        room={4: 0, 5: 60, 6: 100},
    )
    plan = plan_migration(found, replace(ORDER, target=(5, 6)))
    (move,) = plan.current
    assert (move.replicas, move.target, move.copied_bytes) == ((1, 2), (6, 5), 200)
    # What is there needs no room again.
    assert plan.faults == ()


@pytest.mark.parametrize(
    "moved",
    [
        Reassignment(replicas=(1, 2), adding=(2,), removing=()),
        Reassignment(replicas=(4, 7, 1), adding=(4, 7), removing=(1,)),
        Reassignment(replicas=(4, 1, 7), adding=(4,), removing=(1, 7)),
    ],
)
def test_a_reassignment_of_others_is_not_touched(moved: Reassignment) -> None:
    """It is a fault before anything moves."""
    found = survey({at(0): partition(*moved.replicas[:2])}, moving={at(0): moved})
    plan = plan_migration(found, ORDER)
    assert "another reassignment is under way, of t-0" in plan.faults[0]
    assert plan.all == ()


def fault(found: Survey, order: Order = ORDER) -> str:
    (fault,) = plan_migration(found, order).faults
    return fault


def test_new_brokers_have_to_be_in_service() -> None:
    """Each fault names the broker, and what to do."""
    state = survey({})
    brokers = dict(state.brokers)
    fenced = replace(brokers[5], is_fenced=True)
    assert "broker 5 of --to is fenced" in fault(replace(state, brokers={**brokers, 5: fenced}))
    del brokers[6]
    assert "broker 6 of --to is not registered: start" in fault(replace(state, brokers=brokers))
    room = {4: 1000, 6: 1000}
    silent = replace(state, room=room, silent={5: FatalError("it is deaf")})
    assert fault(silent) == "broker 5 of --to does not answer: it is deaf"
    assert "no room in any log directory that is in" in fault(replace(state, room={**room, 5: 0}))


def test_new_brokers_have_to_be_enough() -> None:
    """For the replicas of each partition, all on different brokers."""
    found = survey({at(0): partition(1, 2, 3), at(1): partition(1, 2)})
    said = fault(found, replace(ORDER, target=(4, 5)))
    assert "brokers 4, 5 cannot take all replicas of t-0:" in said


def test_new_brokers_need_room() -> None:
    """For everything that they get."""
    names = {at(each): partition(1) for each in range(11)}
    assert fault(survey(names), replace(ORDER, source=(1, 2, 3))).startswith(
        "broker 4 has room for 1.0 kB and would get 1.1 kB"
    )
    unknown = plan_migration(survey(names, room=dict.fromkeys((4, 5, 6))), ORDER)
    assert unknown.faults == ()
    assert "brokers 4, 5, 6 cannot tell how much room there is" in unknown.notes


def test_a_partition_without_a_leader_cannot_be_copied() -> None:
    """Named are a few of them."""
    names = {at(each): partition(1, leader=-1, isr=()) for each in range(7)}
    assert "no broker leads t-0, t-1, t-2, t-3, t-4 and 2 more" in fault(survey(names))


def test_what_an_operator_should_know_is_noted() -> None:
    """None of it prevents the move."""
    apis = {1: frozenset({0, 1, 78}), 4: frozenset({0, 1}), 5: frozenset({1, 0})}
    found = survey({at(0): partition(1, 2, isr=(1,))}, voters=frozenset({2}), apis=apis)
    order = Order(source=(1, 2, 9), target=(4, 5, 6))
    notes = plan_migration(found, order).notes
    assert "broker 2 of --from is a controller too" in notes[0]
    assert notes[1:] == (
        "broker 9 of --from is not registered",
        "replicas of t-0 are out of sync already",
        "not served by brokers 4, 5, and by those of --from: ShareFetch",
    )
