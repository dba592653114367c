"""What the page tests do to the page, and how they are run."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "http"))

from devtools import find_browser  # noqa: E402


def need_browser():
    if find_browser() is None:
        print("SKIPPED: there is no browser (Debian's package chromium); the page at / was not tested in one")
        sys.exit(0)


def ready(page):
    page.wait("document.getElementById('dot').dataset.state === 'ready'")
    return page


def begin(page, text):
    """Writes into the field and presses Enter."""
    page.do("document.getElementById('entry').focus()")
    page.type(text)
    page.press("Enter")


def idle(page, seconds=40):
    page.wait("document.getElementById('stop').hidden && document.querySelector('.message.assistant:last-child')", seconds)


def ask(page, text="Hello", seconds=40):
    """Asks and waits for the end of the answer; gives the text of it."""
    n = page.count(".message")
    begin(page, text)
    page.wait("document.querySelectorAll('.message').length === %d" % (n + 2))
    idle(page, seconds)
    return page.text(".message:last-child .prose")


def fresh(page):
    """A new conversation."""
    page.do("document.getElementById('new-chat').click()")
    page.wait("document.querySelectorAll('.message').length === 0")


def answer_html(page):
    return page.do("document.querySelector('.message:last-child .prose').innerHTML")


def stored(page):
    """The conversations in the browser's storage."""
    return page.do("Object.keys(localStorage).filter((k) => k.startsWith('megadecode:chat:')).map((k) => JSON.parse(localStorage.getItem(k)))")


def clean(page, origin):
    """Nothing was thrown, nothing was refused by the policy, and nothing was asked of anyone else."""
    assert page.problems() == [], page.problems()
    foreign = [url for url in page.requests() if not url.startswith((origin, "data:image/svg+xml", "blob:" + origin))]
    assert foreign == [], foreign
