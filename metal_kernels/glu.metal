// y = act(gate) * up, value by value. ACT: 0 silu, 1 gelu (tanh), 2 relu, 3 relu squared, 4 sigmoid, 5 gpt-oss's
// clamped swiglu. sizes = [n]. Grid: a thread a value, rounded up.
const int i = thread_position_in_grid.x;
if (i < sizes[0]) {
  float g = gate[i], u = up[i];
  if (ACT == 5) {
    g = g > 7.0f ? 7.0f : g;
    u = 1.0f + (u > 7.0f ? 7.0f : u < -7.0f ? -7.0f : u);
    y[i] = g / (1.0f + exp(-1.702f * g)) * u;
  } else if (ACT == 0) {
    y[i] = g / (1.0f + exp(-g)) * u;
  } else if (ACT == 1) {
    const float z = 0.79788456080286535f * g * (1.0f + 0.044715f * g * g);
    y[i] = 0.5f * g * (1.0f + tanh(z > 15.0f ? 15.0f : z < -15.0f ? -15.0f : z)) * u;
  } else if (ACT == 4) {
    y[i] = u / (1.0f + exp(-g));
  } else {
    g = g > 0.0f ? g : 0.0f;
    y[i] = (ACT == 3 ? g * g : g) * u;
  }
}
