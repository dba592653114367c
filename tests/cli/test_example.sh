#!/usr/bin/env bash
# examples/minimal.c builds against the public header and the static library alone, in C and with the compiler's
# warnings on, and streams text.
set -euo pipefail
library="$(dirname "$1")/libmegadecode.a"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

[ "$(wc -l <examples/minimal.c)" -lt 60 ] || { echo "examples/minimal.c has 60 lines or more"; exit 1; }
sanitizers=()
if nm "$library" 2>/dev/null | grep -q __asan_init; then sanitizers+=(-fsanitize=address,undefined); fi
if nm "$library" 2>/dev/null | grep -q __tsan_init; then sanitizers+=(-fsanitize=thread); fi
compiler=${CC:-gcc}
if [ ${#sanitizers[@]} -gt 0 ]; then compiler=clang; fi
# shellcheck disable=SC2046
"$compiler" -std=c11 -Wall -Wextra -Werror "${sanitizers[@]}" -Iinclude examples/minimal.c "$library" \
    $(pkg-config --libs jansson libpcre2-8 libutf8proc libxxhash) -pthread -lm -ldl -o "$out/minimal"

"$out/minimal" models/fairytales "Once upon a time" >"$out/text"
"$out/minimal" models/fairytales "Once upon a time" >"$out/again"
cmp "$out/text" "$out/again"
[ "$(wc -c <"$out/text")" -gt 200 ] || { echo "too little text:"; cat "$out/text"; exit 1; }
grep -qE '^\[(stop|length) after [0-9]+ tokens\]$' "$out/text" || { echo "no last line:"; cat "$out/text"; exit 1; }
# The library and the program choose the same tokens.
"$1" run -m models/fairytales -p "Once upon a time" -n 100 --seed 7 >"$out/run"
cmp "$out/run" <(head -n -1 "$out/text") || { echo "run and the example differ"; exit 1; }

# The header by itself, as C and as C++.
echo '#include <megadecode.h>' >"$out/header.c"
gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only "$out/header.c"
if command -v g++ >/dev/null; then g++ -Wall -Wextra -Werror -Iinclude -x c++ -fsyntax-only "$out/header.c"; fi

code=0
"$out/minimal" no/such/model 2>"$out/error" || code=$?
[ "$code" = 1 ] && grep -q no/such/model "$out/error"
echo "example: $(head -c 60 "$out/text")..."
