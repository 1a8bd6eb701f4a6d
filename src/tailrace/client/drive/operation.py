"""`operation`: a call that waits, written once, as a method of both faces of a client.

    class ConsumerCalls:
        @operation
        def position(self, partition, timeout=None) -> Steps[int]:
            \"\"\"The offset of the next record.\"\"\"

    consumer.position(("flights", 0))             # Consumer(BlockingFace, ...): the offset
    await consumer.position(("flights", 0))       # AsyncConsumer(AwaitingFace, ...): the same

Signature, types and documentation are those of the function, for `help()`, editors and mypy.
"""

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, get_args, overload

from tailrace.client.drive.steps import Steps

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C")


class BlockingFace:
    """Base class of a client whose calls block their thread."""

    def _run(self, steps: Steps[T]) -> T:
        """Run a call to its end."""
        raise NotImplementedError


class AwaitingFace:
    """Base class of a client whose calls are awaited."""

    async def _run(self, steps: Steps[T]) -> T:
        """Run a call to its end."""
        raise NotImplementedError


class Operation(Generic[C, P, T]):
    """The function of a call, which becomes a method by the face of the class that has it."""

    def __init__(
        self, steps: Callable[Concatenate[C, P], Steps[T]], *, runner: str = "_run"
    ) -> None:
        """`runner` names the face's method that runs the steps."""
        self._steps = steps
        self._runner = runner
        self._methods: dict[bool, Callable[..., Any]] = {}
        """By whether they are awaited. Made when they are needed: reading all the signatures of a
        client takes as long as importing it."""

    @overload
    def __get__(self, face: None, owner: type) -> Callable[Concatenate[C, P], Any]: ...

    @overload
    def __get__(self, face: BlockingFace, owner: type) -> Callable[P, T]: ...

    @overload
    def __get__(self, face: AwaitingFace, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, face: object, owner: type) -> object:
        is_awaited = issubclass(owner, AwaitingFace)
        made = self._methods.get(is_awaited)
        if made is None:
            made = self._methods[is_awaited] = self._method(is_awaited=is_awaited)
        return made if face is None else MethodType(made, face)

    def _method(self, *, is_awaited: bool) -> Callable[..., Any]:
        steps, runner = self._steps, self._runner

        @wraps(steps)
        def blocking(face: C, /, *arguments: P.args, **options: P.kwargs) -> object:
            return getattr(face, runner)(steps(face, *arguments, **options))

        @wraps(steps)
        async def awaiting(face: C, /, *arguments: P.args, **options: P.kwargs) -> object:
            return await getattr(face, runner)(steps(face, *arguments, **options))

        made: Callable[..., Any] = awaiting if is_awaited else blocking
        # The result of the steps is the type that the method returns.
        signature = inspect.signature(steps)
        *_, result = get_args(signature.return_annotation) or (inspect.Signature.empty,)
        result = None if result is type(None) else result
        # The first parameter may be that of an operation without I/O, which callers do not see.
        first, *others = signature.parameters.values()
        own = first.replace(name="self", annotation=inspect.Parameter.empty)
        made.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[own, *others], return_annotation=result
        )
        # Tools that follow it would show the generator.
        del made.__wrapped__  # type: ignore[attr-defined]
        return made


operation = Operation
