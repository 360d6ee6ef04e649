"""Log lines, plain or JSON: one a request, with its fields; the rest as text."""

import json
import logging
import sys
import time

from uepnet.service.settings import Settings


class PlainFormatter(logging.Formatter):
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"
    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the base class's name
        line = super().formatMessage(record)
        fields = getattr(record, "fields", {})
        return " ".join([line, *(f"{name}={_plain(value)}" for name, value in fields.items())])


class JsonFormatter(PlainFormatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def _plain(value: object) -> str:
    text = str(value)
    # A path may hold anything: nothing in it may look like another field or another line.
    return text if text.isprintable() and " " not in text and '"' not in text else json.dumps(text)


def configure_logs(settings: Settings) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else PlainFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("uepnet").setLevel(settings.log_level.upper())
