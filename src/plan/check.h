// Proofs that a plan and its layout table can be computed: run before every step is built, by every backend.
//
// md_plan_check: the stages are the forward pass of the plan's snapshot. Every vector a stage reads was written last by
// the one stage that must have written it (so the barrier before it waits for exactly its producers), is overwritten
// only after all its readers, and every matrix and norm of the snapshot is used once, in its place.
//
// md_layout_check: the table is the one asked for; every row of every matrix lies in one lane of one tile, every tile
// in one worker's run; each worker's runs follow each other in stage order without gap, and the workers' parts do not
// overlap and lie inside the arena.
//
// Neither trusts what built the data: what is expected is derived again from the snapshot and from tables of its own.
// Cost: some instructions a stage, matrix and worker, and one pass over the rows of each kind of matrix.
#ifndef MD_PLAN_CHECK_H
#define MD_PLAN_CHECK_H

#include "plan/pack.h"

// MD_E_INTERNAL: the message names stage, field, what was found and what was expected. MD_E_MEMORY.
md_status md_plan_check(const md_plan *plan, md_error *err);

// `plan`, `codec` and `workers` are what the layout was asked for; the plan has passed md_plan_check.
md_status md_layout_check(const md_layout *layout, const md_plan *plan, const md_tile_codec *codec, uint32_t workers,
                          md_error *err);

#endif
