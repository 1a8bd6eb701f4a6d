"""`RequestTimes`: the requests that were answered, by API, and where their time went.

    request ─ local ─► the handler waits, for followers, records, a coordinator ─ remote ─► answer

The stages are those of Kafka's `RequestMetrics` that a handler has. Handlers are wrapped, and what
answers repeated requests, and only if somebody wants to know. All are counted; of repeated ones
some are timed.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from tailrace.protocol.answers import (
    Answer,
    Deferred,
    Handled,
    Handler,
    LongAnswer,
    RepeatedAnswers,
    Repeats,
)
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import RequestHeader
from tailrace.runtime.clock import Clock
from tailrace.runtime.timed import Timed

T = TypeVar("T")

STAGES: Final = ("local", "remote", "total")

WINDOWS: Final = 5
"""Windows that are kept, which quantiles are over."""
WINDOW_S: Final = 60.0
SAMPLED: Final = 7
"""Calls that answer repeated requests, of which one is timed, after the first ones; all are
counted. These requests are the cheapest and the most."""
_TIMED_AT_FIRST: Final = 100

_SUB_BITS: Final = 3
_SUBS: Final = 1 << _SUB_BITS
# The last one has half an hour. A quantile is off by an eighth at most.
_BUCKETS: Final = 32 * _SUBS
_PARTS_MAX: Final = 100
"""Elements of an answer that are looked at for errors."""


class Distribution:
    """Times of late, for their quantiles."""

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows = [[0] * _BUCKETS]

    def add(self, seconds: float) -> None:
        """Add a time."""
        micros = int(seconds * 1e6)
        micros = max(micros, 0)
        # Eight buckets for each power of two.
        shift = micros.bit_length() - _SUB_BITS - 1
        bucket = micros if shift <= 0 else (shift << _SUB_BITS) + (micros >> shift)
        self._windows[-1][bucket if bucket < _BUCKETS else -1] += 1

    def turn(self) -> None:
        """Begin a new window."""
        self._windows.append([0] * _BUCKETS)
        del self._windows[:-WINDOWS]

    def counts(self) -> list[int]:
        """Times by bucket, over the kept windows."""
        return [sum(column) for column in zip(*self._windows, strict=True)]


def quantiles_s(counts: Sequence[int], wanted: Sequence[float]) -> list[float]:
    """Quantiles, each between 0 and 1, of times by bucket; zeros if there are none."""
    total, found = sum(counts), []
    for each in wanted:
        left, bucket = each * total, 0
        for bucket, count in enumerate(counts):  # noqa: B007 - its last value is used
            left -= count
            if left <= 0:
                break
        found.append(_middle_s(bucket) if total else 0.0)
    return found


def _middle_s(bucket: int) -> float:
    shift = max((bucket >> _SUB_BITS) - 1, 0)
    low = (bucket - (shift << _SUB_BITS)) << shift
    return (low + (1 << shift) / 2) / 1e6


class ApiTimes:
    """The requests of one API."""

    __slots__ = ("errors", "instant", "versions", "waiting")

    def __init__(self) -> None:
        self.versions: Counter[int] = Counter()
        """Requests by their version."""
        self.errors: Counter[int] = Counter()
        """Error codes in answers; 0 for each answer, or part of one, without an error."""
        self.instant = Distribution()
        """Requests that did not wait: the first and the last stage are one, and there is no second
        one. Most are of this kind, and cost a third."""
        self.waiting: Mapping[str, Distribution] = {name: Distribution() for name in STAGES}

    @property
    def count(self) -> int:
        """Requests that were answered."""
        return self.versions.total()

    def add(self, local_s: float, remote_s: float) -> None:
        """Add the times of a request."""
        if not remote_s:
            self.instant.add(local_s)
            return
        waiting = self.waiting
        waiting["local"].add(local_s)
        waiting["remote"].add(remote_s)
        waiting["total"].add(local_s + remote_s)

    def stages(self) -> Mapping[str, list[int]]:
        """Times of late by bucket, of each stage."""
        instant = self.instant.counts()
        at_once = [sum(instant), *[0] * (_BUCKETS - 1)]
        return {
            name: [
                one + other
                for one, other in zip(
                    at_once if name == "remote" else instant, each.counts(), strict=True
                )
            ]
            for name, each in self.waiting.items()
        }

    def turn(self) -> None:
        """Begin a new window."""
        for each in (self.instant, *self.waiting.values()):
            each.turn()


class RequestTimes:
    """Counts the requests of a server, on its event loop."""

    def __init__(self, clock: Clock) -> None:
        self.now_s = clock.monotonic_s
        """The time, in seconds since an arbitrary moment."""
        self._apis: dict[str, ApiTimes] = {}
        self._turned_s = self.now_s()

    @property
    def apis(self) -> Mapping[str, ApiTimes]:
        """By Kafka's name of a request: that of its API; Fetch by who asks."""
        return self._apis

    def turn(self) -> None:
        """Begin a new window for quantiles, if it is time; called by who reads them."""
        now_s = self.now_s()
        if now_s - self._turned_s >= WINDOW_S:
            self._turned_s = now_s
            for times in self._apis.values():
                times.turn()

    def wrap(self, find_handler: Callable[[int], Handler]) -> Callable[[int], Handler]:
        """Handlers whose requests are counted."""
        wrapped: dict[int, Handler] = {}

        def find(key: int) -> Handler:
            handler = wrapped.get(key)
            if handler is None:
                handler = wrapped[key] = partial(self._handle, find_handler(key))
            return handler

        return find

    def wrap_repeats(self, open_repeats: Callable[[int], Repeats]) -> Callable[[int], Repeats]:
        """Answers to repeated requests, which are counted."""

        def open_counted(key: int) -> Repeats:
            return _CountedRepeats(open_repeats(key), self, ApiKey(key))

        return open_counted

    def _handle(self, handler: Handler, header: RequestHeader, request: Message | None) -> Handled:
        begun_s = self.now_s()
        handled = handler(header, request)
        local_s = self.now_s() - begun_s
        name = _name(header.api_key, request)
        # An answer at once is the usual case, and costs the least.
        if not hasattr(handled, "__await__") and not isinstance(handled, LongAnswer):
            times = self.of(name)
            times.instant.add(local_s)
            _count(times, header.api_version, handled)
            return handled
        spent = _Spent(self.now_s, begun_s, local_s)
        note = partial(self._note, header, name, spent=spent)
        if isinstance(handled, LongAnswer):
            return LongAnswer(partial(_made, handled.make, spent, note), handled.waits_for_device)
        if isinstance(handled, Deferred):
            return handled.then(note)
        assert isinstance(handled, Awaitable), "an answer that has to be waited for"
        return _awaited(Timed(handled, spent), note)

    def _note(self, header: RequestHeader, name: str, answer: Answer, *, spent: "_Spent") -> Answer:
        """Count a request that has waited for this answer, and return it."""
        times = self.of(name)
        times.add(spent.seconds, max(self.now_s() - spent.begun_s - spent.seconds, 0.0))
        _count(times, header.api_version, answer)
        return answer

    def of(self, name: str) -> ApiTimes:
        """The requests of a name."""
        times = self._apis.get(name)
        if times is None:
            times = self._apis[name] = ApiTimes()
        return times


