/* Tapes: how many phases each instruction has, and the room that all of them need. */
#include <stdlib.h>
#include <string.h>

#include "run.h"

/* Phases of an instruction: run.c runs them. */
static int32_t steps_of(int32_t op) {
    switch (op) {
        case LI_OP_MOE: return LI_MOE_STEPS;
        case LI_OP_ATTENTION: return 3;
        case LI_OP_LINEAR:
        case LI_OP_HEAD_LINEAR: return 2;
        default: return 1;
    }
}

int64_t li_tape_bytes(const li_tape *tape) {
    return tape->arena_bytes + tape->shared_bytes + tape->thread_bytes * tape->n_threads;
}

void li_tape_destroy(li_tape *tape) {
    if (!tape) return;
    for (int32_t i = 0; i < tape->n_instructions; i++) {
        if (tape->few) free(tape->few[i].pieces);
        if (tape->many) free(tape->many[i].pieces);
    }
    free(tape->few);
    free(tape->many);
    free(tape->instructions);
    free(tape->first_phase);
    free(tape->phases);
    free(tape->arena);
    free(tape->shared);
    free(tape->own);
    free(tape);
}

static int number_phases(li_tape *tape) {
    int32_t n = 0;
    for (int32_t i = 0; i < tape->n_instructions; i++) {
        tape->first_phase[i] = n;
        n += steps_of(tape->instructions[i].op);
    }
    tape->first_phase[tape->n_instructions] = tape->n_phases = n;
    if (n > LI_MAX_PHASES) return -1;
    tape->phases = calloc((size_t)n + 1, sizeof(li_phase));
    if (!tape->phases) return -1;
    for (int32_t i = 0; i < tape->n_instructions; i++)
        for (int32_t p = tape->first_phase[i]; p < tape->first_phase[i + 1]; p++)
            tape->phases[p] = (li_phase){i, p - tape->first_phase[i]};
    return 0;
}

/* Room is reserved for max_tokens; the system provides pages when they are first written. */
static int allocate_room(li_tape *tape) {
    for (int32_t i = 0; i < tape->n_instructions; i++) {
        const li_instruction *in = &tape->instructions[i];
        if (in->op == LI_OP_LINEAR) {
            li_linear_room(tape, in->args);
            if (li_linear_cut(tape, i)) return -1;
        }
        if (in->op == LI_OP_MOE) li_moe_room(tape, in->args);
        if (in->op == LI_OP_HEAD_LINEAR) li_head_linear_room(tape, in->args);
        if (in->op == LI_OP_SCAN || in->op == LI_OP_DELTA) li_scan_room(tape, in->args);
    }
    tape->arena_bytes = li_round_up(tape->arena_bytes, 64) + 64;
    tape->shared_bytes = li_round_up(tape->shared_bytes, 64) + 64;
    tape->thread_bytes = tape->prepared_bytes + tape->row_bytes + tape->tile_bytes + tape->scratch_bytes;
    tape->thread_bytes = li_round_up(tape->thread_bytes, 4096) + 4096; /* two threads never share a page */
    tape->arena = aligned_alloc(64, (size_t)tape->arena_bytes);
    tape->shared = aligned_alloc(64, (size_t)tape->shared_bytes);
    tape->own = aligned_alloc(4096, (size_t)(tape->thread_bytes * tape->n_threads));
    return tape->arena && tape->shared && tape->own ? 0 : -1;
}

li_tape *li_tape_create(const li_instruction *instructions, int32_t n, int64_t arena_bytes, int32_t max_tokens,
                        int32_t n_threads) {
    if (n_threads < 1 || n_threads > LI_MAX_THREADS || max_tokens < 1) return NULL;
    li_tape *tape = calloc(1, sizeof(li_tape));
    if (!tape) return NULL;
    tape->n_instructions = n;
    tape->arena_bytes = arena_bytes;
    tape->max_tokens = max_tokens;
    tape->n_threads = n_threads;
    tape->instructions = calloc((size_t)n + 1, sizeof(li_instruction));
    tape->first_phase = calloc((size_t)n + 1, sizeof(int32_t));
    tape->few = calloc((size_t)n + 1, sizeof(li_pieces));
    tape->many = calloc((size_t)n + 1, sizeof(li_pieces));
    const int failed = !tape->instructions || !tape->first_phase || !tape->few || !tape->many;
    if (!failed) memcpy(tape->instructions, instructions, (size_t)n * sizeof(li_instruction));
    if (failed || number_phases(tape) || allocate_room(tape)) {
        if (!tape->instructions) tape->n_instructions = 0;
        li_tape_destroy(tape);
        return NULL;
    }
    return tape;
}
