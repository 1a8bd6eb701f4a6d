"""Faults of a broker by API: an error, a delay, a dropped connection, corrupt bytes.

    request --> every delay that is set --> the oldest other fault --> response
                                              fail      the error, and the broker does nothing
                                              drop      the connection is closed
                                              corrupt   the broker's response with wrong bytes

A fault meets the next `times` requests of its APIs, or all of them until it is removed. It is
between the connections and the broker, so what a `TestBroker` does by itself meets none.

Not here: what a refusal looks like (`error_responses`). For faults of the network, such as a
connection that is silent, see `proxy`.
"""

import asyncio
import difflib
import math
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Self, cast

from tailrace.errors import ConfigError
from tailrace.protocol.answers import CloseConnectionError
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.errors import ErrorCode, MalformedMessageError
from tailrace.protocol.fields import Buffer, Message, Records
from tailrace.protocol.frames import (
    Caller,
    RequestHeader,
    decode_request,
    decode_response,
    read_request_header,
    response_buffers,
)
from tailrace.records.layout import HEADER_SIZE
from tailrace.server.dispatch import ConnectionRepeats, Dispatch
from tailrace.testing.error_responses import FROM_ANSWER, error_response, has_place, with_error
from tailrace.values import dataclass

_FRAME_HEAD: Final = 8
"""Bytes of the size and the correlation id, which stay right in corrupt responses."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer with an error, and do nothing else."""

    code: ErrorCode

    def __str__(self) -> str:
        return f"failed with {self.code.name}"


@dataclass(frozen=True, slots=True)
class Delay:
    """Wait for some seconds, or until the fault is removed, before the request is looked at."""

    seconds: float

    def __str__(self) -> str:
        return f"delayed by {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection, before or after the broker has done what was asked."""

    is_handled: bool

    def __str__(self) -> str:
        return "handled and dropped" if self.is_handled else "dropped"


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Send the broker's response with wrong bytes."""

    def __str__(self) -> str:
        return "corrupted"


Action = Fail | Delay | Drop | Corrupt


class Fault:
    """A fault that was set on a `TestBroker`; `remove` or the end of a `with` block ends it.

    Its methods may be called on any thread; `wait` blocks, so a test on an event loop calls it with
    `asyncio.to_thread`.
    """

    def __init__(self, action: Action, apis: frozenset[ApiKey], *, times: int | None) -> None:
        self.action: Final = action
        self.apis: Final = apis
        """The APIs whose requests it meets."""
        self._times = times
        self._count = 0
        self._is_removed = False
        self._releases: set[Callable[[], object]] = set()
        """Functions that wake the requests that wait."""
        self._changed = threading.Condition()

    def __repr__(self) -> str:
        names = ", ".join(sorted(each.title for each in self.apis))
        times = "until removed" if self._times is None else f"{self._times} times"
        return f"<Fault: {names} {self.action}, {times}; {self.count} so far>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    @property
    def count(self) -> int:
        """Number of requests that it has met."""
        with self._changed:
            return self._count

    def wait(self, count: int = 1, *, timeout_s: float = 10.0) -> None:
        """Wait until it has met `count` requests.

        Raises:
            TimeoutError: it has not after `timeout_s` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._count >= count, timeout_s):
                raise TimeoutError(f"{self!r} after {timeout_s:g} s; {count} were waited for")

    def remove(self) -> None:
        """Meet no more requests; those that it delays go on."""
        with self._changed:
            self._is_removed = True
            for release in self._releases:
                with suppress(RuntimeError):  # the loop of a broker that was killed
                    release()

    def meet(self) -> bool:
        """Meet one more request, if it has not met all; on the broker's loop, as `hold_until`."""
        with self._changed:
            if self._is_removed or self._count == self._times:
                return False
            self._count += 1
            self._changed.notify_all()
            return True

    async def hold_until(self, deadline: float) -> None:
        """Wait until the loop's time reaches `deadline`, or the fault is removed."""
        loop, released = asyncio.get_running_loop(), asyncio.Event()

        def release() -> object:
            return loop.call_soon_threadsafe(released.set)

        with self._changed:
            if self._is_removed:
                return
            self._releases.add(release)
        try:
            async with asyncio.timeout_at(deadline):
                await released.wait()
        except TimeoutError:
            pass
        finally:
            with self._changed:
                self._releases.discard(release)


