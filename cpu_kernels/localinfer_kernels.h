/* The whole ABI of the CPU kernels: what localinfer/backends/cpu calls through ctypes. Plain C, no Python.h.
 *
 * A forward pass is a tape: instructions made once from a recorded program (models/program.py), run with one call for
 * any number of tokens up to the number it was laid out for. An instruction names its operands as views: offsets into
 * an arena of float32, so nothing is allocated and nothing is copied while it runs.
 *
 * Letters: T tokens of this run, R <= T rows of logits, E model width, H query heads, G key/value heads, D head size.
 *
 * Results do not depend on T, on the number of threads or on who did what: every float sum has one fixed order.
 */
#ifndef LOCALINFER_KERNELS_H
#define LOCALINFER_KERNELS_H

#include <stdint.h>

#include "attention.h"
#include "cpu.h"
#include "experts.h"
#include "linear.h"
#include "measure.h"
#include "merge.h"
#include "pager.h"
#include "threads.h"

#define LI_ABI 4

/* A float32 matrix whose row count is known when the tape runs: T rows, or only the last R of them. */
typedef struct {
    int64_t offset;      /* bytes from the arena's start, or from the output's where `external` */
    int32_t ld;          /* values from one row to the next */
    int32_t n;           /* values a row; 0: no such operand */
    int32_t last_rows;   /* 0: T rows; 1: R rows */
    int32_t skip;        /* 1: the view starts at row T-R of what lies at `offset` */
    int32_t external;
    int32_t reserved;
} li_view;

enum {
    LI_OP_EMBED = 1,
    LI_OP_NORM,
    LI_OP_LINEAR,
    LI_OP_ROPE_TABLE,
    LI_OP_ROPE,
    LI_OP_ATTENTION,
    LI_OP_GLU,
    LI_OP_UNARY,
    LI_OP_BINARY,
    LI_OP_MOE,
    LI_OP_EMBED_POSITIONS,
    LI_OP_HEAD_COPY,
    LI_OP_HEAD_LINEAR,
    LI_OP_CONV,
    LI_OP_SCAN,
    LI_OP_DELTA,
    LI_OP_PAGE,
    LI_OP_EXPERT_HINT,
    LI_N_OPS
};

enum { LI_NORM_NONE = 0, LI_NORM_RMS, LI_NORM_LAYER };
enum { LI_ACT_NONE = 0, LI_ACT_SILU, LI_ACT_GELU, LI_ACT_RELU2, LI_ACT_SWIGLU_OAI, LI_ACT_SIGMOID, LI_ACT_RELU };
enum { LI_UNARY_ACTIVATE = 1, LI_UNARY_SCALE, LI_UNARY_SOFTCAP, LI_UNARY_POSITION_SCALE };
enum { LI_BINARY_ADD = 1, LI_BINARY_MUL };
enum { LI_ROPE_INTERLEAVED = 0, LI_ROPE_HALF = 1 };
enum { LI_GATING_SOFTMAX = 0, LI_GATING_SIGMOID, LI_GATING_SOFTMAX_AFTER_TOPK };

/* Normalization over each group of `group` values. w, b: `group` values or NULL; `step` is 0 where all groups of a row
 * share them, else `group`: one set for each. */
typedef struct {
    int32_t kind;
    int32_t group;
    float eps;
    int32_t step;
    const float *w, *b;
} li_norm;

typedef struct {
    li_matrix table; /* (V, E) */
    float scale;     /* multiplies the rows */
    int32_t reserved;
    li_view out;
} li_embed_args;

typedef struct {
    li_norm norm;
    li_view x, out;
} li_norm_args;

/* One matrix of a linear instruction, with what is done to its result where it lies:
 * y = x W^T (+ bias) (* scale) (softcap) (act, or act(y) * partner's y where `paired`) (+ add).
 * The partner is the following output, which then has no place of its own. */
typedef struct {
    li_matrix w;
    const float *bias;
    float scale;   /* 1: none */
    float softcap; /* 0: none */
    int32_t act;
    int32_t paired;
    int32_t preparation; /* which of the instruction's prepared forms of x this matrix reads */
    int32_t reserved;
    li_view y, add;
} li_output;

#define LI_MAX_PREPARATIONS 4

/* Matrices that share one x: normalized (where norm.kind), prepared once per activation kind, multiplied. */
typedef struct {
    li_view x;
    li_norm norm;
    int32_t n_outputs;
    int32_t n_preparations;
    int32_t preparation_type[LI_MAX_PREPARATIONS]; /* a ggml type of the kind that is prepared for */
    const li_output *outputs;
} li_linear_args;

/* cos and sin of position * inv_freq[i], times magnitude: out (T, 2 * n_pairs), cosines first. */
typedef struct {
    const double *inv_freq;
    int32_t n_pairs;
    float magnitude;
    li_view out;
} li_rope_table_args;

/* Rotation of the leading 2 * n_pairs values of every group of `head` values. */
typedef struct {
    li_view table; /* n = 0: no rotation */
    int32_t head;
    int32_t n_pairs;
    int32_t style;
    int32_t reserved;
} li_rotation;

typedef struct {
    li_rotation rotation;
    li_view x, out;
} li_rope_args;

/* Normalize and rotate q and k in place (where asked), append k and v at `start`, attend. */
typedef struct {
    li_view q, k, v, out;
    li_norm q_norm, k_norm;
    li_rotation rotation;
    li_attention attention;
    int32_t layer; /* index into the run's KV layers */
    int32_t reserved;
} li_attention_args;

typedef struct {
    li_view gate, up, out;
    int32_t act;
    int32_t reserved;
} li_glu_args;

