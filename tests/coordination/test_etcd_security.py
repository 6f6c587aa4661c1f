"""An etcd that wants a login gets one, again and again where it forgets it; one that speaks TLS is spoken to so."""

import asyncio

import aiohttp
import pytest

from mooring.coordination.etcd.client import EtcdClient, EtcdError, Login, Tls
from mooring.coordination.etcd.election import EtcdElection
from tests.certificates import certificates
from tests.servers import EtcdServer, free_port, private_folder, running_etcd

# Renewed when a login of a second is forgotten.
TTL = 5.0
LONG = 60.0


@pytest.mark.slow
async def test_a_login_that_etcd_forgot_is_made_again_for_calls_and_watches():
    with running_etcd("--auth-token-ttl=1") as server:
        await _want_logins(server)
        address = f"127.0.0.1:{server.port}"
        stranger, member = EtcdClient([address]), EtcdClient([address], login=Login("root", "secret"))
        with pytest.raises(EtcdError):
            await stranger.get(b"/mooring")
        with pytest.raises(EtcdError, match="cannot log in"):
            await EtcdClient([address], login=Login("root", "wrong")).get(b"/mooring")
        revision = (await member.put(b"/mooring", b"1")).header.revision
        values: list[bytes] = []

        async def watch() -> None:
            async for answer in member.watch(b"/mooring", since=revision):
                values.extend(event.kv.value for event in answer.events)
                if len(values) == 3:
                    return

        watching = asyncio.create_task(watch())
        for value in (b"2", b"3"):
            await asyncio.sleep(1.5)
            await member.put(b"/mooring", value)
        await asyncio.wait_for(watching, LONG)
        assert values == [b"1", b"2", b"3"]
        lease = await EtcdElection(member, "me", TTL).campaign()
        first_deadline = lease._deadline
        keeping = asyncio.create_task(lease.until_lost())
        async with asyncio.timeout(LONG):
            while lease.safe and lease._deadline == first_deadline:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert lease.safe
        keeping.cancel()
        await lease.resign()
        for client in (stranger, member):
            await client.close()


async def test_etcd_is_spoken_to_by_tls_with_a_certificate_of_ones_own():
    with private_folder("mooring-tls-") as folder:
        ca, server, client = await asyncio.to_thread(certificates, folder)
        secure = free_port()
        flags = [
            f"--cert-file={server[0]}",
            f"--key-file={server[1]}",
            f"--trusted-ca-file={ca}",
            "--client-cert-auth",
        ]
        address = f"127.0.0.1:{secure}"
        with running_etcd(*flags, also=f"https://{address}"):
            known = EtcdClient([address], tls=Tls(ca, *client))
            await known.put(b"/mooring", b"1")
            assert (await known.get(b"/mooring")).kvs[0].value == b"1"
            for stranger in (EtcdClient([address], tls=Tls(ca)), EtcdClient([address])):
                with pytest.raises(EtcdError):
                    await stranger.get(b"/mooring")
                await stranger.close()
            await known.close()


async def _want_logins(server: EtcdServer) -> None:
    async with aiohttp.ClientSession(server.endpoint, raise_for_status=True) as session:
        await session.post("/v3/auth/user/add", json={"name": "root", "password": "secret"})
        await session.post("/v3/auth/role/add", json={"name": "root"})
        await session.post("/v3/auth/user/grant", json={"user": "root", "role": "root"})
        await session.post("/v3/auth/enable", json={})