def _count(times: ApiTimes, version: int, answer: Answer) -> None:
    """Count an answer, with its error or those of its parts."""
    times.versions[version] += 1
    code = getattr(answer, "error_code", None)
    if code is not None:
        times.errors[code] += 1
        if code:
            return
    responses: tuple[Any, ...] = getattr(answer, "responses", ())
    for topic in responses[:_PARTS_MAX]:
        code = getattr(topic, "error_code", None)
        if code is not None:
            times.errors[code] += 1
            continue
        # The names in answers to Produce and to Fetch.
        parts: tuple[Any, ...] = getattr(topic, "partition_responses", ())
        parts = parts or getattr(topic, "partitions", ())
        for each in parts[:_PARTS_MAX]:
            times.errors[each.error_code] += 1


def _name(key: int, request: Message | None) -> str:
    """Kafka's name of a request: that of its API, or for Fetch who asks."""
    if key != ApiKey.FETCH or request is None:
        return ApiKey(key).title
    # Not imported: a broker without consumers has loaded no Fetch. From v15 on the id is in
    # `replica_state` (KIP-903).
    fetch: Any = request
    is_follower = max(fetch.replica_id, fetch.replica_state.replica_id) >= 0
    return "FetchFollower" if is_follower else "FetchConsumer"


class _Spent:
    """The time that the handler of a request takes, when it continues. See `Stopwatch`."""

    __slots__ = ("_now_s", "_resumed_s", "begun_s", "seconds")

    def __init__(self, now_s: Callable[[], float], begun_s: float, seconds: float) -> None:
        self._now_s = now_s
        self.begun_s = self._resumed_s = begun_s
        self.seconds = seconds

    def resume(self) -> None:
        self._resumed_s = self._now_s()

    def pause(self) -> None:
        self.seconds += self._now_s() - self._resumed_s


