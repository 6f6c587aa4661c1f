"""The Python client of the API: `Client` and `AsyncClient`, with one definition of every operation.

Imports the wire's schemas and the model's errors, nothing else of Mooring. Each client is loaded at first use, so that
a program that needs one does not load the other's HTTP library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mooring.client.asynchronous import AsyncClient
    from mooring.client.synchronous import Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> object:
    if name == "Client":
        from mooring.client.synchronous import Client

        return Client
    if name == "AsyncClient":
        from mooring.client.asynchronous import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
