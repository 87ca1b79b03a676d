"""A file server on 127.0.0.1 that can misbehave."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Site:
    """What the server holds, how it misbehaves, and what it was requested."""

    files: dict[str, bytes]  # path -> bytes
    statuses: list[int] = field(default_factory=list)  # answered first, one per request, before files are served
    cut_after: int | None = None  # the first answer ends after this many bytes, although more were announced
    requested: list[str] = field(default_factory=list)  # path of every request
    url: str = ""


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    """Serve until the block ends; `site.url` states where."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.requested.append(self.path)
            status, body, full = _prediction(site, self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(full))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


def _prediction(site: Site, path: str) -> tuple[int, bytes, int]:
    """(status, bytes sent, bytes announced)."""
    if site.statuses:
        return site.statuses.pop(0), b"", 0
    content = site.files.get(path)
    if content is None:
        return 404, b"", 0
    if site.cut_after is not None:
        cut, site.cut_after = site.cut_after, None
        return 200, content[:cut], len(content)
    return 200, content, len(content)
