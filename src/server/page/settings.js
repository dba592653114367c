// ==== settings.js: what an answer is asked with ====
//
// A conversation's settings: {system, thinking, and numbers by the server's own names}; what is absent is the model's.

const NUMBERS = [
  { name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05, hint: "0 takes the likeliest token" },
  { name: "top_p", label: "Top p", min: 0, max: 1, step: 0.01, hint: "share of likeliest tokens" },
  { name: "top_k", label: "Top k", min: -1, max: 2147483647, step: 1, whole: true, hint: "how many tokens; 0 is off" },
  { name: "min_p", label: "Min p", min: 0, max: 1, step: 0.01, hint: "against the likeliest one" },
  { name: "repetition_penalty", label: "Repetition penalty", min: 0.01, max: 10, step: 0.05, hint: "1 is none" },
  { name: "max_tokens", label: "Max tokens", min: 1, max: 2147483647, step: 1, whole: true, hint: "of an answer" },
  { name: "seed", label: "Seed", min: -Number.MAX_SAFE_INTEGER, max: Number.MAX_SAFE_INTEGER, step: 1, whole: true, hint: "the same gives the same text; Again takes the next" },
];

// The problem with a field's text, or null.
function numberProblem(field, text) {
  const value = Number(text);
  if (!Number.isFinite(value) || (field.whole && !Number.isInteger(value))) return field.whole ? "A whole number" : "A number";
  if (value >= field.min && value <= field.max) return null;
  return field.max > 1e9 ? "At least " + field.min : "From " + field.min + " to " + field.max;
}

// Keeps what is right of a stored object.
function checkSettings(value) {
  const out = {};
  if (!isObject(value)) return out;
  if (isText(value.system, 200000) && value.system) out.system = value.system;
  if (value.thinking === "on" || value.thinking === "off") out.thinking = value.thinking;
  for (const field of NUMBERS)
    if (typeof value[field.name] === "number" && !numberProblem(field, value[field.name])) out[field.name] = value[field.name];
  return out;
}

function defaultSettings() {
  return checkSettings(readValue("settings", {}));
}

// The body of a request that continues `messages`. `attempt`: how many answers the last of them has had before, of which
// each takes the seed after the last one's, so that another answer is one.
function requestBody(settings, messages, attempt) {
  const out = [];
  if (settings.system) out.push({ role: "system", content: settings.system });
  for (const message of messages) {
    if (!message.text) continue; // an answer that never came
    const last = out[out.length - 1];
    // Templates want the roles in turn; two questions after each other are one.
    if (last && last.role === message.role) last.content += "\n\n" + message.text;
    else out.push({ role: message.role, content: message.text });
  }
  const body = { messages: out, stream: true, stream_options: { include_usage: true } };
  for (const field of NUMBERS) if (settings[field.name] !== undefined) body[field.name] = settings[field.name];
  if (attempt && body.seed !== undefined) body.seed = Math.min(body.seed + attempt, Number.MAX_SAFE_INTEGER);
  if (settings.thinking) body.enable_thinking = settings.thinking === "on";
  return body;
}

