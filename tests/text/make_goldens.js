// Makes probe-fairytales.json and parts.json with Hugging Face's tokenizers (npm install tokenizers@0.23.2):
//   node make_goldens.js ../../models/fairytales/tokenizer.json
const fs = require('fs');
const path = require('path');
const { Tokenizer } = require('tokenizers');

const fairytales = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));

// ---- texts ---------------------------------------------------------------------------------------------------------
let state = 20261130;
function random() { // xorshift32: the same texts every time
  state ^= state << 13; state >>>= 0;
  state ^= state >>> 17;
  state ^= state << 5; state >>>= 0;
  return state / 4294967296;
}
const pick = (list) => list[Math.floor(random() * list.length)];
const words = ['the', 'king', 'Hello', 'world', "I'LL", "can't", 'don\u2019t', "'s", "'\u017f", 'naïve', 'café', 'Straße',
  'İstanbul', 'ǅ', '𝒳', '日本語', '中文', '한국어', 'ภาษาไทย', 'עברית', 'العربية', 'हिन्दी', '😀', '👩‍👩‍👧‍👦', '🏳️‍🌈', '🇩🇪', 'e\u0301',
  'a\u0323\u0307', '½', 'Ⅷ', '१२३', '12', '345678', '3.14', '1,000', 'foo_bar', 'if(x){', '}', '->', '//', '#include', '\\n',
  '"q"', '—', '…', '$', '€', '+=', '▁', 'Ġ', '<0x41>', '<s>', '</s>', '<|im_start|>', '<|im_end', '<think>', '</think>'];
const spaces = [' ', '  ', '   ', '\t', '\n', '\n\n', '\r\n', '\r', ' \n', '\u00a0', '\u1680', '\u180e', '\u0085', '\u2003',
  '\u2028', '\u200b', '\u3000', '\ufeff', '\u0000', '\u001f', '\u007f', '', '', '', ' ', ' '];
const late = [0x1e030, 0x2ebf0, 0x31350, 0x1e4d0, 0x10ec2, 0x1fa77, 0x1c89, 0xa7cb, 0x10d40, 0x11bc0, 0x870, 0xc5d];
function character() {
  const kind = random();
  const top = kind < 0.3 ? 0x250 : kind < 0.6 ? 0x3000 : kind < 0.85 ? 0x10000 : 0x110000;
  let cp = kind > 0.6 && kind < 0.7 ? pick(late) : Math.floor(random() * top);
  if (cp >= 0xd800 && cp < 0xe000) cp = 0xfffd;
  return String.fromCodePoint(cp);
}
function text() {
  let out = '';
  for (let n = 1 + Math.floor(random() * random() * 16); n > 0; n--)
    out += (random() < 0.7 ? pick(words) : character()) + (random() < 0.8 ? pick(spaces) : '');
  return out;
}

async function encode(tokenizer, list) {
  const cases = [];
  for (const one of list) {
    const ids = (await tokenizer.encode(one, null, { addSpecialTokens: false })).getIds();
    const special = (await tokenizer.encode(one, null, { addSpecialTokens: true })).getIds();
    cases.push({ text: one, ids, ids_with_special: special, decoded: await tokenizer.decode(ids, false),
      decoded_skip_special: await tokenizer.decode(special, true) });
  }
  return cases;
}
async function decode(tokenizer, top, n) {
  const cases = [];
  for (let i = 0; i < n; i++) {
    const ids = [];
    for (let k = 1 + Math.floor(random() * 8); k > 0; k--)
      ids.push(Math.floor(random() * (random() < 0.5 ? Math.min(270, top) : top)));
    cases.push({ ids, decoded: await tokenizer.decode(ids, false), decoded_skip_special: await tokenizer.decode(ids, true) });
  }
  return cases;
}

