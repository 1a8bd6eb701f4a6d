"""`dataclass`: Python's, with classes that are made in a fraction of the time.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Place:
        topic: str
        partition: int = 0
        notes: list[str] = field(default_factory=list)

For type checkers `dataclass`, `field`, `fields` and `replace` are Python's own, and the classes
behave as if they were, in the functions of the module `dataclasses` too. But Python's decorator
compiles up to seven functions for each class, at each start of a process; there are 600 such
classes, and most of their functions are never called. Here `__init__`, `__eq__` and `__hash__` are
compiled when one of them is looked up first, and all classes share the others. The module
`dataclasses`, whose import takes as long as 100 classes, is loaded when it is asked about one.

Classes without slots are made by Python's. Not here: its other parameters, `InitVar`, `KW_ONLY`,
and the refusal of mutable defaults, which the linter does.

Invariant: an object with `frozen` never changes once it is made, but by `object.__setattr__`.
"""

from typing import TYPE_CHECKING

__all__ = ["compile_methods", "dataclass", "field", "fields", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass, field, fields, replace
else:
    from collections.abc import Callable, Mapping, Sequence
    from functools import cache, cached_property
    from operator import attrgetter
    from types import MappingProxyType
    from typing import Any, ClassVar

    class _Missing:
        """Stands for a default that is not given; the signature of `__init__` shows it."""

        def __repr__(self) -> str:
            return "<factory>"

    _MISSING = _Missing()
    _NOTHING = MappingProxyType({})
    _ARGUMENTS = (
        "compare", "default", "default_factory", "hash", "init", "kw_only", "metadata", "repr",
    )  # fmt: skip

    class field:  # noqa: N801 - `dataclasses.field` makes the same, and is a function
        """The declaration of a field, with the attributes of `dataclasses.Field`."""

        __slots__ = (*_ARGUMENTS, "name", "type")

        def __init__(
            self,
            *,
            default: object = _MISSING,
            default_factory: object = _MISSING,
            init: bool = True,
            repr: bool = True,  # noqa: A002 - the names of Python's parameters
            hash: bool | None = None,  # noqa: A002
            compare: bool = True,
            metadata: Mapping[Any, Any] = _NOTHING,
            kw_only: object = _MISSING,
        ) -> None:
            self.default = default
            self.default_factory = default_factory
            self.init = init
            self.repr = repr
            self.hash = hash
            self.compare = compare
            self.metadata = metadata
            self.kw_only = kw_only

    def fields(made: object) -> tuple[field, ...]:
        """The fields of a dataclass or of an instance of one, as `dataclasses.fields` gives them.

        Raises:
            TypeError: it is neither.
        """
        kind = made if isinstance(made, type) else type(made)
        for each in kind.__mro__:
            declared = each.__dict__.get("__dataclass_fields__")
            if isinstance(declared, _Fields):
                return declared.all()
            if declared is not None:
                break
        import dataclasses

        return tuple(map(_own, dataclasses.fields(kind)))

    def replace(made: Any, /, **changes: object) -> Any:  # noqa: ANN401 - of the same class
        """A copy of an object with other values of some fields, as of `dataclasses.replace`.

        Raises:
            ValueError: a field that `__init__` does not take is to be changed.
        """
        names, values_of, without_init = _copied(type(made))
        for each in without_init:
            if each in changes:
                raise ValueError(f"field {each} is no argument of {type(made).__name__}")
        return type(made)(**dict(zip(names, values_of(made), strict=False)) | changes)

    @cache
    def _copied(kind: type) -> tuple[tuple[str, ...], Callable[[Any], Any], tuple[str, ...]]:
        """Names of the fields that `__init__` takes, what reads all of them, and other fields."""
        # The controller replaces a partition for each change of one: this is most of what it costs.
        declared = fields(kind)
        names = tuple(each.name for each in declared if each.init)
        # Two more than are wanted: with a single name it would give the value, and no tuple of it.
        values_of = attrgetter(*names, "__class__", "__class__")
        return names, values_of, tuple(each.name for each in declared if not each.init)

    def dataclass(
        template: type | None = None,
        /,
        *,
        frozen: bool = False,
        slots: bool = False,
        eq: bool = True,
        repr: bool = True,  # noqa: A002 - the name of Python's parameter
        kw_only: bool = False,
    ) -> type | Callable[[type], type]:
        """Make a class a dataclass, as `dataclasses.dataclass` does."""

        def made(template: type) -> type:
            make = _made if slots else _made_by_python
            return make(template, frozen=frozen, eq=eq, repr=repr, kw_only=kw_only)

        return made if template is None else made(template)

    def _made_by_python(template: type, **parameters: bool) -> type:
        import dataclasses

        for name, value in list(vars(template).items()):
            if isinstance(value, field):
                setattr(template, name, dataclasses.field(**_arguments(value)))
        return dataclasses.dataclass(template, **parameters)

    def _made(template: type, *, frozen: bool, kw_only: bool, **methods: bool) -> type:
        own = template.__dict__
        declared = _Fields(template, is_frozen=frozen, is_kw_only=kw_only)
        left_out = {"__dict__", "__weakref__", *declared.types}
        members = {name: value for name, value in own.items() if name not in left_out}
        inherited = {name for base in template.__mro__[1:] for name in _slots_of(base)}
        members["__slots__"] = tuple(name for name in declared.types if name not in inherited)
        members["__dataclass_fields__"] = declared
        members["__dataclass_params__"] = _Parameters(declared)
        members.setdefault("__match_args__", declared.match_args())
        if methods["repr"]:
            members.setdefault("__repr__", _repr)
        if frozen:
            members = _FROZEN | members
        compiled = ["__init__"]
        if methods["eq"] and "__eq__" not in own:
            compiled.append("__eq__")
        if methods["eq"] and own.get("__hash__") is None:
            members["__hash__"] = None
            compiled += ["__hash__"] if frozen else []
        members |= {name: _FirstUse(declared, name, compiled) for name in compiled}
        # Slots can only be given to a class when it is made.
        declared.made = made = type(template)(template.__name__, template.__bases__, members)
        made.__qualname__ = template.__qualname__
        return made

    def _slots_of(base: type) -> Sequence[str]:
        slots = base.__dict__.get("__slots__", ())
        return (slots,) if isinstance(slots, str) else slots

    class _Fields:
        """The fields of a class; `dataclasses` gets its own when it looks for them."""

        def __init__(self, template: type, *, is_frozen: bool, is_kw_only: bool) -> None:
            own = template.__dict__
            annotations = own.get("__annotations__", {})
            self.types = {
                name: kind for name, kind in annotations.items() if not _is_class_variable(kind)
            }
            self.is_frozen = is_frozen
            self.made = template
            self._is_kw_only = is_kw_only
            self._values = {name: own[name] for name in self.types if name in own}
            bases = template.__mro__[:0:-1]
            self._bases = [base for base in bases if "__dataclass_fields__" in base.__dict__]
            self._all: tuple[field, ...] | None = None

        def all(self) -> tuple[field, ...]:
            """The fields in their order, those of the bases first."""
            if self._all is None:
                found = {}
                for base in self._bases:
                    found |= {each.name: each for each in fields(base)}
                found |= {name: self._field(name) for name in self.types}
                self._all = tuple(found.values())
            return self._all

        def _field(self, name: str) -> field:
            value = self._values.get(name, _MISSING)
            is_declared = isinstance(value, field) or type(value).__module__ == "dataclasses"
            declared = _own(value) if is_declared else field(default=value)
            declared.name, declared.type = name, self.types[name]
            if declared.kw_only is _MISSING:
                declared.kw_only = self._is_kw_only
            return declared

        def match_args(self) -> tuple[str, ...]:
            """The fields that patterns take by position."""
            if self._is_kw_only and not self._bases:
                return ()
            return tuple(each.name for each in self.all() if each.init and not each.kw_only)

        def __get__(self, instance: object, owner: type) -> object:
            return self.theirs.__dataclass_fields__

        @cached_property
        def theirs(self) -> type:
            """A class with the same fields, made by Python's decorator."""
            import dataclasses

            return dataclasses.make_dataclass(
                self.made.__name__,
                [
                    (each.name, each.type, dataclasses.field(**_arguments(each)))
                    for each in self.all()
                ],
                frozen=self.is_frozen, init=False, repr=False, eq=False,
            )  # fmt: skip

    def _is_class_variable(kind: object) -> bool:
        if isinstance(kind, str):
            return kind.startswith(("ClassVar", "typing.ClassVar"))
        return kind is ClassVar or getattr(kind, "__origin__", None) is ClassVar

    def _arguments(declared: field) -> dict[str, Any]:
        """The arguments that a field was made with."""
        found = {name: getattr(declared, name) for name in _ARGUMENTS}
        return {name: value for name, value in found.items() if value is not _MISSING}

    def _own(declared: Any) -> field:  # noqa: ANN401
        """A field of ours, for one that may be of Python's."""
        if isinstance(declared, field):
            return declared
        import dataclasses

        own = field()
        for name in field.__slots__:
            value = getattr(declared, name)
            setattr(own, name, _MISSING if value is dataclasses.MISSING else value)
        return own

    class _Parameters:
        """The parameters of the decorator, for `dataclasses`."""

        def __init__(self, declared: _Fields) -> None:
            self._declared = declared

        def __get__(self, instance: object, owner: type) -> object:
            return self._declared.theirs.__dataclass_params__

    class _FirstUse:
        """A method that is compiled when it is looked up, with the others of its class."""

        def __init__(self, declared: _Fields, name: str, compiled: Sequence[str]) -> None:
            self._declared = declared
            self._name = name
            self._compiled = compiled

        def __get__(self, instance: object, _: type | None = None) -> Callable[..., object]:
            methods = _compile(self._declared)
            for each in self._compiled:
                setattr(self._declared.made, each, methods[each])
            method = methods[self._name]
            return method if instance is None else method.__get__(instance)

    def _compile(declared: _Fields) -> dict[str, Callable[..., object]]:
        made = declared.made
        names = {"MISSING": _MISSING}
        parameters: dict[bool, list[str]] = {False: [], True: []}
        body = []
        found = declared.all()
        for number, each in enumerate(found):
            value = each.name
            default = ""
            if each.default is not _MISSING:
                names[f"default_{number}"] = each.default
                default = f"=default_{number}"
            elif each.default_factory is not _MISSING:
                names[f"factory_{number}"] = each.default_factory
                default = "=MISSING"
                value = f"factory_{number}() if {value} is MISSING else {value}"
            if each.init:
                parameters[each.kw_only].append(f"{each.name}{default}")
            elif default:
                value = f"{default[1:]}" if default != "=MISSING" else f"factory_{number}()"
            else:
                continue
            if declared.is_frozen:
                names[f"set_{number}"] = getattr(made, each.name).__set__
                body.append(f"set_{number}(self, {value})")
            else:
                body.append(f"self.{each.name} = {value}")
        if hasattr(made, "__post_init__"):
            body.append("self.__post_init__()")
        by_name = ["*", *parameters[True]] if parameters[True] else []
        compared = [each.name for each in found if each.compare]
        hashed = [each.name for each in found if (each.compare if each.hash is None else each.hash)]
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
        shown = [each.name for each in fields(self) if each.repr]
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({values})"

    def _refuse_set(_: object, name: str, __: object) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_delete(_: object, name: str) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def _state(self: object) -> list[object]:
        return [getattr(self, each.name) for each in fields(self)]

    def _set_state(self: object, values: Sequence[object]) -> None:
        for each, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, each.name, value)

    _FROZEN = {
        "__setattr__": _refuse_set,
        "__delattr__": _refuse_delete,
        "__getstate__": _state,
        "__setstate__": _set_state,
    }


def compile_methods(made: type) -> None:
    """Compile the methods of a class now, so that its first use does not wait for it."""
    getattr(made, "__init__")  # noqa: B009 - looking it up is what compiles it
