#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

/* How long to spin before sleeping. Within a job the others are at most one item away (tens of microseconds when
 * decoding); between jobs the caller samples a token. Longer spins would burn the time that a second program's slice
 * takes anyway, shorter ones pay the wake-up (about 50 us in a virtual machine) too often. */
enum { PHASE_SPIN_NS = 60 * 1000, IDLE_SPIN_NS = 500 * 1000 };

/* Where another program wants our core, the system takes it from us every few milliseconds, most likely in the middle of
 * an item that all other threads then wait for. So a thread that notices gives its core up by itself before that, between
 * items, where nobody waits for it. */
enum { SLICE_NS = 1000 * 1000, CONTENDED_NS = 50 * 1000 * 1000 };

typedef struct {
    int64_t slice_end;       /* when to look next */
    int64_t contended_until; /* 0: nobody wants this core */
    long switches;           /* how often the system took it so far */
} presence;

/* `ticket` is (job number << 32 | next item). Taking an item is a compare-and-swap that fails when the job number moved
 * on, so a thread that comes back late cannot touch a newer job. */
typedef struct {
    _Atomic uint64_t ticket;
    _Atomic uint32_t n_items;
    _Atomic uint32_t n_done;
} slot;

typedef struct {
    _Alignas(64) li_pool *pool;
    int32_t thread;
    presence presence;
} worker_arg;

struct li_pool {
    int32_t n_threads;
    slot *slots;
    pthread_t *handles;
    worker_arg *args;

    _Alignas(64) _Atomic uint32_t job_number;
    _Atomic(void *) context;
    _Atomic(void (*)(void *, int32_t, int64_t, int32_t)) run_item;
    _Atomic int32_t n_phases;
    _Atomic bool stop;

    _Alignas(64) pthread_mutex_t mutex;
    pthread_cond_t phase_done;
    pthread_cond_t job_ready;
    _Atomic int32_t n_waiting_phase;
    _Atomic int32_t n_waiting_job;
};

static inline void spin_hint(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline uint32_t job_of(uint64_t ticket) { return (uint32_t)(ticket >> 32); }

/* The next item of the slot, or -1: none left, or the job is over. n_items is read after the ticket and written after
 * it, so a fresh n_items implies that the swap sees the fresh ticket and fails. */
static int64_t take_item(slot *s, uint32_t job) {
    uint64_t ticket = atomic_load_explicit(&s->ticket, memory_order_acquire);
    for (;;) {
        if (job_of(ticket) != job) return -1;
        uint32_t item = (uint32_t)ticket;
        if (item >= atomic_load_explicit(&s->n_items, memory_order_acquire)) return -1;
        if (atomic_compare_exchange_weak_explicit(&s->ticket, &ticket, ticket + 1, memory_order_acq_rel,
                                                  memory_order_acquire))
            return item;
    }
}

static bool phase_over(slot *s, uint32_t job) {
    if (atomic_load(&s->n_done) == atomic_load_explicit(&s->n_items, memory_order_relaxed)) return true;
    return job_of(atomic_load(&s->ticket)) != job;
}

static void finish_items(li_pool *pool, slot *s, uint32_t n) {
    uint32_t total = atomic_load_explicit(&s->n_items, memory_order_relaxed);
    if (atomic_fetch_add(&s->n_done, n) + n != total) return;
    if (atomic_load(&pool->n_waiting_phase) == 0) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->phase_done);
    pthread_mutex_unlock(&pool->mutex);
}

