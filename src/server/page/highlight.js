// ==== highlight.js: colours in code, by one scan that knows a few families of languages ====

const HIGHLIGHT_MAX = 60000; // characters; longer code stays plain

const WORDS = new Set(("abstract alignas and as asm assert async auto await begin bool boolean break byte case catch char class " +
  "const constexpr continue crate def default defer del delete do double elif else elsif end enum except export extends extern " +
  "False false final finally float fn for foreach from func function global goto if impl implements import in inline int " +
  "interface is lambda let local long loop match mod module mut namespace new nil None not null nullptr or override package " +
  "pass print private protected pub public raise readonly record register restrict return self short signed sizeof static " +
  "struct super switch template then this throw throws trait True true try type typedef typename typeof undefined union unless " +
  "unsafe unsigned until use using val var virtual void volatile when where while with yield echo fi done esac sudo cd " +
  "select insert update into values create table join left right inner on group order by limit having distinct set").split(" "));

const FAMILIES = {
  slash: "c h cc cpp cxx hpp c++ cuda cu java js javascript jsx mjs ts typescript tsx go rust rs swift kotlin kt scala cs csharp php " +
    "dart zig glsl wgsl hlsl css scss less json jsonc json5 proto objc v d",
  hash: "py python python3 sh bash zsh shell console fish rb ruby perl pl r yaml yml toml make makefile cmake dockerfile docker " +
    "julia jl nim elixir ex ini conf tcl awk nix",
  dash: "sql lua haskell hs ada elm",
};
const FAMILY = new Map(Object.entries(FAMILIES).flatMap(([family, names]) => names.split(" ").map((name) => [name, family])));

const COMMENTS = { slash: "//[^\\n]*|/\\*[\\s\\S]*?(?:\\*/|$)", hash: "#[^\\n]*", dash: "--[^\\n]*" };
const SCANNERS = {};
for (const family of Object.keys(COMMENTS)) {
  // Each alternative moves on without going back, so that a scan is linear in the code.
  SCANNERS[family] = new RegExp("(" + COMMENTS[family] + ")" +
    "|(\"(?:[^\"\\\\\\n]|\\\\.)*\"?|'(?:[^'\\\\\\n]|\\\\.)*'?|`(?:[^`\\\\]|\\\\[\\s\\S])*`?)" +
    "|(\\b(?:0[xX][0-9a-fA-F_]+|[0-9][0-9_]*(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\\b)" +
    "|([A-Za-z_$][A-Za-z0-9_$]*)", "g");
}

function highlight(code, language) {
  const out = document.createDocumentFragment();
  const family = FAMILY.get(language.toLowerCase());
  if (!family || code.length > HIGHLIGHT_MAX) {
    out.append(code);
    return out;
  }
  const scanner = SCANNERS[family];
  let plain = 0;
  const colour = (from, to, name) => {
    if (from > plain) out.append(code.slice(plain, from));
    out.append(make("span", { class: name, text: code.slice(from, to) }));
    plain = to;
  };
  scanner.lastIndex = 0;
  for (let found; (found = scanner.exec(code)); ) {
    const to = scanner.lastIndex;
    if (found[1] !== undefined) colour(found.index, to, "c");
    else if (found[2] !== undefined) colour(found.index, to, "s");
    else if (found[3] !== undefined) colour(found.index, to, "n");
    else if (WORDS.has(family === "dash" ? found[4].toLowerCase() : found[4])) colour(found.index, to, "w");
  }
  if (plain < code.length) out.append(code.slice(plain));
  return out;
}

