"""System packages: what tests of the service start, found or installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def missing() -> list[str]:
    """Return the Debian packages that are needed and not there."""
    server = shutil.which("pg_ctl") or list(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    if not server and shutil.which("pg_config"):
        asked = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True)
        server = (Path(asked.stdout.strip()) / "pg_ctl").exists()
    found = {
        "postgresql": server,
        "strace": shutil.which("strace"),
        "chromium": shutil.which("chromium"),
    }
    return [package for package, place in found.items() if not place]


def main() -> int:
    """Install what is missing, where that is possible; else say what to do."""
    packages = missing()
    if packages and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "install", "-qq", "--no-install-recommends", *packages]
        subprocess.run(["apt-get", "update", "-qq"], env=quiet, check=True)
        subprocess.run(install, env=quiet, check=True, stdout=subprocess.DEVNULL)
        packages = missing()
    if packages:
        print(
            f"tests of the service need {' and '.join(packages)}. On Debian or Ubuntu: "
            f"sudo apt-get install {' '.join(packages)}. Elsewhere: a PostgreSQL server of version "
            "14 or later with pg_ctl or pg_config on the PATH, strace (Linux), and chromium on the "
            "PATH.",
            file=sys.stderr,
        )
    return len(packages)


if __name__ == "__main__":
    sys.exit(main())
