// ==== markdown.js: blocks, and a view that follows a text as it grows ====

const NEST_MAX = 8; // lists and quotes inside each other; deeper ones are text
const COLUMNS_MAX = 40;
const PROSE_MAX = 400000; // characters shown as Markdown; what is beyond is shown as it is
const BLOCKS_MAX = 4000; // the same for blocks that are not in others
const MARK_MAX = 200; // a line that is a mark as a whole is no longer than this

const FENCE = /^( {0,3})(`{3,}|~{3,})([^`]*)$/;
const RULE = /^ {0,3}(?:(?:\* *){3,}|(?:- *){3,}|(?:_ *){3,})$/;
const HEADING = /^ {0,3}(#{1,6})(?= |$)/;
const QUOTE = /^ {0,3}>/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: {1,4}(?=\S)| *$| )/;
const TASK = /^\[([ xX])\] /;
const DIVIDER = /^\|?:?-+:?(?:\|:?-+:?)*\|?$/; // without its spaces

const indentOf = (line) => line.length - line.trimStart().length;
const isBlank = (line) => line.trim() === "";
const isRule = (line) => line.length <= MARK_MAX && RULE.test(line);
const isFence = (line) => FENCE.test(line.slice(0, 400));

function itemOf(line) {
  const found = ITEM.exec(line.slice(0, 400));
  return found && !isRule(line) ? { indent: found[1].length, mark: found[2], content: found[0].length } : null;
}

function isTable(lines, at) {
  const below = lines[at + 1];
  if (below === undefined || below.length > 10 * MARK_MAX || !below.includes("-") || !lines[at].includes("|")) return false;
  return DIVIDER.test(below.replaceAll(" ", "")) && cells(lines[at]).length === cells(below).length;
}

function startsBlock(lines, at) {
  const line = lines[at];
  if (isFence(line) || HEADING.test(line) || QUOTE.test(line) || isRule(line) || isTable(lines, at)) return true;
  const item = itemOf(line);
  return item !== null && (/^[-*+]$/.test(item.mark) || /^1[.)]$/.test(item.mark)) && line.length > item.content;
}

// ---- each kind of block: makes a node of the lines from `at` on; gives the line after it ----

function codeBlock(lines, at) {
  const [, indent, fence, info] = FENCE.exec(lines[at].slice(0, 400));
  const language = info.trim().split(/\s/)[0].slice(0, 40);
  const outdent = new RegExp("^ {0," + indent.length + "}");
  const body = [];
  let next = at + 1;
  for (; next < lines.length; next++) {
    const line = lines[next].trim();
    if (line.length >= fence.length && line.length < MARK_MAX && line === fence[0].repeat(line.length)) break;
    body.push(lines[next].replace(outdent, ""));
  }
  const text = body.join("\n");
  const copy = make("button", { class: "quiet", type: "button", "data-copy": true, "aria-label": "Copy the code" }, icon("copy"), "Copy");
  const node = make("div", { class: "code" },
    make("div", { class: "code-head" }, make("span", { text: language || "text" }), copy),
    make("pre", { tabindex: "0" }, make("code", {}, highlight(text, language))));
  return { node, next: next + 1 };
}

