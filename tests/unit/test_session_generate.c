// Generation: MLX's greedy answer, limits, stop strings and end-of-text tokens over scripted tokens, seeds, cancelling,
// log-probabilities, and eight generations in one batch.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "plain_choice.h"
#include "session/model.h"
#include "shipped.h"

static const md_tokenizer *tokenizer;
static const uint32_t prompt[] = {0, 629, 515, 262, 457}; // "Once upon a time"
enum { PROMPT = 5, BATCH = 8 };

static int open_model(void **state) {
    shipped_open(state);
    tokenizer = md_model_tokenizer(model);
    return 0;
}

static md_session *new_session(uint32_t context, const char *kv) {
    md_session *session = NULL;
    OK(md_session_open(model, &(md_session_options){.context = context, .kv = kv}, &session, &err));
    return session;
}

// An answer as it came.
typedef struct answer {
    md_buf text;
    uint32_t ids[256];
    double logprob[256];
    bool hidden[256];
    uint64_t offset[256];
    size_t count, pieces, cancel_after; // cancel_after pieces; 0: never
    md_finish finish;
} answer;

static bool on_piece(void *user, const md_piece *piece) {
    answer *a = user;
    assert_int_equal(piece->text[piece->size], 0);
    md_buf_append(&a->text, piece->text, piece->size);
    for (size_t i = 0; i < piece->token_count; i++) {
        assert_true(a->count < 256);
        a->ids[a->count] = piece->tokens[i].id;
        a->logprob[a->count] = piece->tokens[i].logprob;
        a->hidden[a->count] = piece->tokens[i].hidden;
        a->offset[a->count++] = piece->tokens[i].text_offset;
    }
    a->finish = piece->finish;
    a->pieces++;
    return a->pieces != a->cancel_after;
}

static void reset(answer *a) {
    md_buf_free(&a->text);
    *a = (answer){.cancel_after = a->cancel_after};
    md_buf_init(&a->text, 1 << 20);
}

static md_result generate(md_session *session, const md_generation_params *params, answer *a) {
    md_result result;
    reset(a);
    OK(md_generate(session, prompt, PROMPT, params, on_piece, a, &result, &err));
    assert_int_equal(result.finish, a->finish);
    assert_int_equal(result.completion_tokens, a->count);
    assert_int_equal(result.prompt_tokens, PROMPT);
    return result;
}

// ---- against MLX -----------------------------------------------------------------------------------------------

// The free-running greedy answers that MLX gave, up to the first step where MLX's own two best logits are equal; with a
// quantized cache near ties may part the ways sooner.
static void test_greedy_is_mlx(void **state) {
    (void)state;
    const struct {
        const char *kv, *key;
        size_t tokens;
    } cases[] = {{"none", "greedy_ids_bf16_kv", 31}, {"snapshot", "greedy_ids_quantized_kv", 12}};
    json_t *golden = NULL;
    OK(md_json_read_file("tests/goldens/data/greedy.json", 1 << 20, &golden, &err));
    for (size_t c = 0; c < 2; c++) {
        answer a = {0};
        md_session *session = new_session(128, cases[c].kv);
        md_generation_params params = {.max_tokens = (uint32_t)cases[c].tokens};
        md_result result = generate(session, &params, &a);
        assert_int_equal(result.finish, MD_FINISH_LENGTH);
        for (size_t i = 0; i < cases[c].tokens; i++)
            assert_int_equal(a.ids[i], json_integer_value(json_array_get(json_object_get(golden, cases[c].key), i)));
        md_buf_free(&a.text);
        md_session_close(session);
    }
    json_decref(golden);
}

// ---- scripted tokens -------------------------------------------------------------------------------------------

// Forces the next token of a list.
typedef struct script {
    const uint32_t *ids;
    size_t count, at;
} script;

static md_status force(void *user, float *logits, uint32_t n, md_error *err) {
    script *s = user;
    if (s->at >= s->count) return md_fail(err, MD_E_INTERNAL, "the script has ended");
    uint32_t id = s->ids[s->at++];
    for (uint32_t i = 0; i < n; i++) logits[i] = i == id ? 0 : -INFINITY;
    return MD_OK;
}