// ---- small tokenizers, one part changed at a time --------------------------------------------------------------------
function base(model) {
  return { version: '1.0', truncation: null, padding: null, added_tokens: [], normalizer: null, pre_tokenizer: null,
    post_processor: null, decoder: null,
    model: { type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null,
      fuse_unk: false, byte_fallback: false, ignore_merges: false, ...model } };
}
function vocabulary(first, merges) {
  const vocab = {};
  for (const token of [...first, ...merges.map((m) => m[0] + m[1])]) if (!(token in vocab)) vocab[token] = Object.keys(vocab).length;
  return vocab;
}
const alphabet = Object.keys(fairytales.model.vocab).filter((t) => [...t].length === 1);
const byteMerges = [['t', 'h'], ['th', 'e'], ['Ġ', 'the'], ['h', 'e'], ['i', 'n'], ['k', 'in'], ['kin', 'g'], ['k', 'i'], ['Ġ', 'king'],
  ['l', 'l'], ['he', 'll'], ['hell', 'o'], ['o', 'u'], ['a', 'a'], ['aa', 'aa'], ['Ġ', 'Ġ'], ['1', '2'], ['12', '3'], ['Ċ', 'Ċ'], ['Ã', '©']];
const pieceMerges = [['▁', 't'], ['h', 'e'], ['▁t', 'he'], ['k', 'i'], ['n', 'g'], ['ki', 'ng'], ['▁', 'king'], ['l', 'l'], ['▁', '▁'],
  ['e', 'll'], ['a', 'a'], ['h', 'ell'], ['hell', 'o']];
const byteTokens = Array.from({ length: 256 }, (_, b) => `<0x${b.toString(16).toUpperCase().padStart(2, '0')}>`);
const letters = [...'▁abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,!?\'é日'];
const byteLevel = (prefix, regex) => ({ type: 'ByteLevel', add_prefix_space: prefix, trim_offsets: true, use_regex: regex });
const bases = {
  bytes: { ...base({ vocab: vocabulary(alphabet, byteMerges), merges: byteMerges }), decoder: byteLevel(false, false),
    pre_tokenizer: byteLevel(false, false) },
  pieces: { ...base({ vocab: vocabulary(['<unk>', '<s>', '</s>', ...byteTokens, ...letters], pieceMerges),
    merges: pieceMerges.map((m) => m.join(' ')), unk_token: '<unk>', byte_fallback: true, fuse_unk: true }),
    normalizer: { type: 'Sequence', normalizers: [{ type: 'Prepend', prepend: '▁' },
      { type: 'Replace', pattern: { String: ' ' }, content: '▁' }] },
    decoder: { type: 'Sequence', decoders: [{ type: 'Replace', pattern: { String: '▁' }, content: ' ' },
      { type: 'ByteFallback' }, { type: 'Fuse' }, { type: 'Strip', content: ' ', start: 1, stop: 0 }] } },
};
const seq = (...list) => ({ type: 'Sequence', pretokenizers: list });
const split = (Regex, behavior = 'Isolated', invert = false) => ({ type: 'Split', pattern: { Regex }, behavior, invert });
const bytesBy = (...list) => ({ pre_tokenizer: seq(...list, byteLevel(false, false)) });
const metaspace = (prepend_scheme, split_) => ({ type: 'Metaspace', replacement: '▁', prepend_scheme, split: split_ });
const normalize = (...list) => ({ normalizer: list.length === 1 ? list[0] : { type: 'Sequence', normalizers: list } });
function added(name) {
  const list = [{ content: '<think>' }, { content: '</think>' }, { content: 'kings', single_word: true },
    { content: '[X]', rstrip: true, special: true }, { content: '[Y]', lstrip: true, rstrip: true, special: true },
    { content: '\n\n\n' }, { content: '   ' }, { content: '<｜a▁b｜>', special: true }, { content: 'Straße', normalized: true },
    { content: 'İs', normalized: true }, { content: '<|im' }, { content: '<|im_start|>', special: true }];
  const first = Object.keys(bases[name].model.vocab).length;
  return { added_tokens: list.map((t, i) => ({ id: first + i, single_word: false, lstrip: false, rstrip: false,
    normalized: false, special: false, ...t })) };
}
const gpt4o = "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|" +
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|" +
  '\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const possessive = "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
