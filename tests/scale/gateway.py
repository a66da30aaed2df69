"""Ceph's S3 gateway on this machine: one monitor, one store in memory, the gateway; from Debian's packages.

Packages are downloaded once and unpacked into a folder (CEPH, by default `.ceph`): nothing is installed, no file of the
system is touched, everything listens on the loopback and ends with the tests.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest
from obstore import sign
from obstore.store import S3Store
from tests.bucket_server import ACCESS, SECRET, environment

_PACKAGES = ("radosgw", "ceph-mon", "ceph-osd")
_FSID = "6f3f5c7e-2f1b-4a52-9d0e-0c7f5f1f4d11"
_ARCHITECTURE = "x86_64-linux-gnu"
_RIGHTS = ("--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mgr", "allow *")


def _unpacked() -> Path:
    """Return the folder with Ceph's programs; unpack them first where it is not there.

    Skips the test where Debian's packages cannot be had.
    """
    folder = Path(os.environ.get("CEPH", ".ceph")).resolve()
    root = folder / "root"
    if (root / "usr/bin/radosgw").exists():
        return root
    if shutil.which("apt-get") is None:
        pytest.skip("Ceph's gateway: this is not Debian")
    (folder / "debs/partial").mkdir(parents=True, exist_ok=True)
    wanted = ["apt-get", "-y", "-qq", "--no-install-recommends", "--download-only", "-o"]
    wanted += [f"Dir::Cache::archives={folder / 'debs'}", "install", *_PACKAGES]
    if subprocess.run(wanted, capture_output=True, check=False).returncode:
        pytest.skip("Ceph's gateway: its packages cannot be downloaded; `apt-get update` may help")
    for package in sorted((folder / "debs").glob("*.deb")):
        subprocess.run([shutil.which("dpkg") or "dpkg", "-x", package, root], check=True)
    return root


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _settings(run: Path, root: Path, ports: tuple[int, int]) -> Path:
    """Write Ceph's configuration: one of each, objects in memory."""
    libraries = root / "usr/lib" / _ARCHITECTURE
    text = f"""
[global]
fsid = {_FSID}
mon_host = [v2:127.0.0.1:{ports[0]}]
public_addr = 127.0.0.1
run_dir = {run}
admin_socket = {run}/$name.asok
log_file = {run}/$name.log
mon_data = {run}/mon
osd_data = {run}/osd
osd_objectstore = memstore
memstore_device_bytes = 4294967296
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
osd_class_dir = {libraries}/rados-classes
plugin_dir = {libraries}/ceph
erasure_code_dir = {libraries}/ceph/erasure-code
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
setuser_match_path =
keyring = {run}/keyring
rgw_data = {run}/rgw
rgw_frontends = beast endpoint=127.0.0.1:{ports[1]}
rgw_dynamic_resharding = false
rgw_enable_usage_log = false
"""
    path = run / "ceph.conf"
    path.write_text(text, encoding="utf-8")
    return path


@contextmanager
def running(run: Path) -> Iterator[dict[str, str]]:
    """Start the gateway with the bucket `flywheel`, and return the environment of its clients."""
    root, ports = _unpacked(), (_free_port(), _free_port())
    for name in ("mon", "osd", "rgw"):
        (run / name).mkdir()
    with ExitStack() as stack:
        ceph = _Ceph(run, _environment(run, root, ports), stack)
        for number, name in enumerate(("mon.", "client.admin", "client.rgw", "osd.0")):
            create = () if number else ("--create-keyring",)
            ceph.once("ceph-authtool", *create, "keyring", "--gen-key", "-n", name, *_RIGHTS)
        ceph.once("monmaptool", "--create", "--fsid", _FSID, "--addv", "a", f"[v2:127.0.0.1:{ports[0]}]", "monmap")
        ceph.once("ceph-mon", "--mkfs", "-i", "a", "--monmap", "monmap", "--keyring", "keyring")
        ceph.start("ceph-mon", "-f", "-i", "a")
        ceph.once("/usr/bin/python3", str(root / "usr/bin/ceph"), "osd", "new", _FSID)
        ceph.once("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", _FSID)
        ceph.start("ceph-osd", "-f", "-i", "0")
        ceph.start("radosgw", "-f", "--no-mon-config", "-n", "client.rgw")
        _wait_for(ports[1])
        user = ("--uid", "tests", "--display-name", "tests", "--access-key", ACCESS, "--secret-key", SECRET)
        ceph.once("radosgw-admin", "user", "create", *user)
        found = environment(f"http://127.0.0.1:{ports[1]}")
        _make_bucket(found)
        yield found


def _environment(run: Path, root: Path, ports: tuple[int, int]) -> dict[str, str]:
    """Return the environment of Ceph's programs, which finds them and their libraries in the folder."""
    libraries = root / "usr/lib" / _ARCHITECTURE
    return {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join(map(str, (libraries, libraries / "ceph", root / "lib" / _ARCHITECTURE))),
        "PATH": f"{root}/usr/bin:{os.environ['PATH']}",
        "PYTHONPATH": f"{root}/usr/lib/python3/dist-packages",
        "CEPH_CONF": str(_settings(run, root, ports)),
    }


@dataclass
class _Ceph:
    """Ceph's programs in a folder; those that were started end with the stack."""

    run: Path
    env: dict[str, str]
    stack: ExitStack

    def once(self, *words: str) -> None:
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, check=False, cwd=self.run)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr[-2000:]}")

    def start(self, *words: str) -> None:
        log = self.stack.enter_context((self.run / f"{words[0]}.out").open("w"))
        process = subprocess.Popen(words, env=self.env, stdout=log, stderr=log, cwd=self.run)
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)


def _wait_for(port: int) -> None:
    """Wait until the gateway answers."""
    for _ in range(240):
        with suppress(OSError, HTTPException), closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            connection.request("GET", "/")
            connection.getresponse().read()
            return
        time.sleep(0.5)
    pytest.fail("the gateway did not start")


def _make_bucket(found: dict[str, str]) -> None:
    """Make the bucket `flywheel`, by a signed request: a client of objects has none for buckets."""
    keys = {"access_key_id": ACCESS, "secret_access_key": SECRET, "region": "us-east-1"}
    client = S3Store("flywheel", endpoint=found["AWS_ENDPOINT_URL"], client_options={"allow_http": True}, **keys)
    url = sign(client, "PUT", "", timedelta(minutes=5))
    host, _, path = url.removeprefix("http://").partition("/")
    with closing(HTTPConnection(host)) as connection:
        connection.request("PUT", "/" + path)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
