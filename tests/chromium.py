"""A headless Chromium, driven over its own pipe (DevTools protocol, https://chromedevtools.github.io/devtools-protocol).

Messages are JSON that end with a zero byte, on file descriptors 3 (to Chromium) and 4 (from it); so nothing but the
standard library is needed.
"""

import base64
import json
import math
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE_S = 60.0
# Puts the ends of the pipes where Chromium looks for them, whatever numbers they have.
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for end, place in zip(ends, (3, 4)):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""


def chromium() -> str | None:
    """The program; None where there is none."""
    return next((result for name in NAMES if (result := shutil.which(name))), None)


class Page:
    """One page of a Chromium of its own; a context manager.

    Args:
        program: what `chromium()` found.
        size: of the window, in CSS pixels.
    """

    def __init__(self, program: str, size: tuple[int, int] = (1280, 900)) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        self._rest, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        self.opened_s = math.nan
        inner = [program, *OPTIONS, f"--user-data-dir={self._profile.name}", "about:blank"]
        command = [sys.executable, "-S", "-c", LAUNCH, str(to_read), str(to_write), *inner]
        self._process = subprocess.Popen(
            command, pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        try:
            self._attach(size)
        except BaseException:
            self.close()
            raise

    def _attach(self, size: tuple[int, int]) -> None:
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(*size)

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End Chromium."""
        for end in (self._to, self._from):
            os.close(end)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()

    def call(self, method: str, **parameters: Any) -> Any:
        """One command of the protocol, and its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        ends = time.monotonic() + PATIENCE_S
        while (reply := self._next(ends)).get("id") != self._number:
            self.events.append(reply)
        if "error" in reply:
            raise RuntimeError(f"{method}: {reply['error']['message']}")
        return reply["result"]

    def _next(self, ends: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._from], [], [], max(0.0, ends - time.monotonic()))[0]:
                raise RuntimeError("Chromium does not reply")
            piece = os.read(self._from, 1 << 20)
            if not piece:
                raise RuntimeError("Chromium ended")
            self._rest += piece
        text, _, self._rest = self._rest.partition(b"\0")
        result: dict[str, Any] = json.loads(text)
        return result

    def open(self, path: Path, until: str = "true") -> None:
        """Open a file and wait until an expression holds, which takes `opened_s` seconds."""
        begin = time.perf_counter()
        self.call("Page.navigate", url=path.absolute().as_uri())
        while not self.ask(f"location.protocol === 'file:' && document.readyState === 'complete' && Boolean({until})"):
            if time.perf_counter() - begin > PATIENCE_S:
                raise RuntimeError(f"{path.name}: {until} does not come to hold")
            time.sleep(0.02)
        self.opened_s = time.perf_counter() - begin

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression; of a promise, what it comes to."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:500])
        return result["result"].get("value")

    def complaints(self) -> Sequence[str]:
        """What the console has of errors and warnings so far, and every request beyond the file itself."""
        self.ask("0")  # events before the reply are here now
        sentences = []
        for event in self.events:
            given: Mapping[str, Any] = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                sentences.append(str(given["exceptionDetails"]))
            elif event.get("method") == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
                sentences.append(str(given["entry"]["text"]))
            elif event.get("method") == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
                sentences.append(str(given["args"]))
            elif event.get("method") == "Network.requestWillBeSent" and given["type"] != "Document":
                sentences.append(f"requests {given['request']['url'][:200]}")
        return sentences

    def resize(self, width: int, height: int) -> None:
        """The size of the window, in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def media(self, scheme: str = "light", medium: str = "") -> None:
        """What the system prefers (light, dark), and "print" for paper."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=medium, features=features)

    def press(self, key: str) -> None:
        """One key, in whatever has the focus."""
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        code = {"windowsVirtualKeyCode": 13} if key == "Enter" else {}
        for kind, typed in (("keyDown", {"text": text} if text else {}), ("keyUp", {})):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **typed, **code)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """One event of the mouse (mouseMoved, mousePressed, mouseReleased, mouseWheel)."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def paper(self, path: Path) -> None:
        """The page as it is printed (PDF)."""
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"]))
