/* A pool of threads that works through numbered phases of numbered items.
 *
 * A job is a list of phases; a phase is a list of items; phase p+1 starts when every item of phase p is done. Threads
 * take items one by one, so a thread that the system puts aside delays nobody as long as it holds no item: a phase
 * ends with its items, not with its threads. Waiting is a short spin and then a sleep, so that a core which another
 * program wants is given up, and the system may move a stalled thread to the core that became free.
 *
 * The thread that calls li_pool_run works too. Workers spin briefly after a job, since the next token usually follows
 * at once, and then sleep until they are called.
 */
#ifndef LI_THREADS_H
#define LI_THREADS_H

#include <stdint.h>

#define LI_MAX_PHASES 65536
#define LI_MAX_THREADS 256

typedef struct li_pool li_pool;

typedef struct {
    void *context;
    int32_t n_phases;  /* at most LI_MAX_PHASES */
    int64_t (*n_items)(const void *context, int32_t phase);  /* asked once a phase, before anything runs; < 2^31 */
    void (*run_item)(void *context, int32_t phase, int64_t item, int32_t thread);
} li_job;

/* n_threads counts the caller and is cut to 1..LI_MAX_THREADS. NULL when memory is refused; where threads are refused
 * the pool has fewer (li_pool_threads). */
li_pool *li_pool_create(int32_t n_threads);
void li_pool_destroy(li_pool *pool);
int32_t li_pool_threads(const li_pool *pool);

/* Runs the job to its end. On return no thread holds an item and none will touch the job again. One caller at a time. */
void li_pool_run(li_pool *pool, const li_job *job);

#endif
