// Streams a model's continuation of a prompt: minimal MODEL [PROMPT]
#include <megadecode.h>
#include <stdio.h>
#include <string.h>

static bool print_piece(void *user, const md_piece *piece) {
    (void)user;
    fwrite(piece->text, 1, piece->size, stdout);
    return fflush(stdout) == 0; // false, when nobody reads any more, ends the generation
}

int main(int argc, char **argv) {
    const char *prompt = argc > 2 ? argv[2] : "Once upon a time";
    md_model *model = NULL;
    md_session *session = NULL;
    uint32_t *ids = NULL;
    size_t n = 0;
    md_result result;
    md_error err;
    int status = 1;

    if (argc < 2) {
        fprintf(stderr, "usage: minimal MODEL [PROMPT]\n");
        return 2;
    }
    if (md_model_open(argv[1], NULL, &model, &err) != MD_OK) goto fail;
    if (md_session_open(model, NULL, &session, &err) != MD_OK) goto fail;
    if (md_encode(md_model_tokenizer(model), prompt, strlen(prompt), MD_ENCODE_ADD_SPECIAL, &ids, &n, &err) != MD_OK)
        goto fail;

    md_generation_params params = {.max_tokens = 100};
    md_model_sampling(model, &params.sampling); // what the model's authors recommend
    params.sampling.seed = 7;
    if (md_generate(session, ids, n, &params, print_piece, NULL, &result, &err) != MD_OK) goto fail;
    printf("\n[%s after %u tokens]\n", md_finish_name(result.finish), (unsigned)result.completion_tokens);
    status = fflush(stdout) != 0;
    if (status) perror("minimal: the output");
    goto done;

fail:
    fprintf(stderr, "minimal: %s\n", err.message);
done:
    md_free(ids);
    md_session_close(session);
    md_model_close(model);
    return status;
}
