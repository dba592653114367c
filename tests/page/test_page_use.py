"""Using the page: settings, conversations, files, keys, colours, narrow screens, errors, what a screen reader is told."""
import json
import os
import tempfile
import time

from talk import ask, begin, clean, fresh, idle, need_browser, ready, stored  # first: it says where the harness is
from devtools import Browser
from fake_server import Fake, PROPS, Refuse, delta, end, text
from harness import Server, main, wait_until

server = fake = browser = page = None


def refuse(*what):
    def script(body):
        raise Refuse(*what)
    fake.script = script


def fill(name, value):
    page.do("(() => { const n = document.getElementById('set-%s'); n.value = %s; n.dispatchEvent(new Event(n.tagName === 'SELECT' ? 'change' : 'input')); })()"
            % (name, json.dumps(value)))


def menu(label):
    page.click("#chat-menu-button")
    page.wait("document.getElementById('menu').matches(':popover-open')")
    page.do("[...document.querySelectorAll('#menu button')].find((b) => b.textContent === %s).click()" % json.dumps(label))


# ---- settings --------------------------------------------------------------------------------------------------------

def nothing_is_sent_that_was_not_set():
    fake.says("ok")
    ask(page, "plain")
    assert fake.bodies[-1] == {"messages": [{"role": "user", "content": "plain"}], "stream": True, "stream_options": {"include_usage": True}}, fake.bodies[-1]


def settings_reach_the_request():
    values = {"temperature": 0.35, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1, "max_tokens": 77, "seed": -12}
    page.press(",", "Ctrl")
    page.wait("document.getElementById('settings').open")
    assert page.do("document.getElementById('set-temperature').placeholder") == "0.7" and page.do("document.getElementById('set-top_k').placeholder") == "off"
    for name, value in values.items():
        fill(name, str(value))
    fill("system", "Be brief.")
    fill("thinking", "off")
    page.press("Escape")
    page.wait("!document.getElementById('settings').open")
    ask(page, "again")
    body = fake.bodies[-1]
    assert {name: body[name] for name in values} == values and body["enable_thinking"] is False, body
    assert [m["role"] for m in body["messages"]] == ["system", "user", "assistant", "user"] and body["messages"][0]["content"] == "Be brief."
    # Another answer is one: it takes the next seed, also when the page was left meanwhile; a new question takes the first.
    for attempt in [1, 2]:
        page.reload()
        ready(page)
        sent = len(fake.bodies)
        page.do("document.querySelector('.message:last-child [aria-label=\"Answer again\"]').click()")
        page.wait("document.querySelectorAll('.prose').length === 2")
        idle(page)
        assert len(fake.bodies) == sent + 1 and fake.bodies[-1] == {**body, "seed": -12 + attempt}, fake.bodies[-1]
    ask(page, "once more")
    assert fake.bodies[-1]["seed"] == -12
    # They are this conversation's, unless kept for new ones.
    fresh(page)
    ask(page, "other")
    assert "temperature" not in fake.bodies[-1] and len(fake.bodies[-1]["messages"]) == 1
    page.click("#open-settings")
    fill("temperature", "1,5")  # with a comma, as half of the world writes it
    page.click("#settings-default")
    page.click("#settings [data-close]")
    fresh(page)
    ask(page, "new")
    assert fake.bodies[-1]["temperature"] == 1.5
    page.click("#open-settings")
    page.click("#settings-reset")
    page.click("#settings-default")
    page.press("Escape")


def settings_that_are_wrong():
    fresh(page)
    page.click("#open-settings")
    for name, value, says in [("temperature", "3", "From 0 to 2"), ("temperature", "x", "A number"), ("top_p", "-1", "From 0 to 1"), ("top_k", "1.5", "A whole number"),
                              ("max_tokens", "0", "At least 1"), ("seed", "1e400", "A whole number"), ("repetition_penalty", "0", "From 0.01 to 10")]:
        fill(name, value)
        assert page.text("#set-%s-problem" % name) == says and page.do("document.getElementById('set-%s').getAttribute('aria-invalid')" % name) == "true", (name, value)
    page.do("document.getElementById('set-temperature').focus()")
    fill("temperature", "0.5")
    page.press("ArrowUp")
    assert page.do("document.getElementById('set-temperature').value") == "0.55"
    page.press("Escape")
    ask(page, "x")
    assert fake.bodies[-1]["temperature"] == 0.55 and not {"top_p", "top_k", "max_tokens", "seed"} & set(fake.bodies[-1])


