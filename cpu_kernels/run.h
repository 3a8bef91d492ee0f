/* Inside of the tape: shared by run*.c. Not part of the ABI. */
#ifndef LI_RUN_H
#define LI_RUN_H

#include "localinfer_kernels.h"
#include "ops.h"

/* Up to this many tokens every thread prepares a linear's x for itself: that costs less than waiting for one another. */
#define LI_PRIVATE_TOKENS 2
/* Above this many tokens a matrix is cut in pieces of at most LI_BATCH_ROWS rows, so that a piece's results stay in the
 * cache until their epilogue. */
#define LI_FEW_TOKENS 16
#define LI_BATCH_ROWS 64
#define LI_MOE_STEPS 7

/* Rows [row0, row1) of one output: an item of a linear instruction. */
typedef struct {
    int32_t output;
    int32_t row0, row1;
} li_piece;

typedef struct {
    int32_t n;
    li_piece *pieces;
} li_pieces;

typedef struct {
    int32_t instruction;
    int32_t step;
} li_phase;

struct li_tape {
    int32_t n_instructions, n_phases, max_tokens, n_threads;
    li_instruction *instructions;
    int32_t *first_phase; /* n_instructions + 1 */
    li_phase *phases;
    li_pieces *few, *many; /* per instruction: how a linear is cut for few and for many tokens */
    int64_t arena_bytes, shared_bytes, thread_bytes;
    uint8_t *arena;
    uint8_t *shared; /* prepared activations of all tokens; a moe's tables */
    uint8_t *own;    /* thread_bytes for each thread */
    int64_t prepared_bytes, row_bytes, tile_bytes, scratch_bytes; /* parts of a thread's own room */
};

/* One run, as all threads see it. */
typedef struct {
    const li_tape *tape;
    const li_run_args *args;
    const li_ops *ops;
    int32_t first_phase; /* of the part of the tape that runs (tracing runs it in parts) */
    int32_t *prepared;   /* per thread, 16 apart: the instruction whose x it holds prepared, or -1 */
} li_run;

/* The parts of a thread's own room. */
static inline uint8_t *li_own_prepared(const li_run *r, int32_t thread) {
    return r->tape->own + thread * r->tape->thread_bytes;
}
static inline float *li_own_row(const li_run *r, int32_t thread) {
    return (float *)(li_own_prepared(r, thread) + r->tape->prepared_bytes);
}
static inline float *li_own_tile(const li_run *r, int32_t thread) {
    return (float *)((uint8_t *)li_own_row(r, thread) + r->tape->row_bytes);
}
static inline void *li_own_scratch(const li_run *r, int32_t thread) {
    return (uint8_t *)li_own_tile(r, thread) + r->tape->tile_bytes;
}

static inline int64_t li_rows(const li_run *r, const li_view *v) {
    return v->last_rows ? r->args->n_rows : r->args->n_tokens;
}
/* Row 0 of the view in this run. */
static inline float *li_at(const li_run *r, const li_view *v) {
    uint8_t *base = v->external ? (uint8_t *)r->args->output : r->tape->arena;
    int64_t first = v->skip ? r->args->n_tokens - r->args->n_rows : 0;
    return (float *)(base + v->offset) + first * v->ld;
}

/* The position in the conversation of row t of the view. */
static inline int64_t li_position(const li_run *r, const li_view *v, int64_t t) {
    return r->args->start + r->args->n_tokens - li_rows(r, v) + t;
}

/* n rows are handed out in blocks; these give the number of blocks and the rows of one. */
static inline int64_t li_block_rows(const li_run *r, int64_t n) {
    int64_t per = n / (4 * r->tape->n_threads);
    return per < 1 ? 1 : per > 16 ? 16 : per;
}
static inline int64_t li_blocks(const li_run *r, int64_t n) {
    int64_t per = li_block_rows(r, n);
    return (n + per - 1) / per;
}
static inline void li_block(const li_run *r, int64_t n, int64_t item, int64_t *first, int64_t *end) {
    int64_t per = li_block_rows(r, n);
    *first = item * per;
    *end = *first + per < n ? *first + per : n;
}

static inline int64_t li_round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static inline void li_at_least(int64_t *room, int64_t bytes) {
    if (*room < bytes) *room = bytes;
}

void li_normalize(const li_ops *ops, const li_norm *norm, const float *x, int64_t n, float *out);

int64_t li_linear_items(const li_run *r, int32_t instruction, int32_t step);
void li_linear_item(const li_run *r, int32_t instruction, int32_t step, int64_t item, int32_t thread);
/* Room that a linear needs: adds to the tape's maxima. */
void li_linear_room(li_tape *tape, const li_linear_args *a);
/* Cuts the instruction's matrices; -1 when memory is refused. */
int li_linear_cut(li_tape *tape, int32_t instruction);

int64_t li_moe_items(const li_run *r, const li_moe_args *a, int32_t step);
void li_moe_item(const li_run *r, const li_moe_args *a, int32_t step, int64_t item, int32_t thread);
void li_moe_room(li_tape *tape, const li_moe_args *a);
void li_expert_hint(const li_run *r, const li_expert_hint_args *a, int32_t thread);

void li_head_copy_rows(const li_run *r, const li_head_copy_args *a, int64_t first, int64_t end);
int64_t li_head_linear_items(const li_run *r, const li_head_linear_args *a, int32_t step);
void li_head_linear_item(const li_run *r, const li_head_linear_args *a, int32_t step, int64_t item, int32_t thread);
void li_head_linear_room(li_tape *tape, const li_head_linear_args *a);

int64_t li_conv_items(const li_run *r, const li_conv_args *a);
void li_conv_item(const li_run *r, const li_conv_args *a, int64_t item);
int64_t li_scan_items(const li_run *r, const li_scan_args *a);
void li_scan_item(const li_run *r, const li_scan_args *a, int64_t item, int32_t thread);
void li_delta_item(const li_run *r, const li_scan_args *a, int64_t item, int32_t thread);
void li_scan_room(li_tape *tape, const li_scan_args *a);

#endif
