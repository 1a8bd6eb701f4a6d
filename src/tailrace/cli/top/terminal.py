"""The terminal of `tailrace top`: paints the screen, reads keys, and is left as it was found.

`curses` of the standard library does it: it restores the terminal after an exception, and around
Ctrl-Z and `fg`, and tells a new size as a key.
"""

import curses
import logging
import os
import time
from contextlib import suppress
from typing import Final

from tailrace.cli.top.poller import Poller
from tailrace.cli.top.screen import Cell, Size, State, Style, draw, press, table_of
from tailrace.errors import FatalError

TICK_MS: Final = 200
"""Longest time until something new is on the screen; a key does not wait for it."""

_ESCAPE_MS: Final = 50
"""Longest pause within the bytes of an arrow key; one that is longer is an Esc."""

_QUICK_MAX: Final = 50
"""Reads in a row that may end at once without a key: a terminal that is gone ends all so."""

_NAMES: Final = {
    curses.KEY_UP: "up", curses.KEY_DOWN: "down", curses.KEY_LEFT: "left",
    curses.KEY_RIGHT: "right", curses.KEY_PPAGE: "pgup", curses.KEY_NPAGE: "pgdn",
    curses.KEY_HOME: "home", curses.KEY_END: "end", curses.KEY_ENTER: "enter",
    curses.KEY_BACKSPACE: "backspace", curses.KEY_BTAB: "shift-tab", curses.KEY_F1: "f1",
    curses.KEY_RESIZE: "resize",
    "\n": "enter", "\r": "enter", "\t": "tab", "\x1b": "esc", "\x7f": "backspace",
    "\b": "backspace", "\x02": "ctrl-b", "\x06": "ctrl-f", "\x0c": "ctrl-l", "\x15": "ctrl-u",
}  # fmt: skip


def run_screen(poller: Poller, state: State) -> None:
    """Show what `poller` finds until a key ends it; the terminal is restored whatever happens.

    Raises:
        FatalError: the terminal is of a kind that is not known, or it has gone.
        KeyboardInterrupt: Ctrl-C or a signal.
    """
    try:
        # Before the screen is taken over, so that the error is seen.
        curses.setupterm()
    except curses.error as error:
        raise FatalError(
            f"the terminal {os.environ.get('TERM', '')!r} is not known here ({error}); set TERM, "
            "for example to xterm, or add --once"
        ) from error
    # Log lines of the client would be written over the screen, which has the same trouble in it.
    silent = logging.NullHandler()
    logging.getLogger().addHandler(silent)
    try:
        curses.wrapper(lambda window: _Screen(window, poller, state).run())
    finally:
        logging.getLogger().removeHandler(silent)


class _Screen:
    """One run on one terminal."""

    def __init__(self, window: "curses.window", poller: Poller, state: State) -> None:
        self._window = window
        self._poller = poller
        self._state = state
        self._styles = _styles()

    def run(self) -> None:
        """Paint and read keys until the end."""
        window = self._window
        curses.set_escdelay(_ESCAPE_MS)
        # A terminal without this ability shows the cursor in a corner.
        with suppress(curses.error):
            curses.curs_set(0)
        window.timeout(TICK_MS)
        painted: object = None
        quick_count = 0
        while not self._state.is_over:
            if self._poller.bug is not None:
                raise self._poller.bug
            # Once a second also if nothing happens: the age of what is shown.
            shows = (
                self._state,
                self._poller.found,
                self._poller.trouble,
                self._size(),
                int(time.monotonic()),
            )
            if shows != painted:
                self._paint()
                painted = shows
            began = time.monotonic()
            key = self._key()
            is_quick = time.monotonic() - began < TICK_MS / 2000
            quick_count = quick_count + 1 if key is None and is_quick else 0
            if quick_count > _QUICK_MAX:
                raise FatalError("the terminal is gone: it gives no keys any more")
            if key in ("resize", "ctrl-l"):
                # Painted from nothing: other programs may have written over it.
                window.clear()
                painted = None
            elif key is not None:
                self._press(key)

    def _size(self) -> Size:
        height, width = self._window.getmaxyx()
        return Size(width, height)

    def _key(self) -> str | None:
        """The next key; None: none was pressed for a while."""
        try:
            found = self._window.get_wch()
        except curses.error:
            return None
        name = _NAMES.get(found)
        return name if name is not None else found if isinstance(found, str) else ""

    def _press(self, key: str) -> None:
        overview = self._poller.found
        before = self._state
        if overview is None:
            # Nothing to choose from yet.
            self._state = State(is_over=key in ("q", "Q")) if key in ("q", "Q") else before
            return
        table = table_of(before, overview)
        self._state = press(before, key, table, size=self._size())
        self._poller.pace(interval_s=self._state.interval_s, is_paused=self._state.is_paused)

    def _paint(self) -> None:
        found, window = self._poller.found, self._window
        age_s = 0.0 if found is None else time.monotonic() - found.now.at
        lines = draw(
            self._state, found, size=self._size(), trouble=self._poller.trouble, age_s=age_s
        )
        window.erase()
        for y, line in enumerate(lines):
            self._paint_line(y, line)
        window.refresh()

    def _paint_line(self, y: int, line: list[Cell]) -> None:
        x = 0
        # The cursor cannot leave the last cell, which is an error and is painted; and the terminal
        # may have become smaller.
        with suppress(curses.error):
            self._window.move(y, x)
            for text, style in line:
                self._window.addstr(text, self._styles[style])


def _styles() -> dict[Style, int]:
    """The attributes of each style; in colours unless `NO_COLOR` is set (no-color's rule)."""
    found = {
        Style.PLAIN: curses.A_NORMAL,
        Style.TITLE: curses.A_BOLD,
        Style.DIM: curses.A_DIM,
        Style.HEADER: curses.A_BOLD | curses.A_UNDERLINE,
        Style.CHOSEN: curses.A_REVERSE,
        Style.WARN: curses.A_BOLD,
        Style.BAD: curses.A_BOLD,
    }
    if not curses.has_colors() or os.environ.get("NO_COLOR"):
        return found
    with suppress(curses.error):
        curses.use_default_colors()
        for number, (style, colour) in enumerate(
            ((Style.WARN, curses.COLOR_YELLOW), (Style.BAD, curses.COLOR_RED)), 1
        ):
            curses.init_pair(number, colour, -1)
            found[style] |= curses.color_pair(number)
    return found
