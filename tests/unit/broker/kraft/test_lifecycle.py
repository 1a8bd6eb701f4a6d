"""A broker's registration and heartbeats, against a controller that a test scripts."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from tailrace.broker.kraft.channel import ControllerChannel, Controllers
from tailrace.broker.kraft.lifecycle import (
    BrokerState,
    Lifecycle,
    Registration,
    RegistrationError,
    previous_epoch,
)
from tailrace.broker.kraft.settings import LifecycleConfig
from tailrace.client.config import ClientConfig
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from tailrace.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Listener,
)
from tailrace.storage.directories import open_log_directory
from tailrace.testing import Outside
from tests.unit.broker.kraft.scripted import (
    CLIENT,
    LOGIN,
    SILENCE,
    ScriptedController,
    refuse_logins,
)

EPOCH = 500
FIRST, SECOND = UUID(int=1), UUID(int=2)
INCARNATION = UUID(int=99)


class ScriptedRegistry(ScriptedController):
    """Registers one broker, and unfences it as Kafka's controller does."""

    def __init__(self, outside: Outside) -> None:
        super().__init__(outside)
        self.epoch = EPOCH
        """The epoch of its registration."""
        self.caught_up_at = 0
        """The offset that the broker has to reach."""
        self.codes: list[int] = []
        """Error codes of the next answers, whatever is asked."""
        self.led_count = 0
        """Heartbeats of a controlled shutdown after which it leads nothing any more."""
        self.spoil: Callable[[Any], Any] = lambda answer: answer
        """Changes each answer."""
        self.answers[BrokerRegistrationRequest] = self._register
        self.answers[BrokerHeartbeatRequest] = self._beat

    @property
    def beats(self) -> list[BrokerHeartbeatRequest]:
        return self.of(BrokerHeartbeatRequest)

    @property
    def registrations(self) -> list[BrokerRegistrationRequest]:
        return self.of(BrokerRegistrationRequest)

    def _register(self, _: BrokerRegistrationRequest) -> Any:
        if self.codes:
            return BrokerRegistrationResponse(error_code=self.codes.pop(0))
        return self.spoil(BrokerRegistrationResponse(broker_epoch=self.epoch))

    def _beat(self, request: BrokerHeartbeatRequest) -> Any:
        if self.codes:
            return BrokerHeartbeatResponse(error_code=self.codes.pop(0))
        if request.broker_epoch != self.epoch:
            return BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        is_caught_up = request.current_metadata_offset >= self.caught_up_at
        may_stop = False
        if request.want_shut_down:
            may_stop, self.led_count = self.led_count == 0, max(self.led_count - 1, 0)
        return self.spoil(
            BrokerHeartbeatResponse(
                is_caught_up=is_caught_up,
                is_fenced=request.want_fence or not is_caught_up or may_stop,
                should_shut_down=may_stop,
            )
        )


class Scene:
    """A broker's lifecycle, and what it knows."""

    def __init__(
        self, outside: Outside, config: LifecycleConfig, previous: int, login: ClientConfig
    ) -> None:
        self.outside = outside
        self.controller = ScriptedRegistry(outside)
        self.offset = 0
        self.cordoned: set[UUID] | None = None
        self.events: list[str] = []
        self.channel = ControllerChannel(
            Controllers([self.controller.node]), login, outside.runtime
        )
        self.lifecycle = Lifecycle(
            self.channel,
            Registration(
                broker_id=4,
                cluster_id="cluster",
                incarnation=INCARNATION,
                listeners=[Listener(name="PLAINTEXT", host="here", port=9092)],
                directories=[SECOND, FIRST],
                previous_epoch=previous,
            ),
            config,
            applied_offset=lambda: self.offset,
            cordoned=lambda: self.cordoned,
        )
        self.epochs: list[int] = []
        self.lifecycle.on_registered = self.epochs.append
        self.lifecycle.on_fenced = lambda: self.events.append("fenced")
        self.lifecycle.on_unfenced = lambda: self.events.append("unfenced")
        self.lifecycle.on_failed = self.events.append

    def state(self) -> BrokerState:
        """The broker's state now."""
        return self.lifecycle.state

    async def run(self) -> None:
        """Start, until it is unfenced."""
        await self.lifecycle.start()
        self.lifecycle.ready_to_unfence()
        await self.lifecycle.unfenced.wait()


