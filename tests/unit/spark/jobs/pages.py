"""A page as a browser would take it apart, and strict about tags that do not match."""

from html.parser import HTMLParser

_VOID = {"meta", "br"}


class Page(HTMLParser):
    """The tags and the text of a page, which has to be well-formed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self._attributes: list[tuple[str, dict[str, str]]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def attributes(self, tag: str) -> list[dict[str, str]]:
        """Attributes of every element of that name."""
        return [found for name, found in self._attributes if name == tag]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._attributes.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.text += data
