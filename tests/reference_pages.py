"""`make reference`: a page for each public module in build/reference, by pdoc; needs no network.

    python -m tests.reference_pages [DIRECTORY]

Any warning of pdoc is an error, and so is a public name without a part of its own on a page.

A client inherits its calls from private classes, as objects that become methods when they are asked
for. pdoc would show those as variables of other classes; here each is made a method of the client
before it looks, as `help` shows it. So this changes classes, and is for a process of its own.
"""

import inspect
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TypedDict, is_typeddict

import pdoc
import pdoc.doc
import pdoc.render

import tailrace
from tailrace.client import keywords
from tailrace.client.drive.operation import Operation
from tests.public import PUBLIC, public_names

ROOT = Path(__file__).parents[1]


def main(directory: Path) -> None:
    """Write all pages.

    Raises:
        Warning: pdoc does not understand something.
        AssertionError: a public name is on no page.
    """
    warnings.simplefilter("error")
    # Such a type is shown as it is written: names for type checkers alone are not there for pdoc.
    warnings.filterwarnings("ignore", "Error parsing type annotation")
    # Else the index would be the page of `tailrace`, which has no list of the others.
    pdoc.render.root_module_name = _no_root
    # Those of the functions that run the calls say nothing to a caller.
    pdoc.doc.Function.decorators = property(_decorators)
    pdoc.render.configure(
        docformat="google", show_source=False, footer_text=f"Tailrace {tailrace.__version__}"
    )
    _take_in_what_is_inherited()
    pages = {name: pdoc.doc.Module(import_module(name)) for name in PUBLIC}
    directory.mkdir(parents=True, exist_ok=True)
    written = {}
    for name, page in pages.items():
        path = directory / f"{name.replace('.', '/')}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        written[name] = pdoc.render.html_module(page, pages)
        path.write_text(written[name])
    (directory / "index.html").write_text(pdoc.render.html_index(pages))
    (directory / "search.js").write_text(pdoc.render.search_index(pages))
    for module, name, _ in public_names():
        assert f'id="{name}"' in written[module], f"{module}.{name} is on no page"


def _no_root(_pages: object) -> None:
    return None


def _decorators(function: pdoc.doc.Function) -> list[str]:
    kinds = {"@classmethod": function.is_classmethod, "@staticmethod": function.is_staticmethod}
    return [name for name, is_one in kinds.items() if is_one]


def _take_in_what_is_inherited() -> None:
    """Give public classes the methods of their private bases, and modules their lazy names."""
    public = {each for _, _, each in public_names()}
    for module, name, each in public_names():
        setattr(import_module(module), name, each)
        if is_typeddict(each):
            # Before Python 3.12 it does not know from which others it has its keys.
            bases = (keywords.RecordsSettings, keywords.ClientSettings, TypedDict)
            setattr(each, "__orig_bases__", bases)  # noqa: B010 - it is no attribute for mypy
        elif isinstance(each, type):
            for member, made in _inherited(each, public):
                setattr(each, member, made)


def _inherited(owner: type, public: set[object]) -> Iterator[tuple[str, object]]:
    for name in dir(owner):
        made = inspect.getattr_static(owner, name)
        base = next((each for each in owner.__mro__ if name in each.__dict__), owner)
        if name.startswith("_") or not base.__module__.startswith("tailrace"):
            continue
        if isinstance(made, Operation):
            yield name, getattr(owner, name)
        elif base is not owner and base not in public:
            yield name, made


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "reference")
