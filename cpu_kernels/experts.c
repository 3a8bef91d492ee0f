#include "experts.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAGE = 4096, N_STEPS = 2, MAX_HINTS = 64 };

/* Hints cost reads and room. They are followed while enough of what they loaded was used, and now and then tried anew:
 * `worth` is the share that was, over the last tens of them. */
static const double LEAST_WORTH = 0.6, WORTH_STEP = 1.0 / 32, WORTH_REGAINED = 1.0 / 8192;

static const int first_matrix[N_STEPS] = {LI_EXPERT_GATE, LI_EXPERT_DOWN};
static const int end_matrix[N_STEPS] = {LI_EXPERT_DOWN, LI_EXPERT_MATRICES};

typedef struct {
    uint8_t *at; /* NULL: only in the file */
    int32_t pins;
    bool spoiled; /* its read failed: what lies there is not the expert */
    bool guessed; /* loaded on a hint, and not used since */
} entry;

typedef struct {
    uint8_t *at;
    int64_t entry; /* -1: empty */
} slot;

/* What one step of a moe instruction asks for, in the order in which it is handed out. Places [0, n_ready) are there. */
typedef struct {
    int32_t n, n_resident;
    int64_t uses;
    int32_t *order;
    _Atomic int64_t *left; /* uses of each place that are to come */
    _Atomic int32_t n_ready;
    bool started;
} step_demand;

struct li_experts {
    li_expert_matrix *matrices;
    int32_t n_layers, n_experts, n_shelves;
    entry *entries; /* layer, matrix, expert */
    double *heat;   /* layer, expert: log2 of heat, in units of time 0 */
    li_shelf *shelves;
    slot **slots; /* by shelf */
    double half_life;

    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t work, ready, room;
    bool stop;
    int32_t layer; /* that is asked for */
    int64_t now;   /* tokens so far */
    step_demand steps[N_STEPS];
    int32_t hint_layer, n_hints;
    int32_t hints[MAX_HINTS];
    double worth;
    li_experts_state state;
};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static const li_expert_matrix *matrix_of(const li_experts *x, int32_t layer, int matrix) {
    return &x->matrices[layer * LI_EXPERT_MATRICES + matrix];
}
static int64_t entry_index(const li_experts *x, int32_t layer, int matrix, int32_t expert) {
    return ((int64_t)layer * LI_EXPERT_MATRICES + matrix) * x->n_experts + expert;
}
static double *heat_of(li_experts *x, int32_t layer, int32_t expert) {
    return &x->heat[(int64_t)layer * x->n_experts + expert];
}
static int32_t layer_of(const li_experts *x, int64_t e) {
    return (int32_t)(e / (LI_EXPERT_MATRICES * (int64_t)x->n_experts));
}
static double heat_of_entry(li_experts *x, int64_t e) {
    return *heat_of(x, layer_of(x, e), (int32_t)(e % x->n_experts));
}

/* Are all matrices of a step there? */
static bool resident(const li_experts *x, int32_t layer, int step, int32_t expert) {
    for (int m = first_matrix[step]; m < end_matrix[step]; m++)
        if (matrix_of(x, layer, m)->bytes && !x->entries[entry_index(x, layer, m, expert)].at) return false;
    return true;
}

/* What a hint loaded was used, or has to go without. */
static void judge_hint(li_experts *x, entry *e, bool used) {
    if (!e->guessed) return;
    e->guessed = false;
    x->state.hints_used += used;
    x->worth += WORTH_STEP * ((used ? 1.0 : 0.0) - x->worth);
}

static void pin(li_experts *x, int32_t layer, int step, int32_t expert, int by) {
    for (int m = first_matrix[step]; m < end_matrix[step]; m++) {
        entry *e = &x->entries[entry_index(x, layer, m, expert)];
        e->pins += by;
        judge_hint(x, e, true);
    }
}

/* Heat decays by the token. Kept as a logarithm at time 0, it needs no update while it decays: a use now counts
 * 2^(now / half_life) there, and comparisons are the same at any time. */
static void warm(li_experts *x, int32_t layer, int32_t expert, int32_t n) {
    double *heat = heat_of(x, layer, expert);
    const double added = log2((double)n) + (double)x->now / x->half_life;
    const double high = *heat > added ? *heat : added, low = *heat > added ? added : *heat;
    *heat = high + log2(1.0 + exp2(low - high));
}

/* ---- the loader: everything here runs with the mutex held ---- */

/* The coldest slot that nobody uses; empty ones first, last those that wait for the layer they were guessed for. NULL:
 * all are in use. */
