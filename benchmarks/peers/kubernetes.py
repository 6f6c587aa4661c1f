"""kube-scheduler with etcd and kube-apiserver: pods until their nodes are set, on nodes without kubelets.

An array is a job of that many pods at once, which kube-controller-manager creates. No pod starts, so that no process
is measured. The requests to TLS on loopback keep their connections, as those of the other clients do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from benchmarks.peers import figures, work
from benchmarks.peers.figures import Span
from tests.peers.kubernetes import KubernetesCluster, running_kubernetes

_PODS = "/api/v1/namespaces/default/pods"
_CREATORS = 16


class _Metadata(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815 - the API's name


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


class _Event(msgspec.Struct):
    object: _Pod


def measure(programs: Path) -> dict[str, float]:
    with running_kubernetes(programs) as cluster:
        return asyncio.run(_measure(cluster))


async def _measure(cluster: KubernetesCluster) -> dict[str, float]:
    headers = {"Authorization": f"Bearer {cluster.token}"}
    connector = aiohttp.TCPConnector(limit=0, ssl=cluster.trust())
    limits = aiohttp.ClientTimeout(total=None, sock_connect=10)
    async with aiohttp.ClientSession(cluster.url, headers=headers, connector=connector, timeout=limits) as session:
        await _create_nodes(session)
        async with _bindings(session) as bound:

            async def pod(name: str) -> None:
                await _post(session, _PODS, _pod(name))

            async def all_bound(prefix: str, number: int) -> dict[str, float]:
                async def enough() -> bool:
                    return sum(name.startswith(prefix) for name in bound) >= number

                await work.until(enough, f"binding {number} pods")
                return {name: at for name, at in bound.items() if name.startswith(prefix)}

            await pod("warm-up")
            await all_bound("warm-up", 1)
            sent = await work.submit_singly(pod, work.single_names())
            singles = await all_bound("single-", work.TASKS)
            began = time.time()
            await _post(session, "/apis/batch/v1/namespaces/default/jobs", _job())
            array = await all_bound("array-", work.TASKS)
    result = figures.singly("kubernetes", [Span(sent[name], at) for name, at in singles.items()])
    return result | {"kubernetes_array_per_second": figures.per_second([Span(began, at) for at in array.values()])}


@asynccontextmanager
async def _bindings(session: aiohttp.ClientSession) -> AsyncIterator[Mapping[str, float]]:
    """Watch the pods: the time at which each was first seen with a node."""
    bound: dict[str, float] = {}
    decoder = msgspec.json.Decoder(_Event)

    async def watch(answer: aiohttp.ClientResponse) -> None:
        async for line in answer.content:
            pod = decoder.decode(line).object
            if pod.spec.nodeName:
                bound.setdefault(pod.metadata.name, time.time())

    async with session.get(_PODS, params={"watch": "1", "resourceVersion": "0"}) as answer:
        answer.raise_for_status()
        watching = asyncio.create_task(watch(answer))
        try:
            yield bound
        finally:
            watching.cancel()


async def _create_nodes(session: aiohttp.ClientSession) -> None:
    left = iter(range(work.NODES))

    async def create() -> None:
        for number in left:
            await _post(session, "/api/v1/nodes", _node(f"n{number}"))

    async with asyncio.timeout(work.MAX_SECONDS), asyncio.TaskGroup() as creators:
        for _ in range(_CREATORS):
            creators.create_task(create())


async def _post(session: aiohttp.ClientSession, path: str, body: Mapping[str, Any]) -> None:
    async with session.post(path, data=msgspec.json.encode(body), headers={"Content-Type": "application/json"}) as got:
        if got.status != 201:
            raise RuntimeError(f"POST {path} got {got.status}: {(await got.text())[:500]}")
        await got.read()


def _node(name: str) -> dict[str, Any]:
    amounts = {"cpu": str(work.CORES), "memory": f"{work.MEMORY_GIB}Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def _pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": _pod_spec()}


def _pod_spec() -> dict[str, Any]:
    requests = {"cpu": work.CPU, "memory": f"{work.MEMORY_MIB}Mi"}
    container = {"name": "main", "image": "nginx:latest", "resources": {"requests": requests}}
    return {"containers": [container], "restartPolicy": "Never"}


def _job() -> dict[str, Any]:
    template = {"spec": _pod_spec()}
    spec = {"parallelism": work.TASKS, "completions": work.TASKS, "template": template}
    return {"metadata": {"name": "array"}, "spec": spec}