const parts = [
  ['bytes', 'ByteLevel with prefix space and its regex', { pre_tokenizer: byteLevel(true, true) }],
  ['bytes', 'ByteLevel with its regex', { pre_tokenizer: byteLevel(false, true) }],
  ['bytes', 'ignore_merges', { model: { ignore_merges: true }, ...bytesBy(split('\\s+')) }],
  ['bytes', 'Digits one by one', bytesBy({ type: 'Digits', individual_digits: true })],
  ['bytes', 'Digits in runs', bytesBy({ type: 'Digits', individual_digits: false })],
  ['bytes', 'Punctuation', bytesBy({ type: 'Punctuation' })],
  ['bytes', 'Punctuation in runs, WhitespaceSplit', bytesBy({ type: 'Punctuation', behavior: 'Contiguous' }, { type: 'WhitespaceSplit' })],
  ['bytes', 'Whitespace', bytesBy({ type: 'Whitespace' })],
  ['bytes', 'a regex of GPT-4o kind', bytesBy(split(gpt4o, 'Removed', true))],
  ['bytes', 'a regex with possessive quantifiers', bytesBy(split(possessive, 'Removed', true))],
  ['bytes', 'three splits, CJK ranges', bytesBy(split('\\p{N}{1,3}'), split('[一-龥぀-ゟ゠-ヿ]+'), split('[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+'))],
  ['bytes', 'scripts', bytesBy(split('\\p{Han}+|\\p{Greek}|[\\p{P}\\p{S}]'))],
  ['bytes', 'word borders', bytesBy(split('\\b'))],
  ['bytes', '\\w and \\W', bytesBy(split('\\w+|\\W'))],
  ['bytes', 'empty matches', bytesBy(split('x*'))],
  ['bytes', 'line anchors', bytesBy(split('$|^.'))],
  ['bytes', '{,n}, \\S in a class and \\h', bytesBy(split('[\\S]{,3}\\h'))],
  ['bytes', 'a string', bytesBy({ type: 'Split', pattern: { String: 'in' }, behavior: 'MergedWithPrevious', invert: false })],
  ...['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous'].flatMap((behavior) => [false, true].map(
    (invert) => ['bytes', `${behavior}, invert ${invert}`, bytesBy(split('\\s|[aeiou]', behavior, invert))])),
  ['bytes', 'NFC', normalize({ type: 'NFC' })], ['bytes', 'NFD', normalize({ type: 'NFD' })],
  ['bytes', 'NFKC', normalize({ type: 'NFKC' })], ['bytes', 'NFKD', normalize({ type: 'NFKD' })],
  ['bytes', 'Lowercase, Strip left', normalize({ type: 'Lowercase' }, { type: 'Strip', strip_left: true, strip_right: false })],
  ['bytes', 'Strip', normalize({ type: 'Strip', strip_left: true, strip_right: true })],
  ['bytes', 'Replace', normalize({ type: 'Replace', pattern: { Regex: '\\s{2,}' }, content: ' ' }, { type: 'Replace', pattern: { String: 'the' }, content: 'king' })],
  ['bytes', 'ByteLevel as normalizer', { ...normalize({ type: 'ByteLevel' }), pre_tokenizer: null }],
  ['bytes', 'added tokens', added('bytes')],
  ['bytes', 'added tokens, Lowercase', { ...added('bytes'), ...normalize({ type: 'Lowercase' }) }],
  ['bytes', 'a template inside a Sequence', { post_processor: { type: 'Sequence', processors: [byteLevel(true, true), { type: 'TemplateProcessing',
    single: [{ SpecialToken: { id: 'a', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }, { SpecialToken: { id: 'b', type_id: 0 } }],
    pair: [{ Sequence: { id: 'A', type_id: 0 } }, { Sequence: { id: 'B', type_id: 0 } }],
    special_tokens: { a: { id: 'a', ids: [0, 2], tokens: ['!', '#'] }, b: { id: 'b', ids: [1], tokens: ['"'] } } }] } }],
  ['pieces', 'pieces', {}],
  ['pieces', 'added tokens', added('pieces')],
  ...['first', 'always', 'never'].flatMap((scheme) => [true, false].map((cut) => ['pieces', `Metaspace ${scheme}, split ${cut}`,
    { normalizer: null, pre_tokenizer: metaspace(scheme, cut), decoder: metaspace(scheme, cut), ...added('pieces') }])),
  ['pieces', 'no decoder', { decoder: null }],
  ['pieces', 'Strip on each token', { decoder: { type: 'Sequence', decoders: [{ type: 'Replace', pattern: { Regex: '▁+' }, content: ' ' },
    { type: 'Strip', content: ' ', start: 1, stop: 0 }, { type: 'Fuse' }] } }],
  ['pieces', 'Strip of three', { decoder: { type: 'Sequence', decoders: [{ type: 'Replace', pattern: { String: '▁' }, content: ' ' },
    { type: 'ByteFallback' }, { type: 'Fuse' }, { type: 'Strip', content: ' ', start: 3, stop: 0 }] } }],
  ['pieces', 'unknown tokens fused', { model: { byte_fallback: false, fuse_unk: true } }],
  ['pieces', 'unknown tokens apart', { model: { byte_fallback: false, fuse_unk: false } }],
  ['pieces', 'unknown characters dropped', { model: { byte_fallback: false, unk_token: null } }],
];
const fixed = ['', ' ', 'the king', '  the  kings, hello\n\n\nthe end   ', "I'LL can't don\u2019t '\u017f Don'T", 'aaaaaaaaaaaaa 123123 12345',
  'Straße İs Istanbul ½ Ⅷ १२३ ① ﬁne', 'e\u0301\u0323 a\u0323\u0307 \u1e9b\u0323 한국어 \u1112\u1161\u11ab', '日本語中文 αβγ ภาษาไทย 😀👩‍👧 🇩🇪',
  'a\u180eb\u0085c\u00a0d\u2003e\u3000f\u0000g', '\r\n\r\n \t x\r', '\u{1e030}\u{2ebf0} \u{31350}\u{1c89}ab\ua7cb \u0898\u0315\u{11935}\u{11930}',
  '<think>king</think> kings kingsx [X]  the  [Y]  [Y] <｜a▁b｜> <|im_start|> <|im_x straße STRASSE', 'foo_bar->x+=1; // #include "q" $5 €7 …'];

(async () => {
  const here = (name) => path.join(__dirname, name);
  const made_with = `tokenizers ${require('tokenizers/package.json').version} (Hugging Face)`;
  let tokenizer = Tokenizer.fromString(JSON.stringify(fairytales));
  const texts = Array.from({ length: 250 }, text);
  fs.writeFileSync(here('probe-fairytales.json'), JSON.stringify({ tokenizer: 'fairytales', made_with,
    cases: await encode(tokenizer, texts), decodes: await decode(tokenizer, 4100, 100) }) + '\n');
  const out = [];
  for (const [name, what, set] of parts) {
    const json = { ...bases[name], ...set, model: { ...bases[name].model, ...(set.model || {}) } };
    tokenizer = Tokenizer.fromString(JSON.stringify(json));
    const top = Object.keys(json.model.vocab).length + json.added_tokens.length + 2;
    out.push({ base: name, what, set, cases: await encode(tokenizer, fixed), decodes: await decode(tokenizer, top, 12) });
  }
  fs.writeFileSync(here('parts.json'), JSON.stringify({ made_with, bases, parts: out }) + '\n');
})();
