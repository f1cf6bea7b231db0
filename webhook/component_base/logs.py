"""Log lines that never wait for whoever reads them: collected, and written in batches by a thread of their own."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, BinaryIO

import msgspec

from webhook.kube.bounded import bounded
from webhook.kube.instants import rfc3339_micro

_MOST_WAITING = 8192
"""Lines kept for a reader that does not read; further ones are dropped and counted. Some take 8 KB, most 300 bytes."""
_LONGEST_TEXT = 1024
"""Characters of a field; of a message, an error or a traceback `_LONGEST_ACCOUNT`."""
_LONGEST_ACCOUNT = 8192
_ACCOUNTS = frozenset(("message", "error", "exception"))
_LONGEST_LINE = 64 * 1024
"""Bytes of a line, whatever lists and maps are in it."""
_INTERVAL = 0.05
_encoder = msgspec.json.Encoder()
Line = dict[str, Any]


class LogWriter(logging.Handler):
    """Where log lines go, records of the standard library too; `on_drop` is called with the number of lines lost.

    Every line is bounded here, whoever wrote what is in it: each text that is a field, and the line as a whole.
    """

    def __init__(self, stream: BinaryIO, on_drop: Callable[[int], object] = bool) -> None:
        super().__init__()
        self._stream, self._on_drop = stream, on_drop
        self._waiting: SimpleQueue[bytes] = SimpleQueue()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write_out, name="log", daemon=True)
        self._thread.start()

    def write(self, line: Line) -> None:
        """Add a line; its first fields are `time`, `level` and `message`."""
        if self._waiting.qsize() < _MOST_WAITING:
            self._waiting.put(_bounded(line))
        else:
            self._on_drop(1)

    def emit(self, record: logging.LogRecord) -> None:
        """Add a record."""
        head = {"time": rfc3339_micro(record.created), "level": record.levelname.lower()}
        line: Line = {**head, "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["exception"] = logging.Formatter().formatException(record.exc_info)
        self.write(line)

    def close(self) -> None:
        """Write what is left and end the thread."""
        self._ended.set()
        self._thread.join(timeout=5)
        super().close()

    def _write_out(self) -> None:
        ended = False
        while not ended:
            ended = self._ended.wait(_INTERVAL)
            lines = [self._waiting.get_nowait() for _ in range(self._waiting.qsize())]
            if lines:
                try:
                    self._stream.write(b"".join(lines))
                    self._stream.flush()
                except (OSError, ValueError):
                    self._on_drop(len(lines))


@contextmanager
def log_records(lines: LogWriter) -> Iterator[None]:
    """Write what giveway logs from INFO on, and asyncio's warnings; all is written at the end."""
    loggers = [logging.getLogger(name) for name in ("webhook", "certs", "asyncio")]
    for logger in loggers:
        logger.addHandler(lines)
        logger.setLevel(logging.WARNING if logger.name == "asyncio" else logging.INFO)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(lines)
        lines.close()


def _bounded(line: Line) -> bytes:
    """The bytes of a line, whose texts are cut if they are too long."""
    try:
        encoded = _json_line(line)
        # Most lines are shorter than a text may be, so none of theirs is too long
        if len(encoded) > _LONGEST_TEXT:
            fields = msgspec.json.decode(encoded)
            for key, value in fields.items():
                if isinstance(value, str):
                    most = _LONGEST_ACCOUNT if key in _ACCOUNTS else _LONGEST_TEXT
                    fields[key] = bounded(value, most)
            encoded = _json_line(fields)
        if len(encoded) <= _LONGEST_LINE:
            return encoded
        problem = f"of more than {_LONGEST_LINE} bytes"
    except Exception as error:  # noqa: BLE001 - a line that cannot be written must not cost what it tells of
        problem = type(error).__name__
    text = f"a log line could not be written: {problem}"
    return _json_line({"time": rfc3339_micro(time.time()), "level": "error", "message": text})


def _json_line(line: Line) -> bytes:
    return _encoder.encode(line) + b"\n"


def visible(text: str) -> str:
    """With control characters, line ends, direction marks and what else moves the cursor escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"
