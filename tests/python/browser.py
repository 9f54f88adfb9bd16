"""Chromium without a window, driven by its DevTools protocol over a pair of pipes: no driver program, no package.

Comes in: what to do on a page. Goes out: values of expressions, screenshots, and all that the page complained of and asked for.
Never here: what is tested.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Method, address and headers of a request -> status and JSON of the answer; None lets the request through, 0 breaks it off.
Answers = Callable[[str, str, dict[str, str]], "tuple[int, Any] | None"]

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# Without the background flags Chromium asks its maker's hosts, many times a minute.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]
KEYS = {
    "Tab": 9,
    "Enter": 13,
    " ": 32,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}


def chromium() -> str | None:
    """The program, if this machine has one."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def visible(selector: str) -> str:
    """An expression: whether the first element that a selector finds is seen."""
    return f"document.querySelector({json.dumps(selector)})?.checkVisibility()"


class Browser:
    """One Chromium with one page. A context manager."""

    def __init__(self, program: str) -> None:
        self.folder = tempfile.mkdtemp(prefix="partgrid-chromium-")
        child_in, self._out = os.pipe()
        self._in, child_out = os.pipe()
        command = f'exec "$0" "$@" 3<&{child_in} 4>&{child_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, program, *FLAGS, f"--user-data-dir={self.folder}"],
            pass_fds=(child_in, child_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(child_in)
        os.close(child_out)
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self._answers: Answers | None = None
        self.has_pretended = False
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self._loaded: set[str] = set()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends one command and waits for its answer; events on the way are looked at."""
        number = self._send(method, params)
        while True:
            answer = self._receive(30)
            if answer is None:
                raise TimeoutError(f"Chromium did not answer {method}")
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _send(self, method: str, params: dict[str, Any]) -> int:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        left = json.dumps(message).encode() + b"\0"
        while left:
            left = left[os.write(self._out, left) :]
        return self._number

    def _receive(self, seconds: float) -> dict[str, Any] | None:
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], seconds)[0]:
                return None
            read = os.read(self._in, 1 << 20)
            if not read:
                raise EOFError("Chromium ended")
            self._rest += read
        text, self._rest = self._rest.split(b"\0", 1)
        message = json.loads(text)
        self._note(message)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Page.lifecycleEvent" and params["name"] == "load":
            self._loaded.add(params["loaderId"])
        if event.get("method") == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
        if event.get("method") == "Fetch.requestPaused":
            self._answer(params["requestId"], params["request"])
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        if event.get("method") == "Runtime.consoleAPICalled" and params["type"] in (
            "error",
            "warning",
        ):
            self.complaints.append(json.dumps(params["args"]))
        if event.get("method") == "Log.entryAdded" and params["entry"]["level"] in (
            "error",
            "warning",
        ):
            self.complaints.append(params["entry"]["text"])

    def _answer(self, paused: str, request: dict[str, Any]) -> None:
        answer = self._answers and self._answers(
            request["method"], request["url"], request["headers"]
        )
        if not answer:
            self._send("Fetch.continueRequest", {"requestId": paused})
        elif answer[0] == 0:
            self._send("Fetch.failRequest", {"requestId": paused, "errorReason": "Failed"})
        else:
            body = base64.b64encode(json.dumps(answer[1]).encode()).decode()
            headers = [{"name": "Content-Type", "value": "application/json"}]
            what = {"responseCode": answer[0], "responseHeaders": headers, "body": body}
            self._send("Fetch.fulfillRequest", {"requestId": paused, **what})

    def pretend(self, pattern: str, answers: Answers | None) -> None:
        """Requests to addresses like the pattern get these answers instead of the server's, until told otherwise."""
        self._answers = answers
        if answers:
            self.has_pretended = True
            self.call("Fetch.enable", patterns=[{"urlPattern": pattern}])
        else:
            self.call("Fetch.disable")

    def wait(self, seconds: float) -> None:
        """Lets time pass, and hears what the page complains of meanwhile."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._receive(left)

    def look(self, width: int, height: int, dark: bool = False, calm: bool = False) -> None:
        """The size of the window, and what the person's system asks for."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        wishes = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce" if calm else "no-preference",
        }
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": name, "value": value} for name, value in wishes.items()],
        )

    def open(self, address: str) -> None:
        """Goes to a page and waits until it was loaded."""
        told = self.call("Page.navigate", url=address)
        if "errorText" in told:
            raise RuntimeError(f"{address}: {told['errorText']}")
        # The page of before answers until this one is there. One that is there already has no loader.
        end, loader = time.monotonic() + 30, told.get("loaderId")
        while loader and loader not in self._loaded:
            if time.monotonic() > end:
                raise TimeoutError(f"after 30 s {address} is not loaded")
            self._receive(0.05)

    def reload(self) -> None:
        """Loads the page again, and waits until it was."""
        # What is asked of a page that is about to go has no answer.
        before, end = set(self._loaded), time.monotonic() + 30
        self.call("Page.reload")
        while self._loaded <= before:
            if time.monotonic() > end:
                raise TimeoutError("after 30 s the page is not loaded again")
            self._receive(0.05)

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript gives (awaited)."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def until(self, expression: str, seconds: float = 20) -> Any:
        """Waits until an expression is true, and gives its value."""
        end = time.monotonic() + seconds
        while not (value := self.value(expression)):
            if time.monotonic() > end:
                raise TimeoutError(f"after {seconds} s this does not hold: {expression}")
            self.wait(0.05)
        return value

    def text(self, selector: str) -> str:
        """What the first element that a selector finds shows, with plain spaces; nothing where there is none."""
        found = f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"
        return self.value(found).replace("\u00a0", " ")

    def heard(self) -> list[tuple[str, str]]:
        """What a screen reader is told: role and name of everything that is there for it."""
        self.call("Accessibility.enable")
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        told = [node for node in nodes if not node["ignored"]]
        return [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in told]

    def press(self, key: str, modifiers: int = 0) -> None:
        """Presses and releases a key (modifiers: 2 is Ctrl, 8 is Shift)."""
        what = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": modifiers}
        text = {"Enter": "\r", " ": " "}.get(key)
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        self.call("Input.dispatchKeyEvent", **down, **what)
        self.call("Input.dispatchKeyEvent", type="keyUp", **what)

    def type(self, text: str) -> None:
        """Puts text where the cursor is."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Clicks with the mouse in the middle of the first element that a selector finds."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{found}.scrollIntoView({{block: 'center'}})")
        box = f"(() => {{ const r = {found}.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
        x, y = self.value(box)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """The page as a PNG, also what is below the window's edge."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data["data"]))
