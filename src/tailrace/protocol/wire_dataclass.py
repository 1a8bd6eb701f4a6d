"""`wire_dataclass`: the `dataclass` of messages, which are made by the hundred in each process.

    @wire_dataclass(frozen=True, slots=True, kw_only=True)
    class Topic:
        name: str = wire("string")

For type checkers it is Python's `dataclass`, and its classes behave as if it were. But Python's
compiles seven functions for each class, which is most of the time that a module of messages takes
to be imported: 350 classes have 2,500 functions, and most of them are never called. These classes
share all methods but `__init__`, which is compiled when the first object is made.

Not here: which fields there are (`fields`), and how they are read and written (`decoders`).

Invariant: an object never changes once it is made, and is equal to one of its class with the same
values.
"""

import dataclasses
from typing import TYPE_CHECKING

__all__ = ["wire_dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass as wire_dataclass
else:
    from collections.abc import Callable, Sequence

    def wire_dataclass(*, frozen: bool, slots: bool, kw_only: bool) -> Callable[[type], type]:
        """Make a class of fields with defaults a frozen dataclass with slots, by keywords."""
        assert frozen
        assert slots
        assert kw_only
        return _made

    def _made(template: type) -> type:
        made = dataclasses.dataclass(
            template, init=False, repr=False, eq=False, slots=True, kw_only=True
        )
        for name, method in _METHODS.items():
            setattr(made, name, method)
        return made

    def _values(message: object) -> tuple[object, ...]:
        return tuple([getattr(message, name) for name in message.__slots__])

    def _init_first(self: object, *arguments: object, **values: object) -> None:
        made = type(self)
        made.__init__ = _compiled_init(made)
        made.__init__(self, *arguments, **values)

    def _compiled_init(made: type) -> Callable[..., None]:
        names = {}
        parameters = ["self"]
        body = []
        for number, field in enumerate(dataclasses.fields(made)):
            names |= {
                f"default_{number}": field.default,
                f"set_{number}": getattr(made, field.name).__set__,
            }
            parameters.append(f"{field.name}=default_{number}")
            body.append(f" set_{number}(self, {field.name})")
        if body:
            parameters.insert(1, "*")
        source = f"def __init__({', '.join(parameters)}):\n" + ("\n".join(body) or " pass")
        # Dataclasses do the same: the text comes from our declarations, never from a peer.
        exec(source, names)  # noqa: S102
        return names["__init__"]

    def _repr(self: object) -> str:
        values = zip(self.__slots__, _values(self), strict=True)
        return (
            f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in values)})"
        )

    def _eq(self: object, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _values(self) == _values(other)

    def _hash(self: object) -> int:
        return hash(_values(self))

    def _refuse_set(_: object, name: str, __: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_delete(_: object, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def _set_state(self: object, values: Sequence[object]) -> None:
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, name, value)

    _METHODS = {
        "__init__": _init_first,
        "__repr__": _repr,
        "__eq__": _eq,
        "__hash__": _hash,
        "__setattr__": _refuse_set,
        "__delattr__": _refuse_delete,
        "__getstate__": _values,
        "__setstate__": _set_state,
    }
