// The two inner loops of resizing, one set for each kind of processor. Every set computes the same
// integers: its sums of products fit 32 bits, so their order does not matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fastdata {

// The filter along one axis: output i is the sum of weights[i * taps + t] * source[start[i] + t].
struct FilterTaps {
    int count = 0;                 // outputs
    int taps = 0;                  // weights of each output; even, padded with zeros at the end
    int precision = 0;             // the weights of an output sum to 2**precision
    std::vector<int32_t> start;    // (count)
    std::vector<int16_t> weights;  // (count * taps)
    std::vector<int16_t> spread;   // the weights in a kernel's own order, set by spread_weights
};

// Bits after the point between the passes: 255 and the half that rounds the final result then just
// fit a signed 16-bit number.
inline constexpr int kRowBits = 7;

// How many values `horizontal` may read past the last that has a weight.
inline constexpr int kRowSlack = 8;

struct ResizeKernels {
    // out[i] = (sum over t < taps of weights[t] * rows[t][i] + half) >> shift, for i < count.
    void (*vertical)(const uint8_t *const *rows, const int16_t *weights, int taps, int32_t half,
                     int shift, size_t count, int16_t *out);

    // Filters one row of RGB pixels into filter.count RGB pixels; `row` already includes the half
    // that rounds the result.
    void (*horizontal)(const int16_t *row, const FilterTaps &filter, uint8_t *out);

    // Sets filter.spread, once for each plan. May be null.
    void (*spread_weights)(FilterTaps &filter);
};

// The fastest set that this processor runs.
const ResizeKernels &best_resize_kernels();

// Portable C++, for every processor.
const ResizeKernels &portable_resize_kernels();

// Null if the processor has no AVX2.
const ResizeKernels *resize_kernels_avx2();

}  // namespace fastdata
