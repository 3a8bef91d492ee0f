// y (T, H, D) = x with its first n_dims values rotated by cos and sin (T, n_dims / 2), which carry the magnitude.
// sizes = [T * H * D, H, D, n_dims, interleaved]. Grid: a thread a value, rounded up.
const int i = thread_position_in_grid.x;
if (i < sizes[0]) {
  const int d = i % sizes[2], n_dims = sizes[3], half_dims = n_dims / 2;
  if (d >= n_dims) {
    y[i] = x[i];
  } else {
    const int pair = sizes[4] ? d / 2 : d % half_dims;
    const int first = i - d + (sizes[4] ? 2 * pair : pair), second = sizes[4] ? first + 1 : first + half_dims;
    const int at = i / (sizes[1] * sizes[2]) * half_dims + pair;
    y[i] = i == first ? x[first] * cosines[at] - x[second] * sines[at] : x[first] * sines[at] + x[second] * cosines[at];
  }
}
