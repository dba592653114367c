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
    {"bf16", 0, 0, 0x38e8c904cf05ebd0, 0x3c0fa7ddb7c63773},
    {"snapshot", 1, 0, 0x6b28c55f52156967, 0xa013eb6b2f236200},
    {"8 bits, groups of 64", 8, 64, 0x52a9ec2da61e78f1, 0x403b436ffcc3ae27},
    {"8 bits, groups of 32", 8, 32, 0xb02a97e7926131df, 0xdc8f42f14180132c},
    {"4 bits, groups of 64", 4, 64, 0x0ade1112cf4212b4, 0xa1f6e000e848b69b},
    {"4 bits, groups of 32", 4, 32, 0xa536cbfc5ed10020, 0x4eb47341b96125c6},
};
enum { DIGEST_CASES = sizeof digest_cases / sizeof *digest_cases };

#endif
