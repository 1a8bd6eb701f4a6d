"""`guarded`: a handler, with the check of rights in front of it and after it.

    request ─► what is not allowed is cut out ─► handler ─► errors for that, or the answer
                                                            without what may not be seen

So no handler knows of rights, and where there is no authorizer nothing is in front of them. The
rights are those of the table (`security.needs`). Three decide themselves, since only they know the
names: Fetch (sessions), DescribeTopicPartitions (pages), and groups with regular expressions.

A name that may not be described is refused whether or not it exists, so that nobody learns that.

Not here: APIs whose requests or answers have a form of their own (`special_guards`).
"""

from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from tailrace.config.settings import INT32_MAX
from tailrace.handlers.produce_refusals import has_transactional
from tailrace.handlers.refusals import answered_parts, refusal, refused_parts
from tailrace.protocol.answers import Answer, Deferred, Handled, Handler, LongAnswer
from tailrace.protocol.apis import APIS, BETWEEN_NODES, Api, ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID, wire_fields
from tailrace.protocol.frames import RequestHeader
from tailrace.runtime.slices import Slices
from tailrace.security.acls import CLUSTER_NAME, AclResource
from tailrace.security.authorizer import Authorizer
from tailrace.security.needs import Need, Refused
from tailrace.values import replace

T = TypeVar("T")

Data = Any
"""A message of any API, or a part of one."""

CHECKED_INLINE_MAX: Final = 500
"""Most names of a request that are checked in one step: each takes some 3 us."""

_IDS_SINCE: Final = {ApiKey.PRODUCE: 13, ApiKey.OFFSET_COMMIT: 10, ApiKey.OFFSET_FETCH: 10}
"""The first version that names topics by their ids alone (KIP-516)."""

Steps = Generator[None, None, T]
"""Work that may be interrupted at each `yield`."""

Finish = Callable[[Data], Steps[Data]]
"""Makes the answer for the client from that of the handler."""


class Checked(NamedTuple):
    """A request without the parts that are not allowed."""

    request: Data
    """For the handler; None: nothing is left."""
    answer: Answer = None
    """The answer where nothing is left."""
    finish: tuple[Finish, ...] = ()
    """Changes of the handler's answer, in this order."""


