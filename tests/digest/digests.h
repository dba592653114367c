// What the shipped model's logits are, to the bit, on every CPU: docs/RELIABILITY.md, "The same answer everywhere".
//
// Each is the FNV-1a hash of all logits, as bf16, of DIGEST_POSITIONS positions of the token stream in digest.c, the
// first DIGEST_PROMPT computed with a bf16 cache, which is then quantized as said. They change only with the shipped
// weights or with docs/MODEL.md; `digest --print` prints what the reference engine gives.
#ifndef MD_TESTS_DIGESTS_H
#define MD_TESTS_DIGESTS_H

#include <stdint.h>

enum { DIGEST_POSITIONS = 136, DIGEST_PROMPT = 20, DIGEST_EARLY = 28 }; // 136: over the border of an attention block

typedef struct digest_case {
    const char *name;
    uint8_t bits, group;    // of every layer's cache; 0, 0: bf16; 1, 0: as the snapshot's kv_config.json says
    uint64_t early, digest; // after DIGEST_EARLY positions, where computing is slow, and after all
} digest_case;

static const digest_case digest_cases[] = {
    {"bf16", 0, 0, 0xb232d20338dc332a, 0x32381fd4cba5b07e},
    {"snapshot", 1, 0, 0x11b9b24dbc8cbc28, 0x65cdf8f5e0ca6abf},
    {"8 bits, groups of 64", 8, 64, 0xb91f7665b837667d, 0xd1a1b6adbaeacc32},
    {"8 bits, groups of 32", 8, 32, 0xf3b1822ec731b93b, 0x7c611635856837fe},
    {"4 bits, groups of 64", 4, 64, 0xf727c1f7d2763a5b, 0xc4909842f5d9b555},
    {"4 bits, groups of 32", 4, 32, 0x477df0e0a4d1ddb9, 0xf3aef4dd141173ec},
};
enum { DIGEST_CASES = sizeof digest_cases / sizeof *digest_cases };

#endif
