// The argument checks every engine makes before a step.
#include "backend/backend.h"

md_status md_step_check(const md_engine *engine, const md_column *columns, uint32_t count, uint32_t max_columns,
                        md_error *err) {
    if (count < 1 || count > max_columns)
        return md_fail(err, MD_E_USAGE, "a step of %u columns, expected 1 to %u", count, max_columns);
    for (uint32_t c = 0; c < count; c++) {
        if (columns[c].token >= engine->snapshot->vocab)
            return md_fail(err, MD_E_USAGE, "column %u: token %u, the vocabulary has %u", c, columns[c].token,
                           engine->snapshot->vocab);
        // Of columns that follow each other the first has been compared with all before it.
        bool follows = c && columns[c - 1].kv == columns[c].kv;
        for (uint32_t before = follows ? c - 1 : 0; before < c; before++)
            if (columns[before].kv == columns[c].kv && columns[before].position != columns[c].position - (c - before))
                return md_fail(err, MD_E_USAGE, "columns %u and %u of one sequence: positions %u and %u do not follow",
                               before, c, columns[before].position, columns[c].position);
    }
    return MD_OK;
}

md_status md_column_check_context(const md_column *column, uint32_t context, md_error *err) {
    if (column->position < context) return MD_OK;
    return md_fail(err, MD_E_CONTEXT, "position %u is past the end of the context of %u", column->position, context);
}
