// Lets a bounded number of threads through at the same time; the others wait.
#ifndef MD_SERVER_GATE_H
#define MD_SERVER_GATE_H

#include <pthread.h>
#include <stdint.h>

typedef struct md_gate {
    pthread_mutex_t mutex;
    pthread_cond_t opened;
    uint32_t free;
} md_gate;

static inline void md_gate_init(md_gate *gate, uint32_t n) {
    pthread_mutex_init(&gate->mutex, NULL);
    pthread_cond_init(&gate->opened, NULL);
    gate->free = n;
}

static inline void md_gate_enter(md_gate *gate) {
    pthread_mutex_lock(&gate->mutex);
    while (gate->free == 0) pthread_cond_wait(&gate->opened, &gate->mutex);
    gate->free--;
    pthread_mutex_unlock(&gate->mutex);
}

static inline void md_gate_leave(md_gate *gate) {
    pthread_mutex_lock(&gate->mutex);
    gate->free++;
    pthread_cond_signal(&gate->opened);
    pthread_mutex_unlock(&gate->mutex);
}

static inline void md_gate_destroy(md_gate *gate) {
    pthread_mutex_destroy(&gate->mutex);
    pthread_cond_destroy(&gate->opened);
}

#endif
