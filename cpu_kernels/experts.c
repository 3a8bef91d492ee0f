/* experts.h: what a tape asks for and gives back, and making and closing. The thread that loads is in experts_loader.c. */
#include "experts_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double LEAST_WORTH = 0.6, WORTH_REGAINED = 1.0 / 8192; /* of hints: experts_parts.h */

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Heat decays by the token. Kept as a logarithm at time 0, it needs no update while it decays: a use now counts
 * 2^(now / half_life) there, and comparisons are the same at any time. */
static void warm(li_experts *x, int32_t layer, int32_t expert, int32_t n) {
    double *heat = heat_of(x, layer, expert);
    const double added = log2((double)n) + (double)x->now / x->half_life;
    const double high = *heat > added ? *heat : added, low = *heat > added ? added : *heat;
    *heat = high + log2(1.0 + exp2(low - high));
}

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
    li_experts_start_step(x, 0);
    if (x->steps[0].n_resident == n_active) li_experts_start_step(x, 1);
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
    if (!allocate(x, matrices, shelves) || pthread_create(&x->thread, NULL, li_experts_load_missing, x)) {
        free_experts(x);
        return NULL;
    }
    return x;
}
