"""A real Chromium, driven by its chromedriver over plain HTTP (the WebDriver standard), without any further package."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from replog.testing.eventually import eventually

__all__ = ["Browser", "missing"]

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback needs no proxy, whatever the environment says


def missing() -> str:
    """Which programs there are not, for people; "" if nothing is missing."""
    names = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(names)} not found; on Debian: apt-get install chromium chromium-driver" if names else ""


class Browser:
    """One window in a profile of its own. `width` and `height` are those of the page in CSS pixels."""

    def __init__(self, profile: Path, *, width: int = 1280, height: int = 1000, dark: bool = False) -> None:
        """Start both programs; raises AssertionError if they do not answer."""
        driver = shutil.which("chromedriver")
        assert driver is not None, missing()
        self._process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            port = self._port()
            self._base = f"http://127.0.0.1:{port}"
            arguments = [*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"]
            options = {"binary": shutil.which("chromium"), "args": arguments}
            asked = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}}
            self._base += f"/session/{self._call('POST', '/session', asked)['sessionId']}"
            emulated = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            self.cdp("Emulation.setDeviceMetricsOverride", emulated)
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            self.cdp("Emulation.setEmulatedMedia", {"features": [scheme]})
        except BaseException:
            self._end()
            raise

    def _port(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "started successfully on port" in line:
                return line.rstrip().rstrip(".").rpartition(" ")[2]
        raise AssertionError("chromedriver has ended before it said where it listens")

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with _DIRECT.open(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as refused:
            raise AssertionError(f"{method} {path}: {refused.read().decode()[:500]}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self._end()

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def open(self, url: str) -> None:
        """Go to a page, and wait until it is loaded."""
        self._call("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that a function body of JavaScript returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def cdp(self, command: str, parameters: dict[str, Any]) -> Any:
        """A command of the browser's own protocol."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def text(self, selector: str) -> str:
        """What a person reads there; "" if there is no such element."""
        return str(self.run("const found = document.querySelector(arguments[0]); return found ? found.innerText : ''", selector))

    def keys(self, text: str) -> None:
        """Press these keys, wherever the focus is ("\\ue004" is Tab, "\\ue007" Enter)."""
        actions = [action for key in text for action in ({"type": "keyDown", "value": key}, {"type": "keyUp", "value": key})]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def until(self, script: str, *arguments: Any) -> Any:
        """Wait until a script returns something true."""
        return eventually(lambda: self.run(script, *arguments), 60.0, every_s=0.1)

    def logs(self) -> list[str]:
        """What the browser has complained of."""
        return [entry["message"] for entry in self._call("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, file: Path) -> None:
        """The whole page, as PNG."""
        shot = self.cdp("Page.captureScreenshot", {"captureBeyondViewport": True})
        file.write_bytes(base64.b64decode(shot["data"]))
