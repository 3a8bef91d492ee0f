// Runs a kernel body on the host with a GPU's rules: every thread of a threadgroup is a fiber, simd_sum and barriers
// wait for all of its 32 lanes or its whole threadgroup, pointers check bounds and alignment, loads of a tracked input
// and writes of outputs are counted. An error is kept as one line; the run goes on with harmless values.
#ifndef LI_SHIM_H
#define LI_SHIM_H
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <math.h>

struct uint3 { unsigned x, y, z; };

// What happened to one buffer: `owner` is 1 + the SIMD group that read a byte first, `shared` is 1 where another group
// read it too, `reads` counts lanes; of an output `reads` counts writes of an element.
struct Track { int32_t* owner; uint8_t* shared; uint16_t* reads; };

struct Fiber {
  jmp_buf at;
  ucontext_t start;
  char* stack;
  bool made, running, done;
  uint3 place;       // in the threadgroup
  unsigned lane, group;
  int waits_simd;    // epoch it waits for, or -1
};
struct SimdGroup { float slot[32], result[2]; uint32_t arrived, epoch; int op; };

static const int MAX_THREADS = 1024, STACK_BYTES = 128 * 1024;
static Fiber li_fibers[MAX_THREADS];
static SimdGroup li_simd[MAX_THREADS / 32];
static Fiber* li_now;
static jmp_buf li_main;
static uint3 li_group_place, li_group_size;
static int li_n_threads, li_barrier_arrived, li_barrier_epoch;
static long li_progress, li_simd_number;
static char li_error[200];
static void (*li_body)(void);

static void li_fail(const char* text, long a, long b) {
  if (!li_error[0]) snprintf(li_error, sizeof li_error, text, a, b);
}
static inline void li_yield() { if (!_setjmp(li_now->at)) _longjmp(li_main, 1); }

static float li_collect(float v, int op) {
  SimdGroup& g = li_simd[li_now->group];
  if (g.arrived && g.op != op) li_fail("lanes of one SIMD group are in different operations (%ld, %ld)", g.op, op);
  g.op = op;
  g.slot[li_now->lane] = v;
  const uint32_t epoch = g.epoch;
  if (++g.arrived == 32) {
    float r = g.slot[0];
    for (int i = 1; i < 32; i++) r = op == 0 ? r + g.slot[i] : (g.slot[i] > r ? g.slot[i] : r);
    g.result[epoch & 1] = r;
    g.arrived = 0;
    g.epoch++;
    li_progress++;
  } else {
    while (g.epoch == epoch) li_yield();
  }
  return g.result[epoch & 1];
}
static inline float simd_sum(float v) { return li_collect(v, 0); }
static inline float simd_max(float v) { return li_collect(v, 1); }
static void li_barrier() {
  const int epoch = li_barrier_epoch;
  if (++li_barrier_arrived == li_n_threads) {
    li_barrier_arrived = 0;
    li_barrier_epoch++;
    li_progress++;
  } else {
    while (li_barrier_epoch == epoch) li_yield();
  }
}

static void li_fiber_main() {
  for (;;) {
    li_body();
    li_now->done = true;
    li_progress++;
    li_yield();
  }
}
static void li_resume(Fiber* f) {
  li_now = f;
  if (_setjmp(li_main)) return;
  if (f->made) _longjmp(f->at, 1);
  f->made = true;
  if (!f->stack) f->stack = (char*)malloc(STACK_BYTES);
  getcontext(&f->start);
  f->start.uc_stack.ss_sp = f->stack;
  f->start.uc_stack.ss_size = STACK_BYTES;
  f->start.uc_link = 0;
  makecontext(&f->start, li_fiber_main, 0);
  setcontext(&f->start);
}
static bool li_run_threadgroup() {
  memset(li_simd, 0, sizeof li_simd);
  li_barrier_arrived = 0;
  const int n = li_n_threads;
  for (int i = 0; i < n; i++) {
    Fiber& f = li_fibers[i];
    f.done = false;
    f.place = {i % li_group_size.x, i / li_group_size.x % li_group_size.y, i / (li_group_size.x * li_group_size.y)};
    f.lane = i % 32;
    f.group = i / 32;
  }
  for (int left = n; left;) {
    const long before = li_progress;
    left = 0;
    for (int i = 0; i < n; i++) {
      if (!li_fibers[i].done) li_resume(&li_fibers[i]);
      left += !li_fibers[i].done;
    }
    if (left && li_progress == before) {
      li_fail("%ld of %ld threads wait for threads that have ended or wait elsewhere", left, n);
      for (int i = 0; i < n; i++) li_fibers[i].made = false;
      return false;
    }
  }
  li_simd_number += (n + 31) / 32;
  return true;
}

