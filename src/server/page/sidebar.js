// ==== sidebar.js: the list of conversations ====

const DAY = 86400000;
const FILTER_FROM = 8; // conversations from which on there is a field to find one

function dayName(at, today) {
  if (at >= today) return "Today";
  if (at >= today - DAY) return "Yesterday";
  return at >= today - 7 * DAY ? "Last seven days" : "Earlier";
}

// actions: {open(id), menu(id, button)}
class Sidebar {
  constructor(store, actions) {
    this.store = store;
    this.actions = actions;
    $("filter").addEventListener("input", () => this.show());
    $("open-sidebar").addEventListener("click", () => this.slide(true));
    $("close-sidebar").addEventListener("click", () => this.slide(false));
    $("shade").addEventListener("click", () => this.slide(false));
  }

  get isOpen() {
    return $("app").dataset.side === "open";
  }

  // On narrow screens the list slides over the page.
  slide(open) {
    if (open === this.isOpen) return;
    $("app").dataset.side = open ? "open" : "";
    $("open-sidebar").setAttribute("aria-expanded", String(open));
    (open ? $("close-sidebar") : $("open-sidebar")).focus();
  }

  row(head) {
    const more = iconButton("more", "Rename, export, delete: " + head.title, (event) => this.actions.menu(head.id, event.currentTarget),
      { "aria-haspopup": "menu", "aria-expanded": "false", title: "Rename, export, delete" });
    const current = head.id === this.current;
    return make("li", { "data-current": current, "data-id": head.id },
      this.running.has(head.id) ? make("span", { class: "busy", role: "img", "aria-label": "Answering" }) : null,
      make("button", { class: "chat-open", type: "button", text: head.title, title: head.title, "aria-current": current ? "page" : null,
        on: { click: () => this.actions.open(head.id) } }), more);
  }

  // running: the ids of conversations that are being answered.
  update(current, running) {
    this.current = current;
    this.running = running;
    this.show();
  }

  show() {
    const all = this.store.list(), wanted = $("filter").value.trim().toLowerCase();
    $("filter-box").hidden = all.length < FILTER_FROM && !wanted;
    const heads = wanted ? all.filter((head) => head.title.toLowerCase().includes(wanted)) : all;
    const today = new Date().setHours(0, 0, 0, 0);
    const out = document.createDocumentFragment();
    let group = "", rows = null;
    for (const head of heads) {
      const name = dayName(head.updated, today);
      if (name !== group) {
        group = name;
        rows = make("ul");
        out.append(make("h2", { text: name }), rows);
      }
      rows.append(this.row(head));
    }
    if (!heads.length) out.append(make("p", { class: "none", text: wanted ? "Nothing found." : "Conversations stay in this browser and are listed here." }));
    $("chats").replaceChildren(out);
    this.showStorage(all.length);
  }

  showStorage(count) {
    const size = this.store.size(), full = size > 0.8 * STORAGE_MAX;
    const parts = [many(count, "conversation", "conversations") + ", " + bytesText(size) + (full ? " of about " + bytesText(STORAGE_MAX) : "")];
    if (this.store.unreadable) parts.push(this.store.unreadable + " unreadable");
    $("storage").textContent = count || this.store.unreadable ? parts.join("; ") : "";
    $("storage").toggleAttribute("data-full", full);
    $("export-all").disabled = count === 0;
  }
}

