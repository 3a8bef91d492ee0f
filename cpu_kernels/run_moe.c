/* Mixture of experts: route, group tokens by expert, multiply each group by its expert's blocks in place.
 *
 * A slot is one (token, chosen expert) pair. Slots are sorted by expert, so that an expert's matrix is read once for
 * all of its tokens; a slot's results are rows, and a row does not depend on its neighbours, so grouping changes no bit.
 * Steps: 0 route, 1 sort, 2 prepare x, 3 gate and up, 4 prepare the hidden rows, 5 down, 6 weighted sum per token.
 */
#include <math.h>
#include <string.h>

#include "run.h"

/* The shared room during a moe instruction, for S slots and N experts. */
typedef struct {
    int32_t *chosen;   /* S: expert of slot (token, j) */
    float *weight;     /* S */
    int32_t *place;    /* S: where the slot lies in sorted order */
    int32_t *start;    /* N + 1: first place of each expert */
    int32_t *active;   /* N: experts with tokens, then -1 */
    uint8_t *x[2];     /* S prepared rows for gate and for up (the same room where one form serves both) */
    float *hidden;     /* S x F */
    uint8_t *prepared; /* S prepared hidden rows */
    float *y;          /* S x E */
    int64_t n_bytes;
} moe_room;

static int64_t row_bytes(const li_matrix *w) { return li_activation_bytes(w->type, w->n_in, 1); }

static int same_form(const li_moe_args *a) {
    return !a->gate.blocks || li_activation_kind(a->gate.type) == li_activation_kind(a->up.type);
}

static void *take(uint8_t *base, int64_t *offset, int64_t bytes) {
    void *p = base ? base + *offset : NULL;
    *offset += li_round_up(bytes, 64);
    return p;
}

static moe_room room_of(const li_moe_args *a, int64_t n_tokens, uint8_t *base) {
    const int64_t slots = n_tokens * a->n_used;
    int64_t at = 0;
    moe_room m;
    m.chosen = take(base, &at, slots * 4);
    m.weight = take(base, &at, slots * 4);
    m.place = take(base, &at, slots * 4);
    m.start = take(base, &at, (a->n_experts + 1) * 4);
    m.active = take(base, &at, a->n_experts * 4);
    m.x[1] = take(base, &at, slots * row_bytes(&a->up));
    m.x[0] = same_form(a) ? m.x[1] : take(base, &at, slots * row_bytes(&a->gate));
    m.hidden = take(base, &at, slots * a->up.n_out * 4);
    m.prepared = take(base, &at, slots * row_bytes(&a->down));
    m.y = take(base, &at, slots * a->down.n_out * 4);
    m.n_bytes = at;
    return m;
}

/* The index of the largest value that is not taken (NaN counts as lowest); the first one of equals. */
static int32_t best_of(const float *x, const uint8_t *taken, int32_t n) {
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++)
        if (!taken[i] && (best < 0 || x[i] > x[best])) best = i;
    return best;
}

/* A group is worth the sum of its two best experts; experts outside the best groups are marked as taken. */
static void mask_groups(const li_moe_args *a, const float *rank, uint8_t *taken, float *worth, uint8_t *group_taken) {
    const int32_t per = a->n_experts / a->n_groups;
    for (int32_t g = 0; g < a->n_groups; g++) {
        const float *x = rank + g * per;
        float first = -INFINITY, second = -INFINITY;
        for (int32_t i = 0; i < per; i++) {
            if (x[i] > first) {
                second = first;
                first = x[i];
            } else if (x[i] > second)
                second = x[i];
        }
        worth[g] = per > 1 ? first + second : first;
        group_taken[g] = 0;
    }
    memset(taken, 1, (size_t)a->n_experts);
    for (int32_t j = 0; j < a->n_groups_used; j++) {
        const int32_t g = best_of(worth, group_taken, a->n_groups);
        group_taken[g] = 1;
        memset(taken + g * per, 0, (size_t)per);
    }
}

static void weigh(const li_run *r, const li_moe_args *a, float *weight) {
    const int32_t k = a->n_used;
    if (a->gating == LI_GATING_SOFTMAX_AFTER_TOPK) r->ops->softmax(weight, k);
    float factor = a->scale;
    if (a->normalize) {
        float sum = 0.0f;
        for (int32_t j = 0; j < k; j++) sum += weight[j];
        for (int32_t j = 0; j < k; j++) weight[j] /= sum < 6.103515625e-5f ? 6.103515625e-5f : sum;
    }
    for (int32_t j = 0; j < k; j++) weight[j] *= factor;
}

