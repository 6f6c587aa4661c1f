"""The `tarfile` module with extraction filters, which Python has since 3.11.4; Debian 12 has 3.11.2."""

from __future__ import annotations

import tarfile as _tarfile

if hasattr(_tarfile, "data_filter"):
    tarfile = _tarfile
else:
    from backports import tarfile  # type: ignore[no-redef, attr-defined, import-not-found, import-untyped, unused-ignore]

__all__ = ["tarfile"]
