"""The page against the program itself: talking to the shipped model, stopping, keys, thinking, errors of a real server."""
import re
import tempfile

from talk import ask, begin, clean, fresh, idle, need_browser, ready, stored  # first: it says where the harness is
import scripted_model
from devtools import Browser
from harness import Server, main, wait_until

CHAT = "/v1/chat/completions"
# Two answers of a model that is scripted, picked by what is asked.
TEMPLATE = ("{% for m in messages %}<|user|>{{ m.content }}{% endfor %}<|assistant|>{% if enable_thinking %}<think>{% endif %}"
            "{% if messages[-1].content == 'think' %}<|think|>{% else %}<|plain|>{% endif %}")
SCRIPTS = {"think": [b'<th', b'ink>\nFirst ', b'I **think**.', b'\n</thi', b'nk>\n\n', b'Then I ', b'answer ', "žluťoučký 😊".encode(), b'.'],
           "plain": [b'Hello', b', ', b'*world*', b'!']}
LONG = "Tell me a story."  # thousands of tokens at temperature 0; minutes with scalar code
SLOW = {"MEGADECODE_CPU": "scalar"}
server = browser = page = None


def bare(text):
    """Without white space: paragraphs are elements on the page."""
    return "".join(text.split())


def set_number(name, value):
    page.do("(() => { const n = document.getElementById('set-%s'); n.value = '%s'; n.dispatchEvent(new Event('input')); })()" % (name, value))


def settings(**values):
    page.click("#open-settings")
    page.wait("document.getElementById('settings').open")
    for name, value in values.items():
        set_number(name, value)
    page.click("#settings [data-close]")
    page.wait("!document.getElementById('settings').open")


def first_look():
    page.wait("document.getElementById('welcome-model').textContent === 'fairytales'")
    assert "4,096 tokens of context" in page.text("#facts") and "resident engine on cpu" in page.text("#model")
    assert page.visible("#welcome") and not page.visible("#messages") and page.do("document.activeElement.id") == "entry"
    assert page.do("document.getElementById('send').disabled") and not page.visible("#stop")
    assert page.requests() == [page.do("location.origin") + path for path in ["/", "/health", "/props"]]


def answers_and_counts():
    fresh(page)
    settings(temperature="0", max_tokens="60")
    text = ask(page, "Tell me about a fox.")
    expected = server.chat("Tell me about a fox.", temperature=0, max_tokens=60)
    assert bare(text) == bare(expected["choices"][0]["message"]["content"]), (text, expected)
    stats, usage = page.text(".stats"), expected["usage"]
    assert "60 tokens" in stats and "tokens/s" in stats and "cut: the length" in stats, stats
    assert page.text("#context-text") == "%d of 4,096 tokens" % usage["total_tokens"], page.text("#context-text")
    assert page.do("document.activeElement.id") == "entry"


def the_conversation_goes_on():
    text = ask(page, "And a hen?")
    first = page.text(".message:nth-child(2) .prose")
    kept = stored(page)[0]
    messages = [{"role": m["role"], "content": m["text"]} for m in kept["messages"][:3]]
    assert bare(messages[1]["content"]) == bare(first)
    expected = server.ok(CHAT, {"messages": messages, "temperature": 0, "max_tokens": 60})["choices"][0]["message"]["content"]
    assert bare(text) == bare(expected) and kept["messages"][3]["text"] == expected
    assert kept["messages"][3]["stats"]["cached"] > 0  # the beginning was not computed again


def edit_and_answer_again():
    before = stored(page)[0]["messages"]
    page.do("document.querySelector('.message:nth-child(4) [aria-label=\"Answer again\"]').click()")
    page.wait("!document.getElementById('stop').hidden || document.querySelectorAll('.stats').length === 2")
    idle(page)
    after = stored(page)[0]["messages"]
    assert [m["text"] for m in after] == [m["text"] for m in before], "temperature 0 gives the same answer again"
    assert after[3]["at"] > before[3]["at"]
    page.do("document.querySelector('.message.user [aria-label=Edit]').click()")
    assert page.do("document.activeElement.value") == "Tell me about a fox."
    page.press("a", "Ctrl")
    page.type("Tell me about a cow.")
    page.press("Enter")
    page.wait("document.querySelectorAll('.message').length === 2")
    idle(page)
    text = page.text(".message:last-child .prose")
    assert bare(text) == bare(server.chat("Tell me about a cow.", temperature=0, max_tokens=60)["choices"][0]["message"]["content"])
    page.wait("document.getElementById('toasts').textContent.includes('2 later messages were removed.')")
    page.do("document.querySelector('.toast button').click()")
    page.wait("document.querySelectorAll('.message').length === 4")
    assert [m["text"] for m in stored(page)[0]["messages"]] == [m["text"] for m in after]
    page.do("document.querySelector('.message:nth-child(2) [aria-label=\"Answer again\"]').click()")
    page.wait("[...document.querySelectorAll('.toast')].some((n) => n.textContent.includes('2 later messages were removed.'))")
    idle(page)
    assert page.count(".message") == 2
    page.do("document.querySelector('.toast button').click()")
    page.wait("document.querySelectorAll('.message').length === 4")
    page.do("document.querySelector('.message.user [aria-label=Edit]').click()")
    page.press("Escape")
    assert page.text(".bubble").startswith("Tell me about a fox.") and page.count(".edit") == 0