class _Met(NamedTuple):
    """The faults that a request meets."""

    delays: Sequence[tuple[Fault, float]]
    """Each with the loop's time at which it ends."""
    action: Action | None
    refusal: Message | None
    """The response of a `Fail` that is not made from the broker's own."""


class RequestFaults:
    """The faults of one broker. `set` and `clear` are for any thread, `around` for its loop."""

    def __init__(self) -> None:
        self._faults: tuple[Fault, ...] = ()
        self._changing = threading.Lock()

    def set(self, action: Action, names: Sequence[str], *, times: int | None) -> Fault:
        """Set a fault for the APIs of these names, or for all.

        Raises:
            ConfigError: this broker serves no API of that name; or `times` is below 1.
            TypeError: `times` is no int.
        """
        if isinstance(times, bool) or not isinstance(times, int | None):
            raise TypeError(f"times is {times!r}; it must be a number of requests, or None for all")
        if times is not None and times < 1:
            raise ConfigError([f"times is {times}; a fault meets 1 request or more, or None: all"])
        fault = Fault(action, _apis_of(names), times=times)
        with self._changing:
            self._faults += (fault,)
        return fault

    def clear(self) -> None:
        """Remove all faults."""
        with self._changing:
            faults, self._faults = self._faults, ()
        for each in faults:
            each.remove()

    def around(self, dispatch: Dispatch) -> Dispatch:
        """A function that answers as `dispatch` does, with the faults."""

        def answer(
            frame: memoryview, caller: Caller, repeats: ConnectionRepeats | None
        ) -> list[Records] | Awaitable[list[Records]]:
            if not self._faults:
                return dispatch(frame, caller, repeats)
            header, position = read_request_header(frame, caller=caller)
            met = self._meet(header, frame, position)
            if met.action is None and not met.delays:
                return dispatch(frame, caller, repeats)
            return _disturb(dispatch, frame, header=header, met=met)

        return answer

    def _meet(self, header: RequestHeader, frame: memoryview, position: int) -> _Met:
        delays: list[tuple[Fault, float]] = []
        action: Action | None = None
        refusal: Message | None = None
        for fault in self._faults if header.api is not None else ():
            if header.api_key not in fault.apis:
                continue
            if isinstance(fault.action, Delay):
                # Before it counts as met: who waits for that may advance the clock then.
                deadline = asyncio.get_running_loop().time() + fault.action.seconds
                if fault.meet():
                    delays.append((fault, deadline))
            elif action is None:
                if isinstance(fault.action, Fail):
                    is_possible, refusal = _refuse(header, frame, position, code=fault.action.code)
                    if not is_possible:
                        continue
                if fault.meet():
                    action = fault.action
        return _Met(delays, action, refusal)


def error_code(name: str) -> ErrorCode:
    """The error code of a name.

    Raises:
        ConfigError: Kafka has no error of that name.
    """
    names = [each.name for each in ErrorCode if each is not ErrorCode.NONE]
    if name not in names:
        raise ConfigError([f"{name!r} is no error of Kafka's protocol{_meant(name, names)}"])
    return ErrorCode[name]


def delay_of(seconds: float) -> Delay:
    """A delay.

    Raises:
        ConfigError: it is negative, or not finite.
    """
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ConfigError([f"seconds is {seconds}; a delay is 0 or more, and finite"])
    return Delay(seconds)


