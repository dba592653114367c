// ==== store.js: conversations in the browser's own storage, one entry each, checked when they are read ====
//
// A conversation: {id, title, named, created, updated, settings, messages}
// A message:      {role: "user" | "assistant", text, at, [thinking, thinkMs, model, stats, finish, failure, attempt]}

const CHAT_KEY = "megadecode:chat:";
const CHATS_MAX = 500;
const MESSAGES_MAX = 2000;
const TEXT_MAX = 2000000; // characters of one message
const STORAGE_MAX = 5000000; // characters: what browsers give a page

class StorageFull extends Error {}

function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(16).padStart(2, "0")).join("");
}

// ---- checking: what is stored or imported may be anything ----

function expect(ok, where, what) {
  if (!ok) throw new Error(where + ": expected " + what);
}

const isText = (value, max = TEXT_MAX) => typeof value === "string" && value.length <= max;
const isCount = (value) => typeof value === "number" && Number.isFinite(value) && value >= 0;
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

// Figures are no loss: those that are none are left out.
function checkStats(stats) {
  const out = {};
  for (const name of ["prompt", "completion", "cached", "firstMs", "decodeMs"]) if (isCount(stats[name])) out[name] = stats[name];
  if (stats.about === true) out.about = true;
  return out;
}

function checkMessage(message, where) {
  expect(isObject(message), where, "an object");
  expect(message.role === "user" || message.role === "assistant", where + ".role", "user or assistant");
  expect(isText(message.text), where + ".text", "a text of at most " + counted.format(TEXT_MAX) + " characters");
  const out = { role: message.role, text: message.text, at: isCount(message.at) ? message.at : Date.now() };
  if (message.thinking !== undefined) {
    expect(isText(message.thinking), where + ".thinking", "a text");
    out.thinking = message.thinking;
  }
  if (isCount(message.thinkMs)) out.thinkMs = message.thinkMs;
  if (isText(message.model, 300)) out.model = message.model;
  if (isCount(message.attempt)) out.attempt = Math.floor(message.attempt);
  if (isObject(message.stats)) out.stats = checkStats(message.stats);
  if (isText(message.finish, 30)) out.finish = message.finish;
  if (isObject(message.failure) && isText(message.failure.title, 300) && isText(message.failure.detail, 3000))
    out.failure = { title: message.failure.title, detail: message.failure.detail };
  return out;
}

function checkChat(chat, where = "conversation") {
  expect(isObject(chat), where, "an object");
  expect(isText(chat.title, 1000), where + ".title", "a text");
  expect(Array.isArray(chat.messages) && chat.messages.length <= MESSAGES_MAX, where + ".messages",
    "at most " + counted.format(MESSAGES_MAX) + " messages");
  return {
    id: isText(chat.id, 40) && /^[0-9a-f]+$/.test(chat.id) ? chat.id : newId(),
    title: chat.title.slice(0, 120) || "Conversation",
    named: chat.named === true,
    created: isCount(chat.created) ? chat.created : Date.now(),
    updated: isCount(chat.updated) ? chat.updated : Date.now(),
    settings: checkSettings(chat.settings),
    messages: chat.messages.map((message, i) => checkMessage(message, where + ".messages[" + i + "]")),
  };
}

// ---- small values ----

function readValue(key, fallback = null) {
  try {
    const text = localStorage.getItem("megadecode:" + key);
    return text === null ? fallback : JSON.parse(text);
  } catch (unreadable) {
    return fallback;
  }
}

function writeValue(key, value) {
  try {
    if (value === null) localStorage.removeItem("megadecode:" + key);
    else localStorage.setItem("megadecode:" + key, JSON.stringify(value));
  } catch (full) { /* a preference that is not kept hurts nobody */ }
}

// ---- conversations ----

class Store {
  constructor() {
    this.heads = new Map(); // id -> {id, title, updated, size}
    this.unreadable = 0;
  }

  readAll() {
    this.heads.clear();
    this.unreadable = 0;
    for (let i = 0; i < this.count(); i++) {
      const key = localStorage.key(i);
      if (key && key.startsWith(CHAT_KEY)) this.readHead(key);
    }
  }

  count() {
    try {
      return localStorage.length;
    } catch (forbidden) {
      return 0;
    }
  }

  readHead(key) {
    const chat = this.load(key.slice(CHAT_KEY.length));
    if (chat) this.keepHead(chat, localStorage.getItem(key).length);
    else this.unreadable++; // left where it is: nothing that was written is thrown away unasked
  }

  // After another tab wrote or removed this entry; null: any.
  readAgain(key) {
    if (key === null) {
      this.readAll();
      return;
    }
    this.heads.delete(key.slice(CHAT_KEY.length));
    if (localStorage.getItem(key) !== null) this.readHead(key);
  }

  keepHead(chat, size) {
    this.heads.set(chat.id, { id: chat.id, title: chat.title, updated: chat.updated, size });
  }

  load(id) {
    try {
      const chat = checkChat(JSON.parse(localStorage.getItem(CHAT_KEY + id)));
      chat.id = id;
      return chat;
    } catch (unreadable) {
      return null;
    }
  }

  // Throws StorageFull, and what was stored before stays.
  save(chat) {
    if (!this.heads.has(chat.id) && this.heads.size >= CHATS_MAX)
      throw new StorageFull("There are " + CHATS_MAX + " conversations, which is the most that are kept.");
    const text = JSON.stringify(chat);
    try {
      localStorage.setItem(CHAT_KEY + chat.id, text);
    } catch (problem) {
      throw new StorageFull("This browser's storage for the page is full (" + bytesText(this.size()) + ").");
    }
    this.keepHead(chat, text.length);
  }

  remove(id) {
    localStorage.removeItem(CHAT_KEY + id);
    this.heads.delete(id);
  }

  size() {
    let sum = 0;
    for (const head of this.heads.values()) sum += head.size;
    return sum;
  }

  // Newest first.
  list() {
    return [...this.heads.values()].sort((a, b) => b.updated - a.updated);
  }
}

