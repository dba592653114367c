// ==== panels.js: menus, the settings, and the questions the page asks ====

// ---- a menu at a button: [{icon, label, run, bad}] ----

let menuButton = null;
let pressedWhileOpen = null; // the button of the menu that the press which is going on has closed

function openMenu(button, items) {
  const menu = $("menu");
  if (pressedWhileOpen === button) return;
  menu.replaceChildren(...items.map((item) => make("button", { type: "button", role: "menuitem", class: item.bad ? "bad" : null,
    on: { click: () => { menu.hidePopover(); item.run(); } } }, icon(item.icon), item.label)));
  menuButton = button;
  menu.showPopover();
  const at = button.getBoundingClientRect(), width = menu.offsetWidth, height = menu.offsetHeight;
  const below = at.bottom + 4 + height <= innerHeight;
  menu.style.left = Math.max(8, Math.min(at.right - width, innerWidth - width - 8)) + "px";
  menu.style.top = (below ? at.bottom + 4 : Math.max(8, at.top - height - 4)) + "px";
  button.setAttribute("aria-expanded", "true");
  menu.firstChild.focus();
}

function initMenu() {
  const menu = $("menu");
  menu.addEventListener("toggle", (event) => {
    if (event.newState !== "closed") return;
    if (menuButton) menuButton.setAttribute("aria-expanded", "false");
  });
  document.addEventListener("pointerdown", () => { pressedWhileOpen = menu.matches(":popover-open") ? menuButton : null; }, { capture: true });
  document.addEventListener("keydown", () => { pressedWhileOpen = null; }, { capture: true });
  menu.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const items = [...menu.children], at = items.indexOf(document.activeElement);
    items[(at + step + items.length) % items.length].focus();
  });
}

function initDialogs() {
  for (const button of document.querySelectorAll("[data-close]"))
    button.addEventListener("click", () => button.closest("dialog").close());
  for (const dialog of document.querySelectorAll("dialog.sheet, #help")) // a press beside it closes it
    dialog.addEventListener("mousedown", (event) => event.target === dialog && outside(dialog, event) && dialog.close());
}

function outside(dialog, event) {
  const at = dialog.getBoundingClientRect();
  return event.clientX < at.left || event.clientX > at.right || event.clientY < at.top || event.clientY > at.bottom;
}

// ---- settings ----

// onChange(settings): each time a value that is right was changed.
class SettingsPanel {
  constructor(onChange) {
    this.onChange = onChange;
    this.settings = {};
    this.inputs = new Map();
    for (const field of NUMBERS) $("fields").append(this.numberField(field));
    $("set-system").addEventListener("input", () => this.set("system", $("set-system").value.slice(0, 200000) || undefined));
    $("set-thinking").addEventListener("change", () => this.set("thinking", $("set-thinking").value || undefined));
    $("settings-default").addEventListener("click", () => {
      writeValue("settings", this.settings);
      $("settings-said").textContent = "Kept";
    });
    $("settings-reset").addEventListener("click", () => {
      this.settings = {};
      this.fill();
      this.onChange(this.settings);
      $("settings-said").textContent = "";
    });
  }

  numberField(field) {
    const id = "set-" + field.name;
    const input = make("input", { id, type: "text", inputmode: field.whole ? "numeric" : "decimal", autocomplete: "off", spellcheck: "false",
      "aria-describedby": id + "-hint " + id + "-problem" });
    const problem = make("p", { class: "problem", id: id + "-problem", role: "status" });
    input.addEventListener("input", () => this.readNumber(field, input, problem));
    input.addEventListener("keydown", (event) => this.step(field, input, event));
    this.inputs.set(field.name, { input, problem });
    return make("div", { class: "field" }, make("label", { class: "field-name", for: id, text: field.label }), input,
      make("p", { class: "hint", id: id + "-hint", text: field.hint }), problem);
  }

  readNumber(field, input, problem) {
    const text = input.value.trim().replace(",", ".");
    const found = text === "" ? null : numberProblem(field, text);
    problem.textContent = found || "";
    input.setAttribute("aria-invalid", String(found !== null));
    if (!found) this.set(field.name, text === "" ? undefined : Number(text));
  }

