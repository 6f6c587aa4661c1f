"""The API's world, and real servers, for attacks on them."""

from tests.api.conftest import world
from tests.system.conftest import servers

__all__ = ["servers", "world"]
