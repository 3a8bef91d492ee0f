/* Operations on the heads of rows: copies of parts of heads, and one matrix per head. */
#include <string.h>

#include "run.h"

void li_head_copy_rows(const li_run *r, const li_head_copy_args *a, int64_t first, int64_t end) {
    for (int64_t t = first; t < end; t++) {
        const float *x = li_at(r, &a->x) + t * a->x.ld + a->x_first;
        float *out = li_at(r, &a->out) + t * a->out.ld + a->out_first;
        for (int32_t h = 0; h < a->n_heads; h++)
            memcpy(out + (int64_t)h * a->out_head, x + (int64_t)h * a->x_head, (size_t)a->n * sizeof(float));
    }
}

static int64_t token_bytes(const li_head_linear_args *a) { return li_activation_bytes(a->w.type, a->w.n_in, 1); }

/* Prepared rows lie head by head, so that one head's tokens follow each other. */
static uint8_t *head_room(const li_run *r, const li_head_linear_args *a, int64_t n, int32_t h) {
    return r->tape->shared + h * li_round_up(n * token_bytes(a), 64);
}

static int64_t pieces_of(const li_head_linear_args *a) { return (a->w.n_out + LI_BATCH_ROWS - 1) / LI_BATCH_ROWS; }

int64_t li_head_linear_items(const li_run *r, const li_head_linear_args *a, int32_t step) {
    const int64_t n = li_rows(r, &a->x);
    if (n == 0) return 0;
    return step == 0 ? li_blocks(r, n) : a->n_heads * pieces_of(a);
}

static void prepare_heads(const li_run *r, const li_head_linear_args *a, int64_t n, int64_t first, int64_t end) {
    for (int64_t t = first; t < end; t++)
        for (int32_t h = 0; h < a->n_heads; h++)
            li_prepare_activations(a->w.type, li_at(r, &a->x) + t * a->x.ld + h * a->w.n_in, 0, a->w.n_in, t, t + 1,
                                   head_room(r, a, n, h));
}

void li_head_linear_item(const li_run *r, const li_head_linear_args *a, int32_t step, int64_t item, int32_t thread) {
    const int64_t n = li_rows(r, &a->x);
    if (step == 0) {
        int64_t first, end;
        li_block(r, n, item, &first, &end);
        prepare_heads(r, a, n, first, end);
        return;
    }
    const int32_t h = (int32_t)(item / pieces_of(a));
    const int64_t row0 = item % pieces_of(a) * LI_BATCH_ROWS;
    const int64_t row1 = row0 + LI_BATCH_ROWS < a->w.n_out ? row0 + LI_BATCH_ROWS : a->w.n_out;
    li_matrix w = a->w;
    w.blocks += h * w.n_out * w.row_bytes;
    li_linear(&w, head_room(r, a, n, h), n, li_at(r, &a->out) + h * w.n_out, a->out.ld, row0, row1,
              li_own_scratch(r, thread));
}

void li_head_linear_room(li_tape *tape, const li_head_linear_args *a) {
    li_at_least(&tape->shared_bytes, a->n_heads * li_round_up(tape->max_tokens * token_bytes(a), 64));
    li_at_least(&tape->scratch_bytes,
                li_round_up(li_linear_scratch_bytes(a->w.type, a->w.n_in, tape->max_tokens), 64));
}
