"""Write the API's description, from which the console's types are generated: `generate_openapi.py FILE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from mooring.api.app import create_app
from mooring.api.services import Services


def main() -> None:
    # The description depends on no part of a server; the version is left out, since it changes nothing in the types.
    services = cast(Services, SimpleNamespace(version="0", trusted_proxies=()))
    Path(sys.argv[1]).write_text(json.dumps(create_app(services).openapi(), sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
