"""Markdown: what becomes of an answer's text, against HTML written here by hand, and the same however the text is cut."""
from talk import answer_html, ask, clean, fresh, need_browser, ready  # first: it says where the harness is
from devtools import Browser
from fake_server import Fake, end, text as chunks
from harness import Server, main

LINK = '<a href="%s" title="%s" rel="noopener noreferrer" target="_blank">%s</a>'


def link(url, text=None):
    return LINK % (url, url, text or url)


def code(language, body):
    return ('<div class="code"><div class="code-head"><span>%s</span><button class="quiet" type="button" data-copy="" aria-label="Copy the code">'
            '<svg class="icon" aria-hidden="true"><use href="#i-copy"></use></svg>Copy</button></div><pre tabindex="0"><code>%s</code></pre></div>'
            % (language, body))


CASES = [
    ("plain", "<p>plain</p>"),
    ("one\n\ntwo", "<p>one</p><p>two</p>"),
    ("a line\nand the next", "<p>a line\nand the next</p>"),
    ("# One\n## Two ##\n###### Six\n####### seven", "<h1>One</h1><h2>Two</h2><h6>Six</h6><p>####### seven</p>"),
    ("#no heading", "<p>#no heading</p>"),
    ("*a* **b** ***c*** _d_ __e__ ~~f~~", "<p><em>a</em> <strong>b</strong> <em><strong>c</strong></em> <em>d</em> <strong>e</strong> <del>f</del></p>"),
    ("**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"),
    ("snake_case_name 2 * 3 * 4 **open", "<p>snake_case_name 2 * 3 * 4 **open</p>"),
    ("`a*b*` ``x ` y`` `open", "<p><code>a*b*</code> <code>x ` y</code> `open</p>"),
    ("\\*not\\* \\`x\\`", "<p>*not* `x`</p>"),
    ("[t](https://a.example/x) [r](/rel) [j](javascript:1)", "<p>" + link("https://a.example/x", "t") + " [r](/rel) [j](javascript:1)</p>"),
    ("[**b** `c`](http://a.example/)", "<p>" + LINK.replace("%s</a>", "<strong>b</strong> <code>c</code></a>") % (("http://a.example/",) * 2) + "</p>"),
    ("[a [b](http://i.example/) c](http://o.example/)", "<p>[a " + link("http://i.example/", "b") + " c](" + link("http://o.example/") + ")</p>"),
    ("![alt](https://a.example/i.png)", "<p>" + link("https://a.example/i.png", "alt") + "</p>"),
    ("see https://a.example/a_b(c), and (http://b.example/x).", "<p>see " + link("https://a.example/a_b(c)") + ", and (" + link("http://b.example/x") + ").</p>"),
    ("<https://a.example/> <b> a<br>b", "<p>" + link("https://a.example/") + " &lt;b&gt; a<br>b</p>"),
    ("[x](https://user:pw@evil.example/)", "<p>[x](https://user:pw@evil.example/)</p>"),
    ("- a\n- b\n\n+ c", "<ul><li>a</li><li>b</li><li>c</li></ul>"),
    ("1. a\n2. b\n   more\n3) c", "<ol><li>a</li><li>b\nmore</li><li>c</li></ol>"),
    ("- [ ] open\n- [x] done\n- [y] no", "<ul><li>☐ open</li><li>☑ done</li><li>[y] no</li></ul>"),
    ("7. a", '<ol start="7"><li>a</li></ol>'),
    ("- a\n  - b\n    - c\n- d", "<ul><li>a<ul><li>b<ul><li>c</li></ul></li></ul></li><li>d</li></ul>"),
    ("- a\n\n  second\n- b", "<ul><li><p>a</p><p>second</p></li><li>b</li></ul>"),
    ("1. a\n   ```c\n   int x;\n   ```\n2. b", "<ol><li>a" + code("c", '<span class="w">int</span> x;') + "</li><li>b</li></ol>"),
    ("text\n- item\ntext 2022. no list\n1986. no list", "<p>text</p><ul><li>item\ntext 2022. no list</li></ul><ol start=\"1986\"><li>no list</li></ol>"),
    ("> q\n> # h\n>> in\nout", "<blockquote><p>q</p><h1>h</h1><blockquote><p>in</p></blockquote></blockquote><p>out</p>"),
    ("a\n\n---\n\nb\n***\n- - -", "<p>a</p><hr><p>b</p><hr><hr>"),
    ("```\n<b>&amp;\n```\nafter", code("text", "&lt;b&gt;&amp;amp;") + "<p>after</p>"),
    ("~~~~ python title\nif x: # y\n~~~\n~~~~", code("python", '<span class="w">if</span> x: <span class="c"># y</span>\n~~~')),
    ("```js\nopen", code("js", "open")),
    ("```\n  two\n\n\nlines\n```", code("text", "  two\n\n\nlines")),
    ("|a|b|\n|-|:-:|\n|1|`x\\|y`|\n|2|\nend", '<div class="table" tabindex="0"><table><thead><tr><th>a</th><th data-align="center">b</th></tr></thead>'
     '<tbody><tr><td>1</td><td data-align="center"><code>x|y</code></td></tr><tr><td>2</td><td data-align="center"></td></tr></tbody></table></div><p>end</p>'),
    ("a | b\nno table", "<p>a | b\nno table</p>"),
    ("<details><summary>x</summary></details>", "<p>&lt;details&gt;&lt;summary&gt;x&lt;/summary&gt;&lt;/details&gt;</p>"),
    ("**日本**語 *ü*", "<p><strong>日本</strong>語 <em>ü</em></p>"),
]

server = fake = page = None


def every_case():
    for text, expected in CASES:
        fresh(page)
        fake.says(text)
        ask(page)
        got = answer_html(page)
        assert got == expected, "%r\n   found %s\nexpected %s" % (text, got, expected)


def the_same_in_pieces():
    document = "\n\n".join(text for text, _ in CASES)
    fresh(page)
    fake.says(document)
    ask(page)
    whole = answer_html(page)
    fresh(page)
    fake.script = lambda body: (piece for part in pieces(document) for piece in part)
    ask(page, seconds=60)
    assert answer_html(page) == whole


def pieces(document):
    for i, chunk in enumerate(chunks(document, 3)):
        yield [chunk, 0.006] if i % 4 == 0 else [chunk]  # so that the page draws between them
    yield list(end())


def copy_button():
    fresh(page)
    fake.says("```py\nprint(1)\n```\n")
    ask(page)
    page.do("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
    page.click(".code-head button")
    page.wait("window.copied === 'print(1)'")
    page.wait("document.querySelector('.code-head use').getAttribute('href') === '#i-check'")
    page.wait("document.querySelector('.code-head use').getAttribute('href') === '#i-copy'")


def nothing_thrown():
    clean(page, fake.url)


if __name__ == "__main__":
    need_browser()
    with Server() as server, Fake(server.port) as fake, Browser() as browser:
        page = ready(browser.page(fake.url))
        main(every_case, the_same_in_pieces, copy_button, nothing_thrown)