typedef struct {
    li_view x, out;
    int32_t kind;
    int32_t act;
    float factor; /* of LI_UNARY_SCALE; the cap of LI_UNARY_SOFTCAP */
    int32_t every; /* LI_UNARY_POSITION_SCALE: times 1 + factor * log(1 + floor((position + 1) / every)) */
} li_unary_args;

/* b may be one column: then it counts for every value of a row. */
typedef struct {
    li_view a, b, out;
    int32_t kind;
    int32_t reserved;
} li_binary_args;

/* out (T, E): rows start .. start+T-1 of the table. */
typedef struct {
    li_matrix table;
    li_view out;
} li_embed_positions_args;

/* Values [x_first, x_first + n) of every head of x go to [out_first, ...) of every head of out. */
typedef struct {
    li_view x, out;
    int32_t n_heads;
    int32_t x_head, out_head; /* values from one head to the next; x_head 0: one head of x serves all */
    int32_t x_first, out_first;
    int32_t n;
} li_head_copy_args;

/* out[t][h] = W[h] x[t][h]: w is head 0's matrix, head h's starts n_out * row_bytes * h later. */
typedef struct {
    li_view x, out;
    li_matrix w;
    int32_t n_heads;
    int32_t reserved;
} li_head_linear_args;

/* Taps over time, each channel for itself: out[t][c] = sum_k taps[k][c] * x[t - K + 1 + k][c] (+ bias[c]). The K-1
 * rows before x are the first (K-1) * C floats of the layer's state; the last K-1 rows are left there. */
typedef struct {
    li_view x, out;
    const float *taps; /* (K, C) */
    const float *bias; /* (C) or NULL */
    int32_t n_taps;    /* K */
    int32_t layer;
} li_conv_args;

/* A recurrent memory S (H, P, N), float32, in the layer's state from `state_offset` floats on. Head h reads group
 * h / (H / G), or h % G where `tiled`, of b, c (scan) or q, k (delta).
 * scan: step = softplus(dt + dt_bias); S = S * exp(step * a) + (step * x) b^T; y = S c (+ d * x).
 *       x (T, H, P), dt (T, H), b and c (T, G, N); a (H, a_values), a_values 1 or N.
 * delta: q, k (T, G, N) divided by their length, q by sqrt(N) too; v (T, H, P); alpha, beta (T, H).
 *       S = S * exp(softplus(alpha + dt_bias) * a); S += sigmoid(beta) * (v - S k) k^T; y = S q. */
typedef struct {
    li_view x, dt, b, c; /* delta: v, alpha, k, q */
    li_view beta;        /* delta only */
    li_view out;         /* (T, H, P) */
    const float *a, *dt_bias, *d; /* (H, a_values), (H), (H) or NULL */
    int32_t n_heads, d_head, d_state, n_groups;
    int32_t tiled, a_values;
    int32_t layer;
    float eps;
    int64_t state_offset;
} li_scan_args;

/* Experts of x (T, E) by router logits (T, n_experts); matrices of expert e start at blocks + e * n_out * row_bytes. */
typedef struct {
    li_view x, logits, out;
    li_matrix gate, up, down; /* gate.blocks NULL: act(up) alone; n_out and n_in of one expert */
    const float *selection_bias; /* (n_experts), added for choosing only; or NULL */
    const float *gate_bias, *up_bias, *down_bias; /* (n_experts, n_out) or NULL */
    int32_t n_experts, n_used;
    int32_t gating, normalize;
    int32_t n_groups, n_groups_used;
    int32_t act;
    float scale;
    int32_t weigh_input; /* the weight multiplies an expert's input, not its output */
    int32_t paged_layer; /* of `experts` */
    li_experts *experts; /* where the blocks are when they are paged; NULL: at gate, up and down */
} li_moe_args;

/* A boundary between instructions: the set in use is done, the next one is needed. */
typedef struct {
    li_pager *pager;
    int32_t done, need;
} li_page_args;

/* A guess at a router's logits (T, n_experts): of a few tokens, the n_used best are loaded ahead. */
typedef struct {
    li_view logits;
    li_experts *experts;
    int32_t layer, n_experts, n_used;
    int32_t reserved;
} li_expert_hint_args;

typedef struct {
    int32_t op;
    int32_t reserved;
    const void *args; /* the struct of that op; outlives the tape */
} li_instruction;

/* What changes from run to run. */
typedef struct {
    const int32_t *ids;  /* T, each within the embedding table */
    int32_t n_tokens;    /* T: 1 .. the tape's max_tokens */
    int32_t n_rows;      /* R: 0 .. T */
    int64_t start;       /* position of ids[0] */
    const li_kv_layer *kv; /* one per layer */
    float *const *state; /* one per layer: recurrent memory, or NULL */
    void *attention_scratch; /* see attention.h: enough for every layer, T and start + T */
    float *output;       /* (R, V) */
} li_run_args;

typedef struct li_tape li_tape;

/* Copies the instructions, not what they point to. NULL when memory is refused. max_tokens >= 1. The tape runs on pools
 * of up to n_threads threads. */
li_tape *li_tape_create(const li_instruction *instructions, int32_t n, int64_t arena_bytes, int32_t max_tokens,
                        int32_t n_threads);
void li_tape_destroy(li_tape *tape);
/* Bytes that belong to the tape: arena, prepared activations, scratch of all threads. */
int64_t li_tape_bytes(const li_tape *tape);
/* 0; -1 when n_tokens or n_rows are out of range, -2 when a token id is, -3 when a learned position is. */
int li_tape_run(li_tape *tape, li_pool *pool, const li_run_args *run);

/* Time spent, by operation: when on, li_tape_run adds nanoseconds and calls per LI_OP_* (arrays of LI_N_OPS). */
void li_trace(int on);
void li_trace_read(int64_t *ns, int64_t *calls);

int li_abi(void);

#endif
