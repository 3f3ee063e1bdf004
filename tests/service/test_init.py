"""`consequential init`: asks nothing, leaves nothing half made, and says what to try."""

from __future__ import annotations

import re

import httpx
import pytest
from trial import Served, Trial

from consequential.cli import main
from consequential.service.database import open_store
from consequential.service.settings import ServiceSettings


def test_the_example_can_be_served_and_the_lines_it_prints_work(tmp_path, capsys, serve):
    folder = tmp_path / "example"
    assert main(["init", str(folder), "--example"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("curl -s") == 3
    assert (folder / "secret").stat().st_mode & 0o777 == 0o600
    key = printed.splitlines()[1].strip()
    served: Served = serve(Trial(ServiceSettings.load(folder), {"all": key}, ""))
    headers = {"Authorization": f"Bearer {key}"}
    body = re.search(r"-d '(.*)'", printed).group(1)
    decided = httpx.post(
        f"{served.url}/v1/loops/lending/decisions",
        content=body,
        headers=headers | {"Content-Type": "application/json"},
    )
    assert decided.status_code == 201
    assert decided.json()["propensity"] >= 0.1
    for place in re.findall(r"8000(/v1/loops/lending[a-z/]*) -H", printed):
        if not place.endswith("decisions"):
            assert httpx.get(served.url + place, headers=headers).status_code == 200
    assert served.stop() == 0


def test_in_a_folder_that_is_open_to_others_the_databases_are_not(tmp_path):
    tmp_path.chmod(0o755)
    assert main(["init", str(tmp_path)]) == 0
    store = open_store(ServiceSettings.load(tmp_path))
    with store.write(), store.write_sensitive():
        modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.glob("*.db*")}
    store.close()
    assert {"service.db", "sensitive.db", "sensitive.db-wal"} <= set(modes)
    assert set(modes.values()) == {0o600}


def test_a_folder_that_has_a_service_is_left_as_it_is(tmp_path, capsys):
    assert main(["init", str(tmp_path)]) == 0
    secret = (tmp_path / "secret").read_text()
    assert main(["init", str(tmp_path)]) == 2
    assert "choose another folder" in capsys.readouterr().err
    assert (tmp_path / "secret").read_text() == secret


def test_a_secret_that_is_there_is_kept(tmp_path):
    (tmp_path / "secret").write_text("mine")
    assert main(["init", str(tmp_path)]) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["secret"]
    assert (tmp_path / "secret").read_text() == "mine"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://nobody@127.0.0.1:1/nothing", "cannot be used: connection failed"),
        (
            "mysql://shop:s3cret@127.0.0.1/shop",
            "user@host/name; this begins with 'mysql'",
        ),
        ("service.db", "begins with 'service.db'"),
    ],
)
def test_what_fails_leaves_no_files_behind(tmp_path, capsys, url, told):
    assert main(["init", str(tmp_path), "--database", url]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "s3cret" not in error
    assert list(tmp_path.iterdir()) == []
