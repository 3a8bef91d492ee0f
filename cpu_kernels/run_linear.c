/* Linear instructions: prepare x once, multiply pieces of matrices, finish each piece while it is in the cache. */
#include <stdlib.h>

#include "run.h"

static int is_private(int64_t n) { return n <= LI_PRIVATE_TOKENS; }

static int64_t token_bytes(const li_linear_args *a, int32_t preparation) {
    return li_activation_bytes(a->preparation_type[preparation], a->x.n, 1);
}

/* Where prepared form p of n rows starts: the forms lie one after the other. */
static int64_t prepared_offset(const li_linear_args *a, int32_t p, int64_t n) {
    int64_t offset = 0;
    for (int32_t i = 0; i < p; i++) offset += li_round_up(token_bytes(a, i) * n, 64);
    return offset;
}

/* Rows [first, end) of x into all prepared forms at `room`, laid out for n rows. */
static void prepare(const li_run *r, const li_linear_args *a, int64_t first, int64_t end, int64_t n, uint8_t *room,
                    int32_t thread) {
    const float *x = li_at(r, &a->x);
    float *row = li_own_row(r, thread);
    for (int64_t t = first; t < end; t++) {
        const float *from = x + t * a->x.ld;
        if (a->norm.kind) {
            li_normalize(r->ops, &a->norm, from, a->x.n, row);
            from = row;
        }
        for (int32_t p = 0; p < a->n_preparations; p++)
            li_prepare_activations(a->preparation_type[p], from, 0, a->x.n, t, t + 1,
                                   room + prepared_offset(a, p, n));
    }
}

/* The prepared rows; a private form is made at the thread's first item. */
static const uint8_t *prepared(const li_run *r, const li_linear_args *a, int32_t instruction, int64_t n,
                               int32_t thread) {
    if (!is_private(n)) return r->tape->shared;
    uint8_t *room = li_own_prepared(r, thread);
    if (r->prepared[thread * 16] != instruction) {
        prepare(r, a, 0, n, n, room, thread);
        r->prepared[thread * 16] = instruction;
    }
    return room;
}

static void finish(const li_run *r, const li_output *o, const float *partner, int64_t partner_ld, int64_t n,
                   const li_piece *piece) {
    const li_ops *ops = r->ops;
    const int64_t row0 = piece->row0, rows = piece->row1 - row0;
    float *y = li_at(r, &o->y) + row0;
    const float *add = o->add.n ? li_at(r, &o->add) + row0 : NULL;
    for (int64_t t = 0; t < n; t++, y += o->y.ld) {
        if (o->bias) ops->add(y, o->bias + row0, rows, y);
        if (o->scale != 1.0f) ops->scale(y, o->scale, rows, y);
        if (o->softcap != 0.0f) ops->softcap(y, o->softcap, rows, y);
        if (partner)
            ops->glu(o->act, y, partner + t * partner_ld, rows, y);
        else if (o->act)
            ops->activate(o->act, y, rows, y);
        if (add) ops->add(add + t * o->add.ld, y, rows, y);
    }
}

static int has_epilogue(const li_output *o) {
    return o->bias || o->scale != 1.0f || o->softcap != 0.0f || o->act || o->add.n;
}

static void multiply(const li_run *r, const li_linear_args *a, const uint8_t *x, int64_t n, const li_piece *piece,
                     int32_t thread) {
    const li_output *o = &a->outputs[piece->output];
    const int64_t row0 = piece->row0, row1 = piece->row1;
    void *scratch = li_own_scratch(r, thread);
    li_linear(&o->w, x + prepared_offset(a, o->preparation, n), n, li_at(r, &o->y), o->y.ld, row0, row1, scratch);
    if (!has_epilogue(o)) return;
    float *tile = NULL;
    if (o->paired) {
        const li_output *p = o + 1;
        tile = li_own_tile(r, thread);
        li_linear(&p->w, x + prepared_offset(a, p->preparation, n), n, tile - row0, row1 - row0, row0, row1, scratch);
        if (p->bias)
            for (int64_t t = 0; t < n; t++) {
                float *row = tile + t * (row1 - row0);
                r->ops->add(row, p->bias + row0, row1 - row0, row);
            }
    }
    finish(r, o, tile, row1 - row0, n, piece);
}

static const li_pieces *cut(const li_run *r, int32_t instruction, int64_t n) {
    return n <= LI_FEW_TOKENS ? &r->tape->few[instruction] : &r->tape->many[instruction];
}

