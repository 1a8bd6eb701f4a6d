"""`dataclass`: Python's, with classes of frozen values that are made in a fraction of the time.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Place:
        topic: str
        partition: int = 0

For type checkers it is Python's own, and its classes behave as if it were. But Python's compiles
six or seven functions for each class with `frozen` and `slots`, at each start of a process; there
are 600 such classes, and most of their functions are never called. Here `__init__`, `__eq__` and
`__hash__` are compiled when one of them is looked up first, and all classes share the others.
Classes that are not frozen, or have no slots, are made by Python's.

Invariant: an object with `frozen` never changes once it is made, but by `object.__setattr__`.
"""

import dataclasses
from typing import TYPE_CHECKING

__all__ = ["compile_methods", "dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from collections.abc import Callable, Sequence

    _MISSING = dataclasses.MISSING

    def dataclass(
        template: type | None = None,
        /,
        *,
        frozen: bool = False,
        slots: bool = False,
        eq: bool = True,
        repr: bool = True,  # noqa: A002 - the name of Python's parameter
        **rest: bool,
    ) -> type | Callable[[type], type]:
        """Make a class a dataclass, as `dataclasses.dataclass` does."""
        if template is not None or not (frozen and slots):
            usual = dataclasses.dataclass(frozen=frozen, slots=slots, eq=eq, repr=repr, **rest)
            return usual if template is None else usual(template)
        return lambda template: _made(template, eq=eq, repr=repr, **rest)

    def _made(template: type, *, eq: bool, repr: bool, **rest: bool) -> type:  # noqa: A002
        own = template.__dict__
        made = dataclasses.dataclass(template, init=False, repr=False, eq=False, slots=True, **rest)
        methods = dict(_SHARED)
        if repr and "__repr__" not in own:
            methods["__repr__"] = _repr
        compiled = ["__init__"]
        if eq:
            compiled += [] if "__eq__" in own else ["__eq__"]
            compiled += [] if own.get("__hash__") is not None else ["__hash__"]
        for name in compiled:
            methods[name] = _FirstUse(made, name, compiled)
        for name, method in methods.items():
            setattr(made, name, method)
        return made

    class _FirstUse:
        """A method that is compiled when it is looked up, with the others of its class."""

        def __init__(self, made: type, name: str, compiled: Sequence[str]) -> None:
            self._made = made
            self._name = name
            self._compiled = compiled

        def __get__(self, instance: object, _: type | None = None) -> Callable[..., object]:
            methods = _compile(self._made)
            for each in self._compiled:
                setattr(self._made, each, methods[each])
            method = methods[self._name]
            return method if instance is None else method.__get__(instance)

    def _compile(made: type) -> dict[str, Callable[..., object]]:
        names = {"MISSING": _MISSING}
        parameters: dict[bool, list[str]] = {False: [], True: []}
        body = []
        fields = dataclasses.fields(made)
        for number, field in enumerate(fields):
            value = field.name
            default = ""
            if field.default is not _MISSING:
                names[f"default_{number}"] = field.default
                default = f"=default_{number}"
            elif field.default_factory is not _MISSING:
                names[f"factory_{number}"] = field.default_factory
                default = "=MISSING"
                value = f"factory_{number}() if {value} is MISSING else {value}"
            if field.init:
                parameters[field.kw_only].append(f"{field.name}{default}")
            elif default:
                value = f"{default[1:]}" if default != "=MISSING" else f"factory_{number}()"
            else:
                continue
            names[f"set_{number}"] = getattr(made, field.name).__set__
            body.append(f"set_{number}(self, {value})")
        if hasattr(made, "__post_init__"):
            body.append("self.__post_init__()")
        by_name = ["*", *parameters[True]] if parameters[True] else []
        compared = [field.name for field in fields if field.compare]
        hashed = [
            field.name for field in fields if (field.compare if field.hash is None else field.hash)
        ]
        source = (
            f"def __init__({', '.join(['self', *parameters[False], *by_name])}):\n"
            f" {'; '.join(body) or 'pass'}\n"
            "def __eq__(self, other):\n"
            " if other.__class__ is not self.__class__: return NotImplemented\n"
            f" return {_tuple('self', compared)} == {_tuple('other', compared)}\n"
            f"def __hash__(self): return hash({_tuple('self', hashed)})\n"
        )
        # Dataclasses do the same: the text has names of our own classes only.
        exec(source, names)  # noqa: S102
        return names

    def _tuple(owner: str, names: Sequence[str]) -> str:
        return f"({''.join(f'{owner}.{name}, ' for name in names)})"

    def _repr(self: object) -> str:
        shown = [field.name for field in dataclasses.fields(self) if field.repr]
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({values})"

    def _refuse_set(_: object, name: str, __: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_delete(_: object, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def _state(self: object) -> list[object]:
        return [getattr(self, field.name) for field in dataclasses.fields(self)]

    def _set_state(self: object, values: Sequence[object]) -> None:
        for field, value in zip(dataclasses.fields(self), values, strict=True):
            object.__setattr__(self, field.name, value)

    _SHARED = {
        "__setattr__": _refuse_set,
        "__delattr__": _refuse_delete,
        "__getstate__": _state,
        "__setstate__": _set_state,
    }


def compile_methods(made: type) -> None:
    """Compile the methods of a class now, so that its first use does not wait for it."""
    getattr(made, "__init__")  # noqa: B009 - looking it up is what compiles it
