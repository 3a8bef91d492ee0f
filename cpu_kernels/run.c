/* The interpreter: a tape's instructions as phases of items for the pool, and the operations that are no matrices. */
#include "run.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int li_abi(void) { return LI_ABI; }

void li_normalize(const li_ops *ops, const li_norm *norm, const float *x, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i += norm->group) {
        const int64_t at = norm->step ? i : 0;
        const float *w = norm->w ? norm->w + at : NULL, *b = norm->b ? norm->b + at : NULL;
        if (norm->kind == LI_NORM_RMS)
            ops->rms_norm(x + i, w, norm->eps, norm->group, out + i);
        else
            ops->layer_norm(x + i, w, b, norm->eps, norm->group, out + i);
    }
}

/* ---- one row or a few of each operation ---- */

static void embed_rows(const li_run *r, const li_embed_args *a, int64_t first, int64_t end) {
    /* The rows of `out` are the run's last ones where only those are needed. */
    const int32_t *ids = r->args->ids + (r->args->n_tokens - li_rows(r, &a->out));
    float *out = li_at(r, &a->out);
    for (int64_t t = first; t < end; t++) {
        float *y = out + t * a->out.ld;
        li_dequantize_row(a->table.type, a->table.blocks + ids[t] * a->table.row_bytes, a->table.n_in, y);
        if (a->scale != 1.0f) r->ops->scale(y, a->scale, a->out.n, y);
    }
}

static void embed_position_rows(const li_run *r, const li_embed_positions_args *a, int64_t first, int64_t end) {
    for (int64_t t = first; t < end; t++)
        li_dequantize_row(a->table.type, a->table.blocks + li_position(r, &a->out, t) * a->table.row_bytes,
                          a->table.n_in, li_at(r, &a->out) + t * a->out.ld);
}

static void norm_rows(const li_run *r, const li_norm_args *a, int64_t first, int64_t end) {
    for (int64_t t = first; t < end; t++)
        li_normalize(r->ops, &a->norm, li_at(r, &a->x) + t * a->x.ld, a->x.n, li_at(r, &a->out) + t * a->out.ld);
}

static void rope_table_rows(const li_run *r, const li_rope_table_args *a, int64_t first, int64_t end) {
    for (int64_t t = first; t < end; t++) {
        float *cosines = li_at(r, &a->out) + t * a->out.ld, *sines = cosines + a->n_pairs;
        const double position = (double)(r->args->start + t);
        for (int32_t i = 0; i < a->n_pairs; i++) {
            const double angle = position * a->inv_freq[i];
            cosines[i] = (float)(cos(angle) * a->magnitude);
            sines[i] = (float)(sin(angle) * a->magnitude);
        }
    }
}

static void rotate_row(const li_run *r, const li_rotation *rot, int64_t t, float *x, int64_t n) {
    const float *cosines = li_at(r, &rot->table) + t * rot->table.ld, *sines = cosines + rot->n_pairs;
    for (int64_t i = 0; i < n; i += rot->head) {
        if (rot->style == LI_ROPE_HALF)
            r->ops->rotate_half(x + i, cosines, sines, rot->n_pairs);
        else
            r->ops->rotate_interleaved(x + i, cosines, sines, rot->n_pairs);
    }
}

static void rope_rows(const li_run *r, const li_rope_args *a, int64_t first, int64_t end) {
    for (int64_t t = first; t < end; t++) {
        float *out = li_at(r, &a->out) + t * a->out.ld;
        memcpy(out, li_at(r, &a->x) + t * a->x.ld, (size_t)a->x.n * sizeof(float));
        rotate_row(r, &a->rotation, t, out, a->x.n);
    }
}

/* Norm and rotation of queries and keys where they lie: nobody else reads them. */
static void head_rows(const li_run *r, const li_attention_args *a, int64_t first, int64_t end) {
    const li_view *views[2] = {&a->q, &a->k};
    const li_norm *norms[2] = {&a->q_norm, &a->k_norm};
    for (int i = 0; i < 2; i++)
        for (int64_t t = first; t < end; t++) {
            float *x = li_at(r, views[i]) + t * views[i]->ld;
            if (norms[i]->kind) li_normalize(r->ops, norms[i], x, views[i]->n, x);
            if (a->rotation.table.n) rotate_row(r, &a->rotation, t, x, views[i]->n);
        }
}

static void glu_rows(const li_run *r, const li_glu_args *a, int64_t first, int64_t end) {
    for (int64_t t = first; t < end; t++)
        r->ops->glu(a->act, li_at(r, &a->gate) + t * a->gate.ld, li_at(r, &a->up) + t * a->up.ld, a->out.n,
                    li_at(r, &a->out) + t * a->out.ld);
}

static float position_factor(const li_run *r, const li_unary_args *a, int64_t t) {
    const double steps = floor(((double)li_position(r, &a->out, t) + 1.0) / a->every);
    return (float)(log(steps + 1.0) * (double)a->factor + 1.0);
}

