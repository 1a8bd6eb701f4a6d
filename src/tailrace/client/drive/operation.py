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

        @wraps(steps)
        def blocking(face: C, /, *arguments: P.args, **options: P.kwargs) -> object:
            return getattr(face, runner)(steps(face, *arguments, **options))

        @wraps(steps)
        async def awaiting(face: C, /, *arguments: P.args, **options: P.kwargs) -> object:
            return await getattr(face, runner)(steps(face, *arguments, **options))

        self._blocking = _documented(blocking)
        self._awaiting = _documented(awaiting)

    @overload
    def __get__(self, face: None, owner: type) -> Callable[Concatenate[C, P], Any]: ...

    @overload
    def __get__(self, face: BlockingFace, owner: type) -> Callable[P, T]: ...

    @overload
    def __get__(self, face: AwaitingFace, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, face: object, owner: type) -> object:
        made = self._awaiting if issubclass(owner, AwaitingFace) else self._blocking
        return made if face is None else MethodType(made, face)


operation = Operation


def _documented(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the result of its steps as the type that it returns."""
    signature = inspect.signature(function)
    *_, result = get_args(signature.return_annotation) or (inspect.Signature.empty,)
    is_none = result is type(None)
    signature = signature.replace(return_annotation=None if is_none else result)
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function
