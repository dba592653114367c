#include "cli/docs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "cli/output.h"

enum { MAX_DOC_BYTES = 1 << 20, MAX_DOC_PATH = 4096 };

// Writes DIR/FOLDER/NAME, and the folders it lies in.
static md_status write_doc(const char *dir, const char *name, md_buf *text, md_error *err) {
    char path[MAX_DOC_PATH];
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (n < 0 || n >= (int)sizeof path || text->failed)
        return md_fail(err, MD_E_MEMORY, "%s: too long, or out of memory", name);
    for (char *at = path + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return md_fail(err, MD_E_IO, "%s: cannot make the folder: %s", path, strerror(errno));
        *at = '/';
    }
    md_status status = md_file_write_atomic(path, md_buf_str(text), text->size, err);
    md_buf_clear(text);
    return status;
}

static md_status write_docs(const char *dir, md_buf *text, md_error *err) {
    char name[128];
    md_docs_program_page(text);
    MD_TRY(write_doc(dir, "man/man1/megadecode.1", text, err));
    for (size_t i = 0; md_commands[i]; i++) {
        snprintf(name, sizeof name, "man/man1/megadecode-%s.1", md_commands[i]->name);
        md_docs_command_page(text, md_commands[i]);
        MD_TRY(write_doc(dir, name, text, err));
    }
    md_docs_bash(text);
    MD_TRY(write_doc(dir, "bash-completion/completions/megadecode", text, err));
    md_docs_zsh(text);
    MD_TRY(write_doc(dir, "zsh/site-functions/_megadecode", text, err));
    md_docs_fish(text);
    return write_doc(dir, "fish/vendor_completions.d/megadecode.fish", text, err);
}

int md_docs_main(int argc, char **argv) {
    if (argc != 2 || argv[1][0] == '-') {
        fprintf(stderr, "usage: megadecode generate-docs DIR\n");
        return MD_EXIT_USAGE;
    }
    md_buf text;
    md_buf_init(&text, MAX_DOC_BYTES);
    md_error err = {0};
    md_status status = write_docs(argv[1], &text, &err);
    md_buf_free(&text);
    return status == MD_OK ? MD_EXIT_DONE : md_out_error("generate-docs", false, &err);
}
