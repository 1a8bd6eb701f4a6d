"""`call_user_code`: callbacks, hooks and interceptors that are told of something.

They belong to nobody who could take what they raise: the producer's own thread, or the event loop,
goes on whatever it is. That includes SystemExit, which would end a thread without a word. Only
KeyboardInterrupt on the main thread, outside of an event loop, is raised: it comes from Ctrl-C and
is meant for the caller who runs the callback there, in `send` or `add_done_callback`.

Not here: code whose result decides about a record (serializers, partitioners, `on_send`). What that
raises goes to the caller of `send`, or becomes the outcome of the record.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress

log = logging.getLogger(__name__)


def call_user_code(call: Callable[..., object], *arguments: object, about: str) -> None:
    """Call it; what it raises is logged with `about`, and otherwise of no effect.

    Raises:
        KeyboardInterrupt: Ctrl-C, if the main thread runs it as the caller.
    """
    try:
        call(*arguments)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and _is_the_callers_thread():
            raise
        # The text of an exception, which a log makes, is code of the user's as well.
        with suppress(BaseException):
            log.exception("%s failed", about)


def _is_the_callers_thread() -> bool:
    """Whether signals come here, and no event loop does that calls for nobody."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and asyncio._get_running_loop() is None
