// Reads [{schema, text}] on stdin; prints [true or false]: is the text JSON that satisfies the schema, as ajv says?
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import path from "node:path";

const Ajv = createRequire(path.join(process.cwd(), "package.json"))("ajv/dist/2020").default;
const verdicts = JSON.parse(readFileSync(0, "utf8")).map(({ schema, text }) => {
  try {
    return new Ajv({ strict: false }).compile(schema)(JSON.parse(text));
  } catch (problem) {
    process.stderr.write(`${problem}: ${text}\n`);
    return false;
  }
});
process.stdout.write(JSON.stringify(verdicts));
