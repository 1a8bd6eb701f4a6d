"""`Outcomes`: one outcome for each item of an operation, its result or its error.

    outcomes = admin.delete_topics(["flights", "nonsuch"])
    outcomes.errors                # {"nonsuch": RemoteRetriableError(...)}
    outcomes.results()             # raises: one of the items has an error

Invariant: it has each item that was asked about, in the order of the call, and no other.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeVar

from tailrace.client.errors import IncompleteAnswerError, ItemErrors
from tailrace.errors import TailraceError

K = TypeVar("K")
V = TypeVar("V")

SHOWN_MAX: Final = 20
"""Most items in the text of outcomes."""


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
        shown = [f"{item!r}: {each!r}" for item, each in islice(self._outcomes.items(), SHOWN_MAX)]
        if len(self) > SHOWN_MAX:
            shown.append(f"and {len(self) - SHOWN_MAX} more, {len(self.errors)} errors in all")
        return f"Outcomes({{{', '.join(shown)}}})"

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
        # The error itself, which callers may catch by its class.
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
