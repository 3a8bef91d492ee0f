/* Causal attention over a paged KV cache: append T tokens' keys and values, then attend from T queries.
 *
 * Letters: T tokens at positions start .. start+T-1, H query heads, G key/value heads (H = G * ratio; query head h
 * reads key/value head h / ratio), Dk and Dv head sizes, a page of 16 tokens.
 *
 * A result's bits depend on the query, its position and what is stored; not on T, on the number of threads, on which
 * thread did what, on where pages lie, nor on the instruction set. So that this holds, the order of sums is fixed by
 * absolute positions. In float32, with fused multiply-adds:
 *   score      one chain over d ascending for each key (f32, f16); for q8_0 and q4_0 the query is rounded to 16 bits
 *              (max |q| = 32767 steps), blocks of 32 are summed in integers (at most 32 * 32767 * 128 < 2^31), and one
 *              chain over blocks ascending adds their scaled sums.
 *   chunk      256 positions from a multiple of 256: maximum, exp, sum by position modulo 8, and for each output
 *              value one chain over positions ascending. Masked positions are left out, not multiplied by zero.
 *   span       chunks merged ascending. A span is one chunk below position 4096 and in windowed layers, else 4.
 *   result     spans merged ascending, then the sink, then the division by the sum.
 *
 * Bytes of a page. For each kv head first K, then V; the page is G * (K bytes + V bytes), ggml's cost exactly:
 *   K f32, f16  [Dk][16]        a row holds one dimension of 16 keys: keys are vector lanes, dots need no reduction
 *   K q8_0      int8  [Dk/2][16][2], then f16 scales [Dk/32][16]
 *   K q4_0      uint32 [Dk/8][16], then f16 scales [Dk/32][16]. Of key j, dimensions 8c+2t (t = 0..3) are nibbles t
 *               of the low half of word [c][j], dimensions 8c+2t+1 are nibbles t of its high half; stored value + 8
 *   V f32, f16  [16][Dv]
 *   V q8_0      int8  [16][Dv], then f16 scales [Dv/32][16]
 *   V q4_0      uint8 [16][Dv/2], then f16 scales [Dv/32][16]. Byte 16b+i of a row holds dimension 32b+i in its low
 *               nibble and 32b+16+i in its high nibble, in two's complement
 *
 * Rotation. With k_rotate = n (a power of two that divides Dk) every n values of a key are multiplied by the n x n
 * Hadamard matrix / sqrt(n) before they are stored, and the query likewise: products stay, outliers spread over the
 * block. With v_rotate the result is rotated back. n = 0: as it is. It belongs to the stored bytes: a cache keeps it.
 *
 * Offset. What all keys of a head have in common adds the same to each of a query's scores, and softmax does not see it
 * (unless there are sinks or a softcap: no offset then). Without it keys are smaller, and so are the steps of q4_0.
 */
#ifndef LI_ATTENTION_H
#define LI_ATTENTION_H

#include <stdint.h>

#define LI_PAGE_TOKENS 16

enum { LI_KV_F32 = 0, LI_KV_F16 = 1, LI_KV_Q4_0 = 2, LI_KV_Q8_0 = 8 }; /* ggml's type ids */

/* One layer's store of one conversation. */
typedef struct {
    int32_t k_type, v_type;     /* LI_KV_*; q8_0 and q4_0 need Dk (Dv) % 32 == 0 */
    int32_t n_kv_heads;         /* G */
    int32_t d_k, d_v;
    int32_t page_tokens;        /* LI_PAGE_TOKENS */
    int32_t n_pages;            /* length of table */
    int32_t window;             /* a token sees this many positions, itself included; 0: all of them */
    int32_t k_rotate, v_rotate; /* Hadamard block, 0: none */
    uint8_t *pages;             /* physical page i lies at pages + i * page_bytes */
    int64_t page_bytes;         /* distance of pages; at least li_kv_page_bytes() */
    const int32_t *table;       /* physical page of logical page p: table[window ? p % n_pages : p] */
    const float *k_offset;      /* (G, Dk) taken from every key before it is stored, or NULL: see above */
} li_kv_layer;

/* What a layer's attention is, apart from its store. */
typedef struct {
    int32_t n_heads;     /* H, a multiple of G */
    int32_t chunk;       /* llama4: a token sees only its own chunk of this many positions; 0: off */
    float scale;         /* multiplies q.k */
    float softcap;       /* cap * tanh(score / cap); 0: off */
    const float *sinks;  /* (H) logits without a value, or NULL */
    const float *slopes; /* (H) alibi: slope * (key position - query position) is added, or NULL */
} li_attention;

/* One call: everything that its items read. Rows may be strided: *_ld floats from one token to the next. */
typedef struct {
    const li_attention *attention;
    const li_kv_layer *kv;
    int64_t start;      /* position of the first token; start + T <= 2^31 - 1 */
    int32_t n_tokens;   /* T */
    int32_t n_threads;  /* that items will be handed to; 1..256 */
    const float *q;     /* (T, H, Dk) */
    const float *k;     /* (T, G, Dk) */
    const float *v;     /* (T, G, Dv) */
    float *out;         /* (T, H, Dv) */
    int64_t q_ld, k_ld, v_ld, out_ld;
    void *scratch;      /* li_attention_scratch_bytes(), 64-byte aligned. All zero before its first call; after that
                           it belongs to attention: nothing else may write there. Calls in turn share it. */
} li_attention_call;

#define LI_MAX_HEAD 1024 /* largest Dk and Dv */

/* Bytes of one page of this layer. */
int64_t li_kv_page_bytes(const li_kv_layer *kv);

/* Scratch for any call with up to max_tokens tokens that ends at or below max_position, on n_threads threads. */
int64_t li_attention_scratch_bytes(const li_attention *attention, const li_kv_layer *kv, int32_t max_tokens,
                                   int64_t max_position, int32_t n_threads);

/* A call is two phases of independent items. All of the first are done before one of the second starts. The first may
 * be empty (0 items): then attention's items store the new tokens themselves. `thread` is 0 .. n_threads-1 and no two
 * items run at the same time with the same thread. Items are best handed out in ascending order, one by one. */
int64_t li_attention_append_items(const li_attention_call *call);
void li_attention_append_item(const li_attention_call *call, int64_t item);
int64_t li_attention_items(const li_attention_call *call);
void li_attention_item(const li_attention_call *call, int64_t item, int32_t thread);

/* Reads stored rows back as floats (rotation and offset undone): k (n, G, Dk) and v (n, G, Dv), dense, of positions first..;
 * either may be NULL. For tests and for measuring what a type costs. */
void li_kv_read(const li_kv_layer *kv, int64_t first, int32_t n, float *k, float *v);

#endif
