/* The pager and the experts' pager under load: what a reader finds is always what the file holds at that place.
 * Usage: pager_stress FILE ROUNDS. The file is made here: byte i of page p is (p * 31 + 7) & 255. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experts.h"
#include "pager.h"

enum { PAGE = 4096, UNITS = 7, RING_PAGES = 3, LAYERS = 3, EXPERTS = 16, USED = 5, READERS = 3, USES = 6 };

static int fd;
static atomic_int wrong;

static uint8_t value(int64_t page) { return (uint8_t)(page * 31 + 7); }

static void check(const uint8_t *at, int64_t page) {
    if (at[0] != value(page) || at[PAGE - 1] != value(page)) atomic_fetch_add(&wrong, 1);
}

static void make_file(const char *path, int64_t pages) {
    uint8_t page[PAGE];
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int64_t p = 0; p < pages; p++) {
        memset(page, value(p), PAGE);
        if (write(fd, page, PAGE) != PAGE) exit(2);
    }
}

/* One page a unit, one unit a set, a ring of three pages: each place is used again after three sets. */
static void stream(int rounds) {
    uint8_t *ring = aligned_alloc(PAGE, RING_PAGES * PAGE);
    li_unit units[UNITS];
    for (int32_t i = 0; i < UNITS; i++) {
        const int32_t place = i % RING_PAGES;
        int32_t after = UNITS;
        for (int32_t back = 1; back <= UNITS; back++)
            if ((i - back + UNITS) % UNITS % RING_PAGES == place) {
                after = back;
                break;
            }
        units[i] = (li_unit){{fd, 0, (int64_t)i * PAGE, PAGE, PAGE}, ring + place * PAGE, i, after};
    }
    li_pager *pager = li_pager_create(units, UNITS, UNITS);
    for (int n = 0; n < rounds * UNITS; n++) {
        li_pager_need(pager);
        check(units[n % UNITS].to, n % UNITS);
        li_pager_done(pager);
    }
    li_pager_destroy(pager);
    free(ring);
}

typedef struct {
    li_experts *x;
    int32_t layer, step;
    atomic_int next;
} work;

static void *reader(void *argument) {
    work *w = argument;
    for (int item; (item = atomic_fetch_add(&w->next, 1)) < USED * USES;) {
        const int32_t place = item / USES;
        const uint8_t *blocks[LI_EXPERT_MATRICES] = {NULL};
        const int32_t expert = li_experts_need(w->x, w->step, place, blocks);
        for (int m = 0; m < LI_EXPERT_MATRICES; m++)
            if (blocks[m]) check(blocks[m], ((int64_t)w->layer * LI_EXPERT_MATRICES + m) * EXPERTS + expert);
        li_experts_release(w->x, w->step, place);
    }
    return NULL;
}

static void run_step(li_experts *x, int32_t layer, int32_t step) {
    work w = {x, layer, step, 0};
    pthread_t threads[READERS];
    for (int i = 0; i < READERS; i++) pthread_create(&threads[i], NULL, reader, &w);
    for (int i = 0; i < READERS; i++) pthread_join(threads[i], NULL);
}

static void choose(int32_t active[EXPERTS], int32_t counts[EXPERTS + 1]) {
    uint8_t taken[EXPERTS] = {0};
    for (int n = 0; n < USED;) {
        const int e = rand() % EXPERTS;
        n += !taken[e];
        taken[e] = 1;
    }
    int32_t n = 0;
    counts[0] = 0;
    for (int e = 0; e < EXPERTS; e++) {
        if (taken[e]) active[n++] = e;
        counts[e + 1] = counts[e] + taken[e];
    }
}

static void load_experts(int rounds, int32_t n_slots) {
    uint8_t *room = aligned_alloc(PAGE, (size_t)n_slots * PAGE);
    li_expert_matrix matrices[LAYERS * LI_EXPERT_MATRICES];
    for (int i = 0; i < LAYERS * LI_EXPERT_MATRICES; i++)
        matrices[i] = (li_expert_matrix){fd, 0, (int64_t)i * EXPERTS * PAGE, PAGE, 0, 0};
    const li_shelf shelf = {room, PAGE, n_slots, 0};
    li_experts *x = li_experts_create(matrices, LAYERS, EXPERTS, &shelf, 1, 64.0);
    const int64_t uses[2] = {USES, USES};
    for (int n = 0; n < rounds * LAYERS; n++) {
        int32_t active[EXPERTS], counts[EXPERTS + 1], guess[2] = {rand() % EXPERTS, rand() % EXPERTS};
        choose(active, counts);
        li_experts_hint(x, (n + 1) % LAYERS, guess, 2);
        li_experts_demand(x, n % LAYERS, active, USED, counts, 1, uses);
        run_step(x, n % LAYERS, 0);
        run_step(x, n % LAYERS, 1);
    }
    li_experts_state state;
    li_experts_read_state(x, &state);
    if (state.lookups != (int64_t)rounds * LAYERS * USED || state.hits > state.lookups) atomic_fetch_add(&wrong, 1);
    li_experts_destroy(x);
    free(room);
}

int main(int n, char **arguments) {
    if (n != 3) return 2;
    const int rounds = atoi(arguments[2]);
    make_file(arguments[1], LAYERS * LI_EXPERT_MATRICES * EXPERTS);
    stream(rounds);
    load_experts(rounds, LI_LEAST_SLOTS);
    load_experts(rounds, 40);
    puts(atomic_load(&wrong) ? "wrong bytes" : "ok");
    return atomic_load(&wrong) != 0;
}
