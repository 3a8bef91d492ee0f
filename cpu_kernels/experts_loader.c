/* The thread that loads the experts that are missing: first what is asked for, then what hints say. Everything here runs
 * with the mutex held; it is free only while storage is read. */
#include "experts_parts.h"

#include <math.h>
#include <string.h>

enum { PAGE = 4096 };

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
void li_experts_start_step(li_experts *x, int step) {
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
            li_experts_start_step(x, step);
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

void *li_experts_load_missing(void *argument) {
    li_experts *x = argument;
    pthread_mutex_lock(&x->mutex);
    while (!x->stop)
        if (!serve_demands(x) && !x->stop && !serve_hint(x)) pthread_cond_wait(&x->work, &x->mutex);
    pthread_mutex_unlock(&x->mutex);
    return NULL;
}
