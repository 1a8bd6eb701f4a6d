"""Classes of wire fields are frozen dataclasses with slots, however they are made."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.protocol.fields import wire, wire_array
from tailrace.protocol.wire_dataclass import wire_dataclass


@wire_dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A struct as messages have it."""

    name: str = wire("string")
    """A text."""
    numbers: tuple[int, ...] = wire_array("int32", nullable_since=0)
    """Numbers."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """The same struct, made by Python's own decorator."""

    name: str = wire("string")
    """A text."""
    numbers: tuple[int, ...] = wire_array("int32", nullable_since=0)
    """Numbers."""


@wire_dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """A message without fields."""


def outcome(call: Callable[[], object]) -> object:
    """The result of a call, or the kind of its error."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - whatever it is, both have to have it
        return type(error)


WAYS: list[Callable[[Any], object]] = [
    lambda made: outcome(lambda: made().name),
    lambda made: outcome(lambda: made(name="a", numbers=(1,)).numbers),
    lambda made: outcome(lambda: made("a")),
    lambda made: outcome(lambda: made(nome="a")),
    lambda made: made(name="a") == made(name="a"),
    lambda made: made(name="a") == made(name="b"),
    lambda made: made(name="a") == ("a", ()),
    lambda made: hash(made(name="a")) == hash(made(name="a")),
    lambda made: outcome(lambda: hash(made(numbers=[1]))),
    lambda made: outcome(lambda: setattr(made(), "name", "a")),
    lambda made: outcome(lambda: delattr(made(), "name")),
    lambda made: repr(made(name="a")).removeprefix(made.__name__),
    lambda made: dataclasses.replace(made(name="a"), numbers=(2,)).numbers,
    lambda made: outcome(lambda: dataclasses.replace(made(), other=1)),
    lambda made: [field.name for field in dataclasses.fields(made)],
    lambda made: dataclasses.asdict(made(name="a")),
    lambda made: pickle.loads(pickle.dumps(made(name="a"))) == made(name="a"),
    lambda made: copy.deepcopy(made(name="a", numbers=(3,))) == made(name="a", numbers=(3,)),
    lambda made: hasattr(made(), "__dict__"),
]


@pytest.mark.parametrize("way", range(len(WAYS)))
def test_a_class_does_what_a_dataclass_does(way: int) -> None:
    """Also in a call that is the first of its class, and in the second."""
    for _ in range(2):
        assert WAYS[way](Place) == WAYS[way](Usual)


def test_a_class_without_fields_can_be_made() -> None:
    """All objects of it are equal."""
    assert Empty() == Empty()
    assert repr(Empty()) == "Empty()"