# ---- conversations ---------------------------------------------------------------------------------------------------

def kept_renamed_deleted():
    page.do("localStorage.clear()")
    page.open(fake.url)
    ready(page)
    fake.says("first **answer**")
    ask(page, "# One question\nwith two lines")
    assert page.text("#title") == "One question" and page.do("document.title") == "One question · megadecode"
    fresh(page)
    fake.says("second")
    ask(page, "Two")
    assert page.text(".chats li .chat-open") == "Two\nOne question" and page.text("#storage").startswith("2 conversations, ")
    page.reload()
    ready(page)
    assert page.text(".bubble") == "Two" and page.text(".prose") == "second"  # the address says which one is open
    page.click(".chats li .chat-open", 1)
    assert page.text(".prose") == "first answer" and page.count(".prose strong") == 1 and page.text(".bubble") == "# One question\nwith two lines"
    menu("Rename")
    page.wait("document.getElementById('rename-dialog').open")
    page.type("A <b>name</b>")
    page.press("Enter")
    page.wait("document.getElementById('title').textContent === 'A <b>name</b>'")
    menu("Delete")
    page.wait("document.querySelectorAll('.chats li').length === 1")
    assert page.visible("#welcome") and len(stored(page)) == 1
    page.do("[...document.querySelectorAll('.toast button')].pop().click()")
    page.wait("document.querySelectorAll('.chats li').length === 2")
    assert page.text("#title") == "A <b>name</b>" and len(stored(page)) == 2
    page.reload()
    ready(page)
    assert page.text("#title") == "A <b>name</b>"
    # Many: they can be searched.
    for i in range(8):
        page.do("localStorage.setItem('megadecode:chat:a%d', JSON.stringify({title: 'number %d', messages: [{role: 'user', text: 'x'}], updated: Date.now() - %d * 86400000}))" % (i, i, i * 3))
    page.reload()
    ready(page)
    assert page.count(".chats li") == 10 and page.text(".chats h2").split("\n") == ["Today", "Last seven days", "Earlier"]
    page.do("document.getElementById('filter').focus()")
    page.type("NUMBER 3")
    page.wait("document.querySelectorAll('.chats li').length === 1")


def two_at_the_same_time():
    fresh(page)
    page.do("localStorage.clear()")
    page.open(fake.url)
    ready(page)

    def slowly(body):
        yield from text(body["messages"][-1]["content"].upper())
        while len(fake.bodies) < target:
            yield 0.02
        yield delta(content=" end")
        yield from end()

    target = len(fake.bodies) + 2
    fake.script = slowly
    begin(page, "one")
    page.wait("document.querySelector('.prose') && document.querySelector('.prose').textContent === 'ONE'")
    assert page.visible("#stop") and page.count(".chats .busy") == 1
    begin(page, "not while it is answered")
    assert page.count(".message") == 2
    page.do("document.getElementById('entry').value = ''")
    page.press("k", "Ctrl")
    assert page.visible("#welcome") and not page.visible("#stop")
    ask(page, "two")
    assert page.text(".prose") == "TWO end"
    page.wait("document.querySelectorAll('.chats .busy').length === 0")
    page.do("[...document.querySelectorAll('.chat-open')].find((b) => b.textContent === 'one').click()")
    assert page.text(".prose") == "ONE end" and sorted(m["messages"][1]["text"] for m in stored(page)) == ["ONE end", "TWO end"]


def two_tabs():
    other = browser.page(fake.url, context=page.context)
    ready(other)
    fake.says("from the other tab")
    n = page.count(".chats li")
    ask(other, "elsewhere")
    page.wait("document.querySelectorAll('.chats li').length === %d" % (n + 1))
    page.do("[...document.querySelectorAll('.chat-open')].find((b) => b.textContent === 'elsewhere').click()")
    assert page.text(".prose") == "from the other tab"
    ask(other, "and on")
    page.wait("document.querySelectorAll('.message').length === 4")
    other.close()


