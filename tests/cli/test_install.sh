#!/usr/bin/env bash
# An installation below a DESTDIR, used from a folder outside the sources: the program with the shipped model, a C program
# built through pkg-config and through CMake's find_package as docs/API.md says, man pages, completions; and nothing left
# after uninstall.
set -euo pipefail
build=$(cd "$(dirname "$1")" && pwd)
example=$PWD/examples/minimal.c
api=$PWD/docs/API.md
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

fail() { echo "FAILED: $*"; exit 1; }
if nm "$build/libmegadecode.a" 2>/dev/null | grep -qE '__(asan|tsan)_init'; then
    echo "install: skipped: this build folder holds a sanitized library"
    exit 0
fi

# The build folder's own record of an installation stays as it was.
manifest=$build/install_manifest.txt
if [ -f "$manifest" ]; then cp -p "$manifest" "$out/manifest"; fi
put_back() {
    if [ -f "$out/manifest" ]; then cp -p "$out/manifest" "$manifest"; else rm -f "$manifest"; fi
    rm -rf "$out"
}
trap put_back EXIT

DESTDIR=$out/dest cmake --install "$build" --prefix /opt/mega >"$out/log" || fail "$(tail -5 "$out/log")"
mv "$out/dest" "$out/moved" # all of it can be moved
root=$out/moved/opt/mega
cd "$out"

# The program finds the model that was installed with it.
"$root/bin/megadecode" inspect --json >inspect.json
grep -q "\"dir\":\"$root/share/megadecode/models/fairytales\"" inspect.json || fail "$(head -c 300 inspect.json)"
[ -n "$("$root/bin/megadecode" run -p "Once upon a time" -n 5)" ] || fail "no text"

block() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$api" | sed '1d;/^```$/,$d'; } # the page's first block of a language

# Through pkg-config: the page's own line, and with warnings.
mkdir app
cp "$example" app/app.c
pc=$(dirname "$(find "$root" -name megadecode.pc)")
[ -f "$root/lib/pkgconfig/megadecode.pc" ] || fail "the page says another place than $pc"
block sh >build.sh
grep -q '^cc .*pkg-config --cflags --libs megadecode' build.sh || fail "the page's commands: $(cat build.sh)"
(cd app && PKG_CONFIG_PATH=$root/lib/pkgconfig sh -e ../build.sh && ./app "$root/share/megadecode/models/fairytales" >../page && rm app)
# shellcheck disable=SC2046
${CC:-gcc} -std=c11 -Wall -Werror app/app.c -o app/by-pkg-config \
    $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs megadecode)
[ "$(PKG_CONFIG_PATH=$pc pkg-config --modversion megadecode)" = "$("$root/bin/megadecode" --version | awk 'NR==1{print $2}')" ] ||
    fail "pkg-config says another version than the program"
app/by-pkg-config "$root/share/megadecode/models/fairytales" >first
[ "$(wc -c <first)" -gt 200 ] || fail "too little text: $(cat first)"
cmp first page

# Through CMake.
block cmake >app/CMakeLists.txt
grep -q '^find_package(megadecode' app/CMakeLists.txt || fail "the page's CMake: $(cat app/CMakeLists.txt)"
cmake -S app -B app/build -G Ninja -DCMAKE_PREFIX_PATH="$root" >"$out/log" 2>&1 || fail "$(tail -20 "$out/log")"
ninja -C app/build >"$out/log" 2>&1 || fail "$(tail -20 "$out/log")"
app/build/app "$root/share/megadecode/models/fairytales" >second
cmp first second

# A page and completions for every command and its options.
"$root/bin/megadecode" --help | sed -nE '/^Commands:/,/^$/s/^  ([a-z]+) .*/\1/p' >commands
[ "$(wc -l <commands)" -ge 5 ] || fail "commands: $(cat commands)"
# shellcheck disable=SC1091
source "$root/share/bash-completion/completions/megadecode"
complete_words() { # complete_words WORD...: what bash offers for the last one
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _megadecode
    printf '%s\n' "${COMPREPLY[@]}"
}
while read -r command; do
    page=$root/share/man/man1/megadecode-$command.1
    [ -f "$page" ] || fail "no page for $command"
    complete_words megadecode "${command:0:2}" | grep -qx "$command" || fail "bash does not offer $command"
    "$root/bin/megadecode" "$command" --help | grep -oE '^ +(-., )?--[a-z-]+' | grep -oE -- '--[a-z-]+' | sort -u >options
    complete_words megadecode "$command" -- | sort -u | cmp -s - options || fail "bash: $command: $(cat options)"
    grep -v -- --help options | while read -r option; do
        grep -qF -- "\\fB${option//-/\\-}\\fR" "$page" || fail "$page: no $option"
        grep -q -- "-l ${option#--}\b" "$root/share/fish/vendor_completions.d/megadecode.fish" || fail "fish: $option"
        grep -q -- "$option\b" "$root/share/zsh/site-functions/_megadecode" || fail "zsh: $option"
    done
done <commands
complete_words megadecode pull --revision app/a | grep -qx app/app.c || fail "bash: no file as a value"
if command -v groff >/dev/null; then
    for page in "$root"/share/man/man1/*.1; do
        warnings=$(groff -man -Tutf8 -ww -z "$page" 2>&1)
        [ -z "$warnings" ] || fail "$warnings"
    done
fi
if command -v zsh >/dev/null; then zsh -n "$root/share/zsh/site-functions/_megadecode"; fi
if command -v fish >/dev/null; then fish -n "$root/share/fish/vendor_completions.d/megadecode.fish"; fi

# uninstall works on what the manifest of the last installation names.
mv "$out/moved" "$out/dest"
DESTDIR=$out/dest cmake -DMANIFEST="$manifest" -P "$(dirname "$example")/../cmake/uninstall.cmake"
left=$(find "$out/dest" -type f -o -name '*megadecode*')
[ -z "$left" ] || fail "uninstall left $left"
echo "install: $(wc -l <commands) commands, program and library from an installation"
