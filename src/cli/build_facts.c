#include "cli/build_facts.h"

#include <curl/curl.h>
#include <jansson.h>
#include <microhttpd.h>
#include <stdio.h>

#include "megadecode.h"

#ifndef MEGADECODE_BUILD
#error "the build passes MEGADECODE_BUILD"
#endif

static const char *architecture(void) {
#if defined(__x86_64__)
    return "x86-64";
#elif defined(__aarch64__)
    return "aarch64";
#else
    return "scalar code";
#endif
}

void md_build_facts_print(void) {
#if defined(__clang__)
    const char *compiler = "clang";
#else
    const char *compiler = "gcc";
#endif
    printf("megadecode %s\n", md_version());
    printf("built for %s by %s %s (%s)\n", architecture(), compiler, __VERSION__, MEGADECODE_BUILD);
    printf("libraries: jansson %s, libmicrohttpd %s, libcurl %s\n", jansson_version_str(), MHD_get_version(),
           curl_version_info(CURLVERSION_NOW)->version);
}
