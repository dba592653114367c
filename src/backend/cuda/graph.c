// The ops engine's launches of a token as one CUDA graph, launched once a token: the fastest that launches can be, to
// measure the resident kernel against (MEGADECODE_CUDA_GRAPH=1). Not a way to run: steps follow each other without the
// host looking, so that a stop or a cancel is heeded late.
//
// A graph's launches are repeated with the parameters they were captured with. What changes from step to step lies in
// memory instead (md_cuda_graph.state): the last launch of a step, which chooses the token, leaves it for the next
// step.
#include <string.h>

#include "backend/cuda/engine.h"

md_status md_cuda_graph_open(md_cuda_engine *engine, md_error *err) {
    return md_cuda_alloc(engine, sizeof(uint32_t[MD_CUDA_STATE_WORDS]), "a step's state", &engine->graph.state, err);
}

static void forget(md_cuda_engine *engine) {
    if (engine->graph.exec) (void)engine->cu->cuGraphExecDestroy(engine->graph.exec);
    engine->graph.exec = NULL;
}

void md_cuda_graph_close(md_cuda_engine *engine) {
    forget(engine);
    md_cuda_free(engine, &engine->graph.state);
}

md_status md_cuda_graph_state(md_cuda_engine *engine, const md_cuda_params *params, md_error *err) {
    uint32_t words[MD_CUDA_STATE_WORDS] = {[MD_CUDA_STATE_EPOCH] = params->epoch};
    for (uint32_t c = 0; c < params->columns; c++) words[MD_CUDA_STATE_TOKENS + c] = params->col[c].token;
    return MD_CU_OR_LOST(engine, cuMemcpyHtoDAsync(engine->graph.state, words, sizeof words, engine->stream),
                         "a step's state");
}

// The parameters without what the state holds in their place.
static md_cuda_params fixed_part(const md_cuda_params *params) {
    md_cuda_params fixed = *params;
    fixed.epoch = 0;
    for (uint32_t c = 0; c < fixed.columns; c++) fixed.col[c].token = 0;
    return fixed;
}

static md_status capture(md_cuda_engine *engine, const md_cuda_width *width, md_cuda_params *params, md_error *err) {
    const md_cuda_driver *cu = engine->cu;
    CUgraph graph = NULL;
    MD_TRY(MD_CU_OR_LOST(engine, cuStreamBeginCapture(engine->stream, CU_CAPTURE_THREAD_LOCAL), "capturing a step"));
    md_status status = md_cuda_launch_stages(engine, width, params, err);
    CUresult result = cu->cuStreamEndCapture(engine->stream, &graph); // whatever came of it
    if (status == MD_OK) status = md_cuda_or_lost(engine, result, "capturing a step", err);
    if (status == MD_OK)
        status = MD_CU_OR_LOST(engine, cuGraphInstantiate(&engine->graph.exec, graph, 0), "making a graph of a step");
    if (graph) (void)cu->cuGraphDestroy(graph);
    return status;
}

md_status md_cuda_graph_steps(md_cuda_engine *engine, const md_cuda_width *width, md_cuda_params *params,
                              uint32_t steps, md_error *err) {
    md_cuda_params fixed = fixed_part(params);
    MD_TRY(md_cuda_graph_state(engine, params, err));
    if (engine->graph.columns != width->columns || memcmp(&fixed, &engine->graph.params, sizeof fixed) != 0)
        forget(engine);
    if (!engine->graph.exec) {
        MD_TRY(capture(engine, width, params, err));
        engine->graph.params = fixed, engine->graph.columns = width->columns;
    }
    for (uint32_t s = 0; s < steps; s++)
        MD_TRY(MD_CU_OR_LOST(engine, cuGraphLaunch(engine->graph.exec, engine->stream), "launching a graph"));
    return MD_OK;
}
