"""`tailrace.values.dataclass` makes classes that do what those of Python's own `dataclass` do."""

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

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
    open: Any
    """Objects that can be changed."""
    opened: Any
    """Derived from these, with another default and without an equality of its own."""


def family(dataclass: Any, field: Any) -> Family:
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

    @dataclass(slots=True)
    class Open:
        """A class."""

        kind: ClassVar[str] = "open"
        tag: "ClassVar[str]" = "text"
        x: int
        notes: list[str] = field(default_factory=list)

    @dataclass(slots=True, eq=False)
    class Opened(Open):
        """A class."""

        x: int = 1
        y: int = 2

        def __post_init__(self) -> None:
            self.y += self.x

    return Family(Place, Pair, Derived, Odd, Named, Same, Empty, Open, Opened)


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
    lambda made: repr(made.open(1, ["n"])),
    lambda made: (made.open(1) == made.open(1), made.open(1) == made.open(2)),
    lambda made: outcome(lambda: hash(made.open(1))),
    lambda made: outcome(lambda: setattr(made.open(1), "z", 4))[0],  # type: ignore[index]
    lambda made: setattr(made.open(1), "x", 4),
    lambda made: made.open.kind + made.open.tag,
    lambda made: (made.opened().y, made.opened(3, y=5).y, made.open(1).x),
    lambda made: made.opened() == made.opened(),
    lambda made: dataclasses.asdict(made.opened(notes=["n"])),
    lambda made: copy.deepcopy(made.open(1)) == made.open(1),
    lambda made: [(each.name, each.repr, each.init) for each in dataclasses.fields(made.derived)],
    lambda made: outcome(lambda: dataclasses.replace(made.odd(name="a"), length=2))[0],  # type: ignore[index]
    lambda made: repr(dataclasses.dataclass(frozen=True)(type("P", (made.pair,), {}))(1)),  # type: ignore[misc]
    lambda made: outcome(lambda: dataclasses.dataclass(type("P", (made.pair,), {})))[0],  # type: ignore[index]
]


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_a_class_does_what_a_dataclass_does(way: int) -> None:
    """Whether a way to use it is the first use of the class or not."""
    theirs = family(dataclasses.dataclass, dataclasses.field)
    for field in (values.field, dataclasses.field):
        ours = family(values.dataclass, field)
        for _ in range(2):
            assert WAYS[way](ours) == WAYS[way](theirs)


def test_fields_and_replace_do_what_those_of_dataclasses_do() -> None:
    """For classes that either decorator has made, and for a class without slots of both."""

    @values.dataclass(frozen=True)
    class Late(Point):
        """A value without slots."""

        z: list[int] = values.field(default_factory=list)

    @dataclasses.dataclass(frozen=True)
    class Theirs(Point):
        """A value that Python has made."""

        z: int = 3

    for kind in (Point, Late, Theirs):
        names = [each.name for each in dataclasses.fields(kind)]
        assert [each.name for each in values.fields(kind)] == names
        changed = values.replace(kind(x=1), y=2)
        assert changed == dataclasses.replace(kind(x=1), y=2) == kind(x=1, y=2)

    @values.dataclass(frozen=True, slots=True)
    class Single:
        """A value of one field."""

        x: int

    assert values.replace(Single(1), x=2) == Single(2)
    assert values.replace(Single(1)) == Single(1)
    with pytest.raises(TypeError):
        values.fields(int)  # type: ignore[arg-type]


def test_a_value_can_be_pickled() -> None:
    """Spark sends values to its tasks."""
    assert pickle.loads(pickle.dumps(Point(x=3))) == Point(x=3)


def test_a_derived_class_keeps_its_own_methods() -> None:
    """Also if an object of it is the first that is made."""
    assert (Plain(1).y, Plain(2).x) == (7, 2)


def test_a_value_is_made_and_used_without_the_module_dataclasses() -> None:
    """It imports what reads Python's source, and takes as long as a hundred classes."""
    script = """
import sys
from tailrace.values import dataclass, field, replace

@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    x: int
    y: list[int] = field(default_factory=list)

assert replace(Value(x=1), x=2) == Value(x=2)
print(repr(Value(x=1)), "dataclasses" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert done.stdout == "Value(x=1, y=[]) False\n"