class Guard:
    """Holds requests of one API against the table."""

    def __init__(
        self,
        key: ApiKey,
        authorizer: Authorizer,
        needs: tuple[Need, ...],
        *,
        topic_name: Callable[[UUID], str | None],
        has_topic: Callable[[str], bool],
        creates_topics: bool = False,
    ) -> None:
        """`topic_name` gives the name of the topic with an id; None: there is none.

        `has_topic` tells whether there is a topic of a name, and `creates_topics` whether the
        broker makes one that a Metadata request names (`auto.create.topics.enable`).
        """
        self.api: Api = APIS.get(key) or BETWEEN_NODES[key]
        self.needs = needs
        """All rights of the API, in the order of the table."""
        self.whole, self.parts, self.shown = (
            tuple(each for each in needs if each.refused is kind)
            for kind in (Refused.WHOLE, Refused.PARTS, Refused.SHOWN)
        )
        self.authorizer = authorizer
        self.topic_name = topic_name
        self.has_topic = has_topic
        self.creates_topics = creates_topics

    def has(
        self,
        header: RequestHeader,
        need: Need,
        name: str = CLUSTER_NAME,
        *,
        is_access: bool = True,
    ) -> bool:
        """Whether the client has a right for a resource of that name."""
        return self.has_instead(header, need) or self.authorizer.allows(
            header, need.operation, need.resource, name=name, is_access=is_access
        )

    def has_instead(self, header: RequestHeader, need: Need) -> bool:
        """Whether the client has a right on the cluster that does as well."""
        for each in need.instead:
            if self.authorizer.allows(
                header, each, AclResource.CLUSTER, name=CLUSTER_NAME, is_access=False
            ):
                return True
        return False

    def allows_all(self, header: RequestHeader, request: Data) -> bool:
        """Whether the client has every right for a request that refuses it in whole or in part.

        Most requests end with that, in a third of the time that it takes to sort their parts.
        """
        for need in self.whole:
            found = getattr(request, need.field) if need.field else CLUSTER_NAME
            for name in (found,) if isinstance(found, str) else found or ():
                if not self.has(header, need, name, is_access=False):
                    return False
        for need in self.parts:
            if need.instead and self.has_instead(header, need):
                continue
            for each in getattr(request, need.field):
                part = self.name_in(header, each, need)
                if part is not None and not self.authorizer.allows(
                    header, need.operation, need.resource, name=part, is_access=False
                ):
                    return False
        return True

    def refuse(self, request: Data, need: Need) -> Checked:
        """The refusal of all of a request."""
        return Checked(None, refusal(self.api, request, need.code))

    def answer(self, **fields: Data) -> Checked:
        """An answer without the handler."""
        make: Data = self.api.response
        return Checked(None, make(**fields))

    def split(
        self, header: RequestHeader, need: Need, parts: tuple[Any, ...]
    ) -> Steps[tuple[list[Any], list[Any]]]:
        """The parts that are allowed, and those that are not."""
        if self.has_instead(header, need):
            return list(parts), []
        allowed: list[Any] = []
        denied: list[Any] = []
        for each in parts:
            name = self.name_in(header, each, need)
            # Nobody knows an id of no topic; the handler says so.
            is_allowed = name is None or self.authorizer.allows(
                header, need.operation, need.resource, name=name
            )
            (allowed if is_allowed else denied).append(each)
            yield
        return allowed, denied

    def name_in(self, header: RequestHeader, part: Data, need: Need) -> str | None:
        """The name of a part; None: it has the id of a topic that there is not."""
        if isinstance(part, str):
            return part
        topic_id = getattr(part, "topic_id", NO_UUID)
        if topic_id != NO_UUID and need.resource is AclResource.TOPIC:
            return self.topic_name(topic_id)
        name: str = getattr(part, need.name)
        if not name and header.api_version >= _IDS_SINCE.get(self.api.key, INT32_MAX):
            return None  # An id of zero is one of them; an empty name is refused as others are.
        return name

    def only_allowed(
        self,
        header: RequestHeader,
        need: Need,
        parts: tuple[Any, ...],
        *,
        name_of: Callable[[Any], str],
    ) -> Steps[tuple[Any, ...]]:
        """The parts of an answer that the client may see."""
        if self.has_instead(header, need):
            return parts
        shown = []
        for each in parts:
            if self.authorizer.allows(
                header, need.operation, need.resource, name=name_of(each), is_access=False
            ):
                shown.append(each)
            yield
        return tuple(shown)


Check = Callable[[Guard, RequestHeader, Any], Steps[Checked]]


def by_table(guard: Guard, header: RequestHeader, request: Data) -> Steps[Checked]:
    """The check by the table alone: the needs of all kinds but ADDED."""
    finish: tuple[Finish, ...] = ()
    for need in guard.whole:
        found = getattr(request, need.field) if need.field else CLUSTER_NAME
        for name in (found,) if isinstance(found, str) else found or ():
            if not guard.has(header, need, name):
                return guard.refuse(request, need)
            yield
    for need in guard.parts:
        allowed, denied = yield from guard.split(header, need, getattr(request, need.field))
        if denied:
            array = answered_parts(guard.api.key)
            refused = refused_parts(guard.api, denied, need.code)
            # The coordinator is asked for the group in any case, as by Kafka.
            if not allowed and guard.api.key is not ApiKey.OFFSET_DELETE:
                return guard.answer(**{array: refused})
            request = replace(request, **{need.field: tuple(allowed)})
            finish += (_adding(array, refused),)
    for need in guard.shown:
        finish += (_showing(guard, header, need),)
    return Checked(request, finish=finish)


def _adding(array: str, refused: tuple[Any, ...]) -> Finish:
    def add(answer: Data) -> Steps[Data]:
        yield
        # An error of the whole answer is all that it says.
        if getattr(answer, "error_code", ErrorCode.NONE):
            return answer
        return replace(answer, **{array: (*getattr(answer, array), *refused)})

    return add