// Runs a script of ids and checks text, finish and the number of tokens.
static void check_script(const uint32_t *ids, size_t count, md_generation_params params, const char *text,
                         md_finish finish, uint32_t tokens) {
    answer a = {0};
    script s = {ids, count, 0};
    md_session *session = new_session(64, NULL);
    params.sampling.adjust = force;
    params.sampling.adjust_user = &s;
    md_result result = generate(session, &params, &a);
    assert_string_equal(md_buf_str(&a.text), text);
    assert_int_equal(result.finish, finish);
    assert_int_equal(result.completion_tokens, tokens);
    // Continued elsewhere: all but the last chosen token are in the session.
    assert_int_equal(md_session_position(session), PROMPT + tokens - 1);
    md_buf_free(&a.text);
    md_session_close(session);
}

static void check_text(const char *scripted, const char *const *stop, size_t stops, const char *expected,
                       md_finish finish) {
    uint32_t *ids = NULL;
    size_t n = 0;
    OK(md_encode(tokenizer, scripted, strlen(scripted), 0, &ids, &n, &err));
    assert_true(n > 1);
    answer a = {0};
    script s = {ids, n, 0};
    md_session *session = new_session(128, NULL);
    md_generation_params params = {
        .max_tokens = (uint32_t)n, .stop = stop, .stop_count = stops, .sampling = {.adjust = force, .adjust_user = &s}};
    md_result result = generate(session, &params, &a);
    assert_string_equal(md_buf_str(&a.text), expected);
    assert_int_equal(result.finish, finish);
    if (finish == MD_FINISH_STOP) {
        assert_int_equal(result.stop_index, 0);
        // Hidden tokens are those whose text was cut off altogether.
        for (size_t i = 0; i < a.count; i++) assert_int_equal(a.hidden[i], a.offset[i] >= strlen(expected));
    }
    md_buf_free(&a.text);
    md_session_close(session);
    md_free(ids);
}

static void test_stop_strings(void **state) {
    (void)state;
    const char *letters[] = {"DEFGHIJ"}, *words[] = {"beta gamma"}, *emoji[] = {"\xf0\x9f\x98\x8a!"}, *dot[] = {"."};
    check_text("ABCDEFGHIJKLM", letters, 1, "ABC", MD_FINISH_STOP);
    check_text("ABCDEFGHI", letters, 1, "ABCDEFGHI", MD_FINISH_LENGTH);
    check_text("alpha beta gamma delta", words, 1, "alpha ", MD_FINISH_STOP);
    check_text("alpha beta gam", words, 1, "alpha beta gam", MD_FINISH_LENGTH);
    check_text("so \xf0\x9f\x98\x8a\xf0\x9f\x98\x8a! no", emoji, 1, "so \xf0\x9f\x98\x8a", MD_FINISH_STOP);
    check_text(". and on", dot, 1, "", MD_FINISH_STOP);
    check_text("\xc4\x8f\xc3\xa1"
               "belsk\xc3\xa9 \xf0\x9f\x98\x8a",
               NULL, 0,
               "\xc4\x8f\xc3\xa1"
               "belsk\xc3\xa9 \xf0\x9f\x98\x8a",
               MD_FINISH_LENGTH);
}

// Characters of several tokens leave whole: no piece holds half of one, none is replaced.
static bool whole_characters(void *user, const md_piece *piece) {
    json_t *text = json_stringn(piece->text, piece->size); // refuses what is not UTF-8
    assert_non_null(text);
    assert_null(strstr(piece->text, "\xef\xbf\xbd"));
    json_decref(text);
    return on_piece(user, piece);
}

static void test_half_characters(void **state) {
    (void)state;
    const char *smile = "\xf0\x9f\x98\x8a";
    uint32_t *ids = NULL;
    size_t n = 0;
    OK(md_encode(tokenizer, smile, 4, 0, &ids, &n, &err));
    assert_true(n >= 2); // several tokens, or this test shows nothing
    answer a = {0};
    reset(&a);
    script s = {ids, n, 0};
    md_session *session = new_session(64, NULL);
    md_generation_params params = {.max_tokens = (uint32_t)n, .sampling = {.adjust = force, .adjust_user = &s}};
    OK(md_generate(session, prompt, PROMPT, &params, whole_characters, &a, NULL, &err));
    assert_string_equal(md_buf_str(&a.text), smile);
    // Cut short inside the character: one replacement character at the end.
    s.at = 0;
    params.max_tokens = (uint32_t)n - 1;
    generate(session, &params, &a);
    assert_string_equal(md_buf_str(&a.text), "\xef\xbf\xbd");
    md_buf_free(&a.text);
    md_session_close(session);
    md_free(ids);
}

