// ==== server.js: the server's routes: its state, and an answer as a stream of events ====

const EVENT_MAX = 8000000; // characters of one event

// A failure with what to tell the person: a title of few words, and details.
class ServerFailure extends Error {
  constructor(title, detail, more = {}) {
    super(title + " " + detail);
    this.title = title;
    this.detail = detail;
    this.status = more.status || 0;
    this.retryAfter = more.retryAfter || 0;
  }
}

const server = {
  state: "wait", // "wait": not reached or loading; "ready"; "bad": not reached for some time
  info: null, // of /props
  key: null,
};

server.headers = () => (server.key ? { Authorization: "Bearer " + server.key } : {});

function retrySeconds(response) {
  const seconds = parseInt(response.headers.get("Retry-After") || "", 10);
  return seconds > 0 && seconds < 86400 ? seconds : 0;
}

// What a response that is not 200 means.
async function failureOf(response) {
  let detail = "";
  try {
    const body = await response.json();
    if (isObject(body.error) && typeof body.error.message === "string") detail = body.error.message.slice(0, 2000);
  } catch (none) { /* a proxy's page, say */ }
  const retryAfter = retrySeconds(response);
  const wait = retryAfter ? " It asks to wait " + many(retryAfter, "second", "seconds") + "." : "";
  const titles = {
    400: "The server can't do this.", 401: "The server needs a key.", 403: "The server does not take requests of this page.",
    413: "This conversation is too long to send.", 429: "The server is busy.", 500: "The server failed.", 503: "The server is not ready.",
  };
  const title = titles[response.status] || "The server answered " + response.status + ".";
  return new ServerFailure(title, sentence(detail) + wait, { status: response.status, retryAfter });
}

// Messages of the server begin with a name or a small letter; here they stand after a title.
function sentence(text) {
  if (!text) return "";
  return (/^[a-z]+ /.test(text) ? text[0].toUpperCase() + text.slice(1) : text) + (/[.!?]$/.test(text) ? "" : ".");
}

const lost = (detail) => new ServerFailure("The connection was lost.", detail);

async function ask(path, options = {}) {
  try {
    return await fetch(path, { cache: "no-store", credentials: "omit", referrerPolicy: "no-referrer", ...options });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw lost("The server can't be reached.");
  }
}

// {state: "ready" | "loading" | "draining" | "failed", progress}
async function readHealth() {
  const response = await ask("health");
  const body = await response.json().catch(() => ({}));
  return { state: response.ok ? "ready" : String(body.status || "failed"), progress: Number(body.progress) || 0 };
}

async function readProps() {
  const response = await ask("props", { headers: server.headers() });
  if (!response.ok) throw await failureOf(response);
  return response.json();
}

// ---- events ----

// The data of each event of a text/event-stream. Throws when the stream breaks.
async function* readEvents(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (problem) {
      if (problem.name === "AbortError") throw problem;
      throw lost("What had arrived is kept.");
    }
    text += decoder.decode(part.value || new Uint8Array(), { stream: !part.done });
    let from = 0;
    for (let end; (end = text.indexOf("\n", from)) >= 0; from = end + 1) {
      const line = text.slice(from, end).replace(/\r$/, "");
      if (line.startsWith("data:")) yield line.slice(5).trimStart();
    }
    text = text.slice(from);
    if (text.length > EVENT_MAX) throw lost("The server sent an event that is too large.");
    if (part.done) return;
  }
}

// The chunks of an answer. Ends after [DONE]; a stream that ends without it was cut.
async function* streamAnswer(body, signal) {
  const response = await ask("v1/chat/completions", {
    method: "POST", signal, body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...server.headers() },
  });
  if (!response.ok) throw await failureOf(response);
  for await (const data of readEvents(response.body)) {
    if (data === "[DONE]") return;
    let chunk;
    try {
      chunk = JSON.parse(data);
    } catch (bad) {
      throw lost("The server sent an event that is not JSON.");
    }
    if (isObject(chunk) && isObject(chunk.error))
      throw new ServerFailure("The server stopped the answer.", sentence(String(chunk.error.message || "").slice(0, 2000)));
    if (isObject(chunk)) yield chunk;
  }
  throw lost("What had arrived is kept.");
}