/* One token. `work` has room for 3 n_experts floats. */
static void route(const li_run *r, const li_moe_args *a, const float *logits, float *work, int32_t *chosen,
                  float *weight) {
    const int32_t n = a->n_experts;
    float *p = work, *rank = work + n;
    uint8_t *taken = (uint8_t *)(work + 2 * n), *group_taken = taken + n;
    memcpy(p, logits, (size_t)n * sizeof(float));
    if (a->gating == LI_GATING_SOFTMAX) r->ops->softmax(p, n);
    if (a->gating == LI_GATING_SIGMOID)
        for (int32_t i = 0; i < n; i++) p[i] = 1.0f / (1.0f + expf(-p[i]));
    memcpy(rank, p, (size_t)n * sizeof(float));
    if (a->selection_bias) r->ops->add(rank, a->selection_bias, n, rank);
    memset(taken, 0, (size_t)n);
    if (a->n_groups > 1) mask_groups(a, rank, taken, work + 3 * n, group_taken);
    for (int32_t j = 0; j < a->n_used; j++) {
        chosen[j] = best_of(rank, taken, n);
        taken[chosen[j]] = 1;
        weight[j] = p[chosen[j]];
    }
    weigh(r, a, weight);
}

static void sort_slots(const li_moe_args *a, const moe_room *m, int64_t slots) {
    memset(m->start, 0, (size_t)(a->n_experts + 1) * sizeof(int32_t));
    for (int64_t s = 0; s < slots; s++) m->start[m->chosen[s] + 1]++;
    int32_t n_active = 0;
    for (int32_t e = 0; e < a->n_experts; e++) {
        if (m->start[e + 1]) m->active[n_active++] = e;
        m->start[e + 1] += m->start[e];
    }
    while (n_active < a->n_experts) m->active[n_active++] = -1;
    /* start[e] serves as the cursor of expert e and ends as start[e + 1]; shift it back afterwards. */
    for (int64_t s = 0; s < slots; s++) m->place[s] = m->start[m->chosen[s]]++;
    for (int32_t e = a->n_experts; e > 0; e--) m->start[e] = m->start[e - 1];
    m->start[0] = 0;
}

/* Prepare each token's row once and copy it to the places of its slots; weighted inputs differ by slot. */
static void prepare_x(const li_run *r, const li_moe_args *a, const moe_room *m, const float *x, int64_t t,
                      int32_t thread) {
    float *row = li_own_row(r, thread);
    const li_matrix *of[2] = {&a->gate, &a->up};
    const int32_t *place = m->place + t * a->n_used;
    for (int i = same_form(a) ? 1 : 0; i < 2; i++) {
        const int64_t bytes = row_bytes(of[i]);
        uint8_t *first = m->x[i] + place[0] * bytes;
        if (a->weigh_input) {
            for (int32_t j = 0; j < a->n_used; j++) {
                r->ops->scale(x, m->weight[t * a->n_used + j], a->x.n, row);
                li_prepare_activations(of[i]->type, row, 0, of[i]->n_in, 0, 1, m->x[i] + place[j] * bytes);
            }
            continue;
        }
        li_prepare_activations(of[i]->type, x, 0, of[i]->n_in, 0, 1, first);
        for (int32_t j = 1; j < a->n_used; j++) memcpy(m->x[i] + place[j] * bytes, first, (size_t)bytes);
    }
}

/* One expert's matrix: where a pager put it, or in its place among all experts. */
static li_matrix expert(const li_matrix *w, int32_t e, const uint8_t *paged) {
    li_matrix one = *w;
    one.blocks = paged ? paged : w->blocks + e * w->n_out * w->row_bytes;
    return one;
}

/* Rows of a piece of an expert's matrix, and the number of pieces; `most_groups` experts share the threads. */
static int64_t piece_rows(const li_run *r, const li_matrix *w, int64_t most_groups) {
    int64_t pieces = (6 * r->tape->n_threads + most_groups - 1) / most_groups;
    int64_t rows = li_round_up((w->n_out + pieces - 1) / pieces, 16);
    return rows > LI_BATCH_ROWS ? LI_BATCH_ROWS : rows;
}

typedef struct {
    int32_t place;  /* among the active experts */
    int32_t expert; /* -1: nothing to do */
    int64_t first, n; /* its slots */
    int64_t row0, row1;
    const uint8_t *blocks[LI_EXPERT_MATRICES]; /* NULL where experts are not paged */
} moe_piece;

