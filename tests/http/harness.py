"""What the HTTP tests share: a server process, requests by http.client and by raw sockets, and a runner."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else "build/megadecode"
MODEL = "models/fairytales"


class Server:
    """`megadecode serve` on a free port; use as a context. `loaded` waits until it answers requests."""

    def __init__(self, *args, model=MODEL, loaded=True, env=None):
        self.process = subprocess.Popen([PROGRAM, "serve", "-m", model, "--port", "0", *args], stderr=subprocess.PIPE,
                                        stdout=subprocess.DEVNULL, text=True, env={**os.environ, **(env or {})})
        self.lines = []
        self.listening = threading.Event()
        self.port = None
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.listening.wait(30):
            raise AssertionError("the server does not listen: " + "".join(self.lines))
        if loaded:
            wait_until(lambda: self.get("/health").status == 200, 60)

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.match(r"listening on http://.*:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                self.listening.set()
        self.listening.set()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise AssertionError("the server did not end after SIGTERM")
        self.reader.join(5)
        log = "".join(self.lines)
        if kind is None:
            assert "ThreadSanitizer" not in log and "ERROR: AddressSanitizer" not in log and "runtime error" not in log and "LeakSanitizer" not in log, log
            assert self.process.returncode == 0, "exit %s: %s" % (self.process.returncode, log)
        return False

    # ---- requests ----

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None, timeout=60):
        connection = self.connect(timeout)
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        response.data = response.read()
        connection.close()
        return response

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def ok(self, path, body, **more):
        response = self.post(path, body, **more)
        assert response.status == 200, (response.status, response.data)
        return json.loads(response.data)

    def chat(self, text="Tell me a story.", **more):
        return self.ok("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **more})

    def complete(self, prompt="Once upon a time", **more):
        return self.ok("/v1/completions", {"prompt": prompt, **more})

    def refused(self, path, body, status=400, param=None, code=None, **more):
        """Checks OpenAI's error object and gives its message."""
        response = self.post(path, body, **more)
        assert response.status == status, (response.status, response.data, body if len(str(body)) < 500 else "")
        error = json.loads(response.data)["error"]
        assert set(error) == {"message", "type", "param", "code"} and error["message"], error
        if param is not None:
            assert error["param"] == param, error
        if code is not None:
            assert error["code"] == code, error
        return error["message"]

    def stream(self, path, body, timeout=60):
        """The events of a stream: parsed chunks, and "[DONE]"."""
        connection = self.connect(timeout)
        connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise AssertionError((response.status, response.read()))
        assert response.getheader("Content-Type") == "text/event-stream"
        for line in response:
            line = line.decode("utf-8").rstrip("\n")  # a cut character would raise here
            if line.startswith("data: "):
                yield line[6:] if line == "data: [DONE]" else json.loads(line[6:])
        connection.close()

    def raw(self, data, timeout=10, shut=False):
        """Sends bytes as they are and reads until the server closes or is silent for a while."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as sock:
            try:
                sock.sendall(data)
                if shut:
                    sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            out = b""
            try:
                while True:
                    part = sock.recv(65536)
                    if not part:
                        break
                    out += part
            except OSError:
                pass
            return out

    def open_post(self, path, body):
        """A socket with the request sent and nothing read."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        data = json.dumps(body).encode()
        sock.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
        return sock

    def metric(self, name):
        text = self.get("/metrics").data.decode()
        return float(re.search(r"^megadecode_%s (\S+)$" % name, text, re.M).group(1))

    def rss_kib(self):
        with open("/proc/%d/status" % self.process.pid) as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1))


def wait_until(condition, seconds, what="condition"):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "%s not within %s s" % (what, seconds)
        time.sleep(0.02)


def together(jobs):
    """Runs the functions at the same time, one thread each; their results in order."""
    results = [None] * len(jobs)

    def run(i):
        try:
            results[i] = jobs[i]()
        except BaseException as problem:  # given to the caller below
            results[i] = problem

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def main(*checks):
    """Runs the checks; each says what it found. Exit status 1 when one fails."""
    failed = 0
    for check in checks:
        start = time.monotonic()
        try:
            check()
            print("ok      %-44s %5.1f s" % (check.__name__, time.monotonic() - start))
        except BaseException:
            failed += 1
            print("FAILED  %s" % check.__name__)
            print("\n".join(line[:600] for line in traceback.format_exc().splitlines()))
    sys.exit(1 if failed else 0)
