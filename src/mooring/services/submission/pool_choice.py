"""The pool of a request: the one it names, or the best one that its principal may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from mooring.model.errors import InvalidInput, NotAllowed
from mooring.store.nodes.pools import Pool


def choose_pool(
    name: str | None,
    runtime: str | None,
    pools: Sequence[Pool],
    allowed: Callable[[Pool], bool] = lambda _pool: True,
    offered: Mapping[UUID, frozenset[str]] | None = None,
) -> Pool:
    """Return the pool of that name, or the best real one that the principal may use and that allows the runtime.

    Pools with a node that offers the runtime come first, then pools with nodes. Simulated pools have to be named, so
    that work is simulated only where that is wanted, unless the cluster as a whole is a simulation, with no real node.
    Containers are refused where all nodes lack a container engine.
    A runtime of None means that it is not known yet, and any pool will do. `offered` are the runtimes that the nodes of
    a pool have; a pool without nodes is absent, and may get nodes of any kind.
    """
    offered = offered or {}
    if name is not None:
        found = _named_pool(name, runtime, pools, allowed)
    else:
        found = _best_pool(runtime, pools, allowed, offered)
    if runtime == "container" and not found.simulated and runtime not in offered.get(found.id, {runtime}):
        raise _without_engine(found, name, pools, allowed)
    return found


def _named_pool(name: str, runtime: str | None, pools: Sequence[Pool], allowed: Callable[[Pool], bool]) -> Pool:
    found = next((pool for pool in pools if pool.name == name), None)
    if found is None:
        known = ", ".join(sorted(pool.name for pool in pools))
        raise InvalidInput(f"there is no pool {name!r}; there are: {known}", code="unknown-pool")
    if not allowed(found):
        raise NotAllowed(
            f"you have no access to pool {name!r}; an admin grants it with `mooring pool access add {name}`",
            code="pool-not-allowed",
            details={"pool": name, "allowed": sorted(pool.name for pool in pools if allowed(pool))},
        )
    if runtime is not None and runtime not in found.runtimes:
        raise InvalidInput(
            f"pool {name!r} allows {' and '.join(sorted(found.runtimes))} tasks, not {runtime} tasks",
            code="runtime-not-allowed",
            details={"pool": name, "runtime": runtime, "allowed": sorted(found.runtimes)},
        )
    return found


def _best_pool(
    runtime: str | None,
    pools: Sequence[Pool],
    allowed: Callable[[Pool], bool],
    offered: Mapping[UUID, frozenset[str]],
) -> Pool:
    suitable = [pool for pool in pools if runtime is None or runtime in pool.runtimes]
    real = [pool for pool in suitable if not pool.simulated]
    is_simulation = all(pool.simulated for pool in pools if pool.id in offered)
    offering = [pool for pool in suitable if is_simulation and pool.id in offered] or real
    usable = sorted(
        filter(allowed, offering),
        key=lambda pool: (runtime not in offered.get(pool.id, ()), pool.id not in offered, pool.name),
    )
    if not usable and offering:
        raise NotAllowed(
            f"no pool that you may use offers {runtime or 'any'} tasks; ask an admin for access to one",
            code="pool-not-allowed",
            details={"runtime": runtime},
        )
    if not usable:
        raise InvalidInput(
            f"no pool of real nodes offers {runtime or 'any'} tasks" + _simulated_hint(runtime, pools, allowed),
            code="runtime-not-offered",
            details={"runtime": runtime},
        )
    return usable[0]


def _without_engine(
    pool: Pool, name: str | None, pools: Sequence[Pool], allowed: Callable[[Pool], bool]
) -> InvalidInput:
    where = f"no node of pool {pool.name!r} has a container engine" if name else "no node has a container engine"
    return InvalidInput(
        f"{where}, so this image cannot run; install Podman or Docker on a node and restart its agent, or run a"
        f" command without an image{_simulated_hint('container', pools, allowed)}",
        code="runtime-not-offered",
        details={"pool": pool.name, "runtime": "container"},
    )


def _simulated_hint(runtime: str | None, pools: Sequence[Pool], allowed: Callable[[Pool], bool]) -> str:
    """Return the advice to name a simulated pool; empty if there is none that would do."""
    for pool in pools:
        if pool.simulated and allowed(pool) and (runtime is None or runtime in pool.runtimes):
            return f"; to simulate it without running anything, name the pool {pool.name!r}"
    return ""
