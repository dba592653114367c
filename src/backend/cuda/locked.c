// The engine's functions as any thread may call them: one at a time, since they share a stream, a report, the pinned
// buffers. The lock may be taken again by the thread that has it: a caller's on_token may use another session.
#include "backend/cuda/engine.h"

void md_cuda_lock_init(md_cuda_engine *engine) {
    pthread_mutexattr_t again;
    pthread_mutexattr_init(&again);
    pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&engine->lock, &again);
    pthread_mutexattr_destroy(&again);
}

static void lock(md_engine *engine) { pthread_mutex_lock(&md_cuda_of(engine)->lock); }

static md_status unlock(md_engine *engine, md_status status) {
    pthread_mutex_unlock(&md_cuda_of(engine)->lock);
    return status;
}

md_status md_cuda_locked_kv_open(md_engine *engine, uint32_t context, md_kv **out, md_error *err) {
    lock(engine);
    return unlock(engine, md_cuda_kv_open(engine, context, out, err));
}

void md_cuda_locked_kv_close(md_engine *engine, md_kv *kv) {
    lock(engine);
    md_cuda_kv_close(engine, kv);
    (void)unlock(engine, MD_OK);
}

md_status md_cuda_locked_kv_quantize(md_engine *engine, md_kv *kv, const md_kv_format *format, uint32_t positions,
                                     md_error *err) {
    lock(engine);
    return unlock(engine, md_cuda_kv_quantize(engine, kv, format, positions, err));
}

md_status md_cuda_locked_kv_copy(md_engine *engine, md_kv *dst, const md_kv *src, uint32_t positions, md_error *err) {
    lock(engine);
    return unlock(engine, md_cuda_kv_copy(engine, dst, src, positions, err));
}

md_status md_cuda_locked_step(md_engine *engine, const md_column *columns, uint32_t count, md_error *err) {
    lock(engine);
    return unlock(engine, md_cuda_step(engine, columns, count, err));
}

md_status md_cuda_locked_burst(md_engine *engine, md_burst *burst, md_error *err) {
    lock(engine);
    return unlock(engine, md_cuda_burst(engine, burst, err));
}