def a_full_storage():
    fresh(page)
    page.do("localStorage.setItem('other', 'x'.repeat(5100000))")
    page.do("(() => { try { for (let i = 0; ; i++) localStorage.setItem('fill' + i, 'x'.repeat(10000)); } catch (full) {} })()")
    page.do("(() => { try { for (let i = 0; ; i++) localStorage.setItem('f' + i, 'x'.repeat(50)); } catch (full) {} })()")
    before = len(stored(page))
    fake.says("y" * 200)
    assert ask(page, "is there room?") == "y" * 200
    assert "storage for the page is full" in page.text("#banner-text") and "not kept" in page.text("#banner-text") and len(stored(page)) == before
    assert page.visible("#banner-action") and page.text("#banner-action") == "Export it"
    page.do("for (const k of Object.keys(localStorage)) if (/^(f|other)/.test(k)) localStorage.removeItem(k)")
    ask(page, "and now?")
    assert not page.visible("#banner") and len(stored(page)) == before + 1
    page.do("localStorage.clear()")


def no_storage_at_all():
    """As where a person's browser refuses it."""
    script = page.call("Page.addScriptToEvaluateOnNewDocument", source="for (const name of ['localStorage', 'sessionStorage'])"
                       "Object.defineProperty(window, name, {get() { throw new DOMException('refused', 'SecurityError'); }});")
    page.open(fake.url)
    ready(page)
    fake.says("still here")
    assert ask(page, "anyone?") == "still here" and "not kept" in page.text("#banner-text")
    page.click("[data-theme-choice=dark]")
    page.click("[data-theme-choice=auto]")
    page.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script["identifier"])
    page.open(fake.url)
    ready(page)


# ---- files -----------------------------------------------------------------------------------------------------------

def exports_and_imports():
    page.open(fake.url)
    ready(page)

    def think(body):
        yield delta(role="assistant", content="")
        yield delta(reasoning_content="hm ``` hm")
        yield delta(content="It is\n\n```c\nint x;\n```")
        yield from end(prompt=9, completion=7)

    fake.script = think
    page.click("#open-settings")
    fill("system", "Be kind.")
    page.press("Escape")
    ask(page, "Ž: what/is it?")
    with tempfile.TemporaryDirectory() as folder:
        browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder, browserContextId=page.context)

        def exported(name, press):
            path = os.path.join(folder, name)
            press()
            wait_until(lambda: os.path.exists(path) and os.path.getsize(path) > 0, 10, name + " in " + str(os.listdir(folder)))
            time.sleep(0.1)
            with open(path, encoding="utf-8") as file:
                return file.read()

        markdown = exported("z-what-is-it.md", lambda: menu("Export as Markdown"))
        assert markdown.startswith("# Ž: what/is it?\n\n*scripted, 20") and "## System prompt\n\n```text\nBe kind.\n```\n" in markdown, markdown
        assert "## You\n\nŽ: what/is it?\n\n## scripted\n\n<details><summary>Thinking</summary>\n\n````text\nhm ``` hm\n````\n\n</details>\n\nIt is\n\n```c\nint x;\n```\n" in markdown, markdown
        one = json.loads(exported("z-what-is-it.json", lambda: menu("Export as JSON")))
        assert one["format"] == "megadecode-conversations" and one["version"] == 1 and one["conversations"] == stored(page)
        message = one["conversations"][0]["messages"][1]
        assert message["text"] == "It is\n\n```c\nint x;\n```" and message["thinking"] == "hm ``` hm" and message["stats"]["prompt"] == 9 and message["model"] == "scripted"
        fresh(page)
        ask(page, "second")
        everything = exported("megadecode-conversations.json", lambda: page.click("#export-all"))
        before = stored(page)
        assert len(json.loads(everything)["conversations"]) == 2
        page.do("localStorage.clear()")
        page.open(fake.url)
        ready(page)
        assert page.count(".chats li") == 0
        node = page.call("Runtime.evaluate", expression="document.getElementById('import-file')")["result"]["objectId"]
        page.call("DOM.setFileInputFiles", files=[os.path.join(folder, "megadecode-conversations.json")], objectId=node)
        page.wait("document.querySelectorAll('.chats li').length === 2")

        def without_id(chats):
            return sorted(json.dumps({k: v for k, v in chat.items() if k != "id"}, sort_keys=True) for chat in chats)

        assert without_id(stored(page)) == without_id(before)


