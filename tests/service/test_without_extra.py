"""The library without the extra `service`: it works, and its commands say what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = "import sys; sys.modules.update(dict.fromkeys(['sqlalchemy', 'fastapi', 'uvicorn']))\n"


@pytest.mark.parametrize("command", ["init", "serve", "migrate", "verify"])
def test_commands_of_the_service_say_what_to_install(command):
    code = BLOCKED + f"from consequential.cli import main; sys.exit(main(['{command}']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install 'consequential[service]'" in done.stderr


def test_the_library_does_not_import_the_service():
    code = BLOCKED + "import consequential as cq; print(cq.Policy([0.0, 1.0]).propensity([[0.0]]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[0.5]\n"