static slot *coldest(li_experts *x, int32_t shelf) {
    slot *best = NULL;
    double least = INFINITY;
    for (int32_t i = 0; i < x->shelves[shelf].n_slots; i++) {
        slot *s = &x->slots[shelf][i];
        if (s->entry < 0) return s;
        const entry *e = &x->entries[s->entry];
        if (e->pins) continue;
        const bool waits = e->guessed && layer_of(x, s->entry) == x->hint_layer;
        const double heat = waits ? 1e9 : heat_of_entry(x, s->entry);
        if (heat < least) {
            least = heat;
            best = s;
        }
    }
    return best;
}

static void note_failure(li_experts *x, int32_t layer, int matrix, int32_t expert, int32_t status) {
    if (!status || x->state.failed_layer >= 0) return;
    x->state.failed_layer = layer;
    x->state.failed_matrix = matrix;
    x->state.failed_expert = expert;
    x->state.status = status;
}

/* Reads one entry into a slot that is not in use; the mutex is free meanwhile, and the entry pinned. The read's status:
 * where that is not 0, what lies there is not the expert. */
static int32_t load_into(li_experts *x, slot *s, int32_t layer, int matrix, int32_t expert) {
    const li_expert_matrix *w = matrix_of(x, layer, matrix);
    const int64_t index = entry_index(x, layer, matrix, expert), start = w->offset + expert * w->bytes;
    const int64_t first = start / PAGE * PAGE, end = (start + w->bytes + PAGE - 1) / PAGE * PAGE;
    const li_extent from = {w->fd, w->drop, first, end - first, start + w->bytes - first};
    if (s->entry >= 0) {
        judge_hint(x, &x->entries[s->entry], false);
        x->entries[s->entry].at = NULL;
    }
    s->entry = index;
    x->entries[index].pins++;
    pthread_mutex_unlock(&x->mutex);
    int64_t ns = 0;
    const int32_t status = li_storage_read(&from, s->at, &ns);
    pthread_mutex_lock(&x->mutex);
    x->entries[index].pins--;
    x->entries[index].at = s->at + (start - first);
    x->state.bytes += from.bytes;
    x->state.read_ns += ns;
    x->entries[index].spoiled = status != 0;
    return status;
}

/* Loads an entry that is demanded, whatever it takes, and pins it. False when closing. */
static bool load_demanded(li_experts *x, int32_t layer, int matrix, int32_t expert) {
    entry *e = &x->entries[entry_index(x, layer, matrix, expert)];
    e->pins++;
    judge_hint(x, e, true);
    if (e->at || !matrix_of(x, layer, matrix)->bytes) return true;
    slot *s;
    while (!x->stop && !(s = coldest(x, matrix_of(x, layer, matrix)->shelf))) pthread_cond_wait(&x->room, &x->mutex);
    if (x->stop) return false;
    /* After a failure the pass goes on, and its result is thrown away. */
    note_failure(x, layer, matrix, expert, load_into(x, s, layer, matrix, expert));
    return true;
}

/* Puts what is there first and pins it. */
static void start_step(li_experts *x, int step) {
    step_demand *d = &x->steps[step];
    int32_t n_there = 0, n_missing = 0;
    int32_t *missing = d->order + x->n_experts; /* the second half is room for this */
    for (int32_t i = 0; i < d->n; i++) {
        const int32_t expert = d->order[i];
        if (resident(x, x->layer, step, expert)) {
            pin(x, x->layer, step, expert, 1);
            d->order[n_there++] = expert;
        } else
            missing[n_missing++] = expert;
    }
    memcpy(d->order + n_there, missing, (size_t)n_missing * sizeof(int32_t));
    d->n_resident = n_there;
    d->started = true;
    atomic_store(&d->n_ready, n_there);
}

/* Demands in their order; step 1 starts when all of step 0 is there: before that its entries may have to give way. */
static bool serve_demands(li_experts *x) {
    for (int step = 0; step < N_STEPS; step++) {
        step_demand *d = &x->steps[step];
        if (!d->started) {
            start_step(x, step);
            pthread_cond_broadcast(&x->ready);
        }
        const int32_t i = atomic_load(&d->n_ready);
        if (i == d->n) continue;
        for (int m = first_matrix[step]; m < end_matrix[step]; m++)
            if (!load_demanded(x, x->layer, m, d->order[i])) return false;
        atomic_store(&d->n_ready, i + 1);
        pthread_cond_broadcast(&x->ready);
        return true;
    }
    return false;
}

