"""Look at every page of a built site in headless Chromium, wide and narrow, and list what a reader stumbles over."""

import json
import re
import subprocess
import tempfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

#: Widths of a window in pixels: of a laptop and of a phone.
WIDTHS = (1300, 390)
#: Seconds for all pages together, after which the browser is taken to be stuck.
PATIENCE_S = 600

#: Loads each page in a frame of each width and sends one list of findings.
CHECK = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")


class _Handler(SimpleHTTPRequestHandler):
    """Serves the site, the page that checks it, and takes what that page sends."""

    check, found, done = "", [], threading.Event()  # type: ignore[var-annotated]

    def do_GET(self) -> None:
        if self.path != "/check":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.check.encode())

    def do_POST(self) -> None:
        type(self).found = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.done.set()

    def log_message(self, *_: Any) -> None:
        pass


def stumbles(site: Path, chromium: str) -> list[str]:
    """Overflow, clipped code, missing glyphs and pictures, raw TeX and repeated formulas of all pages.

    Parameters
    ----------
    site
        Folder of the built pages.
    chromium
        Path of the browser.
    """
    pages = [
        f"/{page.relative_to(site).as_posix()}" for page in sorted(site.rglob("*.html")) if "_static" not in page.parts
    ]
    handler = type("Handler", (_Handler,), {"done": threading.Event()})
    handler.check = CHECK.replace("PAGES", json.dumps(pages), 1).replace("WIDTHS", json.dumps(WIDTHS), 1)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as profile:
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={profile}",
            "--window-size=1400,1000",
        ]
        browser = subprocess.Popen(
            [chromium, *options, f"http://127.0.0.1:{server.server_port}/check"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            ended = handler.done.wait(PATIENCE_S)
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()
            server.server_close()
    assert ended, "the browser did not come to an end"
    return list(dict.fromkeys(handler.found))


def broken_links(site: Path) -> list[str]:
    """Links to pages and places of the site that do not exist."""
    texts = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    places = {page: set(re.findall(r'\bid="([^"]+)"', text)) for page, text in texts.items()}
    broken = []
    for page, text in texts.items():
        for address in set(re.findall(r'<a\b[^>]*\bhref="([^"]+)"', text)):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page.resolve()
            known = places.get(target if target.is_relative_to(site) else page, set())
            if not target.exists() or (
                parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in known
            ):
                broken.append(f"{page.relative_to(site)}: {address}")
    return broken
