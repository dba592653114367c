// ==== inline.js: the Markdown inside a line: emphasis, code, links ====
//
// One pass with a stack of what is open. The stack is bounded, so that the work is linear in the text and the elements
// nest no deeper than it, whatever the text is. What is not understood stays text.

const OPEN_MAX = 24; // marks that are open at the same time, and so the depth of elements
const URL_MAX = 2000;
const PARENS_MAX = 32; // inside each other in an address
const SPECIAL = /[\\`*_~[\]<!]|https?:\/\//g;
const WORD_CHARACTER = /[\p{L}\p{N}]/u;
const ESCAPED = /[!-/:-@[-`{-~]/;
const BARE_URL = /https?:\/\/[^\s<>"'`|\\^{}[\]]{1,2000}/y;

// The address of a link that may be followed, or null: http and https only, and no name before an @ that looks like a host.
function safeAddress(text) {
  let url;
  try {
    url = new URL(text);
  } catch (bad) {
    return null;
  }
  return (url.protocol === "https:" || url.protocol === "http:") && !url.username && !url.password ? url.href : null;
}

function linkTo(address) {
  return make("a", { href: address, title: address, rel: "noopener noreferrer", target: "_blank" });
}

function addItem(items, item) {
  const last = items.length - 1;
  if (typeof item === "string" && typeof items[last] === "string") items[last] += item;
  else if (item !== "") items.push(item);
}

class InlineParser {
  constructor(text) {
    this.text = text;
    this.frames = [{ mark: "", items: [] }]; // the outermost has no mark
    this.ticks = null; // length of a run of backticks -> where such runs begin, in order
  }

  get top() {
    return this.frames[this.frames.length - 1];
  }

  put(item) {
    addItem(this.top.items, item);
  }

  // A frame whose closing mark never came is its mark as text, and what it holds.
  flatten(index) {
    const [frame] = this.frames.splice(index, 1);
    const into = this.frames[index - 1].items;
    if (frame.mark === "[") addItem(into, frame.image ? "![" : "[");
    else addItem(into, frame.mark.repeat(frame.count));
    for (const item of frame.items) addItem(into, item);
  }

  flattenAbove(index) {
    while (this.frames.length - 1 > index) this.flatten(this.frames.length - 1);
  }

  open(frame) {
    if (this.frames.length > OPEN_MAX) this.flatten(1); // the oldest is the least likely to be closed
    this.frames.push(frame);
  }

  find(mark) {
    for (let i = this.frames.length - 1; i > 0; i--) if (this.frames[i].mark === mark) return i;
    return 0;
  }

  wrap(tag, items) {
    const node = document.createElement(tag);
    for (const item of items) node.append(item);
    return node;
  }

  // ---- the marks ----

  // A run of `count` marks * _ ~ at `at`.
  emphasis(mark, at, count) {
    const before = this.text[at - 1] || " ", after = this.text[at + count] || " ";
    let opens = !/\s/.test(after), closes = !/\s/.test(before);
    if (mark === "_") {
      opens = opens && !WORD_CHARACTER.test(before);
      closes = closes && !WORD_CHARACTER.test(after);
    }
    if (count > 3 || (mark === "~" && count !== 2)) opens = closes = false;
    let left = count;
    while (closes && left > 0) {
      const index = this.find(mark);
      if (!index) break;
      const frame = this.frames[index];
      if (mark === "~" && frame.count !== 2) break;
      this.flattenAbove(index);
      const used = frame.count >= 2 && left >= 2 ? 2 : 1;
      frame.items = [this.wrap(mark === "~" ? "del" : used === 2 ? "strong" : "em", frame.items)];
      frame.count -= used;
      left -= used;
      if (frame.count > 0) continue;
      this.frames.pop();
      this.put(frame.items[0]);
    }
    if (left > 0 && opens) this.open({ mark, count: left, items: [] });
    else if (left > 0) this.put(mark.repeat(left));
  }

  // Where the run of `count` backticks that closes the one at `at` begins, or -1.
  closingTicks(at, count) {
    if (!this.ticks) {
      this.ticks = new Map();
      for (const run of this.text.matchAll(/`+/g)) {
        if (!this.ticks.has(run[0].length)) this.ticks.set(run[0].length, { at: [], next: 0 });
        this.ticks.get(run[0].length).at.push(run.index);
      }
    }
    const runs = this.ticks.get(count);
    while (runs.next < runs.at.length && runs.at[runs.next] <= at) runs.next++;
    return runs.next < runs.at.length ? runs.at[runs.next] : -1;
  }

  code(at) {
    let count = 1;
    while (this.text[at + count] === "`") count++;
    const end = this.closingTicks(at, count);
    if (end < 0) {
      this.put("`".repeat(count));
      return at + count;
    }
    let inside = this.text.slice(at + count, end).replace(/\n/g, " ");
    if (inside.length > 2 && inside.startsWith(" ") && inside.endsWith(" ") && inside.trim()) inside = inside.slice(1, -1);
    this.put(make("code", { text: inside }));
    return end + count;
  }

  // "](address)" or "](address "title")" at `at`: {address, end}, or null.
  target(at) {
    if (this.text[at + 1] !== "(") return null;
    let depth = 1, end = at + 2;
    const limit = Math.min(this.text.length, at + 2 + URL_MAX);
    for (; end < limit; end++) {
      const c = this.text[end];
      if (c === "\n" || depth > PARENS_MAX) return null;
      if (c === "(") depth++;
      if (c === ")" && --depth === 0) break;
    }
    if (depth !== 0) return null;
    const inside = this.text.slice(at + 2, end).trim();
    const space = inside.search(/\s/);
    let address = space < 0 ? inside : inside.slice(0, space);
    if (address.startsWith("<") && address.endsWith(">")) address = address.slice(1, -1);
    return { address: safeAddress(address), end: end + 1 };
  }

  closeBracket(at) {
    const index = this.find("[");
    const target = index ? this.target(at) : null;
    if (!index || !target || !target.address || this.frames[index].inLink) {
      if (index) {
        this.flattenAbove(index);
        this.flatten(index);
      }
      this.put("]");
      return at + 1;
    }
    this.flattenAbove(index);
    const frame = this.frames.pop();
    const link = linkTo(target.address);
    for (const item of frame.items) link.append(item);
    if (!frame.items.length) link.append(target.address);
    for (const outer of this.frames) if (outer.mark === "[") outer.inLink = true; // no link inside a link
    this.put(link);
    return target.end;
  }

  angle(at) {
    const rest = this.text.slice(at, at + URL_MAX);
    const line = /^<br ?\/?>/i.exec(rest);
    if (line) {
      this.put(document.createElement("br"));
      return at + line[0].length;
    }
    const auto = /^<(https?:\/\/[^\s<>]+)>/i.exec(rest);
    const address = auto && safeAddress(auto[1]);
    if (!address) {
      this.put("<");
      return at + 1;
    }
    const link = linkTo(address);
    link.append(auto[1]);
    this.put(link);
    return at + auto[0].length;
  }

  bareUrl(at) {
    BARE_URL.lastIndex = at;
    const found = BARE_URL.exec(this.text);
    const all = found ? found[0] : "";
    let excess = all.split(")").length - all.split("(").length; // closing parentheses that belong to the sentence
    let end = all.length;
    for (; end > 0 && ".,;:!?*_~)".includes(all[end - 1]); end--)
      if (all[end - 1] === ")" && excess-- <= 0) break;
    const url = all.slice(0, end);
    const inWord = at > 0 && /[A-Za-z0-9]/.test(this.text[at - 1]);
    const address = !inWord && this.find("[") === 0 && url.length > 8 ? safeAddress(url) : null;
    if (!address) {
      this.put("http");
      return at + 4;
    }
    const link = linkTo(address);
    link.append(url);
    this.put(link);
    return at + url.length;
  }

  step(at) {
    const c = this.text[at];
    switch (c) {
    case "\\":
      if (!ESCAPED.test(this.text[at + 1] || "")) break;
      this.put(this.text[at + 1]);
      return at + 2;
    case "`": return this.code(at);
    case "*": case "_": case "~": {
      let count = 1;
      while (this.text[at + count] === c) count++;
      this.emphasis(c, at, count);
      return at + count;
    }
    case "!":
      if (this.text[at + 1] !== "[") break;
      this.open({ mark: "[", image: true, items: [] });
      return at + 2;
    case "[":
      this.open({ mark: "[", items: [] });
      return at + 1;
    case "]": return this.closeBracket(at);
    case "<": return this.angle(at);
    case "h": return this.bareUrl(at);
    }
    this.put(c);
    return at + 1;
  }

  parse() {
    let at = 0;
    while (at < this.text.length) {
      SPECIAL.lastIndex = at;
      const found = SPECIAL.exec(this.text);
      const next = found ? found.index : this.text.length;
      if (next > at) this.put(this.text.slice(at, next));
      at = found ? this.step(next) : next;
    }
    this.flattenAbove(0);
    return this.frames[0].items;
  }
}

function appendInline(node, text) {
  for (const item of new InlineParser(text).parse()) node.append(item);
  return node;
}

