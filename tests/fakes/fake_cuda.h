// A CUDA driver and an NVRTC without a GPU, as shared objects of the real ones' names: a test that is linked with them
// gets them from dlopen, and so does a program with their folder in LD_LIBRARY_PATH. Memory is the host's; a "kernel"
// writes down what a step of it would hand over. Knobs, and for programs FAKE_CUDA_HANG_AT and FAKE_CUDA_GONE_AT: the
// number of the launch at which a wait runs out, the GPU is lost; FAKE_CUDA_SMS of it, 4 otherwise. With
// FAKE_NVRTC=tests/fakes NVRTC compiles the kernels' text for the host and the driver runs it (emulate.hpp), with
// FAKE_CUDA_SEED in disorder (emulate_disorder.hpp).
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAKE_GONE = 719, FAKE_INVALID = 1, FAKE_OUT_OF_MEMORY = 2, FAKE_UNDECIDED_AT = 1000 };

typedef struct fake_cuda {
    int major, minor, cooperative; // what the device says of itself
    size_t total, used;            // device memory
    uint32_t live;                 // allocations and pinned buffers
    uint32_t fail_at;              // the n-th allocation from now on fails; 0: none
    int launch_result;             // of launches
    int sync_result;               // of waiting for the stream, and of every call after it once it is not 0
    uint32_t quantize_at;          // the n-th launch that quantizes from now on fails with FAKE_GONE; 0: none
    bool hang;                     // the next launch reports a wait that ran out
    uint32_t launches, captures;   // of kernels, not those captured; of graphs
    uint32_t steps;                // tokens computed by bursts
    int undecided_at;              // a burst's column 0 is left undecided at this position; -1: never
    uint32_t vocab; // what the logits are as long as; tokens are (position + 1) % vocab. 0: FAKE_CUDA_VOCAB
} fake_cuda;
extern fake_cuda fake;

extern uint32_t fake_compilations; // by NVRTC

#endif
