"""A server that speaks the routes the page uses and answers what a test tells it to: hostile text, errors, cut streams.
The page itself, with its headers, is the program's."""
import http.client
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PROPS = {"version": "0.0", "model": {"id": "scripted", "layers": 24, "hidden": 1536, "vocab": 73448, "weight_bytes": 743_000_000, "context": 131072},
         "engine": "resident", "backend": "cpu", "device": "avx512bf16, 16 threads", "context": 8192, "parallel": 8, "queue": 64,
         "sampling": {"temperature": 0.7, "top_k": 0, "top_p": 0.95, "min_p": 0.0, "repetition_penalty": 1.0},
         "chat_template": "{% if enable_thinking %}<think>{% endif %}"}


def delta(**fields):
    return {"object": "chat.completion.chunk", "model": "scripted", "choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def text(content, step=None):
    """The chunks of an answer."""
    step = step or max(1, len(content))
    yield delta(role="assistant", content="")
    for i in range(0, len(content), step):
        yield delta(content=content[i:i + step])


def end(prompt=20, completion=10, reason="stop", decode_ms=100):
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    yield {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "prompt_tokens_details": {"cached_tokens": 0}},
           "timings": {"first_token_ms": 5, "decode_ms": decode_ms, "tokens_per_second": (completion - 1) * 1000 / decode_ms}}
    yield "[DONE]"


class Refuse(Exception):
    """Raised by a script: an error in place of an answer."""

    def __init__(self, status, error, headers=None):
        super().__init__(status)
        self.status, self.error, self.headers = status, error, headers or {}


class Fake:
    """`script(body)` yields chunks, or strings that are sent as they are, or numbers: seconds to wait. A script that raises
    ConnectionError cuts the connection. `bodies`: what was asked. Use as a context."""

    def __init__(self, program_port):
        connection = http.client.HTTPConnection("127.0.0.1", program_port)
        connection.request("GET", "/")
        response = connection.getresponse()
        kept = ["Content-Type", "Content-Security-Policy", "Cross-Origin-Opener-Policy", "Referrer-Policy", "X-Content-Type-Options"]
        self.page, self.page_headers = response.read(), {name: response.getheader(name) for name in kept}
        connection.close()
        self.bodies, self.paths, self.gone = [], [], 0
        self.health = (200, {"status": "ok"})
        self.props, self.key, self.script = PROPS, None, lambda body: iter(())
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def reply(self, status, data, headers):
                data = data if isinstance(data, bytes) else json.dumps(data).encode()
                self.send_response(status)
                for name, value in {"Content-Length": len(data), "Content-Type": "application/json", **headers}.items():
                    self.send_header(name, str(value))
                try:
                    self.end_headers()
                    self.wfile.write(data)
                except ConnectionError:  # a page that was left
                    self.close_connection = True

            def refused(self):
                if fake.key is None or self.headers.get("Authorization") == "Bearer " + fake.key:
                    return False
                self.reply(401, {"error": {"message": "an API key is needed", "code": "invalid_api_key"}}, {"WWW-Authenticate": "Bearer"})
                return True

            def do_GET(self):
                fake.paths.append(self.path)
                if self.path == "/":
                    self.reply(200, fake.page, fake.page_headers)
                elif self.path == "/health":
                    self.reply(*fake.health, {})
                elif self.path == "/props":
                    if not self.refused():
                        self.reply(200, fake.props, {})
                else:
                    self.reply(404, {"error": {"message": "nothing here"}}, {})

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.refused():
                    return
                fake.bodies.append(json.loads(body))
                try:
                    steps = fake.script(fake.bodies[-1])
                    first = next(steps, None)
                except Refuse as refusal:
                    self.reply(refusal.status, {"error": refusal.error}, refusal.headers)
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                try:
                    while first is not None:
                        self.step(first)
                        first = next(steps, None)
                    self.wfile.write(b"0\r\n\r\n")
                except ConnectionError:
                    fake.gone += 1
                    self.close_connection = True

            def step(self, item):
                if isinstance(item, (int, float)):
                    time.sleep(item)
                    return
                data = item if isinstance(item, str) and item != "[DONE]" else "data: " + (item if isinstance(item, str) else json.dumps(item)) + "\n\n"
                data = data.encode()
                self.wfile.write(b"%x\r\n" % len(data) + data + b"\r\n")
                self.wfile.flush()

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.handle_error = lambda *about: None  # a page that was left closes its connections
        self.http.daemon_threads = True
        self.port = self.http.server_address[1]
        self.url = "http://127.0.0.1:%d/" % self.port
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def says(self, content, step=None, **usage):
        """From here on every answer is this text."""
        self.script = lambda body: (chunk for part in (text(content, step), end(**usage)) for chunk in part)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.http.shutdown()
        self.http.server_close()
