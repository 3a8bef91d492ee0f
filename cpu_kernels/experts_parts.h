/* What experts.c and experts_loader.c share: slots, who lies in them, what is asked for, under one mutex. */
#ifndef LI_EXPERTS_PARTS_H
#define LI_EXPERTS_PARTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "experts.h"

enum { N_STEPS = 2, MAX_HINTS = 64 };

/* Hints cost reads and room. They are followed while enough of what they loaded was used, and now and then tried anew:
 * `worth` is the share that was, over the last tens of them. */
static const double WORTH_STEP = 1.0 / 32;

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

static inline const li_expert_matrix *matrix_of(const li_experts *x, int32_t layer, int matrix) {
    return &x->matrices[layer * LI_EXPERT_MATRICES + matrix];
}
static inline int64_t entry_index(const li_experts *x, int32_t layer, int matrix, int32_t expert) {
    return ((int64_t)layer * LI_EXPERT_MATRICES + matrix) * x->n_experts + expert;
}
static inline double *heat_of(li_experts *x, int32_t layer, int32_t expert) {
    return &x->heat[(int64_t)layer * x->n_experts + expert];
}
static inline int32_t layer_of(const li_experts *x, int64_t e) {
    return (int32_t)(e / (LI_EXPERT_MATRICES * (int64_t)x->n_experts));
}
static inline double heat_of_entry(li_experts *x, int64_t e) {
    return *heat_of(x, layer_of(x, e), (int32_t)(e % x->n_experts));
}

/* Are all matrices of a step there? */
static inline bool resident(const li_experts *x, int32_t layer, int step, int32_t expert) {
    for (int m = first_matrix[step]; m < end_matrix[step]; m++)
        if (matrix_of(x, layer, m)->bytes && !x->entries[entry_index(x, layer, m, expert)].at) return false;
    return true;
}

/* What a hint loaded was used, or has to go without. */
static inline void judge_hint(li_experts *x, entry *e, bool used) {
    if (!e->guessed) return;
    e->guessed = false;
    x->state.hints_used += used;
    x->worth += WORTH_STEP * ((used ? 1.0 : 0.0) - x->worth);
}

static inline void pin(li_experts *x, int32_t layer, int step, int32_t expert, int by) {
    for (int m = first_matrix[step]; m < end_matrix[step]; m++) {
        entry *e = &x->entries[entry_index(x, layer, m, expert)];
        e->pins += by;
        judge_hint(x, e, true);
    }
}

/* Both with the mutex held, or as the thread that takes it. Puts what is there of a step first and pins it. */
void li_experts_start_step(li_experts *x, int step);
/* The thread that loads what is missing, until `stop`; its argument is a li_experts. */
void *li_experts_load_missing(void *argument);

#endif