static void unary_rows(const li_run *r, const li_unary_args *a, int64_t first, int64_t end) {
    for (int64_t t = first; t < end; t++) {
        const float *x = li_at(r, &a->x) + t * a->x.ld;
        float *out = li_at(r, &a->out) + t * a->out.ld;
        if (a->kind == LI_UNARY_ACTIVATE) r->ops->activate(a->act, x, a->out.n, out);
        if (a->kind == LI_UNARY_SCALE) r->ops->scale(x, a->factor, a->out.n, out);
        if (a->kind == LI_UNARY_SOFTCAP) r->ops->softcap(x, a->factor, a->out.n, out);
        if (a->kind == LI_UNARY_POSITION_SCALE) r->ops->scale(x, position_factor(r, a, t), a->out.n, out);
    }
}

static void binary_rows(const li_run *r, const li_binary_args *a, int64_t first, int64_t end) {
    for (int64_t t = first; t < end; t++) {
        const float *x = li_at(r, &a->a) + t * a->a.ld, *y = li_at(r, &a->b) + t * a->b.ld;
        float *out = li_at(r, &a->out) + t * a->out.ld;
        if (a->b.n == 1 && a->a.n > 1)
            r->ops->scale(x, y[0], a->out.n, out);
        else if (a->kind == LI_BINARY_ADD)
            r->ops->add(x, y, a->out.n, out);
        else
            r->ops->mul(x, y, a->out.n, out);
    }
}

/* ---- attention: 0 norm and rotation, 1 append, 2 attend ---- */

static li_attention_call attention_call(const li_run *r, const li_attention_args *a) {
    return (li_attention_call){
        .attention = &a->attention,
        .kv = &r->args->kv[a->layer],
        .start = r->args->start,
        .n_tokens = r->args->n_tokens,
        .n_threads = r->tape->n_threads,
        .q = li_at(r, &a->q),
        .k = li_at(r, &a->k),
        .v = li_at(r, &a->v),
        .out = li_at(r, &a->out),
        .q_ld = a->q.ld,
        .k_ld = a->k.ld,
        .v_ld = a->v.ld,
        .out_ld = a->out.ld,
        .scratch = r->args->attention_scratch,
    };
}

static int64_t attention_items(const li_run *r, const li_attention_args *a, int32_t step) {
    if (step == 0) {
        const int any = a->q_norm.kind || a->k_norm.kind || a->rotation.table.n;
        return any ? li_blocks(r, r->args->n_tokens) : 0;
    }
    const li_attention_call call = attention_call(r, a);
    return step == 1 ? li_attention_append_items(&call) : li_attention_items(&call);
}

static void attention_item(const li_run *r, const li_attention_args *a, int32_t step, int64_t item, int32_t thread) {
    if (step == 0) {
        int64_t first, end;
        li_block(r, r->args->n_tokens, item, &first, &end);
        head_rows(r, a, first, end);
        return;
    }
    const li_attention_call call = attention_call(r, a);
    if (step == 1)
        li_attention_append_item(&call, item);
    else
        li_attention_item(&call, item, thread);
}

/* ---- phases ---- */

static const li_view *rows_of(const li_instruction *i) {
    switch (i->op) {
        case LI_OP_EMBED: return &((const li_embed_args *)i->args)->out;
        case LI_OP_NORM: return &((const li_norm_args *)i->args)->out;
        case LI_OP_ROPE_TABLE: return &((const li_rope_table_args *)i->args)->out;
        case LI_OP_ROPE: return &((const li_rope_args *)i->args)->out;
        case LI_OP_GLU: return &((const li_glu_args *)i->args)->out;
        case LI_OP_UNARY: return &((const li_unary_args *)i->args)->out;
        case LI_OP_EMBED_POSITIONS: return &((const li_embed_positions_args *)i->args)->out;
        case LI_OP_HEAD_COPY: return &((const li_head_copy_args *)i->args)->out;
        default: return &((const li_binary_args *)i->args)->out;
    }
}

static int64_t n_items(const void *context, int32_t phase) {
    const li_run *r = context;
    const li_phase *p = &r->tape->phases[r->first_phase + phase];
    const li_instruction *i = &r->tape->instructions[p->instruction];
    switch (i->op) {
        case LI_OP_LINEAR: return li_linear_items(r, p->instruction, p->step);
        case LI_OP_ATTENTION: return attention_items(r, i->args, p->step);
        case LI_OP_MOE: return li_moe_items(r, i->args, p->step);
        case LI_OP_HEAD_LINEAR: return li_head_linear_items(r, i->args, p->step);
        case LI_OP_CONV: return li_conv_items(r, i->args);
        case LI_OP_PAGE:
        case LI_OP_EXPERT_HINT: return 1;
        case LI_OP_SCAN:
        case LI_OP_DELTA: return li_scan_items(r, i->args);
        default: return li_blocks(r, li_rows(r, rows_of(i)));
    }
}

