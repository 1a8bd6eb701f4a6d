"""`for_each`: requests about items, sent to their brokers, retried item by item.

    find the broker of each item -> one request for each broker -> an outcome for each item
            ^                                                            |
            '---- pause, for the items with a retriable error -----------'

Brokers do not wait for each other: what one refuses is asked again while another is silent.

An item is retried until the time limit of the call, or `retries` times, after pauses that grow.
What does not exist is asked for `ABSENT_ATTEMPTS_MAX` times: a broker may not have heard of it yet.

A change that cannot be repeated (`is_sent_once`) is sent again only if the broker has refused it or
cannot have got it. All other requests may be repeated after a lost connection.

Not here: what the requests mean; see the modules of the operations.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tailrace.client.admin.outcomes import Outcomes
from tailrace.client.calls import Ask, Call
from tailrace.client.drive.steps import Steps, at_once
from tailrace.client.errors import (
    IncompleteAnswerError,
    OperationTimeoutError,
    RemoteRetriableError,
    UnknownOutcomeError,
    UnsupportedBrokerError,
    error_for,
)
from tailrace.client.routes import Target
from tailrace.errors import RetriableError, TailraceError, kind_of
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.values import dataclass, field

if TYPE_CHECKING:
    from tailrace.client.nodes import Node

K = TypeVar("K")
V = TypeVar("V")
M = TypeVar("M", bound=Message)

ABSENT_ATTEMPTS_MAX = 6
"""With the default pauses this waits three seconds, longer than news of a topic take to spread."""

_ABSENT = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
                     ErrorCode.REPLICA_NOT_AVAILABLE})  # fmt: skip


def _nothing(item: object, entry: object) -> Any:  # noqa: ANN401, ARG001 - None, as any V
    """The result of a change: that it was made."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRequest(Generic[K, V, M]):
    """The requests of one operation, and how their answers are read."""

    what: str
    """The kind of the items in errors: `topic`."""
    target: Target | Callable[[K], Target]
    """The broker that all items are asked of, or an item."""
    request: Callable[[Sequence[K]], Message]
    """The request about items of one broker."""
    response: type[M]
    entries: Callable[[M, Sequence[K]], Iterable[tuple[K, Any]]] | None = None
    """The parts of an answer, each with its item; items that were not asked about are ignored.

    Each part has an `error_code`, and may have an `error_message`. None: the whole answer is about
    the only item.
    """
    value: Callable[[K, Any], V | TailraceError] = _nothing
    """The result of an item, from its part of the answer if that has no error."""
    special: Callable[[K, Any], V | TailraceError | None] = _nothing
    """The outcome of a part that is not just the error of its code, or its result; else None."""
    is_single: bool = False
    """Whether each item has its own request."""
    is_sent_once: bool = False
    """Whether the request is not repeated once a broker may have got it."""
    first_version: int = 0
    """The lowest version of the request that has its meaning."""
    last_version: int | None = None
    """The highest one that has it; None for any."""
    final: frozenset[int] = frozenset()
    """Error codes that are not retried, although Kafka's clients retry them elsewhere."""

    def target_of(self, item: K) -> Target:
        """The broker that an item is asked of."""
        return self.target if isinstance(self.target, Target) else self.target(item)

    def name_of(self, item: K) -> str:
        """The item in the text of an error."""
        return f"{self.what} {item}".strip()

    def read(
        self, answer: M, batch: Sequence[K], *, address: str
    ) -> Iterator[tuple[K, V | TailraceError]]:
        """The outcomes in the answer of a broker to the request about these items."""
        entries: Iterable[tuple[K, Any]]
        names = ""
        if self.entries is None or _code_of(answer):
            # An error of the whole answer is one of each item, in the same words.
            entries = ((each, answer) for each in batch)
            names = f"{self.what} {', '.join(map(str, batch))}".strip()
        else:
            entries = self.entries(answer, batch)
        for item, entry in entries:
            outcome = self.special(item, entry)
            if outcome is None:
                about = f"{names or self.name_of(item)} at {address}"
                outcome = entry_error(entry, about=about)
            yield item, self.value(item, entry) if outcome is None else outcome


def entry_error(entry: Any, *, about: str) -> TailraceError | None:  # noqa: ANN401 - of any answer
    """The error that a part of an answer has, with the broker's message if it gives one."""
    message = getattr(entry, "error_message", None)
    return error_for(entry.error_code, about=about, message=message)


def _code_of(answer: Any) -> int:  # noqa: ANN401 - not all answers have one
    return int(getattr(answer, "error_code", 0))


