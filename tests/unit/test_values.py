"""`tailrace.values.dataclass` makes classes that do what those of Python's own `dataclass` do."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any, NamedTuple

import pytest

from tailrace import values


class Family(NamedTuple):
    """Classes of each kind, made by one decorator."""

    place: Any
    """Two fields by keywords, one of them required."""
    pair: Any
    """Two fields by position, the second with a default."""
    derived: Any
    """A pair with one field more."""
    odd: Any
    """Fields that are not compared, not shown, or made after the others."""
    named: Any
    """A class with its own methods."""
    same: Any
    """Objects that are equal to themselves only."""
    empty: Any
    """No fields."""


def family(dataclass: Any) -> Family:
    """The same classes, made by this decorator."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Place:
        """A value."""

        topic: str
        numbers: tuple[int, ...] = ()
        notes: list[str] = field(default_factory=list)

    @dataclass(frozen=True, slots=True)
    class Pair:
        """A value."""

        first: int
        second: int = 2

    @dataclass(frozen=True, slots=True)
    class Derived(Pair):
        """A value."""

        third: int = 3

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Odd:
        """A value."""

        name: str
        secret: str = field(default="", repr=False)
        version: int = field(default=0, compare=False)
        length: int = field(init=False)
        kept: dict[str, int] = field(init=False, default_factory=dict, hash=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "length", len(self.name))

    @dataclass(frozen=True, slots=True)
    class Named:
        """A value."""

        name: str

        def __repr__(self) -> str:
            return f"<{self.name}>"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named) and self.name.lower() == other.name.lower()

        def __hash__(self) -> int:
            return hash(self.name.lower())

    @dataclass(frozen=True, slots=True, eq=False)
    class Same:
        """A value."""

        name: str = ""

    @dataclass(frozen=True, slots=True)
    class Empty:
        """A value."""

    return Family(Place, Pair, Derived, Odd, Named, Same, Empty)


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A value that can be pickled."""

    x: int
    y: int = 0


class Plain(Point):
    """A class that is derived from a value, and is none itself."""

    def __init__(self, x: int) -> None:
        super().__init__(x=x, y=7)


def outcome(call: Callable[[], object]) -> object:
    """The result of a call, or its error."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - whatever it is, both have to have it
        return type(error), str(error)


WAYS: list[Callable[[Family], object]] = [
    lambda made: outcome(lambda: made.place(topic="a").notes),
    lambda made: made.place(topic="a").notes is made.place(topic="a").notes,
    lambda made: outcome(lambda: made.place(topic="a", numbers=(1,), notes=["n"]).notes),
    lambda made: outcome(lambda: made.place(topic="a", other=1))[0],  # type: ignore[index]
    lambda made: outcome(made.place)[0],  # type: ignore[index]
    lambda made: outcome(lambda: made.place("a"))[0],  # type: ignore[index]
    lambda made: made.place(topic="a") == made.place(topic="a"),
    lambda made: made.place(topic="a") == made.place(topic="b"),
    lambda made: made.place(topic="a") != made.place(topic="b"),
    lambda made: made.place(topic="a") == ("a", (), []),
    lambda made: outcome(lambda: hash(made.place(topic="a"))),
    lambda made: repr(made.place(topic="a")),
    lambda made: outcome(lambda: setattr(made.place(topic="a"), "topic", "b")),
    lambda made: outcome(lambda: delattr(made.place(topic="a"), "topic")),
    lambda made: hasattr(made.place(topic="a"), "__dict__"),
    lambda made: dataclasses.replace(made.place(topic="a"), numbers=(2,)).numbers,
    lambda made: dataclasses.asdict(made.place(topic="a", numbers=(2,))),
    lambda made: [each.name for each in dataclasses.fields(made.odd)],
    lambda made: repr(made.pair(1)),
    lambda made: hash(made.pair(1)) == hash(made.pair(1, 2)),
    lambda made: repr(made.pair(first=1, second=3)),
    lambda made: made.pair.__match_args__,
    lambda made: list(inspect.signature(made.place).parameters),
    lambda made: list(inspect.signature(made.derived).parameters),
    lambda made: repr(made.derived(1, third=4)),
    lambda made: made.derived(1) == made.pair(1),
    lambda made: made.derived(1) == made.derived(1, 2, 3),
    lambda made: outcome(lambda: setattr(made.derived(1), "third", 4)),
    lambda made: repr(made.odd(name="abc", secret="s", version=1)),
    lambda made: made.odd(name="abc", version=1) == made.odd(name="abc", version=2),
    lambda made: hash(made.odd(name="abc", version=1)) == hash(made.odd(name="abc", version=2)),
    lambda made: made.odd(name="abc", secret="s") == made.odd(name="abc"),
    lambda made: outcome(lambda: dataclasses.replace(made.odd(name="abc"), name="a").length),
    lambda made: repr(made.named("a")),
    lambda made: {made.named("a"): 1}.get(made.named("A")),
    lambda made: made.same("a") == made.same("a"),
    lambda made: len({made.same(), made.same()}),
    lambda made: made.empty() == made.empty(),
    lambda made: repr(made.empty()),
    lambda made: copy.deepcopy(made.pair(1)) == made.pair(1),
    lambda made: copy.copy(made.odd(name="abc")).length,
]


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_a_class_does_what_a_dataclass_does(way: int) -> None:
    """Whether a way to use it is the first use of the class or not."""
    ours, theirs = family(values.dataclass), family(dataclasses.dataclass)
    for _ in range(2):
        assert WAYS[way](ours) == WAYS[way](theirs)


def test_a_value_can_be_pickled() -> None:
    """Spark sends values to its tasks."""
    assert pickle.loads(pickle.dumps(Point(x=3))) == Point(x=3)


def test_a_derived_class_keeps_its_own_methods() -> None:
    """Also if an object of it is the first that is made."""
    assert (Plain(1).y, Plain(2).x) == (7, 2)


def test_other_classes_are_made_by_python() -> None:
    """If they are not frozen, they can be changed, and need no slots."""

    @values.dataclass
    class Open:
        """A value."""

        x: int = 0

    @values.dataclass(slots=True)
    class Slotted:
        """A value."""

        x: int = 0

    changed, slotted = Open(1), Slotted()
    changed.x = 2
    slotted.x = 2
    assert (changed, slotted) == (Open(2), Slotted(2))
