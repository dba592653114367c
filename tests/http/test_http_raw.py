"""HTTP that is malformed, slow, endless or hostile (row S6): refused or closed, and others are still served."""
import json
import socket
import time

from harness import Server, main, wait_until

server = None


def status(reply):
    return int(reply.split(b" ", 2)[1]) if reply.startswith(b"HTTP/1.1 ") else 0


def alive():
    assert server.get("/health").status == 200


def post(headers, body=b""):
    return b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n" + body


def two_framings():
    body = b'{"prompt": "x", "max_tokens": 1}'
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    length = b"Content-Length: %d\r\n" % len(body)
    assert status(server.raw(post(length + b"Connection: close\r\n", body))) == 200
    assert status(server.raw(post(b"Transfer-Encoding: chunked\r\nConnection: close\r\n", chunked))) == 200
    # Which of the two a proxy before the server believes, nobody knows: refused, and the connection is closed.
    for headers, data in [(length + b"Transfer-Encoding: chunked\r\n", chunked), (length + length, body),
                          (b"Transfer-Encoding: chunked\r\n" + length, chunked),
                          (b"Content-Length: 5\r\n" + length, body), (b"Content-Length: -1\r\n", body),
                          (b"Content-Length: +5\r\n", body), (b"Content-Length: 0x10\r\n", body),
                          (b"Content-Length: 1, 2\r\n", body), (b"Content-Length: 99999999999999999999\r\n", body),
                          (b"Content-Length: \r\n", body),
                          (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", chunked)]:
        reply = server.raw(post(headers, data) + b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n", timeout=3)
        assert status(reply) in (400, 413), (headers, reply[:200])
        assert b"/smuggled" not in reply, (headers, reply)
    for chunk in [b"-1\r\n", b"zz\r\nabc\r\n", b"fffffffffffffffff\r\n", b"5\r\nabcdefgh\r\n0\r\n\r\n"]:
        reply = server.raw(post(b"Transfer-Encoding: chunked\r\n", chunk), timeout=2, shut=True)
        assert status(reply) in (0, 400, 413), (chunk, reply[:200])
    assert status(server.raw(post(b"Content-Encoding: gzip\r\nConnection: close\r\n" + length, body))) == 415
    alive()


def heads():
    big = b"X: " + b"a" * 200000 + b"\r\n"  # which libmicrohttpd itself refuses
    assert status(server.raw(b"GET /health HTTP/1.1\r\nHost: x\r\n" + big + b"\r\n")) in (400, 431)
    many = b"".join(b"X-%d: y\r\n" % i for i in range(20000))
    assert status(server.raw(b"GET /health HTTP/1.1\r\nHost: x\r\n" + many + b"\r\n")) in (0, 400, 431)
    assert status(server.raw(b"GET /" + b"a" * 300000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")) in (400, 414, 431)
    for junk in [b"\0" * 1000 + b"\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"GET\r\n\r\n", b"GET /health\r\n\r\n",
                 b"GET /health HTTP/9.9\r\nHost: x\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\r\n\r\n\r\n",
                 b"GET http://[::1 HTTP/1.1\r\n\r\n", b"GET /%00%ff%zz HTTP/1.1\r\nHost: x\r\n\r\n",
                 b"GET /health HTTP/1.1\r\nHost x\r\n\r\n", b"GET /health HTTP/1.1\r\n Host: x\r\n\r\n"]:
        assert status(server.raw(junk, timeout=2, shut=True)) in (0, 200, 400, 404, 405, 505), junk
    # Bare line feeds: refused or read as one request, never as two.
    reply = server.raw(b"GET /health HTTP/1.1\nHost: x\nConnection: close\n\n", timeout=2, shut=True)
    assert reply.count(b"HTTP/1.1 ") <= 1, reply
    alive()


def refusals_are_error_objects():
    """What the server refuses before it looks at the body is said as everything else is: in OpenAI's form."""
    ok = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert status(server.raw(ok)) == 200
    assert status(server.raw(ok.replace(b"/health", b"http://somewhere:80/health"))) == 200  # as clients of a proxy ask
    assert status(server.raw(b"GET /health HTTP/1.0\r\n\r\n")) == 200  # which had no Host yet
    def headers(size, count):
        return b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"a" * size) for i in range(count)) + b"\r\n"

    assert status(server.raw(headers(60000, 1), timeout=1)) == 200 and status(server.raw(headers(600, 100), timeout=1)) == 200
    for data, expected in [(headers(66000, 1), 431), (headers(100000, 1), 431), (headers(650, 110), 431), (b"GET /health HTTP/1.1\r\n\r\n", 400), (b"GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
                           (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414), (b"GET /he alth HTTP/1.1\r\nHost: x\r\n\r\n", 400),
                           (post(b"Transfer-Encoding: gzip\r\n"), 400), (post(b"Transfer-Encoding: chunked, gzip\r\n"), 400),
                           (post(b"Content-Length: 5\r\nContent-Length: 6\r\n", b"abcdef"), 400), (b"BREW /health HTTP/1.1\r\nHost: x\r\n\r\n", 405),
                           (b"GET / / HTTP/1.1\r\nHost: x\r\n\r\n", 400), (b"GET /health%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400), (post(b"Content-Length: 99000000000\r\n"), 413),
                           (b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", 404)]:
        reply = server.raw(data, timeout=1)
        assert status(reply) == expected, (data[:80], reply[:200])
        head, body = reply.split(b"\r\n\r\n", 1)
        assert b"Content-Type: application/json" in head and json.loads(body)["error"]["message"], (data[:80], reply)


def pipelined():
    one = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    reply = server.raw(one * 9 + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert reply.count(b"HTTP/1.1 200") == 10, reply.count(b"HTTP/1.1")


def large_bodies():
    # A refusal of what is too large can be read, also by a client that sends all of it first.
    reply = server.raw(post(b"Content-Length: 20000000\r\nConnection: close\r\n", b"x" * 20000000), timeout=20)
    assert status(reply) == 413 and b"body_too_large" in reply, reply[:200]
    reply = server.raw(post(b"Content-Length: 99000000000\r\n", b"x" * 1000))
    assert status(reply) == 413, reply[:200]
    endless = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    reply = server.raw(post(b"Transfer-Encoding: chunked\r\nConnection: close\r\n", endless * 300 + b"0\r\n\r\n"), timeout=20)
    assert status(reply) == 413, reply[:200]
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as sock:
        sock.sendall(post(b"Content-Length: 40\r\nExpect: 100-continue\r\n"))
        assert b"100 Continue" in sock.recv(4096)
    alive()


def a_thousand_idle_sockets():
    sockets = []
    try:
        for i in range(1000):
            sock = socket.create_connection(("127.0.0.1", server.port), timeout=5)
            if i % 3 == 0:
                sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nX-Slow: ")
            sockets.append(sock)
            if i % 200 == 0:
                alive()
        alive()
        assert server.complete(max_tokens=2)["usage"]["completion_tokens"] == 2
        assert server.metric("connections") <= 256
    finally:
        for sock in sockets:
            sock.close()
    wait_until(lambda: server.metric("connections") < 10, 10, "the closed connections are gone")


def a_byte_a_second():
    """The head has 20 s, however busily it drips. (The deadline is a constant, so the test is about that long.)"""
    with socket.create_connection(("127.0.0.1", server.port), timeout=1) as sock:
        start = time.monotonic()
        sock.sendall(b"GET /health HTTP/1.1\r\nX: ")
        closed = False
        while not closed and time.monotonic() < start + 40:
            try:
                sock.sendall(b"a")
                sock.settimeout(0.5)
                reply = sock.recv(1000)
                closed = True
                assert reply == b"" or b"408" in reply, reply
                reply += sock.recv(1000) if reply else b""
                assert not reply or json.loads(reply.split(b"\r\n\r\n")[1])["error"]["code"] == "request_timeout", reply
            except socket.timeout:
                pass
            except OSError:
                closed = True
        assert closed and time.monotonic() - start < 30
    alive()


if __name__ == "__main__":
    with Server() as server:
        main(two_framings, heads, refusals_are_error_objects, pipelined, large_bodies, a_thousand_idle_sockets, a_byte_a_second)