def streams_and_stops_within_a_second():
    with Server("--threads", "1", "--parallel", "1", "--queue", "1", env=SLOW) as slow:
        tab = ready(browser.page("http://127.0.0.1:%d/" % slow.port))
        cancelled = slow.metric("requests_cancelled_total")
        for stop in [lambda: tab.press("Escape"), lambda: tab.click("#stop")]:
            begin(tab, LONG)
            lengths = [tab.wait("document.querySelector('.message:last-child .prose').textContent.length", 30)]
            for _ in range(3):  # the text grows
                lengths.append(tab.wait("((n) => n > %d && n)(document.querySelector('.message:last-child .prose').textContent.length)" % lengths[-1], 30))
            assert slow.metric("requests_running") == 1
            stop()
            tab.wait("!document.getElementById('send').hidden", 1)
            wait_until(lambda: slow.metric("requests_running") == 0, 1, "the place is free")
            cancelled += 1
            wait_until(lambda: slow.metric("requests_cancelled_total") == cancelled, 1, "the request is cancelled")
            text = tab.text(".message:last-child .prose")
            assert len(text) > 3 and "stopped" in tab.text(".message:last-child .stats")
            assert tab.count(".failure:not([hidden])") == 0
        # Gone with the page, too; what had arrived is there after a reload.
        begin(tab, LONG)
        tab.wait("document.querySelectorAll('.message').length === 6 && document.querySelector('.message:last-child .prose').textContent.length > 3", 30)
        tab.reload()
        wait_until(lambda: slow.metric("requests_running") == 0, 2, "the place is free after the reload")
        ready(tab)
        assert tab.count(".message") == 6 and len(tab.text(".message:last-child .prose")) > 3
        assert "stopped" in tab.text(".message:last-child .stats"), tab.text(".message:last-child")
        # A full queue.
        sockets = [slow.open_post(CHAT, {"messages": [{"role": "user", "content": LONG}], "temperature": 0})]
        wait_until(lambda: slow.metric("requests_running") == 1, 10)
        sockets.append(slow.open_post(CHAT, {"messages": [{"role": "user", "content": LONG}], "temperature": 0}))
        wait_until(lambda: slow.metric("requests_queued") == 1, 10)
        begin(tab, "hello")
        tab.wait("document.querySelector('.message:last-child .failure b')")
        said = tab.text(".message:last-child .failure")
        assert re.search(r"The server is busy\..*Too many requests are waiting.*asks to wait \d+ second", said), said
        for sock in sockets:
            sock.close()
        clean(tab, "http://127.0.0.1:%d/" % slow.port)
        tab.close()


def too_long_for_the_context():
    with Server("--ctx", "64") as small:
        tab = ready(browser.page("http://127.0.0.1:%d/" % small.port))
        begin(tab, "so on and " * 60)
        tab.wait("document.querySelector('.failure b')")
        assert "The server can't do this." in tab.text(".failure") and "maximum context length is 64 tokens" in tab.text(".failure"), tab.text(".failure")
        tab.close()


def key():
    with Server("--api-key", "s3cret", "--ctx", "96") as locked:
        url = "http://127.0.0.1:%d/" % locked.port
        tab = browser.page(url)
        tab.wait("document.getElementById('key-dialog').open")
        assert tab.do("document.activeElement.id") == "key" and tab.do("document.getElementById('key').type") == "password"
        tab.type("wrong")
        tab.press("Enter")
        tab.wait("document.getElementById('key-title').textContent.includes('refused') && document.getElementById('key-dialog').open")
        tab.type("s3cret")
        tab.press("Enter")
        ready(tab)
        assert ask(tab, "Say yes.") != ""
        assert tab.do("localStorage.getItem('megadecode:key')") is None  # not kept unless asked for
        tab.reload()
        ready(tab)  # but for this tab
        clean(tab, url)
        tab.close()


def thinking():
    with tempfile.TemporaryDirectory() as folder:
        scripted_model.write(folder, SCRIPTS, TEMPLATE)
        with Server(model=folder) as scripted:
            url = "http://127.0.0.1:%d/" % scripted.port
            tab = ready(browser.page(url))
            assert ask(tab, "think") == "Then I answer žluťoučký 😊."
            assert tab.text(".thought") == "First I **think**." and not tab.do("document.querySelector('.thinking').open")
            assert tab.text(".thinking summary").startswith("Thought") and not tab.visible(".thought")
            tab.click(".thinking summary")
            assert tab.visible(".thought")
            assert ask(tab, "other") == "Hello, world!" and tab.count(".message:last-child em") == 1
            assert tab.count(".thinking:not([hidden])") == 1
            tab.click("#open-settings")
            assert tab.visible("#set-thinking")
            clean(tab, url)
            tab.close()


def no_problems():
    clean(page, "http://127.0.0.1:%d/" % server.port)


if __name__ == "__main__":
    need_browser()
    with Server() as server, Browser() as browser:
        page = ready(browser.page("http://127.0.0.1:%d/" % server.port))
        main(first_look, answers_and_counts, the_conversation_goes_on, edit_and_answer_again,
             no_problems, streams_and_stops_within_a_second, too_long_for_the_context, key, thinking)