@asynccontextmanager
async def scene(
    outside: Outside, *, previous: int = -1, login: ClientConfig = CLIENT, **settings: Any
) -> AsyncIterator[Scene]:
    """A lifecycle that has not begun, closed at the end."""
    made = Scene(outside, LifecycleConfig(**settings), previous, login)
    try:
        yield made
    finally:
        await made.lifecycle.close()
        made.channel.close()


# -- from start to unfenced -------------------------------------------------------------------


async def test_a_broker_registers_with_all_that_the_controllers_need(outside: Outside) -> None:
    """Its address, directories, features and last orderly stop are what they place and elect by."""
    async with scene(outside, previous=321, rack="west") as on:
        await on.lifecycle.start()
        (asked,) = on.controller.registrations
        assert (asked.broker_id, asked.cluster_id, asked.rack) == (4, "cluster", "west")
        assert asked.incarnation_id == INCARNATION
        assert asked.log_dirs == (FIRST, SECOND)
        assert asked.previous_broker_epoch == 321
        assert [(each.name, each.port) for each in asked.listeners] == [("PLAINTEXT", 9092)]
        levels = {
            each.name: (each.min_supported_version, each.max_supported_version)
            for each in asked.features
        }
        assert levels["metadata.version"] == (7, 30)
        assert levels["kraft.version"] == (0, 1)
        assert levels["share.version"] == (0, 1)
        assert on.lifecycle.broker_epoch == EPOCH


async def test_a_broker_is_unfenced_when_it_is_ready_and_has_caught_up(outside: Outside) -> None:
    """Every state is one that a heartbeat's answer has brought."""
    async with scene(outside) as on:
        lifecycle = on.lifecycle
        on.controller.caught_up_at = 70
        assert on.state() is BrokerState.NOT_RUNNING
        await lifecycle.start()
        await outside.pass_time(0.1)
        assert on.state() is BrokerState.STARTING
        # Every 10 ms, so that a start takes no longer than it must.
        assert 5 < len(on.controller.beats) < 15
        assert not lifecycle.caught_up.is_set()
        on.offset = 70
        await lifecycle.caught_up.wait()
        assert on.state() is BrokerState.RECOVERY
        await outside.pass_time(60)
        assert on.state() is BrokerState.RECOVERY
        asked = len(on.controller.beats)
        lifecycle.ready_to_unfence()
        await lifecycle.unfenced.wait()
        assert on.state() is BrokerState.RUNNING
        # At once, not with the next heartbeat that is due.
        assert len(on.controller.beats) == asked + 1
        assert [each.want_fence for each in on.controller.beats[-2:]] == [True, False]
        assert on.events == ["unfenced"]


async def test_heartbeats_follow_at_their_interval(outside: Outside) -> None:
    """A session of 9 seconds bears the loss of three."""
    async with scene(outside) as on:
        await on.run()
        before = len(on.controller.beats)
        await outside.pass_time(20.1)
        assert len(on.controller.beats) == before + 10


@pytest.mark.parametrize(("interval_ms", "is_logged"), [(4500, False), (4501, True)])
async def test_rare_heartbeats_are_an_error_in_the_log_and_no_refusal(
    outside: Outside, caplog: pytest.LogCaptureFixture, *, interval_ms: int, is_logged: bool
) -> None:
    """More than half of the session is too long, but only the controllers know the session."""
    async with scene(outside, heartbeat_interval_ms=interval_ms) as at:
        await at.run()
    assert ("heartbeats_too_rare" in caplog.text) == is_logged


