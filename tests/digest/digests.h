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
    {"snapshot", 1, 0, 0xd6219f62020581d8, 0x930d3e98003fc778},
    {"8 bits, groups of 64", 8, 64, 0x8f3830f6fd8dc8e7, 0x8f15d2eb3a9bc77d},
    {"8 bits, groups of 32", 8, 32, 0xadf3cbbba3d81276, 0x4f0f90140d999552},
    {"4 bits, groups of 64", 4, 64, 0xdbc2fb31a16d4baa, 0x14f8a12b31b12450},
    {"4 bits, groups of 32", 4, 32, 0x37433216f8be6caf, 0xf38f0fb7afdfe496},
};
enum { DIGEST_CASES = sizeof digest_cases / sizeof *digest_cases };

#endif