def _showing(guard: Guard, header: RequestHeader, need: Need) -> Finish:
    def show(answer: Data) -> Steps[Data]:
        parts = yield from guard.only_allowed(
            header,
            need,
            getattr(answer, need.field),
            name_of=lambda each: str(getattr(each, need.name)),
        )
        return replace(answer, **{need.field: parts})

    return show


def guarded(
    handler: Handler,
    guard: Guard,
    *,
    checks: Mapping[ApiKey, Check],
    long: frozenset[ApiKey] = frozenset(),
) -> Handler:
    """The handler with its check; `checks` are the functions of APIs with one of their own.

    Requests of those in `long` may have long answers.
    """
    key = guard.api.key
    check = checks.get(key, by_table)
    if check is by_table and not (guard.whole or guard.parts or guard.shown):
        return handler
    is_by_table = check is by_table and not guard.shown
    counted = tuple(
        each.name
        for each in wire_fields(guard.api.request)
        if each.is_array and each.name in {need.field for need in (*guard.whole, *guard.parts)}
    )

    def is_short(request: Data) -> bool:
        for each in counted:
            parts = getattr(request, each)
            if parts is not None and len(parts) > CHECKED_INLINE_MAX:
                return False
        return True

    def handle(header: RequestHeader, request: Data) -> Handled:
        is_plain = is_by_table or (key is ApiKey.PRODUCE and not has_transactional(request))
        if is_plain and is_short(request) and guard.allows_all(header, request):
            return handler(header, request)
        steps = check(guard, header, request)
        checked = _first_steps(steps)
        if checked is None:
            if key in long:
                return LongAnswer(lambda: later(header, steps), waits_for_device=True)
            return later(header, steps)
        if checked.request is None:
            return checked.answer
        handled = handler(header, checked.request)
        return _finished(handled, checked.finish) if checked.finish else handled

    async def later(header: RequestHeader, steps: Steps[Checked]) -> Answer:
        checked = await _in_slices(steps)
        if checked.request is None:
            return checked.answer
        answer = await _taken(handler(header, checked.request))
        return await _finish_in_slices(answer, checked.finish)

    return handle


def _finished(handled: Handled, finish: tuple[Finish, ...]) -> Handled:
    async def later() -> Answer:
        return await _finish_in_slices(await _taken(handled), finish)

    if isinstance(handled, LongAnswer):
        return LongAnswer(later, handled.waits_for_device)
    if isinstance(handled, Deferred):
        # Of a produce, whose errors are there already: one step each.
        return handled.then(partial(_finish_at_once, finish=finish))
    if isinstance(handled, Awaitable):
        return later()
    answer: Answer = handled
    for done, each in enumerate(finish):
        steps = each(answer)
        found = _first_steps(steps)
        if found is None:
            return _finish_rest(steps, finish[done + 1 :])
        answer = found
    return answer


def _finish_at_once(answer: Answer, *, finish: tuple[Finish, ...]) -> Answer:
    for each in finish:
        answer = _at_once(each(answer))
    return answer


async def _finish_rest(steps: Steps[Data], finish: tuple[Finish, ...]) -> Answer:
    return await _finish_in_slices(await _in_slices(steps), finish)


async def _taken(handled: Handled) -> Answer:
    answer = handled.make() if isinstance(handled, LongAnswer) else handled
    return await answer if isinstance(answer, Awaitable) else answer


async def _finish_in_slices(answer: Answer, finish: tuple[Finish, ...]) -> Answer:
    for each in finish:
        answer = await _in_slices(each(answer))
    return answer


def _first_steps(steps: Steps[T]) -> T | None:
    """The result if it takes at most `CHECKED_INLINE_MAX` steps; None: there are more."""
    for _ in range(CHECKED_INLINE_MAX + 1):
        try:
            next(steps)
        except StopIteration as done:
            found: T = done.value
            return found
    return None


def _at_once(steps: Steps[T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: T = done.value
            return found


async def _in_slices(steps: Steps[T]) -> T:
    slices = Slices()
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: T = done.value
            return found
        await slices.turn()
