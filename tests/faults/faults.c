#define _GNU_SOURCE
#include "faults/faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// The C library's own allocator by its other names, or the sanitizer's. (This file is built without sanitizers: it runs
// before they are ready.)
#ifdef MD_SANITIZED
#define REAL(name) __interceptor_##name
int __interceptor_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
#else
#define REAL(name) __libc_##name
#endif
void *REAL(malloc)(size_t);
void *REAL(calloc)(size_t, size_t);
void *REAL(realloc)(void *, size_t);
void *REAL(memalign)(size_t, size_t);
void REAL(free)(void *);

static fault_table own_table;
fault_table *faults = &own_table;

// Whether this call is one that fails: 0, or 1 for the first of them, 2 for the second and so on.
static uint64_t fails(fault_kind kind) {
    uint64_t call = atomic_fetch_add(&faults->calls[kind], 1) + 1, from = atomic_load(&faults->from[kind]);
    if (!from || call < from || call > atomic_load(&faults->to[kind])) return 0;
    atomic_fetch_add(&faults->failed[kind], 1);
    return call - from + 1;
}

static void perhaps_killed(void) {
    if (fails(FAULT_KILL)) raise(SIGKILL);
}

// ---- memory ------------------------------------------------------------------------------------------------------

static void *counted(void *memory) {
    if (memory) atomic_fetch_add(&faults->live, 1);
    return memory;
}

static void *no_memory(void) {
    errno = ENOMEM;
    return NULL;
}

void *malloc(size_t n) { return fails(FAULT_MEMORY) ? no_memory() : counted(REAL(malloc)(n)); }

void *calloc(size_t count, size_t n) { return fails(FAULT_MEMORY) ? no_memory() : counted(REAL(calloc)(count, n)); }

void *realloc(void *memory, size_t n) {
    if (fails(FAULT_MEMORY)) return no_memory();
    void *moved = REAL(realloc)(memory, n);
    return memory ? moved : counted(moved);
}

void *memalign(size_t align, size_t n) { return fails(FAULT_MEMORY) ? no_memory() : counted(REAL(memalign)(align, n)); }

void *aligned_alloc(size_t align, size_t n) { return memalign(align, n); }

int posix_memalign(void **out, size_t align, size_t n) {
    void *memory = memalign(align, n);
    if (!memory) return ENOMEM;
    *out = memory;
    return 0;
}

void free(void *memory) {
    if (memory) atomic_fetch_sub(&faults->live, 1);
    REAL(free)(memory);
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    if ((flags & MAP_ANONYMOUS) && fails(FAULT_MEMORY)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *mapped = (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
    if (mapped != MAP_FAILED) atomic_fetch_add(&faults->live, 1);
    return mapped;
}

int munmap(void *at, size_t n) {
    int result = (int)syscall(SYS_munmap, at, n);
    if (result == 0) atomic_fetch_sub(&faults->live, 1);
    return result;
}

// ---- threads and advice ------------------------------------------------------------------------------------------

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    if (fails(FAULT_THREAD)) return EAGAIN;
#ifdef MD_SANITIZED
    return __interceptor_pthread_create(thread, attributes, start, argument);
#else
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attributes, start, argument);
#endif
}

int madvise(void *at, size_t n, int advice) {
    if (!fails(FAULT_ADVICE)) return (int)syscall(SYS_madvise, at, n, advice);
    errno = EAGAIN;
    return -1;
}

int mlock(const void *at, size_t n) {
    if (!fails(FAULT_ADVICE)) return (int)syscall(SYS_mlock, at, n);
    errno = EAGAIN;
    return -1;
}

// ---- files -------------------------------------------------------------------------------------------------------

static bool read_fails(size_t *n) {
    if (fails(FAULT_SHORT) && *n > 1) *n = 1;
    if (!fails(FAULT_READ)) return false;
    errno = EIO;
    return true;
}

ssize_t read(int fd, void *out, size_t n) { return read_fails(&n) ? -1 : syscall(SYS_read, fd, out, n); }

ssize_t pread(int fd, void *out, size_t n, off_t offset) {
    return read_fails(&n) ? -1 : syscall(SYS_pread64, fd, out, n, offset);
}

static int disk_full(void) {
    errno = ENOSPC;
    return -1;
}

ssize_t write(int fd, const void *bytes, size_t n) {
    perhaps_killed();
    uint64_t failure = fails(FAULT_WRITE);
    if (failure == 1 && n > 1) return syscall(SYS_write, fd, bytes, n / 2); // as a full disk does: what still fits
    return failure ? disk_full() : syscall(SYS_write, fd, bytes, n);
}

int fsync(int fd) {
    perhaps_killed();
    return fails(FAULT_WRITE) ? disk_full() : (int)syscall(SYS_fsync, fd);
}

int ftruncate(int fd, off_t n) {
    perhaps_killed();
    return fails(FAULT_WRITE) ? disk_full() : (int)syscall(SYS_ftruncate, fd, n);
}

int open(const char *path, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, int) : 0;
    va_end(ap);
    if (flags & O_CREAT) perhaps_killed();
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int rename(const char *from, const char *to) {
    perhaps_killed();
    if (!fails(FAULT_RENAME)) return (int)syscall(SYS_rename, from, to);
    errno = EIO;
    return -1;
}

int symlink(const char *target, const char *path) {
    perhaps_killed();
    return (int)syscall(SYS_symlink, target, path);
}

int unlink(const char *path) {
    perhaps_killed();
    return (int)syscall(SYS_unlink, path);
}

// ---- the table of a preloaded library ----------------------------------------------------------------------------

__attribute__((constructor)) static void find_table(void) {
    const char *path = getenv("MEGADECODE_FAULTS");
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0) : -1;
    if (fd < 0) return;
    void *mapped = (void *)syscall(SYS_mmap, NULL, sizeof own_table, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if ((intptr_t)mapped == -1) return;
    fault_table *table = mapped;
    atomic_fetch_add(&table->live, atomic_load(&own_table.live));
    faults = table;
}
