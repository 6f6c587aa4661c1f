"""Agents: joining with a one-time token, and the one stream that an agent keeps open."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgspec
import structlog
from fastapi import APIRouter, Request, Response, WebSocket, WebSocketDisconnect
from starlette.websockets import WebSocketState

from mooring.api.agents.agent_session import AgentSession
from mooring.api.agents.hub import AgentHub, devices_of
from mooring.api.agents.secret_decryption import is_confidential
from mooring.api.compat.versions import refused_agent
from mooring.api.middleware.client_address import address_key, client_address
from mooring.api.middleware.errors import problems
from mooring.api.middleware.load_shedding.connections import verify_connection
from mooring.api.middleware.load_shedding.shedding import Flow
from mooring.api.streams.first_completed import run_until_first_ends
from mooring.clock import now
from mooring.model.errors import Conflict, InvalidInput, NotAuthenticated, TooManyAttempts, Unavailable
from mooring.model.lifecycle import NodeStatus
from mooring.model.names import check_name
from mooring.model.nodes.isolation import LEVELS, MAX_REASON_LENGTH
from mooring.model.resources.devices import MAX_DEVICES
from mooring.model.workloads.images import MAX_REPORTED_IMAGES, parse_image
from mooring.store.core.engine import (
    DISK_FULL,
    Connection,
    Database,
    is_disk_full,
    is_temporary,
)
from mooring.store.nodes import join_tokens, nodes
from mooring.wire.agents import agent_protocol as wire

_log = structlog.get_logger(__name__)
_HELLO_SECONDS = 10.0
_POLICY_VIOLATION = 1008
_TRY_AGAIN_LATER = 1013
_AMOUNT_MAX = 2**63 - 1
_HIGHEST_INDEX = 65_535


def router(database: Database, hub: AgentHub) -> APIRouter:
    routes = APIRouter(tags=["agents"], responses=problems())

    @routes.post(
        "/api/agent/join",
        operation_id="join_node",
        summary="Exchange a one-time join token for a node credential",
        status_code=201,
        responses=problems(403, 409, 422, 503),
        openapi_extra={
            "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
        },
    )
    async def join(request: Request) -> Response:
        try:
            asked = msgspec.json.decode(await request.body(), type=wire.JoinRequest)
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput(f"not a valid request to join: {error}") from None
        check_name(asked.name, what="node name")
        _check_facts(asked.facts)
        answer = await database.write(lambda connection: _join(connection, asked))
        _log.info(f"Node {answer.name} joined pool {answer.pool}")
        return Response(msgspec.json.encode(answer), status_code=201, media_type="application/json")

    @routes.websocket("/api/agent/stream")
    async def stream(websocket: WebSocket) -> None:
        try:
            with await hub.hellos.seat(address_key(client_address(websocket.scope)), patient=True):
                node = await _authenticate(database, websocket)
            verify_connection(websocket.scope, Flow(f"node {node.id}"))
            await websocket.accept()
            await _serve(hub, websocket, node)
        except NotAuthenticated as error:
            # An agent learns the reason only from a message; nothing that it sends is read.
            await websocket.accept()
            await websocket.send_text(wire.encode(wire.Refused(code=error.code, message=error.message)))
            await websocket.close(_POLICY_VIOLATION)
        except Exception as error:
            busy = isinstance(error, TooManyAttempts)
            if not busy and not is_temporary(error) and not is_disk_full(error):
                raise
            problem = DISK_FULL if is_disk_full(error) else "the database does not answer"
            if busy:
                problem = "too many agents connect at the same time"
            _log.warning(f"Agent refused for now: {problem}", error=repr(error))
            with suppress(WebSocketDisconnect):
                if websocket.application_state is WebSocketState.CONNECTING:
                    # Without a handshake this would read as a refusal of the credential.
                    await websocket.accept()
                await websocket.close(_TRY_AGAIN_LATER)

    return routes


async def _join(connection: Connection, asked: wire.JoinRequest) -> wire.JoinAnswer:
    at = now()
    grant = await join_tokens.consume(connection, asked.token, at, node_name=asked.name)
    credential = f"mn-{secrets.token_urlsafe(32)}"
    found = await nodes.find(connection, grant.node_name)
    if found is not None:
        if found.simulated or found.pool_id != grant.pool_id:
            raise Conflict(f"there is another node {grant.node_name!r} already", code="name-taken")
        if found.status != NodeStatus.LOST:
            # Two agents that both believe to be this node would both run its tasks. The token stays good meanwhile.
            raise Unavailable(
                f"node {grant.node_name!r} is alive; stop its agent and wait until the node is lost, remove it, "
                "or join under another name",
                code="node-alive",
            )
        await nodes.renew_credential(connection, found.id, _hash(credential))
        node_id = found.id
    else:
        new = nodes.NewNode(
            name=grant.node_name,
            pool_id=grant.pool_id,
            capacity=asked.facts.capacity,
            architecture=asked.facts.architecture,
            runtimes=asked.facts.runtimes,
            region=grant.region,
            labels=grant.labels,
            taints=grant.taints,
            licence=asked.facts.licence,
            machine_image=asked.facts.machine_image,
            machine_image_version=asked.facts.machine_image_version,
            joined_by=grant.created_by,
            credential_hash=_hash(credential),
            devices=devices_of(asked.facts),
        )
        node_id = await nodes.add(connection, new, actor=str(grant.created_by), now=at)
    return wire.JoinAnswer(node_id=node_id, name=grant.node_name, pool=grant.pool, credential=credential)


async def _authenticate(database: Database, websocket: WebSocket) -> Any:
    scheme, _, credential = websocket.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and credential:
        async with database.read() as connection:
            node = await nodes.by_credential(connection, _hash(credential))
            if node is not None:
                return node
            if await _never_registered(connection, websocket.headers.get(wire.NODE_HEADER)):
                raise NotAuthenticated(
                    "the database of this server does not know such a node, as after a restore; "
                    "start its agent with a new join token",
                    code="node-unknown",
                )
    raise NotAuthenticated(
        "unknown node credential; the node may have been removed or joined again; join with a new token",
        code="credential-refused",
    )


async def _never_registered(connection: Connection, node_id: str | None) -> bool:
    """Return whether an agent names a node that was never known here, so that it cannot have been removed."""
    try:
        return node_id is not None and not await nodes.was_ever_registered(connection, UUID(node_id))
    except ValueError:
        return False


async def _serve(hub: AgentHub, websocket: WebSocket, node: Any) -> None:
    # Several tasks send on the stream, each message whole.
    sending = asyncio.Lock()

    async def send(message: wire.FromServer) -> None:
        async with sending:
            await websocket.send_text(wire.encode(message))

    session = AgentSession(
        node.id, node.name, node.pool_id, node.credential_hash, send, confidential=is_confidential(websocket)
    )
    try:
        async with asyncio.timeout(_HELLO_SECONDS):
            hello = wire.decode_from_agent(await websocket.receive_text())
        if not isinstance(hello, wire.Hello):
            raise InvalidInput("the first message of an agent must be hello")
        if (message := refused_agent(hello)) is not None:
            await send(wire.Refused(code="protocol", message=message))
            await websocket.close(_POLICY_VIOLATION)
            return
        _check_facts(hello.facts)
        await hub.connect(session, hello)
        await run_until_first_ends(_listen(hub, session, websocket), hub.send_updates(session))
    except (WebSocketDisconnect, TimeoutError):
        pass
    except (msgspec.DecodeError, msgspec.ValidationError, InvalidInput) as error:
        _log.warning(f"Agent of node {node.name} sent an invalid message: {error}")
        await websocket.close(_POLICY_VIOLATION)
    finally:
        hub.disconnect(session)


async def _listen(hub: AgentHub, session: AgentSession, websocket: WebSocket) -> None:
    while True:
        await _receive(hub, session, wire.decode_from_agent(await websocket.receive_text()))


async def _receive(hub: AgentHub, session: AgentSession, message: wire.FromAgent) -> None:
    match message:
        case wire.Heartbeat():
            hub.beat(session, message)
        case wire.Report():
            await hub.report(session, message)
            await session.send(wire.Received(number=message.number))
        case wire.Measures():
            hub.measures(session, message)
        case wire.Strays():
            await hub.strays(session, message)
        case wire.VolumesGone():
            await hub.volumes_gone(session, message)
        case wire.LogChunk():
            hub.output(session, message)
        case wire.Images():
            _check_images(message.images)
            await hub.images(session, message)
        case wire.ChannelData() | wire.ChannelWindow() | wire.ChannelEnd():
            hub.channel(session, message)
        case wire.Hello():
            raise InvalidInput("an agent may send hello only once")


def _check_facts(facts: wire.Facts) -> None:
    if facts.address is not None and not _is_address(facts.address):
        raise InvalidInput("the address of a machine must be an IPv4 or IPv6 address")
    if facts.isolation not in LEVELS:
        raise InvalidInput(f"the isolation of a machine must be one of {', '.join(LEVELS)}")
    if any(not 0 <= amount <= _AMOUNT_MAX for amount in facts.capacity.values()):
        raise InvalidInput("a machine's capacity must be whole numbers that are not negative and fit 64 bits")
    if len(facts.capacity) > 64 or any(len(name) > 64 for name in facts.capacity):
        raise InvalidInput("a machine has at most 64 slots with names of at most 64 characters")
    for slot, named in facts.devices.items():
        _check_devices(slot, named, facts.capacity.get(slot, 0))
    short = (facts.architecture, facts.boot_id, facts.agent_version, facts.machine_image_version, *facts.runtimes)
    for value, most in (
        *((each, 63) for each in (*short, facts.licence)),
        (facts.machine_image, 255),
        (facts.isolation_reason, MAX_REASON_LENGTH),
    ):
        if value is not None and (len(value) > most or "\x00" in value):
            raise InvalidInput(f"a fact of the machine is longer than {most} characters, or no text")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check_images(images: Mapping[str, int]) -> None:
    if len(images) > MAX_REPORTED_IMAGES:
        raise InvalidInput(f"an agent names at most {MAX_REPORTED_IMAGES} images")
    if any(not 0 <= size <= _AMOUNT_MAX for size in images.values()):
        raise InvalidInput("the bytes of an image are a whole number that is not negative and fits 64 bits")
    for name in images:
        parse_image(name)


def _check_devices(slot: str, named: list[wire.DeviceFact], capacity: int) -> None:
    if not 1 <= len(named) <= MAX_DEVICES or len({device.index for device in named}) != len(named):
        raise InvalidInput(f"{slot}: a machine has 1 to {MAX_DEVICES} devices with an index each")
    if any(not 0 <= device.index <= _HIGHEST_INDEX or device.capacity < 1 for device in named):
        raise InvalidInput(f"{slot}: the index of a device is 0 to {_HIGHEST_INDEX}, its capacity begins at 1")
    if sum(device.capacity for device in named) != capacity:
        raise InvalidInput(f"{slot}: the devices do not add up to the capacity of {capacity}")
    if any(not 0 <= (device.memory or 0) <= _AMOUNT_MAX or len(device.model or "") > 255 for device in named):
        raise InvalidInput(f"{slot}: a device's memory fits 64 bits, its model 255 characters")


def _hash(credential: str) -> str:
    return hashlib.sha256(credential.encode("utf-8", "backslashreplace")).hexdigest()