static void run_rows(const li_run *r, const li_instruction *i, int64_t item) {
    int64_t first, end;
    li_block(r, li_rows(r, rows_of(i)), item, &first, &end);
    switch (i->op) {
        case LI_OP_EMBED: embed_rows(r, i->args, first, end); break;
        case LI_OP_EMBED_POSITIONS: embed_position_rows(r, i->args, first, end); break;
        case LI_OP_HEAD_COPY: li_head_copy_rows(r, i->args, first, end); break;
        case LI_OP_NORM: norm_rows(r, i->args, first, end); break;
        case LI_OP_ROPE_TABLE: rope_table_rows(r, i->args, first, end); break;
        case LI_OP_ROPE: rope_rows(r, i->args, first, end); break;
        case LI_OP_GLU: glu_rows(r, i->args, first, end); break;
        case LI_OP_UNARY: unary_rows(r, i->args, first, end); break;
        default: binary_rows(r, i->args, first, end); break;
    }
}

static void turn_page(const li_page_args *a) {
    if (a->done) li_pager_done(a->pager);
    if (a->need) li_pager_need(a->pager);
}

static void run_item(void *context, int32_t phase, int64_t item, int32_t thread) {
    const li_run *r = context;
    const li_phase *p = &r->tape->phases[r->first_phase + phase];
    const li_instruction *i = &r->tape->instructions[p->instruction];
    switch (i->op) {
        case LI_OP_LINEAR: li_linear_item(r, p->instruction, p->step, item, thread); break;
        case LI_OP_ATTENTION: attention_item(r, i->args, p->step, item, thread); break;
        case LI_OP_MOE: li_moe_item(r, i->args, p->step, item, thread); break;
        case LI_OP_HEAD_LINEAR: li_head_linear_item(r, i->args, p->step, item, thread); break;
        case LI_OP_CONV: li_conv_item(r, i->args, item); break;
        case LI_OP_SCAN: li_scan_item(r, i->args, item, thread); break;
        case LI_OP_DELTA: li_delta_item(r, i->args, item, thread); break;
        case LI_OP_PAGE: turn_page(i->args); break;
        case LI_OP_EXPERT_HINT: li_expert_hint(r, i->args, thread); break;
        default: run_rows(r, i, item); break;
    }
}

/* ---- tracing: each instruction as a job of its own, timed ---- */

static atomic_int trace_on;
static int64_t trace_ns[LI_N_OPS], trace_calls[LI_N_OPS];

void li_trace(int on) {
    trace_on = on;
    memset(trace_ns, 0, sizeof trace_ns);
    memset(trace_calls, 0, sizeof trace_calls);
}

void li_trace_read(int64_t *ns, int64_t *calls) {
    memcpy(ns, trace_ns, sizeof trace_ns);
    memcpy(calls, trace_calls, sizeof trace_calls);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void run_traced(li_run *r, li_pool *pool) {
    const li_tape *tape = r->tape;
    for (int32_t i = 0; i < tape->n_instructions; i++) {
        const int64_t before = now_ns();
        r->first_phase = tape->first_phase[i];
        const li_job job = {r, tape->first_phase[i + 1] - tape->first_phase[i], n_items, run_item};
        li_pool_run(pool, &job);
        trace_ns[tape->instructions[i].op] += now_ns() - before;
        trace_calls[tape->instructions[i].op]++;
    }
}

/* ---- the tape ---- */

static int valid_positions(const li_tape *tape, const li_run_args *args) {
    for (int32_t i = 0; i < tape->n_instructions; i++) {
        if (tape->instructions[i].op != LI_OP_EMBED_POSITIONS) continue;
        const li_embed_positions_args *a = tape->instructions[i].args;
        if (args->start + args->n_tokens > a->table.n_out) return 0;
    }
    return 1;
}

static int valid_ids(const li_tape *tape, const li_run_args *args) {
    for (int32_t i = 0; i < tape->n_instructions; i++) {
        if (tape->instructions[i].op != LI_OP_EMBED) continue;
        const li_embed_args *a = tape->instructions[i].args;
        for (int32_t t = 0; t < args->n_tokens; t++)
            if (args->ids[t] < 0 || args->ids[t] >= a->table.n_out) return 0;
    }
    return 1;
}

int li_tape_run(li_tape *tape, li_pool *pool, const li_run_args *args) {
    if (args->n_tokens < 1 || args->n_tokens > tape->max_tokens) return -1;
    if (args->n_rows < 0 || args->n_rows > args->n_tokens) return -1;
    if (li_pool_threads(pool) > tape->n_threads) return -1;
    if (!valid_ids(tape, args)) return -2;
    if (!valid_positions(tape, args)) return -3;
    int32_t prepared[LI_MAX_THREADS * 16]; /* a cache line apart */
    for (int32_t i = 0; i < tape->n_threads; i++) prepared[i * 16] = -1;
    li_run r = {.tape = tape, .args = args, .ops = li_ops_best(), .prepared = prepared};
    if (trace_on) {
        run_traced(&r, pool);
        return 0;
    }
    const li_job job = {&r, tape->n_phases, n_items, run_item};
    li_pool_run(pool, &job);
    return 0;
}
