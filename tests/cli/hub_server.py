"""A hub on 127.0.0.1 for the tests of `pull`: the routes of the real one, and every way to misbehave.

Hub.repos maps "org/name" to a Repo. Large files (Repo.large) are answered by a redirect to a second server, as the real
hub sends to its CDN; the others directly. Hub.faults maps a pattern (fnmatch on "METHOD path") to a list of functions
fault(handler, body) -> True when it has answered; each request that matches uses up one, or the last one for ever when
it is `forever(...)`. Hub.log holds (method, path, headers) of every request, in order.
"""
import fnmatch
import hashlib
import http.server
import json
import socket
import sys
import threading
import time
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Repo:
    def __init__(self, files, large=(), commit=COMMIT, token=None):
        self.files = dict(files)
        self.large = set(large)
        self.commit = commit
        self.token = token
        self.revisions = {"main": commit, commit: commit}

    def etag(self, name):
        data = self.files[name]
        return sha256(data) if name in self.large else git_hash(data)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, headers=(), body=b"", length=None):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def cut(self):
        """Ends the connection as a broken line does."""
        self.close_connection = True
        self.wfile.flush()
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def fail(self, status, code=None):
        self.answer(status, [("X-Error-Code", code)] if code else [], b'{"error": "x"}')

    def content(self, data, headers=()):
        """A body, or the part of it that Range asks for."""
        start = 0
        if "Range" in self.headers:
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            if start >= len(data):
                self.answer(416, [("Content-Range", f"bytes */{len(data)}")])
                return
        part = data[start:]
        headers = list(headers)
        if start:
            headers.append(("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}"))
        hub = self.server.hub
        if hub.chunk_delay == 0 or self.command == "HEAD":
            self.answer(206 if start else 200, headers, part)
            return
        with hub.lock:
            hub.active += 1
            hub.most_active = max(hub.most_active, hub.active)
        try:
            self.answer(206 if start else 200, headers, b"", length=len(part))
            for at in range(0, len(part), hub.chunk):
                self.wfile.write(part[at : at + hub.chunk])
                time.sleep(hub.chunk_delay)
        finally:
            with hub.lock:
                hub.active -= 1

    def route_model(self, parts):
        repo = self.server.hub.repos.get("/".join(parts[:2]))
        if not repo:
            return self.fail(401 if "Authorization" not in self.headers else 404, "RepoNotFound")
        if repo.token and self.headers.get("Authorization") != f"Bearer {repo.token}":
            return self.fail(401 if "Authorization" not in self.headers else 403, "GatedRepo")
        revision = urllib.parse.unquote(parts[3] if len(parts) > 3 else "main")
        if revision not in repo.revisions:
            return self.fail(404, "RevisionNotFound")
        siblings = [{"rfilename": name} for name in repo.files]
        body = json.dumps({"id": "/".join(parts[:2]), "sha": repo.revisions[revision], "siblings": siblings}).encode()
        self.answer(200, [("Content-Type", "application/json")], body)

    def route_resolve(self, parts):
        hub = self.server.hub
        repo = hub.repos.get("/".join(parts[:2]))
        name = "/".join(parts[4:])
        if not repo or parts[3] not in repo.revisions or name not in repo.files:
            return self.fail(404, "EntryNotFound")
        if repo.token and self.headers.get("Authorization") != f"Bearer {repo.token}":
            return self.fail(401, "GatedRepo")
        data = repo.files[name]
        headers = [("X-Repo-Commit", repo.commit)]
        if name in repo.large:
            headers += [("X-Linked-Etag", f'"{repo.etag(name)}"'), ("X-Linked-Size", str(len(data)))]
            headers += [("ETag", '"not-the-hash-of-the-file"'), ("Location", f"{hub.cdn}/{'/'.join(parts[:2])}/{name}")]
            self.answer(302, headers)
        elif name == hub.moved:
            self.answer(307, [("Location", f"/moved/{'/'.join(parts[:2])}/{name}")])
        else:
            self.content(data, headers + [("ETag", f'W/"{repo.etag(name)}"')])

    def serve(self):
        hub = self.server.hub
        path = self.path.split("?")[0]
        with hub.lock:
            hub.log.append((self.command, path, dict(self.headers), self.server.server_port))
            fault = hub.take_fault(f"{self.command} {path}")
        parts = path.strip("/").split("/")
        if fault and fault(self):
            return
        if path.startswith("/api/models/"):
            self.route_model(parts[2:])
        elif len(parts) > 4 and parts[2] == "resolve":
            self.route_resolve(parts)
        elif parts[0] == "moved":
            repo = hub.repos["/".join(parts[1:3])]
            self.content(repo.files[parts[3]], [("ETag", f'"{repo.etag(parts[3])}"')])
        elif self.server.server_port == hub.cdn_port:
            self.content(hub.repos["/".join(parts[:2])].files["/".join(parts[2:])])
        else:
            self.fail(404)

    def do_GET(self):
        try:
            self.serve()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_HEAD = do_GET


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # the program ends connections as it likes
            super().handle_error(request, client_address)


class Hub:
    def __init__(self):
        self.lock = threading.Lock()
        self.repos = {}
        self.servers = []
        for _ in range(2):
            server = Server(("127.0.0.1", 0), Handler)
            server.hub = self
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.servers.append(server)
        self.url, self.cdn = (f"http://127.0.0.1:{s.server_port}" for s in self.servers)
        self.cdn_port = self.servers[1].server_port
        self.reset()

    def reset(self):
        self.log, self.faults = [], {}
        self.chunk, self.chunk_delay, self.moved = 1 << 16, 0, None
        self.active = self.most_active = 0

    def take_fault(self, request):
        for pattern, faults in self.faults.items():
            if faults and fnmatch.fnmatch(request, pattern):
                return faults[0] if getattr(faults[0], "forever", False) else faults.pop(0)
        return None

    def requests(self, pattern):
        return [entry for entry in self.log if fnmatch.fnmatch(f"{entry[0]} {entry[1]}", pattern)]


# ---- faults --------------------------------------------------------------------------------------------------------


def forever(fault):
    def run(handler):
        return fault(handler)

    run.forever = True
    return run


def status(number, headers=(), code=None):
    extra = list(headers) + ([("X-Error-Code", code)] if code else [])

    def run(handler):
        handler.answer(number, extra, b"{}")
        return True

    return run


def document(body, number=200, headers=(), length=None):
    def run(handler):
        handler.answer(number, headers, body, length)
        return True

    return run


def cut_after(count):
    """Sends the first `count` bytes of the answer (from where Range asks), then the line breaks."""

    def run(handler):
        parts = handler.path.strip("/").split("/")
        data = handler.server.hub.repos["/".join(parts[:2])].files[parts[-1]]
        start = int(handler.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        headers = [("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")] if start else []
        handler.answer(206 if start else 200, headers, data[start : start + count], length=len(data) - start)
        handler.cut()
        return True

    return run


def hang(seconds):
    def run(handler):
        time.sleep(seconds)
        handler.cut()
        return True

    return run


def endless(handler):
    """A body without a length that never ends."""
    handler.send_response(200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.close_connection = True
    while True:
        handler.wfile.write(b"x" * 65536)


def many_headers(handler):
    handler.send_response(200)
    for i in range(9000):
        handler.send_header(f"X-Pad-{i}", "y" * 60)
    handler.end_headers()
    handler.close_connection = True
    return True


def redirect_to_itself(handler):
    handler.answer(302, [("Location", handler.path + "x")])
    return True
