// The engine's functions as any thread may call them: one at a time, since they share a stream, a report, the pinned
// buffers. The thread that has the lock comes back only from a burst's on_token: it may close a cache there, all else
// is refused, since the burst's launch is under way in the same buffers.
#include "backend/cuda/engine.h"

void md_cuda_lock_init(md_cuda_engine *engine) {
    pthread_mutexattr_t again;
    pthread_mutexattr_init(&again);
    pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&engine->lock, &again);
    pthread_mutexattr_destroy(&again);
}

// MD_E_USAGE, and the lock not taken once more, when called from inside a burst.
static md_status lock(md_engine *base, md_error *err) {
    md_cuda_engine *engine = md_cuda_of(base);
    pthread_mutex_lock(&engine->lock);
    if (!engine->in_burst) return MD_OK;
    pthread_mutex_unlock(&engine->lock);
    return md_fail(err, MD_E_USAGE, "CUDA: called while tokens of the same model are handed on, by the same thread");
}

static md_status unlock(md_engine *engine, md_status status) {
    pthread_mutex_unlock(&md_cuda_of(engine)->lock);
    return status;
}

md_status md_cuda_locked_kv_open(md_engine *engine, uint32_t context, md_kv **out, md_error *err) {
    MD_TRY(lock(engine, err));
    return unlock(engine, md_cuda_kv_open(engine, context, out, err));
}

void md_cuda_locked_kv_close(md_engine *engine, md_kv *kv) {
    pthread_mutex_lock(&md_cuda_of(engine)->lock);
    md_cuda_kv_close(engine, kv);
    (void)unlock(engine, MD_OK);
}

md_status md_cuda_locked_kv_quantize(md_engine *engine, md_kv *kv, const md_kv_format *format, uint32_t positions,
                                     md_error *err) {
    MD_TRY(lock(engine, err));
    return unlock(engine, md_cuda_kv_quantize(engine, kv, format, positions, err));
}

md_status md_cuda_locked_kv_copy(md_engine *engine, md_kv *dst, const md_kv *src, uint32_t positions, md_error *err) {
    MD_TRY(lock(engine, err));
    return unlock(engine, md_cuda_kv_copy(engine, dst, src, positions, err));
}

md_status md_cuda_locked_step(md_engine *engine, const md_column *columns, uint32_t count, md_error *err) {
    MD_TRY(lock(engine, err));
    return unlock(engine, md_cuda_step(engine, columns, count, err));
}

md_status md_cuda_locked_burst(md_engine *engine, md_burst *burst, md_error *err) {
    MD_TRY(lock(engine, err));
    md_cuda_of(engine)->in_burst = true;
    md_status status = md_cuda_burst(engine, burst, err);
    md_cuda_of(engine)->in_burst = false;
    return unlock(engine, status);
}

md_status md_cuda_locked_account(md_engine *engine, md_account *out, md_error *err) {
    MD_TRY(lock(engine, err));
    return unlock(engine, md_cuda_account(engine, out, err));
}
