"""An S3 endpoint that throttles: some requests are answered with 503, the others are passed on."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_SLOW_DOWN = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"""
_OF_A_HOP = {"connection", "transfer-encoding", "content-length", "server", "date"}


class Throttling:
    """Stands before an endpoint. Of the requests, each `every`th is refused; 0: none."""

    def __init__(self, endpoint: str) -> None:
        self.every = self.asked = self.refused = 0
        self._behind = urlsplit(endpoint).netloc
        self._lock = threading.Lock()
        throttling = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65_537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                throttling._answer(self)

            def log_message(self, *_words: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def _refuses(self) -> bool:
        with self._lock:
            self.asked += 1
            refuses = bool(self.every) and self.asked % self.every == 0
            self.refused += refuses
            return refuses

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        if self._refuses():
            headers, status, content = {"Content-Type": "application/xml"}, 503, _SLOW_DOWN
        else:
            headers, status, content = self._passed_on(request, body)
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        is_head = request.command == "HEAD"
        size = headers.get("x-size", len(content)) if is_head else len(content)
        request.send_header("Content-Length", str(size))
        request.end_headers()
        if not is_head:
            request.wfile.write(content)

    def _passed_on(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[dict[str, str], int, bytes]:
        behind = http.client.HTTPConnection(self._behind, timeout=300)
        try:
            behind.request(request.command, request.path, body, dict(request.headers.items()))
            answer = behind.getresponse()
            content = answer.read()
            kept = {
                name: value for name, value in answer.getheaders() if name.lower() not in _OF_A_HOP
            }
            if request.command == "HEAD":
                kept["x-size"] = answer.getheader("Content-Length") or "0"
            return kept, answer.status, content
        finally:
            behind.close()