def _apis_of(names: Sequence[str]) -> frozenset[ApiKey]:
    served = {ApiKey(key).title: ApiKey(key) for key in APIS}
    for name in names:
        if name not in served:
            raise ConfigError([f"{name!r} is no API that this broker serves{_meant(name, served)}"])
    return frozenset(served[name] for name in names or served)


def _meant(name: object, names: "Sequence[str] | dict[str, ApiKey]") -> str:
    near = difflib.get_close_matches(str(name), names, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _refuse(
    header: RequestHeader, frame: memoryview, position: int, *, code: ErrorCode
) -> tuple[bool, Message | None]:
    """Whether a request can be refused, and its refusal unless that is made from the answer."""
    api = header.api
    assert api is not None
    try:
        request = decode_request(header, frame, position)
    except MalformedMessageError:
        return False, None
    if api.key in FROM_ANSWER:
        return has_place(request, header.api_version), None
    refusal = error_response(api, request, version=header.api_version, code=code)
    return refusal is not None, None if _wants_no_answer(request) else refusal


def _wants_no_answer(request: Message) -> bool:
    return getattr(request, "acks", None) == 0


async def _disturb(
    dispatch: Dispatch, frame: memoryview, *, header: RequestHeader, met: _Met
) -> list[Records]:
    for fault, deadline in met.delays:
        await fault.hold_until(deadline)
    match met.action:
        case Drop(is_handled=False):
            raise CloseConnectionError(f"{_name(header)} met a fault: dropped")
        case Fail(code) if header.api_key not in FROM_ANSWER:
            if met.refusal is None:
                # A producer with acks=0 wants no answer; Kafka tells it of an error in this way.
                raise CloseConnectionError(f"{_name(header)} met a fault: {code.name} with acks=0")
            return _encode(header, met.refusal)
    answer = dispatch(frame, header.caller, None)
    buffers = await answer if isinstance(answer, Awaitable) else answer
    match met.action:
        case Drop():
            raise CloseConnectionError(f"{_name(header)} met a fault: handled and dropped")
        case Fail(code):
            return _encode_with_error(header, buffers, code)
        case Corrupt():
            return _corrupt(buffers)
    return buffers


def _name(header: RequestHeader) -> str:
    return ApiKey(header.api_key).title


def _encode(header: RequestHeader, message: Message) -> list[Records]:
    return response_buffers(
        APIS[header.api_key],
        message,
        version=header.api_version,
        correlation_id=header.correlation_id,
    )


def _encode_with_error(
    header: RequestHeader, buffers: list[Records], code: ErrorCode
) -> list[Records]:
    frame = memoryview(b"".join(cast("list[Buffer]", buffers)))[4:]
    answer = decode_response(APIS[header.api_key], header.api_version, frame)
    if header.api_key == ApiKey.API_VERSIONS and code is ErrorCode.UNSUPPORTED_VERSION:
        header = header._replace(api_version=0)  # A client can read no other (KIP-511).
    return _encode(header, with_error(answer, code))


def _corrupt(buffers: list[Records]) -> list[Records]:
    """A response whose records, or else whose whole body, have inverted bytes.

    Of records it is the first byte after the header of their first batch, so that the batch has
    its size and offsets, and its CRC does not match.
    """
    wrong = [_copy(each) for each in buffers]
    # Messages are encoded into bytearrays; records stay what they were.
    records = [
        copy
        for copy, each in zip(wrong, buffers, strict=True)
        if not isinstance(each, bytearray) and len(copy) > HEADER_SIZE
    ]
    for each in records:
        each[HEADER_SIZE] ^= 0xFF
    if not records and wrong:
        head = wrong[0]
        head[_FRAME_HEAD:] = bytes(byte ^ 0xFF for byte in head[_FRAME_HEAD:])
    return list(wrong)


def _copy(data: Records) -> bytearray:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytearray(data)
    copied = bytearray(len(data))
    data.read_into(memoryview(copied))
    return copied