static int64_t most_groups(const li_moe_args *a, int64_t n_tokens) {
    const int64_t slots = n_tokens * a->n_used;
    return slots < a->n_experts ? slots : a->n_experts;
}

static int64_t n_pieces(const li_run *r, const li_moe_args *a, const li_matrix *w, int64_t n_tokens) {
    const int64_t groups = most_groups(a, n_tokens), rows = piece_rows(r, w, groups);
    return groups * ((w->n_out + rows - 1) / rows);
}

static moe_piece piece_of(const li_run *r, const li_moe_args *a, const moe_room *m, const li_matrix *w, int64_t n_tokens,
                          int64_t item) {
    const int64_t rows = piece_rows(r, w, most_groups(a, n_tokens)), per = (w->n_out + rows - 1) / rows;
    moe_piece p = {.place = (int32_t)(item / per), .row0 = item % per * rows};
    p.expert = m->active[p.place];
    if (p.expert < 0) return p;
    if (a->experts) p.expert = li_experts_need(a->experts, w == &a->down, p.place, p.blocks);
    p.row1 = p.row0 + rows < w->n_out ? p.row0 + rows : w->n_out;
    p.first = m->start[p.expert];
    p.n = m->start[p.expert + 1] - p.first;
    return p;
}

/* Adds the expert's bias to a piece of one row. */
static void add_bias(const li_run *r, const float *bias, const moe_piece *p, int64_t n_out, float *y) {
    if (bias) r->ops->add(y, bias + p->expert * n_out + p->row0, p->row1 - p->row0, y);
}

static void gate_and_up(const li_run *r, const li_moe_args *a, const moe_room *m, const moe_piece *p, int32_t thread) {
    const int64_t rows = p->row1 - p->row0, n_ff = a->up.n_out;
    void *scratch = li_own_scratch(r, thread);
    float *tile = li_own_tile(r, thread), *hidden = m->hidden + p->first * n_ff;
    const li_matrix up = expert(&a->up, p->expert, p->blocks[LI_EXPERT_UP]);
    li_linear(&up, m->x[1] + p->first * row_bytes(&up), p->n, tile - p->row0, rows, p->row0, p->row1, scratch);
    if (a->gate.blocks) {
        const li_matrix gate = expert(&a->gate, p->expert, p->blocks[LI_EXPERT_GATE]);
        li_linear(&gate, m->x[0] + p->first * row_bytes(&gate), p->n, hidden, n_ff, p->row0, p->row1, scratch);
    }
    for (int64_t t = 0; t < p->n; t++) {
        float *h = hidden + t * n_ff + p->row0;
        add_bias(r, a->up_bias, p, n_ff, tile + t * rows);
        if (a->gate.blocks) add_bias(r, a->gate_bias, p, n_ff, h);
        if (a->gate.blocks)
            r->ops->glu(a->act, h, tile + t * rows, rows, h);
        else
            r->ops->activate(a->act, tile + t * rows, rows, h);
    }
}

static void down_rows(const li_run *r, const li_moe_args *a, const moe_room *m, const moe_piece *p, int32_t thread) {
    const li_matrix down = expert(&a->down, p->expert, p->blocks[LI_EXPERT_DOWN]);
    float *y = m->y + p->first * down.n_out;
    li_linear(&down, m->prepared + p->first * row_bytes(&down), p->n, y, down.n_out, p->row0, p->row1,
              li_own_scratch(r, thread));
    for (int64_t t = 0; t < p->n; t++) add_bias(r, a->down_bias, p, down.n_out, y + t * down.n_out + p->row0);
}

/* Tells the pager which experts this run's tokens chose. */
static void demand(const li_run *r, const li_moe_args *a, const moe_room *m, int64_t n_tokens) {
    int32_t n_active = 0;
    while (n_active < a->n_experts && m->active[n_active] >= 0) n_active++;
    const int64_t groups = most_groups(a, n_tokens);
    const int64_t uses[2] = {n_pieces(r, a, &a->up, n_tokens) / groups, n_pieces(r, a, &a->down, n_tokens) / groups};
    li_experts_demand(a->experts, a->paged_layer, m->active, n_active, m->start, n_tokens, uses);
}

static void combine(const li_run *r, const li_moe_args *a, const moe_room *m, int64_t t, float *out) {
    const int64_t n = a->down.n_out;
    for (int32_t j = 0; j < a->n_used; j++) {
        const int64_t slot = t * a->n_used + j;
        const float *y = m->y + m->place[slot] * n, weight = a->weigh_input ? 1.0f : m->weight[slot];
        if (j == 0)
            r->ops->scale(y, weight, n, out);
        else
            r->ops->add_scaled(y, weight, n, out);
    }
}

