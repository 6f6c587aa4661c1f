"""The API as one ASGI application."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI
from fastapi_swagger import patch_fastapi

from mooring.api import auth, deployment, errors, join_tokens, nodes, pools, server, users, workloads
from mooring.api.boundary import Boundary
from mooring.api.services import Services

_TAGS = [
    {"name": "workloads", "description": "Sessions and deployments: submit, watch, scale, remove."},
    {"name": "deployment", "description": "Deployments in the words of fog-compute."},
    {"name": "nodes", "description": "The machines that run tasks."},
    {"name": "pools", "description": "Sets of nodes with one scheduling policy."},
    {"name": "auth", "description": "Logging in."},
    {"name": "users", "description": "Users, for admins."},
    {"name": "server", "description": "The server itself."},
]


def create_app(services: Services, *more: APIRouter) -> FastAPI:
    """The application over these services; `more` are routers that other parts of the server bring."""
    app = FastAPI(
        title="Mooring",
        summary="A multi-tenant cluster scheduler and its control plane.",
        version=services.version,
        openapi_tags=_TAGS,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,
        responses=errors.problems(500),
    )
    app.state.services = services
    for module in (workloads, deployment, nodes, join_tokens, pools, auth, users, server):
        app.include_router(module.router)
    for router in more:
        app.include_router(router)
    errors.install(app)
    # Swagger UI from the installed package: the page works where nothing else can be reached.
    patch_fastapi(app, redirect_from_root_to_docs=False)
    app.add_middleware(Boundary)
    return app
