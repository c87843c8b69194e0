"""Downloads through the real client, from a repository on this machine."""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from support.errors import raises

from eos.errors import UnavailableError
from eos.local import jar_download
from eos.local.jars import SPARK, Jar


class Repository(http.server.BaseHTTPRequestHandler):
    """Serves what is in `content`, by the name of the file."""

    content: ClassVar[dict[str, bytes]]

    def do_GET(self) -> None:
        body = self.content.get(Path(self.path).name)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def do_HEAD(self) -> None:
        body = self.content.get(Path(self.path).name)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def jar(name: str, content: bytes) -> Jar:
    return Jar(SPARK, f"org.example:{name}:1", len(content), hashlib.sha256(content).hexdigest())


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Repository]]:
    class Mine(Repository):
        content: ClassVar[dict[str, bytes]] = {}

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mine) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        monkeypatch.setenv(jar_download.REPOSITORY, f"http://127.0.0.1:{server.server_port}/m/")
        yield Mine
        server.shutdown()
        thread.join()


def test_jars_arrive_whole_and_no_work_stays(repository: type[Repository], tmp_path: Path) -> None:
    content = {f"a{number}-1.jar": b"jar" * 1000 * (number + 1) for number in range(6)}
    repository.content = content
    jars = [jar(name.removesuffix("-1.jar"), body) for name, body in content.items()]
    jar_download.download(jars, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        f"org.example__{name}": body for name, body in content.items()
    }


def test_one_bad_jar_fails_with_its_reason_and_the_good_ones_are_kept(
    repository: type[Repository], tmp_path: Path
) -> None:
    good, bad, missing = jar("good", b"good"), jar("bad", b"as pinned"), jar("missing", b"x")
    repository.content = {"good-1.jar": b"good", "bad-1.jar": b"something else"}
    with raises("jar_download_failed", UnavailableError) as caught:
        jar_download.download([good, bad, missing], tmp_path)
    text = str(caught.value)
    assert "org.example:bad:1" in text
    assert f"not {bad.sha256}" in text
    assert "/bad-1.jar" in text
    assert "org.example:missing:1" in text
    assert [path.name for path in tmp_path.iterdir()] == [good.name]


def test_a_repository_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(jar_download.REPOSITORY, "http://127.0.0.1:1/m/")
    with raises("jar_download_failed") as caught:
        jar_download.download([jar("a", b"a")], tmp_path)
    assert "EOS_MAVEN_REPOSITORY" in caught.value.hint
