// ==== dom.js: making elements. Text goes in as text: nothing in this page turns a string into HTML. ====

const $ = (id) => document.getElementById(id);

// make("p", {class: "x", text: "...", on: {click: f}}, child, ...). Attributes that are null or false are left out.
function make(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "on") for (const event of Object.keys(value)) node.addEventListener(event, value[event]);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null && child !== undefined) node.append(child);
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

// One of the symbols in page.html.
function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", "#i-" + name);
  svg.append(use);
  return svg;
}

function iconButton(name, label, click, props = {}) {
  return make("button", { class: "quiet", type: "button", "aria-label": label, title: label, on: { click }, ...props }, icon(name));
}

// What the keyboard calls the key that the shortcuts are with.
function nameModifier() {
  if (!/Mac|iPhone|iPad/.test(navigator.platform)) return;
  for (const key of document.querySelectorAll("kbd")) key.textContent = key.textContent.replace("Ctrl", "⌘");
}

// ---- numbers as people read them ----

const counted = new Intl.NumberFormat("en-US");

function many(n, one, more) {
  return counted.format(n) + " " + (n === 1 ? one : more);
}

function bytesText(n) {
  if (n < 1000) return n + " bytes";
  if (n < 1e6) return Math.round(n / 1e3) + " kB";
  if (n < 1e9) return (n / 1e6).toFixed(n < 1e7 ? 1 : 0) + " MB";
  return (n / 1e9).toFixed(1) + " GB";
}

function secondsText(ms) {
  const s = ms / 1000;
  if (s < 10) return s.toFixed(1) + " s";
  return s < 90 ? Math.round(s) + " s" : Math.round(s / 60) + " min";
}

// ---- what is said without being looked for ----

// To screen readers alone.
function announce(text) {
  $("live").textContent = text;
}

// A short notice; with an action it stays longer.
function toast(text, action = null) {
  const node = make("div", { class: "toast" }, make("span", { text }));
  const gone = () => node.remove();
  if (action) {
    const press = () => {
      gone();
      action.run();
    };
    node.append(make("button", { class: "plain", type: "button", text: action.label, on: { click: press } }));
  }
  $("toasts").append(node);
  while ($("toasts").children.length > 3) $("toasts").firstChild.remove();
  setTimeout(gone, action ? 10000 : 4500);
}

// The clipboard's own interface exists for https and this machine only; other pages have the old way.
async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch (refused) { /* the old way below */ }
  }
  const area = make("textarea", { class: "unseen", "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

// Copies and shows a check mark for a moment.
async function copyFrom(button, text) {
  if (!(await copyText(text))) {
    toast("The browser does not let this page copy.");
    return;
  }
  const was = button.querySelector(".icon");
  const check = icon("check");
  was.replaceWith(check);
  announce("Copied");
  setTimeout(() => check.replaceWith(was), 1400);
}

function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = make("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