static void sleep_until_over(li_pool *pool, slot *s, uint32_t job) {
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->n_waiting_phase, 1);
    while (!phase_over(s, job)) pthread_cond_wait(&pool->phase_done, &pool->mutex);
    atomic_fetch_sub(&pool->n_waiting_phase, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void wait_phase(li_pool *pool, slot *s, uint32_t job) {
    int64_t deadline = 0;
    for (uint32_t i = 1; !phase_over(s, job); i++) {
        spin_hint();
        if (i % 64) continue;
        int64_t now = now_ns();
        if (!deadline) deadline = now + PHASE_SPIN_NS;
        if (now > deadline) {
            sleep_until_over(pool, s, job);
            return;
        }
    }
}

static long involuntary_switches(void) {
#if defined(RUSAGE_THREAD)
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
#else
    return 0;
#endif
}

/* Is it time to give the core up? */
static bool should_give_way(presence *p) {
    const int64_t now = now_ns();
    if (now < p->slice_end) return false;
    p->slice_end = now + SLICE_NS;
    const long switches = involuntary_switches();
    if (switches != p->switches) {
        p->switches = switches;
        p->contended_until = now + CONTENDED_NS;
    }
    return now < p->contended_until;
}

static void give_way(presence *p) {
    sched_yield();
    p->slice_end = now_ns() + SLICE_NS;
}

static void work(li_pool *pool, uint32_t job, int32_t thread) {
    presence *here = &pool->args[thread].presence;
    int32_t n_phases = atomic_load_explicit(&pool->n_phases, memory_order_acquire);
    for (int32_t phase = 0; phase < n_phases; phase++) {
        slot *s = &pool->slots[phase];
        uint32_t n = 0;
        for (;;) {
            if (should_give_way(here)) {
                if (n) finish_items(pool, s, n); /* first, or the others wait for what is long done */
                n = 0;
                give_way(here);
            }
            const int64_t item = take_item(s, job);
            if (item < 0) break;
            void *context = atomic_load_explicit(&pool->context, memory_order_relaxed);
            atomic_load_explicit(&pool->run_item, memory_order_relaxed)(context, phase, item, thread);
            n++;
        }
        if (n) finish_items(pool, s, n);
        wait_phase(pool, s, job);
        if (job_of(atomic_load_explicit(&s->ticket, memory_order_relaxed)) != job) return;
    }
}

static void wait_job(li_pool *pool, uint32_t seen) {
    int64_t deadline = now_ns() + IDLE_SPIN_NS;
    for (uint32_t i = 1; atomic_load(&pool->job_number) == seen; i++) {
        spin_hint();
        if (i % 64 || now_ns() < deadline) continue;
        pthread_mutex_lock(&pool->mutex);
        atomic_fetch_add(&pool->n_waiting_job, 1);
        while (atomic_load(&pool->job_number) == seen) pthread_cond_wait(&pool->job_ready, &pool->mutex);
        atomic_fetch_sub(&pool->n_waiting_job, 1);
        pthread_mutex_unlock(&pool->mutex);
    }
}

static void *worker_main(void *p) {
    worker_arg *arg = p;
    li_pool *pool = arg->pool;
    uint32_t seen = 0;
    for (;;) {
        wait_job(pool, seen);
        if (atomic_load(&pool->stop)) return NULL;
        seen = atomic_load(&pool->job_number);
        work(pool, seen, arg->thread);
    }
}

static void announce(li_pool *pool) {
    atomic_fetch_add(&pool->job_number, 1);
    if (atomic_load(&pool->n_waiting_job) == 0) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->job_ready);
    pthread_mutex_unlock(&pool->mutex);
}

/* Job 0 is never announced: slots start as job 0 with no items. */
void li_pool_run(li_pool *pool, const li_job *job) {
    uint32_t number = atomic_load(&pool->job_number) + 1;
    for (int32_t phase = 0; phase < job->n_phases; phase++) {
        slot *s = &pool->slots[phase];
        atomic_store_explicit(&s->ticket, (uint64_t)number << 32, memory_order_release);
        atomic_store_explicit(&s->n_done, 0, memory_order_relaxed);
        atomic_store_explicit(&s->n_items, (uint32_t)job->n_items(job->context, phase), memory_order_release);
    }
    atomic_store(&pool->context, job->context);
    atomic_store(&pool->run_item, job->run_item);
    atomic_store(&pool->n_phases, job->n_phases);
    if (pool->n_threads > 1)
        announce(pool);
    else
        atomic_fetch_add(&pool->job_number, 1);
    work(pool, number, 0);
}

int32_t li_pool_threads(const li_pool *pool) { return pool->n_threads; }

void li_pool_destroy(li_pool *pool) {
    if (!pool) return;
    atomic_store(&pool->stop, true);
    announce(pool);
    for (int32_t i = 1; i < pool->n_threads; i++) pthread_join(pool->handles[i], NULL);
    pthread_cond_destroy(&pool->phase_done);
    pthread_cond_destroy(&pool->job_ready);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->slots);
    free(pool->handles);
    free(pool->args);
    free(pool);
}

li_pool *li_pool_create(int32_t n_threads) {
    if (n_threads < 1) n_threads = 1;
    if (n_threads > LI_MAX_THREADS) n_threads = LI_MAX_THREADS;
    size_t bytes = (sizeof(li_pool) + 63) / 64 * 64;
    li_pool *pool = aligned_alloc(64, bytes);
    if (!pool) return NULL;
    *pool = (li_pool){.n_threads = 1};
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->phase_done, NULL);
    pthread_cond_init(&pool->job_ready, NULL);
    pool->slots = calloc(LI_MAX_PHASES, sizeof(slot));
    pool->handles = calloc((size_t)n_threads, sizeof(pthread_t));
    pool->args = aligned_alloc(64, (size_t)n_threads * sizeof(worker_arg));
    if (!pool->slots || !pool->handles || !pool->args) {
        li_pool_destroy(pool);
        return NULL;
    }
    pool->args[0] = (worker_arg){.pool = pool};
    for (int32_t i = 1; i < n_threads; i++) {
        pool->args[i] = (worker_arg){.pool = pool, .thread = i};
        if (pthread_create(&pool->handles[i], NULL, worker_main, &pool->args[i])) break;
        pool->n_threads = i + 1;
    }
    return pool;
}
