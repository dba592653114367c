// OpenAI's own client against the server: node openai.mjs BASE_URL SCRIPTED_BASE_URL. Exits with 1 at the first surprise.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import path from "node:path";

const { default: OpenAI } = createRequire(path.join(process.cwd(), "package.json"))("openai");
const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const scripted = new OpenAI({ baseURL: process.argv[3], apiKey: "none", maxRetries: 0 });
const model = "fairytales";
const messages = [{ role: "user", content: "Tell me a story." }];
const tools = [{ type: "function", function: { name: "get_weather", parameters: { type: "object", properties: {
  city: { type: "string" }, days: { type: "integer" } } } } }];
const kwargs = (script) => ({ chat_template_kwargs: { script } });

const checks = {
  async models() {
    const list = await client.models.list();
    assert.equal(list.data[0].id, model);
    assert.equal((await client.models.retrieve(model)).id, model);
  },
  async chat() {
    const answer = await client.chat.completions.create({ model, messages, max_completion_tokens: 12, temperature: 0 });
    assert.equal(answer.choices[0].finish_reason, "length");
    assert.equal(answer.usage.completion_tokens, 12);
    assert.ok(answer.choices[0].message.content.length > 0);
  },
  async stream() {
    const whole = await client.chat.completions.create({ model, messages, max_tokens: 20, temperature: 0 });
    const stream = await client.chat.completions.create({ model, messages, max_tokens: 20, temperature: 0, stream: true,
      stream_options: { include_usage: true } });
    let text = "", usage, finish;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta?.content ?? "";
      finish = chunk.choices[0]?.finish_reason ?? finish;
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(finish, "length");
    assert.deepEqual({ ...usage, prompt_tokens_details: 0 }, { ...whole.usage, prompt_tokens_details: 0 });
    assert.ok(usage.prompt_tokens_details.cached_tokens > 0);
  },
  async completions() {
    const answer = await client.completions.create({ model, prompt: "Once upon a time", max_tokens: 8, temperature: 0, logprobs: 2 });
    assert.ok(answer.choices[0].text.startsWith(", there was"));
    assert.equal(answer.choices[0].logprobs.tokens.join(""), answer.choices[0].text);
  },
  async logprobs() {
    const answer = await client.chat.completions.create({ model, messages, max_tokens: 5, temperature: 0, logprobs: true, top_logprobs: 4 });
    const content = answer.choices[0].logprobs.content;
    assert.equal(Buffer.from(content.flatMap((t) => t.bytes)).toString(), answer.choices[0].message.content);
    assert.ok(content.every((t) => t.top_logprobs.length === 4 && t.top_logprobs[0].logprob >= t.logprob && t.logprob <= 0));
  },
  async tools() {
    const answer = await scripted.chat.completions.create({ model: "xml", messages, tools, ...kwargs("xml") });
    assert.equal(answer.choices[0].finish_reason, "tool_calls");
    const call = answer.choices[0].message.tool_calls[0];
    assert.deepEqual(JSON.parse(call.function.arguments), { city: "Prague & Brno", days: 3 });
    // The client's own putting together of a stream's deltas.
    const final = await scripted.chat.completions.stream({ model: "xml", messages, tools, ...kwargs("xml") }).finalChatCompletion();
    assert.equal(final.choices[0].message.tool_calls[0].function.name, "get_weather");
    assert.deepEqual(JSON.parse(final.choices[0].message.tool_calls[0].function.arguments), { city: "Prague & Brno", days: 3 });
  },
  async forced_tools() {
    for (const tool_choice of ["required", { type: "function", function: { name: "get_weather" } }]) {
      const answer = await scripted.chat.completions.create({ model: "xml", messages, tools, tool_choice, temperature: 0, max_tokens: 400,
        parallel_tool_calls: false, enable_thinking: false, ...kwargs("plain") });
      assert.equal(answer.choices[0].message.tool_calls.length, 1);
      assert.equal(answer.choices[0].message.tool_calls[0].function.name, "get_weather");
      JSON.parse(answer.choices[0].message.tool_calls[0].function.arguments);
    }
  },
  async response_format() {
    const schema = { type: "object", properties: { age: { type: "integer", minimum: 1, maximum: 9 }, on: { type: "string", format: "date" } },
      required: ["age", "on"], additionalProperties: false };
    const response_format = { type: "json_schema", json_schema: { name: "x", strict: true, schema } };
    const answer = await client.chat.completions.parse({ model, messages, response_format, max_tokens: 100, seed: 3 });
    const value = JSON.parse(answer.choices[0].message.content);
    assert.ok(value.age >= 1 && value.age <= 9 && /^\d{4}-\d\d-\d\d$/.test(value.on));
  },
  async several_prompts() {
    const prompt = ["Once upon a time", "The fox"];
    const answer = await client.completions.create({ model, prompt, max_tokens: 8, temperature: 0 });
    assert.deepEqual(answer.choices.map((c) => c.index), [0, 1]);
    const texts = ["", ""];
    for await (const chunk of await client.completions.create({ model, prompt, max_tokens: 8, temperature: 0, stream: true }))
      texts[chunk.choices[0].index] += chunk.choices[0].text;
    assert.deepEqual(texts, answer.choices.map((c) => c.text));
    const echo = await client.completions.create({ model, prompt, max_tokens: 0, echo: true, logprobs: 1 });
    assert.deepEqual(echo.choices.map((c) => c.text), prompt);
    assert.ok(echo.choices.every((c) => c.logprobs.token_logprobs[0] === null && c.logprobs.token_logprobs.slice(1).every((x) => x <= 0)));
  },
  async reasoning() {
    const answer = await scripted.chat.completions.create({ model: "xml", messages, ...kwargs("think") });
    assert.equal(answer.choices[0].message.reasoning_content, "First I think.");
    assert.equal(answer.choices[0].message.content, "Then I answer.");
  },
  async errors() {
    await assert.rejects(client.chat.completions.create({ model, messages, temperature: 9 }),
      (e) => e instanceof OpenAI.BadRequestError && e.param === "temperature" && e.type === "invalid_request_error");
    await assert.rejects(client.chat.completions.create({ model: "other", messages }),
      (e) => e instanceof OpenAI.NotFoundError && e.code === "model_not_found");
    await assert.rejects(client.completions.create({ model, prompt: "x ".repeat(9000) }),
      (e) => e instanceof OpenAI.BadRequestError && e.code === "context_length_exceeded");
  },
  async abort() {
    const endless = { model, messages, max_tokens: 3000, logit_bias: { 1: -100, 3: -100 }, stream: true };
    const stream = await client.chat.completions.create(endless);
    let chunks = 0;
    for await (const chunk of stream) if (++chunks === 4) stream.controller.abort();
    assert.ok(chunks < 3000);
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 100);
    await assert.rejects(client.chat.completions.create({ ...endless, stream: false }, { signal: controller.signal }), OpenAI.APIUserAbortError);
    const metrics = new URL("/metrics", process.argv[2]);
    const running = async () => Number(/requests_running (\d+)/.exec(await (await fetch(metrics)).text().then((t) => t.replace(/^#.*$/gm, "")))[1]);
    const end = Date.now() + 1000;
    while ((await running()) > 0) assert.ok(Date.now() < end, "an aborted request is freed within a second");
  },
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log(`ok      openai ${name}`);
}