// Grid in threads, as Metal's dispatchThreads; it must be whole threadgroups unless `partial`.
static const char* li_run(void (*body)(void), const uint32_t* grid, const uint32_t* group) {
  li_body = body;
  li_error[0] = 0;
  li_simd_number = 0;
  for (int a = 0; a < 3; a++)
    if (grid[a] % group[a]) { li_fail("grid %ld is no multiple of threadgroup %ld", grid[a], group[a]); return li_error; }
  li_group_size = {group[0], group[1], group[2]};
  li_n_threads = group[0] * group[1] * group[2];
  if (li_n_threads > MAX_THREADS) { li_fail("%ld threads in a threadgroup, at most %ld", li_n_threads, MAX_THREADS); return li_error; }
  for (unsigned z = 0; z < grid[2] / group[2]; z++)
    for (unsigned y = 0; y < grid[1] / group[1]; y++)
      for (unsigned x = 0; x < grid[0] / group[0]; x++) {
        li_group_place = {x, y, z};
        if (!li_run_threadgroup()) return li_error;
      }
  return li_error;
}

template <typename T> struct Checked {
  T *p, *low, *high;
  Track* track;  // of bytes for inputs, of elements for outputs; null: only bounds are checked
  static inline T spare[16] = {};
  Checked operator+(int64_t n) const { return {p + n, low, high, track}; }
  bool inside(int64_t i, int64_t n_bytes) const {
    const bool ok = (char*)(p + i) >= (char*)low && (char*)(p + i) + n_bytes <= (char*)high;
    if (!ok) li_fail("access at byte %ld of a buffer of %ld", (char*)(p + i) - (char*)low, (char*)high - (char*)low);
    return ok;
  }
  T& operator[](int64_t i) const {
    if (!inside(i, sizeof(T))) return spare[0];
    if (track) note(i, sizeof(T), std_is_const);
    return p[i];
  }
  template <typename U> U load(int64_t alignment) const {
    U v{};
    if (((char*)p - (char*)low) % alignment) { li_fail("load at byte %ld is not aligned to %ld", (char*)p - (char*)low, alignment); return v; }
    if (!inside(0, sizeof(U))) return v;
    if (track) note(0, sizeof(U), true);
    memcpy((void*)&v, (const void*)p, sizeof(U));
    return v;
  }
  template <typename U> Checked<U> as() const { return {(U*)p, (U*)low, (U*)high, track}; }

 private:
  template <typename U> struct is_const { static const bool value = false; };
  template <typename U> struct is_const<const U> { static const bool value = true; };
  static const bool std_is_const = is_const<T>::value;
  void note(int64_t i, int64_t n_bytes, bool input) const {
    if (!input) { track->reads[(p + i) - low]++; return; }
    const int32_t me = li_simd_number + li_now->group + 1;
    const int64_t at = (char*)(p + i) - (char*)low;
    for (int64_t b = at; b < at + n_bytes; b++) {
      if (!track->owner[b]) track->owner[b] = me;
      else if (track->owner[b] != me) track->shared[b] = 1;
      track->reads[b]++;
    }
  }
};

#define LI_IN(T) Checked<const T>
#define LI_THREAD
#define LI_SHARED static
#define LI_TABLE static const
#define LI_FN inline
#define LI_UNROLL
#define LI_UNROLL_BY(N)
#define LI_BARRIER li_barrier()
#define LI_BYTES(p) ((p).template as<const uint8_t>())
#define thread_index_in_simdgroup (li_now->lane)
#define simdgroup_index_in_threadgroup (li_now->group)
#define threadgroup_position_in_grid (li_group_place)
#define thread_position_in_grid \
  (uint3{li_group_place.x * li_group_size.x + li_now->place.x, li_group_place.y * li_group_size.y + li_now->place.y, \
         li_group_place.z * li_group_size.z + li_now->place.z})

typedef _Float16 float16_t;
struct bfloat16_t {  // rounded to nearest, ties to even
  uint16_t bits;
  bfloat16_t() = default;
  bfloat16_t(float v) { uint32_t u; memcpy(&u, &v, 4); bits = (u + 0x7fff + ((u >> 16) & 1)) >> 16; }
  operator float() const { uint32_t u = uint32_t(bits) << 16; float v; memcpy(&v, &u, 4); return v; }
};
LI_FN float f16_bits(uint32_t bits) { uint16_t b = bits; _Float16 h; memcpy(&h, &b, 2); return float(h); }
LI_FN float f32_bits(uint32_t bits) { float f; memcpy(&f, &bits, 4); return f; }
LI_FN uint32_t f16_to_bits(float v) { _Float16 h = _Float16(v); uint16_t b; memcpy(&b, &h, 2); return b; }
LI_FN uint32_t load_u8(LI_IN(uint8_t) p) { return p.load<uint8_t>(1); }
LI_FN uint32_t load_u16(LI_IN(uint8_t) p) { return p.load<uint16_t>(2); }
LI_FN uint32_t load_u32(LI_IN(uint8_t) p) { return p.load<uint32_t>(4); }
struct li_words { uint32_t w[4]; };
LI_FN void load_u128(LI_IN(uint8_t) p, uint32_t* to) { li_words v = p.load<li_words>(16); memcpy(to, v.w, 16); }
LI_FN void load_f32x4(LI_IN(float) p, float* to) { li_words v = p.load<li_words>(16); memcpy(to, v.w, 16); }
#endif
