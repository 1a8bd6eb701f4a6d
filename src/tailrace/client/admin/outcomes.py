"""`Outcomes`: one outcome for each item of an operation, its result or its error.

    outcomes = admin.delete_topics(["flights", "nonsuch"])
    outcomes.errors                # {"nonsuch": RemoteFatalError(...)}
    outcomes.results()             # raises: one of the items has an error

Invariant: it has each item that was asked about, in the order of the call, and no other.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from tailrace.errors import FatalError, RetriableError, TailraceError

K = TypeVar("K")
V = TypeVar("V")

ITEMS_SHOWN_MAX = 5
"""Most items in the sentence of an error."""


class ItemErrors(TailraceError):  # noqa: N818 - the errors of several items
    """Several items of an operation failed; the others have their results."""

    def __init__(self, errors: Mapping[Any, TailraceError], *, count: int) -> None:
        self.errors = MappingProxyType(dict(errors))
        """The errors by item."""
        self.count = count
        """The number of items in the call."""
        shown = [*map(str, self.errors.values())][:ITEMS_SHOWN_MAX]
        more = len(self.errors) - len(shown)
        super().__init__(
            f"{len(self.errors)} of {count} items failed: {'; '.join(shown)}"
            + (f"; and {more} more" if more else "")
        )


class OperationTimeoutError(RetriableError, TimeoutError):
    """An item was not done within the time limit of the call; its last error is the cause."""

    def __init__(self, item: str, *, limit_ms: int, last: TailraceError | None) -> None:
        self.limit_ms = limit_ms
        """The limit in milliseconds."""
        why = "" if last is None else f"; the last error: {last}"
        super().__init__(f"{item} was not done within default.api.timeout.ms ({limit_ms} ms){why}")


class UnknownOutcomeError(FatalError):
    """A change was sent once and not answered: it may have been made, or not."""

    def __init__(self, item: str, *, cause: TailraceError) -> None:
        super().__init__(f"{item} may have been changed or not; look before you repeat it: {cause}")


class ClosedAdminError(FatalError):
    """The admin client was closed."""


class IncompleteAnswerError(FatalError):
    """A broker's answer lacks an item that it was asked about, or contradicts the request."""


class Outcomes(Mapping[K, V | TailraceError]):
    """A mapping from each item to its result or its error."""

    __slots__ = ("_outcomes",)

    def __init__(self, outcomes: Mapping[K, V | TailraceError]) -> None:
        self._outcomes = dict(outcomes)

    def __getitem__(self, item: K) -> V | TailraceError:
        return self._outcomes[item]

    def __iter__(self) -> Iterator[K]:
        return iter(self._outcomes)

    def __len__(self) -> int:
        return len(self._outcomes)

    def __repr__(self) -> str:
        return f"Outcomes({self._outcomes!r})"

    @property
    def errors(self) -> dict[K, TailraceError]:
        """The items that failed, with their errors."""
        return {
            item: outcome
            for item, outcome in self._outcomes.items()
            if isinstance(outcome, TailraceError)
        }

    @property
    def succeeded(self) -> dict[K, V]:
        """The other items, with their results."""
        return {
            item: outcome
            for item, outcome in self._outcomes.items()
            if not isinstance(outcome, TailraceError)
        }

    def result(self, item: K) -> V:
        """The result of one item.

        Raises:
            TailraceError: the error of the item.
            KeyError: the call had no such item.
        """
        outcome = self._outcomes[item]
        if isinstance(outcome, TailraceError):
            raise outcome
        return outcome

    def results(self) -> dict[K, V]:
        """The results of all items.

        Raises:
            TailraceError: the error of the only item that failed.
            ItemErrors: several items failed.
        """
        errors = self.errors
        if len(errors) == 1:
            raise next(iter(errors.values()))
        if errors:
            raise ItemErrors(errors, count=len(self))
        return self.succeeded

    def complete(self) -> dict[K, V]:
        """The results of all items, where a part of them is of no use.

        Raises:
            TailraceError: the error of the first item that failed.
        """
        for error in self.errors.values():
            raise error
        return self.succeeded

    def merged(self, other: Mapping[K, V | TailraceError]) -> "Outcomes[K, V]":
        """The same, with the outcomes of `other` for the items that both have."""
        return Outcomes({item: other.get(item, mine) for item, mine in self._outcomes.items()})

    def about(self, items: Iterable[K], *, answer: str) -> "Outcomes[K, V]":
        """The outcomes of these items alone; a missing one is an IncompleteAnswerError."""
        return Outcomes(
            {
                each: self._outcomes[each]
                if each in self._outcomes
                else IncompleteAnswerError(f"the answer to {answer} has left {each} out")
                for each in items
            }
        )