function heading(lines, at) {
  const level = HEADING.exec(lines[at])[1].length;
  let text = lines[at].trim().slice(level).trim();
  const bare = text.replace(/#{1,100}$/, "");
  if (bare === "" || bare.endsWith(" ")) text = bare.trim(); // "## Title ##"
  return { node: appendInline(make("h" + level), text), next: at + 1 };
}

function quote(lines, at, depth) {
  const inside = [];
  let next = at;
  for (; next < lines.length && QUOTE.test(lines[next]); next++) inside.push(lines[next].trimStart().slice(1).replace(/^ /, ""));
  const node = make("blockquote");
  for (const block of parseBlocks(inside, depth + 1)) node.append(block.node);
  return { node, next };
}

// The lines of the item at `at`, with its mark and indent taken off.
function listItem(lines, at, item, depth) {
  const inside = [lines[at].slice(item.content).replace(TASK, (all, mark) => (mark === " " ? "☐ " : "☑ "))];
  const enough = Math.min(item.content, item.indent + 2);
  let next = at + 1, blank = false, loose = false;
  for (; next < lines.length; next++) {
    const line = lines[next];
    if (isBlank(line)) {
      blank = true;
      inside.push("");
      continue;
    }
    const indent = indentOf(line);
    if (indent < enough && (blank || itemOf(line) || startsBlock(lines, next))) break;
    if (blank) loose = true;
    blank = false;
    inside.push(line.slice(Math.min(indent, item.content)));
  }
  const node = make("li");
  const blocks = parseBlocks(inside, depth + 1);
  for (const block of blocks) {
    // A tight item is its text, without a paragraph around it.
    if (!loose && block.node.tagName === "P") while (block.node.firstChild) node.append(block.node.firstChild);
    else node.append(block.node);
  }
  return { node, next };
}

function list(lines, at, depth) {
  const first = itemOf(lines[at]);
  const ordered = /\d/.test(first.mark);
  const start = ordered ? parseInt(first.mark, 10) : 1;
  const node = make(ordered ? "ol" : "ul", ordered && start !== 1 ? { start } : {});
  let next = at;
  while (next < lines.length) {
    const item = itemOf(lines[next]);
    if (!item || /\d/.test(item.mark) !== ordered || item.indent > first.indent + 3) break;
    const made = listItem(lines, next, item, depth);
    node.append(made.node);
    next = made.next;
  }
  return { node, next };
}

// A row's cells; a bar that is escaped or in code does not part them.
function cells(line) {
  const out = [];
  let text = "", ticks = false;
  const row = line.trim();
  for (let i = row.startsWith("|") ? 1 : 0; i < row.length && out.length < COLUMNS_MAX; i++) {
    const c = row[i];
    if (c === "\\" && row[i + 1] === "|") text += row[++i];
    else if (c === "|" && !ticks) {
      out.push(text.trim());
      text = "";
    } else {
      if (c === "`") ticks = !ticks;
      text += c;
    }
  }
  if (text.trim() || !row.endsWith("|")) out.push(text.trim());
  return out.slice(0, COLUMNS_MAX);
}

function table(lines, at) {
  const align = cells(lines[at + 1]).map((c) => (c.endsWith(":") ? (c.startsWith(":") ? "center" : "right") : null));
  const row = (line, tag) => {
    const tr = make("tr"), texts = cells(line);
    for (let i = 0; i < align.length; i++) tr.append(appendInline(make(tag, { "data-align": align[i] }), texts[i] || ""));
    return tr;
  };
  const body = make("tbody");
  let next = at + 2;
  for (; next < lines.length && lines[next].includes("|") && !isBlank(lines[next]); next++) body.append(row(lines[next], "td"));
  const node = make("div", { class: "table", tabindex: "0" }, make("table", {}, make("thead", {}, row(lines[at], "th")), body));
  return { node, next };
}

function paragraph(lines, at) {
  const inside = [lines[at].trimStart()];
  let next = at + 1;
  for (; next < lines.length && !isBlank(lines[next]) && !startsBlock(lines, next); next++) inside.push(lines[next]);
  return { node: appendInline(make("p"), inside.join("\n").trimEnd()), next };
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  if (isFence(line)) return codeBlock(lines, at);
  if (HEADING.test(line)) return heading(lines, at);
  if (isRule(line)) return { node: make("hr"), next: at + 1 };
  if (QUOTE.test(line) && depth < NEST_MAX) return quote(lines, at, depth);
  if (itemOf(line) && depth < NEST_MAX) return list(lines, at, depth);
  if (isTable(lines, at)) return table(lines, at);
  return paragraph(lines, at);
}

// [{node, line, next}]: at most so many blocks, the line at which each begins, and the one after it.
function parseBlocks(lines, depth, most = Infinity) {
  const out = [];
  for (let at = 0; at < lines.length && out.length < most; ) {
    if (isBlank(lines[at])) {
      at++;
      continue;
    }
    const made = blockAt(lines, at, depth);
    out.push({ node: made.node, line: at, next: made.next });
    at = made.next;
  }
  return out;
}

// Shows a text as Markdown inside `root`. When the text grows only what is not settled is made anew: a block is settled
// once another one has begun after it.
class MarkdownView {
  constructor(root) {
    this.root = root;
    this.clear();
  }

  clear() {
    this.root.replaceChildren();
    this.text = "";
    this.settled = 0; // characters of the text
    this.count = 0; // blocks in them
    this.open = []; // the nodes after them
  }

  set(text) {
    if (!text.startsWith(this.text) || text.length < this.text.length) this.clear();
    if (text === this.text && text !== "") return;
    this.text = text;
    for (const node of this.open) node.remove();
    const end = Math.max(PROSE_MAX, this.settled), most = BLOCKS_MAX - this.count;
    const lines = text.slice(this.settled, end).split("\n");
    const blocks = parseBlocks(lines, 0, most);
    for (const block of blocks) this.root.append(block.node);
    const last = blocks[blocks.length - 1];
    for (let i = 0; last && i < last.line; i++) this.settled += lines[i].length + 1;
    this.count += Math.max(0, blocks.length - 1);
    this.open = last ? [last.node] : [];
    const rest = (blocks.length === most ? lines.slice(last.next).join("\n") : "") + text.slice(end);
    if (!rest) return;
    const plain = make("p", { text: rest });
    this.root.append(plain);
    this.open.push(plain);
  }
}

