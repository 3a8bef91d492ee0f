/* What this machine can do at best: how fast its cores read memory and multiply, on the same pool of threads that runs
 * a model. Both take about `seconds` and return the best of many short passes. */
#ifndef LI_MEASURE_H
#define LI_MEASURE_H

#include <stdint.h>

#include "threads.h"

/* Bytes a second that all threads of the pool together read from `data` (n_bytes, 64-byte aligned, already written,
 * a multiple of 64 KiB), front to back. Larger than the caches, or they are what is measured. */
double li_measure_read_bandwidth(li_pool *pool, const void *data, int64_t n_bytes, double seconds);

/* float32 operations a second of all threads together, a fused multiply-add counted as two, from registers alone. */
double li_measure_fma(li_pool *pool, double seconds);

#endif
