// ==== message_view.js: a message on the page ====

const SLOW_FACTOR = 5; // an answer on its way is drawn again after this many times what drawing it took

class MessageView {
  // actions: {edit(message, text), again(message)}; both are the page's.
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.element = make("article", { class: "message " + message.role, "aria-label": message.role === "user" ? "You" : "Answer" });
    if (message.role === "user") this.buildUser();
    else this.buildAnswer();
  }

  // ---- what was asked ----

  buildUser() {
    this.bubble = make("div", { class: "bubble", dir: "auto", text: this.message.text });
    this.foot = make("div", { class: "foot" },
      iconButton("pencil", "Edit", () => this.beginEdit(), { "data-changes": true }),
      iconButton("copy", "Copy", (event) => copyFrom(event.currentTarget, this.message.text)));
    this.element.replaceChildren(this.bubble, this.foot);
  }

  beginEdit() {
    const area = make("textarea", { "aria-label": "Edit your message", rows: 2, dir: "auto" });
    area.value = this.message.text;
    const cancel = () => {
      this.buildUser();
      this.foot.querySelector("button").focus();
    };
    const send = () => {
      const text = area.value.trim();
      if (text) this.actions.edit(this.message, text);
    };
    area.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Escape") cancel();
      else if (event.key === "Enter" && !event.shiftKey) send();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    const foot = make("div", { class: "edit-foot" }, make("span", { class: "note", text: "What follows is answered anew." }),
      make("button", { class: "button", type: "button", text: "Cancel", on: { click: cancel } }),
      make("button", { class: "button strong", type: "button", text: "Send", on: { click: send } }));
    this.element.replaceChildren(make("div", { class: "edit" }, area, foot));
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }

  // ---- what was answered ----

  buildAnswer() {
    this.thought = make("div", { class: "thought", dir: "auto" });
    this.thoughtHead = make("span");
    this.thinking = make("details", { class: "thinking", hidden: true }, make("summary", {}, icon("right"), this.thoughtHead), this.thought);
    this.prose = make("div", { class: "prose", dir: "auto" });
    this.markdown = new MarkdownView(this.prose);
    this.waiting = make("div", { class: "waiting", "aria-hidden": "true", hidden: true }, make("i"), make("i"), make("i"));
    this.failure = make("div", { hidden: true });
    this.stats = make("span", { class: "stats" });
    this.foot = make("div", { class: "foot" },
      iconButton("copy", "Copy", (event) => copyFrom(event.currentTarget, this.message.text)),
      iconButton("again", "Answer again", () => this.actions.again(this.message), { "data-changes": true }), this.stats);
    this.element.append(this.thinking, this.prose, this.waiting, this.failure, this.foot);
    this.show(false);
  }

  // busy: more is coming.
  show(busy) {
    const { message } = this;
    this.element.setAttribute("aria-busy", String(busy));
    this.showThinking(busy);
    this.markdown.set(message.text);
    this.waiting.hidden = !busy || message.text !== "" || message.thinking !== undefined;
    this.showFailure(busy ? null : message.failure);
    this.stats.textContent = busy ? "" : statsText(message);
    this.foot.hidden = busy || (message.text === "" && message.failure !== undefined);
  }

  showThinking(busy) {
    const { thinking, text, thinkMs } = this.message;
    this.thinking.hidden = !thinking;
    if (!thinking) return;
    const going = busy && text === "";
    this.thinking.toggleAttribute("data-busy", going);
    this.thoughtHead.textContent = going ? "Thinking" : thinkMs >= 100 ? "Thought for " + secondsText(thinkMs) : "Thought";
    // Only the end is new, and an element of text alone is cheap to append to.
    const shown = this.thought.textContent.length;
    if (shown < thinking.length) this.thought.append(thinking.slice(shown));
  }

  showFailure(failure) {
    this.failure.hidden = !failure;
    this.failure.className = "failure";
    this.failure.replaceChildren();
    if (!failure) return;
    this.failure.append(icon("alert"), make("div", { role: "alert" }, make("b", { text: failure.title }), make("p", { text: failure.detail })),
      make("button", { class: "plain", type: "button", text: "Try again", on: { click: () => this.actions.again(this.message) } }));
  }

  // Draws at the screen's pace, and slower where drawing is slow, so that the page stays quick to use.
  schedule() {
    if (this.planned) return;
    this.planned = true;
    const draw = () => {
      this.planned = false;
      if (this.done) return;
      const start = performance.now();
      this.show(true);
      if (this.onDraw) this.onDraw();
      this.cost = performance.now() - start;
    };
    if (this.cost > 6 || document.hidden) setTimeout(draw, Math.max(50, this.cost * SLOW_FACTOR || 0));
    else requestAnimationFrame(draw);
  }

  finish() {
    this.done = true;
    this.show(false);
  }
}

