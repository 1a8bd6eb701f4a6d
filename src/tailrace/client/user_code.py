"""`call_user_code`: calls callbacks, hooks and interceptors, and logs their exceptions.

No caller could handle these exceptions: the client's own thread, or the event loop, makes the
calls and must go on. That includes SystemExit, which would end the thread silently. Only a
KeyboardInterrupt on the main thread, outside of an event loop, is raised: it comes from Ctrl-C, and
the caller that runs the callback there, in `send` or `add_done_callback`, should get it.

Not here: calls whose result decides about a record (serializers, partitioners, `on_send`). Their
exceptions reach the caller of `send`, or become the outcome of the record. `function_for` only says
which function of a serializer that is.
"""

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, cast

log = logging.getLogger(__name__)


def call_each(calls: Iterator[tuple[Callable[..., object], object, object]], *, about: str) -> None:
    """Make calls of user code with two arguments, one after the other; else as `call_user_code`.

    Raises:
        KeyboardInterrupt: Ctrl-C, if the main thread runs it as the caller; the rest is not called.
    """
    while True:
        try:
            for call, first, second in calls:
                call(first, second)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and _is_the_callers_thread():
                raise
            _log(error, about)
        else:
            return


def call_user_code(call: Callable[..., object], *arguments: object, about: str) -> None:
    """Call user code; its exceptions are logged with the name `about` and have no other effect.

    Raises:
        KeyboardInterrupt: Ctrl-C, if the main thread runs it as the caller.
    """
    try:
        call(*arguments)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and _is_the_callers_thread():
            raise
        _log(error, about)


def function_for(given: object, topic: str, *, method: str) -> Callable[[Any], Any] | None:
    """The function of a serializer or a deserializer for a topic; None for None.

    It is a function itself, a class that is called, such as `int`, or an object whose `method` gets
    the topic first.
    """
    if given is None or isinstance(given, type):
        return given
    of_topic = getattr(given, method, None)
    return cast("Callable[[Any], Any]", given) if of_topic is None else partial(of_topic, topic)


def _log(error: BaseException, about: str) -> None:
    # Formatting the exception calls user code too, which may raise again.
    with suppress(BaseException):
        log.error("user_code_failed name=%s", about, exc_info=error)


def _is_the_callers_thread() -> bool:
    """Return whether this is the main thread, which gets signals, and runs no event loop."""
    is_main = threading.current_thread() is threading.main_thread()
    # No event loop runs where nobody has imported asyncio, which takes 20 ms.
    asyncio = sys.modules.get("asyncio")
    return is_main and (asyncio is None or asyncio._get_running_loop() is None)
