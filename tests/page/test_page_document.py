"""The document at / and its headers, and whose pages may ask the server. Needs no browser."""
import base64
import hashlib
import re

import talk  # noqa: F401  first: it says where the harness is
from harness import Server, main

CHAT = "/v1/chat/completions"
server = None


def the_document():
    response = server.get("/")
    html = response.data.decode()
    assert response.status == 200 and response.getheader("Content-Type") == "text/html; charset=utf-8"
    for name, value in [("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"), ("X-Frame-Options", "DENY")]:
        assert response.getheader(name) == value, name
    assert html.startswith("<!doctype html>") and html.rstrip().endswith("</html>") and len(html) > 50000
    for mark in ["<script", "</script", "<style", "</style"]:
        assert html.lower().count(mark) == 1, mark
    policy = dict(part.strip().split(" ", 1) for part in response.getheader("Content-Security-Policy").split(";"))

    def hash_of(tag):
        text = re.search("<%s>(.*)</%s>" % (tag, tag), html, re.S).group(1)
        return "'sha256-%s'" % base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    assert policy == {"default-src": "'none'", "script-src": hash_of("script"), "style-src": hash_of("style"), "connect-src": "'self'", "img-src": "data:",
                      "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'", "require-trusted-types-for": "'script'", "trusted-types": "'none'"}, policy
    markup = re.sub("<(script|style)>.*?</\\1>", "", html, flags=re.S)
    assert not re.search(r"<[^>]*\s(on\w+|style|src)\s*=", markup), "inline handlers, styles or sources"
    for href in re.findall(r'href="([^"]*)"', markup):
        assert href.startswith(("#", "data:image/svg+xml,")), href
    script = re.search("<script>(.*)</script>", html, re.S).group(1)
    for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "import("]:
        assert word not in script, word


def kept_and_asked_again():
    first = server.get("/")
    tag = first.getheader("ETag")
    assert first.getheader("Cache-Control") == "no-cache" and re.fullmatch('"[A-Za-z0-9+/=]{44}"', tag), tag
    same = server.get("/", headers={"If-None-Match": tag})
    assert same.status == 304 and same.data == b"" and same.getheader("ETag") == tag and same.getheader("Content-Security-Policy")
    assert server.get("/", headers={"If-None-Match": '"other"'}).status == 200
    head = server.request("HEAD", "/")
    assert head.status == 200 and head.data == b"" and int(head.getheader("Content-Length")) == len(first.data)
    assert server.request("HEAD", "/", headers={"If-None-Match": tag}).status == 304
    post = server.request("POST", "/", body=b"")
    assert post.status == 405 and post.getheader("Allow") == "GET, HEAD, OPTIONS"
    assert server.get("/?x=1").status == 200 and server.get("//").status == 404 and server.get("/index.html").status == 404


def whose_pages_may_ask():
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}

    def status(origin, host=None, at=server, **headers):
        more = {"Origin": origin, **({"Host": host} if host else {}), **headers}
        return at.post(CHAT, body, headers=more).status

    port = server.port
    own = "127.0.0.1:%d" % port
    assert status("http://" + own, own) == 200 and status("https://" + own, own) == 200  # https: a proxy before it
    assert status("http://localhost:%d" % port, "localhost:%d" % port) == 200
    assert status("http://box:80", "box:80") == 200 and status("http://box.local", "box.local") == 200
    assert status("http://192.168.1.5", "192.168.1.5") == 200 and status("http://[::1]:80", "[::1]:80") == 200
    for origin, host in [("http://evil.example", own), ("http://127.0.0.1", own), ("http://127.0.0.1:%d" % (port + 1), own), ("null", own), ("", own),
                         ("http://localhost:%d" % port, own), (own, own), ("http://" + own + "/", own), ("http://x@" + own, own)]:
        assert status(origin, host) == 403, (origin, host)
    # A name that its owner makes point here has its own page's origin; only addresses can't be had like that.
    for name in ["evil.example", "evil.example:%d" % port, "127.0.0.1.evil.example", "localhost.evil.example", "local.evil.example", "xlocal.example", "box.local.", "1.2.3", "127.0.0.1x:80"]:
        assert status("http://" + name, name) == 403, name
    with Server("--api-key", "secret") as locked:
        key = {"Authorization": "Bearer secret"}
        assert locked.get("/").status == 200 and locked.get("/props").status == 401 and b"secret" not in locked.get("/").data
        assert status("http://box.lan", "box.lan", at=locked) == 401
        assert status("http://box.lan", "box.lan", at=locked, **key) == 200  # with the key any name will do: no other page has it
        assert status("http://evil.example", "box.lan", at=locked, **key) == 403


if __name__ == "__main__":
    with Server() as server:
        main(the_document, kept_and_asked_again, whose_pages_may_ask)
