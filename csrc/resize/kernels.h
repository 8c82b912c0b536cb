// The two inner loops of resize.h, one set for each kind of processor. Every set computes the same
// integers: sums of products that fit 32 bits, so that their order does not matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fastdata {

// The filter along one axis: output i is the sum of weights[i * taps + t] * source[start[i] + t].
struct FilterTaps {
    int count = 0;                 // outputs
    int taps = 0;                  // weights of each output; even, filled up with zeros at the end
    int precision = 0;             // the weights of an output sum to 2**precision
    std::vector<int32_t> start;    // (count)
    std::vector<int16_t> weights;  // (count * taps)
    std::vector<int16_t> spread;   // the weights as a kernel wants them, made by spread_weights
};

// Between the passes a value has this many bits after the point: 255 and the half that rounds the
// final result then just fit a signed 16-bit number.
inline constexpr int kRowBits = 7;

// `horizontal` may read so many values past the last that has a weight.
inline constexpr int kRowSlack = 8;

struct ResizeKernels {
    // out[i] = (sum over t < taps of weights[t] * rows[t][i] + half) >> shift, for i < count.
    void (*vertical)(const uint8_t *const *rows, const int16_t *weights, int taps, int32_t half,
                     int shift, size_t count, int16_t *out);

    // Filters one row of RGB pixels into filter.count RGB pixels; `row` already holds the half that
    // rounds the result.
    void (*horizontal)(const int16_t *row, const FilterTaps &filter, uint8_t *out);

    // Fills filter.spread, once a plan. May be null.
    void (*spread_weights)(FilterTaps &filter);
};

// The fastest set that this processor runs.
const ResizeKernels &best_resize_kernels();

// Portable C++, for every processor.
const ResizeKernels &portable_resize_kernels();

// Null if the processor has no AVX2.
const ResizeKernels *resize_kernels_avx2();

}  // namespace fastdata