def of_partitions(topics: Iterable[Any]) -> Iterator[tuple[TopicPartition, Any]]:
    """The parts of an answer about partitions, which are listed by topic."""
    for topic in topics:
        for each in topic.partitions:
            yield TopicPartition(topic.name, each.partition_index), each


@dataclass(frozen=True, slots=True, kw_only=True)
class _Items(Generic[K, V, M]):
    """The items of one call of an operation, and the steps that settle them (`at_once`)."""

    call: Call
    request: ItemRequest[K, V, M]
    done: dict[K, V | TailraceError] = field(default_factory=dict)
    """The outcomes so far."""
    steps: deque[Steps[None]] = field(default_factory=deque)
    """The steps that are to be begun."""

    def settle(self, items: Sequence[K], *, attempt: int, is_alone: bool = False) -> Steps[None]:
        """Ask the brokers of these items, each on its own; `is_alone`: one request for each."""
        call, request = self.call, self.request
        targets = {each: request.target_of(each) for each in items}
        routed = yield from call.routes.find(call, set(targets.values()))
        batches: dict[tuple[Node | None, object], list[K]] = {}
        later: dict[K, TailraceError] = {}
        for item in items:
            node = routed[targets[item]]
            if isinstance(node, TailraceError):
                self._take_one(item, node, later=later, attempt=attempt)
            else:
                key = item if request.is_single or is_alone else None
                batches.setdefault((node, key), []).append(item)
        # A slow broker holds up no other, nor the retries of what others have answered.
        for (node, _), batch in batches.items():
            self.steps.append(self._ask(node, batch, attempt=attempt))
        self.steps.append(self._retry(later, attempt=attempt))

    def _ask(self, node: "Node | None", batch: Sequence[K], *, attempt: int) -> Steps[None]:
        """Settle the items of one request, with those that have to be retried."""
        call, request = self.call, self.request
        ask = Ask(
            node,
            request.request(batch),
            call.deadline,
            request.first_version,
            request.last_version,
        )
        (reply,) = yield from call.send((ask,))
        outcome = reply.outcome
        later: dict[K, TailraceError] = {}
        if isinstance(outcome, UnsupportedBrokerError) and len(batch) > 1:
            # A request that cannot carry one of its items is not sent at all: one of them may be
            # what this version cannot carry.
            self.steps.append(self.settle(batch, attempt=attempt, is_alone=True))
            return
        if isinstance(outcome, TailraceError):
            for item in batch:
                # It may have been carried out, so a second request could answer that the topic
                # exists.
                if request.is_sent_once and reply.is_sent:
                    self.done[item] = UnknownOutcomeError(request.name_of(item), cause=outcome)
                else:
                    self._take_one(item, outcome, later=later, attempt=attempt)
        else:
            assert isinstance(outcome, request.response)
            # By item, not by place: a broker may answer in another order, or about more than was
            # asked.
            found = dict(request.read(outcome, batch, address=reply.address))
            for item in batch:
                if item in found:
                    self._take_one(item, found[item], later=later, attempt=attempt)
                else:
                    self.done[item] = IncompleteAnswerError(
                        f"{request.name_of(item)}: {reply.address} left it out of its "
                        f"{type(outcome).__name__}; is it a broker of Kafka?"
                    )
        self.steps.append(self._retry(later, attempt=attempt))

    def _take_one(
        self,
        item: K,
        outcome: V | TailraceError,
        *,
        later: dict[K, TailraceError],
        attempt: int,
    ) -> None:
        """Note an outcome, or in `later` that the item is to be retried."""
        request = self.request
        if not isinstance(outcome, RetriableError):
            self.done[item] = outcome
            return
        code = outcome.code if isinstance(outcome, RemoteRetriableError) else ErrorCode.NONE
        # The controller has begun and was not done in time: as if no answer had come.
        if request.is_sent_once and code == ErrorCode.REQUEST_TIMED_OUT:
            self.done[item] = UnknownOutcomeError(request.name_of(item), cause=outcome)
        # A broker that has not heard of a new topic yet answers as one that never will.
        elif code in request.final or (code in _ABSENT and attempt + 1 >= ABSENT_ATTEMPTS_MAX):
            self.done[item] = outcome
        else:
            later[item] = outcome

    def _retry(self, later: Mapping[K, TailraceError], *, attempt: int) -> Steps[None]:
        """Settle items after a pause, if the limits of the call allow another attempt."""
        if not later:
            return
        call, request = self.call, self.request
        # The broker may be the wrong one: a leader that has moved, a coordinator that was replaced.
        call.routes.forget(map(request.target_of, later))
        seconds = call.pauses.pause_s(attempt)
        # Items that are done keep their results; only the rest has an error.
        if attempt >= call.retries:
            self.done.update(later)
        elif call.left_s <= seconds:
            for item, error in later.items():
                self.done[item] = _timed_out(call, request.name_of(item), error)
        else:
            yield from call.pause(seconds)
            self.steps.append(self.settle([*later], attempt=attempt + 1))


