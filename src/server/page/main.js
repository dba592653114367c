// ==== main.js: the page as a whole: the conversation that is open, and what keys and buttons do ====

const STARTERS = [
  "Tell me a story about a fox who finds a key in the snow.",
  "Explain how a computer plays chess, in five short sentences.",
  "Write a haiku about the first morning of winter.",
  "Give me three ideas for a rainy Sunday, as a list.",
];
const SAVE_EVERY = 1500; // ms between the savings of an answer on its way
const NEAR_END = 60; // pixels from the end at which the page follows what is new

const store = new Store();
const runs = new Map(); // id -> Run, of every conversation that is being answered
const removed = new Set(); // ids that are not to be saved again
const drafts = new Map(); // id -> what was written and not sent
let chat = null; // the open one
let views = []; // of its messages
let following = true; // the end stays in sight
let connecting = false;

// ---- notices above the messages; the first that is there is shown ----

const notices = { connection: null, storage: null };

function notice(kind, text, action = null) {
  notices[kind] = text ? { text, action } : null;
  const shown = notices.connection || notices.storage;
  $("banner").hidden = !shown;
  if (!shown) return;
  if ($("banner-text").textContent !== shown.text) $("banner-text").textContent = shown.text;
  $("banner-action").hidden = !shown.action;
  if (shown.action) {
    $("banner-action").textContent = shown.action.label;
    $("banner-action").onclick = shown.action.run;
  }
}

// ---- the server ----

