"""`brief_errors`: what Spark calls ends with one sentence where this package knows the reason.

Spark puts the traceback of a Python process into its own error. That of a `TailraceError` is forty
lines about this package, and the sentence that says what to do comes last. Other errors keep their
traceback: nobody has foreseen them. With the logger `tailrace.spark` at DEBUG all of them are
logged whole.
"""

import logging
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

from tailrace.errors import TailraceError

logger = logging.getLogger(__name__)

C = TypeVar("C", bound=type)


def brief_errors(kind: C) -> C:
    """Have a class that Spark calls raise a `TailraceError` without the frames below its methods.

    For the class of a source, its readers and its writers; private methods stay as they are.
    """
    for name, member in tuple(vars(kind).items()):
        if callable(member) and not name.startswith("_"):
            setattr(kind, name, _brief(member))
    return kind


def _brief(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the method has
        try:
            result = method(*args, **kwargs)
        except TailraceError as error:
            raise _without_frames(error) from None
        # What `read` returns runs in the hands of Spark.
        return _brief_rows(result) if isinstance(result, Iterator) else result

    return call


def _brief_rows(rows: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from rows
    except TailraceError as error:
        raise _without_frames(error) from None


def _without_frames(error: TailraceError) -> TailraceError:
    logger.debug("query_failed", exc_info=error)
    return error.with_traceback(None)
