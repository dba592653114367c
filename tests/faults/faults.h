// Faults on demand: faults.c stands in for the C library's functions and lets chosen calls fail. Linked into a test it
// serves that process; as a preloaded library (megadecode_faults.so) it serves any program, and $MEGADECODE_FAULTS
// names a file that holds the table below, mapped by the program and by the test that steers it
// (tests/faults/steer.py).
#ifndef MD_TESTS_FAULTS_H
#define MD_TESTS_FAULTS_H

#include <stdatomic.h>
#include <stdint.h>

// Each kind of call is numbered from 1 since its count was last set to 0. The calls from..to fail; from 0: none.
typedef enum fault_kind {
    FAULT_MEMORY, // malloc, calloc, realloc, aligned_alloc, posix_memalign, mmap without a file: out of memory
    FAULT_THREAD, // pthread_create: EAGAIN
    FAULT_ADVICE, // madvise, mlock: EAGAIN
    FAULT_READ,   // read, pread: EIO
    FAULT_SHORT,  // read, pread: gives a byte only
    FAULT_WRITE,  // write, fsync, ftruncate: ENOSPC; the first write of them writes half instead
    FAULT_RENAME, // rename: EIO
    FAULT_KILL,   // open, write, fsync, rename, unlink, symlink: SIGKILL before the call
    FAULT_KINDS
} fault_kind;

typedef struct fault_table {
    _Atomic uint64_t calls[FAULT_KINDS], from[FAULT_KINDS], to[FAULT_KINDS];
    _Atomic uint64_t failed[FAULT_KINDS]; // calls that were made to fail; set to 0 by whoever likes
    _Atomic int64_t live;                 // blocks of memory that were allocated and not freed, mappings included
} fault_table;

extern fault_table *faults;

// From now on calls number from..to of that kind fail, and are counted from 1.
static inline void fault_set(fault_kind kind, uint64_t from, uint64_t to) {
    atomic_store(&faults->from[kind], 0);
    atomic_store(&faults->calls[kind], 0);
    atomic_store(&faults->failed[kind], 0);
    atomic_store(&faults->to[kind], to);
    atomic_store(&faults->from[kind], from);
}

// Between these two no call of that kind fails; it is counted from 1 again afterwards.
static inline uint64_t fault_pause(fault_kind kind) { return atomic_exchange(&faults->from[kind], 0); }
static inline void fault_resume(fault_kind kind, uint64_t from) {
    atomic_store(&faults->calls[kind], 0);
    atomic_store(&faults->from[kind], from);
}

// No more of them; how many there were.
static inline uint64_t fault_clear(fault_kind kind) {
    atomic_store(&faults->from[kind], 0);
    return atomic_load(&faults->failed[kind]);
}

#endif
