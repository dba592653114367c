#!/usr/bin/python3
"""Writes jinja_cases.json: template snippets and what Jinja2 makes of them, set up as transformers sets it up.

Run with the system's python3 (package python3-jinja2) from this folder after adding a snippet:
    /usr/bin/python3 make_jinja_cases.py > jinja_cases.json
test_jinja.c renders the same snippets and compares; it needs no Python.
"""
import json
import sys
from datetime import datetime, timezone

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

CLOCK = 1767323045  # 2026-01-02 03:04:05 UTC


class Generation(Extension):
    """{% generation %}: the body in a scope of its own, as transformers' tracker renders it."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.fromtimestamp(CLOCK, timezone.utc).strftime(f)
    return env


CONTEXT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi <there> & 'you'"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello!", "tool_calls": [
            {"type": "function", "id": "c1", "function": {"name": "f", "arguments": {"a": 1, "b": "x\ny", "c": [True, None, 1.5]}}}]},
        {"role": "tool", "content": "{\"t\": 21}", "tool_call_id": "c1"},
        {"role": "user", "content": "naïve 日本 😀"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d \"q\" é", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}, "items": {"type": "array"}}, "required": ["a"]}}}],
    "add_generation_prompt": True,
    "bos_token": "<s>",
    "eos_token": "</s>",
    "n": 7, "f": 2.5, "big": 1e16, "tiny": 1e-5, "neg": -3, "zero": 0, "yes": True, "no": False, "nothing": None,
    "empty": "", "word": "hello World", "spaced": "  a b\tc \n", "quote": "it's", "dquote": "say \"hi\"",
    "both": "it's \"x\"", "ctl": "a\n\t\\\u0001\u007f\u00a0é\u200b", "lines": "one\ntwo\n\nthree",
    "uni": "straße ΑΒΓ ñandú", "xs": [3, 1, 2], "ys": ["b", "A", "c"], "mixed": [1, "a", None, True, 2.0, [], {}],
    "d": {"b": 1, "A": 2, "c": {"k": [1, 2]}}, "people": [
        {"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25}, {"name": "Cid", "age": 30}],
}

OK = r"""
plain text
{{ word }}
{{ 'a' 'b' "c" }}
{{ n }} {{ f }} {{ big }} {{ tiny }} {{ neg }} {{ yes }} {{ no }} {{ nothing }}
{{ 1.0 }} {{ 100000000000000000.0 }} {{ 1e15 }} {{ 1e16 }} {{ 0.0001 }} {{ 0.00001 }} {{ 123456.789 }} {{ -0.0 }} {{ 1e300*1e300 }} {{ 0.1+0.2 }} {{ 1/3 }} {{ 5e-324 }}
{{ missing }}|{{ missing is defined }}|{{ missing is undefined }}|{{ missing|default('x') }}|{{ missing|length }}|{{ missing|list }}
{{ d.nokey }}|{{ d['nokey'] }}|{{ d.nokey is defined }}|{{ xs[10] }}|{{ word[100] }}
{{ mixed }}
{{ d }}
{{ (1,) }} {{ (1, 2) }} {{ () }} {{ [] }} {{ {} }} {{ {'a': 1, 2: 'b', none: true} }}
{{ quote }} {{ [quote, dquote, both, ctl] }}
{{ messages[1] }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}
{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ 'v' + 2 ~ 3 + 'w' }} {{ 'a' ~ 1 ~ none ~ 2.5 }} {{ 2 * 3 ~ 4 }}
{{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ [1] * 3 }} {{ 'x' * 0 }} {{ 'x' * -1 }} {{ [1] + [2, 3] }} {{ (1,) + (2,) }}
{{ true + true }} {{ true == 1 }} {{ 1 == 1.0 }} {{ '1' == 1 }} {{ none == false }} {{ [1, 2] == [1, 2] }} {{ {'a': 1} == {'a': 1.0} }} {{ (1,) == [1] }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 3 > 2 >= 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 != 2 }} {{ 1 <= 1.0 }} {{ 'B' < 'a' }}
{{ 'ell' in word }} {{ 'z' not in word }} {{ 1 in xs }} {{ 'b' in d }} {{ 9 in xs }} {{ '' in word }} {{ 'a' in missing }} {{ 1 in (1, 2) }} {{ 2 in range(3) }}
{{ 0 or 'x' }} {{ '' or [] }} {{ 1 and 2 }} {{ 0 and 2 }} {{ not 0 }} {{ not 'x' }} {{ none or missing or 'end' }} {{ not yes and no }}
{{ 'a' if yes else 'b' }} {{ 'a' if no else 'b' }} {{ 'a' if no }}| {{ ('a' if no else 'b') if yes else 'c' }} {{ 1 if no else 2 if no else 3 }}
{{ not 1 == 2 }} {{ -n|abs }} {{ (-n)|abs }} {{ +n }} {{ - - n }} {{ -f }}
{{ xs[0] }} {{ xs[-1] }} {{ xs[1:] }} {{ xs[:-1] }} {{ xs[::-1] }} {{ xs[::2] }} {{ xs[5:] }} {{ xs[-2:] }} {{ xs[2:0:-1] }} {{ xs[:] }}
{{ word[0] }} {{ word[-1] }} {{ word[1:4] }} {{ word[::-1] }} {{ word[:100] }} {{ uni[::-1] }} {{ uni[4:7] }} {{ uni[-3:] }} {{ word[5:2] }} {{ word[::3] }}
{{ messages[4].content[::-1] }} {{ messages[4].content|length }} {{ messages[4]['content'][6:] }}
{{ (1, 2, 3)[1:] }} {{ range(5)[1:3]|list }} {{ range(5)[-1] }} {{ range(1, 10, 3)|list }} {{ range(5, 0, -2)|list }} {{ range(0)|list }} {{ range(3) }} {{ range(1, 9, 2) }}
{{ d.b }} {{ d['A'] }} {{ d.c.k[1] }} {{ d.c.k.0 }} {{ d.get('b') }} {{ d.get('zz') }} {{ d.get('zz', 5) }} {{ d['c']['k'] }}
{{ d.items() }} {{ d.keys() }} {{ d.values() }} {{ d.items()|list }} {{ d|list }} {{ d.keys()|list }} {{ d|length }} {{ d.keys()|length }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in d %}{{ k }}{% endfor %} {% for c in 'añb' %}[{{ c }}]{% endfor %} {% for x in missing %}x{% else %}none{% endfor %}
{% for x in xs %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.depth }}/{{ loop.depth0 }} {% endfor %}
{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}{% if loop.previtem is defined %}p{% endif %}{% if loop.nextitem is not defined %}n{% endif %} {% endfor %}
{% for x in xs %}{{ loop.cycle('a', 'b') }}{% endfor %} {% for x in [1, 1, 2] %}{{ loop.changed(x) }} {% endfor %}
{% for x in xs if x > 1 %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% endfor %} {% for x in xs if x > 9 %}x{% else %}empty{% endfor %}
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in xs %}{% for y in ys %}{{ loop.index }}{% if y == 'A' %}{% break %}{% endif %}{% endfor %}{{ loop.index }};{% endfor %}
{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }} {% endfor %} {% for (a, b) in [(1, 2)] %}{{ a + b }}{% endfor %}
{% for x in 1, 2, 3 %}{{ x }}{% endfor %} {% for x in [1] + [2] %}{{ x }}{% endfor %}
{% for x in (1, 2) %}{% set y = x %}{% endfor %}[{{ y }}] {% set z = 0 %}{% for x in (1, 2) %}{% set z = z + x %}{{ z }}{% endfor %}[{{ z }}]
{% set ns = namespace(a=1, b='x') %}{% for x in xs %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }}{{ ns.b }} {% set ns.new = [1] %}{{ ns.new }} {{ ns.nope }}| {{ ns }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}
{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set t = 1, 2 %}{{ t }} {% set x = 'v' %}{% if true %}{% set x = 'w' %}{% endif %}{{ x }}
{% set block %}a{{ n }}b{% endset %}[{{ block }}] {% set up | upper %}abc{{ n }}{% endset %}{{ up }} {% set s | replace('a', 'b') | title %}a cat{% endset %}{{ s }}
{% set x = 1 %}{% set out %}{% set x = 2 %}{{ x }}{% endset %}{{ out }}{{ x }}
{% macro m(a, b=2, c='z') %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c='q') }} {{ m(b=5, a=6) }} {{ m() }}
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }} {% macro fact(i) %}{% if i <= 1 %}1{% else %}{{ i * fact(i - 1)|int }}{% endif %}{% endmacro %}{{ fact(5) }}
{% set g = 'outer' %}{% macro m() %}{{ g }}{% set g = 'in' %}{{ g }}{% endmacro %}{{ m() }}{{ g }}{% set g = 'later' %}{{ m() }}
{% macro wrap(tag) %}<{{ tag }}>{{ caller() }}</{{ tag }}>{% endmacro %}{% call wrap('b') %}x{{ n }}{% endcall %}
{% macro each(xs) %}{% for x in xs %}{{ caller(x) }},{% endfor %}{% endmacro %}{% call(v) each(xs) %}<{{ v }}>{% endcall %}
{% macro m(x) %}{{ x is defined }}{% endmacro %}{{ m() }} {{ m(1)|lower }} {{ m(none) ~ '!' }} {{ m('a') == 'True' }}
{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}[{{ a }}] {% with %}{% set q = 1 %}{{ q }}{% endwith %}[{{ q }}]
{% filter upper %}abc {{ word }}{% endfilter %} {% filter replace('a', 'x') | trim %} banana {% endfilter %}
{% generation %}gen {{ n }}{% set inside = 1 %}{% endgeneration %}[{{ inside }}]
{% if n == 7 %}seven{% elif n == 8 %}eight{% else %}other{% endif %} {% if no %}a{% elif yes %}b{% elif yes %}c{% endif %} {% if no %}a{% elif no %}b{% else %}c{% endif %}
{% if xs and ys %}both{% endif %}{% if [] or {} or '' or 0 or none or missing %}x{% else %}falsy{% endif %}
{% raw %}{{ not }} {% a %} {# b #}{% endraw %}! {%- raw -%}  x  {%- endraw -%}  y
a {# comment #} b {#- strip -#} c {# multi
line #} d
{{ 1 }}{% print 2 %}{% print 'x' %}
{{ word.upper() }} {{ word.lower() }} {{ word.title() }} {{ word.capitalize() }} {{ word.swapcase() }} {{ "they're bill's x-y 3rd".title() }} {{ uni.upper() }} {{ uni.title() }} {{ uni.capitalize() }}
{{ spaced.strip() }}| {{ spaced.lstrip() }}| {{ spaced.rstrip() }}| {{ 'xxabxx'.strip('x') }} {{ 'abcba'.lstrip('ab') }} {{ 'abcba'.rstrip('ab') }} {{ '\u00a0a\u3000'.strip() }}|
{{ 'a,b,,c'.split(',') }} {{ 'a b  c'.split() }} {{ ' a  b '.split(' ') }} {{ 'a,b,c'.split(',', 1) }} {{ ''.split(',') }} {{ ''.split() }} {{ ' a b  c '.split(none, 1) }} {{ 'abc'.split('x') }} {{ 'a--b'.split('--')[-1] }}
{{ 'a,b,c'.rsplit(',', 1) }} {{ 'a,b,c'.rsplit(',') }} {{ 'a.b'.partition('.') }} {{ 'ab'.partition('.') }} {{ 'a.b.c'.rpartition('.') }} {{ 'ab'.rpartition('.') }}
{{ lines.splitlines() }} {{ 'a\r\nb\rc\n'.splitlines() }} {{ 'a\nb\n'.splitlines(true) }} {{ ''.splitlines() }}
{{ ','.join(ys) }} {{ ''.join(['a']) }} {{ '-'.join('abc') }} {{ ', '.join(d) }}
{{ word.replace('l', 'L') }} {{ word.replace('l', '', 1) }} {{ 'aaa'.replace('aa', 'b') }} {{ 'ab'.replace('', '-') }} {{ 'ab'.replace('', '-', 2) }} {{ ''.replace('', 'x') }} {{ word.replace('zz', 'y') }}
{{ word.startswith('he') }} {{ word.endswith('ld') }} {{ word.startswith(('x', 'h')) }} {{ word.startswith('') }} {{ word.endswith(('a', 'b')) }}
{{ word.find('o') }} {{ word.rfind('o') }} {{ word.find('z') }} {{ word.count('l') }} {{ word.index('W') }} {{ uni.find('ñ') }} {{ word.count('') }} {{ 'aaaa'.count('aa') }}
{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ 'x'.removeprefix('y') }}
{{ 'abc'.isalpha() }} {{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ ''.isalpha() }} {{ 'aB'.islower() }} {{ 'AB1'.isupper() }} {{ 'é'.isascii() }} {{ '1'.isupper() }} {{ 'ab'.islower() }}
{{ 'a'.ljust(4, '.') }}| {{ 'a'.rjust(4) }}| {{ 'a'.center(4, '*') }}| {{ 'ab'.center(5, '*') }}| {{ '7'.zfill(3) }} {{ '-7'.zfill(4) }} {{ 'abc'.zfill(2) }}
{{ '{} and {}'.format(1, 'b') }} {{ '{0}{1}{0}'.format('a', 'b') }} {{ '{x}{{}}'.format(x=3) }} {{ '{!r}'.format('q') }}
{{ '%s is %d' % ('a', 3) }} {{ '%s' % 'x' }} {{ '%5.2f|%-6s|%06d|%x|%+d' % (3.14159, 'ab', 42, 255, 7) }} {{ '%(a)s' % {'a': 1} }} {{ '100%%' % () }} {{ '%r' % ['x'] }} {{ '%.3s' % 'abcdef' }} {{ '%e' % 12345.678 }} {{ '%g' % 0.0001 }} {{ '%i' % 3.9 }} {{ '%s' % none }}
{{ '%s-%s'|format('a', 2) }} {{ '%(k)s'|format(k='v') }}
{{ xs.index(1) }} {{ xs.count(1) }} {{ [1, 1].count(1) }} {{ (1, 2).index(2) }}
{{ word|upper }} {{ word|lower }} {{ word|title }} {{ word|capitalize }} {{ "they're x-y (z) [q] <r>"|title }} {{ n|upper }} {{ none|upper }}
{{ spaced|trim }}| {{ 'xxaxx'|trim('x') }} {{ 5|trim }} {{ missing|trim }}|
{{ word|replace('o', '0') }} {{ word|replace('o', '0', 1) }} {{ 121|replace(1, 3) }}
{{ word|length }} {{ xs|count }} {{ uni|length }} {{ ''|length }} {{ d|length }}
{{ ys|join }} {{ ys|join(', ') }} {{ xs|join('-') }} {{ mixed|join('|') }} {{ people|join(', ', attribute='name') }} {{ 'abc'|join('.') }} {{ missing|join(',') }} {{ d|join(',') }} {{ xs|join(0) }}
{{ xs|first }} {{ xs|last }} {{ []|first }}| {{ []|last }}| {{ 'abc'|first }} {{ 'abc'|last }} {{ d|first }} {{ (xs|first) + 1 }}
{{ xs|sort }} {{ xs|sort(reverse=true) }} {{ ys|sort }} {{ ys|sort(case_sensitive=true) }} {{ people|sort(attribute='age')|map(attribute='name')|list }} {{ people|sort(attribute='age,name', reverse=true)|map(attribute='name')|join(',') }} {{ people|sort(true, false, 'name')|map(attribute='name')|join }}
{{ d|dictsort }} {{ {'b': 2, 'a': 3, 'C': 1}|dictsort }} {{ {'b': 2, 'a': 3, 'C': 1}|dictsort(true) }} {{ {'b': 2, 'a': 3}|dictsort(false, 'value') }} {{ {'b': 2, 'a': 3}|dictsort(reverse=true) }} {{ {'b': 2, 'a': 3}|dictsort(by='value') }}
{{ xs|min }} {{ xs|max }} {{ ys|min }} {{ ys|max }} {{ [[1, 2]|min, 3]|max }} {{ people|max(attribute='age') }} {{ []|min }}| {{ ys|max(case_sensitive=true) }}
{{ xs|sum }} {{ []|sum }} {{ people|sum(attribute='age') }} {{ [1.5, 2]|sum }} {{ xs|sum(start=10) }}
{{ [1, 2, 1, 'A', 'a']|unique|list }} {{ ['A', 'a']|unique(true)|list }} {{ people|unique(attribute='age')|map(attribute='name')|list }}
{{ xs|reverse|list }} {{ word|reverse }} {{ (1, 2)|reverse|list }} {{ d|reverse|list }}
{{ ys|map('upper')|list }} {{ ys|map('replace', 'b', 'x')|join }} {{ people|map(attribute='name')|list }} {{ people|map(attribute='tags', default='-')|list }} {{ [' a ', 'b ']|map('trim')|join('|') }} {{ people|map(attribute='tags.0', default='?')|list }} {{ [[1, 2], [3]]|map('first')|list }}
{{ xs|select('odd')|list }} {{ mixed|select|list }} {{ xs|reject('equalto', 1)|list }} {{ xs|select('gt', 1)|list }} {{ xs|select('in', [1, 2])|list }} {{ mixed|reject('string')|list }} {{ xs|select('>', 1)|list }}
{{ people|selectattr('tags')|map(attribute='name')|list }} {{ people|selectattr('age', 'equalto', 30)|map(attribute='name')|join(',') }} {{ people|rejectattr('tags', 'defined')|list|length }} {{ messages|selectattr('role', '==', 'user')|list|length }} {{ (messages|selectattr('role', 'equalto', 'user')|list)[-1].content }} {{ messages|rejectattr('role', 'in', ['user', 'tool'])|map(attribute='role')|join(' ') }}
{% if xs|select('gt', 99) %}generators are true{% endif %} {% set g = xs|map('string') %}{{ g|join(',') }}/{{ g|join(',') }} {% set g = xs|map('string') %}{{ g|first }}{{ g|first }}{{ g|list }}
{{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3]|batch(2, 'x')|list }} {{ [1, 2, 3, 4, 5]|slice(2)|list }} {{ [1, 2, 3]|slice(2, 'x')|list }}
{{ '3'|int }} {{ '3.7'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 3.9|int }} {{ -3.9|int }} {{ true|int }} {{ none|int }} {{ '0x1f'|int(base=16) }} {{ '  12 '|int }} {{ '1_000'|int }} {{ 'ff'|int(0, 16) }} {{ '1e3'|int }}
{{ '3'|float }} {{ 'x'|float }} {{ 'x'|float(1.5) }} {{ 3|float }} {{ '1e3'|float }} {{ ' 2.5 '|float }} {{ true|float }}
{{ 3|string }} {{ [1]|string }} {{ none|string|length }} {{ word|string }} {{ 'x'|safe }} {{ '<a&"b\'c>'|e }} {{ '<'|escape|length }}
{{ 'abc'|list }} {{ (1, 2)|list }} {{ d|list }} {{ range(3)|list }} {{ d.items()|list }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 42.55|round(1, 'floor') }} {{ 42.51|round(method='ceil') }} {{ 5|round }} {{ 1234.5|round|int }} {{ 0.125|round(2) }}
{{ -5|abs }} {{ (-5)|abs }} {{ (-2.5)|abs }} {{ true|abs }}
{{ missing|default }}| {{ missing|d('x') }} {{ ''|default('x') }}| {{ ''|default('x', true) }} {{ none|default('x') }} {{ none|default('x', boolean=true) }} {{ d.zz|default(d.b) }} {{ 0|d('z', true) }}
{{ lines|indent }}| {{ lines|indent(2) }}| {{ lines|indent(2, true) }}| {{ lines|indent(2, true, true) }}| {{ lines|indent('> ') }}| {{ 'a\n'|indent(1, blank=true) }}| {{ ''|indent }}|
{{ 'a long sentence that goes on'|truncate(12) }} {{ 'a long sentence that goes on'|truncate(12, true) }} {{ 'short'|truncate(12) }} {{ 'a long sentence'|truncate(11, false, '..', 0) }} {{ 'one two  three_4'|wordcount }}
{{ 'a'|center(5) }}| {{ 'ab'|center(5) }}|
{{ d|items|list }} {{ missing|items|list }} {% for k, v in d|items %}{{ k }}{% endfor %} {% for k, v in d|dictsort %}{{ k }}{% endfor %}
{{ mixed|tojson }} {{ d|tojson }} {{ word|tojson }} {{ n|tojson }} {{ f|tojson }} {{ none|tojson }} {{ true|tojson }} {{ [quote, dquote, both, ctl, uni]|tojson }} {{ big|tojson }} {{ tiny|tojson }} {{ '</script>&'|tojson }} {{ (1, 2)|tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }}
{{ tools|tojson }} {{ tools[0]|tojson(indent=2) }} {{ mixed|tojson(indent=4) }} {{ d|tojson(indent=0) }} {{ []|tojson(indent=2) }} {{ [[], {}]|tojson(indent=1) }} {{ d|tojson(sort_keys=true) }} {{ d|tojson(separators=(',', ':')) }} {{ uni|tojson(ensure_ascii=true) }} {{ '😀'|tojson(ensure_ascii=true) }} {{ d|tojson(indent='--') }}
{{ n is number }} {{ n is integer }} {{ n is float }} {{ f is float }} {{ yes is number }} {{ yes is integer }} {{ yes is boolean }} {{ word is string }} {{ xs is iterable }} {{ word is iterable }} {{ n is iterable }} {{ xs is sequence }} {{ d is sequence }} {{ word is sequence }} {{ d is mapping }} {{ xs is mapping }} {{ none is none }} {{ nothing is none }} {{ missing is none }} {{ missing is iterable }} {{ d.keys() is iterable }} {{ xs|map('string') is iterable }} {{ range(3) is sequence }} {{ xs|map('string') is sequence }}
{{ yes is true }} {{ no is false }} {{ 1 is true }} {{ none is false }} {{ 3 is odd }} {{ 4 is even }} {{ 6 is divisibleby 3 }} {{ 6 is divisibleby(4) }} {{ 'a' is lower }} {{ 'A' is upper }} {{ 'Ab' is lower }} {{ 1 is eq 1 }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 2 is ge 2 }} {{ 1 is in [1] }} {{ 'a' is in 'abc' }} {{ none is sameas none }} {{ 1 is sameas true }} {{ word is not string }} {{ missing is not defined }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ range is callable }} {{ 1 is greaterthan 0 }}
{{ word is string and n is number }} {{ not word is string }} {{ (word is string) ~ 'x' }} {{ 1 + 1 is number }} {{ 'x' if word is defined else 'y' }} {{ word is defined or no }}
{{ raise_exception is defined }} {{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y %H:%M:%S') }} {{ strftime_now('%A %B %-d') }}
{{ dict(a=1, b=2) }} {{ dict({'a': 1}, b=2) }} {{ dict([('x', 1)]) }} {{ dict(a=1).a }} {{ d.copy() == d }} {{ {'a': 1}.get('a') }}
{{ message.content if message is defined else 'none' }} {{ [1, [2, [3]]][1][1][0] }} {{ {'a': {'b': 'c'}}.a.b }} {{ 'abc'.upper().lower()[1:] }} {{ ('a' ~ 'b').upper() }} {{ [3, 4][0] + 1 }} {{ (xs|sort)[0] }}
{{ "\x41\u00e9\U0001F600\t|\101|\q|\'|\"" }} {{ 'a\
b' }} {{ 'it\'s' }} {{ "a'b" }} {{ 'tab\there' }} {{ '\\n' }} {{ '{{' }} {{ '%}' }}
{{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ 1_0.5 }} {{ 1.5e3 }} {{ 00 }} {{ 1e-3 }}
{{ true }} {{ True }} {{ false }} {{ False }} {{ none }} {{ None }} {{ true and True }} {{ True is boolean }}
{{ xs [0] }} {{ d . b }} {{ word | upper | lower }} {{ ( 1 , 2 ) [ 0 ] }} {{ [1, 2, ] }} {{ {'a': 1, } }} {{ (1, 2, ) }}
{{ tools[0].function.parameters.properties['items'] }} {{ tools[0]['function']['parameters']['required'] }} {{ tools[0].function.parameters.properties.items()|list }}
{{ d.update is defined }} {{ xs.append is defined }} {{ word.nope }}| {{ n.nope }}| {{ none.x }}| {{ n[0] }}| {{ d[xs|first] }}|
{{ missing == missing }} {{ missing == none }} {{ missing != 1 }} {{ missing in [1] }} {{ [missing] }} {{ missing ~ 'x' }} {{ missing|upper }}| {{ missing|string }}| {{ [missing]|join(',') }}|
""".strip("\n").split("\n")

# Written with explicit line feeds, since white space is what they are about.
LAYOUT = [
    "a\n{% if yes %}\nb\n{% endif %}\nc\n",
    "a\n  {% if yes %}\n  b\n  {% endif %}\nc\n\n",
    "a  {% if yes %}  b  {% endif %}  c",
    "  {{ n }}\n  {%- if yes -%}\n   x   \n {%- endif -%}\n  y",
    "a\n\n  {%- for x in xs %}\n  - {{ x }}\n  {%- endfor %}\n\nz\n",
    "{% for x in xs %}\n{{ x }}\n{% endfor %}\n",
    "{% for x in xs -%}\n  {{ x }}\n{%- endfor %}",
    "  {#- c -#}  x  {# c #}\n  {# alone #}\n y {# end #}\nz",
    "\t{% if yes %}\n\tt\n\t{%+ if yes %}\nkeep\n  {%+ endif %}\n{% endif +%}\nplus\n",
    "{%+ if yes +%}\n a\n {%- endif +%}\n b",
    "{{ n -}}   \n  x {{- n }}  y {{+n}} z",
    "{{ '\n' }}\n{{ '  ' }}|\n\n{{ 'x' }}\n\n",
    "a\r\nb\rc\n{% if yes %}\r\nd{% endif %}\r\n",
    "{% set x = 1 %}\n{% set y = 2 %}\n\n{{ x + y }}",
    "{%- set x = 'v' -%}\n\n   {{- x -}}\n\n  end  \n",
    "  {% raw %}\n  {{ raw }}\n  {% endraw %}\n  after\n",
    "{%- raw %}  a  {% endraw -%}   b",
    "{%    if   yes   %}x{%endif%}{{n}}{{   n   }}",
    "x {% if yes %}\n\n\ny{% endif %}   \n z",
    "{# a #}{# b #}\n{% if yes %}{# c #}\n{% endif %}\nd",
    "\u00a0{%- if yes %}nbsp stripped{% endif -%}\u2003 em",
    "1\n  {% if yes %}2{% endif %}\n3 {% if yes %}\n4\n   {% endif %} 5",
    "{% macro m() %}\n  body\n{% endmacro %}\n[{{ m() }}]",
    "{% set b %}\n  one\n  {% if yes %}\n  two\n  {% endif %}\n{% endset %}\n[{{ b }}]",
    "{{ [1,\n 2,\n 3] }}\n{{ {'a':\n1} }}",
    "",
    "\n",
    "\n\n",
    "{",
    "{ { } } %} }} #}",
    "{{ '}}' }}{{ '%}' }}{{ {'a': {'b': 1}}}}",
]

# Whole templates in the manner of published ones, one feature set each.
CHATML = """{%- for m in messages %}
    {%- if loop.first and m.role != 'system' %}
        {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' + m['role'] + '\\n' + (m['content'] if m['content'] is string else '') + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""
INST = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] | trim + '\\n\\n' %}{% set rest = messages[1:] %}{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}
{%- for m in rest if m.role != 'tool' %}
    {%- if m['role'] == 'user' %}{{ '[INST] ' + (system if loop.first else '') + m['content'] | trim + ' [/INST]' }}
    {%- elif m['role'] == 'assistant' %}{{ ' ' + m['content'].split('</think>')[-1] | trim + eos_token }}{%- endif %}
{%- endfor %}"""
HEADERS = """{%- set date = strftime_now('%d %b %Y') if strftime_now is defined else '26 Jul 2024' %}
{%- macro turn(role, text) %}{{ '<|start_header_id|>' ~ role ~ '<|end_header_id|>\\n\\n' ~ text|trim ~ '<|eot_id|>' }}{% endmacro %}
{{- bos_token }}{{- turn('system', 'Today Date: ' + date + '\\n\\n' + messages[0].content) }}
{%- for m in messages[1:] %}
    {%- if m.tool_calls is defined and m.tool_calls %}
        {%- for c in m.tool_calls %}{{- turn('assistant', {'name': c.function.name, 'parameters': c.function.arguments} | tojson) }}{%- endfor %}
    {%- elif m.role in ['tool', 'ipython'] %}{{- turn('ipython', m.content | tojson) }}
    {%- else %}{{- turn(m.role, m.content) }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""
SCHEMA = """{%- macro kind(p, depth=0) -%}
    {%- if p.type == 'object' -%}
        {{- '{' }}{% for k, v in p.properties | dictsort %}{{ k }}: {{ kind(v, depth + 1) }}{{ ', ' if not loop.last }}{% endfor %}{{ '}' -}}
    {%- elif p.type == 'array' -%}[{{ kind(p['items'], depth + 1) if p['items'] is mapping else 'any' }}]
    {%- else -%}{{ p.type }}@{{ depth }}{%- endif -%}
{%- endmacro -%}
{%- for t in tools %}
## {{ t.function.name }}{{ ' // ' ~ t.function.description if t.function.description }}
{{ kind(t.function.parameters) }}
{%- endfor %}"""
LASTUSER = """{%- set ns = namespace(last=-1, open=true) %}
{%- for m in messages[::-1] %}
    {%- set i = messages|length - 1 - loop.index0 %}
    {%- if ns.open and m.role == 'user' %}{%- set ns.last = i %}{%- set ns.open = false %}{%- endif %}
{%- endfor %}{{ ns.last }}
{%- for m in messages %}
    {%- if m.role == 'assistant' %}
        {%- set thought = '' %}{%- set text = m.content %}
        {%- if '</think>' in text %}
            {%- set thought = text.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set text = text.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '[' ~ thought ~ '|' ~ text ~ ']' }}
        {%- for c in m.tool_calls or [] %}{%- for k, v in c.function.arguments.items() %}
            {{- k ~ '=' ~ (v if v is string else v | tojson) ~ ';' }}{{ v }}
        {%- endfor %}{%- endfor %}
    {%- endif %}
{%- endfor %}"""
WHOLE = [CHATML, INST, HEADERS, SCHEMA, LASTUSER]

# Templates that must fail in both.
BAD = r"""
{{ missing.x }}
{{ missing['x'] }}
{{ missing + 1 }}
{{ d.x.y }}
{{ missing() }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ none + 1 }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ 1 in 5 }}
{{ 1 in 'abc' }}
{{ raise_exception('no') }}
{% for x in 5 %}{% endfor %}
{% for x in none %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% set ns = 1 %}{% set ns.x = 2 %}
{{ xs.append(1) }}
{{ d.update({}) }}
{{ d.pop('b') }}
{{ xs|nofilter }}
{{ xs is notest }}
{{ 'a'.split('') }}
{{ ','.join(xs) }}
{{ xs[::0] }}
{{ n|length }}
{{ xs|map('string')|length }}
{{ missing|tojson }}
{{ xs|map('string')|tojson }}
{{ [1, 'a']|sort }}
{{ word|dictsort }}
{{ '%d' % 'x' }}
{{ '%s %s' % 'x' }}
{{ '%s' % ('a', 'b') }}
{{ {[]: 1} }}
{{ word() }}
{{ m(1) }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(b=2) }}
{% macro m(a=1, b) %}{% endmacro %}
{{ word.index('zz') }}
{{ xs.index(99) }}
{% if %}x{% endif %}
{% if yes %}
{% endif %}
{% for x in xs %}
{% for x %}{% endfor %}
{% set %}
{% set 1 = 2 %}
{% nosuchtag %}
{{ 1 + }}
{{ (1, }}
{{ [1, 2 }}
{{ 'abc }}
{{ a b }}
{{ }}
{{ 1 | }}
{{ f(a=1, 2) }}
{{ x is a is b }}
{{ ) }}
{{ (] }}
{{ n
{# open
{% raw %} open
{% endraw %}
{{ '\x4' }}
{{ ~ 1 }}
{{ range(10**9) }}
{{ range() }}
{{ 1.upper() }}
{{ -'a' }}
{{ namespace(1) }}
{{ dict(1) }}
{{ xs|join(attribute=)}}
{% elif yes %}
{% if yes %}{% else %}{% elif no %}{% endif %}
{{ xs|batch }}
{{ word|replace('a') }}
{{ word.startswith(1) }}
""".strip("\n").split("\n")


def join_continuations(lines):
    """A snippet may go over several lines: one that leaves a quote, brace or comment open is joined with the next."""
    out = []
    for line in lines:
        if out and (out[-1].count("{{") + out[-1].count("{%") + out[-1].count("{#") >
                    out[-1].count("}}") + out[-1].count("%}") + out[-1].count("#}")):
            out[-1] += "\n" + line
        else:
            out.append(line)
    return out


def main():
    env = environment()
    cases, wrong = [], []
    for source in join_continuations(OK) + LAYOUT + WHOLE:
        try:
            cases.append({"template": source, "expected": env.from_string(source).render(**CONTEXT)})
        except Exception as error:
            wrong.append(f"{source!r}: {error}")
    for source in BAD:
        try:
            env.from_string(source).render(**CONTEXT)
        except Exception as error:
            cases.append({"template": source, "error": str(error)})
        else:
            wrong.append(f"{source!r}: rendered, should fail")
    if wrong:
        sys.exit("\n".join(wrong))
    json.dump({"made_with": "jinja2 " + jinja2.__version__, "clock": CLOCK, "context": CONTEXT, "cases": cases},
              sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main()
