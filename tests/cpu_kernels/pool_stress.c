/* The thread pool under many small jobs: every item once, phases in order, plain data visible from phase to phase.
 * Built and run by test_run_pool.py, also under the thread and address sanitizers. Prints "ok" or what went wrong. */
#include "threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ITEMS = 40, MAX_PHASES = 30 };

/* Item i of phase p adds the sum of what phase p-1 left; plain memory, so a missing wait is a race. */
typedef struct {
    int32_t n_items[MAX_PHASES];
    int64_t value[MAX_PHASES][MAX_ITEMS];
    int32_t runs[MAX_PHASES][MAX_ITEMS];
    int n_threads;
} work;

static int64_t n_items(const void *context, int32_t phase) { return ((const work *)context)->n_items[phase]; }

static void run_item(void *context, int32_t phase, int64_t item, int32_t thread) {
    work *w = context;
    if (thread < 0 || thread >= w->n_threads) abort();
    int64_t sum = 1;
    if (phase > 0)
        for (int32_t i = 0; i < w->n_items[phase - 1]; i++) sum += w->value[phase - 1][i] % 1000;
    w->value[phase][item] = sum + item;
    w->runs[phase][item]++;
    if ((phase * 7 + item) % 97 == 0) usleep(200); /* let others fall asleep now and then */
}

static int check(const work *w, int32_t n_phases, int job) {
    int64_t before = 0;
    for (int32_t p = 0; p < n_phases; p++) {
        int64_t sum = 0;
        for (int32_t i = 0; i < w->n_items[p]; i++) {
            if (w->runs[p][i] != 1 || w->value[p][i] != 1 + before + i) {
                printf("job %d phase %d item %d: ran %d times, value %lld\n", job, p, i, w->runs[p][i],
                       (long long)w->value[p][i]);
                return 1;
            }
            sum += w->value[p][i] % 1000;
        }
        before = sum;
    }
    return 0;
}

static int stress(int n_threads, int n_jobs, unsigned seed) {
    li_pool *pool = li_pool_create(n_threads);
    if (!pool) return 1;
    srand(seed);
    for (int job = 0; job < n_jobs; job++) {
        work *w = calloc(1, sizeof *w); /* freed at once: nobody may touch a finished job */
        const int32_t n_phases = 1 + rand() % MAX_PHASES;
        for (int32_t p = 0; p < n_phases; p++) w->n_items[p] = rand() % 4 ? rand() % MAX_ITEMS : 0;
        w->n_threads = li_pool_threads(pool);
        const li_job j = {w, n_phases, n_items, run_item};
        li_pool_run(pool, &j);
        const int wrong = check(w, n_phases, job);
        memset(w, 0xa5, sizeof *w);
        free(w);
        if (wrong) return 1;
        if (job % 50 == 0) usleep(2000); /* long enough for workers to sleep between jobs */
    }
    li_pool_destroy(pool);
    return 0;
}

int main(int argc, char **argv) {
    const int n_jobs = argc > 1 ? atoi(argv[1]) : 300;
    for (int n_threads = 1; n_threads <= 8; n_threads += n_threads < 4 ? 1 : 4)
        if (stress(n_threads, n_jobs, (unsigned)n_threads)) return 1;
    puts("ok");
    return 0;
}
