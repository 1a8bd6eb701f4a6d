"""Log lines: one event is one line, as text and as JSON, whatever its values are."""

import ast
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.protocol.errors import ErrorCode
from tailrace.runtime.log_lines import OTHER_EVENT, TRACE, LineFormatter, fields_of

HEAD = "2026-11-30T06:16:00.123Z"
NOT_FIELDS = {"time", "level", "logger", "event", "message", "traceback", "stack"}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log", "log_equal", "_log"}


def record(
    message: str, *values: object, level: int = logging.INFO, name: str = "tailrace.broker"
) -> logging.LogRecord:
    """A record of a fixed time."""
    made = logging.LogRecord(name, level, "path", 1, message, values, None)
    made.created = 1796019360.1236
    return made


def text(*given: Any, **named: Any) -> str:
    return LineFormatter(is_json=False).format(record(*given, **named))


def as_json(*given: Any, **named: Any) -> dict[str, Any]:
    line = LineFormatter(is_json=True).format(record(*given, **named))
    assert len(line.splitlines()) == 1
    found: dict[str, Any] = json.loads(line)
    return found


def test_an_event_is_a_line_for_people_and_an_object_with_types() -> None:
    """The time is UTC with milliseconds, and the level has Kafka's name."""
    given = "loaded node=%d path=%s share=%.2f is_last=%s group=%s code=%s at=%s:%d", (
        1, "/a", 0.125, True, None, ErrorCode.NONE, "h", 9092,
    )  # fmt: skip
    assert text(given[0], *given[1], level=logging.WARNING) == (
        f"{HEAD} WARN tailrace.broker loaded node=1 path=/a share=0.12 is_last=true group=null "
        f"code={ErrorCode.NONE} at=h:9092"
    )
    assert as_json(given[0], *given[1], level=TRACE) == {
        "time": HEAD, "level": "TRACE", "logger": "tailrace.broker", "event": "loaded", "node": 1,
        "path": "/a", "share": 0.12, "is_last": True, "group": None, "code": str(ErrorCode.NONE),
        "at": "h:9092",
    }  # fmt: skip


@pytest.mark.parametrize(
    "value",
    ["", "a b", "a=b", 'say "x"', "one\ntwo", "\x1b[2J", "a\u2028b", "\u202eabc", "\x7f", "\ud800"],
)
def test_a_value_ends_neither_its_line_nor_its_field(value: str) -> None:
    """It is quoted as in JSON, so that no other line and no other field comes of it."""
    line = text("refused name=%s count=%d", value, 2)
    assert line.isprintable()
    found = re.fullmatch(r'.* refused name=(".*") count=2', line)
    assert found is not None
    assert json.loads(found[1]) == value
    assert as_json("refused name=%r count=%d", value, 2)["name"] == value


def test_names_of_fields_are_those_of_the_format() -> None:
    """A value with a field in it stays a value, also where a long one is cut."""
    assert as_json("refused user=%.*r reason=%s", 9, "bob admin=1 x", "a level=b") == {
        "time": HEAD, "level": "INFO", "logger": "tailrace.broker", "event": "refused",
        "user": "bob admin", "reason": "a level=b",
    }  # fmt: skip


def test_a_traceback_is_a_field() -> None:
    """It is there whole, with its causes, and does not end the line."""
    made = record("job_failed name=%s", "a", level=logging.ERROR)
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        made.exc_info = sys.exc_info()
    line = LineFormatter(is_json=False).format(made)
    assert line.isprintable()
    assert r"\nValueError: first\nsecond" in line
    assert fields_of(made)["traceback"].endswith("ValueError: first\nsecond")


def test_lines_of_libraries_and_faulty_values_are_lines_too() -> None:
    """They have their text in a field; what cannot be printed is no reason to lose a line."""

    class Faulty:
        def __str__(self) -> str:
            raise RuntimeError("broken")

    found = as_json("Task was lost\nfuture: %s", "a=b", name="asyncio", level=logging.ERROR)
    assert (found["event"], found["message"]) == (OTHER_EVENT, "Task was lost\nfuture: a=b")
    assert "broken" in as_json("failed reason=%s", Faulty())["message"]


PROCESS = """
import asyncio, threading, warnings
from tailrace.runtime.log_lines import write_log

write_log(is_json=True, level=20)
warnings.warn("one\\ntwo")
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()

class Faulty:
    def __del__(self):
        1 / 0

Faulty()
async def main():
    asyncio.ensure_future(asyncio.sleep(0, 1)).add_done_callback(lambda _: 1 / 0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

asyncio.run(main())
raise RuntimeError("the end")
"""


def test_what_python_itself_writes_is_one_line_too() -> None:
    """Warnings, and errors of threads, of finalizers, of callbacks and of the whole process."""
    run = subprocess.run(
        [sys.executable, "-c", PROCESS], capture_output=True, text=True, check=False
    )
    found = [json.loads(line) for line in run.stderr.splitlines()]
    assert run.returncode == 1
    assert [each["level"] for each in found] == ["WARN", *["ERROR"] * 4]
    assert "one\ntwo" in found[0]["message"]
    assert {each["event"] for each in found} == {OTHER_EVENT, "error_not_handled"}
    assert all("ZeroDivisionError" in each["traceback"] for each in found[1:4])
    assert found[4]["traceback"].endswith("RuntimeError: the end")


def calls() -> Iterator[tuple[str, str]]:
    """The place and the format of each call that logs an event of the node."""
    root = Path(tailrace.__file__).parent
    for path in sorted(root.rglob("*.py")):
        # Commands and Spark write sentences for the one who has called them.
        if path.relative_to(root).parts[0] in {"spark", "demo", "testing"}:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner = ast.unparse(node.func.value)
            if node.func.attr not in LEVELS or not re.search("log|AUDIT|lines|self", owner):
                continue
            for each in node.args:
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    yield f"{path.name}:{node.lineno}", each.value
                    break


def test_each_line_of_the_node_is_an_event_with_fields() -> None:
    """Its first word is the event, all that varies is in a field, and each field has one name."""
    found = list(calls())
    assert len(found) > 150
    for place, message in found:
        names = re.findall(r"(?:^|\s)([a-z][a-z0-9_]*)=", message)
        event = re.split(r"\s[a-z][a-z0-9_]*=", message)[0]
        assert re.fullmatch(r"(?:%s)?[a-z0-9_]+(?:%s)?", event), (place, message)
        assert len(set(names)) == len(names), (place, message)
        assert not NOT_FIELDS & set(names), (place, message)
