"""Certificates of a small authority of one's own, for servers of the tests that speak TLS."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.servers import server_user


class Signed(NamedTuple):
    certificate: Path
    key: Path


class Certificates(NamedTuple):
    authority: Path
    server: Signed
    """For 127.0.0.1."""
    client: Signed


def certificates(folder: Path) -> Certificates:
    """An authority, and what it signed for a server and for a client."""
    if shutil.which("openssl") is None:
        pytest.skip("this needs openssl, to make certificates")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    def sign(name: str) -> Signed:
        openssl("req", *new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        extensions = folder / f"{name}.ext"
        extensions.write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", str(extensions))
        openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.pem")
        signed = Signed(folder / f"{name}.pem", folder / f"{name}.key")
        # The server may run as another user than the tests, and a key is for its user alone.
        user = server_user()
        if user is not None:
            os.chown(signed.key, user.pw_uid, user.pw_gid)
        signed.key.chmod(0o600)
        signed.certificate.chmod(0o644)
        return signed

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    openssl("req", "-x509", *new, "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    (folder / "ca.pem").chmod(0o644)
    return Certificates(folder / "ca.pem", sign("server"), sign("client"))
