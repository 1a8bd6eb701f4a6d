"""Generate docs/protocol.md, the reference of the served APIs, from their declarations.

A test compares docs/protocol.md with `describe()`. What an API does not do is the paragraph
`Not done:` at the end of its handler's docstring, if there is one.
"""

import inspect
import sys
from collections.abc import Iterator

from tailrace.broker.wiring import load_handler
from tailrace.protocol.apis import APIS, Api
from tailrace.protocol.fields import NO_VERSION, WireField, wire_fields
from tailrace.security.needs import CONTROLLER_NEEDS, NEEDS, Need, Refused

NOT_DONE = "Not done: "


def describe() -> str:
    """Markdown: a table of the served APIs, then the fields of each request and response."""
    lines = [
        "# Protocol",
        "",
        "The requests that a Tailrace broker takes. Made from the tables in `tailrace.protocol`.",
        "",
        "What is not done counts for a node alone (`process.roles=broker,controller`, and no",
        "listener for controllers).",
        "A broker of a cluster sends requests that change the cluster to the controllers.",
        "Rights are those of `tailrace.security.needs`, and count where there is an authorizer",
        "([security.md](security.md#acls)).",
        "",
        "| API | Key | Versions | Flexible since |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {api.key.title} | {int(api.key)} | {api.first_version} to {api.last_version} "
        f"| {_flexible(api)} |"
        for api in APIS.values()
    ]
    for api in APIS.values():
        lines += ["", f"## {api.key.title}"]
        missing = not_done(api)
        if missing is not None:
            lines += ["", f"Not done: {missing}"]
        rights = list(map(_right, NEEDS[api.key]))
        if rights:
            lines += ["", "Rights:", "", *rights]
        for message in (api.request, api.response):
            lines += ["", f"### {message.__name__}", ""]
            rows = list(_rows(api, message, 0))
            if rows:
                lines += ["| Field | Type | Versions | Null since | Tag |", "|---|---|---|---|---|"]
            lines += rows or ["No fields."]
    lines += [
        "",
        "## Rights at a controller",
        "",
        "What brokers forward needs the rights above, of the client that has asked. Besides:",
        "",
    ]
    lines += [
        f"- {key.title}: {_right(need).removeprefix('- ')}"
        for key, needs in CONTROLLER_NEEDS.items()
        if needs != NEEDS.get(key)
        for need in needs
    ]
    return "\n".join(lines) + "\n"


def _right(need: Need) -> str:
    """A right that an API needs, as an item of a list."""
    kind = need.resource.name.lower().replace("_", " ")
    instead = "".join(f", or `{each.name}` on the cluster" for each in need.instead)
    right, code = f"- `{need.operation.name}` on", need.code.name
    note = f"; {need.note}" if need.note else ""
    match need.refused:
        case Refused.WHOLE if need.field:
            return f"{right} the {kind} of `{need.field}`{instead}; else {code}{note}"
        case Refused.WHOLE:
            return f"{right} the cluster{instead}; else {code}{note}"
        case Refused.PARTS:
            return f"{right} each {kind} of `{need.field}`{instead}; others are {code}{note}"
        case Refused.SHOWN:
            return f"{right} each {kind} of the answer{instead}; others are left out{note}"
        case Refused.ADDED:
            return f"{right} the {kind}{instead}: {need.note} ({code})"


def not_done(api: Api) -> str | None:
    """The words of a handler's contract on what it leaves out; None if it leaves out nothing."""
    handle = load_handler(api.key)
    contract = inspect.getdoc(handle) or ""
    if not contract.startswith(f"{api.key.title} ("):
        contract = inspect.getdoc(sys.modules[handle.__module__]) or ""
    _, found, said = contract.partition(f"\n{NOT_DONE}")
    sentence = " ".join(said.split("\n\n")[0].split())
    return sentence if found and sentence != "nothing." else None


def _rows(api: Api, message: type, depth: int) -> Iterator[str]:
    for field in wire_fields(message):
        if not any(map(field.is_in, api.versions)):
            continue
        indent = "&nbsp;&nbsp;" * depth
        yield (
            f"| {indent}`{field.name}` | {_type_name(field)} | {_versions(api, field)} "
            f"| {_blank(field.nullable_since, at_least=max(field.since, api.first_version))} "
            f"| {_blank(field.tag, at_least=0)} |"
        )
        if isinstance(field.type, type):
            yield from _rows(api, field.type, depth + 1)


def _type_name(field: WireField) -> str:
    name = field.type if isinstance(field.type, str) else field.type.__name__
    return f"array of {name}" if field.is_array else name


def _flexible(api: Api) -> str:
    since = api.request.flexible_since
    return "never" if since == NO_VERSION else str(since)


def _versions(api: Api, field: WireField) -> str:
    first = max(field.since, api.first_version)
    last = api.last_version if field.until is None else field.until
    return f"{first} to {last}" if first != last else str(first)


def _blank(value: int | None, *, at_least: int) -> str:
    return "" if value is None else str(max(value, at_least))