static void test_end_of_text(void **state) {
    (void)state;
    uint32_t *word = NULL;
    size_t n = 0;
    OK(md_encode(tokenizer, " the", 4, 0, &word, &n, &err));
    assert_int_equal(n, 1);
    // Both of the snapshot's end-of-text tokens end it, not the first alone.
    const uint32_t first[] = {word[0], 1, word[0]}, second[] = {word[0], word[0], 3, word[0]};
    check_script(first, 3, (md_generation_params){0}, " the", MD_FINISH_STOP, 2);
    check_script(second, 4, (md_generation_params){0}, " the the", MD_FINISH_STOP, 3);
    check_script(first, 3, (md_generation_params){.ignore_eos = true, .max_tokens = 3}, " the the", MD_FINISH_LENGTH,
                 3);
    check_script(first, 3, (md_generation_params){.ignore_eos = true, .keep_special = true, .max_tokens = 3},
                 " the</s> the", MD_FINISH_LENGTH, 3);
    md_free(word);
}

// ---- limits ----------------------------------------------------------------------------------------------------

static void test_limits(void **state) {
    (void)state;
    answer a = {0};
    md_session *session = new_session(12, NULL);
    // The last token needs no room: 12 positions hold the prompt's 5 and 7 of the answer's 8.
    md_result result = generate(session, &(md_generation_params){0}, &a);
    assert_int_equal(result.finish, MD_FINISH_CONTEXT);
    assert_int_equal(result.completion_tokens, 8);
    result = generate(session, &(md_generation_params){.max_tokens = 8}, &a);
    assert_int_equal(result.finish, MD_FINISH_LENGTH);
    assert_int_equal(result.cached_tokens, PROMPT - 1);
    result = generate(session, &(md_generation_params){.max_tokens = 1}, &a);
    assert_int_equal(result.finish, MD_FINISH_LENGTH);
    assert_int_equal(result.completion_tokens, 1);
    result = generate(session, &(md_generation_params){.max_tokens = 100}, &a);
    assert_int_equal(result.finish, MD_FINISH_CONTEXT);
    md_session_close(session);

    session = new_session(4, NULL);
    md_error said = {0};
    assert_int_equal(md_generate(session, prompt, PROMPT, NULL, NULL, NULL, &result, &said), MD_E_CONTEXT);
    assert_non_null(strstr(said.message, "5 tokens"));
    assert_non_null(strstr(said.message, "4 tokens"));
    md_session_close(session);
    session = new_session(5, NULL); // a prompt that fills the context still gets one token
    result = generate(session, &(md_generation_params){0}, &a);
    assert_int_equal(result.completion_tokens, 1);
    assert_int_equal(result.finish, MD_FINISH_CONTEXT);
    md_session_close(session);
    md_buf_free(&a.text);
}

static bool stop_prefill(void *user, uint32_t done, uint32_t total) {
    (void)done;
    assert_int_equal(total, PROMPT);
    ++*(int *)user;
    return false;
}

static void test_cancel(void **state) {
    (void)state;
    answer a = {.cancel_after = 3};
    md_session *session = new_session(64, NULL);
    md_result result = generate(session, &(md_generation_params){.max_tokens = 20}, &a);
    assert_int_equal(result.finish, MD_FINISH_CANCELLED);
    assert_int_equal(result.completion_tokens, 3);
    int calls = 0;
    md_generation_params params = {.progress = stop_prefill, .progress_user = &calls};
    OK(md_generate(session, prompt, PROMPT, &params, NULL, NULL, &result, &err));
    assert_int_equal(result.finish, MD_FINISH_CANCELLED);
    assert_int_equal(calls, 1);
    a.cancel_after = 0; // and the session goes on as if nothing had been
    answer b = {0};
    md_session *fresh = new_session(64, NULL);
    params = (md_generation_params){.max_tokens = 12};
    generate(session, &params, &a);
    generate(fresh, &params, &b);
    assert_string_equal(md_buf_str(&a.text), md_buf_str(&b.text));
    md_session_close(session);
    md_session_close(fresh);
    md_buf_free(&a.text);
    md_buf_free(&b.text);
}

