"""A headless Chromium spoken to over pipes (the DevTools protocol), for tests that look at a page as a reader does."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: A browser that hangs should fail a test, not stop the suite; a busy machine should not.
_PATIENCE_S = 120
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@dataclass
class Page:
    """One tab. ``requests`` are the URLs it asked for, ``problems`` its console errors, exceptions and violations."""

    send_fd: int
    receive_fd: int
    session: str | None = None
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    number: int = 0
    buffer: bytes = b""
    seen: list[str] = field(default_factory=list)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its result; events that come meanwhile are noted."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.send_fd, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._receive()
            if reply.get("id") == self.number:
                assert "error" not in reply, f"{method}: {reply['error']}"
                return reply["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.receive_fd], [], [], _PATIENCE_S)
            assert ready, f"the browser has said nothing for {_PATIENCE_S} s"
            chunk = os.read(self.receive_fd, 1 << 20)
            assert chunk, "the browser has ended"
            self.buffer += chunk
        text, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, params: dict[str, Any]) -> None:
        self.seen.append(event)
        if event == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.problems.append(params["exceptionDetails"]["text"])
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(json.dumps(params["args"]))
        elif event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])
        elif event in ("Page.javascriptDialogOpening", "Page.windowOpen"):
            self.problems.append(event)

    def open(self, path: Path, *, width: int = 1280, dark: bool = False, script: bool = True, media: str = "") -> None:
        """Load a file under this width, colour scheme and medium, with JavaScript or without."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.seen.clear()
        self.call("Page.navigate", url=path.as_uri())
        while "Page.loadEventFired" not in self.seen:
            self._receive()

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; it works even where the page's own scripts are off."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def screenshot(self, path: Path, *, y: int = 0, height: int | None = None) -> None:
        """The page (or the strip of ``height`` pixels from ``y``) as a PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": y, "width": size["width"], "height": height or size["height"] - y, "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def chromium_page() -> Iterator[Page]:
    """A fresh browser with one tab, gone at the end."""
    assert CHROMIUM is not None
    to_browser, send = os.pipe()
    receive, from_browser = os.pipe()
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
    quiet = ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The protocol's pipes are the descriptors 3 and 4 of the browser.
        line = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        command = [
            "bash",
            "-c",
            line,
            CHROMIUM,
            *flags,
            *quiet,
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        ]
        process = subprocess.Popen(
            command, pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            page = Page(send, receive)
            target = page.call("Target.createTarget", url="about:blank")["targetId"]
            page.session = page.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Network", "Runtime", "Log"):
                page.call(f"{domain}.enable")
            yield page
        finally:
            process.kill()
            process.wait()
            os.close(send)
            os.close(receive)
