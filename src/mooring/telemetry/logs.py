"""Structured logs to standard error: lines for people, or JSON."""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

import structlog


def configure(*, form: Literal["text", "json"] = "text", level: str = "info") -> None:
    """Route structlog and the standard library's loggers through the same processors."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Any
    if form == "json":
        shared.append(structlog.processors.format_exc_info)
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            pad_event_to=0,
            # The default would print local variables, and so passwords.
            exception_formatter=structlog.dev.plain_traceback,
        )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    # Said by Mooring itself, of no use to an operator, or (the bodies of messages at debug) nothing for a log.
    for name in ("uvicorn", "websockets", "aiohttp", "aiosqlite", "alembic.runtime", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)
