"""Settings of single consumer groups: set, described, in effect, and there after a crash."""

from contextlib import suppress
from dataclasses import replace

import pytest

from tailrace.cluster.topic_rules import GROUPS_MAX
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.config_resources import ConfigOperation
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from tailrace.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tailrace.testing import MemoryFiles, Outside, Peer, ProcessKilledError, virtual_runtime
from tests.unit.broker.brokers import connect, create_topic, running
from tests.unit.broker.test_configs import Change, alter_all, by_name, describe, resource, set_to
from tests.unit.broker.test_consumer_groups import beat, beating, joining
from tests.unit.broker.test_groups import find

GROUP = 32
OWN, DEFAULT = 8, 5
SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"


async def alter(peer: Peer, *changes: Change, name: str = "g", is_dry_run: bool = False) -> int:
    """The code for changes to the settings of a group."""
    wanted = resource(*changes, name=name, kind=GROUP)
    (answer,) = await alter_all(peer, wanted, validate_only=is_dry_run)
    assert bool(answer.error_message) == bool(answer.error_code)
    return answer.error_code


async def values(peer: Peer, name: str = "g") -> dict[str, tuple[str | None, int]]:
    """Value and source of each setting of a group."""
    found = by_name(await describe(peer, name, kind=GROUP))
    return {name: (each.value, each.config_source) for name, each in found.items()}


async def listed(peer: Peer) -> list[str]:
    """The groups that ListConfigResources names."""
    request = ListConfigResourcesRequest(resource_types=(GROUP,))
    answer = await peer.ask(ApiKey.LIST_CONFIG_RESOURCES, request, ListConfigResourcesResponse)
    return [each.resource_name for each in answer.config_resources]


async def test_a_setting_of_a_group_counts_from_the_next_heartbeat_on(outside: Outside) -> None:
    """Other groups keep the broker's value, and so does this one when its own is deleted."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await find(peer)
        await create_topic(peer, "t")
        joined = await beat(peer, joining("m1"))
        assert joined.heartbeat_interval_ms == 5_000
        assert await alter(peer, set_to(HEARTBEAT, "9000"), set_to(SESSION, "60000")) == 0
        answer = await beat(peer, beating("m1", joined.member_epoch))
        assert answer.heartbeat_interval_ms == 9_000
        assert (await beat(peer, joining("m1", group_id="h"))).heartbeat_interval_ms == 5_000
        await outside.pass_time(50)
        answer = await beat(peer, beating("m1", joined.member_epoch))
        assert answer.error_code == ErrorCode.NONE
        assert await alter(peer, (SESSION, ConfigOperation.DELETE, None)) == 0
        await beat(peer, beating("m1", joined.member_epoch))
        await outside.pass_time(50)
        answer = await beat(peer, beating("m1", joined.member_epoch))
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_settings_of_a_group_are_described_with_their_source(outside: Outside) -> None:
    """A group need not exist; it has the broker's values, and its own where it has some."""
    async with running(outside, {"group.consumer.session.timeout.ms": "50000"}) as broker:
        peer = connect(outside, broker)
        defaults = {
            SESSION: ("50000", DEFAULT),
            HEARTBEAT: ("5000", DEFAULT),
            ASSIGNMENT: ("1000", DEFAULT),
        }
        assert await values(peer) == defaults
        assert await listed(peer) == []
        assert await alter(peer, set_to(ASSIGNMENT, "0"), is_dry_run=True) == 0
        assert await values(peer) == defaults
        assert await alter(peer, set_to(ASSIGNMENT, "0")) == 0
        assert await values(peer) == defaults | {ASSIGNMENT: ("0", OWN)}
        assert await listed(peer) == ["g"]
        assert await values(peer, "other") == defaults
        assert await alter(peer, (ASSIGNMENT, ConfigOperation.DELETE, None)) == 0
        assert await listed(peer) == []


async def test_the_old_request_replaces_the_settings_of_a_group(outside: Outside) -> None:
    """Settings that it does not name go back to the broker's."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        assert await alter(peer, set_to(HEARTBEAT, "6000"), set_to(SESSION, "60000")) == 0
        wanted = AlterConfigsResource(
            resource_type=GROUP,
            resource_name="g",
            configs=(AlterableConfig(name=SESSION, value="55000"),),
        )
        request = AlterConfigsRequest(resources=(wanted,))
        answer = await peer.ask(ApiKey.ALTER_CONFIGS, request, AlterConfigsResponse)
        assert answer.responses[0].error_code == ErrorCode.NONE
        found = await values(peer)
        assert (found[SESSION], found[HEARTBEAT]) == (("55000", OWN), ("5000", DEFAULT))


@pytest.mark.parametrize(
    "changes",
    [
        (set_to(SESSION, "44999"),),
        (set_to(SESSION, "60001"),),
        (set_to(HEARTBEAT, "4999"),),
        (set_to(HEARTBEAT, "15001"),),
        (set_to(ASSIGNMENT, "15001"),),
        (set_to(SESSION, "soon"),),
        (set_to("share.session.timeout.ms", "45000"),),
        (set_to("streams.heartbeat.interval.ms", "5000"),),
        (set_to("retention.ms", "1"),),
        ((SESSION, ConfigOperation.APPEND, "50000"),),
        (set_to(HEARTBEAT, "6000"), set_to(SESSION, "1")),
    ],
)
async def test_settings_that_a_group_cannot_have(
    outside: Outside, changes: tuple[Change, ...]
) -> None:
    """Out of the broker's limits, no numbers, of other kinds of groups: nothing changes."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        assert await alter(peer, *changes) == ErrorCode.INVALID_CONFIG
        assert await listed(peer) == []


