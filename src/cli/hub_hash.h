// The hash that the hub names a file by: SHA-256 of its bytes for large files (64 hex digits), and git's blob hash for
// small ones (40 hex digits: SHA-1 of "blob SIZE\0" and the bytes). An etag is one or the other, and names the blob.
#ifndef MD_CLI_HUB_HASH_H
#define MD_CLI_HUB_HASH_H

#include <nettle/sha1.h>
#include <nettle/sha2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MD_HUB_ETAG_MAX = 64 };

typedef struct md_hub_hash {
    bool sha256;
    union {
        struct sha256_ctx sha256;
        struct sha1_ctx sha1;
    } state;
} md_hub_hash;

bool md_hub_is_hex(const char *text, size_t n); // exactly n lowercase hex digits
bool md_hub_is_etag(const char *text);          // 40 or 64 of them

void md_hub_hash_begin(md_hub_hash *hash, const char *etag, uint64_t size); // of the kind that the etag is
void md_hub_hash_add(md_hub_hash *hash, const void *bytes, size_t n);
void md_hub_hash_end(md_hub_hash *hash, char hex[MD_HUB_ETAG_MAX + 1]);

#endif
