"""PostgreSQL of the tests' own: started on a free port of this machine, killed, stopped."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import psycopg

USER = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name


@cache
def binaries() -> Path:
    """Where initdb and pg_ctl are: on PATH, where pg_config says, or in Debian's folders."""
    found = shutil.which("pg_ctl")
    if found:
        return Path(found).resolve().parent
    places = []
    if shutil.which("pg_config"):
        done = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=True)
        places.append(Path(done.stdout.strip()))
    debian = Path("/usr/lib/postgresql")
    places += sorted(debian.glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    for place in places:
        if (place / "pg_ctl").exists():
            return place
    raise FileNotFoundError("PostgreSQL's server is missing: run make system, or install it")


class PostgresServer:
    """A server in a temporary folder; `start` after `kill` recovers what was committed."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="consequential-postgres-"))
        if os.geteuid() == 0:  # PostgreSQL refuses root
            shutil.chown(self.folder, "nobody", "nogroup")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._run("initdb", "-A", "trust", "-U", USER, "-E", "UTF8", "--no-locale", "-N")
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        as_nobody = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        subprocess.run(
            [binaries() / program, "-D", self.folder / "data", *arguments],
            check=True,
            cwd="/",
            timeout=60,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **(as_nobody if os.geteuid() == 0 else {}),
        )

    def start(self, attempts: int = 20) -> None:
        """Start it; after a kill its processes may hold the shared memory for a moment."""
        options = f"-c listen_addresses=127.0.0.1 -p {self.port} -k {self.folder}"
        for attempt in range(attempts):
            try:
                self._run("pg_ctl", "-w", "-l", f"{self.folder}/log", "-o", options, "start")
                return
            except subprocess.CalledProcessError:
                if attempt == attempts - 1:
                    raise RuntimeError((self.folder / "log").read_text()) from None
                time.sleep(0.25)

    @property
    def pid(self) -> int:
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it, and remove its folder."""
        self._end(signal.SIGINT)
        shutil.rmtree(self.folder)

    def _end(self, how: signal.Signals) -> None:
        pid = self.pid
        os.kill(pid, how)
        while Path(f"/proc/{pid}").exists() and "Z" not in _state(pid):
            time.sleep(0.02)

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://{USER}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> None:
        address = {"host": "127.0.0.1", "port": self.port, "user": USER, "dbname": database}
        with psycopg.connect(**address, autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[arg-type]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"