function showServer() {
  const info = server.info;
  $("dot").dataset.state = server.state;
  if (!info) return;
  $("model").textContent = info.model.id + " · " + info.engine + " engine on " + info.backend;
  $("welcome-model").textContent = info.model.id;
  $("facts").textContent = [many(info.context, "token", "tokens") + " of context", bytesText(info.model.weight_bytes) + " of weights",
    info.backend === "cpu" ? info.device : info.backend + ", " + info.device].join(" · ");
  $("about").textContent = "megadecode " + info.version + ", " + info.engine + " engine on " + info.backend + ", " + info.device + ".";
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Asks until there is a key; closing the question leaves a notice that opens it again.
async function needKey() {
  $("model").textContent = "a key is needed";
  const open = { label: "Enter the key", run: () => $("key-dialog").showModal() };
  await askKey(server.key !== null, () => notice("connection", "This server asks for an API key.", open));
  notice("connection", null);
}

// Until the server is there and has its model.
async function connect() {
  if (connecting) return;
  connecting = true;
  for (let failures = 0; ; ) {
    try {
      const health = await readHealth();
      if (health.state === "ready") {
        server.info = await readProps();
        break;
      }
      failures = 0;
      server.state = "wait";
      showServer();
      $("model").textContent = health.state === "loading" ? "loading the model, " + Math.round(health.progress * 100) + " %"
        : "the server is " + health.state;
      await sleep(health.state === "loading" ? 300 : 2000);
    } catch (problem) {
      if (problem.status === 401) {
        await needKey();
        continue;
      }
      failures++;
      server.state = failures > 1 ? "bad" : "wait";
      showServer();
      if (failures > 1) notice("connection", "The server can't be reached. The page goes on trying.");
      await sleep(Math.min(5000, 250 * 2 ** failures));
    }
  }
  connecting = false;
  server.state = "ready";
  notice("connection", server.info.chat_template ? null
    : "This model has no chat template, so it can't be talked to here. Its server takes --chat-template-file.");
  showServer();
  showComposer();
  showContext();
}

// ---- the open conversation ----

function newChat() {
  const now = Date.now();
  openChat({ id: newId(), title: "New conversation", named: false, created: now, updated: now, settings: defaultSettings(), messages: [] });
}

// Of a stored one, also of one that is being answered.
function openId(id) {
  const found = runs.has(id) ? runs.get(id).chat : store.load(id);
  if (!found) return false;
  const last = found.messages[found.messages.length - 1];
  if (!runs.has(id) && last && last.role === "assistant" && !last.finish && !last.failure) last.finish = "stopped"; // the page was closed
  openChat(found);
  return true;
}

function openChat(next) {
  if (chat) drafts.set(chat.id, $("entry").value);
  chat = next;
  $("entry").value = drafts.get(chat.id) || "";
  history.replaceState(null, "", chat.messages.length ? "#" + chat.id : location.pathname + location.search);
  following = true;
  render();
  sidebar.slide(false);
  $("entry").focus();
}

function render() {
  views = chat.messages.map((message) => new MessageView(message, messageActions));
  $("messages").replaceChildren(...views.map((view) => view.element));
  const run = runs.get(chat.id);
  if (run) follow(run, views[views.length - 1]);
  showFrame();
  scrollToEnd();
}

// What is around the messages.
function showFrame() {
  $("welcome").hidden = chat.messages.length > 0;
  $("messages").hidden = chat.messages.length === 0;
  $("title").textContent = chat.title;
  document.title = chat.messages.length ? chat.title + " · megadecode" : "megadecode";
  $("chat-menu-button").hidden = chat.messages.length === 0;
  sidebar.update(chat.id, runs);
  showComposer();
  showContext();
}

function showComposer() {
  const running = runs.has(chat.id);
  $("send").hidden = running;
  $("stop").hidden = !running;
  $("messages").toggleAttribute("data-running", running);
  $("send").disabled = $("entry").value.trim() === "" || server.state !== "ready";
  if (!CSS.supports("field-sizing", "content")) {
    $("entry").style.height = "auto";
    $("entry").style.height = $("entry").scrollHeight + "px";
  }
}

function showContext() {
  const total = server.info ? server.info.context : 0;
  const run = runs.get(chat.id);
  let used = 0;
  for (const message of chat.messages) {
    const stats = message.stats;
    if (stats && stats.prompt) used = stats.prompt + stats.completion;
    else if (stats) used += stats.completion;
  }
  if (run) used += run.deltas;
  $("context").hidden = !total || !used;
  const level = used / (total || 1);
  $("context").dataset.level = level > 0.85 ? "high" : "";
  $("fill").style.width = Math.min(100, level * 100) + "%";
  $("track").setAttribute("aria-valuemax", total);
  $("track").setAttribute("aria-valuenow", Math.min(used, total));
  $("context-text").textContent = (run ? "about " : "") + counted.format(used) + " of " + counted.format(total) + " tokens" +
    (level > 0.85 ? ", nearly full" : "");
}

function save(which) {
  if (removed.has(which.id) || !which.messages.length) return;
  try {
    store.save(which);
    notice("storage", null);
  } catch (problem) {
    if (!(problem instanceof StorageFull)) throw problem;
    notice("storage", problem.message + " This conversation goes on, but what is new is not kept.",
      { label: "Export it", run: () => exportJson(which) });
  }
}

// ---- asking ----

function titleOf(text) {
  const line = text.trim().split("\n")[0].replace(/^[#>*\s-]+/, "").replace(/\s+/g, " ");
  return line.length > 80 ? line.slice(0, 77).trimEnd() + "…" : line || "Conversation";
}

function send(text) {
  if (runs.has(chat.id) || server.state !== "ready" || !text.trim()) return;
  if (chat.messages.length + 2 > MESSAGES_MAX) {
    toast("A conversation has at most " + counted.format(MESSAGES_MAX) + " messages.");
    return;
  }
  if (!chat.named && !chat.messages.length) chat.title = titleOf(text);
  chat.messages.push({ role: "user", text: text.slice(0, TEXT_MAX), at: Date.now() });
  addView(chat.messages[chat.messages.length - 1]);
  $("entry").value = "";
  drafts.delete(chat.id);
  answer(0);
  history.replaceState(null, "", "#" + chat.id);
}

// Sent at once, or written into the field where it can't be sent yet.
function useStarter(text) {
  $("entry").value = text;
  if (server.state === "ready") send(text);
  else $("entry").focus();
}

function addView(message) {
  const view = new MessageView(message, messageActions);
  views.push(view);
  $("messages").append(view.element);
  return view;
}

// Answers the open conversation, which ends with a question that had `attempt` answers before.
async function answer(attempt) {
  const run = new Run(chat, attempt, (r) => r.view && r.view.schedule()), asked = chat;
  const messages = asked.messages.slice();
  runs.set(asked.id, run);
  asked.messages.push(run.message);
  asked.updated = Date.now();
  save(asked);
  follow(run, addView(run.message));
  following = true;
  showFrame();
  scrollToEnd();
  announce("Answering");
  const saving = setInterval(() => save(asked), SAVE_EVERY);
  run.done = run.run(messages);
  await run.done;
  clearInterval(saving);
  runs.delete(asked.id);
  asked.updated = Date.now();
  save(asked);
  if (run.view) run.view.finish();
  if (asked === chat) {
    $("speed").textContent = "";
    announce(run.message.failure ? run.message.failure.title : "Answer finished. " + statsText(run.message));
    if (following) scrollToEnd();
  }
  showFrame();
  afterFailure(run, asked);
}

async function afterFailure(run, asked) {
  const problem = run.problem;
  if (!problem) return;
  if (problem.status === 401) {
    await needKey();
    await connect();
    if (chat === asked && !run.message.text && asked.messages.includes(run.message)) again(run.message);
  } else if (problem.status === 0 || problem.status === 503) {
    connect();
  }
}

// Shows a run in a view of the open conversation.
function follow(run, view) {
  let shownAt = 0;
  run.view = view;
  view.show(true);
  view.onDraw = () => {
    if (run.chat !== chat) return;
    if (following) scrollToEnd();
    if (performance.now() - shownAt < 250) return;
    shownAt = performance.now();
    const rate = rateOf(run.measured(run.deltas, true));
    $("speed").textContent = rate ? rateText(rate) : "";
    showContext();
  };
}

function stop() {
  const run = runs.get(chat.id);
  if (run) run.stop();
}

// Cuts the conversation at `index`, adds a question where one is given, and answers anew. What is cut off beyond what is
// made anew can be had back.
function rewind(index, question, attempt) {
  if (runs.has(chat.id)) return;
  const cut = chat, before = chat.messages.slice();
  chat.messages = before.slice(0, index);
  if (question) chat.messages.push(question);
  render();
  answer(attempt);
  const lost = before.length - chat.messages.length;
  if (lost > 0)
    toast(many(lost, "later message was", "later messages were") + " removed.", { label: "Undo", run: () => restore(cut, before) });
}

async function restore(cut, messages) {
  const run = runs.get(cut.id);
  if (run) {
    run.stop();
    await run.done;
  }
  cut.messages = messages;
  save(cut);
  if (chat === cut) render();
}

function again(message) {
  const index = chat.messages.indexOf(message);
  if (index > 0) rewind(index, null, (message.attempt || 0) + (message.text ? 1 : 0));
}

const messageActions = {
  again,
  edit(message, text) {
    const index = chat.messages.indexOf(message);
    if (index === 0 && !chat.named) chat.title = titleOf(text);
    rewind(index, { role: "user", text, at: Date.now() }, 0);
  },
};

// ---- conversations: rename, export, delete, import ----

const loaded = (id) => (chat && chat.id === id ? chat : runs.has(id) ? runs.get(id).chat : store.load(id));

async function rename(id) {
  const which = loaded(id);
  const name = which && (await askName(which.title));
  if (!name) return;
  which.title = name;
  which.named = true;
  save(which);
  showFrame();
}

function exportJson(which) {
  download(fileName(which.title, ".json"), "application/json", toJson([which]));
}

function exportMarkdown(which) {
  download(fileName(which.title, ".md"), "text/markdown", toMarkdown(which));
}

function removeChat(id) {
  const which = loaded(id);
  if (!which) return;
  if (runs.has(id)) runs.get(id).stop();
  removed.add(id);
  store.remove(id);
  notice("storage", null);
  if (chat.id === id) newChat();
  else showFrame();
  toast("Deleted: " + which.title, { label: "Undo", run: () => {
    removed.delete(id);
    save(which);
    openChat(which);
  } });
}

function chatMenu(id, button) {
  openMenu(button, [
    { icon: "pencil", label: "Rename", run: () => rename(id) },
    { icon: "export", label: "Export as Markdown", run: () => exportMarkdown(loaded(id)) },
    { icon: "export", label: "Export as JSON", run: () => exportJson(loaded(id)) },
    { icon: "trash", label: "Delete", bad: true, run: () => removeChat(id) },
  ]);
}

function exportAll() {
  download("megadecode-conversations.json", "application/json", toJson(store.list().map((head) => loaded(head.id)).filter(Boolean)));
}

async function importChosen() {
  const [file] = $("import-file").files;
  if (!file) return;
  $("import-file").value = "";
  let done = 0, all = 0;
  try {
    const chats = await importFile(file);
    all = chats.length;
    for (; done < all; done++) store.save(chats[done]);
    if (all) openId(chats[0].id);
    toast(many(all, "conversation", "conversations") + " imported.");
  } catch (problem) {
    toast(problem instanceof StorageFull ? done + " of " + all + " imported. " + problem.message
      : "The file can't be imported: " + problem.message + ".", { label: "Close", run: () => {} });
    showFrame();
  }
}

// ---- where the page is scrolled to ----

function scrollToEnd() {
  const area = $("scroll");
  area.scrollTop = area.scrollHeight;
}

function onScroll() {
  const area = $("scroll");
  following = area.scrollHeight - area.scrollTop - area.clientHeight < NEAR_END;
  $("to-end").hidden = following;
}

// ---- keys, buttons, other tabs ----

const sidebar = new Sidebar(store, { open: (id) => openId(id) || toast("This conversation can't be read."), menu: chatMenu });
const settingsPanel = new SettingsPanel((settings) => {
  chat.settings = settings;
  save(chat);
});

function onKey(event) {
  const above = document.querySelector("dialog[open]") || $("menu").matches(":popover-open");
  if (event.key === "Escape" && !above && !event.defaultPrevented) {
    if (sidebar.isOpen) sidebar.slide(false);
    else stop();
  }
  if (!(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
  const what = { k: newChat, ",": () => settingsPanel.open(chat.settings), "/": () => $("help").showModal() }[event.key.toLowerCase()];
  if (!what) return;
  event.preventDefault();
  if (!above) what();
}

function onEntryKey(event) {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send($("entry").value);
  } else if (event.key === "ArrowUp" && $("entry").value === "" && !runs.has(chat.id)) {
    const mine = views.filter((view) => view.message.role === "user").pop();
    if (!mine) return;
    event.preventDefault();
    mine.beginEdit();
  }
}

function setTheme(choice) {
  document.documentElement.dataset.theme = choice;
  writeValue("theme", choice === "auto" ? null : choice);
  for (const button of document.querySelectorAll("[data-theme-choice]"))
    button.setAttribute("aria-checked", String(button.dataset.themeChoice === choice));
}

function initTheme() {
  const kept = readValue("theme", "auto");
  setTheme(["auto", "light", "dark"].includes(kept) ? kept : "auto");
  for (const button of document.querySelectorAll("[data-theme-choice]"))
    button.addEventListener("click", () => setTheme(button.dataset.themeChoice));
}

// The page is closed or loaded anew: what has arrived is kept, as stopped.
function leave() {
  for (const run of runs.values()) {
    run.stop();
    run.message.finish = "stopped";
    save(run.chat);
  }
}

// Another tab wrote to the storage.
function onStorage(event) {
  if (event.key !== null && !event.key.startsWith(CHAT_KEY)) return;
  store.readAgain(event.key);
  const changed = event.key === CHAT_KEY + chat.id && event.newValue;
  if (changed && !runs.has(chat.id) && !document.querySelector(".edit")) openId(chat.id);
  else showFrame();
}

function initButtons() {
  $("new-chat").addEventListener("click", newChat);
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send($("entry").value);
  });
  $("entry").addEventListener("keydown", onEntryKey);
  $("entry").addEventListener("input", showComposer);
  $("stop").addEventListener("click", stop);
  $("open-settings").addEventListener("click", () => settingsPanel.open(chat.settings));
  $("open-help").addEventListener("click", () => $("help").showModal());
  $("chat-menu-button").addEventListener("click", (event) => chatMenu(chat.id, event.currentTarget));
  $("export-all").addEventListener("click", exportAll);
  $("import").addEventListener("click", () => $("import-file").click());
  $("import-file").addEventListener("change", importChosen);
  $("scroll").addEventListener("scroll", onScroll, { passive: true });
  $("to-end").addEventListener("click", scrollToEnd);
  $("messages").addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copyFrom(button, button.closest(".code").querySelector("code").textContent);
  });
  for (const text of STARTERS) $("starters").append(make("button", { type: "button", text, on: { click: () => useStarter(text) } }));
  document.addEventListener("keydown", onKey);
  document.addEventListener("visibilitychange", () => document.hidden || connect());
  window.addEventListener("storage", onStorage);
  window.addEventListener("pagehide", leave);
  window.addEventListener("hashchange", () => location.hash.slice(1) !== chat.id && openId(location.hash.slice(1)));
}

server.key = storedKey();
nameModifier();
initTheme();
initMenu();
initDialogs();
initButtons();
store.readAll();
if (!openId(location.hash.slice(1))) newChat();
connect();
