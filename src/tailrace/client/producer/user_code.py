"""`call_user_code`: callbacks, hooks and interceptors that are told of something.

They belong to nobody who could take what they raise: the producer's own thread, or the event loop,
goes on whatever it is. That includes SystemExit, which would end a thread without a word.

Not here: code whose result decides about a record (serializers, partitioners, `on_send`). What that
raises goes to the caller of `send`, or becomes the outcome of the record.
"""

import logging
from collections.abc import Callable
from contextlib import suppress

log = logging.getLogger(__name__)


def call_user_code(call: Callable[..., object], *arguments: object, about: str) -> None:
    """Call it; what it raises is logged with `about`, and otherwise of no effect."""
    try:
        call(*arguments)
    except BaseException:
        # The text of an exception, which a log makes, is code of the user's as well.
        with suppress(BaseException):
            log.exception("%s failed", about)