async def test_a_session_is_longer_than_the_interval_of_heartbeats(outside: Outside) -> None:
    """A member would be removed between two of them."""
    limits = {
        "group.consumer.min.session.timeout.ms": "10000",
        "group.consumer.max.heartbeat.interval.ms": "20000",
    }
    async with running(outside, limits) as broker:
        peer = connect(outside, broker)
        equal = set_to(HEARTBEAT, "20000"), set_to(SESSION, "20000")
        assert await alter(peer, *equal) == ErrorCode.INVALID_CONFIG
        assert await alter(peer, set_to(HEARTBEAT, "20000"), set_to(SESSION, "20001")) == 0


async def test_too_many_groups_with_settings_are_refused(outside: Outside) -> None:
    """Groups need not exist, so clients could fill the memory with them."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        many = {str(number): {SESSION: "60000"} for number in range(GROUPS_MAX)}
        broker.controller.image = replace(broker.controller.image, group_configs=many)
        assert await alter(peer, set_to(SESSION, "60000")) == ErrorCode.POLICY_VIOLATION
        assert await alter(peer, set_to(SESSION, "50000"), name="7") == 0
        assert await alter(peer, (SESSION, ConfigOperation.DELETE, None), name="8") == 0
        assert await alter(peer, set_to(SESSION, "60000")) == 0


async def test_other_limits_of_the_broker_bound_what_groups_have(outside: Outside) -> None:
    """After a restart with narrower limits the nearest one counts; the setting stays."""
    wide = {
        "group.consumer.min.heartbeat.interval.ms": "1",
        "group.consumer.max.session.timeout.ms": "70000",
    }
    async with running(outside, wide) as broker:
        changes = set_to(HEARTBEAT, "1"), set_to(SESSION, "70000")
        assert await alter(connect(outside, broker), *changes) == 0
        assert await alter(connect(outside, broker), set_to(HEARTBEAT, "15000"), name="h") == 0
    async with running(outside, {"group.consumer.max.heartbeat.interval.ms": "7000"}) as broker:
        peer = connect(outside, broker)
        await find(peer)
        await create_topic(peer, "t")
        assert (await beat(peer, joining("m1", group_id="h"))).heartbeat_interval_ms == 7_000
        joined = await beat(peer, joining("m1"))
        assert joined.heartbeat_interval_ms == 5_000
        await outside.pass_time(59)
        answer = await beat(peer, beating("m1", joined.member_epoch))
        assert answer.error_code == ErrorCode.NONE
        await outside.pass_time(61)
        answer = await beat(peer, beating("m1", joined.member_epoch))
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        found = await values(peer)
        assert (found[HEARTBEAT], found[SESSION]) == (("1", OWN), ("70000", OWN))


def test_a_crash_leaves_the_old_settings_of_a_group_or_the_new() -> None:
    """A kill or a power loss at any file operation; and the new ones once they are answered."""
    seen: set[str | None] = set()
    answered: list[int] = []
    operation = 0
    while not answered:
        operation += 1
        disks: list[MemoryFiles] = []

        async def crash(
            outside: Outside, operation: int = operation, disks: list[MemoryFiles] = disks
        ) -> None:
            async with running(outside) as broker:
                peer = connect(outside, broker)
                assert await alter(peer, set_to(SESSION, "50000")) == 0
                disk = outside.files
                disk.stop_at = len(disk.operations) + operation
                asked = outside.loop.create_task(alter(peer, set_to(SESSION, "60000")))
                with suppress(ProcessKilledError):
                    await outside.pass_time(0.1)
                if asked.done():
                    answered.append(asked.result())
                asked.cancel()
                disks += [disk.crash(keep_unsynced=True), disk.crash()]
                raise ProcessKilledError

        async def look(outside: Outside) -> None:
            async with running(outside) as broker:
                value, _ = (await values(connect(outside, broker)))[SESSION]
                assert value in {"50000", "60000"}
                assert not answered or value == "60000"
                seen.add(value)

        with virtual_runtime() as outside, suppress(ProcessKilledError):
            outside.run(crash(outside))
        for disk in disks:
            with virtual_runtime(files=disk) as outside:
                outside.run(look(outside))
    assert seen == {"50000", "60000"}
