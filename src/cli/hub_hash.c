#include "cli/hub_hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool md_hub_is_hex(const char *text, size_t n) { return strspn(text, "0123456789abcdef") == n && text[n] == 0; }

bool md_hub_is_etag(const char *text) {
    return md_hub_is_hex(text, 2 * SHA256_DIGEST_SIZE) || md_hub_is_hex(text, 2 * SHA1_DIGEST_SIZE);
}

void md_hub_hash_begin(md_hub_hash *hash, const char *etag, uint64_t size) {
    hash->sha256 = strlen(etag) == 2 * SHA256_DIGEST_SIZE;
    if (hash->sha256) {
        sha256_init(&hash->state.sha256);
        return;
    }
    char header[32];
    int n = snprintf(header, sizeof header, "blob %" PRIu64, size);
    sha1_init(&hash->state.sha1);
    sha1_update(&hash->state.sha1, (size_t)n + 1, (const uint8_t *)header); // with its NUL
}

void md_hub_hash_add(md_hub_hash *hash, const void *bytes, size_t n) {
    if (hash->sha256)
        sha256_update(&hash->state.sha256, n, bytes);
    else
        sha1_update(&hash->state.sha1, n, bytes);
}

void md_hub_hash_end(md_hub_hash *hash, char hex[MD_HUB_ETAG_MAX + 1]) {
    uint8_t digest[SHA256_DIGEST_SIZE];
    size_t n = hash->sha256 ? SHA256_DIGEST_SIZE : SHA1_DIGEST_SIZE;
    if (hash->sha256)
        sha256_digest(&hash->state.sha256, n, digest);
    else
        sha1_digest(&hash->state.sha1, n, digest);
    for (size_t i = 0; i < n; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}
