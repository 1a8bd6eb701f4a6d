"""The text of `tailrace.client.keywords`: settings of clients as keywords, from their tables."""

import textwrap
from typing import Final

from tailrace.client.admin.config import ADMIN_SETTINGS
from tailrace.client.config import CLIENT_SETTINGS, RecordsConfig
from tailrace.client.consumer.config import CONSUMER_SETTINGS
from tailrace.client.producer.config import PRODUCER_SETTINGS
from tailrace.client.security import SAME, TOKEN_FUNCTION
from tailrace.config import Setting, settings_of

_HEAD: Final = '''\
"""Settings of clients as keywords with their types, for mypy and editors.

Written by `make docs` from the declared settings; do not edit. Programs that run import it only to
annotate their own settings. Texts, as a file has them, go into the mapping of a client instead:
`Producer({"linger.ms": "20"})`.
"""

from os import PathLike
from typing import Literal, TypedDict

from tailrace.client.nodes.oauth import TokenFunction
'''

_PARAMETERS: Final = {"partitioner"}
"""Settings that are a parameter of the client as well, with a type of its own."""

_LIST: Final = "str | list[str] | tuple[str, ...]"
_KINDS: Final = {"int": "int", "float": "float", "bool": "bool", "string": "str", "list": _LIST}


def keyword_settings() -> str:
    """The module's text, as ruff formats it."""
    records = settings_of(RecordsConfig)
    text, known = _HEAD, set(_PARAMETERS)
    for name, base, settings, owner in (
        ("ClientSettings", "TypedDict", CLIENT_SETTINGS, "every client"),
        ("AdminSettings", "ClientSettings", ADMIN_SETTINGS, "`Admin` and `AsyncAdmin`"),
        ("RecordsSettings", "ClientSettings", records, "producers and of consumers"),
        ("ProducerSettings", "RecordsSettings", PRODUCER_SETTINGS, "`Producer`, `AsyncProducer`"),
        ("ConsumerSettings", "RecordsSettings", CONSUMER_SETTINGS, "`Consumer`, `AsyncConsumer`"),
    ):
        text += f'\n\nclass {name}({base}, total=False):\n    """Settings of {owner}."""\n\n'
        own = {each.name: each for each in settings if each.name not in known}
        if name in {"ClientSettings", "RecordsSettings"}:
            known |= own.keys()
        own |= {other: own[ours] for other, ours in SAME.items() if ours in own}
        for key, declared in own.items():
            said = textwrap.fill(f'"""`{key}`: {declared.text}"""', 96, break_on_hyphens=False)
            text += f"    {key.replace('.', '_')}: {_type(declared)}\n"
            text += f"{textwrap.indent(said, '    ')}\n"
    return text


def _type(declared: Setting) -> str:
    if declared.name == TOKEN_FUNCTION:
        return "TokenFunction"
    if declared.name == "bootstrap.servers":
        return _LIST
    if declared.name.endswith((".location", ".keytab")):
        return "str | PathLike[str]"
    if declared.kind == "string" and declared.choices:
        # `acks=1` is as good as `acks="1"`.
        numbers = [each for each in declared.choices if each.lstrip("-").isdigit()]
        texts = [f'"{each}"' for each in declared.choices]
        return f"Literal[{', '.join([*texts, *numbers])}]"
    return _KINDS[declared.kind]