static void rows_step(const li_run *r, const li_moe_args *a, const moe_room *m, int32_t step, int64_t item,
                      int32_t thread) {
    const int64_t n = li_rows(r, &a->x), slots = n * a->n_used;
    int64_t first, end;
    li_block(r, step == 4 ? slots : n, item, &first, &end);
    if (step == 4) {
        li_prepare_activations(a->down.type, m->hidden, a->down.n_in, a->down.n_in, first, end, m->prepared);
        return;
    }
    for (int64_t t = first; t < end; t++) {
        if (step == 0)
            route(r, a, li_at(r, &a->logits) + t * a->logits.ld, li_own_row(r, thread), m->chosen + t * a->n_used,
                  m->weight + t * a->n_used);
        else if (step == 2)
            prepare_x(r, a, m, li_at(r, &a->x) + t * a->x.ld, t, thread);
        else
            combine(r, a, m, t, li_at(r, &a->out) + t * a->out.ld);
    }
}

int64_t li_moe_items(const li_run *r, const li_moe_args *a, int32_t step) {
    const int64_t n = li_rows(r, &a->x);
    if (n == 0) return 0;
    switch (step) {
        case 1: return 1;
        case 3: return n_pieces(r, a, &a->up, n);
        case 4: return li_blocks(r, n * a->n_used);
        case 5: return n_pieces(r, a, &a->down, n);
        default: return li_blocks(r, n);
    }
}

void li_moe_item(const li_run *r, const li_moe_args *a, int32_t step, int64_t item, int32_t thread) {
    const int64_t n = li_rows(r, &a->x);
    const moe_room m = room_of(a, n, r->tape->shared);
    if (step == 1) {
        sort_slots(a, &m, n * a->n_used);
        if (a->experts) demand(r, a, &m, n);
    } else if (step == 3) {
        const moe_piece p = piece_of(r, a, &m, &a->up, n, item);
        if (p.expert >= 0) gate_and_up(r, a, &m, &p, thread);
        if (p.expert >= 0 && a->experts) li_experts_release(a->experts, 0, p.place);
    } else if (step == 5) {
        const moe_piece p = piece_of(r, a, &m, &a->down, n, item);
        if (p.expert >= 0) down_rows(r, a, &m, &p, thread);
        if (p.expert >= 0 && a->experts) li_experts_release(a->experts, 1, p.place);
    } else {
        rows_step(r, a, &m, step, item, thread);
    }
}

enum { MOST_HINTED_TOKENS = 4 };

void li_expert_hint(const li_run *r, const li_expert_hint_args *a, int32_t thread) {
    const int64_t n = li_rows(r, &a->logits);
    if (n > MOST_HINTED_TOKENS) return; /* a prompt's tokens choose almost all experts */
    uint8_t *taken = (uint8_t *)li_own_row(r, thread);
    int32_t best[MOST_HINTED_TOKENS * 32], n_best = 0;
    memset(taken, 0, (size_t)a->n_experts);
    for (int64_t t = 0; t < n; t++)
        for (int32_t j = 0; j < a->n_used && j < 32; j++) {
            const int32_t e = best_of(li_at(r, &a->logits) + t * a->logits.ld, taken, a->n_experts);
            if (e < 0) break;
            taken[e] = 1;
            best[n_best++] = e;
        }
    li_experts_hint(a->experts, a->layer, best, n_best);
}

void li_moe_room(li_tape *tape, const li_moe_args *a) {
    li_at_least(&tape->shared_bytes, room_of(a, tape->max_tokens, NULL).n_bytes);
    li_at_least(&tape->row_bytes, li_round_up((int64_t)a->n_experts * 4 * 4, 64)); /* route()'s work */
    li_at_least(&tape->row_bytes, li_round_up((int64_t)a->x.n * 4, 64));     /* a weighted input */
    li_at_least(&tape->tile_bytes, li_round_up((int64_t)tape->max_tokens * LI_BATCH_ROWS * 4, 64));
    const li_matrix *w[3] = {&a->gate, &a->up, &a->down};
    for (int i = a->gate.blocks ? 0 : 1; i < 3; i++)
        li_at_least(&tape->scratch_bytes,
                 li_round_up(li_linear_scratch_bytes(w[i]->type, w[i]->n_in, tape->max_tokens), 64));
}
