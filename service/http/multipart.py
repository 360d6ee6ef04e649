"""multipart/form-data from a body that lies in memory already, within its limit."""

from dataclasses import dataclass, field

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from uepnet.service.errors import Refused

MAX_HEADER_BYTES = 8192


@dataclass(slots=True)
class FormPart:
    name: str = ""
    filename: str | None = None
    content: bytearray = field(default_factory=bytearray)


class _Collector:
    """The parser's callbacks: parts in order, a bounded number of them."""

    def __init__(self, max_parts: int) -> None:
        self.parts: list[FormPart] = []
        self.ended = False
        self._max_parts = max_parts
        self._header = bytearray()
        self._value = bytearray()
        self._header_bytes = 0

    def on_part_begin(self) -> None:
        if len(self.parts) == self._max_parts:
            raise Refused("wrong-request", f"The form may have at most {self._max_parts} parts.")
        self.parts.append(FormPart())
        self._header_bytes = 0

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._note_header(end - start)
        self._header += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._note_header(end - start)
        self._value += data[start:end]

    def on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            _, options = parse_options_header(bytes(self._value))
            part = self.parts[-1]
            part.name = options.get(b"name", b"").decode("utf-8", "replace")
            if b"filename" in options:
                part.filename = options[b"filename"].decode("utf-8", "replace")
        self._header.clear()
        self._value.clear()

    def on_headers_finished(self) -> None:
        if not self.parts[-1].name:
            raise Refused("wrong-request", "Each part of the form needs a name.")

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self.parts[-1].content += memoryview(data)[start:end]

    def on_end(self) -> None:
        self.ended = True

    def _note_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > MAX_HEADER_BYTES:
            raise Refused("wrong-request", "A part's headers are too long.")


def is_form(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "multipart/form-data"


def parse_form(body: bytes, content_type: str, max_parts: int) -> list[FormPart]:
    """The parts in their order. Copies the body: to be called in a request's own thread."""
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if not 1 <= len(boundary) <= 200:
        raise Refused("wrong-request", "The form's Content-Type needs a boundary.")
    collector = _Collector(max_parts)
    parser = MultipartParser(
        boundary,
        {
            "on_part_begin": collector.on_part_begin,
            "on_header_field": collector.on_header_field,
            "on_header_value": collector.on_header_value,
            "on_header_end": collector.on_header_end,
            "on_headers_finished": collector.on_headers_finished,
            "on_part_data": collector.on_part_data,
            "on_end": collector.on_end,
        },
    )
    try:
        parser.write(body)
        parser.finalize()
    except FormParserError:
        raise Refused("wrong-request", "The form cannot be parsed as multipart/form-data.") from None
    if not collector.ended:
        raise Refused("wrong-request", "The form ends before its last boundary.")
    return collector.parts
