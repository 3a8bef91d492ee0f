#include "pager.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct li_pager {
    li_unit *units;
    int32_t *set_units; /* n_sets + 1: first unit of each set */
    int32_t *status;    /* of each unit's last read: what lies in its room is not the tensor where it failed */
    int32_t n_units, n_sets;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t loaded_more, done_more;
    int64_t n_loaded; /* units, counted through the passes */
    int64_t n_done;   /* sets */
    bool stop;
    li_pager_state state;
};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Waits until the unit's room is free; false when the pager closes. */
static bool wait_for_room(li_pager *p, int64_t pass, const li_unit *unit) {
    const int64_t last_user = pass * p->n_sets + unit->set - unit->after;
    while (!p->stop && p->n_done <= last_user) pthread_cond_wait(&p->done_more, &p->mutex);
    return !p->stop;
}

static void *read_ahead(void *argument) {
    li_pager *p = argument;
    pthread_mutex_lock(&p->mutex);
    for (int64_t n = 0;; n++) {
        const li_unit *unit = &p->units[n % p->n_units];
        if (!wait_for_room(p, n / p->n_units, unit)) break;
        pthread_mutex_unlock(&p->mutex);
        int64_t ns = 0;
        const int32_t status = li_storage_read(&unit->from, unit->to, &ns);
        pthread_mutex_lock(&p->mutex);
        p->n_loaded = n + 1;
        p->state.bytes += unit->from.bytes;
        p->state.read_ns += ns;
        p->status[n % p->n_units] = status;
        pthread_cond_broadcast(&p->loaded_more);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

/* A read that failed is tried once more by who needs it: it may have been ahead by a pass, and the disk be well again.
 * The room is the set's own until it is done. */
static void read_again(li_pager *p, int32_t i) {
    const li_unit *unit = &p->units[i];
    int64_t ns = 0;
    pthread_mutex_unlock(&p->mutex);
    const int32_t status = li_storage_read(&unit->from, unit->to, &ns);
    pthread_mutex_lock(&p->mutex);
    p->status[i] = status;
    p->state.read_ns += ns;
    if (status && p->state.failed < 0) {
        p->state.failed = i;
        p->state.status = status;
    }
}

void li_pager_need(li_pager *p) {
    pthread_mutex_lock(&p->mutex);
    const int64_t pass = p->n_done / p->n_sets, set = p->n_done % p->n_sets;
    const int64_t wanted = pass * p->n_units + p->set_units[set + 1];
    if (p->n_loaded < wanted) {
        const int64_t start = now_ns();
        while (p->n_loaded < wanted) pthread_cond_wait(&p->loaded_more, &p->mutex);
        p->state.wait_ns += now_ns() - start;
    }
    for (int32_t i = p->set_units[set]; i < p->set_units[set + 1]; i++)
        if (p->status[i]) read_again(p, i);
    pthread_mutex_unlock(&p->mutex);
}

void li_pager_done(li_pager *p) {
    pthread_mutex_lock(&p->mutex);
    p->n_done++;
    pthread_cond_signal(&p->done_more);
    pthread_mutex_unlock(&p->mutex);
}

void li_pager_read_state(li_pager *p, li_pager_state *state) {
    pthread_mutex_lock(&p->mutex);
    *state = p->state;
    pthread_mutex_unlock(&p->mutex);
}

void li_pager_forgive(li_pager *p) {
    pthread_mutex_lock(&p->mutex);
    p->state.failed = -1;
    p->state.status = 0;
    pthread_mutex_unlock(&p->mutex);
}

static void free_pager(li_pager *p) {
    pthread_mutex_destroy(&p->mutex);
    pthread_cond_destroy(&p->loaded_more);
    pthread_cond_destroy(&p->done_more);
    free(p->units);
    free(p->set_units);
    free(p->status);
    free(p);
}

void li_pager_destroy(li_pager *p) {
    if (!p) return;
    pthread_mutex_lock(&p->mutex);
    p->stop = true;
    pthread_cond_signal(&p->done_more);
    pthread_mutex_unlock(&p->mutex);
    pthread_join(p->thread, NULL);
    free_pager(p);
}

li_pager *li_pager_create(const li_unit *units, int32_t n_units, int32_t n_sets) {
    if (n_units < 1 || n_sets < 1) return NULL;
    li_pager *p = calloc(1, sizeof(li_pager));
    if (!p) return NULL;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->loaded_more, NULL);
    pthread_cond_init(&p->done_more, NULL);
    p->n_units = n_units;
    p->n_sets = n_sets;
    p->state.failed = -1;
    p->units = calloc((size_t)n_units, sizeof(li_unit));
    p->set_units = calloc((size_t)n_sets + 1, sizeof(int32_t));
    p->status = calloc((size_t)n_units, sizeof(int32_t));
    if (!p->units || !p->set_units || !p->status) {
        free_pager(p);
        return NULL;
    }
    memcpy(p->units, units, (size_t)n_units * sizeof(li_unit));
    for (int32_t i = 0; i < n_units; i++) p->set_units[units[i].set + 1] = i + 1;
    if (pthread_create(&p->thread, NULL, read_ahead, p)) {
        free_pager(p);
        return NULL;
    }
    return p;
}
