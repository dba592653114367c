// ==== transfer.js: conversations as files, out and in ====

const FILE_FORMAT = "megadecode-conversations";
const FILE_MAX = 50000000; // bytes of an imported file

function fileName(title, ending) {
  const name = title.normalize("NFKD").replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60).toLowerCase();
  return (name || "conversation") + ending;
}

function toJson(chats) {
  return JSON.stringify({ format: FILE_FORMAT, version: 1, exported: new Date().toISOString(), conversations: chats }, null, 2) + "\n";
}

// A fence that is longer than any in the text.
function fenced(text) {
  const longest = (text.match(/`+/g) || []).reduce((most, run) => Math.max(most, run.length), 2);
  const fence = "`".repeat(longest + 1);
  return fence + "text\n" + text + "\n" + fence;
}

function toMarkdown(chat) {
  const parts = ["# " + chat.title.replace(/\s+/g, " ")];
  const model = chat.messages.map((message) => message.model).filter(Boolean).pop();
  parts.push("*" + [model, new Date(chat.created).toISOString().slice(0, 16).replace("T", " ") + " UTC"].filter(Boolean).join(", ") + "*");
  if (chat.settings.system) parts.push("## System prompt", fenced(chat.settings.system));
  for (const message of chat.messages) {
    parts.push(message.role === "user" ? "## You" : "## " + (message.model || "Model"));
    if (message.thinking) parts.push("<details><summary>Thinking</summary>\n\n" + fenced(message.thinking) + "\n\n</details>");
    if (message.text) parts.push(message.text);
    if (message.failure) parts.push("> " + message.failure.title + " " + message.failure.detail.replace(/\n/g, " "));
  }
  return parts.join("\n\n") + "\n";
}

// The conversations of a file's text, each with an id of its own. Throws with what is wrong.
function fromJson(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch (bad) {
    throw new Error("it is not JSON");
  }
  if (!isObject(file) || file.format !== FILE_FORMAT || !Array.isArray(file.conversations))
    throw new Error("it was not exported by this page (expected \"format\": \"" + FILE_FORMAT + "\")");
  if (file.version !== 1) throw new Error("its version is " + JSON.stringify(file.version) + ", expected 1");
  if (file.conversations.length > CHATS_MAX) throw new Error("it has more than " + CHATS_MAX + " conversations");
  const chats = file.conversations.map((chat, i) => checkChat(chat, "conversations[" + i + "]"));
  for (const chat of chats) chat.id = newId(); // never in the place of one that is here
  return chats;
}

async function importFile(file) {
  if (file.size > FILE_MAX) throw new Error("it is larger than " + bytesText(FILE_MAX));
  return fromJson(await file.text());
}