/* One hinted entry, if a slot is free for it. */
static bool serve_hint(li_experts *x) {
    while (x->n_hints) {
        const int32_t layer = x->hint_layer, expert = x->hints[x->n_hints - 1];
        for (int m = 0; m < LI_EXPERT_MATRICES; m++) {
            const li_expert_matrix *w = matrix_of(x, layer, m);
            if (!w->bytes || x->entries[entry_index(x, layer, m, expert)].at) continue;
            slot *s = coldest(x, w->shelf);
            if (!s) return false;
            if (load_into(x, s, layer, m, expert)) { /* nobody has asked for it: who does will hear of it */
                x->entries[s->entry] = (entry){NULL, 0, false, false};
                s->entry = -1;
                x->n_hints = 0;
                return false;
            }
            x->entries[entry_index(x, layer, m, expert)].guessed = true;
            x->state.hinted++;
            return true;
        }
        x->n_hints--;
    }
    return false;
}

static void *load_missing(void *argument) {
    li_experts *x = argument;
    pthread_mutex_lock(&x->mutex);
    while (!x->stop)
        if (!serve_demands(x) && !x->stop && !serve_hint(x)) pthread_cond_wait(&x->work, &x->mutex);
    pthread_mutex_unlock(&x->mutex);
    return NULL;
}

/* ---- the tape's side ---- */

void li_experts_demand(li_experts *x, int32_t layer, const int32_t *active, int32_t n_active, const int32_t *counts,
                       int64_t n_tokens, const int64_t uses[2]) {
    pthread_mutex_lock(&x->mutex);
    if (layer <= x->layer) x->now += n_tokens; /* the next pass */
    x->layer = layer;
    x->state.lookups += n_active;
    for (int32_t i = 0; i < n_active; i++) {
        const int32_t expert = active[i];
        x->state.hits += resident(x, layer, 0, expert) && resident(x, layer, 1, expert);
        warm(x, layer, expert, counts[expert + 1] - counts[expert]);
    }
    for (int step = 0; step < N_STEPS; step++) {
        step_demand *d = &x->steps[step];
        d->n = n_active;
        d->uses = uses[step];
        d->started = false;
        atomic_store(&d->n_ready, 0);
        memcpy(d->order, active, (size_t)n_active * sizeof(int32_t));
        for (int32_t i = 0; i < n_active; i++) atomic_store(&d->left[i], uses[step]);
    }
    start_step(x, 0);
    if (x->steps[0].n_resident == n_active) start_step(x, 1);
    if (!x->steps[1].started || x->steps[1].n_resident < n_active) pthread_cond_signal(&x->work);
    pthread_mutex_unlock(&x->mutex);
}

int32_t li_experts_need(li_experts *x, int32_t step, int32_t i, const uint8_t *blocks[LI_EXPERT_MATRICES]) {
    step_demand *d = &x->steps[step];
    if (atomic_load(&d->n_ready) <= i) {
        pthread_mutex_lock(&x->mutex);
        const int64_t start = now_ns();
        while (atomic_load(&d->n_ready) <= i) pthread_cond_wait(&x->ready, &x->mutex);
        x->state.wait_ns += now_ns() - start;
        pthread_mutex_unlock(&x->mutex);
    }
    for (int m = first_matrix[step]; m < end_matrix[step]; m++)
        blocks[m] = x->entries[entry_index(x, x->layer, m, d->order[i])].at;
    return d->order[i];
}

void li_experts_release(li_experts *x, int32_t step, int32_t i) {
    step_demand *d = &x->steps[step];
    if (atomic_fetch_sub(&d->left[i], 1) != 1) return;
    pthread_mutex_lock(&x->mutex);
    pin(x, x->layer, step, d->order[i], -1);
    pthread_cond_signal(&x->room);
    pthread_mutex_unlock(&x->mutex);
}

void li_experts_hint(li_experts *x, int32_t layer, const int32_t *experts, int32_t n) {
    pthread_mutex_lock(&x->mutex);
    x->worth += WORTH_REGAINED;
    if (x->worth < LEAST_WORTH) n = 0;
    x->hint_layer = layer;
    x->n_hints = n < MAX_HINTS ? n : MAX_HINTS;
    for (int32_t i = 0; i < x->n_hints; i++) x->hints[x->n_hints - 1 - i] = experts[i]; /* the likeliest first */
    pthread_cond_signal(&x->work);
    pthread_mutex_unlock(&x->mutex);
}

void li_experts_read_state(li_experts *x, li_experts_state *state) {
    pthread_mutex_lock(&x->mutex);
    *state = x->state;
    pthread_mutex_unlock(&x->mutex);
}

