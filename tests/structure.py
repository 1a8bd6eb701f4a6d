"""`python -m tests.structure`: the size of the product and its rooms, and circles of imports.

A circle is a set of modules each of which imports, directly or not, all others; imports for type
checkers alone do not count. Lines are physical lines of Python and of types for Cython.
"""

import ast
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tailrace"

ROOMS = ("client", "coordinator/groups", "spark/jobs", "offline", "storage", "handlers", "kernels")


def lines_of(folder: Path) -> tuple[int, int]:
    """Lines and modules of a folder."""
    paths = [*folder.rglob("*.py"), *folder.rglob("*.pxd")]
    count = sum(len(each.read_text().splitlines()) for each in paths)
    return count, sum(each.suffix == ".py" for each in paths)


def comments_per_hundred(folder: Path) -> float:
    """Lines that are a comment alone, for 100 lines that are code."""
    comments = code = 0
    for path in folder.rglob("*.py"):
        text = path.read_text()
        documented = {line for each in _documentation(ast.parse(text)) for line in each}
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                if token.type == tokenize.COMMENT and token.line.strip().startswith("#"):
                    comments += 1
        code += sum(
            bool(line.strip()) and number not in documented and not line.strip().startswith("#")
            for number, line in enumerate(text.splitlines(), 1)
        )
    return 100 * comments / code


def _documentation(tree: ast.Module) -> Iterator[range]:
    """The lines of strings that stand alone: docstrings of modules, functions and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield range(node.lineno, (node.end_lineno or node.lineno) + 1)


def circles(imports: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """The sets of modules that import each other (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(start: str) -> None:
        work = [(start, iter(sorted(imports[start])))]
        order[start] = low[start] = len(order)
        stack.append(start)
        while work:
            module, rest = work[-1]
            for other in rest:
                if other not in order:
                    order[other] = low[other] = len(order)
                    stack.append(other)
                    work.append((other, iter(sorted(imports[other]))))
                    break
                if other in stack:
                    low[module] = min(low[module], order[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[module])
                if low[module] == order[module]:
                    circle = stack[stack.index(module) :]
                    del stack[stack.index(module) :]
                    if len(circle) > 1:
                        found.append(sorted(circle))

    for module in sorted(imports):
        if module not in order:
            visit(module)
    return found


def imports_of_product() -> dict[str, frozenset[str]]:
    """The modules that each module imports, also inside of functions."""
    graph = grimp.build_graph("tailrace", exclude_type_checking_imports=True)
    return {
        each: frozenset(graph.find_modules_directly_imported_by(each)) for each in graph.modules
    }


def main() -> None:
    """Print all of it."""
    whole, modules = lines_of(SOURCE)
    print(f"{'src/tailrace':24}{whole:>8,} lines {modules:>5} modules")
    for room in ROOMS:
        count, modules = lines_of(SOURCE / room)
        comments = comments_per_hundred(SOURCE / room)
        print(f"{room:24}{count:>8,} lines {modules:>5} modules {comments:6.1f} comments in 100")
    found = circles(imports_of_product())
    print(f"{'circles of imports':24}{len(found):>8}")
    for each in found:
        print(f"    {', '.join(name.removeprefix('tailrace.') for name in each)}")


if __name__ == "__main__":
    main()
