// ==== answer.js: one answer on its way, from the request to its last token ====

class Run {
  constructor(chat, attempt, onChange) {
    this.chat = chat;
    this.onChange = onChange; // called when there is something to show
    this.abort = new AbortController();
    this.sent = performance.now();
    this.firstAt = 0; // when the first token came
    this.contentAt = 0; // when the first one after thinking came
    this.lastAt = 0;
    this.deltas = 0;
    this.message = { role: "assistant", text: "", at: Date.now(), model: server.info ? server.info.model.id : undefined };
    if (attempt) this.message.attempt = attempt;
  }

  stop() {
    this.abort.abort();
  }

  // Fills this.message. A failure becomes part of it; nothing is thrown.
  async run(messages) {
    const { message } = this;
    try {
      for await (const chunk of streamAnswer(requestBody(this.chat.settings, messages, message.attempt), this.abort.signal)) this.take(chunk);
    } catch (problem) {
      this.fail(problem);
    }
    if (message.thinking && !message.thinkMs) message.thinkMs = Math.round(this.lastAt - this.firstAt);
    if (!message.stats && this.deltas) message.stats = this.measured(this.deltas, true);
    if (!message.failure && !message.finish) message.finish = "stop";
  }

  take(chunk) {
    const choice = Array.isArray(chunk.choices) ? chunk.choices[0] : null;
    if (isObject(choice)) {
      const delta = isObject(choice.delta) ? choice.delta : {};
      if (typeof delta.reasoning_content === "string") this.add("thinking", delta.reasoning_content);
      if (typeof delta.content === "string") this.add("text", delta.content);
      if (typeof choice.finish_reason === "string") this.message.finish = choice.finish_reason.slice(0, 30);
    }
    if (isObject(chunk.usage)) {
      const usage = chunk.usage, details = isObject(usage.prompt_tokens_details) ? usage.prompt_tokens_details : {};
      this.message.stats = this.measured(Math.max(0, Number(usage.completion_tokens) || 0), false);
      this.message.stats.prompt = Math.max(0, Number(usage.prompt_tokens) || 0);
      this.message.stats.cached = Math.max(0, Number(details.cached_tokens) || 0);
      // What the server measured; what arrives here comes in heaps when the machine is busy.
      const timings = isObject(chunk.timings) ? chunk.timings : {};
      if (isCount(timings.decode_ms)) this.message.stats.decodeMs = timings.decode_ms;
    }
  }

  add(part, text) {
    if (!text) return;
    const now = performance.now();
    if (!this.firstAt) this.firstAt = now;
    if (part === "text" && !this.contentAt) {
      this.contentAt = now;
      if (this.message.thinking) this.message.thinkMs = Math.round(now - this.firstAt);
    }
    this.lastAt = now;
    this.deltas++;
    this.message[part] = (this.message[part] || "") + text;
    if (this.message[part].length > TEXT_MAX) {
      this.stop();
      throw new ServerFailure("The answer is too long for this page.", "What had arrived is kept.");
    }
    this.onChange(this);
  }

  // The server counts tokens at the end of an answer; before that, events are the best there is.
  measured(completion, about) {
    const stats = { completion, firstMs: Math.max(0, Math.round(this.firstAt - this.sent)), decodeMs: Math.round(this.lastAt - this.firstAt) };
    if (about) stats.about = true;
    return stats;
  }

  fail(problem) {
    if (this.abort.signal.aborted) { // whatever the reader said of it
      this.message.finish = "stopped";
      return;
    }
    const known = problem instanceof ServerFailure;
    this.problem = known ? problem : null;
    this.message.failure = known ? { title: problem.title, detail: problem.detail }
      : { title: "The page failed.", detail: String(problem && problem.message).slice(0, 500) };
  }
}

const RATE_FROM = 400; // ms of arriving tokens from which on they tell a rate

// Tokens a second of an answer, or 0 where that can't be told.
function rateOf(stats) {
  if (stats && stats.about && stats.decodeMs < RATE_FROM) return 0;
  return stats && stats.completion > 1 && stats.decodeMs > 0 ? ((stats.completion - 1) * 1000) / stats.decodeMs : 0;
}

function rateText(rate) {
  return (rate < 100 ? rate.toFixed(1) : counted.format(Math.round(rate))) + " tokens/s";
}

function statsText(message) {
  const stats = message.stats, parts = [];
  if (message.finish === "stopped") parts.push("stopped");
  if (message.finish === "length") parts.push("cut: the length is used up");
  if (!stats) return parts.join(" · ");
  if (stats.completion) parts.push((stats.about ? "about " : "") + many(stats.completion, "token", "tokens"));
  const rate = rateOf(stats);
  if (rate) parts.push(rateText(rate));
  if (stats.firstMs) parts.push("first after " + (stats.firstMs < 1000 ? stats.firstMs + " ms" : secondsText(stats.firstMs)));
  return parts.join(" · ");
}

