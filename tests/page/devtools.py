"""A headless Chromium driven through its DevTools protocol: a WebSocket client, and a page with what the tests do to one."""
import base64
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

PROGRAMS = ["chromium", "chromium-browser", "google-chrome"]


def find_browser():
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


class WebSocket:
    """A client's side of RFC 6455: text messages, masked as it must be."""

    def __init__(self, port, path):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=30)
        key = base64.b64encode(os.urandom(16)).decode()
        self.sock.sendall(("GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                           "Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n\r\n" % (path, port, key)).encode())
        self.file = self.sock.makefile("rb")
        status = self.file.readline()
        assert b"101" in status, status
        while self.file.readline().strip():
            pass
        self.sock.settimeout(None)
        self.lock = threading.Lock()

    def send(self, text):
        data = text.encode()
        mask = os.urandom(4)
        n = len(data)
        head = b"\x81" + (bytes([0x80 | n]) if n < 126 else b"\xfe" + struct.pack(">H", n) if n < 65536 else b"\xff" + struct.pack(">Q", n))
        repeated = int.from_bytes((mask * (n // 4 + 1))[:n], "big") if n else 0
        masked = (int.from_bytes(data, "big") ^ repeated).to_bytes(n, "big")
        with self.lock:
            self.sock.sendall(head + mask + masked)

    def receive(self):
        """The next message; None when the other side closed."""
        message = b""
        while True:
            head = self.file.read(2)
            if len(head) < 2:
                return None
            n = head[1] & 0x7F
            if n == 126:
                n = struct.unpack(">H", self.file.read(2))[0]
            elif n == 127:
                n = struct.unpack(">Q", self.file.read(8))[0]
            message += self.file.read(n)
            if head[0] & 0x0F == 8:
                return None
            if head[0] & 0x80:
                return message.decode()


class Browser:
    """Use as a context; `page(url)` opens a tab of its own profile."""

    def __init__(self, *args):
        self.profile = tempfile.mkdtemp(prefix="page-test-")
        self.process = subprocess.Popen(
            [find_browser(), "--headless=new", "--no-sandbox", "--remote-debugging-port=0", "--user-data-dir=" + self.profile,
             "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-sync",
             "--disable-component-update", "--disable-extensions", "--mute-audio", "--hide-scrollbars", *args, "about:blank"],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True)
        address = None
        for line in self.process.stderr:
            address = re.search(r"ws://127\.0\.0\.1:(\d+)(/\S+)", line)
            if address:
                break
        assert address, "the browser does not start"
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.socket = WebSocket(int(address.group(1)), address.group(2))
        self.answers, self.pages, self.next_id = {}, {}, 0
        self.arrived = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        while True:
            text = self.socket.receive()
            message = json.loads(text) if text else None
            with self.arrived:
                if message is None:
                    self.answers = None
                elif "id" in message:
                    self.answers[message["id"]] = message
                elif message.get("sessionId") in self.pages:
                    self.pages[message["sessionId"]].events.append(message)
                self.arrived.notify_all()
            if message is None:
                return

    def call(self, method, session=None, timeout=30, **params):
        with self.arrived:
            self.next_id += 1
            number = self.next_id
        self.socket.send(json.dumps({"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}))
        with self.arrived:
            done = self.arrived.wait_for(lambda: self.answers is None or number in self.answers, timeout)
            assert done and self.answers is not None, "%s: the browser does not answer" % method
            answer = self.answers.pop(number)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def page(self, url, **more):
        return Page(self, url, **more)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            self.call("Browser.close", timeout=5)
            self.process.wait(10)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)
        shutil.rmtree(self.profile, ignore_errors=True)


KEYS = {"Enter": ("Enter", 13, "\r"), "Escape": ("Escape", 27, ""), "ArrowUp": ("ArrowUp", 38, ""), "ArrowDown": ("ArrowDown", 40, ""),
        "Tab": ("Tab", 9, ""), "k": ("KeyK", 75, "k"), "/": ("Slash", 191, "/"), ",": ("Comma", 188, ","), "a": ("KeyA", 65, "a")}
MODIFIERS = {"Alt": 1, "Ctrl": 2, "Shift": 8}


class Page:
    """One tab with storage of its own."""

    def __init__(self, browser, url, width=1280, height=800, dark=False, context=None):
        self.browser, self.events = browser, []
        self.context = context or browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser.pages[self.session] = self
        self.target = target
        for domain in ["Page", "Runtime", "Network", "Log"]:
            self.call(domain + ".enable")
        self.size(width, height)
        self.colours(dark)
        self.open(url)

    def call(self, method, timeout=30, **params):
        return self.browser.call(method, session=self.session, timeout=timeout, **params)

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def size(self, width, height, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=width < 600)

    def colours(self, dark):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                                                          {"name": "prefers-reduced-motion", "value": "reduce"}])

    def open(self, url):
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def reload(self):
        self.do("window.beforeReload = true")
        self.call("Page.reload")
        self.wait("document.readyState === 'complete' && !window.beforeReload")

    def do(self, expression, timeout=30):
        """The expression's value; a promise's when it is done."""
        answer = self.call("Runtime.evaluate", timeout=timeout, expression=expression, returnByValue=True, awaitPromise=True, userGesture=True)
        assert "exceptionDetails" not in answer, (expression[:200], answer["exceptionDetails"].get("exception", {}).get("description"))
        return answer["result"].get("value")

    def wait(self, expression, seconds=15):
        end = time.monotonic() + seconds
        while True:
            try:
                value = self.do("((value) => value instanceof Node || value)(%s)" % expression)
            except AssertionError as problem:  # the page is just being left
                value, last = None, problem
                if time.monotonic() > end:
                    raise last
            if value:
                return value
            assert time.monotonic() < end, "not within %s s: %s" % (seconds, expression)
            time.sleep(0.03)

    def text(self, selector):
        return self.do("[...document.querySelectorAll(%s)].map((n) => n.textContent).join('\\n')" % json.dumps(selector))

    def count(self, selector):
        return self.do("document.querySelectorAll(%s).length" % json.dumps(selector))

    def visible(self, selector):
        return self.do("(() => { const n = document.querySelector(%s); return !!n && n.checkVisibility({visibilityProperty: true}); })()" % json.dumps(selector))

    def click(self, selector, index=0):
        """A press of the mouse where the element is; it must be what is there."""
        self.do("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(() => drawn())))")
        at = self.do("(() => { const n = document.querySelectorAll(%s)[%d]; n.scrollIntoView({block: 'nearest'}); const r = n.getBoundingClientRect();"
                     "const x = r.x + r.width / 2, y = r.y + r.height / 2, hit = document.elementFromPoint(x, y);"
                     "return {x, y, hit: n.contains(hit), what: hit && hit.outerHTML.slice(0, 200)}; })()" % (json.dumps(selector), index))
        assert at["hit"], "%s is covered by %s" % (selector, at["what"])
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=at["x"], y=at["y"])
        for kind in ["mousePressed", "mouseReleased"]:
            self.call("Input.dispatchMouseEvent", type=kind, x=at["x"], y=at["y"], button="left", clickCount=1)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, *modifiers):
        code, number, text = KEYS[key]
        mask = sum(MODIFIERS[m] for m in modifiers)
        if mask & ~MODIFIERS["Shift"]:
            text = ""
        more = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": mask}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **({"text": text} if text else {}), **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", **more)

    def screenshot(self, path):
        time.sleep(0.25)  # for what moves
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as out:
            out.write(base64.b64decode(data))

    def happened(self, method):
        return [e["params"] for e in list(self.events) if e["method"] == method]

    def requests(self):
        """The addresses of everything that was asked for."""
        return [e["request"]["url"] for e in self.happened("Network.requestWillBeSent")]

    def problems(self):
        """What the page threw, and what the browser refused it."""
        thrown = [e["exceptionDetails"].get("exception", {}).get("description", str(e)) for e in self.happened("Runtime.exceptionThrown")]
        refused = [e["entry"]["text"] for e in self.happened("Log.entryAdded") if e["entry"]["source"] in ("security", "violation")]
        return thrown + refused
