"""Runs a broker's side of a SASL mechanism, alone or against the client's."""

import sys
from collections.abc import Callable, Sequence
from types import FrameType

from tailrace.client.nodes.sasl import Blocking, Tokens
from tailrace.security.exchange import Exchange, Granted, RefusedLoginError, Work


class Running:
    """A login on the broker's side, whose work is done where it comes up."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._is_started = False

    def take(self, token: bytes | None = None) -> bytes | Granted:
        """The answer to the client's next token; the first is that of the exchange."""
        given: object = token
        while True:
            try:
                step = self._exchange.send(given)
            except StopIteration as done:
                found: Granted = done.value
                return found
            if not isinstance(step, Work):
                return step
            given = step.run()


def granted(exchange: Exchange, *tokens: bytes) -> Granted:
    """The result of a login after these tokens, the first of which the exchange has."""
    running = Running(exchange)
    found: bytes | Granted = running.take()
    for each in tokens:
        found = running.take(each)
    assert isinstance(found, Granted)
    return found


def log_in(client: Tokens, begin: Callable[[bytes], Exchange]) -> tuple[Granted, Sequence[bytes]]:
    """A login of our client at our broker; returns also the tokens of both sides."""
    sent: list[bytes] = []
    running: Running | None = None
    step = next(client)
    while True:
        if isinstance(step, Blocking):
            step = client.send(step.run())
            continue
        sent.append(step)
        if running is None:
            running = Running(begin(step))
            found = running.take()
        else:
            found = running.take(step)
        answer = found.answer if isinstance(found, Granted) else found
        sent.append(answer)
        try:
            step = client.send(answer)
        except StopIteration:
            assert isinstance(found, Granted)
            return found, sent


def calls_until_refused(exchange: Exchange, *tokens: Callable[[bytes], bytes]) -> list[str]:
    """The functions that a broker calls in a login that it refuses, C's too, in their order.

    Each of `tokens` makes the client's next token of the broker's answer, which is not counted.
    """
    running, found = Running(exchange), list[str]()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            found.append(frame.f_code.co_name)
        elif event == "c_call":
            found.append(getattr(argument, "__name__", ""))

    answer = b""
    try:
        for each in (None, *tokens):
            given = None if each is None else each(answer)
            sys.setprofile(note)
            try:
                taken = running.take(given)
            finally:
                sys.setprofile(None)
            assert isinstance(taken, bytes)
            answer = taken
    except RefusedLoginError:
        return found
    raise AssertionError("the login was not refused")