static void test_refused(void **state) {
    (void)state;
    const char *empty[] = {""};
    const struct {
        md_generation_params params;
        const char *name;
    } cases[] = {{{.stop = empty, .stop_count = 1}, "stop[0]"},
                 {{.top_logprobs = MD_TOP_LOGPROBS_MAX + 1}, "top_logprobs"},
                 {{.sampling = {.temperature = NAN}}, "temperature"}};
    md_session *session = new_session(16, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        md_error said = {0};
        assert_int_equal(md_generate(session, prompt, PROMPT, &cases[i].params, NULL, NULL, NULL, &said), MD_E_USAGE);
        assert_non_null(strstr(said.message, cases[i].name));
    }
    md_generation *generation = NULL;
    md_piece piece;
    md_error said = {0};
    char *text;
    uint32_t *ids;
    size_t n;
    assert_int_equal(md_encode(NULL, "a", 1, 0, &ids, &n, &said), MD_E_USAGE); // a snapshot without tokenizer.json
    assert_int_equal(md_encode_spans(NULL, NULL, 0, false, &ids, &n, &said), MD_E_USAGE);
    assert_int_equal(md_decode(NULL, prompt, PROMPT, false, &text, &n, &said), MD_E_USAGE);
    assert_non_null(strstr(said.message, "tokenizer.json"));
    OK(md_session_rewind(session, 2, &err));
    OK(md_generation_open(session, &(md_generation_params){.max_tokens = 1}, &generation, &err));
    assert_int_equal(md_generation_next(generation, &piece, &said), MD_E_USAGE); // no logits after a rewind
    OK(md_session_feed(session, prompt + 2, 3, &err));
    OK(md_generation_next(generation, &piece, &err));
    assert_int_equal(piece.finish, MD_FINISH_LENGTH);
    assert_int_equal(md_generation_next(generation, &piece, &said), MD_E_USAGE); // after the end
    md_generation_close(generation);
    md_session_close(session);
}

// ---- sampling and log-probabilities ----------------------------------------------------------------------------

static void test_seeds(void **state) {
    (void)state;
    answer a = {0}, b = {0}, c = {0};
    md_session *s = new_session(64, NULL), *t = new_session(100, NULL);
    md_generation_params params = {.max_tokens = 25};
    md_model_sampling(model, &params.sampling);
    assert_true(params.sampling.temperature == 0.7 && params.sampling.top_p == 0.9);
    params.sampling.seed = 11;
    generate(s, &params, &a);
    generate(t, &params, &b);
    assert_memory_equal(a.ids, b.ids, sizeof a.ids);
    params.sampling.seed = 12;
    generate(t, &params, &c);
    assert_memory_not_equal(a.ids, c.ids, sizeof a.ids);
    md_buf_free(&a.text);
    md_buf_free(&b.text);
    md_buf_free(&c.text);
    md_session_close(s);
    md_session_close(t);
}

static bool check_top(void *user, const md_piece *piece) {
    for (size_t i = 0; i < piece->token_count; i++) {
        const md_token *token = &piece->tokens[i];
        assert_int_equal(token->top_count, 5);
        double sum = 0;
        for (uint32_t t = 0; t < 5; t++) {
            assert_true(t == 0 || token->top[t].logprob <= token->top[t - 1].logprob);
            sum += exp(token->top[t].logprob);
        }
        assert_true(sum > 0 && sum < 1 + 1e-9);
        assert_int_equal(token->top[0].token, token->id); // greedy
        assert_true(token->top[0].logprob == token->logprob);
    }
    return on_piece(user, piece);
}

static void test_logprobs(void **state) {
    (void)state;
    const char *stop[] = {" was a little girl named Zelda"}; // holds several tokens back
    answer a = {0};
    reset(&a);
    md_session *s = new_session(64, NULL);
    md_generation_params params = {
        .max_tokens = 12, .stop = stop, .stop_count = 1, .logprobs = true, .top_logprobs = 5};
    OK(md_generate(s, prompt, PROMPT, &params, check_top, &a, NULL, &err));
    assert_int_equal(a.count, 12);
    // By hand: log-softmax of the logits after the prompt, with libm.
    md_session *t = new_session(64, NULL);
    OK(md_session_feed(t, prompt, PROMPT, &err));
    const float *logits = md_session_logits(t);
    double sum = 0;
    for (uint32_t i = 0; i < vocab; i++) sum += exp((double)logits[i] - (double)logits[a.ids[0]]);
    assert_true(fabs(a.logprob[0] + log(sum)) < 1e-12);
    md_buf_free(&a.text);
    md_session_close(s);
    md_session_close(t);
}