  // Arrow keys change the number, as in a number field, which would hide what it can't read.
  step(field, input, event) {
    const direction = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!direction) return;
    event.preventDefault();
    const from = input.value.trim() === "" ? Number(this.usual(field.name)) || 0 : Number(input.value);
    if (!Number.isFinite(from)) return;
    const value = Math.min(field.max, Math.max(field.min, from + direction * field.step));
    input.value = String(Math.round(value * 1e6) / 1e6);
    input.dispatchEvent(new Event("input"));
  }

  set(name, value) {
    this.settings = { ...this.settings, [name]: value };
    if (value === undefined) delete this.settings[name];
    $("settings-said").textContent = "";
    this.onChange(this.settings);
  }

  // What the model does where nothing is set.
  usual(name) {
    const sampling = server.info && server.info.sampling ? server.info.sampling : {};
    if (typeof sampling[name] !== "number") return "";
    return String(Math.round(sampling[name] * 1e4) / 1e4);
  }

  placeholder(name) {
    const usual = this.usual(name);
    if ((name === "top_k" || name === "min_p" || name === "repetition_penalty") && (usual === "0" || usual === "1")) return "off";
    if (name === "max_tokens") return "all that fits";
    return usual || (name === "seed" ? "random" : "the model's");
  }

  fill() {
    const { settings } = this;
    $("set-system").value = settings.system || "";
    $("set-thinking").value = settings.thinking || "";
    const template = (server.info && server.info.chat_template) || "";
    $("thinking-field").hidden = !template.includes("think") && !settings.thinking;
    for (const [name, { input, problem }] of this.inputs) {
      input.value = settings[name] === undefined ? "" : String(settings[name]);
      input.placeholder = this.placeholder(name);
      input.setAttribute("aria-invalid", "false");
      problem.textContent = "";
    }
  }

  open(settings) {
    this.settings = settings;
    this.fill();
    $("settings-said").textContent = "";
    if (!$("settings").open) $("settings").showModal();
  }
}

// ---- questions ----

// Gives the new name, or null.
function askName(name) {
  const dialog = $("rename-dialog"), input = $("rename");
  input.value = name;
  dialog.showModal();
  input.select();
  return new Promise((resolve) => {
    let given = null;
    $("rename-form").onsubmit = (event) => {
      event.preventDefault();
      given = input.value.trim() || null;
      dialog.close();
    };
    dialog.onclose = () => resolve(given);
  });
}

const KEY_NAME = "megadecode:key";

function storedKey() {
  try {
    return sessionStorage.getItem(KEY_NAME) || localStorage.getItem(KEY_NAME);
  } catch (forbidden) {
    return null;
  }
}

function keepKey(key, long) {
  try {
    sessionStorage.setItem(KEY_NAME, key);
    if (long) localStorage.setItem(KEY_NAME, key);
    else localStorage.removeItem(KEY_NAME);
  } catch (forbidden) { /* it works until the page is closed */ }
}

let keyQuestion = null; // the one that is open

// Sets server.key. Resolves once a key was given; onDismissed is called when the question was closed without one.
function askKey(refused, onDismissed) {
  if (!keyQuestion) keyQuestion = showKeyQuestion(refused, onDismissed).finally(() => { keyQuestion = null; });
  return keyQuestion;
}

function showKeyQuestion(refused, onDismissed) {
  const dialog = $("key-dialog");
  $("key-title").textContent = refused ? "The server refused this key" : "This server asks for a key";
  $("key").value = "";
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    $("key-form").onsubmit = (event) => {
      event.preventDefault();
      const key = $("key").value.trim();
      if (!/^[\x21-\x7e]+$/.test(key)) {
        $("key-note").textContent = "A key is made of letters, digits and signs, without spaces.";
        return;
      }
      server.key = key;
      keepKey(key, $("key-keep").checked);
      dialog.onclose = null;
      dialog.close();
      resolve();
    };
    dialog.onclose = onDismissed;
  });
}