int64_t li_linear_items(const li_run *r, int32_t instruction, int32_t step) {
    const li_linear_args *a = r->tape->instructions[instruction].args;
    const int64_t n = li_rows(r, &a->x);
    if (n == 0) return 0;
    if (step == 0) return is_private(n) ? 0 : li_blocks(r, n);
    return cut(r, instruction, n)->n;
}

void li_linear_item(const li_run *r, int32_t instruction, int32_t step, int64_t item, int32_t thread) {
    const li_linear_args *a = r->tape->instructions[instruction].args;
    const int64_t n = li_rows(r, &a->x);
    if (step == 0) {
        int64_t first, end;
        li_block(r, n, item, &first, &end);
        prepare(r, a, first, end, n, r->tape->shared, thread);
        return;
    }
    const uint8_t *x = prepared(r, a, instruction, n, thread);
    multiply(r, a, x, n, &cut(r, instruction, n)->pieces[item], thread);
}

void li_linear_room(li_tape *tape, const li_linear_args *a) {
    const int64_t few = tape->max_tokens < LI_PRIVATE_TOKENS ? tape->max_tokens : LI_PRIVATE_TOKENS;
    li_at_least(&tape->shared_bytes, prepared_offset(a, a->n_preparations, tape->max_tokens));
    li_at_least(&tape->prepared_bytes, prepared_offset(a, a->n_preparations, few));
    li_at_least(&tape->row_bytes, li_round_up(a->x.n * 4, 64));
    for (int32_t i = 0; i < a->n_outputs; i++) {
        const li_output *o = &a->outputs[i];
        li_at_least(&tape->scratch_bytes, li_round_up(li_linear_scratch_bytes(o->w.type, o->w.n_in, tape->max_tokens), 64));
        if (!o->paired) continue;
        const int64_t n_few = tape->max_tokens < LI_FEW_TOKENS ? tape->max_tokens : LI_FEW_TOKENS;
        li_at_least(&tape->tile_bytes, li_round_up(n_few * o->w.n_out * 4, 64));
        li_at_least(&tape->tile_bytes, li_round_up((int64_t)tape->max_tokens * LI_BATCH_ROWS * 4, 64));
    }
}

/* A smaller piece costs more than it helps: taking it, and waiting for its first bytes (PROFILE.md). */
enum { LEAST_PIECE_BYTES = 32 * 1024 };

static int64_t least_rows(const li_matrix *w) {
    const int64_t rows = li_round_up(LEAST_PIECE_BYTES / w->row_bytes, 16);
    return rows < 16 ? 16 : rows;
}

/* Large pieces first and small ones last, so that threads end together: each takes a part of what is left. */
static int32_t cut_rows(const li_linear_args *a, int32_t n_threads, int64_t most, li_piece *pieces) {
    int64_t left = 0;
    int32_t n = 0;
    for (int32_t i = 0; i < a->n_outputs; i += 1 + a->outputs[i].paired) left += a->outputs[i].w.n_out;
    for (int32_t i = 0; i < a->n_outputs; i += 1 + a->outputs[i].paired) {
        const int64_t n_out = a->outputs[i].w.n_out;
        for (int64_t row = 0, rows; row < n_out; row += rows, left -= rows) {
            rows = n_threads == 1 ? n_out : li_round_up(left / (2 * n_threads), 16);
            if (rows < least_rows(&a->outputs[i].w)) rows = least_rows(&a->outputs[i].w);
            if (rows > most) rows = most;
            if (row + rows > n_out) rows = n_out - row;
            if (pieces) pieces[n] = (li_piece){i, (int32_t)row, (int32_t)(row + rows)};
            n++;
        }
    }
    return n;
}

static int cut_into(li_pieces *to, const li_linear_args *a, int32_t n_threads, int64_t most) {
    to->n = cut_rows(a, n_threads, most, NULL);
    to->pieces = calloc((size_t)to->n, sizeof(li_piece));
    if (!to->pieces) return -1;
    cut_rows(a, n_threads, most, to->pieces);
    return 0;
}

int li_linear_cut(li_tape *tape, int32_t instruction) {
    const li_linear_args *a = tape->instructions[instruction].args;
    if (cut_into(&tape->few[instruction], a, tape->n_threads, INT32_MAX)) return -1;
    return cut_into(&tape->many[instruction], a, tape->n_threads, LI_BATCH_ROWS);
}
