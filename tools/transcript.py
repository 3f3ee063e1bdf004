"""Run the commands of a page again, and write what they say now into it.

    python tools/transcript.py docs/ten-minutes.md

A page has Python blocks, each after a sentence that says under what name to save it (`past.py`),
and console blocks of commands (`$ ...`) with what they print. They are run in an empty folder, in
order. `make docs` does this before it builds the site, so that no figure is older than the code.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = "/home/you/mine"  # what the page calls the folder
_CONSOLE = re.compile(r"(?<=```console\n)(.*?)(?=```)", flags=re.DOTALL)
_PROGRAM = re.compile(r"`(\w+\.py)`.*?```python\n(.*?)```", flags=re.DOTALL)


def run_again(text: str, folder: Path) -> str:
    """Return a page with what its commands print today; raise an error if one fails."""
    for name, program in _PROGRAM.findall(text):
        (folder / name).write_text(program, encoding="utf-8")
    tools = folder / "tools"
    tools.mkdir()
    for name, arguments in (("consequential", "-m consequential"), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (tools / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}

    def said(block: re.Match[str]) -> str:
        lines = []
        for line in block.group().splitlines():
            if line.startswith("$ "):
                done = subprocess.run(
                    ["sh", "-e", "-c", line[2:]],
                    cwd=folder,
                    env=environment,
                    capture_output=True,
                    text=True,
                )
                if done.returncode or "Warning" in done.stderr:
                    raise RuntimeError(f"{line}\n{done.stderr}")
                lines += [line, *done.stdout.replace(str(folder.resolve()), FOLDER).splitlines()]
        return "".join(f"{line}\n" for line in lines)

    return _CONSOLE.sub(said, text)


def main() -> None:
    """Rewrite the pages that are named."""
    for name in sys.argv[1:]:
        page = Path(name)
        with tempfile.TemporaryDirectory() as folder:
            page.write_text(
                run_again(page.read_text(encoding="utf-8"), Path(folder)), encoding="utf-8"
            )


if __name__ == "__main__":
    main()