void li_experts_forgive(li_experts *x) {
    pthread_mutex_lock(&x->mutex);
    x->state.failed_layer = -1;
    x->state.status = 0;
    for (int32_t shelf = 0; shelf < x->n_shelves; shelf++)
        for (int32_t i = 0; i < x->shelves[shelf].n_slots; i++) {
            slot *s = &x->slots[shelf][i];
            if (s->entry < 0 || !x->entries[s->entry].spoiled || x->entries[s->entry].pins) continue;
            x->entries[s->entry] = (entry){NULL, 0, false, false};
            s->entry = -1;
        }
    pthread_mutex_unlock(&x->mutex);
}

/* ---- making and closing ---- */

static void free_experts(li_experts *x) {
    pthread_mutex_destroy(&x->mutex);
    pthread_cond_destroy(&x->work);
    pthread_cond_destroy(&x->ready);
    pthread_cond_destroy(&x->room);
    for (int step = 0; step < N_STEPS; step++) {
        free(x->steps[step].order);
        free((void *)x->steps[step].left);
    }
    for (int32_t i = 0; x->slots && i < x->n_shelves; i++) free(x->slots[i]);
    free(x->slots);
    free(x->shelves);
    free(x->matrices);
    free(x->entries);
    free(x->heat);
    free(x);
}

void li_experts_destroy(li_experts *x) {
    if (!x) return;
    pthread_mutex_lock(&x->mutex);
    x->stop = true;
    pthread_cond_broadcast(&x->work);
    pthread_cond_broadcast(&x->room);
    pthread_mutex_unlock(&x->mutex);
    pthread_join(x->thread, NULL);
    free_experts(x);
}

static bool lay_out_slots(li_experts *x) {
    for (int32_t i = 0; i < x->n_shelves; i++) {
        const li_shelf *shelf = &x->shelves[i];
        x->slots[i] = calloc((size_t)shelf->n_slots, sizeof(slot));
        if (!x->slots[i]) return false;
        for (int32_t s = 0; s < shelf->n_slots; s++)
            x->slots[i][s] = (slot){shelf->base + s * shelf->slot_bytes, -1};
    }
    return true;
}

static bool allocate(li_experts *x, const li_expert_matrix *matrices, const li_shelf *shelves) {
    const size_t n_matrices = (size_t)x->n_layers * LI_EXPERT_MATRICES, n = (size_t)x->n_experts;
    x->matrices = calloc(n_matrices, sizeof(li_expert_matrix));
    x->shelves = calloc((size_t)x->n_shelves, sizeof(li_shelf));
    x->slots = calloc((size_t)x->n_shelves, sizeof(slot *));
    x->entries = calloc(n_matrices * n, sizeof(entry));
    x->heat = calloc((size_t)x->n_layers * n, sizeof(double));
    for (int step = 0; step < N_STEPS; step++) {
        x->steps[step].order = calloc(2 * n, sizeof(int32_t));
        x->steps[step].left = calloc(n, sizeof(_Atomic int64_t));
        if (!x->steps[step].order || !x->steps[step].left) return false;
    }
    if (!x->matrices || !x->shelves || !x->slots || !x->entries || !x->heat) return false;
    memcpy(x->matrices, matrices, n_matrices * sizeof(li_expert_matrix));
    memcpy(x->shelves, shelves, (size_t)x->n_shelves * sizeof(li_shelf));
    for (size_t i = 0; i < (size_t)x->n_layers * n; i++) x->heat[i] = -1e9;
    return lay_out_slots(x);
}

li_experts *li_experts_create(const li_expert_matrix *matrices, int32_t n_layers, int32_t n_experts,
                              const li_shelf *shelves, int32_t n_shelves, double half_life) {
    for (int32_t i = 0; i < n_shelves; i++)
        if (shelves[i].n_slots < LI_LEAST_SLOTS) return NULL;
    li_experts *x = calloc(1, sizeof(li_experts));
    if (!x) return NULL;
    pthread_mutex_init(&x->mutex, NULL);
    pthread_cond_init(&x->work, NULL);
    pthread_cond_init(&x->ready, NULL);
    pthread_cond_init(&x->room, NULL);
    x->n_layers = n_layers;
    x->n_experts = n_experts;
    x->n_shelves = n_shelves;
    x->half_life = half_life;
    x->worth = 1.0;
    x->state.failed_layer = -1;
    for (int step = 0; step < N_STEPS; step++) x->steps[step].started = true; /* with nothing in it */
    if (!allocate(x, matrices, shelves) || pthread_create(&x->thread, NULL, load_missing, x)) {
        free_experts(x);
        return NULL;
    }
    return x;
}