def for_each(
    call: Call, items: Iterable[K], request: ItemRequest[K, V, M]
) -> Steps[Outcomes[K, V]]:
    """The outcome of each item.

    Raises nothing: errors are outcomes.
    """
    # An item that is given twice is asked for once.
    order = list(dict.fromkeys(items))
    asked = _Items(call=call, request=request)
    if order:
        asked.steps.append(asked.settle(order, attempt=0))
        yield from at_once(asked.steps, call.clock)
    return Outcomes({item: asked.done[item] for item in order})


def ask_one(call: Call, request: ItemRequest[str, V, M], item: str = "") -> Steps[V]:
    """The result of an operation with one item.

    Raises:
        TailraceError: the error of the item.
    """
    return (yield from for_each(call, [item], request)).result(item)


def many(items: object, *, what: str) -> list[object]:
    """The items of a call; a single text is refused, because its letters would be items.

    Raises:
        TypeError: it is a text or bytes, or has no items.
    """
    # A text is a list of letters, so the mistake would be found by the broker, if at all.
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise TypeError(f"{what} is {kind_of(items)}; give a list")
    return list(items)


def all_of(kind: type[K], items: object, *, what: str) -> list[K]:
    """The items of a call, which are all of one class.

    Raises:
        TypeError: one is of another, or the call has no list.
    """
    found = many(items, what=what)
    for each in found:
        if not isinstance(each, kind):
            raise TypeError(f"{what} has {kind_of(each)}; each has to be a {kind.__name__}")
    return [each for each in found if isinstance(each, kind)]


def names(items: object, *, what: str) -> list[str]:
    """The names in a call.

    Raises:
        TypeError: one is no str, or the call has no list.
    """
    return all_of(str, items, what=what)


def name_in(given: object, *, what: str) -> str:
    """The one name in a call.

    Raises:
        TypeError: it is no str.
    """
    if not isinstance(given, str):
        raise TypeError(f"{what} is {kind_of(given)} ({given!r}); give its name as a str")
    return given


def partitions_in(items: object, *, what: str = "partitions") -> list[TopicPartition]:
    """The partitions in a call; a tuple of a topic and a number is one.

    Raises:
        TypeError: one is something else, or the call has no list.
    """
    if _is_partition(items):
        raise TypeError(f"{what} is one partition ({items!r}); give a list of partitions")
    found = many(items, what=what)
    for each in found:
        if not _is_partition(each):
            raise TypeError(
                f"{what} has {kind_of(each)} ({each!r}); give TopicPartition(topic, number)"
            )
    return [TopicPartition(*each) for each in found]  # type: ignore[misc]


def values_in(given: Mapping[K, V], *, what: str) -> Mapping[K, V]:
    """The items of a call with a value for each.

    Raises:
        TypeError: it is no mapping.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} is {kind_of(given)}; give a mapping with a value for each item")
    return given


def partition_values_in(
    given: Mapping[TopicPartition, V], *, what: str, kinds: tuple[type, ...] = (object,)
) -> dict[TopicPartition, V]:
    """The partitions of a call with a value for each, which is of one of these classes.

    Raises:
        TypeError: it is no mapping, or a partition or a value is something else.
    """
    places = partitions_in(values_in(given, what=what), what=what)
    check_kinds(given, kinds, what=what)
    return dict(zip(places, given.values(), strict=True))


def check_kinds(given: Mapping[K, V], kinds: tuple[type, ...], *, what: str) -> None:
    """Raise a TypeError if a value is of none of these classes."""
    for item, value in given.items():
        if not isinstance(value, kinds):
            wanted = " or ".join(each.__name__ for each in kinds)
            raise TypeError(f"{what} has {kind_of(value)} for {item!r}; give {wanted}")


def _is_partition(given: object) -> bool:
    return (
        isinstance(given, tuple)
        and len(given) == 2
        and isinstance(given[0], str)
        and isinstance(given[1], int)
    )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of partitions by topic, in order."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


def _timed_out(call: Call, name: str, last: TailraceError) -> OperationTimeoutError:
    error = OperationTimeoutError(name, limit_ms=call.limit_ms, last=last)
    error.__cause__ = last
    return error