async def _awaited(answer: Awaitable[Answer], note: Callable[[Answer], Answer]) -> Answer:
    return note(await answer)


def _made(
    make: Callable[[], Answer | Awaitable[Answer]],
    spent: _Spent,
    note: Callable[[Answer], Answer],
) -> Answer | Awaitable[Answer]:
    spent.resume()
    answer = make()
    spent.pause()
    if isinstance(answer, Awaitable):
        return _awaited(Timed(answer, spent), note)
    return note(answer)


class _CountedRepeats:
    """Answers to the repeated requests of a connection; see `Repeats`."""

    def __init__(self, repeats: Repeats, times: RequestTimes, key: ApiKey) -> None:
        self._repeats = repeats
        self._now_s = times.now_s
        # Followers repeat no request: theirs are of several partitions.
        self._times = times.of("FetchConsumer" if key == ApiKey.FETCH else key.title)
        self._version = 0
        self._untimed = 0
        """Calls until the next one that is timed."""

    @property
    def taken(self) -> int:
        """See `Repeats`."""
        return self._repeats.taken

    def learn(
        self, header: RequestHeader, request: Message, *, answer: Answer, frame: memoryview
    ) -> None:
        """See `Repeats`."""
        self._version = header.api_version
        self._repeats.learn(header, request, answer=answer, frame=frame)

    def take(
        self, received: bytearray, start: int, limit: int, *, frame_bytes_max: int
    ) -> tuple[int, RepeatedAnswers] | None:
        """See `Repeats`."""
        if self._untimed:
            taken = self._repeats.take(received, start, limit, frame_bytes_max=frame_bytes_max)
            if taken is not None:
                self._untimed -= 1
                self._count()
            return taken
        begun_s = self._now_s()
        taken = self._repeats.take(received, start, limit, frame_bytes_max=frame_bytes_max)
        if taken is None:
            return None
        ended_s, (position, answers) = self._now_s(), taken
        local_s = (ended_s - begun_s) / self._repeats.taken
        if self._times.count >= _TIMED_AT_FIRST:
            self._untimed = SAMPLED - 1
        self._count()
        if isinstance(answers, Deferred):
            note = partial(self._note, local_s=local_s, ended_s=ended_s)
            return position, answers.then(note)
        self._times.instant.add(local_s)
        return taken

    def _count(self) -> None:
        times, count = self._times, self._repeats.taken
        times.versions[self._version] += count
        times.errors[0] += count

    def _note(self, answers: T, *, local_s: float, ended_s: float) -> T:
        self._times.add(local_s, self._now_s() - ended_s)
        return answers
