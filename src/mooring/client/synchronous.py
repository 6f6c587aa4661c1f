"""`Client`: the API for synchronous programs, over httpx2."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

import httpx2

from mooring.client.address import proxy_for, tls_context
from mooring.client.answers import read_answer, read_error, timed_out, unreachable, untrusted
from mooring.client.client_core import ClientCore
from mooring.client.connection import (
    HEADERS,
    IDLE_SECONDS,
    MAX_CONNECTIONS,
    SOCKET_OPTIONS,
    TIMEOUT_SECONDS,
)
from mooring.client.credentials import CredentialStore
from mooring.client.event_stream import EventReader
from mooring.client.folder_scan import scan
from mooring.client.operations import channels, core
from mooring.client.operations import uploads as upload_operations
from mooring.client.operations.operation import Operation, Stream, Upload
from mooring.client.retry_budget import RetryBudget
from mooring.client.uploading import Report, upload
from mooring.model.errors import MooringError, NotAuthenticated, TooManyAttempts, Unavailable
from mooring.wire.cluster.events import EventView
from mooring.wire.tenancy.users import Token
from mooring.wire.workloads.uploads import UploadView

P = ParamSpec("P")
T = TypeVar("T")


class Client(ClientCore):
    """The API of one server. Threads may share it; close it, or use it in a `with`.

    The default for `server` is the one that the command line would use. Without `token` or `keypair` (access key and
    secret), the client uses the stored login, and renews it when half of its lifetime has passed.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        keypair: tuple[str, str] | None = None,
        store: CredentialStore | None = None,
        ca_file: str | Path | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        super().__init__(server, token=token, keypair=keypair, store=store, timeout_seconds=timeout_seconds)
        self._renewing = threading.Lock()
        self._http = httpx2.Client(
            transport=httpx2.HTTPTransport(
                verify=tls_context(self.server, str(ca_file) if ca_file else None),
                trust_env=False,
                proxy=proxy_for(self.server),
                limits=httpx2.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=IDLE_SECONDS),
                socket_options=SOCKET_OPTIONS,
            ),
            base_url=self.server,
            headers=HEADERS,
            trust_env=False,
        )

    def login(
        self,
        username: str,
        password: str,
        *,
        remember: bool = False,
        data_folder: Path | None = None,
        ca_file: str | None = None,
    ) -> Token:
        """Log in with a password. With `remember` the login is stored for the user, else it ends with this client."""
        token = self._exchange(core.log_in(username, password))
        self._authentication.logged_in(username, token, remember=remember, data_folder=data_folder, ca_file=ca_file)
        return token

    def change_password(self, old_password: str, new_password: str, *, revoke_keypairs: bool = False) -> None:
        """Change the user's own password. All other tokens of the user end; this client continues with a new one."""
        token = self.send(core.change_password(old_password, new_password, revoke_keypairs=revoke_keypairs))
        self._authentication.password_changed(token)

    def store_files(self, task_id: str, path: str, archive: Iterable[bytes], *, container: str | None = None) -> None:
        """Extract a tar archive into a folder of a running task."""
        self._upload(channels.store_files(task_id, path, container=container), archive)

    def store_chunks(self, upload_id: str, chunks: str, pieces: Iterable[bytes]) -> None:
        """Send the content of chunks of a declared upload, one after the other; `chunks`: their positions."""
        self._upload(upload_operations.store_chunks(upload_id, chunks), pieces)

    def upload_folder(
        self, folder: str | Path, *, project: str | None = None, report: Report = lambda *_: None
    ) -> UploadView:
        """Upload a local folder for the working folders of tasks, without the files that its ignore files name.

        Only content that the project does not have on the server is sent.
        """
        return upload(self, scan(Path(folder)), project=project, report=report)

    def events(
        self, since: str | None = None, *, expand: bool = False, workload: str | None = None
    ) -> Iterator[EventView]:
        """Yield events as they are committed, from a cursor or from now on, without end.

        A broken connection is opened again and continues without a gap. Raises EventsPurged if the events since the
        cursor have been deleted.
        """
        reader = EventReader(self.server, since)
        while True:
            problem: MooringError | None = None
            reader.begin()
            try:
                stream = core.events(reader.cursor, expand=expand, workload=workload)
                for piece in self.stream(stream):
                    yield from reader.read(piece)
            except MooringError as error:
                problem = error
            time.sleep(reader.pause_seconds(problem))

    def send(self, operation: Operation[T]) -> T:
        """Send an operation. An expired or refused login is renewed if that needs no input."""
        if not operation.authenticated:
            return self._exchange(operation)
        self._renew_if_due()
        sent = self._authentication.headers
        try:
            return self._exchange(operation)
        except NotAuthenticated:
            if not self._log_in_again(sent):
                raise
            return self._exchange(operation)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _renew_if_due(self) -> None:
        if not self._authentication.renewal_due():
            return
        with self._renewing:
            if not self._authentication.renewal_due() or self._authentication.taken_from_store():
                return
            try:
                self._authentication.renewed(self._exchange(core.renew()))
            except NotAuthenticated:
                self._use_password_again()
            except MooringError:
                # The old token may still be valid; if it is not, the request itself fails.
                return

    def _log_in_again(self, refused: dict[str, str]) -> bool:
        with self._renewing:
            if self._authentication.headers != refused or self._authentication.taken_from_store():
                return True
            return self._use_password_again()

    def _use_password_again(self) -> bool:
        login = self._authentication.password_again()
        if login is None:
            return False
        try:
            self._authentication.renewed(self._exchange(core.log_in(login.username, login.password)))
        except MooringError:
            return False
        return True

    def _exchange(self, operation: Operation[T]) -> T:
        budget = RetryBudget(self.timeout_seconds)
        while True:
            try:
                return self._attempt(operation)
            except TooManyAttempts as error:
                pause = budget.pause_seconds(error)
            time.sleep(pause)

    def _attempt(self, operation: Operation[T]) -> T:
        request = self._http.build_request(
            operation.method,
            operation.path,
            params=operation.query or None,
            content=operation.content,
            headers=self._headers(operation),
            timeout=self._timeout(self.timeout_seconds + operation.holds_seconds),
        )
        try:
            response = self._http.send(request)
        except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError) as problem:
            # An idle connection was closed as it was used: a repeatable request is sent once more.
            if not operation.repeatable:
                raise self._failure(problem) from problem
            try:
                response = self._http.send(request)
            except httpx2.TransportError as again:
                raise self._failure(again) from again
        except httpx2.TransportError as problem:
            raise self._failure(problem) from problem
        return read_answer(operation, response.status_code, response.content, self.server)

    def stream(self, stream: Stream) -> Iterator[bytes]:
        self._renew_if_due()
        timeout = httpx2.Timeout(self.timeout_seconds, connect=self._connect_seconds, read=stream.silent_seconds)
        budget, refreshed = RetryBudget(self.timeout_seconds), False
        while True:
            sent = self._authentication.headers
            try:
                with self._http.stream(
                    "GET", stream.path, params=stream.query, headers=sent, timeout=timeout
                ) as response:
                    if response.status_code == 200:
                        stream.check(response.headers.get("Content-Type", ""))
                        yield from response.iter_bytes()
                        return
                    error = read_error(response.status_code, response.read(), self.server)
            except httpx2.TransportError as problem:
                raise self._failure(problem) from problem
            if isinstance(error, TooManyAttempts):
                time.sleep(budget.pause_seconds(error))
                continue
            if refreshed or not (isinstance(error, NotAuthenticated) and self._log_in_again(sent)):
                raise error
            refreshed = True

    def _upload(self, upload: Upload, pieces: Iterable[bytes]) -> None:
        self._renew_if_due()
        timeout = httpx2.Timeout(None, connect=self._connect_seconds)
        try:
            response = self._http.put(
                upload.path,
                params=upload.query,
                content=iter(pieces),
                headers=self._authentication.headers,
                timeout=timeout,
            )
        except httpx2.TransportError as problem:
            raise self._failure(problem) from problem
        if response.status_code != 204:
            raise read_error(response.status_code, response.content, self.server)

    def _timeout(self, seconds: float) -> httpx2.Timeout:
        return httpx2.Timeout(seconds, connect=self._connect_seconds)

    def _failure(self, problem: httpx2.TransportError) -> Unavailable:
        if isinstance(problem, httpx2.TimeoutException):
            connecting = isinstance(problem, httpx2.ConnectTimeout)
            return timed_out(self.server, self._connect_seconds if connecting else self.timeout_seconds)
        if isinstance(problem, httpx2.ConnectError) and _is_about_certificates(problem):
            return untrusted(self.server, problem)
        return unreachable(self.server, problem)


def _is_about_certificates(problem: BaseException | None) -> bool:
    while problem is not None:
        if isinstance(problem, ssl.SSLError):
            return True
        problem = problem.__cause__ or problem.__context__
    return False