async def test_a_registration_is_tried_until_one_succeeds(outside: Outside) -> None:
    """The session of the broker's last life may not be over yet (DUPLICATE_BROKER_REGISTRATION)."""
    async with scene(outside) as on:
        on.controller.codes = [ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 4
        await on.lifecycle.start()
        assert 7.9 < outside.loop.time() < 8.1
        assert len(on.controller.registrations) == 5


async def test_a_quick_restart_is_no_trouble(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says once, as a piece of information, that the old session is waited for."""
    caplog.set_level(logging.INFO)
    async with scene(outside) as on:
        on.controller.codes = [ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 4
        await on.lifecycle.start()
    said = [each for each in caplog.records if "DUPLICATE" in each.message]
    assert [each.levelno for each in said] == [logging.INFO]
    assert "the session of its last life is not over" in said[0].message


async def test_a_broker_that_nobody_registers_does_not_start(outside: Outside) -> None:
    """The error says what the controllers have answered, and what it means."""
    async with scene(outside) as on:
        on.controller.codes = [ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 100
        with pytest.raises(RegistrationError, match=r"60000 ms .*another broker with this id"):
            await on.lifecycle.start()
        assert 59.9 < outside.loop.time() < 60.1
        assert on.state() is BrokerState.SHUTTING_DOWN
        asked = len(on.controller.requests)
        await outside.pass_time(10)
        assert len(on.controller.requests) == asked


async def test_without_controllers_a_broker_does_not_start(outside: Outside) -> None:
    """The error names the controllers that were asked."""
    async with scene(outside, registration_timeout_ms=5000) as on:
        on.controller.kill()
        with pytest.raises(RegistrationError, match=r"within 5000 ms .*node 3000"):
            await on.lifecycle.start()


async def test_a_refused_login_is_the_reason_that_a_broker_does_not_start(outside: Outside) -> None:
    """It is tried until the time is over: the user may be made meanwhile."""
    async with scene(outside, registration_timeout_ms=5000, login=LOGIN) as on:
        refuse_logins(on.controller)
        with pytest.raises(RegistrationError, match=r"within 5000 ms .*no such user"):
            await on.lifecycle.start()


async def test_controllers_without_registrations_are_the_reason_too(outside: Outside) -> None:
    """Nodes that are no controllers of KRaft, as brokers with ZooKeeper."""
    async with scene(outside, registration_timeout_ms=5000) as on:
        on.controller.versions[ApiKey.BROKER_REGISTRATION] = (0, -1)
        with pytest.raises(RegistrationError, match="takes no version of BrokerRegistration"):
            await on.lifecycle.start()


async def test_controllers_of_another_cluster_end_the_start_at_once(outside: Outside) -> None:
    """No time heals that: an address or a directory is wrong."""
    async with scene(outside) as on:
        on.controller.codes = [ErrorCode.INCONSISTENT_CLUSTER_ID]
        with pytest.raises(RegistrationError, match="of another cluster than cluster"):
            await on.lifecycle.start()
        assert outside.loop.time() < 1


async def test_an_old_controller_is_told_what_it_understands(outside: Outside) -> None:
    """In version 0 a registration has no directories, and it is accepted."""
    async with scene(outside, previous=5) as on:
        on.controller.versions[ApiKey.BROKER_REGISTRATION] = (0, 0)
        await on.lifecycle.start()
        assert on.controller.registrations[0].log_dirs == ()
        assert on.controller.registrations[0].previous_broker_epoch == -1


# -- trouble ----------------------------------------------------------------------------------


async def test_a_broker_serves_on_while_controllers_are_away(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """Its heartbeats go on when they are back; the log has a line of each, and no more."""
    async with scene(outside) as on:
        await on.run()
        caplog.set_level(logging.INFO)
        on.controller.kill()
        await outside.pass_time(60)
        assert on.state() is BrokerState.RUNNING
        assert on.events == ["unfenced"]
        lines = [each.split()[0] for each in caplog.messages if "node_disconn" not in each]
        assert lines == ["controllers_lost"]
        on.controller.revive()
        before = len(on.controller.beats)
        await outside.pass_time(6)
        assert len(on.controller.beats) > before


async def test_the_broker_notices_that_it_was_fenced(outside: Outside) -> None:
    """Once when it is fenced, and once when it is not any more."""
    async with scene(outside) as on:
        await on.run()
        on.controller.caught_up_at = 1000
        await outside.pass_time(10)
        on.offset = 1000
        await outside.pass_time(10)
        assert on.events == ["unfenced", "fenced", "unfenced"]
        assert on.state() is BrokerState.RUNNING


async def test_a_lost_registration_is_made_again(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """With the same incarnation: another broker with this id would be refused, not replaced."""
    async with scene(outside) as on:
        await on.run()
        on.controller.epoch = EPOCH + 100
        await outside.pass_time(10)
        assert on.lifecycle.broker_epoch == EPOCH + 100
        assert on.epochs == [EPOCH, EPOCH + 100]
        assert [each.incarnation_id for each in on.controller.registrations] == [INCARNATION] * 2
        assert on.events == ["unfenced", "fenced", "unfenced"]
        assert on.state() is BrokerState.RUNNING
        assert "registration_lost broker=4 epoch=500" in caplog.text


async def test_a_registration_that_never_counts_is_made_at_the_pace_of_heartbeats(
    outside: Outside,
) -> None:
    """Controllers that contradict each other are not asked as fast as they answer."""
    async with scene(outside) as on:
        await on.run()
        lost = BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        on.controller.answers[BrokerHeartbeatRequest] = lambda _: lost
        await outside.pass_time(20)
        assert 5 < len(on.controller.registrations) < 15


async def test_a_broker_whose_id_another_has_does_not_take_it_back(outside: Outside) -> None:
    """It stays fenced, and asks until the other is gone."""
    async with scene(outside) as on:
        await on.run()
        on.controller.epoch = EPOCH + 100
        on.controller.codes = [ErrorCode.STALE_BROKER_EPOCH]
        on.controller.codes += [ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 5
        await outside.pass_time(9)
        assert on.lifecycle.broker_epoch == EPOCH
        assert on.lifecycle.is_fenced
        await outside.pass_time(10)
        assert on.lifecycle.broker_epoch == EPOCH + 100
        assert not on.lifecycle.is_fenced


@pytest.mark.parametrize("epoch", [-1, -500, EPOCH - 1])
async def test_an_epoch_that_goes_back_is_refused(outside: Outside, epoch: int) -> None:
    """Such a controller has lost records that the broker has applied."""
    async with scene(outside) as on:
        await on.run()
        on.controller.epoch = epoch
        await outside.pass_time(10)
        assert on.lifecycle.broker_epoch == EPOCH
        assert on.lifecycle.is_fenced


async def test_a_negative_epoch_is_no_registration(outside: Outside) -> None:
    """Nothing could be asked with it."""
    async with scene(outside, registration_timeout_ms=5000) as on:
        on.controller.epoch = -1
        with pytest.raises(RegistrationError, match="its metadata log has gone back"):
            await on.lifecycle.start()
        assert on.controller.beats == []


@pytest.mark.parametrize("code", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1, 999])
async def test_other_errors_of_heartbeats_change_nothing(outside: Outside, code: int) -> None:
    """The next heartbeat is sent at its time."""
    async with scene(outside) as on:
        await on.run()
        before = len(on.controller.beats)
        on.controller.codes = [code] * 3
        await outside.pass_time(8.1)
        assert len(on.controller.beats) == before + 4
        assert on.state() is BrokerState.RUNNING
        assert len(on.controller.registrations) == 1


async def test_a_silent_controller_costs_one_interval_each_time(outside: Outside) -> None:
    """A heartbeat that is late is worth nothing, so it is given up."""
    async with scene(outside) as on:
        await on.run()
        answer = on.controller.answers[BrokerHeartbeatRequest]
        on.controller.answers[BrokerHeartbeatRequest] = lambda _: SILENCE
        await outside.pass_time(10)
        on.controller.answers[BrokerHeartbeatRequest] = answer
        await outside.pass_time(6)
        assert on.state() is BrokerState.RUNNING
        assert on.events == ["unfenced"]


async def test_a_registration_is_made_again_on_request(outside: Outside) -> None:
    """It keeps its epoch; it was older than a level of metadata.version that names directories."""
    async with scene(outside) as on:
        await on.run()
        on.lifecycle.register_again()
        await outside.pass_time(0.1)
        assert len(on.controller.registrations) == 2
        assert on.events == ["unfenced"]


# -- directories ------------------------------------------------------------------------------


async def test_a_failed_directory_is_told_at_once_and_in_every_heartbeat(outside: Outside) -> None:
    """Also one that fails while a heartbeat is under way; a controller may forget what it was."""
    async with scene(outside) as on:
        await on.run()
        outside.network.delay_s = 0.1
        before = len(on.controller.beats)
        on.lifecycle.failed_directory(SECOND)
        await outside.pass_time(0.05)
        on.lifecycle.failed_directory(FIRST)
        on.lifecycle.failed_directory(FIRST)
        await outside.pass_time(1)
        told = [each.offline_log_dirs for each in on.controller.beats[before:]]
        assert told == [(SECOND,), (FIRST, SECOND)]
        await outside.pass_time(60)
        assert {each.offline_log_dirs for each in on.controller.beats[before + 1 :]} == {
            (FIRST, SECOND)
        }
        assert on.events == ["unfenced"]


async def test_a_broker_is_not_unfenced_before_a_failed_directory_is_known(
    outside: Outside,
) -> None:
    """It would be elected for what is in it; a new registration names all directories again."""
    async with scene(outside) as on:
        await on.lifecycle.start()
        await on.lifecycle.caught_up.wait()
        on.lifecycle.failed_directory(FIRST)
        on.lifecycle.ready_to_unfence()
        await on.lifecycle.unfenced.wait()
        first = next(each for each in on.controller.beats if each.offline_log_dirs)
        assert first.want_fence
        assert not on.controller.beats[-1].want_fence
        before, on.controller.epoch = len(on.controller.beats), EPOCH + 10
        await outside.pass_time(5)
        assert len(on.controller.registrations) == 2
        # After that with the epoch that is over.
        told = [each for each in on.controller.beats[before:] if each.broker_epoch == EPOCH + 10]
        assert [each.want_fence for each in told][:2] == [True, False]
        assert {each.offline_log_dirs for each in told} == {(FIRST,)}


async def test_addresses_that_change_while_a_registration_is_under_way(outside: Outside) -> None:
    """The last change is registered, whatever the answer to the one before says."""
    async with scene(outside) as on:
        await on.run()
        outside.network.delay_s = 0.1
        for port in (1, 2):
            on.lifecycle.register_again([Listener(name="PLAINTEXT", host="here", port=port)])
            await outside.pass_time(0.15)
        await outside.pass_time(2)
        assert [each.listeners[0].port for each in on.controller.registrations] == [9092, 1, 2]


async def test_a_broker_stops_if_it_cannot_tell_of_a_directory(outside: Outside) -> None:
    """It would stay the leader of what it cannot read."""
    async with scene(outside) as on:
        await on.run()
        on.controller.kill()
        on.lifecycle.failed_directory(FIRST)
        await outside.pass_time(29.9)
        assert on.events == ["unfenced"]
        await outside.pass_time(0.2)
        assert "log.dir.failure.timeout.ms" in on.events[1]
        assert str(FIRST) in on.events[1]


async def test_a_directory_counts_as_told_only_after_an_answer(outside: Outside) -> None:
    """One that fails after a heartbeat was sent is not in it (where Kafka counts it as told)."""
    async with scene(outside) as on:
        await on.run()
        outside.network.delay_s = 0.1
        on.lifecycle.failed_directory(FIRST)
        await outside.pass_time(0.15)
        on.lifecycle.failed_directory(SECOND)
        await outside.pass_time(0.06)
        on.controller.kill()
        await outside.pass_time(40)
        assert [str(SECOND) in each for each in on.events] == [False, True]


async def test_cordoned_directories_are_told_after_the_first_catch_up(outside: Outside) -> None:
    """Before, the broker does not know its own setting, and null changes nothing (KIP-1066)."""
    async with scene(outside) as on:
        on.cordoned, on.controller.caught_up_at = {SECOND, FIRST}, 10
        await on.lifecycle.start()
        await outside.pass_time(0.05)
        assert {each.cordoned_log_dirs for each in on.controller.beats} == {None}
        on.offset = 10
        await on.lifecycle.caught_up.wait()
        await outside.pass_time(3)
        assert on.controller.beats[-1].cordoned_log_dirs == (FIRST, SECOND)
        before = len(on.controller.beats)
        on.cordoned = set()
        on.lifecycle.cordoned_changed()
        await outside.pass_time(0.1)
        assert [each.cordoned_log_dirs for each in on.controller.beats[before:]] == [()]
        on.cordoned = None
        await outside.pass_time(3)
        assert on.controller.beats[-1].cordoned_log_dirs is None


@pytest.mark.parametrize(
    ("marks", "configured", "expected"),
    [
        ([7, 7], 2, 7),
        ([7], 1, 7),
        # One says something else, has no mark, or is not there: nothing is proven.
        ([7, 8], 2, -1),
        ([7, None], 2, -1),
        ([7], 2, -1),
        ([-1, -1], 2, -1),
        ([None], 1, -1),
    ],
)
def test_the_last_stop_was_orderly_only_if_all_directories_say_so(
    outside: Outside, marks: list[int | None], configured: int, expected: int
) -> None:
    """The controllers believe then that the broker has all that it had (KIP-966)."""
    found = []
    for number, mark in enumerate(marks):
        opened = partial(
            open_log_directory,
            outside.files,
            f"data{number}",
            node_id=1,
            new_id=UUID(int=9 - number),
        )
        first = opened()
        if mark is not None:
            first.broker_epoch = mark
            first.mark_clean()
        first.close()
        found.append(opened())
        found[-1].close()
    assert previous_epoch(found, configured=configured) == expected


# -- the end ----------------------------------------------------------------------------------


async def test_a_controlled_shutdown_waits_for_the_controller(outside: Outside) -> None:
    """At once, 50 ms later, then at the interval, until the controller approves."""
    async with scene(outside) as on:
        await on.run()
        on.controller.led_count = 3
        before, began = len(on.controller.beats), outside.loop.time()
        assert await on.lifecycle.controlled_shutdown(timeout_s=300)
        assert on.state() is BrokerState.SHUTTING_DOWN
        assert [each.want_shut_down for each in on.controller.beats[before:]] == [True] * 4
        assert 4.0 < outside.loop.time() - began < 4.2
        assert on.lifecycle.broker_epoch == EPOCH
        # The next start would have to wait for the end of a session that another has prolonged.
        await outside.pass_time(60)
        assert len(on.controller.beats) == before + 4


async def test_a_controlled_shutdown_that_nobody_approves_ends(outside: Outside) -> None:
    """The process must end some day; the log says what follows."""
    async with scene(outside) as on:
        await on.run()
        on.controller.led_count = 10_000
        assert not await on.lifecycle.controlled_shutdown(timeout_s=300)
        assert 299 < outside.loop.time() < 302


async def test_a_stop_that_waits_for_controllers_can_be_hastened(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says what it waits for and how to end that; `leave_now` ends it at once."""
    async with scene(outside) as on:
        await on.run()
        on.controller.kill()
        stopping = asyncio.ensure_future(on.lifecycle.controlled_shutdown(timeout_s=300))
        await outside.pass_time(20)
        assert not stopping.done()
        waits = [each for each in caplog.messages if each.startswith("controlled_shutdown_waits")]
        assert len(waits) == 1
        assert "a second signal stops the broker now" in waits[0]
        on.lifecycle.leave_now()
        assert not await stopping
        assert outside.loop.time() < 21


async def test_a_broker_that_was_never_unfenced_has_nothing_to_hand_over(outside: Outside) -> None:
    """It leads nothing, so it ends at once."""
    async with scene(outside) as on:
        await on.lifecycle.start()
        await on.lifecycle.caught_up.wait()
        assert not await on.lifecycle.controlled_shutdown(timeout_s=300)
        assert not any(each.want_shut_down for each in on.controller.beats)


async def test_a_controlled_shutdown_can_be_left_out(outside: Outside) -> None:
    """`controlled.shutdown.enable=false`: the session ends it."""
    async with scene(outside, controlled_shutdown=False) as on:
        await on.run()
        assert not await on.lifecycle.controlled_shutdown(timeout_s=300)
        assert not any(each.want_shut_down for each in on.controller.beats)


async def test_a_broker_that_is_not_registered_any_more_may_stop(outside: Outside) -> None:
    """Kafka's hangs for five minutes there."""
    async with scene(outside) as on:
        await on.run()
        on.controller.epoch = EPOCH + 1
        began = outside.loop.time()
        assert await on.lifecycle.controlled_shutdown(timeout_s=300)
        assert outside.loop.time() - began < 1
        assert len(on.controller.registrations) == 1


async def test_nothing_is_sent_after_the_end(outside: Outside) -> None:
    """The controllers fence the broker when its session is over."""
    async with scene(outside) as on:
        await on.run()
        on.lifecycle.failed_directory(FIRST)
        await on.lifecycle.close()
        asked = len(on.controller.requests)
        await outside.pass_time(60)
        assert len(on.controller.requests) == asked
        assert on.events == ["unfenced"]
        assert on.state() is BrokerState.SHUTTING_DOWN