# ---- keys, colours, sizes --------------------------------------------------------------------------------------------

def keys():
    fresh(page)
    fake.says("fine")
    page.do("document.getElementById('entry').focus()")
    page.type("line one")
    page.press("Enter", "Shift")
    page.type("line two")
    assert page.do("document.getElementById('entry').value") == "line one\nline two" and page.count(".message") == 0
    page.press("Enter")
    idle(page)
    assert fake.bodies[-1]["messages"][-1]["content"] == "line one\nline two" and page.do("document.getElementById('entry').value") == ""
    page.press("Enter")  # nothing to send
    assert page.count(".message") == 2
    page.press("ArrowUp")
    assert page.do("document.activeElement.value") == "line one\nline two" and page.count(".edit") == 1
    page.press("Escape")
    assert page.count(".edit") == 0
    page.do("document.getElementById('entry').focus()")
    page.type("a draft")
    page.press("k", "Ctrl")
    assert page.count(".message") == 0 and page.do("document.activeElement.id") == "entry" and page.do("document.getElementById('entry').value") == ""
    page.click(".chats li .chat-open")
    assert page.do("document.getElementById('entry').value") == "a draft"
    page.press("/", "Ctrl")
    assert page.visible("#help")
    page.press("k", "Ctrl")  # not from inside of a dialog
    assert page.count(".message") == 2
    page.press("Escape")
    page.wait("!document.getElementById('help').open")
    page.click("#chat-menu-button")
    page.wait("document.activeElement.textContent === 'Rename'")
    page.press("ArrowUp")
    assert page.do("document.activeElement.textContent") == "Delete"
    page.press("ArrowDown")
    page.press("ArrowDown")
    assert page.do("document.activeElement.textContent") == "Export as Markdown"
    page.press("Escape")
    page.wait("!document.getElementById('menu').matches(':popover-open')")
    assert page.do("document.activeElement.id") == "chat-menu-button"
    page.do("document.getElementById('entry').value = ''")


def colours():
    def seen():
        return page.do("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]")

    def lightness(colour):
        return sum(int(x) for x in colour[4:-1].split(",")) / 765

    light = seen()
    assert lightness(light[0]) > 0.9 and lightness(light[1]) < 0.2, light
    page.colours(True)
    wait_until(lambda: seen() != light, 5, "another colour")
    dark = seen()
    assert lightness(dark[0]) < 0.15 and lightness(dark[1]) > 0.8, dark
    page.click("[data-theme-choice=light]")
    wait_until(lambda: seen() == light, 5, "light")
    assert page.do("document.querySelector('[data-theme-choice=light]').getAttribute('aria-checked')") == "true"
    page.reload()
    ready(page)
    wait_until(lambda: seen() == light, 5, "light, after a reload")
    page.click("[data-theme-choice=dark]")
    page.colours(False)
    wait_until(lambda: seen() == dark, 5, "dark, in a light system")
    page.click("[data-theme-choice=auto]")
    wait_until(lambda: seen() == light, 5, "as the system")
    # Text of every kind can be told from what is behind it: WCAG's contrast of 4.5.
    for is_dark in [False, True]:
        page.colours(is_dark)
        wait_until(lambda: seen() == (dark if is_dark else light), 5, "the colours")
        wait_until(lambda: page.do(CONTRAST) == [], 5, "enough contrast: %s" % page.do(CONTRAST))
    page.colours(False)