// ---- engines that decode many tokens in one call ---------------------------------------------------------------

static int bursts; // calls of step_burst

// md_engine_ops.burst by steps, at most 5 tokens a call; now and then it can't decide.
static md_status step_burst(md_engine *engine, md_burst *burst, md_error *err) {
    md_status status = MD_OK;
    bool go_on = true;
    bursts++;
    for (uint32_t c = 0; c < burst->count; c++)
        burst->column[c].produced = 0, burst->column[c].undecided = false,
        burst->column[c].last = burst->column[c].token;
    for (uint32_t n = 0; go_on && n < burst->max_tokens && n < 5; n++) {
        md_column step[8];
        for (uint32_t c = 0; c < burst->count; c++) {
            const md_burst_column *column = &burst->column[c];
            step[c] = (md_column){column->kv, column->position + n, column->last, column->logits};
        }
        status = engine->ops->step(engine, step, burst->count, err);
        if (status != MD_OK) break;
        for (uint32_t c = 0; c < burst->count; c++) {
            md_burst_column *column = &burst->column[c];
            if (column->choice.sampled && (column->position + n + c) % 7 == 3) {
                column->undecided = true, go_on = false;
                continue;
            }
            column->last = choose_plainly(&column->choice, column->logits, vocab, column->choice.draw + n);
            column->produced++;
            go_on &= column->on_token(column->user, column->last);
            for (uint32_t i = 0; i < column->stop_count; i++) go_on &= column->last != column->stop[i];
        }
    }
    return status;
}

// ---- together --------------------------------------------------------------------------------------------------

// One of several generations that share steps.
typedef struct seat {
    md_session *session;
    md_generation *generation;
    answer answer;
    uint32_t next;
    bool done, fed; // next is chosen and not computed yet; fed: nothing to choose from
} seat;

static bool seat_piece(void *user, const md_piece *piece) {
    seat *s = user;
    s->done = piece->finish != MD_FINISH_NONE;
    return on_piece(&s->answer, piece);
}

// Chooses the seat's next token; false when its answer has ended.
static bool choose(seat *s) {
    if (s->fed) return !s->done;
    md_piece piece;
    OK(md_generation_next(s->generation, &piece, &err));
    seat_piece(s, &piece);
    s->next = piece.next;
    return !s->done;
}

// One call for all that run: a step, or up to `most` tokens.
static void compute(seat **of, uint32_t n, uint32_t most) {
    md_batch_column columns[BATCH];
    md_batch_turn turns[BATCH];
    for (uint32_t i = 0; i < n; i++) {
        columns[i] = (md_batch_column){of[i]->session, of[i]->next, true};
        turns[i] = (md_batch_turn){
            .generation = of[i]->generation, .token = of[i]->next, .on_piece = seat_piece, .user = of[i]};
    }
    if (!most) {
        OK(md_batch_step(model, columns, n, &err));
        return;
    }
    OK(md_batch_generate(model, turns, n, most, &err));
    for (uint32_t i = 0; i < n; i++) of[i]->next = turns[i].token, of[i]->fed = !turns[i].choose;
}

// Eight answers of different prompts, seeds and lengths, each joining one step after the other: each is as alone.
static void eight_together(uint32_t most) {
    seat seats[BATCH] = {{0}};
    md_generation_params params[BATCH];
    uint32_t prompts[BATCH][PROMPT];
    size_t running = 0;
    for (uint32_t i = 0; i < BATCH; i++) {
        memcpy(prompts[i], prompt, sizeof prompt);
        prompts[i][3] = 262 + i % 3;
        params[i] = (md_generation_params){.max_tokens = 4 + i, .sampling = {.temperature = 0.8, .seed = i}};
        reset(&seats[i].answer);
        seats[i].session = new_session(32, NULL);
    }
    for (uint32_t step = 0; step < BATCH || running; step++) {
        if (step < BATCH) {
            seat *s = &seats[step];
            OK(md_session_sync(s->session, prompts[step], PROMPT, NULL, &err));
            OK(md_generation_open(s->session, &params[step], &s->generation, &err));
        }
        seat *of[BATCH];
        running = 0;
        for (uint32_t i = 0; i < BATCH && i <= step; i++)
            if (!seats[i].done && choose(&seats[i])) of[running++] = &seats[i];
        if (running) compute(of, (uint32_t)running, most);
    }
    for (uint32_t i = 0; i < BATCH; i++) {
        answer alone = {0};
        reset(&alone);
        md_session *session = new_session(64, NULL);
        OK(md_generate(session, prompts[i], PROMPT, &params[i], on_piece, &alone, NULL, &err));
        assert_int_equal(seats[i].answer.count, alone.count);
        assert_memory_equal(seats[i].answer.ids, alone.ids, sizeof alone.ids);
        assert_string_equal(md_buf_str(&seats[i].answer.text), md_buf_str(&alone.text));
        md_session_close(session);
        md_buf_free(&alone.text);
        md_buf_free(&seats[i].answer.text);
        md_generation_close(seats[i].generation);
        md_session_close(seats[i].session);
    }
}

