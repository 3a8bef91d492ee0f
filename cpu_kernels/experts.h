/* Experts of which only some are in memory: slots, who lies in them, and a thread that loads what is missing.
 *
 * An entry is one matrix (gate, up or down) of one expert of one layer; it lies in a slot or only in the file. Which
 * entry gives way is a matter of frequency and recency both: each use adds one to an expert's heat, which halves every
 * `half_life` tokens. Entries in use are pinned.
 *
 * A moe instruction says which experts its tokens chose (li_experts_demand). They are handed out in an order of our own,
 * those in memory first, so that work starts while the others load: step 0 uses gate and up, step 1 uses down. Matrices
 * of a step are loaded in the order in which they are handed out, so a few slots are enough to get through any layer.
 */
#ifndef LI_EXPERTS_H
#define LI_EXPERTS_H

#include "storage.h"

enum { LI_EXPERT_GATE = 0, LI_EXPERT_UP, LI_EXPERT_DOWN, LI_EXPERT_MATRICES };

/* A matrix of all experts of a layer, as it lies in a file. bytes 0: this layer has none. */
typedef struct {
    int32_t fd, drop;
    int64_t offset, bytes; /* of expert 0; the others follow */
    int32_t shelf;         /* which slots it fits in */
    int32_t reserved;
} li_expert_matrix;

/* Slots of one size. A slot is a whole number of pages, with room for a start anywhere in the first of them. */
typedef struct {
    uint8_t *base;
    int64_t slot_bytes;
    int32_t n_slots; /* at least LI_LEAST_SLOTS */
    int32_t reserved;
} li_shelf;

#define LI_LEAST_SLOTS 4

typedef struct {
    int64_t bytes, read_ns, wait_ns; /* as in li_pager_state */
    int64_t lookups, hits;           /* experts that tokens asked for, once a layer and pass; those found in memory */
    int64_t hinted, hints_used;      /* matrices loaded ahead of the router's word; those it asked for then */
    int32_t failed_layer;            /* -1: no read failed */
    int32_t failed_matrix, failed_expert, status;
} li_experts_state;

typedef struct li_experts li_experts;

/* matrices: n_layers x LI_EXPERT_MATRICES. NULL when memory or the thread is refused. */
li_experts *li_experts_create(const li_expert_matrix *matrices, int32_t n_layers, int32_t n_experts,
                              const li_shelf *shelves, int32_t n_shelves, double half_life);
void li_experts_destroy(li_experts *x);

/* The experts of one layer that n_tokens chose: active[0 .. n_active), expert e by counts[e + 1] - counts[e] slots.
 * uses[step]: how often each of them will be needed and released in that step. */
void li_experts_demand(li_experts *x, int32_t layer, const int32_t *active, int32_t n_active, const int32_t *counts,
                       int64_t n_tokens, const int64_t uses[2]);
/* The expert in place i of a step, once its matrices are there; their addresses by LI_EXPERT_*. */
int32_t li_experts_need(li_experts *x, int32_t step, int32_t i, const uint8_t *blocks[LI_EXPERT_MATRICES]);
void li_experts_release(li_experts *x, int32_t step, int32_t i);

/* These experts of a layer may be asked for soon: load what is missing while there is nothing else to load. */
void li_experts_hint(li_experts *x, int32_t layer, const int32_t *experts, int32_t n);

void li_experts_read_state(li_experts *x, li_experts_state *state);
void li_experts_forgive(li_experts *x);

#endif