CONTRAST = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = (c) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data; };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (n) => { for (; n; n = n.parentElement) { const c = rgb(getComputedStyle(n).backgroundColor); if (c[3] === 255) return c; } return rgb('white'); };
  const out = [];
  for (const n of document.querySelectorAll('body *')) {
    if (![...n.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim()) || !n.checkVisibility({visibilityProperty: true, opacityProperty: true}) || n.disabled) continue;
    const a = light(rgb(getComputedStyle(n).color)), b = light(behind(n)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) out.push([n.tagName, n.className, n.textContent.slice(0, 30), ratio.toFixed(2)]);
  }
  return out;
})()"""


def narrow():
    wide = "w" * 300 + " " + "| a | b |\n|---|---|\n| " + "x" * 200 + " | " + "y" * 200 + " |\n\n```c\n" + "int x; " * 60 + "\n```\n\n`" + "c" * 300 + "`\n\nhttps://example.org/" + "z" * 300
    for width in [320, 390, 700]:
        page.size(width, 700)
        fresh(page)
        wait_until(lambda: page.do("innerWidth") == width and page.do("document.documentElement.scrollWidth") <= width, 5, "no wider than the screen")
        fake.says(wide)
        ask(page, "u" * 200)
        assert page.do("[document.documentElement, document.body, document.getElementById('scroll'), document.querySelector('.main')].every((n) => n.scrollWidth <= n.clientWidth + 1)"), width
        assert page.do("[...document.querySelectorAll('.message > *')].every((n) => n.getBoundingClientRect().right <= innerWidth + 1)"), width
        wait_until(lambda: not page.visible("#sidebar") and page.visible("#open-sidebar"), 5, "the list is folded away")
        page.click("#open-sidebar")
        page.wait("document.getElementById('sidebar').getBoundingClientRect().left === 0 && document.activeElement.id === 'close-sidebar'")
        assert page.visible("#sidebar")
        page.press("Escape")
        assert page.do("document.getElementById('open-sidebar').getAttribute('aria-expanded')") == "false" and page.do("document.activeElement.id") == "open-sidebar"
        page.click("#open-settings")
        assert page.do("(() => { const r = document.getElementById('settings').getBoundingClientRect(); return r.left >= 0 && r.right <= innerWidth; })()")
        page.press("Escape")
        page.wait("!document.getElementById('settings').open")
    page.size(1280, 800)
    wait_until(lambda: page.visible("#sidebar") and not page.visible("#open-sidebar"), 5, "the list is beside the messages")


def said_to_screen_readers():
    fake.says("spoken")
    ask(page, "hear this")
    assert page.text("#live").startswith("Answer finished."), page.text("#live")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    nameless = []
    for node in nodes:
        role = node.get("role", {}).get("value")
        if role in ("button", "textbox", "searchbox", "combobox", "checkbox", "radio", "link", "meter", "article", "region") and not node.get("ignored"):
            if not node.get("name", {}).get("value"):
                nameless.append(node)
    assert nameless == [], nameless[:3]
    roles = {n.get("role", {}).get("value") for n in nodes if not n.get("ignored")}
    assert {"main", "complementary", "navigation", "article", "heading", "radiogroup"} <= roles, roles
    assert page.do("document.querySelectorAll('h1').length") == 1 and page.do("document.documentElement.lang") == "en"
    # Tab goes through the page in order, and what has the focus is seen.
    assert page.do("document.querySelector('button, a, input, textarea').className") == "skip"
    page.do("document.querySelector('.skip').focus()")
    page.press("Tab")
    assert page.do("document.activeElement.id") == "new-chat" and page.do("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def follows_the_end_unless_scrolled_up():
    fresh(page)
    hold = {"go": False}

    def lines(body):
        yield from text("line\n\n" * 100)
        while not hold["go"]:
            yield 0.02
        yield delta(content="more\n\n" * 100)
        yield from end()

    fake.script = lines
    begin(page, "long")
    at_end = "((s) => s.scrollHeight - s.scrollTop - s.clientHeight < 5)(document.getElementById('scroll'))"
    page.wait("document.querySelectorAll('.prose p').length === 100 && " + at_end)
    page.do("document.getElementById('scroll').scrollTop = 100")
    page.wait("!document.getElementById('to-end').hidden")
    hold["go"] = True
    idle(page)
    assert page.do("document.getElementById('scroll').scrollTop") == 100
    page.click("#to-end")
    page.wait(at_end + " && document.getElementById('to-end').hidden")


# ---- when it fails ---------------------------------------------------------------------------------------------------

def errors():
    for status, error, headers, says in [
            (429, {"message": "too many requests are waiting"}, {"Retry-After": "7"}, ["The server is busy.", "Too many requests are waiting.", "asks to wait 7 seconds"]),
            (400, {"message": "temperature: found 9, expected 0 to 2"}, {}, ["The server can't do this.", "temperature: found 9"]),
            (503, {"message": "the server is shutting down"}, {"Retry-After": "30"}, ["The server is not ready.", "wait 30 seconds"]),
            (500, {"message": "a step took too long"}, {}, ["The server failed.", "A step took too long."]), (418, {}, {}, ["The server answered 418."])]:
        fresh(page)
        refuse(status, error, headers)
        begin(page, "q")
        page.wait("document.querySelector('.failure b')")
        for word in says:
            assert word in page.text(".failure"), (status, word, page.text(".failure"))
        assert page.count(".failure [role=alert]") == 1
        # Trying again takes the failure's place, and the failed answer is no part of what is asked.
        ready(page)
        fake.says("better")
        page.click(".failure button")
        page.wait("document.querySelector('.prose').textContent === 'better'")
        idle(page)
        assert page.count(".message") == 2 and fake.bodies[-1]["messages"] == [{"role": "user", "content": "q"}]
    fresh(page)
    refuse(400, {"message": "no"})
    begin(page, "first")
    page.wait("document.querySelector('.failure b')")
    fake.says("ok")
    ask(page, "second")  # the roles stay in turn
    assert fake.bodies[-1]["messages"] == [{"role": "user", "content": "first\n\nsecond"}]


def cut_streams():
    def cut(body):
        yield from text("what had arrived")
        yield 0.3  # a browser that has the error before the text was read gives the error alone
        raise ConnectionError

    def short(body):
        yield from text("what had arrived")

    def failing(body):
        yield from text("what had arrived")
        yield {"error": {"message": "the request took longer than 600 s"}}

    for script, says in [(cut, "The connection was lost."), (short, "The connection was lost."), (failing, "The server stopped the answer.The request took longer")]:
        fresh(page)
        fake.script = script
        assert ask(page, "q") == "what had arrived"
        assert page.text(".failure").startswith(says), page.text(".failure")
        page.reload()
        ready(page)
        assert page.text(".prose") == "what had arrived" and page.text(".failure").startswith(says)
        fake.says("whole")
        page.click("[aria-label='Answer again']")
        page.wait("document.querySelector('.prose').textContent === 'whole'")
        idle(page)


def loading_and_gone():
    fake.health = (503, {"status": "loading", "progress": 0.42})
    page.reload()
    page.wait("document.getElementById('model').textContent === 'loading the model, 42 %'")
    page.do("document.getElementById('entry').focus()")
    page.type("early")
    page.press("Enter")
    assert page.do("document.getElementById('entry').value") == "early" and page.do("document.getElementById('send').disabled")
    fake.health = (200, {"status": "ok"})
    ready(page)
    page.wait("!document.getElementById('send').disabled")
    fake.props = {**PROPS, "chat_template": None}
    page.reload()
    page.wait("document.getElementById('banner-text').textContent.includes('no chat template')")
    fake.props = PROPS
    page.reload()
    ready(page)
    assert not page.visible("#banner")


def a_context_that_fills():
    fresh(page)
    fake.says("ok", prompt=7000, completion=500)
    ask(page, "long")
    assert "500 tokens · 4,990 tokens/s" in page.text(".stats")  # 499 in the 100 ms that the server took
    assert page.text("#context-text") == "7,500 of 8,192 tokens, nearly full" and page.do("document.getElementById('context').dataset.level") == "high"
    assert page.do("document.getElementById('track').getAttribute('aria-valuenow')") == "7500"


def no_problems():
    clean(page, fake.url)


if __name__ == "__main__":
    need_browser()
    with Server() as server, Fake(server.port) as fake, Browser() as browser:
        page = ready(browser.page(fake.url))
        main(nothing_is_sent_that_was_not_set, settings_reach_the_request, settings_that_are_wrong, kept_renamed_deleted, two_at_the_same_time, two_tabs,
             a_full_storage, no_storage_at_all, exports_and_imports, keys, colours, narrow, said_to_screen_readers, follows_the_end_unless_scrolled_up, no_problems, errors,
             cut_streams, loading_and_gone, a_context_that_fills)