static void test_eight_together(void **state) {
    (void)state;
    const md_engine_ops *plain = model->engine->ops;
    md_engine_ops bursting = *plain;
    bursting.burst = step_burst;
    eight_together(0);
    eight_together(4); // an engine without bursts
    model->engine->ops = &bursting;
    eight_together(1);
    eight_together(4);
    assert_true(bursts > 0);
    model->engine->ops = plain;
}

// The same answers, pieces and positions with bursts as with steps, whatever ends them.
static void test_bursts(void **state) {
    (void)state;
    const md_engine_ops *plain = model->engine->ops;
    md_engine_ops bursting = *plain;
    bursting.burst = step_burst;
    const char *stop[] = {"little girl"}, *names[] = {"girl named Lily. Sh"};
    const md_generation_params params[] = {{.max_tokens = 23},
                                           {.max_tokens = 1},
                                           {.max_tokens = 60, .stop = stop, .stop_count = 1},
                                           {.max_tokens = 60, .stop = names, .stop_count = 1},
                                           {.max_tokens = 0},
                                           {.max_tokens = 33, .sampling = {.temperature = 1, .seed = 4}},
                                           {.max_tokens = 33, .sampling = {.temperature = 2, .top_k = 9, .seed = 5}},
                                           {.sampling = {.temperature = 3, .top_p = 0.8, .min_p = 0.01, .seed = 6}},
                                           {.max_tokens = 20, .logprobs = true},
                                           {.max_tokens = 20, .sampling = {.presence_penalty = 1}}};
    for (size_t i = 0; i < sizeof params / sizeof *params; i++) {
        for (size_t cancel = 0; cancel < 9; cancel += 4) {
            answer a = {.cancel_after = cancel}, b = {.cancel_after = cancel};
            md_session *s = new_session(40, NULL), *t = new_session(40, NULL);
            md_result of_a = generate(s, &params[i], &a);
            model->engine->ops = &bursting;
            bursts = 0;
            md_result of_b = generate(t, &params[i], &b);
            model->engine->ops = plain;
            assert_int_equal(bursts > 0, i < 8 && params[i].max_tokens != 1);
            assert_int_equal(of_a.finish, of_b.finish);
            assert_int_equal(of_a.stop_index, of_b.stop_index);
            assert_memory_equal(a.ids, b.ids, sizeof a.ids);
            assert_int_equal(a.pieces, b.pieces);
            assert_string_equal(md_buf_str(&a.text), md_buf_str(&b.text));
            assert_int_equal(md_session_position(s), md_session_position(t));
            assert_memory_equal(md_session_tokens(s), md_session_tokens(t), md_session_position(s) * 4);
            // And the sessions go on alike.
            OK(md_session_rewind(s, md_session_position(s) - 1, &err));
            OK(md_session_rewind(t, md_session_position(t) - 1, &err));
            OK(md_session_feed(s, prompt, 1, &err));
            OK(md_session_feed(t, prompt, 1, &err));
            assert_memory_equal(md_session_logits(s), md_session_logits(t), vocab * sizeof(float));
            md_session_close(s);
            md_session_close(t);
            md_buf_free(&a.text);
            md_buf_free(&b.text);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_is_mlx),   cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_half_characters), cmocka_unit_test(test_end_of_text),
        cmocka_unit_test(test_limits),          cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_refused),         cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_logprobs),        cmocka_unit_test(test_eight_together),
        cmocka_unit_test(test_bursts),
    };
    return cmocka_run_group_tests(tests, open_model, shipped_close);
}
